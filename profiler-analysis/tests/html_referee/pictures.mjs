// Whether everyone can use the pages, and the pages without a script: rooflines and comparisons.
import assert from "node:assert/strict";
import { WINDOWS, axe, everywhere, filled, isNoWider, openTab, opened, picture, press, settled } from "./browser.mjs";

const violations = async (page, where) => {
  if (!await page.evaluate(() => "axe" in window)) await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  assert.ok(passes.length > 10, `${where}: ${passes.length} rules passed`);
  return violations.map(({ id, nodes }) => `${where}: ${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? node.all[0]?.message ?? ""}`).join(" | ")}`);
};

/** axe-core finds nothing: not in any tab, not with an item, an area, a finding or the list of keys. */
export const is_accessible = async () => {
  await everywhere(async (page, size) => {
    const found = [];
    const look = async (where) => found.push(...await violations(page, where));
    await page.locator("details").evaluateAll((all) => all.forEach((one) => one.open = true));
    await look("at first");
    for (const tab of await page.locator("#tabs button:visible").evaluateAll((tabs) => tabs.map(({ id }) => id.slice(4)))) {
      await openTab(page, tab);
      await look(tab);
    }
    await press(page, ".");
    await filled(page);
    await look("an item");
    await press(page, "m");
    await filled(page);
    await look("an area");
    await press(page, "Escape", "Escape");
    const show = page.locator("#findings button", { hasText: "Show" }).first();
    if (await show.count()) {
      await show.click();
      await settled(page);
      await look("a finding");
    }
    if (size.width > 760) {
      await press(page, "t");
      await look("without tables");
    }
    await press(page, "?");
    await look("the keys");
    assert.deepEqual(found, []);
  });
};
export const is_accessible_with_samples = () => is_accessible();

/** Boxes of texts of a plot, in pixels, without the marks beside points and roofs, which may coincide. */
const labelsOf = (page) => page.locator("svg.rl-plot text.rl-name, svg.rl-plot text.rl-tick, svg.rl-plot text.rl-title").evaluateAll((texts) => texts.map((text) => {
  // The corners, as a text may be turned.
  const box = text.getBBox();
  const matrix = text.getScreenCTM();
  const corner = (x, y) => new DOMPoint(x, y).matrixTransform(matrix);
  return { text: text.textContent, corners: [corner(box.x, box.y), corner(box.x + box.width, box.y), corner(box.x + box.width, box.y + box.height), corner(box.x, box.y + box.height)].map(({ x, y }) => [x, y]) };
}));
/** Whether two convex figures overlap by more than half a pixel: no line separates them. */
const overlap = (one, other) => {
  for (const figure of [one, other]) {
    for (let i = 0; i < figure.length; i++) {
      const [[x1, y1], [x2, y2]] = [figure[i], figure[(i + 1) % figure.length]];
      const length = Math.hypot(x2 - x1, y2 - y1) || 1;
      const along = ([x, y]) => ((y2 - y1) * x - (x2 - x1) * y) / length;
      const extent = (points) => [Math.min(...points.map(along)), Math.max(...points.map(along))];
      const [[a, b], [c, d]] = [extent(one), extent(other)];
      if (b - 0.5 < c || d - 0.5 < a) return false;
    }
  }
  return true;
};
const isReadable = async (page, where) => {
  const labels = await labelsOf(page);
  assert.ok(labels.length >= 18, `${where}: ${labels.length} labels`);
  for (const [i, one] of labels.entries()) for (const other of labels.slice(0, i)) assert.ok(!overlap(one.corners, other.corners), `${where}: "${one.text}" lies on "${other.text}"`);
  const texts = labels.map(({ text }) => text);
  const height = await page.locator("svg.rl-plot text.rl-tick").first().evaluate((text) => text.getBoundingClientRect().height);
  assert.ok(height > 9, `${where}: labels of ${height} pixels`);
  for (const title of ["operational intensity (FLOP/B)", "performance (FLOP/s)"]) assert.ok(texts.includes(title), title);
  return texts;
};

/** Many points in a crowd: names in the legend, points above a roof ringed and explained. */
export const a_crowded_roofline_can_be_read = async () => {
  for (const { width, height, scheme } of WINDOWS) {
    const page = await opened({ width, height, scheme });
    const texts = await isReadable(page, `${width} ${scheme}`);
    assert.ok(texts.filter((text) => text.startsWith("layer")).length > 12, String(texts));
    assert.ok(await page.locator(".rl-minor").count() > 20, "lines within powers of ten");
    const above = await page.locator("svg g:has(.rl-above)").count();
    assert.ok(above > 0);
    assert.ok(texts.some((text) => text.startsWith("Ringed points are above their roof: bytes came from a cache")), String(texts));
    assert.ok(texts.includes("above its roof"), "the key has the ring");
    assert.ok((await page.locator("svg g:has(.rl-above) title").first().textContent()).includes("above its roof"));
    await picture(page, `roofline-${width}-${scheme}`, { fullPage: true });
    assert.deepEqual(await violations(page, `${width} ${scheme}`), []);
    await isNoWider(page);
    await page.context().close();
  }
};

/** A profile whose ranges declare their work has its roofline in the page. */
export const has_a_roofline = async () => {
  await everywhere(async (page, size) => {
    await openTab(page, "roofline");
    const texts = await isReadable(page, "in the page");
    for (const name of ["gemm", "axpy", "reduction"]) assert.ok(texts.includes(name), name);
    assert.match(await page.locator("#panel-roofline").innerText(), /Ranges[\s\S]*of roof[\s\S]*gemm[\s\S]*40\.1 %[\s\S]*Roofs[\s\S]*trust: complete/);
    await picture(page, `roofline-in-page-${size.width}-${size.scheme}`);
  });
};

/** A comparison says first whether the program got faster, in colour, and what matters most comes first. */
export const compares = async () => {
  for (const { width, height, scheme } of WINDOWS) {
    const page = await opened({ width, height, scheme });
    const headline = page.locator(".headline");
    assert.match(await headline.innerText(), /^28\.9 % less wall time[\s\S]*6\.815 ms to 4\.843 ms/);
    assert.ok(await headline.evaluate((element) => element.classList.contains("better")));
    const tables = await page.locator("h2").allInnerTexts();
    assert.deepEqual(tables.slice(0, 1), ["Explanation"], String(tables));
    const first = await page.locator("table").first().locator("tbody tr").allInnerTexts();
    assert.match(first[0], /idle for waits and small copies[\s\S]*step[\s\S]*-2\.113 ms/);
    assert.ok(await page.locator("tr.better").count() > 0);
    const changes = first.map((row) => Math.abs(Number(/([+-][\d.]+) (ns|us|ms)/.exec(row)?.[1] ?? 0)) * { ns: 1, us: 1e3, ms: 1e6 }[/([+-][\d.]+) (ns|us|ms)/.exec(row)?.[2] ?? "ns"]);
    assert.ok(changes.every((change, i) => i === 0 || i > 4 || change <= changes[i - 1]), `largest first: ${changes}`);
    const byCause = await page.locator("h2", { hasText: "Wall time by cause" }).locator("xpath=following::table[1]").locator("tbody tr").evaluateAll((rows) => rows.map((row) => [row.firstElementChild.textContent, row.className]));
    assert.deepEqual(byCause.slice(0, 2), [["idle for waits and small copies", "better"], ["work launched, not started", "worse"]]);
    await picture(page, `comparison-${width}-${scheme}`, { fullPage: true });
    assert.deepEqual(await violations(page, `${width} ${scheme}`), []);
    await isNoWider(page);
    await page.context().close();
  }
};
