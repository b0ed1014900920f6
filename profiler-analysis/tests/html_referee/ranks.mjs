// The page of several ranks: a collective's kernel names the other ranks, and lines lead to their kernels.
import assert from "node:assert/strict";
import { everywhere, panel, picture, placeOf, selected, settled } from "./browser.mjs";

export const links_ranks = async () => {
  await everywhere(async (page, size) => {
    const rows = await page.evaluate(() => profile.state.model.data.collectives.kernels);
    assert.equal(rows.length, 100);
    assert.ok(rows.every(({ length }) => length === 2));
    // The first rank waits for the second, which runs a longer kernel.
    const [first, second] = await page.evaluate((rows) => {
      const { start } = profile.state.model.O;
      const late = rows.find(([a, b]) => Math.abs(start[a] - start[b]) > 1e6);
      return late.sort((a, b) => start[a] - start[b]);
    }, rows);
    await page.evaluate(([a, b]) => profile.show([profile.state.model.O.start[a] - 1e5, profile.state.model.O.end[b] + 1e5]), [first, second]);
    await settled(page);
    await page.mouse.click(...await placeOf(page, "operation", first));
    await settled(page);
    assert.deepEqual(await selected(page), { type: "operation", row: first });
    assert.match(await panel(page), /Collective[\s\S]*AllReduce of 512\.0+ KiB[\s\S]*Ranks\s+2[\s\S]*Arrived\s+waited [0-9.]+ ms[\s\S]*Skew[\s\S]*Transfer[\s\S]*rank 1, train\.py, process [0-9]+ arrived [0-9.]+ ms after it/);
    assert.equal(await page.evaluate(() => profile.drawing.peers), 1, "a line leads to the other rank");
    await picture(page, `ranks-${size.width}-${size.scheme}`);
    await page.locator("#selection p", { hasText: "arrived" }).locator("button").click();
    await settled(page);
    assert.deepEqual(await selected(page), { type: "operation", row: second });
    assert.match(await panel(page), /Arrived\s+last[\s\S]*rank 0, train\.py, process [0-9]+ arrived [0-9.]+ ms before it/);
    await page.keyboard.press("Escape");
    await settled(page);
    assert.equal(await page.evaluate(() => profile.drawing.peers), 0);
  });
};
