// The rows of the timeline: groups of lanes, in which items lie beside each other and never on each other.
import { column, grouped, indexed, packed, firstNumbers } from "./arrays.mjs";

/** Nanoseconds before each position of a lane, for the share of a pixel that items cover. */
const before = ({ length, start, end }) => {
  const sums = new Float64Array(length + 1);
  for (let i = 0; i < length; i++) sums[i + 1] = sums[i] + end[i] - start[i];
  return sums;
};

/**
 * Groups of lanes: one for each process, or for one process one for each thread, and one for each device. A lane has the items of one type as
 * `rows` of its table in the order of their time, with `start` and `end`; `from` is the first position from a time on. `hits` counts, before each position, what a search found among them: all, unless
 * `isSearched`. It is never `null`, so that drawing costs the first frame of a search no more than the others.
 */
export const rowsOf = (model) => {
  const { data, R, C, O, P, M, devices, streams, tracks, names } = model;
  const lanes = [];
  const groups = [];
  const group = (label, more = {}) => {
    const made = { label, lanes: [], isFolded: false, y: 0, height: 0, ...more };
    groups.push(made);
    return made;
  };
  const add = (to, lane) => {
    lanes.push(lane);
    to.lanes.push(Object.assign(lane, { group: to, index: lanes.length - 1, height: lane.base, y: 0, hits: firstNumbers(lane.length), isSearched: false }));
  };
  const addRows = (to, type, table, rows, base, label) => {
    const length = rows.length;
    table.lane ??= new Int32Array(table.length).fill(-1);
    table.at ??= new Int32Array(table.length);
    for (let i = 0; i < length; i++) {
      table.lane[rows[i]] = lanes.length;
      table.at[rows[i]] = i;
    }
    const lane = { type, table, base, label, length, rows: Int32Array.from(rows), start: column(length, (i) => table.start[rows[i]], Float64Array),
      end: column(length, (i) => table.end[rows[i]], Float64Array), name: column(length, (i) => table.name[rows[i]]) };
    add(to, Object.assign(lane, { before: before(lane), from: indexed(lane.start) }));
  };
  const addPacked = (to, type, table, rows, base, label) =>
    packed(table, rows).forEach((lane, i) => addRows(to, type, table, lane, base, i === 0 ? label : ""));

  const addProcessRanges = (to, rows) => addPacked(to, "process", P, rows, 20, "Start/end");
  const threads = data.threads.length;
  const [ranges, calls, marks] = [[R, R.thread], [C, C.thread], [M, data.marks.thread]].map(([table, thread]) => grouped(table.length, (i) => thread[i], threads));
  const addThread = (to, thread, prefix) => {
    addPacked(to, "range", R, ranges.of(thread), 20, `${prefix}Ranges`);
    if (marks.of(thread).length) addRows(to, "mark", M, marks.of(thread).sort((a, b) => M.start[a] - M.start[b]), 14, `${prefix}Marks`);
    addPacked(to, "call", C, calls.of(thread), 20, `${prefix}CUDA API`);
  };
  // Of several processes each is a group; of one, each thread.
  for (const { id } of data.processes) {
    const own = group(model.processLabel(id));
    const started = [...P.start.keys()].filter((row) => data.threads[data.process_ranges.thread[row]].process === id);
    if (started.length) addProcessRanges(own, started);
    data.threads.forEach((row, thread) => {
      if (row.process === id) addThread(own, thread, `${model.threadName(row)}: `);
    });
  }
  if (data.processes.length === 0) {
    if (P.length) addProcessRanges(group("Ranges of the process"), P.start.keys());
    for (let thread = 0; thread < threads; thread++) addThread(group(model.threadLabel(thread)), thread, "");
  }
  const byStream = grouped(O.length, (i) => (O.isTimed(i) ? O.stream[i] : -1), streams.length);
  for (const device of devices) {
    const own = group(device.name === undefined ? `GPU ${device.id}` : `GPU ${device.id} \u00b7 ${device.name}`, { device });
    const { busy, clock } = device;
    if (busy.length) {
      // Time with work, and over it the rest of the clock with its causes.
      const rows = column(busy.length, (i) => i);
      const pieces = { type: "clock", base: 20, length: clock.length, rows: column(clock.length, (i) => i), start: clock.start, end: clock.end, before: before(clock), from: indexed(clock.start), clock, hits: firstNumbers(clock.length), isSearched: false };
      add(own, { type: "busy", base: 20, label: "Busy and idle", length: busy.length, rows, start: busy.start, end: busy.end, before: before(busy), from: indexed(busy.start), pieces });
    }
    const order = ({ process, context, stream }) => [process, context, stream];
    const ownStreams = [...streams.keys()].filter((row) => streams[row].device === device.id);
    ownStreams.sort((a, b) => order(streams[a]).map((part, i) => part - order(streams[b])[i]).find((less) => less !== 0) ?? 0);
    for (const row of ownStreams) addPacked(own, "operation", O, byStream.of(row), 22, model.streamLabel(streams[row]));
    for (const track of tracks) {
      if (track.device !== device.id || track.start.length === 0) continue;
      const { length } = track.start;
      add(own, { type: "track", track, base: 36, label: track.label, length, rows: column(length, (i) => i), start: track.start, end: track.end });
    }
  }
  return { lanes, groups, names };
};

/** Places lanes below each other, `growth` times as high as they are at least, and returns the height of all. */
export const HEADING = 22;
export const FOOT = 5;
export const placed = (groups, growth) => {
  let y = 0;
  for (const group of groups) {
    group.y = y;
    y += HEADING;
    if (!group.isFolded) {
      for (const lane of group.lanes) {
        lane.height = Math.round(lane.base * growth);
        lane.y = y;
        y += lane.height;
      }
      y += FOOT;
    }
    group.height = y - group.y;
  }
  return y;
};
