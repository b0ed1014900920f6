// Sums over parts of a profile, searches over its items, and the frames of the flame graph.
import assert from "node:assert/strict";
import test from "node:test";
import { framesOf, neighbourFrame, visibleFrames } from "../../src/show/html/script/flame.mjs";
import { decoded } from "../../src/show/html/script/model.mjs";
import { rowsOf } from "../../src/show/html/script/rows.mjs";
import { containing, expressionOf, found, hitsOf, numberOf, stepped } from "../../src/show/html/script/search.mjs";
import { apiOf, areaOf, completed, contentOf, covered, gpuTime, kernelsOf, linesOf, partsOf, pathsOf, runner, trackWithin, transfersOf, workByPath } from "../../src/show/html/script/sums.mjs";
import { dataOf, random, steps } from "./fixture.mjs";

const completedFound = (...given) => completed(found(...given));
const opened = (data = steps()) => {
  const model = decoded(data);
  return { model, ...rowsOf(model) };
};
const everything = { kind: "window", span: [-Infinity, Infinity] };

test("kernels of a span are cut to it, and their statistics are those of whole ones", () => {
  const { model, lanes } = opened();
  const name = (row) => model.names[row.name];
  const all = completed(kernelsOf(model, contentOf(model, lanes, everything)));
  assert.deepEqual(all.map((row) => [name(row), row.count, row.total, row.mean, row.median, row.min, row.max]), [["gemm", 2, 220, 110, 110, 100, 120], ["relu", 2, 70, 35, 35, 30, 40]]);
  assert.equal(all[0].std, 14.1, "of a sample");
  const part = completed(kernelsOf(model, contentOf(model, lanes, { kind: "area", span: [180, 260] })));
  assert.deepEqual(part.map((row) => [name(row), row.count, row.total, row.mean]), [["gemm", 1, 50, 100], ["relu", 1, 20, 40]]);
  const [copy] = completed(transfersOf(model, contentOf(model, lanes, { kind: "area", span: [0, 50] })));
  assert.deepEqual([name(copy), copy.total, copy.bytes], ["copy", 10, 4096]);
});

test("samples of a node are those of its lines and of those within", () => {
  const nodes = [{ parent: 0 }, { parent: 1 }, { parent: 0 }];
  const row = (node, name, ...stalls) => ({ node, name, kernel: 9, stalls });
  const model = { data: { nodes, lines: [row(1, 5, [1, 10]), row(2, 5, [1, 2], [2, 30]), row(3, 6, [1, 4]), row(0, 6, [2, 1])] } };
  const of = (node) => linesOf(model, node).map(({ name, samples, stalls }) => [name, samples, stalls]);
  assert.deepEqual(of(null), [[5, 42, [[2, 30], [1, 12]]], [6, 5, [[1, 4], [2, 1]]]]);
  assert.deepEqual(of(0), [[5, 42, [[2, 30], [1, 12]]]]);
  assert.deepEqual(of(1), [[5, 32, [[2, 30], [1, 2]]]]);
  assert.deepEqual(of(2), [[6, 4, [[1, 4]]]]);
});

test("what a range caused counts wherever it ran", () => {
  const { model, lanes } = opened();
  const kernels = completed(kernelsOf(model, contentOf(model, lanes, { kind: "range", row: 3 })));
  assert.deepEqual(kernels.map((row) => [model.names[row.name], row.total]), [["gemm", 120]]);
  const calls = completed(apiOf(model, contentOf(model, lanes, { kind: "range", row: 0 })));
  assert.deepEqual(calls.map((row) => [model.names[row.name], row.count]).sort(), [["cuCtxSynchronize", 1], ["cuLaunchKernel", 2], ["cuMemcpy", 1]]);
});

test("paths have their own sums and those of the paths within them", () => {
  const { model, lanes } = opened();
  const { nodes, outside } = completed(pathsOf(model, contentOf(model, lanes, everything)));
  const of = (path) => nodes[model.data.nodes.findIndex((_, node) => model.pathOf(node) === path)];
  assert.deepEqual([of("step").instances, of("step").host_ns, gpuTime(of("step").inclusive), gpuTime(of("step").exclusive)], [2, 800, 300, 0]);
  assert.deepEqual([of("step/run").inclusive.kernels, of("step/run").inclusive.launches, of("step/load").inclusive.copy_bytes], [3, 3, 4096]);
  assert.deepEqual([of("step").inclusive.synchronizations, of("step").inclusive.synchronization_ns], [1, 20]);
  assert.deepEqual([outside.kernels, outside.kernel_ns, outside.launches], [1, 30, 1], "a failed launch counts nowhere");
  const late = completed(pathsOf(model, contentOf(model, lanes, { kind: "area", span: [500, 700] })));
  assert.deepEqual([late.nodes[0].instances, late.nodes[0].host_ns, gpuTime(late.nodes[0].inclusive)], [1, 200, 70]);
});

test("a range leaves out work after its end that a range within it launched", () => {
  const data = dataOf({
    ranges: [{ path: "user", start: 0, ns: 600 }, { path: "user/phase", start: 400, ns: 500, parent: 0 }],
    calls: [100, 500, 800].map((start, i) => ({ name: "cuLaunchKernel", start, ns: 10, range: i === 0 ? 0 : 1 })),
    operations: [100, 500, 800].map((start, i) => ({ name: `k${i + 1}`, start: start + 10, ns: 10 * (i + 1), call: i })),
  });
  data.calls.late = [[2, [1]]];
  const { model, lanes } = opened(data);
  const content = contentOf(model, lanes, everything);
  const { nodes, outside } = completed(pathsOf(model, content));
  assert.deepEqual(nodes.map((node) => [gpuTime(node.inclusive), gpuTime(node.exclusive), node.inclusive.launches]), [[30, 10, 2], [50, 50, 2]]);
  for (const item of [{ kind: "range", row: 0 }, { kind: "node", row: 0 }]) {
    const kernels = completed(kernelsOf(model, contentOf(model, lanes, item)));
    assert.deepEqual(kernels.map((row) => model.names[row.name]).sort(), ["k1", "k2"]);
    assert.equal(completed(apiOf(model, contentOf(model, lanes, item)))[0].count, 2);
  }
  const flame = framesOf(data, { nodes, outside }, completed(workByPath(model, content)), gpuTime);
  const frames = flame.frames.map(({ node, width, ns = width }) => [node, width, ns]);
  assert.deepEqual([flame.total, frames.filter(([node]) => node >= 0)], [60, [[0, 60, 30], [1, 50, 50]]], "frames lie within each other");
});

test("calls of the runtime API are in no sum", () => {
  const { model, lanes } = opened(dataOf({ calls: [{ name: "cuLaunchKernel", start: 5, ns: 5 }, { name: "cudaLaunchKernel", start: 4, ns: 9 }], runtime: 1 }));
  const calls = completed(apiOf(model, contentOf(model, lanes, everything)));
  assert.deepEqual(calls.map((row) => model.names[row.name]), ["cuLaunchKernel"]);
});

test("the parts of the clock add up to any span", () => {
  const { model } = opened();
  const [device] = model.devices;
  const whole = partsOf(device, [0, 1000], 9);
  assert.deepEqual([...whole.sums], [290, 0, 40, 10, 20, 0, 600, 0, 0]);
  assert.equal(whole.idle, 630);
  for (const [from, to] of [[0, 1], [100, 300], [35, 45], [600, 960]]) {
    const { sums } = partsOf(device, [from, to], 9);
    assert.equal(sums.reduce((sum, ns) => sum + ns, 0), Math.min(to, 960) - from, `${from} to ${to}`);
  }
  assert.equal(covered(device.busy, [50, 200]), 100);
});

test("an area has its kernels, calls and longest paths", () => {
  const { model, lanes } = opened();
  const area = completed(areaOf(model, contentOf(model, lanes, { kind: "area", span: [0, 450] }), 2));
  assert.deepEqual(area.paths.map(({ row, host_ns }) => [model.pathOf(row), host_ns]), [["step", 400], ["step/run", 250]]);
  assert.equal(area.instances, 3);
});

test("a track's mean and total within a span are by time", () => {
  const track = { device: 0, label: "power", name: "p", source: "NVML", unit: "watts", total_unit: "watts", kind: "mean", value: [100, 300], least: null, most: null, mean: 200, total: null, starts: [0, 100], end: 200 };
  const { model } = opened(dataOf({ tracks: [track] }));
  assert.deepEqual(trackWithin(model.tracks[0], [50, 150]), { mean: 200, time: 100, total: 2e4 / 1e9 });
  assert.equal(trackWithin(model.tracks[0], [500, 600]), null);
});

test("long sums pause, and a newer one replaces an older", () => {
  const turns = [];
  let clock = 0;
  const run = runner({ later: (turn) => turns.push(turn), budget: 5, now: () => clock += 3 });
  function* sum(to) {
    let total = 0;
    for (let i = 0; i < to; i++) {
      total += i;
      yield;
    }
    return total;
  }
  const results = [];
  run(sum(10), (value) => results.push(["old", value]));
  turns.shift()();
  run(sum(5), (value) => results.push(["new", value]));
  while (turns.length) turns.shift()();
  assert.deepEqual(results, [["new", 10]]);
});

test("searches ignore case, and expressions that are none say why", () => {
  assert.deepEqual([...containing(["Gemm", "relu", ""], "EM")], [1, 0, 0]);
  assert.ok(expressionOf("gemm|relu$").expression.test("a RELU"));
  assert.ok(expressionOf("kernel<{").expression.test("KERNEL<{"), "as names of C++ have it");
  assert.match(expressionOf("(").error, /[Uu]nterminated/);
});

test("steps go through all hits in the order of their time, and around", () => {
  const next = random(5);
  for (let round = 0; round < 20; round++) {
    const lanes = Array.from({ length: 4 }, (_, index) => {
      let t = 0;
      const length = Math.floor(next() * 30);
      const start = Float64Array.from({ length }, () => t += Math.floor(next() * 4));
      return { type: "range", index, length, start, name: Int32Array.from({ length }, () => Math.floor(next() * 3)) };
    });
    const search = completedFound(lanes, [1, 0, 1]);
    const expected = lanes.flatMap((lane) => [...lane.start.keys()].filter((at) => lane.name[at] !== 1).map((at) => [lane.start[at], lane.index, at])).sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
    assert.equal(search.total, expected.length);
    for (const isForward of [true, false]) {
      let place = null;
      const seen = [];
      for (let i = 0; i < expected.length; i++) {
        place = stepped(search, place, isForward);
        seen.push([place.start, place.lane.index, place.at]);
        assert.equal(numberOf(search, place), isForward ? i + 1 : expected.length - i);
      }
      assert.deepEqual(seen, isForward ? expected : [...expected].reverse());
      if (expected.length) assert.equal(numberOf(search, stepped(search, place, isForward)), isForward ? 1 : expected.length, "around");
    }
  }
  assert.equal(stepped(completedFound([], []), null, true), null);
  assert.deepEqual([...completed(hitsOf([2, 0, 1, 1], [0, 1, 1]))], [0, 1, 1, 2, 3]);
});

test("frames are as wide as their GPU time and lie within their parents", () => {
  const { model, lanes } = opened();
  const content = contentOf(model, lanes, everything);
  const flame = framesOf(model.data, completed(pathsOf(model, content)), completed(workByPath(model, content)), gpuTime);
  assert.equal(flame.total, 330);
  const texts = flame.frames.map(({ name, depth, left, width }) => [model.names[name], depth, left, width]).sort((a, b) => a[1] - b[1] || a[2] - b[2]);
  assert.deepEqual(texts, [["step", 0, 0, 300], ["relu", 0, 300, 30], ["run", 1, 0, 260], ["load", 1, 260, 40], ["gemm", 2, 0, 220], ["relu", 2, 220, 40], ["copy", 2, 260, 40]]);
  for (const frame of flame.frames) {
    if (frame.parent < 0) continue;
    const parent = flame.frames[frame.parent];
    assert.ok(frame.depth === parent.depth + 1 && frame.left >= parent.left && frame.left + frame.width <= parent.left + parent.width);
  }
  const run = flame.frames.findIndex(({ name }) => model.names[name] === "run");
  const visible = visibleFrames(flame, run);
  assert.deepEqual(visible.map(({ frame, left, right }) => [model.names[frame.name], left, right]).filter(([, left, right]) => right - left === 1).map(([name]) => name).sort(), ["run", "step"]);
  const all = visibleFrames(flame, null);
  const go = (from, key) => neighbourFrame(flame, all, from, key);
  const step = go(-1, "down");
  assert.equal(model.names[flame.frames[go(step, "down")].name], "run");
  assert.equal(go(go(step, "down"), "up"), step);
  assert.equal(model.names[flame.frames[go(go(step, "down"), "right")].name], "load");
  assert.equal(go(step, "left"), step);
});

test("lines share the width of their kernel by samples", () => {
  const data = steps();
  const [gemm, relu] = ["gemm", "relu"].map((name) => data.names.indexOf(name));
  const [run, first, second] = [data.nodes.findIndex(({ name }) => data.names[name] === "run"), data.names.push("a.cu:4") - 1, data.names.push("a.cu:7") - 1];
  const row = (node, kernel, name, ...stalls) => ({ node: node + 1, kernel, name, stalls });
  // One line in two symbols of a name, instructions without a line, and a line of another path.
  data.lines = [row(run, gemm, second, [0, 2]), row(run, gemm, first, [0, 5], [1, 10]), row(run, gemm, first, [0, 5]), row(run, gemm, gemm, [0, 3]), row(run, relu, relu, [0, 9]), row(-1, gemm, second, [0, 9])];
  const { model, lanes } = opened(data);
  const content = contentOf(model, lanes, everything);
  const { frames, depth } = framesOf(model.data, completed(pathsOf(model, content)), completed(workByPath(model, content)), gpuTime);
  const lines = frames.filter(({ kernel }) => kernel !== undefined);
  const of = frames.findIndex(({ name, kernel }) => name === gemm && kernel === undefined);
  assert.deepEqual(lines.map(({ name, kernel, kind, samples, all, left, width, parent }) => [name, kernel, kind, samples, all, left, width, parent]),
    [[first, gemm, 0, 20, 25, 0, 176, of], [second, gemm, 0, 2, 25, 176, 17.6, of]]);
  assert.deepEqual([lines[0].stalls, frames[of].width, depth], [[[0, 10], [1, 10]], 220, 4]);
  const visible = visibleFrames({ frames, total: 330 }, null);
  assert.equal(neighbourFrame({ frames }, visible, of, "down"), frames.indexOf(lines[0]));
  assert.equal(neighbourFrame({ frames }, visible, frames.indexOf(lines[0]), "right"), frames.indexOf(lines[1]));
  assert.equal(neighbourFrame({ frames }, visible, frames.indexOf(lines[1]), "up"), of);
});

test("paths as deep as a stack is not are frames", () => {
  const depth = 20_000;
  const data = { lines: [], nodes: Array.from({ length: depth }, (_, row) => ({ name: row, parent: row })) };
  const sums = { kernel_ns: 5, copy_ns: 0, memset_ns: 0, graph_ns: 0 };
  const flame = framesOf(data, { nodes: data.nodes.map(() => ({ instances: 1, inclusive: sums })), outside: { ...sums, kernel_ns: 0 } }, new Map(), gpuTime);
  assert.equal(flame.depth, depth);
});
