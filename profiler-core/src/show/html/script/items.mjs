// Items of the timeline: `{ type, row }`; a gap also has its device and a sampled value its track as `of`.
import { callsIn, operationsIn, rangesIn } from "./model.mjs";
import { firstFrom, ranked } from "./arrays.mjs";

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

/** What ranges caused, theirs and of the ranges within them: counts, GPU time, and from when to when on each device. */
export const workOf = (model, item) => {
  const { O, C, R, streams } = model;
  const instances = item.type === "range" ? [item.row] : [...R.byNode.of(item.row)];
  const work = { operations: [], calls: [], count: 0, kernels: 0, gpu: 0, callCount: 0, syncs: 0, failed: 0, byDevice: new Map() };
  for (const range of instances) {
    const operations = operationsIn(model, range);
    const calls = callsIn(model, range);
    work.operations.push(operations);
    work.calls.push(calls);
    for (const row of operations) {
      work.count++;
      if (O.kind[row] === 0) work.kernels++;
      if (!O.isTimed(row)) continue;
      work.gpu += O.ns[row];
      const { device } = streams[O.stream[row]];
      const span = work.byDevice.get(device);
      if (span === undefined) work.byDevice.set(device, [O.start[row], O.end[row]]);
      else [span[0], span[1]] = [Math.min(span[0], O.start[row]), Math.max(span[1], O.end[row])];
    }
    for (const row of calls) {
      work.callCount++;
      if (C.failed.has(row)) work.failed++;
      if (C.classOf(row) === "sync" && C.ns[row] >= 0) work.syncs += C.ns[row];
    }
  }
  return work;
};

/** For each table with lanes, which rows an item caused or contains. */
export const causedBy = (model, item, work) => {
  const marked = { operation: new Uint8Array(model.O.length), call: new Uint8Array(model.C.length), range: new Uint8Array(model.R.length) };
  for (const rows of work.operations) for (const row of rows) marked.operation[row] = 1;
  for (const rows of work.calls) for (const row of rows) marked.call[row] = 1;
  for (const range of item.type === "range" ? [item.row] : model.R.byNode.of(item.row)) for (const row of rangesIn(model, range)) marked.range[row] = 1;
  return marked;
};

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
