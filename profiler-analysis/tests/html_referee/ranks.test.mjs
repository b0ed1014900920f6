// Collectives of several ranks: what the panel says of a rank, and the lines to the others.
import assert from "node:assert/strict";
import test from "node:test";
import { decoded } from "../../src/show/html/script/model.mjs";
import { collectiveFacts, collectiveOf, drawPeers, peersOf } from "../../src/show/html/script/ranks.mjs";
import { dataOf } from "./fixture.mjs";

// Three ranks that arrive at 100, 160 and 130, of which the second ends first.
const reduced = () => decoded(dataOf({
  operations: [
    { name: "gemm", start: 10, ns: 50 }, { name: "nccl", start: 100, ns: 110, device: 0 }, { name: "nccl", start: 130, ns: 80, device: 2 },
    { name: "nccl", start: 160, ns: 40, device: 1 },
  ],
  collectives: { kinds: [["AllReduce", "fe", 4096]], kind: [0], kernels: [[1, 3, 2]] },
}));

test("ranks wait for the last one, and then transfer", () => {
  const model = reduced();
  assert.equal(collectiveOf(model, 0), null);
  assert.deepEqual(collectiveFacts(null), []);
  const first = collectiveOf(model, 1);
  assert.deepEqual([first.skew, first.transfer, first.waited, first.isLast, first.rows], [60, 50, 60, false, [1, 2, 3]]);
  assert.deepEqual([collectiveOf(model, 2).waited, collectiveOf(model, 3).isLast], [30, true]);
  assert.deepEqual(collectiveFacts(collectiveOf(model, 3)).map(([, value]) => value), ["AllReduce of 4.000 KiB", "fe", "3", "last", "60 ns", "50 ns"]);
});

test("the other ranks are in order of arrival, and lines go to those that are shown", () => {
  const model = reduced();
  assert.deepEqual(peersOf(model, 0), { peers: [], more: 0 });
  assert.deepEqual(peersOf(model, 2).peers.map(({ row, text }) => [row, text]), [[1, "GPU 0 arrived 30 ns before it: "], [3, "GPU 1 arrived 30 ns after it: "]]);
  const lines = [];
  const context = { setLineDash() {}, beginPath() {}, moveTo: (...at) => lines.push(at), bezierCurveTo: (...to) => lines.push(to.slice(-2)), stroke() {} };
  const places = new Map([[1, { x: 100, y: 0, height: 10 }], [2, { x: 130, y: 60, height: 10 }], [3, { x: 160, y: 30, height: 10 }]]);
  assert.equal(drawPeers(context, model, 1, (row) => places.get(row), "red"), 2);
  assert.deepEqual(lines, [[100, 10], [130, 60], [100, 10], [160, 30]]);
  places.delete(2);
  assert.equal(drawPeers(context, model, 3, (row) => places.get(row), "red"), 1);
  assert.deepEqual(lines.slice(4), [[160, 30], [100, 10]], "upwards");
  assert.equal(drawPeers(context, model, 2, (row) => places.get(row), "red"), 0);
});

test("of many ranks the panel has the first", () => {
  const operations = Array.from({ length: 100 }, (_, device) => ({ name: "nccl", start: 10 + device, ns: 200, device }));
  const model = decoded(dataOf({ operations, collectives: { kinds: [["Broadcast", "1", 1]], kind: [0], kernels: [[...operations.keys()]] } }));
  const { peers, more } = peersOf(model, 50);
  assert.deepEqual([peers.length, more, peers[0].row], [16, 83, 0]);
});
