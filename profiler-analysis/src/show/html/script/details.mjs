// The panel beside the timeline: findings while nothing is selected, else the sums of an area or the facts of an item.
import { firstFrom } from "./arrays.mjs";
import { OPERATIONS, partColor } from "./colors.mjs";
import { button, byId, element, facts, muted, nameButton, swatch } from "./dom.mjs";
import { aroundGap, hasTime, nameOf, spanOf } from "./items.mjs";
import { GRAPH, KERNEL, MEMSET, REASONS, reasonsText } from "./model.mjs";
import { collectiveFacts, collectiveOf, peersOf } from "./ranks.mjs";
import { endTrail, highlight, markArea, select, setArea, showFinding, showPart, showSelected, step } from "./selection.mjs";
import { emit, state } from "./state.mjs";
import { areaOf, contentOf, gpuTime, partsOf, runner, trackWithin } from "./sums.mjs";
import { bytes, count, joules, measured, percent, plural, rate, shortened, time } from "./units.mjs";

const jump = (item) => button(shortened(nameOf(state.model, item), 300), () => select(item, { isRevealed: true }), { class: "link" });
const linked = (before, item) => element("p", {}, before, jump(item));
const title = (text, kind, ...more) => element("div", { class: "title" }, element("h2", { class: "name" }, shortened(text, 5000)), element("span", { class: "muted" }, kind), ...more);

// --- where the time goes ----------------------------------------------------------------------------------------------

/** The parts of a clock as a bar and a legend. `sums` are nanoseconds by part. */
const partsBar = (sums, label, show = null) => {
  const { parts } = state.model.data;
  const total = sums.reduce((sum, ns) => sum + ns, 0);
  if (total === 0) return undefined;
  const shown = [...sums.keys()].filter((part) => sums[part] > 0);
  const bar = element("div", { class: "parts", role: "img", "aria-label": `${label}: ${shown.map((part) => `${parts[part].name} ${percent(sums[part], total)}`).join(", ")}` });
  const list = element("ul", { class: "key" });
  for (const part of shown) {
    const color = partColor(part);
    const piece = element("i", { title: `${parts[part].name}: ${time(sums[part])}, ${percent(sums[part], total)}` });
    piece.style.background = color;
    piece.style.flexGrow = String(sums[part] / total);
    bar.append(piece);
    const { name } = parts[part];
    // Kernels are in the timeline; all else has pieces of the clock to step through.
    const text = show !== null && part > 0 ? button(name, () => show(part), { class: "link", title: "Steps through the longest" }) : element("span", { title: name }, name);
    list.append(element("li", {}, swatch(color), text, element("b", {}, percent(sums[part], total)), element("span", { class: "muted" }, time(sums[part]))));
  }
  return element("div", {}, bar, list);
};

// --- nothing selected: the verdict and the findings ---------------------------------------------------------------------

const LEVELS = { loss: ["Loss", "bad"], warning: ["Warning", "warn"], fact: ["Fact", "plain"] };
const findingItem = (finding, text) => {
  const [label, look] = LEVELS[finding.level] ?? LEVELS.fact;
  const number = finding.evidence.length;
  return element("li", {}, element("span", { class: `badge ${look}`, title: label, "aria-label": label, role: "img" }, label === "Fact" ? "i" : "!"),
    element("details", {}, element("summary", {}, text), muted(finding.text)),
    number ? button("Show", () => showFinding(finding), { title: number > 1 ? `Steps through ${number} places` : "Shows the place" }) : undefined);
};
const overview = (box) => {
  const { data, devices } = state.model;
  const { verdict } = data.scorecard;
  const isVerdict = ({ title: text }) => text.toLowerCase() === verdict.toLowerCase();
  const own = data.findings.find(isVerdict);
  const text = `${verdict[0].toUpperCase()}${verdict.slice(1)}.`;
  box.append(element("ul", { class: "findings verdict" }, own === undefined ? element("li", {}, element("p", {}, text)) : findingItem(own, text)));
  const sums = new Float64Array(data.parts.length);
  for (const device of devices) partsOf(device, [-Infinity, Infinity], data.parts.length).sums.forEach((ns, part) => sums[part] += ns);
  const bar = partsBar(sums, "Where the time goes", showPart);
  if (bar) box.append(bar);
  box.append(element("h2", {}, "Findings"));
  const others = data.findings.filter((finding) => finding !== own);
  const list = element("ul", { id: "findings", class: "findings" }, ...others.map((finding) => findingItem(finding, finding.title)));
  if (others.length === 0) list.append(element("li", {}, element("span", { class: "badge plain" }, "None"), "Nothing to say beyond the tables."));
  box.append(list);
};

// --- an area ------------------------------------------------------------------------------------------------------------

/** So many kernels and paths an area shows. */
const LEADERS = 6;
const sumSliced = runner();
const area = (box, span) => {
  const { model, rows } = state;
  const { data, devices, tracks } = model;
  const length = span[1] - span[0];
  box.append(title(time(length), "Selected time", element("div", { class: "tools" }, button("Zoom", showSelected, { title: "Zoom to it (F)" }), button("Clear", () => setArea(null), { title: "Esc" }))));
  box.append(facts([["From", `${(span[0] / 1e6).toFixed(6)} ms`], ["To", `${(span[1] / 1e6).toFixed(6)} ms`], ["Of the session", percent(length, model.session)]]));
  for (const device of devices) {
    if (device.busy.length === 0) continue;
    const { sums, idle } = partsOf(device, span, data.parts.length);
    const covered = sums.reduce((sum, ns) => sum + ns, 0);
    box.append(element("h3", {}, `GPU ${device.id}: ${percent(covered - idle, length)} in use, ${percent(idle, length)} idle`));
    const bar = partsBar(sums, `GPU ${device.id}`);
    if (bar) box.append(bar);
  }
  const place = element("div", { "aria-busy": "true" });
  box.append(place);
  const content = contentOf(model, rows.lanes, { kind: "area", span });
  sumSliced(areaOf(model, content, LEADERS), ({ kernels, calls, paths, instances }) => {
    place.removeAttribute("aria-busy");
    const sum = (list, field) => list.reduce((total, row) => total + row[field], 0);
    const copies = content.operations.reduce((all, part) => all + part.reduce((sum, row) => sum + (model.O.kind[row] !== KERNEL && model.O.kind[row] !== MEMSET && model.O.kind[row] !== GRAPH ? 1 : 0), 0), 0);
    place.append(facts([
      ["Kernels", `${count(sum(kernels, "count"))}, ${time(sum(kernels, "total"))}`], ["Copies", count(copies)],
      ["API calls", `${count(sum(calls, "count"))}, ${time(sum(calls, "total"))}`], ["Ranges", count(instances)]]));
    const leader = (name, value, go) => element("li", {}, nameButton(shortened(name, 120), go, { title: shortened(name, 1000) }), element("span", {}, value));
    if (kernels.length) place.append(element("h3", {}, "Longest kernels"), element("ul", { class: "leaders" }, ...kernels.slice(0, LEADERS).map((row) => leader(model.names[row.name], `${count(row.count)} \u00d7, ${time(row.total)}`, () => highlight(row.name)))));
    if (paths.length) place.append(element("h3", {}, "Ranges by time of the host"), element("ul", { class: "leaders" }, ...paths.map((path) => leader(model.pathOf(path.row), `${count(path.instances)} \u00d7, ${time(path.host_ns)}, GPU ${time(gpuTime(path.inclusive))}`, () => {
      setArea(null);
      select({ type: "node", row: path.row });
    }))));
  });
  const sampled = tracks.map((track) => [track, trackWithin(track, span)]).filter(([track, within]) => within !== null && track.unit !== "flags");
  if (sampled.length) box.append(element("h3", {}, "Sampled, mean by time"), facts(sampled.map(([track, within]) => [model.trackLabel(track), sampledText(track, within)]), "halves"));
};
/** A mean with the total of what can be added: energy in joules beside power in watts. */
const sampledText = (track, { mean, total }) => {
  if (track.total_unit === "joules") return `${joules(total)}, ${measured(mean, "watts")}`;
  return track.unit === "watts" ? `${measured(mean, "watts")}, ${joules(total)}` : measured(mean, track.unit);
};

// --- items --------------------------------------------------------------------------------------------------------------

/** What ranges caused; while that is not known yet, that it is being counted. */
const workFacts = (work) => (work === null ? [["GPU time", "\u2026"]] : [
  ["GPU time", time(work.gpu)], ["GPU operations", `${count(work.count)}, ${plural(work.kernels, "kernel")}`],
  ["API calls", count(work.callCount)], ["Failed calls", work.failed ? count(work.failed) : ""], ["Synchronising", work.syncs ? time(work.syncs) : ""],
]);
const describeRange = (box, row, when) => {
  const { model, work } = state;
  const { R, data, names } = model;
  const node = data.nodes[R.node[row]];
  box.append(facts([...when,
    ["Host time", time(R.ns[row])], ...workFacts(work),
    ["Path", model.pathOf(R.node[row]), "name"], ["Domain", node.domain === null ? "" : names[node.domain], "name"],
    ["Thread", model.threadLabel(R.thread[row])], ["Ended", R.open.has(row) ? "not by the stop" : ""], ["Instances", count(node.instances)],
    ...(R.details.get(row) ?? []).map(([key, value]) => [names[key], names[value]])]));
  box.append(element("p", {}, button("All instances", () => select({ type: "node", row: R.node[row] }), { title: "Selects the path with all its instances" })));
  if (R.parent[row] >= 0) box.append(linked("In ", { type: "range", row: R.parent[row] }));
  describeSampled(box, node);
};
const describeNode = (box, row) => {
  const { model, work } = state;
  const { data, names } = model;
  const node = data.nodes[row];
  box.append(facts([
    ["Instances", count(node.instances)], ["Host time", time(node.host_ns)], ["Own GPU time", time(gpuTime(node.exclusive))], ...workFacts(work),
    ["Path", model.pathOf(row), "name"], ["Domain", node.domain === null ? "" : names[node.domain], "name"]]));
  if (node.instances > 0) box.append(element("p", {}, button("Step through the instances", () => step(1), { title: "N" })));
  if (node.parent) box.append(linked("In ", { type: "node", row: node.parent - 1 }));
  describeSampled(box, node);
};
const describeSampled = (box, node) => {
  if (node.sampled === undefined) return;
  const { model } = state;
  box.append(muted(node.instances > 1 ? `Sampled while the work of its ${plural(node.instances, "instance")} was on the GPU:` : "Sampled while its work was on the GPU:"));
  box.append(facts(node.sampled.map(([at, mean, samples, covered]) => {
    const track = model.tracks[at];
    return [model.trackLabel(track), `${sampledText(track, { mean, total: mean * covered / 1e9 })} (${plural(samples, "sample")})`];
  }), "halves"));
};
const describeCall = (box, row, when) => {
  const { model } = state;
  const { C, O, R } = model;
  const operations = O.byCall.of(row);
  box.append(facts([...when,
    ["Host time", C.ns[row] < 0 ? "had not returned" : time(C.ns[row])], ["Does", C.classOf(row)],
    ["Result", C.failed.has(row) ? `error ${C.failed.get(row)}` : "success"], ["Captured", C.captured.has(row) ? "into a graph" : ""],
    ["Thread", model.threadLabel(C.thread[row])], ["Range", C.range[row] < 0 ? "none" : model.pathOf(R.node[C.range[row]]), "name"],
    ["Operations", row < C.driver ? count(operations.length) : "those of the driver call that it made"]]));
  if (C.range[row] >= 0) box.append(linked("In ", { type: "range", row: C.range[row] }));
  for (const operation of operations.subarray(0, 8)) box.append(linked("Caused ", { type: "operation", row: operation }));
  if (operations.length > 8) box.append(muted(`and ${count(operations.length - 8)} more`));
};
const describeOperation = (box, row, when) => {
  const { model } = state;
  const { C, O, R, names } = model;
  const work = model.data.works[O.work[row]];
  const call = O.call[row];
  const range = O.range[row];
  const { process, device, context, stream } = model.streams[O.stream[row]];
  const deviceName = model.devices.find(({ id }) => id === device)?.name;
  const xyz = (at) => work.slice(at, at + 3).map(count).join(" \u00d7 ");
  const isTimed = O.isTimed(row);
  const specific = work[0] === KERNEL
    ? [["Grid", xyz(3)], ["Block", xyz(6)], ["Registers", `${count(work[9])} a thread`], ["Shared memory", `${bytes(work[10])} static, ${bytes(work[11])} dynamic`]]
    : work[0] === GRAPH ? [["Executable graph", count(work[2])], ["In it", "not recorded: the graph was traced as one interval"]]
      : [["Bytes", bytes(O.bytes[row])], ["Rate", isTimed ? rate(O.bytes[row], O.ns[row]) : ""], ["Memory", work[1] === work[2] ? "" : names[work[2]]]];
  box.append(facts([...when,
    ["GPU time", isTimed ? time(O.ns[row]) : ""],
    ["After its call", call >= 0 && isTimed ? `${O.start[row] < C.start[call] ? "\u2212" : ""}${time(Math.abs(O.start[row] - C.start[call]))}` : ""],
    ...specific, ...collectiveFacts(collectiveOf(model, row)),
    ["GPU", `${device}${deviceName ? `, ${deviceName}` : ""}`], ["Stream", `${stream}, context ${context}${process ? `, process ${process}` : ""}`],
    ["Range", range < 0 ? "none" : model.pathOf(R.node[range]), "name"],
    ["Handed over", range >= 0 && R.thread[range] !== C.thread[call] ? "its call was made on another thread" : ""],
    ["Compiled name", work[0] === KERNEL && work[1] !== work[2] ? names[work[2]] : "", "name"]]));
  if (call >= 0) box.append(linked("Called by ", { type: "call", row: call }));
  else box.append(muted("Its call is not known."));
  if (range >= 0) box.append(linked("In ", { type: "range", row: range }));
  if (O.captured.has(row)) box.append(linked("Its graph node was made in ", { type: "range", row: O.captured.get(row) }));
  const { peers, more } = peersOf(model, row);
  for (const peer of peers) box.append(linked(peer.text, { type: "operation", row: peer.row }));
  if (more) box.append(muted(`and ${count(more)} more ranks`));
  box.append(element("p", {}, button("All of this name", () => highlight(O.name[row]), { title: "Highlights every operation of this name" })));
};
const describeTrack = (box, { of, row }, when) => {
  const track = state.model.tracks[of];
  const samples = track.samples(row);
  box.append(facts([...when,
    ["Duration", time(track.end[row] - track.start[row])],
    [track.kind === "state" ? "State" : samples > 1 ? "Mean" : "Value", trackText(track, track.value[row])],
    ["Least", samples > 1 ? measured(track.least[row], track.unit) : ""], ["Most", samples > 1 ? measured(track.most[row], track.unit) : ""],
    ["Samples", count(samples)], ["Metric", track.name, "name"], ["By", track.interval_ns === null ? track.source : `${track.source}, every ${time(track.interval_ns)}`], ["GPU", String(track.device)]]));
  box.append(muted("In the whole session:"), facts([
    ["Mean", track.mean === null ? "not known" : measured(track.mean, rateUnit(track))], ["Total", track.total === null ? "" : measured(track.total, track.total_unit)],
    ["Samples", count(track.count)], ["Time", time(track.covered_ns)]]));
};
/** The unit of a track's mean: energy's is a power. */
export const rateUnit = (track) => (track.total_unit === "joules" ? "watts" : track.unit);
export const trackText = (track, value) => (track.name === REASONS ? `${reasonsText(value)} (${measured(value, track.unit)})` : measured(value, track.unit));
/** A gap: which parts of the clock it is, between which operations, and what threads were in meanwhile. */
const describeGap = (box, item, when) => {
  const { model } = state;
  const { C, O, data, names } = model;
  const { from, to, pieces, before, after } = aroundGap(model, item);
  box.append(facts([...when, ["Duration", time(to - from)], ["Of the session", percent(to - from, model.session)], ["GPU", String(item.of)]]));
  const sums = new Float64Array(data.parts.length);
  for (const piece of pieces) sums[piece.part] += piece.to - piece.from;
  const bar = partsBar(sums, "Why it was idle");
  if (bar) box.append(bar);
  if (before >= 0) box.append(linked("After ", { type: "operation", row: before }));
  if (after >= 0) {
    box.append(linked("Before ", { type: "operation", row: after }));
    const call = O.call[after];
    if (call >= 0) box.append(element("p", {}, "which was submitted by ", jump({ type: "call", row: call }), ` ${C.start[call] >= from ? `${time(C.start[call] - from)} into the gap` : "before the gap"}`));
  }
  const byName = new Map();
  for (const lane of state.rows.lanes) {
    if (lane.type !== "call") continue;
    for (let i = firstFrom(lane.end, from); i < lane.length && lane.start[i] < to; i++) {
      const overlap = Math.min(to, lane.end[i]) - Math.max(from, lane.start[i]);
      if (overlap > 0) byName.set(lane.name[i], (byName.get(lane.name[i]) ?? 0) + overlap);
    }
  }
  const calls = [...byName].sort(([, a], [, b]) => b - a);
  box.append(element("p", {}, calls.length ? "The host was in these calls meanwhile:" : "The host was in no recorded call meanwhile."));
  if (calls.length) box.append(facts(calls.slice(0, 8).map(([name, overlap]) => [names[name], time(overlap)])));
};
const describeProcess = (box, row, when) => {
  const { model } = state;
  const { activations, thread, open } = model.data.process_ranges;
  box.append(facts([...when, ["Duration", time(model.P.ns[row])], ["Began on", model.threadLabel(thread[row])],
    ["Ended", open.includes(row) ? "not by the stop" : ""], ["Activations", count(activations[row].length)]]));
  if (activations[row].length) box.append(linked("First activation: ", { type: "range", row: activations[row][0] }));
};

const KINDS = { range: "Range", call: "API call", process: "Range of the process", mark: "Mark", gap: "No work on the GPU", track: "Sampled", node: "Path of ranges" };
const DESCRIBED = { range: describeRange, call: describeCall, operation: describeOperation, process: describeProcess };
const item = (box, selected) => {
  const { model } = state;
  const { type, row } = selected;
  const kind = type === "operation" ? OPERATIONS[model.O.kind[row]][0] : KINDS[type];
  const isTimed = hasTime(model, selected);
  box.append(title(nameOf(model, selected), kind, element("div", { class: "tools" },
    button("Zoom", showSelected, isTimed ? { title: "Zoom to it (F)" } : { disabled: "" }), button("Sum up", markArea, isTimed ? { title: "Sums of its time (M)" } : { disabled: "" }),
    button("Clear", () => select(null), { title: "Esc" }))));
  const when = [["Start", isTimed ? `${(spanOf(model, selected)[0] / 1e6).toFixed(6)} ms` : "no timestamps"]];
  if (type === "node") describeNode(box, row);
  else if (type === "track") describeTrack(box, selected, when);
  else if (type === "gap") describeGap(box, selected, when);
  else if (type === "mark") box.append(facts([...when, ["Thread", model.threadLabel(model.data.marks.thread[row])]]));
  else DESCRIBED[type](box, row, when);
};

/** What is stepped through, above what is shown of it. */
const trail = (box) => {
  const { title: name, text, total, items, at } = state.trail;
  const more = total > items.length ? ` (of ${count(total)})` : "";
  box.append(element("div", { class: "trail" }, element("div", { class: "tools" },
    button("\u2190 Back", () => {
      endTrail();
      setArea(null);
      select(null);
    }, { title: "To the findings" }),
    button("\u2039", () => step(-1), { "aria-label": "Previous place", title: "Previous place (P)" }), element("output", { id: "at" }, `${count(at + 1)} of ${count(items.length)}${more}`),
    button("\u203a", () => step(1), { "aria-label": "Next place", title: "Next place (N)" })),
  element("p", {}, element("b", {}, shortened(name, 400))), text === "" ? undefined : element("details", {}, element("summary", {}, "Why, and what helps"), muted(text))));
};

export const describe = () => {
  const box = element("div");
  sumSliced((function* () {})(), () => {});
  if (state.trail !== null) trail(box);
  if (state.area !== null) area(box, state.area);
  else if (state.selected !== null) item(box, state.selected);
  else if (state.trail === null) overview(box);
  // Before the new content: after it the browser would have to lay that out at once.
  byId("selection").scrollTop = 0;
  byId("selection").replaceChildren(box);
  byId("zoom-selection").disabled = state.area === null && (state.selected === null || !hasTime(state.model, state.selected));
  emit("described");
};
