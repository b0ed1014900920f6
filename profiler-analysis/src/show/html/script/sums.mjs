// Sums over a part of the profile: what the tables, the flame graph and the panel show of a time, a range or a path.
// Long sums are generators that pause every some thousand rows, so that no frame waits for them.
import { firstAbove, firstFrom, median } from "./arrays.mjs";
import { GRAPH, KERNEL, MEMSET, containedIn } from "./model.mjs";

const PAUSE = 8192;

/** What a part of the profile contains: rows of operations, calls and ranges, and the times to which lengths are cut. */
const rowsWithin = (lanes, type, [from, to]) => {
  const parts = [];
  for (const lane of lanes) {
    if (lane.type !== type) continue;
    // A zero length at the very start counts, an item that ends there does not.
    const first = Math.min(firstAbove(lane.end, from), firstFrom(lane.start, from));
    const last = firstFrom(lane.start, to);
    if (last > first) parts.push(lane.rows.subarray(first, last));
  }
  return parts;
};
const EVERYTHING = [-Infinity, Infinity];
export const contentOf = (model, lanes, scope) => {
  switch (scope.kind) {
    case "range":
    case "node": {
      const { operations, calls, ranges } = scope.work ?? completed(containedIn(model, { type: scope.kind, row: scope.row }));
      return { operations: [operations], calls: [calls], ranges: [ranges], span: EVERYTHING };
    }
    default: {
      const [operations, calls, ranges] = ["operation", "call", "range"].map((type) => rowsWithin(lanes, type, scope.span));
      // Calls of the runtime API are around others and in no sum.
      const { C } = model;
      return { operations, calls: C.driver === C.length ? calls : calls.map((rows) => rows.filter((row) => row < C.driver)), ranges, span: scope.span };
    }
  }
};

/** The part of an item's time within a span. */
const cut = (table, row, [from, to]) => Math.max(0, Math.min(table.end[row], to) - Math.max(table.start[row], from));

/**
 * The statistics of rows by name, longest total first. The total is the time within the span; mean, median, extremes and
 * deviation are those of whole items. `kindOf` is what a row is one of: its work, or the kind of a call.
 */
export function* statisticsOf(table, parts, span, { isWanted, bytesOf = () => 0, isFailed = () => false, kindOf }) {
  const byName = new Map();
  let steps = 0;
  for (const part of parts) {
    for (const row of part) {
      if (++steps % PAUSE === 0) yield;
      if (!isWanted(row)) continue;
      let sum = byName.get(table.name[row]);
      if (sum === undefined) byName.set(table.name[row], sum = { name: table.name[row], of: kindOf(row), count: 0, timed: 0, failed: 0, bytes: 0, total: 0, times: [] });
      sum.count++;
      sum.bytes += bytesOf(row);
      if (isFailed(row)) sum.failed++;
      if (table.ns[row] < 0) continue;
      sum.total += cut(table, row, span);
      sum.times.push(table.ns[row]);
    }
  }
  for (const sum of byName.values()) {
    yield;
    const times = new Float64Array(sum.times);
    yield;
    Object.assign(sum, summaryOf(times), { times: undefined });
    yield;
    if (sum.timed) sum.median = tenths(median(times));
  }
  return [...byName.values()].sort((a, b) => b.total - a.total);
}
/** Tenths of a nanosecond, as the tables that came with the page have them. */
const tenths = (ns) => Math.round(ns * 10) / 10;
const summaryOf = (times) => {
  const timed = times.length;
  let [sum, min, max] = [0, Infinity, -Infinity];
  for (const ns of times) {
    sum += ns;
    if (ns < min) min = ns;
    if (ns > max) max = ns;
  }
  const mean = timed ? sum / timed : 0;
  let squares = 0;
  for (const ns of times) squares += (ns - mean) ** 2;
  return timed ? { timed, mean: tenths(mean), median: 0, min, max, std: timed > 1 ? tenths(Math.sqrt(squares / (timed - 1))) : 0 } : { timed, mean: 0, median: 0, min: 0, max: 0, std: 0 };
};
export const kernelsOf = ({ O }, { operations, span }) => statisticsOf(O, operations, span, { isWanted: (row) => O.kind[row] === KERNEL, kindOf: (row) => O.work[row] });
export const transfersOf = ({ O }, { operations, span }) =>
  statisticsOf(O, operations, span, { isWanted: (row) => O.kind[row] !== KERNEL && O.kind[row] !== GRAPH, bytesOf: (row) => O.bytes[row], kindOf: (row) => O.work[row] });
export const apiOf = ({ C }, { calls, span }) => statisticsOf(C, calls, span, { isWanted: () => true, isFailed: (row) => C.failed.has(row), kindOf: (row) => C.kind[row] });

/** Sums of a path: those of its own, and with the paths within it. */
const FIELDS = ["launches", "kernels", "kernel_ns", "copies", "copy_ns", "copy_bytes", "memsets", "memset_ns", "graphs", "graph_ns", "synchronizations", "synchronization_ns"];
const emptySums = () => Object.fromEntries(FIELDS.map((field) => [field, 0]));
export const gpuTime = (sums) => sums.kernel_ns + sums.copy_ns + sums.memset_ns + sums.graph_ns;

/** The sums of each path by its node, and of what is outside all ranges. Times are cut to the span, counts are of whole items. */
export function* pathsOf({ data, R, C, O }, { operations, calls, ranges, span }) {
  const nodes = data.nodes.map(() => ({ instances: 0, host_ns: 0, exclusive: emptySums(), inclusive: emptySums() }));
  const outside = emptySums();
  const sumsOf = (range) => (range < 0 ? outside : nodes[R.node[range]].exclusive);
  // Late work is added when the sums of the paths are complete.
  const late = [];
  const addTo = (call, range, add) => {
    const chain = C.late.get(call);
    if (chain === undefined) return add(sumsOf(range));
    late.push(() => [sumsOf(range), ...chain.map((of) => nodes[R.node[of]].inclusive)].forEach(add));
  };
  let steps = 0;
  for (const part of ranges) {
    for (const row of part) {
      if (++steps % PAUSE === 0) yield;
      const node = nodes[R.node[row]];
      node.instances++;
      node.host_ns += cut(R, row, span);
    }
  }
  for (const part of operations) {
    for (const row of part) {
      if (++steps % PAUSE === 0) yield;
      addTo(O.call[row], O.range[row], (sums) => addOperation(sums, O, row, O.isTimed(row) ? cut(O, row, span) : 0));
    }
  }
  for (const part of calls) {
    for (const row of part) {
      if (++steps % PAUSE === 0) yield;
      if (C.failed.has(row)) continue;
      const name = C.classOf(row);
      addTo(row, C.range[row], (sums) => {
        if ((name === "launch" || name === "graph launch") && !C.captured.has(row)) sums.launches++;
        if (name === "sync") {
          sums.synchronizations++;
          sums.synchronization_ns += C.ns[row] < 0 ? 0 : cut(C, row, span);
        }
      });
    }
  }
  // A node comes after its parent.
  for (let row = nodes.length - 1; row >= 0; row--) {
    const node = nodes[row];
    for (const field of FIELDS) node.inclusive[field] += node.exclusive[field];
    const { parent } = data.nodes[row];
    if (parent) for (const field of FIELDS) nodes[parent - 1].inclusive[field] += node.inclusive[field];
  }
  late.forEach((add) => add());
  return { nodes, outside };
}
const addOperation = (sums, O, row, ns) => {
  const kind = O.kind[row];
  if (kind === KERNEL) {
    sums.kernels++;
    sums.kernel_ns += ns;
  } else if (kind === MEMSET) {
    sums.memsets++;
    sums.memset_ns += ns;
  } else if (kind === GRAPH) {
    sums.graphs++;
    sums.graph_ns += ns;
  } else {
    sums.copies++;
    sums.copy_ns += ns;
    sums.copy_bytes += O.bytes[row];
  }
};

/** GPU time of operations by path and name: a map by node, -1 outside all ranges, of maps by name. */
export function* workByPath({ R, O }, { operations, span }) {
  const paths = new Map();
  let steps = 0;
  for (const part of operations) {
    for (const row of part) {
      if (++steps % PAUSE === 0) yield;
      if (!O.isTimed(row)) continue;
      const node = O.range[row] < 0 ? -1 : R.node[O.range[row]];
      let names = paths.get(node);
      if (names === undefined) paths.set(node, names = new Map());
      const key = O.name[row];
      let sum = names.get(key);
      if (sum === undefined) names.set(key, sum = { name: key, kind: O.kind[row], ns: 0, count: 0 });
      sum.ns += cut(O, row, span);
      sum.count++;
    }
  }
  return paths;
}

/** Nanoseconds of a sorted, disjoint table within a span. */
export const covered = ({ start, end, length }, [from, to]) => {
  let sum = 0;
  for (let i = firstAbove(end, from); i < length && start[i] < to; i++) sum += Math.min(end[i], to) - Math.max(start[i], from);
  return sum;
};

/**
 * How a device spent a span: nanoseconds of each part of the clock by its row, and of idle time among them. Row 0, kernels, is the
 * work that is in no other part.
 */
export const partsOf = ({ busy, clock }, [from, to], parts) => {
  const sums = new Float64Array(parts);
  let working = covered(busy, [from, to]);
  let idle = 0;
  for (let i = firstAbove(clock.end, from); i < clock.length && clock.start[i] < to; i++) {
    const ns = Math.min(clock.end[i], to) - Math.max(clock.start[i], from);
    sums[clock.part[i]] += ns;
    if (clock.isIdle[i]) idle += ns;
    else working -= ns;
  }
  sums[0] += Math.max(0, working);
  return { sums, idle };
};

/** The mean of a track within a span, weighted by time, with the time that has values; the sum of a total. `null` without values. */
export const trackWithin = (track, [from, to]) => {
  const { start, end, rate } = track;
  let [area, time] = [0, 0];
  for (let i = firstAbove(end, from); i < start.length && start[i] < to; i++) {
    const ns = Math.min(end[i], to) - Math.max(start[i], from);
    area += rate[i] * ns;
    time += ns;
  }
  return time > 0 ? { mean: area / time, time, total: area / 1e9 } : null;
};

/** The paths with the longest time of the host in a span, and the longest kernels: at most `most` of each. */
export function* areaOf(model, content, most) {
  const { nodes } = yield* pathsOf(model, content);
  const kernels = yield* kernelsOf(model, content);
  const calls = yield* apiOf(model, content);
  const paths = nodes.map((node, row) => ({ row, ...node })).filter((node) => node.instances > 0).sort((a, b) => b.host_ns - a.host_ns);
  return { kernels, calls, paths: paths.slice(0, most), instances: paths.reduce((sum, node) => sum + node.instances, 0) };
}

/** Runs generators to their end in turns of some milliseconds, the first of them at once if `isEager`; a new one replaces the one before it. */
export const runner = ({ later = (go) => setTimeout(go, 0), budget = 4, now = () => performance.now(), isEager = false } = {}) => {
  let current = 0;
  return (generator, done) => {
    const id = ++current;
    const turn = () => {
      if (id !== current) return;
      const until = now() + budget;
      let step;
      do step = generator.next(); while (!step.done && now() < until);
      if (step.done) done(step.value);
      else later(turn);
    };
    if (isEager) turn();
    else later(turn);
  };
};
/** Runs a generator to its end. */
export const completed = (generator) => {
  let step;
  do step = generator.next(); while (!step.done);
  return step.value;
};

/** Rows of instruction samples, those of a line of a kernel as one. */
export const summedLines = (rows) => {
  const known = new Map();
  for (const { name, kernel, stalls } of rows) {
    const key = `${name} ${kernel}`;
    if (!known.has(key)) known.set(key, { name, kernel, samples: 0, stalls: new Map() });
    const row = known.get(key);
    for (const [stall, samples] of stalls) {
      row.samples += samples;
      row.stalls.set(stall, (row.stalls.get(stall) ?? 0) + samples);
    }
  }
  return [...known.values()].map((row) => ({ ...row, stalls: [...row.stalls].sort((a, b) => b[1] - a[1]) }));
};
/** The instruction samples by line and kernel in the launches of a node and those within, or of all with `null`. */
export const linesOf = (model, node) => {
  const { lines, nodes } = model.data;
  const isIn = (at) => {
    for (let row = at; row; row = nodes[row - 1].parent) if (row - 1 === node) return true;
    return node === null;
  };
  return summedLines(lines.filter(({ node: at }) => isIn(at)));
};
