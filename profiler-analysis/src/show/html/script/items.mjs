// Items of the timeline: `{ type, row }`; a gap also has its device and a sampled value its track as `of`.
import { firstFrom, inParts, ranked } from "./arrays.mjs";
import { containedIn } from "./model.mjs";
import { hitsOf } from "./search.mjs";

/** The item of a row of a lane. */
export const itemOf = (lane, at) => (lane.type === "track" ? { type: "track", of: lane.track.index, row: at } : { type: lane.type, row: lane.rows[at] });
export const isSame = (a, b) => a === b || (a !== null && b !== null && a.type === b.type && a.row === b.row && a.of === b.of);

const deviceOf = ({ devices }, id) => devices.find((device) => device.id === id);
export const gapsOf = (model, id) => deviceOf(model, id)?.clock.gaps;

/** Whether an item exists in this profile: one from an address may not. */
export const exists = (model, { type, row, of }) => {
  if (type === "gap") return row < (gapsOf(model, of)?.length ?? 0);
  if (type === "track") return row < (model.tracks[of]?.start.length ?? 0);
  if (type === "node") return row < model.data.nodes.length;
  return row < (model.tables[type]?.length ?? 0);
};

/** The lane of an item, if it is in one: an operation without timestamps is not. */
export const laneOf = ({ model, rows }, item) => {
  if (item.type === "track") return rows.lanes.find((lane) => lane.type === "track" && lane.track.index === item.of);
  if (item.type === "gap") return rows.lanes.find((lane) => lane.type === "busy" && lane.group.device.id === item.of);
  const lane = model.tables[item.type]?.lane?.[item.row] ?? -1;
  return lane < 0 ? undefined : rows.lanes[lane];
};

/** When an item was: a path lasts from its first range to the end of the last. */
export const spanOf = (model, item) => {
  if (item.type === "node") {
    const instances = model.R.byNode.of(item.row);
    return [instances.reduce((least, row) => Math.min(least, model.R.start[row]), Infinity), instances.reduce((most, row) => Math.max(most, model.R.end[row]), -Infinity)];
  }
  const table = item.type === "gap" ? gapsOf(model, item.of) : item.type === "track" ? model.tracks[item.of] : model.tables[item.type];
  return [table.start[item.row], table.end[item.row]];
};
export const hasTime = (model, { type, row }) => (type === "operation" ? model.O.isTimed(row) : type === "node" ? model.R.byNode.of(row).length > 0 : true);

export const nameOf = (model, item) => {
  if (item.type === "gap") return `Idle GPU ${item.of}`;
  if (item.type === "track") return model.trackLabel(model.tracks[item.of]);
  if (item.type === "node") return model.names[model.data.nodes[item.row].name];
  return model.names[model.tables[item.type].name[item.row]];
};

/**
 * What a range or the ranges of a path caused, with what the ranges within them did: the rows, counts, GPU time, from when to when on each
 * device, and which items of the lanes it is, as `hits`. A long run has much of it, so that it pauses every some thousand rows.
 */
export function* workOf(model, lanes, item) {
  const { O, C, data, streams } = model;
  const { operations, calls, ranges } = yield* containedIn(model, item);
  const work = { operations, calls, ranges, count: operations.length, kernels: 0, gpu: 0, callCount: calls.length, syncs: 0, failed: 0, byDevice: new Map(), hits: new Map() };
  const byStream = streams.map(() => [Infinity, -Infinity]);
  yield* inParts(operations.length, (first, last) => {
    for (let i = first; i < last; i++) {
      const row = operations[i];
      if (O.kind[row] === 0) work.kernels++;
      if (O.ns[row] < 0) continue;
      work.gpu += O.ns[row];
      const span = byStream[O.stream[row]];
      if (O.start[row] < span[0]) span[0] = O.start[row];
      if (O.end[row] > span[1]) span[1] = O.end[row];
    }
  });
  streams.forEach(({ device }, stream) => {
    const [from, to] = byStream[stream];
    const [first, last] = work.byDevice.get(device) ?? [Infinity, -Infinity];
    if (from <= to) work.byDevice.set(device, [Math.min(first, from), Math.max(last, to)]);
  });
  const isSync = data.call_kinds.map(([, name]) => name === "sync");
  yield* inParts(calls.length, (first, last) => {
    for (let i = first; i < last; i++) {
      const row = calls[i];
      if (C.failed.size > 0 && C.failed.has(row)) work.failed++;
      if (isSync[C.kind[row]] && C.ns[row] >= 0) work.syncs += C.ns[row];
    }
  });
  if (work.count + work.callCount > 0) yield* markWork(model, lanes, item, work);
  return work;
}
/** Counts the items of a work in each lane. The ranges of one range are below it and need no mark. */
function* markWork(model, lanes, item, work) {
  for (const [type, rows] of [["operation", work.operations], ["call", work.calls], ...(item.type === "node" ? [["range", work.ranges]] : [])]) {
    const isIn = new Uint8Array(model.tables[type].length);
    yield* inParts(rows.length, (first, last) => {
      for (let i = first; i < last; i++) isIn[rows[i]] = 1;
    });
    for (const lane of lanes) if (lane.type === type) work.hits.set(lane, yield* hitsOf(lane.rows, isIn));
  }
}

/** The gap of a device that contains a time, as an item. */
export const gapAt = (model, id, t) => {
  const gaps = gapsOf(model, id);
  if (!gaps) return null;
  const row = firstFrom(gaps.end, t + 1e-9);
  return row < gaps.length && gaps.start[row] <= t ? { type: "gap", of: id, row } : null;
};

/** The longest pieces of a part of the clock, of all devices and longest first, as places with the gap that they are in; and how many there are. */
export const longestPieces = ({ devices }, part, most) => {
  const lengths = [];
  for (const { clock } of devices) for (let row = 0; row < clock.length; row++) if (clock.part[row] === part) lengths.push(clock.end[row] - clock.start[row]);
  const least = lengths.length > most ? ranked(new Float64Array(lengths), lengths.length - most) : 0;
  const pieces = [];
  for (const { id, clock } of devices) {
    for (let row = 0; row < clock.length; row++) {
      if (clock.part[row] !== part || clock.end[row] - clock.start[row] < least) continue;
      pieces.push({ item: clock.isIdle[row] ? { type: "gap", of: id, row: clock.gapOf[row] } : null, span: [clock.start[row], clock.end[row]] });
    }
  }
  pieces.sort((a, b) => b.span[1] - b.span[0] - (a.span[1] - a.span[0]));
  return { pieces: pieces.slice(0, most), total: lengths.length };
};

/** The operations of a device around a gap, and the pieces of the clock in it. */
export const aroundGap = ({ devices }, { of, row }) => {
  const { busy, clock } = devices.find(({ id }) => id === of);
  const [from, to] = [clock.gaps.start[row], clock.gaps.end[row]];
  const next = firstFrom(busy.start, to);
  const pieces = [];
  for (let i = clock.gaps.first[row]; i < clock.length && clock.gapOf[i] === row; i++) pieces.push({ part: clock.part[i], from: clock.start[i], to: clock.end[i] });
  return { from, to, pieces, before: next > 0 && busy.end[next - 1] <= from ? busy.last[next - 1] : -1, after: next < busy.length ? busy.first[next] : -1 };
};
