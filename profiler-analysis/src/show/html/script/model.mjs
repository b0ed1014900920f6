// The page's data as tables of typed columns. Rows refer to each other by index; -1 is none.
import { column, grouped, inParts, summed } from "./arrays.mjs";

/** The kind of a kernel and of a CUDA graph among operations. */
export const KERNEL = 0;
export const MEMSET = 6;
export const GRAPH = 7;

/** The metric of NVML whose value is a set of reasons, the reasons, and those that a program can do something about. */
export const REASONS = "nvml__clock_event_reasons";
const REASON_TEXTS = [[0x1, "idle"], [0x2, "clocks set by applications"], [0x4, "power limit"], [0x8, "hardware slowdown"],
  [0x10, "sync boost"], [0x20, "heat"], [0x40, "heat (hardware)"], [0x80, "power brake"], [0x100, "display clocks"]];
export const SLOWING = 0xec;
export const reasonsText = (value) => {
  const found = REASON_TEXTS.filter(([bit]) => Math.round(value) & bit).map(([, text]) => text);
  return found.length ? found.join(", ") : "none";
};

/** Start, end and length in nanoseconds; a length below 0 is unknown and lasts until `open`. */
const tableOf = (start, ns, open) => {
  const end = new Float64Array(start.length);
  for (let i = 0; i < end.length; i++) end[i] = ns[i] < 0 ? open : start[i] + ns[i];
  return { length: start.length, start, end, ns };
};

const rangesOf = (data, session) => {
  const { ranges, nodes } = data;
  const R = tableOf(summed(ranges.start_delta), Float64Array.from(ranges.ns), session);
  R.node = Int32Array.from(ranges.node);
  R.thread = Int32Array.from(ranges.thread);
  R.name = column(R.length, (i) => nodes[R.node[i]].name);
  // A parent comes before its children.
  const back = ranges.parent_back;
  R.parent = column(R.length, (i) => (back[i] > 0 && back[i] <= i ? i - back[i] : -1));
  R.color = new Map(ranges.colors);
  R.details = new Map(ranges.details);
  R.open = new Set(ranges.open);
  // Numbers that make the ranges within a range an interval: `enter` of it up to `leave`.
  const size = new Int32Array(R.length).fill(1);
  for (let i = R.length - 1; i >= 0; i--) if (R.parent[i] >= 0) size[R.parent[i]] += size[i];
  R.enter = new Int32Array(R.length);
  R.leave = new Int32Array(R.length);
  const next = new Int32Array(R.length);
  for (let i = 0, root = 0; i < R.length; i++) {
    const parent = R.parent[i];
    R.enter[i] = parent < 0 ? root : next[parent];
    R.leave[i] = R.enter[i] + size[i];
    if (parent < 0) root += size[i];
    else next[parent] += size[i];
    next[i] = R.enter[i] + 1;
  }
  R.byNode = grouped(R.length, (i) => R.node[i], nodes.length);
  R.byEnter = grouped(R.length, (i) => R.enter[i], R.length).rows;
  return R;
};

const callsOf = (data, session, R) => {
  const { calls, call_kinds: kinds } = data;
  const C = tableOf(summed(calls.start_delta), Float64Array.from(calls.ns), session);
  C.kind = Int32Array.from(calls.kind);
  C.thread = Int32Array.from(calls.thread);
  C.range = summed(calls.range_delta, Int32Array, -1);
  C.name = column(C.length, (i) => kinds[C.kind[i]][0]);
  C.driver = calls.driver;
  C.captured = new Set(calls.captured);
  C.failed = new Map(calls.failed);
  // Of calls after the end of a range around theirs: the ranges that they count for, innermost first.
  C.late = new Map(calls.late ?? []);
  C.classOf = (i) => kinds[C.kind[i]][1];
  C.byEnter = grouped(C.length, (i) => (C.range[i] < 0 || i >= C.driver ? -1 : R.enter[C.range[i]]), R.length);
  return C;
};

const operationsOf = (data, session, R, C) => {
  const { operations, works } = data;
  const O = tableOf(summed(operations.start_delta), Float64Array.from(operations.ns), session);
  O.work = Int32Array.from(operations.work);
  O.stream = Int32Array.from(operations.stream);
  O.call = summed(operations.call_delta, Int32Array, -1);
  O.kind = column(O.length, (i) => works[O.work[i]][0], Uint8Array);
  O.name = column(O.length, (i) => works[O.work[i]][1]);
  O.range = column(O.length, (i) => (O.call[i] < 0 ? -1 : C.range[O.call[i]]));
  O.captured = new Map(operations.captured_in);
  O.bytes = new Float64Array(O.length);
  for (let i = 0, next = 0; i < O.length; i++) if (O.kind[i] !== KERNEL) O.bytes[i] = operations.bytes[next++];
  O.isTimed = (i) => O.ns[i] >= 0;
  O.byCall = grouped(O.length, (i) => O.call[i], C.length);
  O.byEnter = grouped(O.length, (i) => (O.range[i] < 0 ? -1 : R.enter[O.range[i]]), R.length);
  return O;
};

/** When each device ran operations, without their overlaps: rows with their first and last operation. */
const busyOf = (O, streams, device) => {
  const [start, end, first, last] = [[], [], [], []];
  for (let i = 0; i < O.length; i++) {
    if (streams[O.stream[i]].device !== device || !O.isTimed(i)) continue;
    const at = end.length - 1;
    if (at >= 0 && O.start[i] <= end[at]) {
      if (O.end[i] > end[at]) [end[at], last[at]] = [O.end[i], i];
    } else {
      start.push(O.start[i]);
      end.push(O.end[i]);
      first.push(i);
      last.push(i);
    }
  }
  return { length: start.length, start: Float64Array.from(start), end: Float64Array.from(end), first, last };
};

/**
 * The clock of a device as the diagnosis divides it, but for kernels: pieces with their part, and whether the device was idle.
 * `gapOf` is the row of the gap that a piece is in; a gap is idle time without an interruption.
 */
const clockOf = (part) => {
  const length = part.part.length;
  const clock = { length, start: new Float64Array(length), end: new Float64Array(length), part: new Uint8Array(length),
    isIdle: new Uint8Array(length), gapOf: new Int32Array(length).fill(-1) };
  const [gapStart, gapEnd, gapFirst] = [[], [], []];
  for (let i = 0, at = 0; i < length; i++) {
    clock.start[i] = at + part.start_delta[i];
    clock.end[i] = at = clock.start[i] + part.ns[i];
    clock.part[i] = part.part[i] >> 1;
    clock.isIdle[i] = part.part[i] & 1;
    if (!clock.isIdle[i]) continue;
    const last = gapEnd.length - 1;
    if (last >= 0 && gapEnd[last] === clock.start[i]) gapEnd[last] = clock.end[i];
    else {
      gapStart.push(clock.start[i]);
      gapEnd.push(clock.end[i]);
      gapFirst.push(i);
    }
    clock.gapOf[i] = gapEnd.length - 1;
  }
  clock.gaps = { length: gapStart.length, start: Float64Array.from(gapStart), end: Float64Array.from(gapEnd), first: Int32Array.from(gapFirst) };
  return clock;
};

/** Energy is read as a power by its samples' length; the page shows the joules since the first sample, whose slope is the power. */
const energyOf = ({ start, end, rate }) => {
  let sum = 0;
  const value = column(rate.length, (i) => sum += rate[i] * (end[i] - start[i]) / 1e9, Float64Array);
  return { value, least: value, most: value, top: sum, unit: "joules", kind: "state" };
};

/** Sampled tracks: several may have the same times. */
const tracksOf = (data) => {
  const times = data.track_times.map(({ start_delta, gaps, end, samples }) => {
    const start = summed(start_delta);
    const until = new Float64Array(start.length);
    for (let i = 0; i < until.length; i++) until[i] = i + 1 < start.length ? start[i + 1] : end;
    for (const [row, at] of gaps) until[row] = at;
    return { start, end: until, samples: (row) => (samples === null ? 1 : samples[row]) };
  });
  const isTwin = (track) => (other) => other !== track && other.device === track.device && other.label === track.label;
  return data.tracks.map((track, index) => {
    const { start, end, samples } = times[track.times];
    const value = Float64Array.from(track.value);
    const [least, most] = [track.least ?? track.value, track.most ?? track.value].map((column) => Float64Array.from(column));
    const top = track.unit === "percent" ? 100 : most.reduce((top, value) => Math.max(top, value), 0);
    const label = data.tracks.some(isTwin(track)) ? `${track.label} (${track.source})` : track.label;
    const made = { ...track, index, label, start, end, samples, value, rate: value, least, most, top };
    return track.total_unit === "joules" ? { ...made, ...energyOf(made) } : made;
  });
};

const latest = (table) => table.end.reduce((last, end) => Math.max(last, end), 0);

/** The tables of the page's data, and the texts that name their rows. */
export const decoded = (data) => {
  const names = data.names.map((name) => (name === "" ? "(empty name)" : name));
  const session = Math.max(data.duration_ns, 1);
  const streams = data.streams.map(([process, device, context, stream]) => ({ process, device, context, stream }));
  const R = rangesOf(data, session);
  const C = callsOf(data, session, R);
  const O = operationsOf(data, session, R, C);
  const P = tableOf(Float64Array.from(data.process_ranges.start_ns), Float64Array.from(data.process_ranges.ns), session);
  P.name = Int32Array.from(data.process_ranges.name);
  const M = tableOf(Float64Array.from(data.marks.at_ns), new Float64Array(data.marks.at_ns.length), session);
  M.name = Int32Array.from(data.marks.name);
  const tracks = tracksOf(data);
  const clocks = new Map(data.clock.map((part) => [part.device, clockOf(part)]));
  const ids = [...new Set([...streams, ...tracks].map(({ device }) => device))].sort((a, b) => a - b);
  const devices = ids.map((id) => ({
    id, name: data.devices.find((device) => device.id === id)?.name, busy: busyOf(O, streams, id), clock: clocks.get(id) ?? clockOf({ start_delta: [], ns: [], part: [] }),
  }));
  // Work may go on after the stop.
  const whole = Math.max(session, ...[R, C, O, P, M, ...tracks].map(latest));

  const pathOf = (node) => {
    const path = [];
    for (let row = node + 1; row; row = data.nodes[row - 1].parent) path.push(names[data.nodes[row - 1].name]);
    return path.reverse().join("/");
  };
  const processLabels = new Map(data.processes.map(({ id, label }) => [id, label]));
  const processLabel = (process) => processLabels.get(process) ?? (process ? `process ${process}` : "");
  const threadName = ({ id, name }) => (name === null ? `Thread ${id}` : `${names[name]} (${id})`);
  const threadLabel = (thread) => {
    const label = processLabel(data.threads[thread].process);
    return `${threadName(data.threads[thread])}${label ? `, ${label}` : ""}`;
  };
  const differs = (device, part) => new Set(streams.filter((stream) => stream.device === device).map((stream) => stream[part])).size > 1;
  const streamLabel = ({ process, device, context, stream }) =>
    `Stream ${stream}${differs(device, "context") ? `, ctx ${context}` : ""}${differs(device, "process") ? `, ${processLabel(process)}` : ""}`;
  const hasSeveral = new Set(tracks.map(({ device }) => device)).size > 1;
  const trackLabel = ({ label, device }) => (hasSeveral ? `${label}, GPU ${device}` : label);
  return { data, names, session, whole, streams, devices, tracks, R, C, O, P, M, pathOf, processLabel, threadName, threadLabel, streamLabel, trackLabel,
    tables: { range: R, call: C, operation: O, process: P, mark: M } };
};

const rowsOfTree = (R, index, range) => index.rows.subarray(index.first[R.enter[range]], index.first[R.leave[range]]);
const countsFor = ({ C }, call, range) => C.late.get(call)?.includes(range) ?? true;
/** The operations that a range caused, with those of ranges within it while it was open, in no order of time. */
export const operationsIn = (model, range) => {
  const { R, C, O } = model;
  const rows = rowsOfTree(R, O.byEnter, range);
  return C.late.size === 0 ? rows : rows.filter((row) => countsFor(model, O.call[row], range));
};
export const callsIn = (model, range) => {
  const { R, C } = model;
  const rows = rowsOfTree(R, C.byEnter, range);
  return C.late.size === 0 ? rows : rows.filter((row) => countsFor(model, row, range));
};
export const rangesIn = ({ R }, range) => R.byEnter.subarray(R.enter[range], R.leave[range]);

/**
 * The first `count` rows whose range is, by `isIn`, one of a path; `rangeOf` is a column, or `null` for ranges themselves. `lateOf` gives
 * the ranges that a late row counts for.
 */
function* rowsOfPath(count, rangeOf, node, isIn, path, lateOf = () => undefined) {
  const rows = new Int32Array(count);
  let length = 0;
  yield* inParts(count, (from, to) => {
    for (let row = from; row < to; row++) {
      const range = rangeOf === null ? row : rangeOf[row];
      if (range >= 0 && isIn[node[range]] === 1 && (lateOf(row)?.some((of) => node[of] === path) ?? true)) rows[length++] = row;
    }
  });
  return rows.subarray(0, length);
}
/**
 * The rows of operations, calls and ranges that a range, or all instances of a path (`node`), caused or contain. One pass over the tables
 * for a path, with pauses.
 */
export function* containedIn(model, { type, row }) {
  if (type === "range") return { operations: operationsIn(model, row), calls: callsIn(model, row), ranges: rangesIn(model, row) };
  const { data: { nodes }, R, C, O } = model;
  // A node comes after its parent.
  const isIn = new Uint8Array(nodes.length);
  isIn[row] = 1;
  for (let node = row + 1; node < nodes.length; node++) if (nodes[node].parent && isIn[nodes[node].parent - 1]) isIn[node] = 1;
  const operations = yield* rowsOfPath(O.length, O.range, R.node, isIn, row, (operation) => C.late.get(O.call[operation]));
  const calls = yield* rowsOfPath(C.driver, C.range, R.node, isIn, row, (call) => C.late.get(call));
  return { operations, calls, ranges: yield* rowsOfPath(R.length, null, R.node, isIn, row) };
}
