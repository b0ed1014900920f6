// Each feature of the page, by pointer and by keyboard, in every window and both themes.
import assert from "node:assert/strict";
import { colorAt, columnOf, drag, everywhere, filled, isView, numbers, openTab, opened, panel, picture, placeOf, press, selected, settled, showSpan, view, wrong } from "./browser.mjs";

const isPhone = ({ width }) => width < 760;
const wholeOf = (page) => page.evaluate(() => profile.state.model.whole);
const areaOf = (page) => page.evaluate(() => profile.state.area);
/** A point of the plot, as shares of its width and its height. */
const pointOf = (page, across, down) => page.evaluate(([across, down]) => {
  document.getElementById("scroller").scrollIntoView({ block: "center" });
  const box = document.getElementById("canvas").getBoundingClientRect();
  const { gutter, plot } = profile.plotting;
  return [box.left + gutter + plot * across, box.top + Math.min(box.height, innerHeight - box.top) * down];
}, [across, down]);

export const opens = async () => {
  await everywhere(async (page, size) => {
    assert.deepEqual(await page.evaluate(() => [profile.state.model.R.length, profile.state.model.C.length, profile.state.model.O.length]), [100, 460, 440]);
    // The timeline comes first, and findings are seen at once.
    const stage = await page.locator("#stage").boundingBox();
    assert.ok(stage.y < (isPhone(size) ? 180 : 90), `the timeline begins at ${stage.y}`);
    assert.match(await panel(page), /The steady phase of batch is copy bound[\s\S]*kernels\s+33\.9 %[\s\S]*Findings/);
    const cut = await page.locator(".key li > :nth-child(2)").evaluateAll((names) => names.filter((name) => name.scrollWidth > name.clientWidth).map((name) => name.textContent));
    assert.deepEqual(cut, [], "parts of the time have whole names");
    assert.match(await page.locator("#figures").innerText(), /Complete[\s\S]*GPU busy\s*44\.9 %[\s\S]*Kernels\s*360/);
    assert.match(await page.title(), /NVIDIA H200/);
    for (const [tab, rows] of [["ranges", 5], ["kernels", 11], ["memory", 3], ["api", 6], ["scorecard", 14]]) {
      await openTab(page, tab);
      assert.equal(await page.locator(`#panel-${tab} tbody tr`).count(), rows, tab);
    }
    assert.match(await page.locator("#panel-scorecard tbody").innerText(), /bad\s+GPU busy\s+49.0 %\s+>= 90 %\s+1.274 ms of 2.599 ms/);
    await openTab(page, "recording");
    assert.match(await page.locator("#health").innerText(), /Complete\s+Nothing was lost: 464 records/);
    assert.ok(await page.locator("#tab-lines").isHidden() && await page.locator("#tab-roofline").isHidden() && await page.locator("#tab-sampled").isHidden(), "there is no empty tab");
    await openTab(page, "ranges");
    await picture(page, `page-${size.width}-${size.scheme}`, { fullPage: true });
  });
  const page = await opened();
  // That the policy forbids what the page does not do.
  const [injected, violations] = await page.evaluate(async () => {
    const violations = [];
    addEventListener("securitypolicyviolation", (event) => violations.push(event.effectiveDirective));
    await fetch("http://127.0.0.1:9/").catch(() => {});
    const script = document.createElement("script");
    script.textContent = "window.injected = true";
    document.body.append(script);
    document.body.setAttribute("style", "color: red");
    const image = new Image();
    image.src = "http://127.0.0.1:9/a.png";
    await new Promise((done) => setTimeout(done, 200));
    return [window.injected, violations];
  });
  assert.equal(injected, undefined);
  assert.deepEqual(violations.sort(), ["connect-src", "img-src", "script-src-elem", "style-src-attr"]);
  wrong.length = 0;
};

/** The timeline is as tall as the window, and its height is chosen by pointer and keys. */
export const takes_the_window = async () => {
  await everywhere(async (page, size) => {
    const height = () => page.evaluate(() => document.getElementById("stage").offsetHeight);
    const bottom = () => page.locator("#tabbar").boundingBox().then(({ y, height }) => y + height);
    if (isPhone(size)) {
      assert.ok(await page.evaluate(() => document.documentElement.scrollHeight > innerHeight), "a phone's page scrolls");
      assert.ok(await page.locator("#splitter").isHidden());
      return;
    }
    assert.ok(await page.evaluate(() => document.documentElement.scrollHeight <= innerHeight), "nothing is below the window");
    const first = await height();
    await press(page, "t");
    const tall = await height();
    assert.ok(tall > first && Math.abs(await bottom() - size.height) < 2, `closed tables leave the window to the timeline: ${tall}, ${await bottom()}`);
    assert.ok(await page.locator(".panel:visible").count() === 0);
    await page.getByRole("button", { name: /Tables/ }).click();
    assert.equal(await height(), first);
    const splitter = page.locator("#splitter");
    const box = await splitter.boundingBox();
    await drag(page, [400, box.y + 3], [400, box.y - 97]);
    assert.ok(Math.abs(await height() - (first - 100)) < 3, "the splitter follows the pointer");
    await splitter.focus();
    await page.keyboard.press("ArrowDown");
    assert.ok(await height() > first - 100 + 10, "and the keys");
    await page.keyboard.press("End");
    assert.equal(await height(), tall);
    await page.keyboard.press("Enter");
    assert.ok(await height() < tall);
    await splitter.dblclick();
    assert.equal(await height(), tall);
    // The panel beside the timeline can go too.
    const wide = await page.evaluate(() => profile.plotting.plot);
    await press(page, "i");
    await settled(page);
    assert.ok(await page.evaluate(() => profile.plotting.plot) > wide + 200);
    await page.setViewportSize({ width: size.width, height: 620 });
    await settled(page);
    await settled(page);
    assert.ok(Math.abs(await bottom() - 620) < 2, "and it follows the window");
  });
};

/** Rows that need it get the whole window at once. */
export const many_rows_take_the_window = async () => {
  const page = await opened();
  assert.equal(await page.evaluate(() => profile.state.tab), null);
  const { y, height } = await page.locator("#tabbar").boundingBox();
  assert.ok(Math.abs(y + height - 800) < 2);
  await picture(page, "tall");
};

export const zooms_and_pans = async () => {
  await everywhere(async (page) => {
    const whole = await view(page);
    const [x, y] = await pointOf(page, 0.6, 0.4);
    const under = () => page.evaluate((x) => {
      const { gutter, plot } = profile.plotting;
      const [from, to] = profile.state.view;
      return from + (x - document.getElementById("canvas").getBoundingClientRect().left - gutter) * (to - from) / plot;
    }, x);
    await page.mouse.move(x, y);
    const before = await under();
    await page.mouse.wheel(0, -400);
    await settled(page);
    let now = await view(page);
    assert.ok(now[1] - now[0] < (whole[1] - whole[0]) * 0.7, "the wheel zooms");
    assert.ok(Math.abs(await under() - before) < (now[1] - now[0]) / 200, "what is under the pointer stays there");
    await drag(page, [x, y], [x - 60, y], { shift: true });
    const panned = await view(page);
    assert.ok(panned[0] > now[0] && Math.abs((panned[1] - panned[0]) - (now[1] - now[0])) < 1, "a drag with Shift pans");
    assert.deepEqual([await selected(page), await areaOf(page)], [null, null], "and selects nothing");
    await page.getByRole("button", { name: "Drag: select" }).click();
    const [px, py] = await pointOf(page, 0.6, 0.4);
    await drag(page, [px, py], [px + 40, py]);
    assert.ok((await view(page))[0] < panned[0], "a drag pans, if that is chosen");
    await page.getByRole("button", { name: "Drag: pan" }).click();

    for (const [key, changes] of [
      ["d", ([a], [b]) => b > a], ["a", ([a], [b]) => b < a], ["ArrowRight", ([a], [b]) => b > a], ["ArrowLeft", ([a], [b]) => b < a],
      ["w", ([a, b], [c, d]) => d - c < b - a], ["s", ([a, b], [c, d]) => d - c > b - a], ["+", ([a, b], [c, d]) => d - c < b - a], ["-", ([a, b], [c, d]) => d - c > b - a],
      ["W", ([a, b], [c, d]) => d - c < b - a], ["Home", (_, [a]) => a === 0], ["End", (_, [, b]) => Math.abs(b - whole[1] / 1.01) < 1], ["Shift+ArrowLeft", ([a], [b]) => b < a],
    ]) {
      now = await view(page);
      await press(page, key);
      assert.ok(changes(now, await view(page)), `${key}: ${now} to ${await view(page)}`);
    }
    // A key that is held goes on.
    now = await view(page);
    await page.keyboard.down("w");
    await page.waitForTimeout(300);
    await page.keyboard.up("w");
    const held = await view(page);
    assert.ok(held[1] - held[0] < (now[1] - now[0]) * 0.7, "W zooms while it is held");
    await page.waitForTimeout(60);
    await isView(page, held, "and ends with it");
    await press(page, "0");
    await isView(page, whole, "0 shows all");
    for (let i = 0; i < 60; i++) await page.keyboard.press("+");
    now = await view(page);
    assert.ok(now[1] - now[0] >= 99 && now[1] - now[0] < 200, `the least is 100 ns: ${now[1] - now[0]}`);
    await page.getByRole("button", { name: "All", exact: true }).first().click();
    for (let i = 0; i < 20; i++) await page.keyboard.press("-");
    await isView(page, whole, "the most is the session");
    await page.getByRole("button", { name: "Zoom in" }).click();
    now = await view(page);
    await page.getByRole("button", { name: "Zoom out" }).click();
    assert.ok((await view(page))[1] - (await view(page))[0] > now[1] - now[0]);
    await showSpan(page, [whole[1] * 0.4, whole[1] * 0.5]);
    const overview = await page.locator("#overview").boundingBox();
    await page.mouse.click(overview.x + overview.width * 0.9, overview.y + 10);
    await settled(page);
    assert.ok((await view(page))[0] > whole[1] * 0.6, "a click into the overview goes there");
  });
};

/** Fingers: one pans, two zoom, a tap selects. */
export const follows_fingers = async () => {
  const page = await opened({ width: 390, height: 844, touch: true });
  const session = await page.context().newCDPSession(page);
  const touch = (type, ...points) => session.send("Input.dispatchTouchEvent", { type, touchPoints: points.map(([x, y], id) => ({ x, y, id })) });
  const [x, y] = await pointOf(page, 0.5, 0.4);
  const whole = await view(page);
  await touch("touchStart", [x - 20, y], [x + 20, y]);
  for (let i = 1; i <= 6; i++) await touch("touchMove", [x - 20 - 10 * i, y], [x + 20 + 10 * i, y]);
  await touch("touchEnd");
  await settled(page);
  const zoomed = await view(page);
  assert.ok(zoomed[1] - zoomed[0] < (whole[1] - whole[0]) * 0.5, "two fingers zoom");
  await touch("touchStart", [x, y]);
  for (let i = 1; i <= 6; i++) await touch("touchMove", [x - 12 * i, y]);
  await touch("touchEnd");
  await settled(page);
  assert.ok((await view(page))[0] > zoomed[0] && await areaOf(page) === null, "one finger pans");
  const range = await page.evaluate(() => profile.state.rows.lanes.find(({ type, start }) => type === "range" && start.some((t) => t > profile.state.view[0])));
  assert.ok(range);
  const row = await page.evaluate(() => {
    const lane = profile.state.rows.lanes.find(({ type }) => type === "range");
    return lane.rows[lane.start.findIndex((t) => t > profile.state.view[0])];
  });
  await page.touchscreen.tap(...await placeOf(page, "range", row));
  await settled(page);
  assert.deepEqual(await selected(page), { type: "range", row });
};

/** An area by pointer, by the ruler and by keys, with its sums. */
export const sums_an_area = async () => {
  await everywhere(async (page, size) => {
    const whole = await wholeOf(page);
    const text = async () => {
      await filled(page);
      return panel(page);
    };
    const [from, y] = await pointOf(page, 0.3, 0.3);
    const [to] = await pointOf(page, 0.5, 0.3);
    await drag(page, [from, y], [to, y]);
    const area = await areaOf(page);
    assert.ok(Math.abs((area[1] - area[0]) / (whole * 1.02 * 0.2) - 1) < 0.05, `${area}`);
    // The sums are those of the items.
    const sums = await page.evaluate(([from, to]) => {
      const { O, C, R } = profile.state.model;
      const count = (table, is = () => true) => table.start.reduce((sum, start, i) => sum + (start < to && table.end[i] > from && is(i) ? 1 : 0), 0);
      return { kernels: count(O, (i) => O.kind[i] === 0), calls: count(C), ranges: count(R) };
    }, area);
    const said = await text();
    assert.match(said, new RegExp(`Selected time[\\s\\S]*GPU 0: [\\d.]+ % in use, [\\d.]+ % idle[\\s\\S]*kernels[\\s\\S]*idle for launches[\\s\\S]*Kernels\\s+${sums.kernels}, [\\s\\S]*API calls\\s+${sums.calls}, [\\s\\S]*Ranges\\s+${sums.ranges}\\s[\\s\\S]*Longest kernels[\\s\\S]*Ranges by time of the host`));
    const shares = (await page.locator(".key b").allInnerTexts()).map((text) => Number(text.replace("< 0.1", "0").replace(" %", "")));
    assert.ok(Math.abs(shares.reduce((sum, share) => sum + share, 0) - 100) < 0.5, `the parts add up: ${shares}`);
    // Its ends are moved on the ruler.
    const ruler = await page.locator("#ruler").boundingBox();
    const edge = await page.evaluate((t) => profile.xOf(t), area[1]);
    await drag(page, [ruler.x + edge, ruler.y + 10], [ruler.x + edge + 30, ruler.y + 10]);
    const moved = await areaOf(page);
    assert.ok(Math.abs(moved[0] - area[0]) < 1 && moved[1] > area[1], `${area} to ${moved}`);
    await press(page, "f");
    const shown = await view(page);
    assert.ok(shown[0] < moved[0] && shown[1] > moved[1] && shown[1] - shown[0] < (moved[1] - moved[0]) * 1.5, "F zooms to it");
    await picture(page, `area-${size.width}-${size.scheme}`);
    await press(page, "Escape");
    assert.equal(await areaOf(page), null);
    await press(page, "0");
    await drag(page, [ruler.x + edge - 60, ruler.y + 10], [ruler.x + edge, ruler.y + 10]);
    assert.ok(await areaOf(page) !== null, "the ruler selects");
    await press(page, "Escape");
    // By keys: what is visible, and its end.
    await showSpan(page, [whole * 0.2, whole * 0.3]);
    await press(page, "m");
    assert.deepEqual((await areaOf(page)).map((t) => Math.round(t / whole * 100)), [20, 30]);
    await press(page, "Shift+ArrowLeft");
    assert.ok((await areaOf(page))[1] < whole * 0.3 - 1);
    await page.locator("#selection").getByRole("button", { name: "Clear" }).click();
    assert.equal(await areaOf(page), null);
  });
};

/** What a selected item is, what caused it and what it caused. */
export const selects = async () => {
  await everywhere(async (page, size) => {
    const kernel = await page.evaluate(() => {
      const { O, names } = profile.state.model;
      return [...O.name.keys()].filter((row) => names[O.name[row]] === "sgd_update")[40];
    });
    const near = (row) => page.evaluate((row) => profile.show([profile.state.model.O.start[row] - 40000, profile.state.model.O.end[row] + 20000]), row);
    await near(kernel);
    await settled(page);
    await page.mouse.click(...await placeOf(page, "operation", kernel));
    await settled(page);
    assert.deepEqual(await selected(page), { type: "operation", row: kernel });
    assert.match(await panel(page), /sgd_update[\s\S]*Kernel[\s\S]*GPU time[\s\S]*Grid[\s\S]*Block[\s\S]*Stream[\s\S]*batch\//);
    await picture(page, `kernel-${size.width}-${size.scheme}`);
    await page.locator("#selection button.link", { hasText: "cuLaunchKernel" }).first().click();
    assert.equal((await selected(page)).type, "call");
    await settled(page);
    assert.match(await panel(page), /API call[\s\S]*Host time[\s\S]*launch[\s\S]*success/);
    await page.locator("#selection p", { hasText: /^In / }).locator("button").click();
    assert.equal((await selected(page)).type, "range");
    await settled(page);
    assert.match(await panel(page), /Range\n[\s\S]*GPU operations[\s\S]*Path[\s\S]*Instances/);
    const { row } = await selected(page);
    await press(page, ".");
    assert.notEqual((await selected(page)).row, row, "the next in the row");
    await press(page, ",");
    assert.equal((await selected(page)).row, row);
    await press(page, "f");
    const [from, to] = await page.evaluate((row) => [profile.state.model.R.start[row], profile.state.model.R.end[row]], row);
    const shown = await view(page);
    assert.ok(shown[0] < from && shown[1] > to && (to - from) / (shown[1] - shown[0]) > 0.6);
    await press(page, "Escape");
    assert.equal(await selected(page), null);
    // A gap says why the GPU was idle.
    const gap = await page.evaluate(() => {
      const { gaps } = profile.state.model.devices[0].clock;
      let longest = 0;
      for (let i = 1; i < gaps.length; i++) if (gaps.end[i] - gaps.start[i] > gaps.end[longest] - gaps.start[longest]) longest = i;
      profile.show([gaps.start[longest] - 20000, gaps.end[longest] + 20000]);
      return [gaps.start[longest], gaps.end[longest]];
    });
    await settled(page);
    const place = await page.evaluate(([from, to]) => {
      const lane = profile.state.rows.lanes.find(({ type }) => type === "busy");
      const box = document.getElementById("canvas").getBoundingClientRect();
      return [box.left + profile.xOf((from + to) / 2), box.top + lane.y - document.getElementById("scroller").scrollTop + lane.height / 2];
    }, gap);
    await page.mouse.click(...place);
    await settled(page);
    assert.equal((await selected(page)).type, "gap");
    assert.match(await panel(page), /No work on the GPU[\s\S]*Duration[\s\S]*idle for[\s\S]*Before [\s\S]*The host was/);
    // A heading folds its rows, by click and by key.
    await press(page, "Escape", "0");
    const folded = () => page.evaluate(() => profile.state.rows.groups.map(({ isFolded }) => isFolded));
    const canvas = await page.locator("#canvas").boundingBox();
    await page.mouse.click(canvas.x + 40, canvas.y + 8);
    assert.deepEqual(await folded(), [true, false]);
    await press(page, "o");
    assert.deepEqual(await folded(), [false, false]);
  });
};

/** A selected range shows what it caused, wherever it ran. */
export const highlights_what_a_range_caused = async () => {
  await everywhere(async (page, size) => {
    const batch = await page.evaluate(() => {
      const { R, names } = profile.state.model;
      const rows = [...R.name.keys()].filter((row) => names[R.name[row]] === "batch");
      profile.show([R.start[rows[10]] - 20000, R.end[rows[11]] + 60000]);
      return rows[10];
    });
    await settled(page);
    const kernels = await page.evaluate((batch) => {
      const { O, R } = profile.state.model;
      const isIn = (range) => range >= 0 && R.enter[range] >= R.enter[batch] && R.enter[range] < R.leave[batch];
      const wide = [...O.start.keys()].filter((row) => O.ns[row] > 5000 && O.end[row] < profile.state.view[1] && O.start[row] > profile.state.view[0]);
      return [wide.find((row) => isIn(O.range[row])), wide.find((row) => !isIn(O.range[row]) && O.start[row] > R.end[batch])];
    }, batch);
    const look = async () => Promise.all(kernels.map(async (row) => colorAt(page, await placeOf(page, "operation", row).then(([x, y]) => [x, y + 6]))));
    const [own, other] = await look();
    await page.mouse.click(...await placeOf(page, "range", batch));
    await page.mouse.move(5, 5);
    await settled(page);
    const [ownThen, otherThen] = await look();
    const apart = (a, b) => a.reduce((sum, v, i) => sum + Math.abs(v - b[i]), 0);
    assert.ok(apart(own, ownThen) < 40, `its kernel stays: ${own} and ${ownThen}`);
    assert.ok(apart(other, otherThen) > 60, `the other pales: ${other} and ${otherThen}`);
    await filled(page);
    assert.match(await page.locator("#scope").innerText(), /what one batch caused/);
    await picture(page, `range-${size.width}-${size.scheme}`);
    // All instances of its path, one by one.
    await page.locator("#selection").getByRole("button", { name: "All instances" }).click();
    await settled(page);
    assert.match(await panel(page), /Path of ranges[\s\S]*Instances\s+20/);
    await press(page, "n", "n");
    assert.match(await panel(page), /2 of 20[\s\S]*Range/);
  });
};

/** A text and an expression, by keys and buttons, with the number of what is found. */
export const searches = async () => {
  await everywhere(async (page, size) => {
    const search = page.getByLabel("Search names");
    const matches = () => page.locator("#matches").innerText();
    await press(page, "/");
    assert.ok(await search.evaluate((input) => input === document.activeElement), "/ goes to the search");
    await page.keyboard.type("SGD_");
    await page.waitForFunction(() => profile.state.search?.total === 80);
    assert.equal(await matches(), "80 matches");
    await page.keyboard.press("Enter");
    assert.equal(await matches(), "1 of 80");
    await page.keyboard.press("Enter");
    assert.equal(await matches(), "2 of 80");
    await page.keyboard.press("Shift+Enter");
    assert.equal(await matches(), "1 of 80");
    assert.match(await panel(page), /^sgd_update/);
    await picture(page, `search-${size.width}-${size.scheme}`);
    await page.getByRole("button", { name: "Previous match" }).click();
    assert.equal(await matches(), "80 of 80");
    await page.getByRole("button", { name: "Next match" }).click();
    assert.equal(await matches(), "1 of 80");
    await press(page, "n");
    assert.equal(await matches(), "2 of 80");
    await press(page, "p");
    assert.equal(await matches(), "1 of 80");
    // An expression.
    await search.fill("^(bias|mse)_");
    await page.waitForFunction(() => profile.state.search?.total === 0);
    assert.ok(await page.locator("#next").isDisabled());
    await page.getByRole("button", { name: "Regular expression" }).click();
    const expected = await page.evaluate(() => {
      const { O, names } = profile.state.model;
      return [...O.name].filter((name) => /^(bias|mse)_/i.test(names[name])).length;
    });
    await page.waitForFunction((expected) => profile.state.search?.total === expected, expected);
    assert.ok(expected > 0);
    await search.fill("(");
    await page.waitForFunction(() => profile.state.search?.error !== undefined);
    assert.equal(await search.getAttribute("aria-invalid"), "true");
    assert.match(await matches(), /nterminated/);
    await press(page, "Escape", "Escape", "Escape");
    await page.waitForFunction(() => profile.state.search === null);
    assert.equal(await search.inputValue(), "");
  });
};

/** Names in tables have the colours of the timeline. */
export const colours_kernels_by_name = async () => {
  await everywhere(async (page) => {
    await openTab(page, "kernels");
    const rows = await page.locator("#panel-kernels tbody tr").evaluateAll((rows) => rows.map((row) => [row.querySelector(".link").title, getComputedStyle(row.querySelector(".swatch")).backgroundColor]));
    assert.equal(new Set(rows.map(([, color]) => color)).size, 11, "eleven kernels, eleven colours");
    for (const [name, color] of rows.slice(0, 4)) {
      const row = await page.evaluate((name) => {
        const { O, names } = profile.state.model;
        const row = [...O.name.keys()].filter((row) => names[O.name[row]] === name && O.kind[row] === 0)[5];
        profile.show([O.start[row] - 2000, O.end[row] + 2000]);
        return row;
      }, name);
      await settled(page);
      const [x, y] = await placeOf(page, "operation", row);
      await page.mouse.move(5, 5);
      await settled(page);
      const height = await page.evaluate((row) => profile.state.rows.lanes[profile.state.model.O.lane[row]].height, row);
      assert.equal(`rgb(${(await colorAt(page, [x, y + height / 2 - 3])).join(", ")})`, color, name);
    }
  });
};

/** Tables show what is selected, or else what is visible. */
export const tables_follow = async () => {
  await everywhere(async (page, size) => {
    await openTab(page, "kernels");
    const count = async () => {
      await filled(page);
      return numbers(await columnOf(page, "kernels", 3)).reduce((sum, number) => sum + number, 0);
    };
    const whole = await wholeOf(page);
    assert.equal(await count(), 360);
    await showSpan(page, [whole * 0.3, whole * 0.5]);
    const visible = await count();
    const expected = await page.evaluate(() => {
      const { O } = profile.state.model;
      const [from, to] = profile.state.view;
      return [...O.start.keys()].filter((row) => O.kind[row] === 0 && O.start[row] < to && O.end[row] > from).length;
    });
    assert.equal(visible, expected);
    assert.match(await page.locator("#scope").innerText(), /^Shows the visible /);
    const range = await page.evaluate(() => {
      const { R, names } = profile.state.model;
      return [...R.name.keys()].find((row) => names[R.name[row]] === "forward" && R.start[row] > profile.state.view[0]);
    });
    await page.mouse.click(...await placeOf(page, "range", range));
    assert.equal(await count(), 5, "what it caused");
    assert.match(await page.locator("#scope").innerText(), /what one forward caused/);
    await press(page, "m");
    assert.match(await page.locator("#scope").innerText().then(async (text) => (await filled(page), page.locator("#scope").innerText())), /^Shows the selected /);
    await page.getByRole("checkbox", { name: "Follow" }).click();
    assert.equal(await count(), 360, "the whole session, if that is chosen");
    await page.getByRole("checkbox", { name: "Follow" }).press("Space");
    assert.ok(await count() < 20);
    // A tab that is left before it is filled is busy no longer.
    await page.evaluate(() => ["memory", "api"].forEach((tab) => document.getElementById(`tab-${tab}`).click()));
    await filled(page);
    for (const [tab, place] of [["ranges", 1], ["memory", 3], ["api", 4]]) {
      await openTab(page, tab);
      await filled(page);
      const some = numbers((await columnOf(page, tab, place)).filter((text) => text !== ""));
      assert.ok(some.length > 0 && some.every((number) => number < 30), `${tab}: ${some}`);
    }
    await press(page, "Escape", "Escape");
    // A name in a table leads to the timeline.
    await press(page, "0");
    await openTab(page, "kernels");
    await page.locator("#panel-kernels tbody button", { hasText: "sgd_update" }).click();
    await settled(page);
    assert.match(await panel(page), /^sgd_update[\s\S]*Kernel/);
    assert.equal(await page.evaluate(() => profile.state.search.total), 80);
    await filled(page);
    assert.equal(await page.locator("#panel-kernels tr.chosen").count(), 1, "the row of the selected kernel is marked");
    await picture(page, `tables-${size.width}-${size.scheme}`);
  });
};

export const sorts_and_filters = async () => {
  await everywhere(async (page) => {
    await openTab(page, "kernels");
    const head = (tab, name) => page.locator(`#panel-${tab} th`, { hasText: new RegExp(`^${name}$`) });
    const sortOf = (tab, name) => head(tab, name).getAttribute("aria-sort");
    assert.equal(await sortOf("kernels", "Total"), "descending");
    await head("kernels", "Count").locator("button").click();
    const sorted = (list, sign) => list.every((value, i) => i === 0 || (list[i - 1] - value) * sign >= 0);
    let counts = numbers(await columnOf(page, "kernels", 3));
    assert.ok(counts.length === 11 && sorted(counts, 1) && counts[0] > counts[10], String(counts));
    assert.deepEqual([await sortOf("kernels", "Count"), await sortOf("kernels", "Total")], ["descending", "none"]);
    await page.keyboard.press("Enter"); // the heading keeps the focus
    assert.equal(await sortOf("kernels", "Count"), "ascending");
    counts = numbers(await columnOf(page, "kernels", 3));
    assert.ok(sorted(counts, -1), String(counts));
    await head("kernels", "Kernel").locator("button").click();
    assert.equal((await columnOf(page, "kernels", 0))[0], "bias_add");
    const filter = page.getByLabel("Filter Kernels by name");
    await filter.fill("BIAS");
    assert.deepEqual(await columnOf(page, "kernels", 0), ["bias_add", "bias_relu"]);
    assert.equal(await page.locator("#panel-kernels output").innerText(), "2 of 11");
    await filter.fill("no such kernel");
    assert.match(await page.locator("#panel-kernels tbody").innerText(), /No name has this text/);
    await openTab(page, "api");
    await page.getByLabel("Filter API calls by name").fill("synchronize");
    assert.deepEqual(await columnOf(page, "api", 0), ["cuStreamSynchronize"]);
    // Ranges fold, sort among their siblings, and keep what is around a match.
    await openTab(page, "ranges");
    await page.getByRole("button", { name: "Collapse all" }).click();
    assert.equal(await page.locator("#panel-ranges tbody tr").count(), 1);
    await page.getByRole("button", { name: "Expand batch" }).press("Enter");
    const names = async () => (await columnOf(page, "ranges", 0)).map((name) => name.replace(/^\W/, ""));
    assert.deepEqual(await names(), ["batch", "copy to device", "forward", "backward", "optimizer"]);
    await head("ranges", "GPU time").locator("button").click();
    assert.deepEqual((await names()).filter((_, at) => at === 1 || at === 4), ["backward", "optimizer"]);
    await page.getByLabel("Filter ranges").fill("optim");
    assert.deepEqual(await names(), ["batch", "optimizer"]);
    // Tabs are reached by keys.
    await page.locator("#tab-ranges").focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.evaluate(() => profile.state.tab), "flame");
    await page.keyboard.press("End");
    assert.equal(await page.evaluate(() => [profile.state.tab, document.activeElement.id].join()), "recording,tab-recording");
  });
};

/** The flame graph by pointer and keys. */
export const draws_a_flame_graph = async () => {
  await everywhere(async (page, size) => {
    await openTab(page, "flame");
    const frames = await page.evaluate(() => profile.flame().flame.frames.map(({ name, depth, width, node }) => [profile.state.model.names[name], depth, width, node]));
    const of = (name) => frames.find(([other]) => other === name);
    const gpu = await page.evaluate(() => profile.state.model.data.nodes.map(({ inclusive }) => inclusive.kernel_ns + inclusive.copy_ns + inclusive.memset_ns));
    assert.deepEqual([of("batch")[1], of("backward")[1], of("sgd_update")[1]], [0, 1, 2]);
    for (const [name, , width, node] of frames) if (node >= 0) assert.equal(width, gpu[node], name);
    await page.locator("#flame").scrollIntoViewIfNeeded();
    const box = await page.locator("#flame").boundingBox();
    const placeIn = (name) => page.evaluate((name) => {
      const { frame, left, right } = profile.flame().visible.find(({ frame }) => profile.state.model.names[frame.name] === name);
      return [(left + right) / 2, frame.depth * 20 + 10];
    }, name);
    const click = async (name) => {
      const [across, down] = await placeIn(name);
      await page.mouse.move(box.x + across * box.width, box.y + down);
      assert.match(await page.locator("#frame").innerText(), new RegExp(`^${name}: .* of GPU time`));
      await page.mouse.down();
      await page.mouse.up();
      await filled(page);
    };
    await picture(page, `flame-${size.width}-${size.scheme}`);
    await click("forward");
    assert.match(await panel(page), /forward\s+Path of ranges/);
    const wide = await page.evaluate(() => profile.flame().visible.filter(({ left, right }) => right - left === 1).map(({ frame }) => profile.state.model.names[frame.name]));
    assert.ok(wide.includes("forward"), `a click zooms: ${wide}`);
    await page.locator("#flame-all").click();
    const scroller = page.locator("#flame-scroller");
    await scroller.focus();
    const current = () => page.locator("#frame").innerText().then((text) => text.split(":")[0]);
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowUp");
    assert.equal(await current(), "batch");
    await page.keyboard.press("ArrowDown");
    assert.equal(await current(), "backward", "the widest is the first");
    await page.keyboard.press("ArrowRight");
    assert.equal(await current(), "forward");
    await page.keyboard.press("Enter");
    await filled(page);
    assert.ok(await page.locator("#flame-all").isEnabled());
    await scroller.focus();
    await page.keyboard.press("Escape");
    assert.ok(await page.locator("#flame-all").isDisabled());
    await press(page, "Escape", "Escape");
    // It follows the time.
    await showSpan(page, [0, await wholeOf(page) * 0.3]);
    await filled(page);
    assert.ok(await page.evaluate(() => profile.flame().flame.total) < frames[0][2]);
  });
};

/** A finding's evidence, with nothing left of older filters, place after place. */
export const shows_findings = async () => {
  await everywhere(async (page, size) => {
    await page.getByLabel("Search names").fill("nothing is called so");
    await page.waitForFunction(() => profile.state.search?.total === 0);
    await showSpan(page, [0, 1000]);
    await press(page, "m");
    await page.locator("#selection").getByRole("button", { name: "Clear" }).click();
    const finding = page.locator("#findings li", { hasText: "asynchronous copies of pageable memory" });
    await finding.getByRole("button", { name: "Show" }).click();
    await settled(page);
    assert.equal(await page.getByLabel("Search names").inputValue(), "");
    assert.deepEqual(await page.evaluate(() => [profile.state.search, profile.state.area]), [null, null]);
    assert.match(await panel(page), /1 of 34[\s\S]*asynchronous copies of pageable memory[\s\S]*Copy host to device/);
    const shownFirst = await selected(page);
    assert.equal(shownFirst.type, "operation");
    await picture(page, `finding-${size.width}-${size.scheme}`);
    const isShown = () => page.evaluate(() => {
      const { view, trail } = profile.state;
      const { span } = trail.items[trail.at];
      return view[0] <= span[0] && span[1] <= view[1] && (span[1] - span[0]) / (view[1] - view[0]) > 0.2;
    });
    assert.ok(await isShown());
    await press(page, "n");
    assert.match(await page.locator("#at").innerText(), /^2 of 34$/);
    assert.ok((await selected(page)).row !== shownFirst.row && await isShown());
    await page.getByRole("button", { name: "Next place" }).click();
    await page.getByRole("button", { name: "Previous place" }).click();
    await press(page, "p", "p");
    assert.match(await page.locator("#at").innerText(), /^34 of 34$/);
    await page.getByRole("button", { name: "\u2190 Back" }).click();
    await settled(page);
    assert.match(await panel(page), /Findings/);
    // A gap is shown as one, and a step as its range.
    await page.locator("#findings li", { hasText: "was busy for" }).getByRole("button", { name: "Show" }).click();
    await settled(page);
    assert.equal((await selected(page)).type, "gap");
    await press(page, "Escape", "Escape");
    await page.locator("#findings li", { hasText: "steps take longer" }).getByRole("button", { name: "Show" }).click();
    await settled(page);
    assert.deepEqual(await selected(page).then(({ type }) => type), "range");
    await press(page, "Escape", "Escape");
    // So are the parts of the time.
    await page.locator(".key").getByRole("button", { name: "idle for the host" }).press("Enter");
    await settled(page);
    assert.match(await panel(page), /1 of \d+[\s\S]*idle for the host[\s\S]*No work on the GPU/);
  });
};

/** Keys are listed, and the list closes. */
export const explains_its_keys = async () => {
  await everywhere(async (page, size) => {
    await press(page, "?");
    const help = page.locator("#help");
    assert.ok(await help.isVisible());
    const text = await help.innerText();
    for (const words of ["zoom in and out", "search", "next and previous match", "sums of what is selected", "fold the group", "GPU: idle for launches", "Launch"]) assert.ok(text.includes(words), words);
    const before = await view(page);
    await page.keyboard.press("w");
    await isView(page, before, "keys of the timeline rest meanwhile");
    await picture(page, `help-${size.width}-${size.scheme}`);
    await page.keyboard.press("Escape");
    assert.ok(await help.isHidden());
    await page.getByRole("button", { name: "Keys and colours" }).click();
    await help.getByRole("button", { name: "Close" }).click();
    assert.ok(await help.isHidden());
  });
};

/** What is seen is in the address, and an address shows it again. */
export const keeps_the_view_in_its_address = async () => {
  await everywhere(async (page, size) => {
    const whole = await wholeOf(page);
    await page.getByLabel("Search names").fill("bias");
    await page.waitForFunction(() => profile.state.search?.total > 0);
    await showSpan(page, [whole * 0.25, whole * 0.5]);
    await openTab(page, "api");
    const range = await page.evaluate(() => [...profile.state.model.R.start.keys()].find((row) => profile.state.model.R.start[row] > profile.state.view[0]));
    await page.mouse.click(...await placeOf(page, "range", range));
    await press(page, "m");
    await page.waitForFunction(() => location.hash.includes("area=") && location.hash.includes("select=range.") && location.hash.includes("search=bias") && location.hash.includes("tab=api"));
    const state = (of) => of.evaluate(() => {
      const { area, selected, tab, query, search } = profile.state;
      return [profile.state.view.map(Math.round), area.map(Math.round), selected, tab, query.text, search.total];
    });
    const then = await state(page);
    const again = await opened({ ...size, hash: new URL(page.url()).hash });
    assert.deepEqual(await state(again), then);
    // A new address shows another view, without a reload.
    await again.evaluate(() => location.hash = "#view=1000..2000&search=gemm&regex=1");
    await again.waitForFunction(() => profile.state.search?.total > 0 && profile.state.area === null && profile.state.selected === null);
    await isView(again, [1000, 2000], "the address's view");
    for (const hash of ["#view=-5..99999999999999&select=range.999999999&area=9..1&tab=evil&name=99999999", "#select=gap.7.1&tab=sampled", "#%", "#view=..&search=%00%1b[31m<img src=x onerror=alert(1)>"]) {
      const odd = await opened({ ...size, hash });
      assert.ok(await odd.locator("#failure").isHidden(), hash);
      await odd.context().close();
    }
    await again.context().close();
  });
};

export const shows_lines_of_a_range = async () => {
  await everywhere(async (page, size) => {
    await openTab(page, "lines");
    const rows = () => page.locator("#panel-lines tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.innerText.trim())));
    const all = await rows();
    assert.deepEqual(all[0].slice(0, 2), ["planted.cu:15", "barrier"]);
    assert.match(all[0][4], /^waits at a barrier \d/);
    const [first, second] = numbers([all[0][3], all[1][3]]);
    assert.ok(first > second, "most samples first");
    await picture(page, `lines-${size.width}-${size.scheme}`);
    // The samples of a range are those of its launches.
    await openTab(page, "ranges");
    await page.locator("#panel-ranges tbody button.link", { hasText: "gather" }).first().click();
    await openTab(page, "lines");
    assert.deepEqual([...new Set((await rows()).map((row) => row[1]))], ["gather"]);
    assert.match(await page.locator("#scope").innerText(), /gather/);
    await press(page, "Escape");
    await openTab(page, "flame");
    const said = () => page.locator("#frame").innerText();
    assert.match(await said(), /lines as wide as their share of the kernel's instruction samples/);
    const place = await page.evaluate(() => {
      const { frames } = profile.flame().flame;
      const named = (name, isLine) => frames.findIndex((frame) => profile.state.model.names[frame.name] === name && (frame.kernel !== undefined) === isLine);
      const line = frames[named("planted.cu:4", true)];
      const { frame, left, right } = profile.flame().visible.find(({ frame }) => frame === line);
      return { share: line.samples / line.all, width: line.width / frames[line.parent].width, at: [(left + right) / 2, frame.depth * 20 + 10] };
    });
    assert.ok(place.share > 0.99 && Math.abs(place.width - place.share) < 1e-9, JSON.stringify(place));
    await page.locator("#flame").scrollIntoViewIfNeeded();
    const box = await page.locator("#flame").boundingBox();
    await page.mouse.move(box.x + place.at[0] * box.width, box.y + place.at[1]);
    const text = await said();
    assert.match(text, /^planted\.cu:4: 99\.\d % of [\d,]+ samples of gather: waits for global or local memory 99\.\d %/);
    await picture(page, `flame-lines-${size.width}-${size.scheme}`);
    const scroller = page.locator("#flame-scroller");
    await scroller.focus();
    await page.keyboard.press("ArrowUp");
    assert.match(await said(), /^gather: .* 40 kernels/);
    await page.keyboard.press("ArrowDown");
    assert.equal(await said(), text);
    await page.keyboard.press("Enter");
    await settled(page);
    assert.equal(await page.getByLabel("Search names").inputValue(), "gather", "a line shows its kernel");
  });
};

export const themes = async () => {
  const page = await opened({ scheme: "dark" });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const corner = () => page.evaluate(() => [...document.getElementById("canvas").getContext("2d").getImageData(4, 40, 1, 1).data]);
  assert.equal(await ground(), "rgb(16, 19, 22)");
  assert.ok((await corner())[0] < 60);
  await page.locator("#theme").click();
  await settled(page);
  assert.equal(await ground(), "rgb(244, 245, 247)");
  assert.ok((await corner())[0] > 200);
  // A browser under load may open the page anew before its storage has been written.
  for (let tries = 0; tries < 20; tries++) {
    await page.reload();
    await page.waitForFunction(() => window.profile !== undefined);
    if ((await ground()) === "rgb(244, 245, 247)") break;
    await page.waitForTimeout(100);
  }
  assert.equal(await ground(), "rgb(244, 245, 247)", "the choice is kept");
  // Print is light, and so is the timeline in it; all tables are in it.
  await page.locator("#theme").click();
  const pages = (await page.pdf({ landscape: true })).toString("latin1").match(/\/Type\s*\/Page\b/g);
  assert.ok(pages !== null && pages.length >= 1 && pages.length < 9, `${pages?.length} pages`);
  await settled(page);
  assert.equal(await ground(), "rgb(16, 19, 22)");
};
