// Texts, views and addresses.
import assert from "node:assert/strict";
import test from "node:test";
import { fragmentOf, stateOf } from "../../src/show/html/script/address.mjs";
import { bytes, count, decimal, headAndTail, joules, measured, percent, plural, rate, shortened, tickStep, tickText, ticksBetween, time } from "../../src/show/html/script/units.mjs";
import { random } from "./fixture.mjs";
import { clamped, fitted, isWhole, panned, revealed, wholeView, zoomed } from "../../src/show/html/script/view.mjs";

test("numbers have the unit in which they are best read", () => {
  assert.deepEqual([0, 999, 1_000, 12_345, 1_234_567, 98_765_432_100].map(time), ["0 ns", "999 ns", "1.000 \u00b5s", "12.35 \u00b5s", "1.235 ms", "98.77 s"]);
  assert.deepEqual([1.5, -2_000].map(time), ["1.5 ns", "-2.000 \u00b5s"]);
  assert.deepEqual([0, 1023, 1024, 2 ** 31, 2 ** 41].map(bytes), ["0 B", "1023 B", "1.000 KiB", "2.000 GiB", "2.000 TiB"]);
  assert.deepEqual([decimal(1.98e9, "Hz"), decimal(12, ""), rate(1000, 1000), rate(1, 0)], ["1.980 GHz", "12", "1.000 GB/s", ""]);
  assert.deepEqual([joules(0.012), joules(81.25), joules(1234)], ["12.00 mJ", "81.3 J", "1.234 kJ"]);
  assert.deepEqual([count(1_234_567), plural(1, "kernel"), plural(2, "match", "matches")], ["1,234,567", "1 kernel", "2 matches"]);
  assert.deepEqual([percent(0, 0), percent(1, 1e6), percent(1, 3)], ["0.0 %", "< 0.1 %", "33.3 %"]);
});

test("sampled values have units", () => {
  const values = { percent: "42.5 %", bytes: "42.5 B", bytes_per_second: "42.5 B/s", hertz: "42.5 Hz", nanoseconds: "42.5 ns", joules: "42.5 J", watts: "42.5 W", celsius: "43 \u00b0C", flags: "0x2b", other: "42.5" };
  for (const [unit, text] of Object.entries(values)) assert.equal(measured(42.5, unit), text, unit);
});

test("a name in two parts is the whole name", () => {
  assert.deepEqual(headAndTail("cub::DeviceSelect::UniqueByKey"), ["cub::DeviceSelect:", ":UniqueByKey"]);
  assert.deepEqual(headAndTail("cub::DeviceSelect::UniqueByKey", 4), ["cub::DeviceSelect::UniqueB", "yKey"]);
  for (const short of ["", "a", "eighteen character", "\u{4e2d}".repeat(9)]) assert.deepEqual(headAndTail(short), [short, ""], short);
  assert.deepEqual(headAndTail("\u{4e2d}".repeat(10)), ["\u{4e2d}".repeat(4), "\u{4e2d}".repeat(6)], "wide characters take two columns");
  assert.deepEqual(headAndTail("\u{1f600}".repeat(10))[1], "\u{1f600}".repeat(6), "no character is cut");
  const next = random(11);
  for (let round = 0; round < 300; round++) {
    const name = Array.from({ length: Math.floor(next() * 60) }, () => " \tab:\u{4e2d}\u{1f600}"[Math.floor(next() * 9)] ?? "x").join("");
    const [head, tail] = headAndTail(name);
    assert.equal(head + tail, name);
  }
});

test("long text keeps its head and its tail", () => {
  assert.equal(shortened("abc", 3), "abc");
  assert.equal(shortened("sgemm_128x64_tn", 9), "sgemm\u2026_tn");
  assert.equal(shortened("x".repeat(100_000), 40).length, 40);
});

test("ticks are at round times, and few where numbers cannot tell them apart", () => {
  assert.equal(tickStep(1000, 9), 200);
  assert.deepEqual(ticksBetween(-1, 10, 5).map((t) => t + 0), [0, 5, 10]);
  assert.deepEqual([tickText(1_500_000, 500_000), tickText(0, 200), tickText(2e9, 1e7)], ["1.5 ms", "0 ns", "2.00 s"]);
  // At 1e18 ns the next number is 128 ns away.
  assert.ok(ticksBetween(1e18, 1e18 + 100, 20).length <= 200);
  assert.ok(ticksBetween(-Infinity, Infinity, 1).length <= 200);
});

test("a view stays within the session and is never too short", () => {
  const whole = 1e6;
  assert.deepEqual(wholeView(whole), [-1e4, 1.01e6]);
  assert.ok(isWhole(wholeView(whole), whole) && !isWhole([10, 1e6], whole));
  for (const view of [[-1e9, 1e9], [5, 5], [NaN, 1], [-Infinity, Infinity], [2e6, 3e6]]) {
    const [from, to] = clamped(view, whole);
    assert.ok(from >= -1e4 && to <= 1.01e6 && to - from >= 100, `${view}: ${from} to ${to}`);
  }
  // A session without a length has a view too.
  const [from, to] = clamped([0, 0], 1);
  assert.ok(to > from);
});

test("zooming keeps the time under the pointer", () => {
  const view = [1000, 3000];
  const share = (t, [from, to]) => (t - from) / (to - from);
  const zoom = zoomed(view, 0.25, 1500, 1e6);
  assert.equal(zoom[1] - zoom[0], 500);
  assert.equal(share(1500, zoom), share(1500, view));
  assert.deepEqual(panned(view, 0.5, 1e6), [2000, 4000]);
  assert.deepEqual(zoomed(wholeView(1e6), 100, 0, 1e6), wholeView(1e6));
});

test("an item is shown where it can be seen", () => {
  const whole = 1e6;
  assert.deepEqual(revealed([0, 1000], [100, 200], 800, whole), [0, 1000], "it is already");
  const [from, to] = revealed([0, 1000], [5000, 5010], 800, whole);
  assert.ok(from < 5000 && to > 5010 && to - from === 1000);
  const near = revealed([0, 1e6], [5000, 5010], 800, whole);
  assert.ok(10 / (near[1] - near[0]) * 800 >= 3, "it is wide enough");
  const [left, right] = fitted([5000, 6000], whole);
  assert.ok(left < 5000 && right > 6000 && right - left < 2000);
});

test("an address is the state that it was made of", () => {
  const state = { view: [10, 2000], area: [100, 300], select: { type: "operation", row: 12 }, search: "a b&c=d#\u00e4", regex: true, name: null, tab: "kernels" };
  assert.deepEqual(stateOf(`#${fragmentOf(state)}`), state);
  const gap = { view: null, area: null, select: { type: "gap", row: 3, of: 1 }, search: "", regex: false, name: 7, tab: null };
  assert.deepEqual(stateOf(fragmentOf(gap)), gap);
  assert.equal(fragmentOf({ view: null, area: null, select: null, search: "", regex: false, name: null, tab: null }), "");
});

test("an address that cannot be read is no state", () => {
  const none = { view: null, area: null, select: null, search: "", regex: false, name: null, tab: null };
  for (const fragment of ["", "#", "#kernels", "view=5..1", "view=a..b", "view=1e9..2e9", "select=script.1", "select=range.-1", "select=range.1.2.3", "tab=<img>", "search=%E0%A4%A", "name=-1", "__proto__=1&constructor=2", "&&&=&", "view=99999999999999999999..999999999999999999999"]) {
    assert.deepEqual(stateOf(fragment), none, fragment);
  }
  assert.ok(stateOf(`search=${"x".repeat(100_000)}`).search.length <= 500);
});
