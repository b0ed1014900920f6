// The timeline: where rows and times are on its canvases, what is drawn there, and what is under the pointer.
import { firstFrom } from "./arrays.mjs";
import { byId, fittedText, sized } from "./dom.mjs";
import { gapAt, hasTime, itemOf, laneOf, spanOf } from "./items.mjs";
import { Strips, drawLane, drawMarks, drawTrack } from "./paint.mjs";
import { drawPeers } from "./ranks.mjs";
import { FOOT, HEADING, placed } from "./rows.mjs";
import { emit, state } from "./state.mjs";
import { measured, percent, tickStep, tickText, ticksBetween, time } from "./units.mjs";
import { clamped, isWhole } from "./view.mjs";

const RULER = 24;
const OVERVIEW = 34;
const MONO = "ui-monospace, 'SF Mono', 'Cascadia Mono', 'JetBrains Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
export const SMALL = `11px ${MONO}`;
export const LABEL = "12px system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

/** The sizes of the drawing in pixels. */
export const plotting = { width: 0, height: 0, gutter: 176, plot: 1, content: 0, glyph: 6.6, foot: OVERVIEW + RULER + 2 };
/** A stretch of time that the pointer draws, the colours of the theme, and how many lines lead to other ranks. */
export const drawing = { stretch: null, colors: {}, peers: 0 };

export const xOf = (t) => plotting.gutter + (t - state.view[0]) * plotting.plot / (state.view[1] - state.view[0]);
export const tOf = (x) => state.view[0] + (x - plotting.gutter) * (state.view[1] - state.view[0]) / plotting.plot;

/** Shows these times, as far as they are allowed. */
export const show = ([from, to]) => {
  state.view = clamped([from, to], state.model.whole);
  emit("view");
  draw();
};

/** Places rows and canvases in the height that the timeline has. */
export const layOut = () => {
  const { groups } = state.rows;
  const [scroller, plot] = [byId("scroller"), byId("plot")];
  plotting.height = Math.max(60, plot.clientHeight - plotting.foot);
  // Few rows are drawn higher, so that they fill the place.
  const open = groups.filter((group) => !group.isFolded).flatMap((group) => group.lanes).reduce((sum, lane) => sum + lane.base, 0);
  const room = plotting.height - groups.length * (HEADING + FOOT) - 2;
  plotting.content = placed(groups, Math.min(1.9, Math.max(1, room / Math.max(1, open))));
  byId("extent").style.height = `${plotting.content}px`;
  scroller.style.height = `${plotting.height}px`;
  plotting.width = scroller.clientWidth;
  plotting.gutter = plotting.width < 560 ? 86 : plotting.width < 800 ? 120 : 176;
  plotting.plot = Math.max(50, plotting.width - plotting.gutter - 8);
  sized(byId("canvas"), plotting.width, plotting.height);
  sized(byId("ruler"), plot.clientWidth, RULER);
  sized(byId("overview"), plot.clientWidth, OVERVIEW);
  draw();
};

let frame = 0;
export const draw = () => {
  if (frame !== 0) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawNow();
  });
};

const strips = new Strips();
export const drawNow = () => {
  if (plotting.width === 0) return;
  const context = byId("canvas").getContext("2d");
  const top = byId("scroller").scrollTop;
  const step = tickStep(state.view[1] - state.view[0], plotting.plot / 110);
  const ticks = ticksBetween(...state.view, step);
  context.textBaseline = "middle";
  drawGround(context, ticks);
  const shown = state.rows.groups.filter((group) => group.y + group.height >= top && group.y <= top + plotting.height);
  drawHeadings(context, shown, top);
  context.save();
  context.beginPath();
  context.rect(plotting.gutter, 0, plotting.width - plotting.gutter, plotting.height);
  context.clip();
  drawLanes(context, shown, top);
  drawSelection(context, top);
  drawArea(context);
  context.restore();
  drawLabels(context, shown, top);
  drawRuler(ticks, step);
  drawOverview();
};

/** The ground: time before the session and after it, pauses, and lines at ticks. */
const drawGround = (context, ticks) => {
  const { width, height, gutter } = plotting;
  const { colors } = drawing;
  context.fillStyle = colors.panel;
  context.fillRect(0, 0, width, height);
  context.fillStyle = colors.raised;
  const [zero, last] = [xOf(0), xOf(state.model.session)];
  if (zero > gutter) context.fillRect(gutter, 0, zero - gutter, height);
  if (last < width) context.fillRect(Math.max(last, gutter), 0, width - last, height);
  for (const [from, to] of state.model.data.pauses_ns) {
    const left = Math.max(xOf(from), gutter);
    if (xOf(to) > left) context.fillRect(left, 0, Math.max(1, xOf(to) - left), height);
  }
  context.fillStyle = colors.line;
  for (const t of ticks) context.fillRect(Math.round(xOf(t)), 0, 1, height);
  context.fillStyle = colors.strongLine;
  context.fillRect(gutter - 1, 0, 1, height);
};

const drawHeadings = (context, groups, top) => {
  const { colors } = drawing;
  const { data } = state.model;
  context.font = `600 ${LABEL}`;
  for (const group of groups) {
    const y = group.y - top;
    context.fillStyle = colors.raised;
    context.fillRect(0, y, plotting.width, HEADING - 2);
    context.fillStyle = colors.ink;
    const device = group.device && data.devices.find(({ id }) => id === group.device.id);
    const note = group.device?.busy.length ? ` \u2014 ${percent(device?.busy.busy_ns ?? 0, device?.clock_ns || data.clock_ns)} busy` : "";
    context.fillText(fittedText(context, `${group.isFolded ? "\u25b8" : "\u25be"}  ${group.label}${note}`, plotting.width - 16), 8, y + HEADING / 2 - 1);
  }
};

const drawLanes = (context, groups, top) => {
  const { paints, model } = state;
  const ratio = window.devicePixelRatio || 1;
  const pen = { context, from: state.view[0], to: state.view[1], gutter: plotting.gutter, plot: plotting.plot, ratio, glyph: plotting.glyph, colors: drawing.colors };
  const width = Math.ceil((plotting.plot + 8) * ratio);
  strips.start(width);
  context.font = SMALL;
  const painters = { range: paints.range, call: paints.call, operation: paints.operation, process: (row) => paints.named(model.P.name[row]) };
  for (const group of groups) {
    if (group.isFolded) continue;
    for (const lane of group.lanes) {
      const y = lane.y - top + 1;
      if (y + lane.height < 0 || y > plotting.height) continue;
      if (lane.type === "track") drawTrack(pen, lane, y, (alpha) => paints.track(lane.track, alpha));
      else if (lane.type === "mark") drawMarks(pen, lane, y, paints.mark().fill);
      else {
        const strip = strips.row(y, lane.height - 2);
        if (lane.type === "busy") {
          drawLane(pen, lane, y, strip, () => paints.part(0), null);
          const pieces = Object.assign(lane.pieces, { height: lane.height });
          drawLane(pen, pieces, y, strip, (row) => paints.part(pieces.clock.part[row]), (i, room) => pieceText(pieces, i, room));
        } else drawLane(pen, lane, y, strip, painters[lane.type], (i) => model.names[lane.name[i]]);
      }
    }
  }
  strips.draw(context, plotting.gutter, width / ratio);
};
const pieceText = ({ clock }, i, room) => {
  const length = time(clock.end[i] - clock.start[i]);
  const long = `${length} ${state.model.data.parts[clock.part[i]].name}`;
  return long.length <= room ? long : length.length <= room ? length : "";
};

const drawLabels = (context, groups, top) => {
  const { gutter } = plotting;
  const left = gutter < 120 ? 8 : 24;
  context.fillStyle = drawing.colors.muted;
  for (const group of groups) {
    if (group.isFolded) continue;
    for (const lane of group.lanes) {
      const middle = lane.y - top + lane.height / 2;
      if (!lane.label || middle < -20 || middle > plotting.height + 20) continue;
      context.font = LABEL;
      const hasScale = lane.type === "track" && lane.track.unit !== "flags";
      context.fillText(fittedText(context, lane.label, gutter - left - 8), left, hasScale ? middle - 7 : middle);
      if (!hasScale) continue;
      context.font = SMALL;
      const most = measured(lane.track.top, lane.track.unit);
      context.fillText(fittedText(context, gutter < 120 ? most : `0 \u2013 ${most}`, gutter - left - 8), left, middle + 8);
    }
  }
};

const drawRuler = (ticks, step) => {
  const canvas = byId("ruler");
  const context = canvas.getContext("2d");
  const { colors, stretch } = drawing;
  const { gutter } = plotting;
  const width = canvas.clientWidth;
  context.fillStyle = colors.panel;
  context.fillRect(0, 0, width, RULER);
  context.font = SMALL;
  context.textBaseline = "middle";
  for (const t of ticks) {
    const x = Math.round(xOf(t));
    if (x < gutter) continue;
    context.fillStyle = colors.line;
    context.fillRect(x, 0, 1, RULER);
    context.fillStyle = colors.muted;
    context.fillText(tickText(t, step), x + 4, RULER / 2 + 1);
  }
  const area = stretch ?? state.area;
  if (area !== null) {
    const [left, right] = area.map((t) => Math.min(Math.max(xOf(t), gutter), width));
    context.fillStyle = colors.accentFill;
    context.fillRect(left, 0, right - left, RULER);
    context.fillStyle = colors.accent;
    context.fillRect(left, 0, 2, RULER);
    context.fillRect(right - 2, 0, 2, RULER);
    const length = time(area[1] - area[0]);
    const wide = context.measureText(length).width;
    if (right - left > wide + 12) context.fillText(length, (left + right - wide) / 2, RULER / 2 + 1);
  }
  context.fillStyle = colors.panel;
  context.fillRect(0, 0, gutter - 1, RULER);
  context.fillStyle = colors.muted;
  context.font = LABEL;
  const { model, view } = state;
  const span = time(Math.min(view[1], model.whole) - Math.max(view[0], 0));
  const text = isWhole(view, model.whole) ? `${span}, all` : gutter < 150 ? span : `${span} of ${time(model.whole)}`;
  context.fillText(fittedText(context, text, gutter - 12), 8, RULER / 2 + 1);
  context.fillStyle = colors.strongLine;
  context.fillRect(gutter - 1, 0, 1, RULER);
};

// How much each GPU worked in every pixel's share of the session; drawn once for a width and a theme.
const busyness = { key: "", canvas: document.createElement("canvas") };
export const overviewX = (t) => plotting.gutter + t / state.model.whole * plotting.plot;
const drawBusyness = (width) => {
  const { colors } = drawing;
  const { gutter, plot } = plotting;
  const key = `${width} ${plot} ${colors.accent} ${window.devicePixelRatio}`;
  if (busyness.key === key) return;
  busyness.key = key;
  const context = sized(busyness.canvas, width, OVERVIEW);
  context.fillStyle = colors.panel;
  context.fillRect(0, 0, width, OVERVIEW);
  context.fillStyle = colors.muted;
  context.font = LABEL;
  context.textBaseline = "middle";
  context.fillText(fittedText(context, "GPU in use", gutter - 12), 8, OVERVIEW / 2);
  context.fillStyle = colors.accent;
  const lanes = state.rows.lanes.filter(({ type }) => type === "busy");
  const each = (OVERVIEW - 8) / Math.max(1, lanes.length);
  const pixels = Math.floor(plot);
  lanes.forEach((lane, row) => {
    const floor = 4 + each * (row + 1);
    const upTo = (t) => {
      const i = firstFrom(lane.end, t);
      return lane.before[i] + (i < lane.length ? Math.max(0, t - lane.start[i]) : 0);
    };
    for (let x = 0, before = 0; x < pixels; x++) {
      const now = upTo((x + 1) / pixels * state.model.whole);
      const height = Math.max(1, (now - before) * pixels / state.model.whole * (each - 1));
      if (now > before) context.fillRect(gutter + x, floor - height, 1, height);
      before = now;
    }
  });
};
const drawOverview = () => {
  const canvas = byId("overview");
  const width = canvas.clientWidth;
  const { colors } = drawing;
  const { gutter, plot } = plotting;
  drawBusyness(width);
  const context = canvas.getContext("2d");
  context.drawImage(busyness.canvas, 0, 0, width, OVERVIEW);
  const [from, to] = [overviewX(Math.max(0, state.view[0])), overviewX(Math.min(state.model.whole, state.view[1]))];
  context.fillStyle = colors.veil;
  context.fillRect(gutter, 0, from - gutter, OVERVIEW);
  context.fillRect(to, 0, gutter + plot - to, OVERVIEW);
  if (state.area !== null) {
    const [left, right] = state.area.map(overviewX);
    context.fillStyle = colors.areaFill;
    context.fillRect(left, 0, Math.max(2, right - left), OVERVIEW);
  }
  context.fillStyle = colors.hit;
  for (const t of overviewTicks()) context.fillRect(overviewX(t) - 1, OVERVIEW - 7, 2, 6);
  context.strokeStyle = colors.accent;
  context.lineWidth = 1;
  context.strokeRect(from + 0.5, 0.5, Math.max(2, to - from - 1), OVERVIEW - 1);
  context.fillStyle = colors.strongLine;
  context.fillRect(gutter - 1, 0, 1, OVERVIEW);
};
/** When the items of a trail are, for marks in the overview. */
const overviewTicks = () => (state.trail === null ? [] : state.trail.items.slice(0, 500).map(({ span }) => (span[0] + span[1]) / 2));

// Where an item's row is drawn; a folded group's items are in its heading.
const placeOf = (item) => {
  const lane = laneOf(state, item);
  if (lane === undefined) return undefined;
  return lane.group.isFolded ? { y: lane.group.y, height: HEADING - 2 } : { y: lane.y, height: lane.height };
};

const outline = (context, item, top, isStrong) => {
  const place = hasTime(state.model, item) ? placeOf(item) : undefined;
  if (place === undefined) return;
  const [from, to] = spanOf(state.model, item);
  const left = Math.max(xOf(from), plotting.gutter - 4);
  const width = Math.min(xOf(to), plotting.width + 4) - left;
  if (width < -4) return;
  context.strokeStyle = isStrong ? drawing.colors.ink : drawing.colors.accent;
  context.lineWidth = isStrong ? 2 : 1.5;
  context.strokeRect(left - 0.5, place.y - top + 0.5, Math.max(width, 2), place.height - 1);
};

/** At most so many arrows from a call to its operations. */
const MOST_ARROWS = 400;
const drawSelection = (context, top) => {
  const { selected, hovered, work, model } = state;
  drawing.peers = 0;
  if (hovered !== null) outline(context, hovered, top, false);
  if (state.trail !== null) for (const { item } of state.trail.items.slice(0, 200)) if (item !== null) outline(context, item, top, false);
  if (selected === null) return;
  // When the work of ranges ran: nsys calls it their projection.
  for (const [device, [from, to]] of work?.byDevice ?? []) {
    const group = state.rows.groups.find((group) => group.device?.id === device);
    if (!group || selected.type === "node") continue;
    const box = [xOf(from), group.y - top + HEADING, Math.max(1, xOf(to) - xOf(from)), group.height - HEADING - FOOT];
    context.fillStyle = drawing.colors.projection;
    context.fillRect(...box);
    context.strokeStyle = drawing.colors.accent;
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    context.strokeRect(...box);
    context.setLineDash([]);
  }
  outline(context, selected, top, true);
  const pairs = [];
  const { row } = selected;
  if (selected.type === "operation" && model.O.call[row] >= 0) pairs.push([model.O.call[row], row]);
  if (selected.type === "call") for (const operation of model.O.byCall.of(row).subarray(0, MOST_ARROWS)) pairs.push([row, operation]);
  for (const [call, operation] of pairs) drawArrow(context, top, call, operation);
  if (selected.type === "operation") drawing.peers = drawPeers(context, model, row, (other) => placeOnCanvas(other, top), drawing.colors.hit);
};
const placeOnCanvas = (row, top) => {
  const place = placeOf({ type: "operation", row });
  return place && { x: xOf(state.model.O.start[row]), y: place.y - top, height: place.height };
};
const drawArrow = (context, top, call, operation) => {
  const { C, O } = state.model;
  const { colors } = drawing;
  const from = placeOf({ type: "call", row: call });
  const to = placeOf({ type: "operation", row: operation });
  if (!from || !to) return;
  const x0 = xOf(C.start[call]) + Math.min(4, (xOf(C.end[call]) - xOf(C.start[call])) / 2);
  const [y0, x1, y1] = [from.y - top + from.height - 1, xOf(O.start[operation]), to.y - top + 1];
  outline(context, state.selected.type === "call" ? { type: "operation", row: operation } : { type: "call", row: call }, top, false);
  const bend = Math.max(12, Math.abs(y1 - y0) / 2);
  context.strokeStyle = colors.accent;
  context.fillStyle = colors.accent;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1 - 4);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 3.5, y1 - 6);
  context.lineTo(x1 + 3.5, y1 - 6);
  context.fill();
};

const drawArea = (context) => {
  const area = drawing.stretch ?? state.area;
  if (area === null) return;
  const { colors } = drawing;
  const [left, right] = area.map((t) => Math.min(Math.max(xOf(t), plotting.gutter - 2), plotting.width + 2));
  // What is not in it is pale.
  context.fillStyle = colors.veil;
  context.fillRect(plotting.gutter, 0, left - plotting.gutter, plotting.height);
  context.fillRect(right, 0, plotting.width - right, plotting.height);
  context.fillStyle = colors.accent;
  context.fillRect(left - 1, 0, 1.5, plotting.height);
  context.fillRect(right, 0, 1.5, plotting.height);
};

/** The heading under a point of the canvas. */
export const headingAt = (y) => {
  const at = y + byId("scroller").scrollTop;
  return state.rows.groups.find((group) => at >= group.y && at < group.y + HEADING);
};
/** The item under a point of the canvas, or within some pixels of it. */
export const itemAt = (x, y, near = 3) => {
  const at = y + byId("scroller").scrollTop;
  if (x < plotting.gutter) return null;
  const group = state.rows.groups.find((group) => at >= group.y && at < group.y + group.height);
  if (!group || group.isFolded || at < group.y + HEADING) return null;
  const lane = group.lanes.find((lane) => at >= lane.y && at < lane.y + lane.height);
  if (!lane) return null;
  const t = tOf(x);
  if (lane.type === "busy") return gapAt(state.model, group.device.id, t);
  const reach = near * (lane.type === "mark" ? 2 : 1) * (state.view[1] - state.view[0]) / plotting.plot;
  let [best, distance] = [-1, Infinity];
  for (let i = firstFrom(lane.end, t - reach); i < lane.length && lane.start[i] <= t + reach; i++) {
    const away = Math.max(0, lane.start[i] - t, t - lane.end[i]);
    if (away < distance) [best, distance] = [i, away];
    if (away === 0) break;
  }
  if (best < 0 || (lane.type === "track" && distance > 0)) return null;
  return itemOf(lane, best);
};
/** Scrolls the rows so that an item's lane can be seen, and opens its group. */
export const scrollTo = (item) => {
  const lane = laneOf(state, item);
  if (!lane) return;
  if (lane.group.isFolded) {
    lane.group.isFolded = false;
    layOut();
  }
  const scroller = byId("scroller");
  if (lane.y < scroller.scrollTop || lane.y + lane.height > scroller.scrollTop + plotting.height) scroller.scrollTop = lane.y - plotting.height / 2;
};
