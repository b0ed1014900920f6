// The flame graph on its canvas: a click on a frame zooms to it and selects its path, arrows go from frame to frame.
import { byId, element, sized } from "./dom.mjs";
import { framesOf, neighbourFrame, visibleFrames } from "./flame.mjs";
import { highlight, select } from "./selection.mjs";
import { state } from "./state.mjs";
import { gpuTime } from "./sums.mjs";
import { statesOf } from "./tables.mjs";
import { SMALL, drawing, plotting } from "./timeline.mjs";
import { count, percent, plural, shortened, time } from "./units.mjs";

const ROW = 20;
const graph = { flame: null, focus: null, current: -1, visible: [], width: 0 };

const textOf = (frame) => {
  const { names } = state.model;
  const { node, name, width, ns = width, count: number, kind, kernel, samples, all } = frame;
  if (kernel !== undefined) return `${names[name]}: ${percent(samples, all)} of ${plural(all, "sample")} of ${names[kernel]}: ${statesOf(frame)}`;
  const of = percent(ns, graph.flame.total);
  return node >= 0 ? `${names[name]}: ${time(ns)} of GPU time, ${of}, ${plural(number, "instance")}` : `${names[name]}: ${time(width)}, ${of}, ${count(number)} ${kind === 0 ? "kernels" : "operations"}`;
};
const reportFrame = () => {
  const frame = graph.flame.frames[graph.current];
  const lines = state.model.data.lines.length ? ", and lines as wide as their share of the kernel's instruction samples in the whole session" : "";
  byId("frame").textContent = frame === undefined ? `${time(graph.flame.total)} of GPU time: ranges by path, below them what they launched${lines}` : textOf(frame);
  byId("flame-all").disabled = graph.focus === null;
};

/** Draws the frames that can be seen. */
export const drawFlame = () => {
  const scroller = byId("flame-scroller");
  if (graph.flame === null || scroller.clientWidth === 0) return;
  const { model, paints } = state;
  const { colors } = drawing;
  const [width, height, top] = [scroller.clientWidth, scroller.clientHeight, scroller.scrollTop];
  const context = sized(byId("flame"), width, height);
  context.fillStyle = colors.panel;
  context.fillRect(0, 0, width, height);
  context.font = SMALL;
  context.textBaseline = "middle";
  graph.width = width;
  graph.visible = visibleFrames(graph.flame, graph.focus);
  for (const { index, frame, left, right } of graph.visible) {
    const y = frame.depth * ROW - top;
    if (y + ROW < 0 || y > height) continue;
    const { fill, ink } = frame.node >= 0 ? paints.ofNode(frame.node) : frame.kind === 0 ? paints.kernel(frame.kernel ?? frame.name) : paints.operationKind(frame.kind);
    const [x, wide] = [left * width, (right - left) * width];
    context.fillStyle = fill;
    context.fillRect(x, y, Math.max(1, wide - 1), ROW - 1);
    if (index === graph.current) {
      context.strokeStyle = colors.ink;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(1, wide - 3), ROW - 3);
    }
    const room = Math.floor((wide - 8) / plotting.glyph);
    if (room < 3) continue;
    context.fillStyle = ink;
    context.fillText(shortened(model.names[frame.name], room), x + 5, y + ROW / 2);
  }
};
const setCurrent = (index) => {
  if (index === graph.current) return;
  graph.current = index;
  reportFrame();
  drawFlame();
};
const setFocus = (index) => {
  graph.focus = index;
  reportFrame();
  drawFlame();
};
const frameAt = (event) => {
  const box = byId("flame").getBoundingClientRect();
  const at = (event.clientX - box.left) / graph.width;
  const depth = Math.floor((event.clientY - box.top + byId("flame-scroller").scrollTop) / ROW);
  return graph.visible.find(({ frame, left, right }) => frame.depth === depth && at >= left && at < right)?.index ?? -1;
};
/** Zooms to a frame, and selects its path or highlights its operations. */
const choose = (index) => {
  const frame = graph.flame.frames[index];
  if (frame === undefined) return;
  graph.current = index;
  if (frame.node >= 0) {
    setFocus(index);
    select({ type: "node", row: frame.node });
  } else highlight(frame.kernel ?? frame.name);
};

/** Builds the flame graph's elements. */
export const makeFlame = () => {
  const all = element("button", { type: "button", id: "flame-all", onclick: () => setFocus(null) }, "All");
  byId("panel-flame").replaceChildren(element("div", { class: "tools" }, all, element("output", { id: "frame", "aria-live": "polite" })),
    element("div", { id: "flame-scroller", tabindex: "0", role: "application", "aria-label": "Flame graph of ranges by GPU time; arrows go from frame to frame, Enter selects one" },
      element("div", { id: "flame-extent" }, element("canvas", { id: "flame" }))));
  const scroller = byId("flame-scroller");
  const canvas = byId("flame");
  scroller.addEventListener("scroll", drawFlame);
  canvas.addEventListener("pointermove", (event) => setCurrent(frameAt(event)));
  canvas.addEventListener("click", (event) => choose(frameAt(event)));
  scroller.addEventListener("keydown", (event) => {
    const way = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" }[event.key];
    if (way !== undefined) setCurrent(neighbourFrame(graph.flame, graph.visible, graph.current, way));
    else if (event.key === "Enter") choose(graph.current);
    else if (event.key === "Escape" && graph.focus !== null) setFocus(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
    const frame = graph.flame.frames[graph.current];
    if (frame !== undefined) scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, (frame.depth + 1) * ROW - scroller.clientHeight), frame.depth * ROW);
  });
  new ResizeObserver(drawFlame).observe(scroller);
};

/** Shows the frames of these sums. A frame that was zoomed to stays so where its path is still there. */
export const fillFlame = (paths, work) => {
  const { model } = state;
  const old = graph.focus === null ? null : graph.flame.frames[graph.focus].node;
  graph.flame = framesOf(model.data, paths, work, gpuTime);
  const focus = old === null ? -1 : graph.flame.frames.findIndex(({ node }) => node === old);
  graph.focus = focus < 0 ? null : focus;
  graph.current = -1;
  byId("flame-extent").style.height = `${graph.flame.depth * ROW + 4}px`;
  reportFrame();
  drawFlame();
};
/** For tests: the frames and what is shown of them. */
export const flameState = () => graph;
