// The data of a small page, as the Rust side writes it, from lists that a test can read.

const deltas = (values) => values.map((value, i) => value - (i ? values[i - 1] : 0));

/**
 * Data of a page. Ranges are `{ path, start, ns, parent, thread, color }` with the row of their parent, calls `{ name, does, start, ns, range,
 * thread, failed }`, operations `{ name, kind, start, ns, call, stream, bytes }`; pieces of the clock `{ start, ns, part, isIdle }` of device 0.
 */
export const dataOf = ({ ranges = [], calls = [], operations = [], pieces = [], marks = [], process = [], duration = 1000, runtime = 0, tracks = [], collectives = { kinds: [], kind: [], kernels: [] } } = {}) => {
  const names = [];
  const nameRow = (name) => {
    if (!names.includes(name)) names.push(name);
    return names.indexOf(name);
  };
  const paths = [...new Set(ranges.map(({ path }) => path))];
  const nodes = paths.map((path) => {
    const cut = path.lastIndexOf("/");
    return { name: nameRow(path.slice(cut + 1)), domain: null, parent: cut < 0 ? 0 : paths.indexOf(path.slice(0, cut)) + 1, instances: ranges.filter((range) => range.path === path).length };
  });
  const kinds = [];
  const works = [];
  const rowOf = (list, value) => {
    const at = list.findIndex((known) => JSON.stringify(known) === JSON.stringify(value));
    return at < 0 ? list.push(value) - 1 : at;
  };
  const workOf = ({ name, kind = 0 }) => rowOf(works, kind === 0 ? [0, nameRow(name), nameRow(name), 1, 1, 1, 32, 1, 1, 16, 0, 0] : [kind, nameRow(name), nameRow(name)]);
  const devices = [...new Set(operations.map(({ device = 0 }) => device))];
  const streams = [];
  return {
    what: "a GPU", duration_ns: duration, clock_ns: duration, pauses_ns: [], names,
    info: { driver_release: null, cuda_driver_version: 13000, cupti_version: 130001, recorded_at_s: 0, recorder_version: "0" },
    parts: ["kernels", "communication", "copies", "scheduling", "launching", "waiting", "host", "loading", "unknown"].map((name) => ({ name })),
    clock: pieces.length === 0 ? [] : [{ device: 0, start_delta: pieces.map(({ start }, i) => start - (i ? pieces[i - 1].start + pieces[i - 1].ns : 0)), ns: pieces.map(({ ns }) => ns), part: pieces.map(({ part, isIdle }) => 2 * part + (isIdle ? 1 : 0)) }],
    totals: {}, outside: {}, findings: [], scorecard: { verdict: "none", first: null, scores: [] },
    devices: devices.map((id) => ({ id, name: "GPU", busy: { busy_ns: 0, communication_ns: 0, operations: 1 } })),
    nodes, processes: [], kernels: [], lines: [], memory: [], api: [], works, call_kinds: kinds, streams,
    threads: [...new Set([0, ...ranges.map(({ thread = 0 }) => thread), ...calls.map(({ thread = 0 }) => thread)])].map((id) => ({ id, process: 0, name: null })),
    ranges: {
      node: ranges.map(({ path }) => paths.indexOf(path)), thread: ranges.map(({ thread = 0 }) => thread), start_delta: deltas(ranges.map(({ start }) => start)), ns: ranges.map(({ ns }) => ns),
      parent_back: ranges.map(({ parent }, row) => (parent === undefined ? 0 : row - parent)), open: [], colors: ranges.flatMap(({ color }, row) => (color === undefined ? [] : [[row, color]])), details: [],
    },
    calls: {
      driver: calls.length - runtime, kind: calls.map(({ name, does = "launch" }) => rowOf(kinds, [nameRow(name), does])), thread: calls.map(({ thread = 0 }) => thread),
      start_delta: deltas(calls.map(({ start }) => start)), ns: calls.map(({ ns }) => ns), range_delta: deltas(calls.map(({ range }) => (range === undefined ? 0 : range + 1))),
      captured: [], failed: calls.flatMap(({ failed }, row) => (failed ? [[row, 1]] : [])),
    },
    operations: {
      work: operations.map(workOf), stream: operations.map(({ stream = 7, device = 0 }) => rowOf(streams, [0, device, 1, stream])), start_delta: deltas(operations.map(({ start }) => start)),
      ns: operations.map(({ ns }) => ns), call_delta: deltas(operations.map(({ call }) => (call === undefined ? 0 : call + 1))),
      bytes: operations.filter(({ kind = 0 }) => kind !== 0).map(({ bytes = 0 }) => bytes), captured_in: [],
    },
    collectives,
    process_ranges: { name: process.map(({ name }) => nameRow(name)), start_ns: process.map(({ start }) => start), ns: process.map(({ ns }) => ns), thread: process.map(() => 0), open: [], activations: process.map(() => []) },
    marks: { name: marks.map(({ name }) => nameRow(name)), thread: marks.map(() => 0), at_ns: marks.map(({ at }) => at) },
    samplers: [], tracks, track_times: tracks.map(({ starts, end }) => ({ start_delta: deltas(starts), gaps: [], end, samples: null })).map((times, i) => (tracks[i].times = i, times)),
  };
};

/** Two steps, each with a copy and two kernels, and a wait of the host between them. */
export const steps = () => dataOf({
  ranges: [
    { path: "step", start: 0, ns: 400 }, { path: "step/load", start: 10, ns: 80, parent: 0 }, { path: "step/run", start: 100, ns: 250, parent: 0 },
    { path: "step", start: 500, ns: 400 }, { path: "step/run", start: 600, ns: 200, parent: 3 },
  ],
  calls: [
    { name: "cuMemcpy", does: "copy", start: 20, ns: 30, range: 1 }, { name: "cuLaunchKernel", start: 110, ns: 10, range: 2 }, { name: "cuLaunchKernel", start: 150, ns: 10, range: 2 },
    { name: "cuCtxSynchronize", does: "sync", start: 360, ns: 20, range: 0 }, { name: "cuLaunchKernel", start: 610, ns: 10, range: 4 }, { name: "cuLaunchKernel", start: 650, ns: 10, range: 4, failed: true },
    { name: "cuLaunchKernel", start: 910, ns: 10 },
  ],
  operations: [
    { name: "copy", kind: 1, start: 40, ns: 40, call: 0, bytes: 4096 }, { name: "gemm", start: 130, ns: 100, call: 1 }, { name: "relu", start: 240, ns: 40, call: 2 },
    { name: "gemm", start: 630, ns: 120, call: 4 }, { name: "relu", start: 930, ns: 30, call: 6 },
  ],
  pieces: [
    { start: 0, ns: 40, part: 6, isIdle: true }, { start: 40, ns: 40, part: 2, isIdle: false }, { start: 80, ns: 30, part: 6, isIdle: true }, { start: 110, ns: 20, part: 4, isIdle: true },
    { start: 230, ns: 10, part: 3, isIdle: true }, { start: 280, ns: 350, part: 6, isIdle: true }, { start: 750, ns: 180, part: 6, isIdle: true },
  ],
});

/** Numbers from 0 to 1 that are the same in every run. */
export const random = (seed) => () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
};
