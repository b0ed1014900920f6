// The tabs below the timeline, and when their content is made: tables and the flame graph follow what is selected and visible.
import { byId, element } from "./dom.mjs";
import { nameOf } from "./items.mjs";
import { fillFlame } from "./flamegraph.mjs";
import { scopeOf, timeScope } from "./selection.mjs";
import { emit, on, state } from "./state.mjs";
import { apiOf, contentOf, kernelsOf, linesOf, pathsOf, runner, transfersOf, workByPath } from "./sums.mjs";
import { tablesOf } from "./tables.mjs";
import { FOOT, HEADING } from "./rows.mjs";
import { layOut, plotting } from "./timeline.mjs";
import { shortened, time } from "./units.mjs";

/** Milliseconds without a change before tables are made anew. */
const QUIET = 120;

const tabs = () => [...byId("tabs").children].filter((tab) => !tab.hidden);
const tabOf = (name) => byId(`tab-${name}`);
export const hasTab = (name) => tabOf(name)?.hidden === false;

/** Opens a tab; with `null` the tables are closed and the timeline has their place. */
export const openTab = (name) => {
  state.tab = name;
  for (const tab of byId("tabs").children) {
    const isOpen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isOpen));
    tab.tabIndex = isOpen || (name === null && tab === tabs()[0]) ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !isOpen;
  }
  byId("tables").classList.toggle("closed", name === null);
  byId("tables-toggle").setAttribute("aria-expanded", String(name !== null));
  byId("tables-toggle").textContent = name === null ? "Tables \u25b4" : "Hide \u25be";
  emit("tab");
  refresh();
};

const scopeText = (scope) => {
  const { model } = state;
  switch (scope.kind) {
    case "area": return `the selected ${time(scope.span[1] - scope.span[0])}`;
    case "window": return `the visible ${time(scope.span[1] - scope.span[0])}`;
    case "range": return `what one ${shortened(nameOf(model, { type: "range", row: scope.row }), 40)} caused`;
    case "node": return `what ${shortened(model.pathOf(scope.row), 60)} caused`;
    default: return "the whole session";
  }
};

/** The selected range or path: samples have no time. */
const pathScope = () => {
  const scope = scopeOf();
  return scope.kind === "node" || scope.kind === "range" ? scope : { kind: "whole" };
};
const nodeOf = (model, { kind, row }) => (kind === "node" ? row : kind === "range" ? model.R.node[row] : null);
/** A node of the page's data in the form of the sums that this page makes. */
const wholeSums = (data) => ({ nodes: data.nodes, outside: data.outside });
const isSameScope = (a, b) => a !== null && a.kind === b.kind && a.row === b.row && a.span?.[0] === b.span?.[0] && a.span?.[1] === b.span?.[1];

const fillSliced = runner();
let tables = null;
let shown = null;
let selectedThen = null;
/** The panel whose content is being made, or was the last to be. */
let filling = null;
/** Makes the content of the open tab, unless it is that of this scope already. */
const refresh = () => {
  const { model, rows, tab, selected } = state;
  const scope = tab === "flame" ? timeScope() : tab === "lines" ? pathScope() : scopeOf();
  byId("scope").textContent = `Shows ${scopeText(scope)}`;
  if (tables === null || tab === null) return;
  if (shown?.tab === tab && isSameScope(shown.scope, scope) && selectedThen === selected) return;
  [shown, selectedThen] = [{ tab, scope }, selected];
  const { data } = model;
  const whole = scope.kind === "whole";
  const content = () => contentOf(model, rows.lanes, scope);
  const fill = (generator, done) => {
    // Of a tab that was left before it was filled.
    filling?.removeAttribute("aria-busy");
    filling = byId(`panel-${tab}`);
    filling.setAttribute("aria-busy", "true");
    fillSliced(generator, (result) => {
      filling.removeAttribute("aria-busy");
      done(result);
      emit("filled");
    });
  };
  function* given(value) {
    return value;
  }
  switch (tab) {
    case "ranges": return fill(whole ? given(wholeSums(data)) : pathsOf(model, content()), (sums) => tables.ranges(sums, whole));
    case "kernels": return fill(whole ? given(data.kernels) : kernelsOf(model, content()), (found) => tables.kernels(found, data.kernels.length === 0));
    case "lines": return fill(given(linesOf(model, nodeOf(model, scope))), (found) => tables.lines(found, data.lines.length === 0));
    case "memory": return fill(whole ? given(data.memory) : transfersOf(model, content()), (found) => tables.memory(found, data.memory.length === 0));
    case "api": return fill(whole ? given(data.api) : apiOf(model, content()), (found) => tables.api(found, data.api.length === 0));
    case "flame": return fill(flameSums(scope), ([sums, work]) => fillFlame(sums, work));
    default: return undefined;
  }
};
function* flameSums(scope) {
  const { model, rows } = state;
  const content = contentOf(model, rows.lanes, { kind: "window", span: scope.span ?? [-Infinity, Infinity] });
  const sums = scope.kind === "whole" ? wholeSums(model.data) : yield* pathsOf(model, content);
  return [sums, yield* workByPath(model, content)];
}

let pending = 0;
const later = () => {
  clearTimeout(pending);
  pending = setTimeout(refresh, QUIET);
};

/** Makes what is shown again, as after a change of the theme. */
export const remake = () => {
  shown = null;
  refresh();
};

// --- heights ------------------------------------------------------------------------------------------------------------

/** The least height of the timeline, and the share of it that it has at least while a tab is open. */
const LEAST_HEIGHT = 150;
const MOSTLY = 0.58;
/** Rows that need more than this share of the window get all of it: tabs are closed until one is opened. */
const ALL = 0.68;
/** The height of the timeline as its share of the room, if the splitter was moved. */
let chosenHeight = null;
/** Where there is little room, as on a phone, the page scrolls and tables have the height they need. */
const isPaged = () => getComputedStyle(document.body).overflowY !== "hidden";
const roomOf = () => {
  const bars = byId("tabbar").offsetHeight + byId("splitter").offsetHeight;
  return Math.max(LEAST_HEIGHT, isPaged() ? window.innerHeight * 0.75 : window.innerHeight - byId("stage").getBoundingClientRect().top - bars);
};
const wanted = () => plotting.foot + state.rows.groups.reduce((sum, group) => sum + HEADING + FOOT + (group.isFolded ? 0 : group.lanes.reduce((all, lane) => all + lane.base, 0)), 4);
/** Whether the rows leave room for a table. */
export const hasRoom = () => isPaged() || wanted() <= roomOf() * ALL;

/** Gives the timeline the height that was chosenHeight, or that its rows need; all of the window while no tab is open. */
export const shareHeight = () => {
  const room = roomOf();
  let height = room;
  if (chosenHeight !== null) height = chosenHeight * room;
  else if (isPaged()) height = Math.max(wanted(), 2 * LEAST_HEIGHT);
  else if (state.tab !== null) height = Math.min(Math.max(wanted(), MOSTLY * room), ALL * room);
  const { style } = byId("stage");
  style.height = `${Math.round(Math.min(Math.max(height, LEAST_HEIGHT), room))}px`;
  style.setProperty("--plot-height", style.height);
  byId("splitter").setAttribute("aria-valuenow", String(Math.round(100 * Math.min(1, height / room))));
  layOut();
};
/** Moves the splitter; at its end the tables close. */
const split = (to) => {
  const isClosing = to > 0.95 && !isPaged();
  chosenHeight = isClosing ? null : Math.max(LEAST_HEIGHT / roomOf(), Math.min(1, to));
  if (isClosing !== (state.tab === null) && !isPaged()) openTab(isClosing ? null : lastTab);
  else shareHeight();
};
let lastTab = "ranges";
/** Gives the timeline all of the window, or the tables their part again. */
export const toggleTables = () => {
  chosenHeight = null;
  openTab(state.tab === null ? lastTab : null);
};

const listenToSplitter = () => {
  const splitter = byId("splitter");
  let held = null;
  splitter.addEventListener("pointerdown", (event) => {
    held = event.clientY - byId("stage").offsetHeight;
    splitter.setPointerCapture(event.pointerId);
  });
  splitter.addEventListener("pointermove", (event) => held !== null && split((event.clientY - held) / roomOf()));
  for (const end of ["pointerup", "pointercancel"]) splitter.addEventListener(end, () => held = null);
  splitter.addEventListener("dblclick", toggleTables);
  splitter.addEventListener("keydown", (event) => {
    const now = byId("stage").offsetHeight / roomOf();
    const to = { ArrowUp: now - 0.05, ArrowDown: now + 0.05, Home: 0, End: 1 }[event.key];
    if (to !== undefined) split(to);
    else if (event.key === "Enter") toggleTables();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
};

/** Builds the tabs and follows the state. `first` is the tab that opens if there is room. */
export const makePanels = (first) => {
  tables = tablesOf();
  for (const tab of byId("tabs").children) {
    const name = tab.id.slice(4);
    tab.addEventListener("click", () => openTab(name));
  }
  byId("tabs").addEventListener("keydown", (event) => {
    const all = tabs();
    const at = all.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    const tab = all[(to + all.length) % all.length];
    openTab(tab.id.slice(4));
    tab.focus();
  });
  byId("follow").addEventListener("change", ({ target }) => {
    state.follows = target.checked;
    refresh();
  });
  on("view area selection", later);
  on("tab", () => {
    if (state.tab !== null) lastTab = state.tab;
    shareHeight();
  });
  byId("tables-toggle").addEventListener("click", toggleTables);
  listenToSplitter();
  lastTab = first;
  openTab(hasRoom() ? first : null);
};
/** A label with a number, as tabs have them. */
export const tabLabel = (name, number) => tabOf(name).append(element("span", { class: "number" }, String(number)));
