// Columns: searches, packing, order statistics; and what the page's data becomes.
import assert from "node:assert/strict";
import test from "node:test";
import { firstAbove, firstFrom, grouped, inParts, indexed, median, packed, ranked, summed } from "../../src/show/html/script/arrays.mjs";
import { fromOklch, paintsOf } from "../../src/show/html/script/colors.mjs";
import { aroundGap, exists, gapAt, longestPieces, nameOf, spanOf, workOf } from "../../src/show/html/script/items.mjs";
import { callsIn, containedIn, decoded, operationsIn, rangesIn, reasonsText } from "../../src/show/html/script/model.mjs";
import { placed, rowsOf } from "../../src/show/html/script/rows.mjs";
import { completed } from "../../src/show/html/script/sums.mjs";
import { dataOf, random, steps } from "./fixture.mjs";

test("searches find what a scan finds", () => {
  const next = random(1);
  for (let round = 0; round < 60; round++) {
    const length = Math.floor(next() * 3000);
    const sorted = Float64Array.from({ length }, () => Math.floor(next() * 500) * (round % 3 ? 1 : 1e15)).sort();
    const from = indexed(sorted);
    for (let i = 0; i < 50; i++) {
      const value = (next() * 520 - 10) * (round % 3 ? 1 : 1e15);
      const low = Math.floor(next() * (length + 1));
      const scan = sorted.findIndex((other, at) => at >= low && other >= value);
      assert.equal(firstFrom(sorted, value, low), scan < 0 ? length : scan);
      assert.equal(Math.max(low, from(value, low)), scan < 0 ? length : scan, `${length} from ${low}`);
      const above = sorted.findIndex((other) => other > value);
      assert.equal(firstAbove(sorted, value), above < 0 ? length : above);
    }
  }
});

test("medians and ranks are those of a sorted list", () => {
  const next = random(2);
  for (const length of [0, 1, 2, 3, 10, 101, 1000]) {
    const values = Float64Array.from({ length }, () => Math.floor(next() * 20));
    const sorted = values.slice().sort();
    const middle = length === 0 ? NaN : (sorted[(length - 1) >> 1] + sorted[length >> 1]) / 2;
    assert.equal(median(values.slice()), middle);
    if (length) assert.equal(ranked(values.slice(), length - 1), sorted[length - 1]);
  }
  assert.equal(median(new Float64Array(1000).fill(7)), 7);
});

test("rows are grouped by a key in their order", () => {
  const rows = grouped(6, (i) => [1, -1, 0, 1, 2, 1][i], 3);
  assert.deepEqual([0, 1, 2].map((key) => [...rows.of(key)]), [[2], [0, 3, 5], [4]]);
  assert.deepEqual([...summed([5, -2, 1], Int32Array, -1)], [4, 2, 3]);
});

test("what overlaps lies in different lanes, the outer one above", () => {
  const next = random(3);
  for (let round = 0; round < 30; round++) {
    const length = 400;
    const start = Float64Array.from({ length }, () => Math.floor(next() * 1000));
    const end = start.map((from) => from + 1 + Math.floor(next() ** 4 * 300));
    const lanes = packed({ start, end }, start.keys());
    assert.equal(lanes.reduce((sum, lane) => sum + lane.length, 0), length);
    const overlap = Math.max(...Array.from({ length: 1300 }, (_, t) => start.reduce((sum, from, i) => sum + (from <= t && t < end[i] ? 1 : 0), 0)));
    assert.equal(lanes.length, Math.max(1, overlap), "no more lanes than items at one time");
    for (const lane of lanes) for (let i = 1; i < lane.length; i++) assert.ok(start[lane[i]] >= end[lane[i - 1]]);
  }
  const nested = packed({ start: [0, 0, 1], end: [10, 4, 2] }, [2, 1, 0]);
  assert.deepEqual(nested, [[0], [1], [2]]);
});

test("a hundred thousand ranges within each other are placed at once", () => {
  const length = 100_000;
  const table = { start: Float64Array.from({ length }, (_, i) => i), end: Float64Array.from({ length }, (_, i) => 1e6 - i) };
  const since = performance.now();
  assert.equal(packed(table, table.start.keys()).length, length);
  assert.ok(performance.now() - since < 5000);
});

test("a range has the ranges, calls and operations within it", () => {
  const model = decoded(steps());
  const sorted = (rows) => [...rows].sort((a, b) => a - b);
  assert.deepEqual(sorted(rangesIn(model, 0)), [0, 1, 2]);
  assert.deepEqual(sorted(callsIn(model, 0)), [0, 1, 2, 3]);
  assert.deepEqual(sorted(operationsIn(model, 0)), [0, 1, 2]);
  assert.deepEqual(sorted(operationsIn(model, 2)), [1, 2]);
  assert.deepEqual(sorted(operationsIn(model, 3)), [3]);
  assert.deepEqual([model.pathOf(2), model.whole, model.streams.length], ["step/run", 1000, 1]);
});

test("the work of a path is that of all its instances", () => {
  const model = decoded(steps());
  const run = model.data.nodes.findIndex((_, node) => model.pathOf(node) === "step/run");
  const { lanes } = rowsOf(model);
  const work = completed(workOf(model, lanes, { type: "node", row: run }));
  assert.deepEqual([work.count, work.kernels, work.gpu, work.callCount, work.failed], [3, 3, 260, 4, 1]);
  assert.deepEqual([...work.byDevice], [[0, [130, 750]]]);
  assert.deepEqual(spanOf(model, { type: "node", row: run }), [100, 800]);
  assert.equal(completed(workOf(model, lanes, { type: "range", row: 0 })).syncs, 20);
  // Kernels of the path are hits of the stream's row, and so are its ranges.
  const stream = lanes.find(({ type }) => type === "operation");
  assert.deepEqual([...work.hits.get(stream)], [0, 0, 1, 2, 3, 3]);
  assert.deepEqual([...work.hits.keys()].map(({ type }) => type).sort(), ["call", "operation", "range", "range"]);
});

test("what a path contains is what its ranges contain", () => {
  const next = random(7);
  const ranges = [];
  for (let i = 0; i < 400; i++) {
    const parent = i === 0 || next() < 0.2 ? undefined : Math.floor(next() * i);
    const name = "abc"[Math.floor(next() * 3)];
    ranges.push({ path: parent === undefined ? name : `${ranges[parent].path}/${name}`, start: i, ns: 1, parent });
  }
  const calls = ranges.flatMap((_, range) => [{ name: "cuLaunchKernel", start: range, ns: 1, range }, { name: "cudaLaunchKernel", start: range, ns: 1 }]);
  const operations = calls.map((_, call) => ({ name: "k", start: 1000 + call, ns: 1, call }));
  const model = decoded(dataOf({ ranges, calls, operations }));
  const sorted = (rows) => [...rows].sort((a, b) => a - b);
  for (let node = 0; node < model.data.nodes.length; node++) {
    const found = completed(containedIn(model, { type: "node", row: node }));
    const each = [...model.R.byNode.of(node)].map((row) => completed(containedIn(model, { type: "range", row })));
    for (const table of ["operations", "calls", "ranges"]) assert.deepEqual(sorted(found[table]), sorted(each.flatMap((one) => [...one[table]])), `${model.pathOf(node)}: ${table}`);
  }
});

test("long tables are worked on in parts", () => {
  const parts = [];
  let pauses = 0;
  for (const _ of inParts(70_000, (from, to) => parts.push([from, to]))) pauses++;
  assert.deepEqual([parts, pauses], [[[0, 32_768], [32_768, 65_536], [65_536, 70_000]], 2]);
  assert.equal([...inParts(100, () => {})].length, 0, "a short one at once");
});

test("gaps are idle time without an interruption", () => {
  const model = decoded(steps());
  const { clock } = model.devices[0];
  assert.deepEqual([[...clock.gaps.start], [...clock.gaps.end]], [[0, 80, 230, 280, 750], [40, 130, 240, 630, 930]]);
  const gap = gapAt(model, 0, 115);
  assert.deepEqual(gap, { type: "gap", of: 0, row: 1 });
  assert.equal(gapAt(model, 0, 200), null);
  assert.equal(gapAt(model, 9, 0), null);
  const { from, to, before, after, pieces } = aroundGap(model, gap);
  assert.deepEqual([from, to, before, after, pieces.map(({ part }) => part)], [80, 130, 0, 1, [6, 4]]);
  const { pieces: longest, total } = longestPieces(model, 6, 2);
  assert.deepEqual([longest.map(({ span }) => span), total], [[[280, 630], [750, 930]], 4]);
});

test("items that do not exist are known", () => {
  const model = decoded(steps());
  for (const item of [{ type: "range", row: 5 }, { type: "node", row: 3 }, { type: "gap", row: 0, of: 4 }, { type: "gap", row: 5, of: 0 }, { type: "track", row: 0, of: 0 }, { type: "operation", row: 5 }, { type: "script", row: 0 }]) {
    assert.equal(exists(model, item), false, JSON.stringify(item));
  }
  assert.ok(exists(model, { type: "range", row: 4 }));
  assert.equal(nameOf(model, { type: "operation", row: 1 }), "gemm");
});

test("every item with a time has one place in the rows", () => {
  const data = dataOf({ ...{ process: [{ name: "request", start: 5, ns: 50 }], marks: [{ name: "m", at: 7 }, { name: "n", at: 3 }] }, operations: [{ name: "k", start: 5, ns: 5 }, { name: "k", start: 6, ns: 9 }, { name: "k", start: 6, ns: -1 }] });
  const model = decoded(data);
  const { lanes, groups } = rowsOf(model);
  assert.deepEqual(lanes.map(({ type, length }) => [type, length]), [["process", 1], ["mark", 2], ["busy", 1], ["operation", 1], ["operation", 1]]);
  assert.deepEqual([...lanes[1].rows], [1, 0], "marks are in the order of their times");
  assert.deepEqual([...model.O.lane], [3, 4, -1]);
  const height = placed(groups, 1);
  groups[0].isFolded = true;
  assert.ok(placed(groups, 1) < height);
});

test("a clock that goes back, lengths of nothing and broken parents give a page", () => {
  const data = dataOf({
    ranges: [{ path: "a", start: 500, ns: 0 }, { path: "b", start: 10, ns: 1e18 }, { path: "c", start: 400, ns: 5 }], calls: [{ name: "f", start: 900, ns: -1 }, { name: "f", start: 1, ns: 0 }],
    operations: [{ name: "k", start: 300, ns: 50 }, { name: "k", start: 100, ns: 10 }], duration: 0,
  });
  data.ranges.parent_back = [-3, 7, 1];
  const model = decoded(data);
  assert.deepEqual([...model.R.parent], [-1, -1, 1]);
  assert.ok(model.whole >= 1e18);
  const { lanes } = rowsOf(model);
  for (const lane of lanes) for (let i = 1; i < lane.length; i++) assert.ok(lane.start[i] >= lane.end[i - 1] || lane.type === "busy");
});

test("energy is shown in joules since the first sample", () => {
  const track = { device: 0, label: "energy", name: "nvml__energy", source: "NVML", unit: "watts", total_unit: "joules", kind: "total", value: [100, 300], least: null, most: null, mean: 200, total: 40, starts: [0, 1e8], end: 2e8 };
  const [energy] = decoded(dataOf({ tracks: [track] })).tracks;
  assert.deepEqual([[...energy.value], [...energy.rate], energy.unit, energy.top], [[10, 40], [100, 300], "joules", 40]);
  assert.equal(reasonsText(0x24), "power limit, heat");
  assert.equal(reasonsText(0), "none");
});

test("the longest kernels differ in colour, and ink can be read on each", () => {
  const model = decoded(dataOf({ operations: Array.from({ length: 40 }, (_, i) => ({ name: `k${i}`, start: i, ns: 1 })) }));
  const luminance = ([r, g, b]) => [r, g, b].map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  for (const isDark of [false, true]) {
    const paints = paintsOf(model, [...model.O.name], [[0, 0, 0]], isDark);
    const fills = [...model.O.name.slice(0, 12)].map((name) => paints.kernel(name).fill);
    assert.equal(new Set(fills).size, 12);
    for (const name of model.O.name) {
      const { rgb, ink } = paints.kernel(name);
      const [light, dark] = [luminance(rgb), ink === "#ffffff" ? 1 : luminance([13, 17, 22])].sort((a, b) => b - a);
      assert.ok((light + 0.05) / (dark + 0.05) >= 4, `${rgb} under ${ink}`);
    }
  }
  assert.deepEqual(fromOklch(1, 0, 0), [255, 255, 255]);
  assert.deepEqual(fromOklch(0.627955, 0.257683, 29.2339), [255, 0, 0]);
});
