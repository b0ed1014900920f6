// What pointer, wheel, fingers and keys do.
import { byId } from "./dom.mjs";
import { nameOf, spanOf } from "./items.mjs";
import { endTrail, escape, markArea, neighbour, searchFor, select, setArea, showSelected, step } from "./selection.mjs";
import { toggleTables } from "./panels.mjs";
import { isSame } from "./items.mjs";
import { emit, state } from "./state.mjs";
import { draw, drawing, headingAt, itemAt, layOut, overviewX, plotting, show, tOf, xOf } from "./timeline.mjs";
import { trackText } from "./details.mjs";
import { plural, shortened, time } from "./units.mjs";
import { clamped, panned, wholeView, zoomed } from "./view.mjs";

const scroller = () => byId("scroller");
const whole = () => state.model.whole;
const zoom = (factor, at = (state.view[0] + state.view[1]) / 2) => show(zoomed(state.view, factor, at, whole()));
const pan = (by) => show(panned(state.view, by, whole()));
const showAll = () => show(wholeView(whole()));
const local = (event, target) => {
  const box = target.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
const within = (x) => Math.min(Math.max(tOf(Math.max(x, plotting.gutter)), 0), whole());

// --- the tip ------------------------------------------------------------------------------------------------------------

const showTip = (item, x, y) => {
  const tip = byId("tip");
  tip.hidden = item === null;
  if (item === null) return;
  const { model } = state;
  const [from, to] = spanOf(model, item);
  const parts = [shortened(nameOf(model, item), 160)];
  if (item.type === "track") {
    const track = model.tracks[item.of];
    parts.push(`${trackText(track, track.value[item.row])}, ${plural(track.samples(item.row), "sample")}`);
  }
  if (item.type !== "mark") parts.push(time(to - from));
  tip.textContent = parts.join("  \u00b7  ");
  tip.style.left = `${Math.max(4, Math.min(x + 14, plotting.width - tip.offsetWidth - 8))}px`;
  // Below the pointer, or above it where that would be cut off.
  const below = y + plotting.foot + 18;
  tip.style.top = `${below + tip.offsetHeight > plotting.height + plotting.foot ? Math.max(0, below - tip.offsetHeight - 30) : below}px`;
};
const hover = (item, x = 0, y = 0) => {
  byId("canvas").classList.toggle("over", item !== null);
  if (!isSame(item, state.hovered)) {
    state.hovered = item;
    draw();
  }
  showTip(item, x, y);
};

// --- pointers -----------------------------------------------------------------------------------------------------------

/** What a pointer that is down does: `pan`, `area`, `pinch`, or nothing until it has moved. */
let drag = null;
/** Fingers on the canvas by their id. */
const fingers = new Map();
/** Whether a drag selects a time; else it pans. Shift, and the middle button, do the other. */
let isSelecting = true;
const setMode = (selects) => {
  isSelecting = selects;
  byId("mode").textContent = selects ? "Drag: select" : "Drag: pan";
};

const down = (event) => {
  if (event.button > 1) return;
  const canvas = byId("canvas");
  const [x, y] = local(event, canvas);
  fingers.set(event.pointerId, [x, y]);
  canvas.setPointerCapture(event.pointerId);
  if (fingers.size === 2) {
    const [[a], [b]] = [...fingers.values()];
    drag = { what: "pinch", view: state.view, at: tOf((a + b) / 2), apart: Math.max(10, Math.abs(a - b)) };
    drawing.stretch = null;
    return;
  }
  const selects = (isSelecting && event.pointerType !== "touch") !== (event.shiftKey || event.button === 1);
  if (event.button === 1) event.preventDefault();
  drag = { what: selects ? "area" : "pan", x, y, view: state.view, top: scroller().scrollTop, hasMoved: false };
};
const move = (event) => {
  const canvas = byId("canvas");
  const [x, y] = local(event, canvas);
  if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [x, y]);
  if (drag === null || drag.what === "ruler") {
    hover(itemAt(x, y, event.pointerType === "touch" ? 8 : 3), x, y);
    return;
  }
  if (drag.what === "pinch") {
    if (fingers.size < 2) return;
    const [[a], [b]] = [...fingers.values()];
    const span = (drag.view[1] - drag.view[0]) * drag.apart / Math.max(10, Math.abs(a - b));
    const share = ((a + b) / 2 - plotting.gutter) / plotting.plot;
    show(clamped([drag.at - span * share, drag.at - span * share + span], whole()));
    return;
  }
  if (!drag.hasMoved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
  drag.hasMoved = true;
  hover(null);
  if (drag.what === "pan") {
    canvas.classList.add("dragging");
    const by = (drag.x - x) * (drag.view[1] - drag.view[0]) / plotting.plot;
    show([drag.view[0] + by, drag.view[1] + by]);
    if (event.pointerType !== "touch") scroller().scrollTop = drag.top + drag.y - y;
  } else {
    drawing.stretch = [within(drag.x), within(x)].sort((a, b) => a - b);
    draw();
  }
};
const up = (event) => {
  const canvas = byId("canvas");
  fingers.delete(event.pointerId);
  canvas.classList.remove("dragging");
  const ended = drag;
  drag = null;
  const { stretch } = drawing;
  drawing.stretch = null;
  if (ended === null || ended.what === "pinch" || event.type === "pointercancel") {
    draw();
    return;
  }
  if (ended.what === "area" && ended.hasMoved) {
    endTrail();
    setArea(stretch);
  }
  if (ended.hasMoved) return;
  const heading = headingAt(ended.y);
  if (heading) {
    heading.isFolded = !heading.isFolded;
    layOut();
  } else {
    if (state.trail === null) setArea(null);
    select(itemAt(ended.x, ended.y, event.pointerType === "touch" ? 10 : 3));
  }
};

/** The ruler: a drag selects a time, or moves an end of the selected one. */
const listenToRuler = () => {
  const ruler = byId("ruler");
  ruler.addEventListener("pointerdown", (event) => {
    const [x] = local(event, ruler);
    if (x < plotting.gutter) return;
    const near = state.area === null ? -1 : state.area.findIndex((t) => Math.abs(xOf(t) - x) < 6);
    drag = { what: "ruler", fixed: near < 0 ? within(x) : state.area[1 - near], x, hasMoved: near >= 0 };
    ruler.setPointerCapture(event.pointerId);
  });
  ruler.addEventListener("pointermove", (event) => {
    if (drag?.what !== "ruler") return;
    const [x] = local(event, ruler);
    drag.hasMoved ||= Math.abs(x - drag.x) > 3;
    drawing.stretch = drag.hasMoved ? [drag.fixed, within(x)].sort((a, b) => a - b) : null;
    draw();
  });
  const end = () => {
    if (drag?.what !== "ruler") return;
    const { stretch } = drawing;
    [drag, drawing.stretch] = [null, null];
    endTrail();
    setArea(stretch);
  };
  ruler.addEventListener("pointerup", end);
  ruler.addEventListener("pointercancel", end);
};
const listenToOverview = () => {
  const overview = byId("overview");
  let isHeld = false;
  const go = (event) => {
    const [x] = local(event, overview);
    const middle = (x - plotting.gutter) / (overviewX(whole()) - plotting.gutter) * whole();
    const span = state.view[1] - state.view[0];
    show([middle - span / 2, middle + span / 2]);
  };
  overview.addEventListener("pointerdown", (event) => {
    isHeld = true;
    overview.setPointerCapture(event.pointerId);
    go(event);
  });
  overview.addEventListener("pointermove", (event) => isHeld && go(event));
  for (const end of ["pointerup", "pointercancel"]) overview.addEventListener(end, () => isHeld = false);
};
const listenToWheel = () => {
  // A scroll of the page that began elsewhere goes on over the timeline, and does not zoom it.
  let wheel = { at: -Infinity, isOurs: false };
  window.addEventListener("wheel", (event) => {
    const isOver = byId("plot").contains(event.target);
    const isNew = event.timeStamp - wheel.at > 250;
    wheel = { at: event.timeStamp, isOurs: isNew ? isOver : wheel.isOurs && isOver };
    if (!wheel.isOurs) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 300 : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const x = event.clientX - scroller().getBoundingClientRect().left;
    if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) pan((dx || dy) / plotting.plot);
    else if (event.altKey || (x < plotting.gutter && !event.ctrlKey)) scroller().scrollTop += dy;
    else zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * (event.ctrlKey && Math.abs(dy) < 40 ? 0.01 : 0.0022)), tOf(x));
  }, { passive: false });
};

// --- keys ---------------------------------------------------------------------------------------------------------------

/** Keys that move while they are held: what they change a second, as a share of the view. */
const HELD = { w: ["zoom", -1], s: ["zoom", 1], a: ["pan", -1], d: ["pan", 1] };
const held = new Map();
let last = 0;
const motion = (now) => {
  if (held.size === 0) return;
  const seconds = Math.min(0.05, (now - last) / 1000);
  last = now;
  for (const [what, sign] of held.values()) {
    if (what === "zoom") zoom(Math.exp(sign * 2.4 * seconds));
    else pan(sign * 1.1 * seconds);
  }
  requestAnimationFrame(motion);
};
const hold = (key) => {
  const [what, sign] = HELD[key];
  // The first press moves by a step, so that a tap does something.
  if (what === "zoom") zoom(sign < 0 ? 0.8 : 1.25);
  else pan(sign * 0.1);
  if (held.size === 0) {
    last = performance.now();
    requestAnimationFrame(motion);
  }
  held.set(key, HELD[key]);
};
const release = () => held.clear();

const moveEnd = (share) => {
  const [from, to] = state.area;
  const end = Math.min(Math.max(to + (state.view[1] - state.view[0]) * share, from), whole());
  if (end > from) setArea([from, end]);
};
const fold = () => {
  const { selected, rows } = state;
  const group = selected === null ? rows.groups[0] : rows.groups.find(({ lanes }) => lanes.some((lane) => lane.table === state.model.tables[selected.type] && lane.rows.includes(selected.row)));
  if (!group) return;
  group.isFolded = !group.isFolded;
  layOut();
};
const toggleDetails = () => {
  byId("stage").classList.toggle("alone");
  layOut();
};
export const openHelp = () => byId("help").showModal();
/** Keys that act wherever no text is typed. */
const KEYS = {
  "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), _: () => zoom(1 / 0.7), 0: showAll, f: showSelected, m: markArea,
  n: () => step(1), N: () => step(-1), p: () => step(-1), ",": () => neighbour(-1), ".": () => neighbour(1), Escape: escape, o: fold, t: toggleTables, i: toggleDetails,
  "/": () => byId("search").select(), "?": openHelp,
};
/** Keys that scroll other things too: they act on the timeline where it, or nothing, has the focus. */
const ARROW_KEYS = {
  ArrowLeft: (isFar) => (isFar && state.area ? moveEnd(-0.02) : pan(isFar ? -0.5 : -0.1)), ArrowRight: (isFar) => (isFar && state.area ? moveEnd(0.02) : pan(isFar ? 0.5 : 0.1)),
  ArrowUp: (isFar) => scroller().scrollTop -= isFar ? 160 : 40, ArrowDown: (isFar) => scroller().scrollTop += isFar ? 160 : 40,
  Home: () => show([0, state.view[1] - state.view[0]]), End: () => show([whole() - (state.view[1] - state.view[0]), whole()]),
};
const typed = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const { target, key } = event;
  if (target.matches("input:not([type=checkbox]), textarea, select")) {
    if (key === "Escape" && target.id === "search") target.blur();
    else return;
  }
  const isTimeline = target === scroller() || target === document.body;
  const lower = key.length === 1 ? key.toLowerCase() : key;
  if (lower in HELD) {
    if (!event.repeat) hold(lower);
  } else if (key in ARROW_KEYS && isTimeline) ARROW_KEYS[key](event.shiftKey);
  else if (key in KEYS) KEYS[key]();
  else if (lower in KEYS) KEYS[lower]();
  else return;
  event.preventDefault();
};

// --- search and tools ---------------------------------------------------------------------------------------------------

const listenToSearch = () => {
  const search = byId("search");
  let pending = 0;
  const go = (done) => {
    clearTimeout(pending);
    endTrail();
    searchFor({ text: search.value, isRegex: state.query.isRegex }, done);
  };
  search.addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(go, 80);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    // What was typed last may not have been searched yet.
    const isOld = state.query.name === null && state.query.text !== search.value;
    if (isOld) go(() => step(event.shiftKey ? -1 : 1));
    else step(event.shiftKey ? -1 : 1);
  });
  byId("regex").addEventListener("click", () => {
    state.query = { ...state.query, name: null, isRegex: !state.query.isRegex };
    go();
    emit("search");
  });
  byId("next").addEventListener("click", () => step(1));
  byId("previous").addEventListener("click", () => step(-1));
};

export const listen = () => {
  const canvas = byId("canvas");
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("dblclick", () => state.selected !== null && showSelected());
  listenToRuler();
  listenToOverview();
  listenToWheel();
  listenToSearch();
  scroller().addEventListener("scroll", draw);
  document.addEventListener("keydown", typed);
  document.addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  window.addEventListener("blur", release);
  byId("zoom-in").addEventListener("click", () => zoom(0.5));
  byId("zoom-out").addEventListener("click", () => zoom(2));
  byId("zoom-fit").addEventListener("click", showAll);
  byId("zoom-selection").addEventListener("click", showSelected);
  byId("mode").addEventListener("click", () => setMode(!isSelecting));
  byId("help-open").addEventListener("click", openHelp);
  byId("help-close").addEventListener("click", () => byId("help").close());
  byId("help").addEventListener("click", (event) => event.target === byId("help") && byId("help").close());
};
