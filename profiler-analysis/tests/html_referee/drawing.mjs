// What is drawn is what was recorded, whatever names and numbers it has, and is drawn in time.
import assert from "node:assert/strict";
import { columnOf, everywhere, filled, isNoWider, isView, openTab, opened, panel, picture, placeOf, press, scriptWhile, selected, settled, showSpan, view, wrong } from "./browser.mjs";

/** Everything has one place in the timeline; nothing lies on another; what is nested lies below. */
const isLaidOut = async (page) => {
  const placed = await page.evaluate(() => {
    const counts = {};
    const { lanes } = profile.state.rows;
    const { R } = profile.state.model;
    for (const { type, length, start, end } of lanes) {
      counts[type] = (counts[type] ?? 0) + length;
      for (let i = 1; i < length; i++) if (start[i] < end[i - 1]) return `two of ${type} overlap at ${start[i]} ns`;
    }
    for (let row = 0; row < R.length; row++) {
      const parent = R.parent[row];
      if (parent >= 0 && R.thread[parent] === R.thread[row] && lanes[R.lane[parent]].y >= lanes[R.lane[row]].y) return `range ${row} is not below the one around it`;
    }
    return counts;
  });
  const [ranges, calls, operations] = await page.evaluate(() => {
    const { R, C, O } = profile.state.model;
    return [R.length, C.length, [...O.ns].filter((ns) => ns >= 0).length];
  });
  assert.deepEqual([placed.range ?? 0, placed.call ?? 0, placed.operation ?? 0], [ranges, calls, operations], JSON.stringify(placed));
};

/** Every pixel of the rows of ranges and calls: inked where something is, bare where nothing is. */
export const draws_what_there_is = async () => {
  await everywhere(async (page) => {
    await isLaidOut(page);
    const [from, to] = await view(page);
    for (const share of [1, 0.2, 0.02]) {
      const middle = (to - from) * 0.4;
      await showSpan(page, [middle - (to - from) * share / 2, middle + (to - from) * share / 2]);
      const odd = await page.evaluate(() => {
        const canvas = document.getElementById("canvas");
        const context = canvas.getContext("2d");
        const { gutter, plot } = profile.plotting;
        const [from, to] = profile.state.view;
        const [ground] = [context.getImageData(gutter + 1, canvas.height - 2, 1, 1).data];
        const found = [];
        for (const lane of profile.state.rows.lanes.filter(({ type }) => type === "range" || type === "call")) {
          const y = Math.round(lane.y - document.getElementById("scroller").scrollTop + lane.height - 4);
          const pixels = context.getImageData(0, y, canvas.width, 1).data;
          const covered = new Float32Array(Math.floor(plot));
          for (let i = 0; i < lane.length; i++) {
            const [left, right] = [lane.start[i], lane.end[i]].map((t) => (t - from) * plot / (to - from));
            for (let x = Math.max(0, Math.floor(left)); x < Math.min(covered.length, right); x++) covered[x] += Math.min(right, x + 1) - Math.max(left, x);
          }
          const hasInk = (x) => {
            const [r, g, b] = pixels.slice(4 * (gutter + x), 4 * (gutter + x) + 3);
            return Math.max(r, g, b) - Math.min(r, g, b) > 16;
          };
          let [inked, bare, seen] = [0, 0, 0];
          for (let x = 1; x < covered.length - 1; x++) {
            seen += hasInk(x);
            // Bars that touch have a sliver between them.
            if (covered[x] > 0.6 && !hasInk(x - 1) && !hasInk(x) && !hasInk(x + 1)) bare++;
            if (covered[x - 1] + covered[x] + covered[x + 1] === 0 && hasInk(x)) inked++;
          }
          if (bare + inked > 0 || seen === 0) found.push(`${lane.type}: ${bare} bare, ${inked} inked, ${seen} seen on ${ground}`);
        }
        return found;
      });
      assert.deepEqual(odd, [], `at ${share} of the session`);
    }
  });
};

/** The sums that the page makes of everything are those that came with it. */
export const sums_agree_with_the_profile = async () => {
  const page = await opened();
  const whole = await page.evaluate(() => profile.state.model.whole);
  const tables = async () => {
    const found = {};
    for (const tab of ["ranges", "kernels", "memory", "api"]) {
      await openTab(page, tab);
      found[tab] = await page.locator(`#panel-${tab} tbody tr`).allInnerTexts();
    }
    return found;
  };
  const given = await tables();
  await page.locator("#ruler").scrollIntoViewIfNeeded();
  const box = await page.locator("#ruler").boundingBox();
  const [left, right] = await page.evaluate(() => [profile.xOf(0), profile.xOf(profile.state.model.whole)]);
  await page.mouse.move(box.x + left - 3, box.y + 10);
  await page.mouse.down();
  await page.mouse.move(box.x + right - 100, box.y + 10);
  await page.mouse.move(box.x + right + 5, box.y + 10);
  await page.mouse.up();
  assert.deepEqual(await page.evaluate(() => profile.state.area), [0, whole]);
  await filled(page);
  assert.deepEqual(await tables(), given);
  const parts = await page.evaluate(() => document.querySelector("#selection h3").textContent);
  assert.match(parts, /^GPU 0: [\d.]+ % in use, [\d.]+ % idle$/);
};

export const shows_hostile_names = async () => {
  await everywhere(async (page, size) => {
    await openTab(page, "ranges");
    const cells = await page.locator("#panel-ranges tbody td:first-child button.link").allTextContents();
    assert.ok(cells.includes("</script><script>alert(1)</script>"), String(cells.map((cell) => cell.slice(0, 60))));
    assert.ok(cells.includes("<img src=x onerror=alert(1)>"));
    assert.ok(cells.some((cell) => cell.includes("\ufffdtxt.exe")), "what turns text is shown");
    assert.ok(cells.some((cell) => cell.startsWith("nul \ufffd and \ufffd[31m")));
    assert.ok(cells.every((cell) => cell.length <= 400) && cells.includes("(empty name)"));
    assert.equal(await page.locator("script, img, iframe").count(), 1, "the page's own script alone");
    await page.locator("#panel-ranges tbody button.link", { hasText: "alert(1)</script>" }).first().click();
    await settled(page);
    assert.match(await panel(page), /<\/script><script>alert\(1\)<\/script>/);
    await isLaidOut(page);
    await press(page, "Escape", "0");
    for (const [type, says] of [["range", "Host time"], ["operation", "GPU time"], ["process", "Activations"], ["mark", "Thread"], ["call", "Result"]]) {
      const rows = await page.evaluate((type) => profile.state.rows.lanes.filter((lane) => lane.type === type).flatMap((lane) => [...lane.rows]), type);
      assert.equal(rows.length, 8, type);
      for (const row of rows) {
        await page.evaluate(([type, row]) => {
          const table = profile.state.model.tables[type];
          profile.show([table.start[row] - 2000, table.end[row] + 2000]);
        }, [type, row]);
        await settled(page);
        await page.mouse.click(...await placeOf(page, type, row));
        await settled(page);
        assert.deepEqual([(await selected(page))?.type, (await selected(page))?.row], [type, row]);
        assert.ok((await panel(page)).includes(says), type);
      }
    }
    for (const text of ["<script>", "__proto__", "\u202e", "long long"]) {
      await page.getByLabel("Search names").fill(text);
      await page.waitForTimeout(120);
      await settled(page);
    }
    // An expression that would take for ever is given up, and the page goes on.
    await page.getByRole("button", { name: "Regular expression" }).click();
    await page.getByLabel("Search names").fill("(.*)*(.*)*(.*)*(.*)*(.*)*(.*)*\u0007");
    await page.waitForFunction(() => profile.state.search?.error !== undefined, null, { timeout: 8000 });
    assert.equal(await page.locator("#matches").innerText(), "takes too long");
    await openTab(page, "flame");
    await picture(page, `hostile-${size.width}-${size.scheme}`, { fullPage: true });
  });
};

/** Widths of windows in which the tables are checked. */
const TABLE_WIDTHS = [1000, 1280, 1500, 2400];
/**
 * The names in the open table with what of each is visible: boxes of its first and last characters, and whether they lie within all
 * elements that clip them and in the window. Names are links, domains, and the texts of other first cells.
 */
const namesOf = (page, tab) => page.locator(`#panel-${tab} tbody tr`).evaluateAll((rows) => {
  const END = 3;
  const texts = (element) => {
    const found = [];
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) for (let at = 0; at < walker.currentNode.length; at++) found.push([walker.currentNode, at]);
    return found.filter(([node, at]) => node.data[at].trim() !== "");
  };
  const boxOf = (characters) => {
    const boxes = characters.map(([node, at]) => {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      return range.getBoundingClientRect();
    });
    const [left, right] = [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
    return { left, right, top: boxes[0].top, bottom: boxes[0].bottom, isOneLine: boxes.every((box) => Math.abs(box.top - boxes[0].top) < 2) };
  };
  const isWithin = (box, outer) => box.left >= outer.left - 0.5 && box.right <= outer.right + 0.5;
  const isVisible = (node, box) => {
    if (!isWithin(box, { left: 0, right: innerWidth })) return false;
    for (let element = node.parentElement; element !== document.body; element = element.parentElement) {
      if (getComputedStyle(element).overflowX !== "visible" && !isWithin(box, element.getBoundingClientRect())) return false;
    }
    return true;
  };
  return rows.flatMap((row) => {
    row.scrollIntoView({ block: "nearest" });
    const first = row.querySelector("td");
    const links = [...row.querySelectorAll("button.link, .domain")];
    const names = links.length > 0 ? links : [first.textContent.trim() === "" || first.querySelector(".badge") ? row.children[1] : first];
    return names.map((element) => {
      const characters = texts(element);
      const ends = [characters.slice(0, END), characters.slice(-END)].map((end) => ({ ...boxOf(end), isVisible: isVisible(end[0][0], boxOf(end)) }));
      return { name: element.textContent, ends, width: element.getBoundingClientRect().width };
    });
  });
});
/** For each box, whether anything is painted in it. */
const areInked = async (page, boxes) => {
  const image = (await page.screenshot()).toString("base64");
  return page.evaluate(async ([image, boxes]) => {
    const drawn = new Image();
    drawn.src = `data:image/png;base64,${image}`;
    await drawn.decode();
    const canvas = new OffscreenCanvas(drawn.width, drawn.height);
    const context = canvas.getContext("2d");
    context.drawImage(drawn, 0, 0);
    return boxes.map(({ left, top, right, bottom }) => {
      const { data } = context.getImageData(Math.floor(left), Math.floor(top), Math.max(1, Math.ceil(right - left)), Math.max(1, Math.ceil(bottom - top)));
      let [least, most] = [255, 0];
      for (let at = 0; at < data.length; at += 4) [least, most] = [Math.min(least, data[at]), Math.max(most, data[at])];
      return most - least > 60;
    });
  }, [image, boxes]);
};

/** A name that its column has no room for loses its middle: its beginning and its end are painted, in every table and width. */
export const shows_names_in_every_table = async () => {
  let shortened = 0;
  for (const width of TABLE_WIDTHS) {
    const page = await opened({ width, height: 1500 });
    const shown = {};
    for (const tab of ["ranges", "kernels", "memory", "api", "sampled", "roofline", "scorecard", "recording"]) {
      await openTab(page, tab);
      // All the height to the table, so that one picture has every row.
      await page.locator("#splitter").focus();
      await page.keyboard.press("Home");
      await settled(page);
      const names = await namesOf(page, tab);
      const inked = await areInked(page, names.flatMap(({ ends }) => ends));
      for (const [i, { name, ends, width: wide }] of names.entries()) {
        const where = `${width} px, ${tab}: "${name}"`;
        assert.ok(wide > 0, `${where} has a width`);
        for (const [end, text] of [[0, "beginning"], [1, "end"]]) {
          assert.ok(ends[end].isVisible && inked[2 * i + end], `${where}: its ${text} is not visible: ${JSON.stringify(ends[end])}`);
        }
      }
      shown[tab] = names.map(({ name }) => name);
      shortened += await page.locator(`#panel-${tab} tbody .head`).evaluateAll((heads) => heads.filter((head) => head.scrollWidth > head.clientWidth).length);
      await picture(page, `names-${tab}-${width}`);
    }
    for (const [tab, name] of [["ranges", "cub::DeviceSelect::UniqueByKey"], ["ranges", "CCCL"], ["sampled", "(hardware counters)"], ["roofline", "first_projection"], ["kernels", "vectorized_elementwise_kernel<"], ["recording", "launcher_of_programs.py"]]) {
      assert.ok(shown[tab].some((text) => text.includes(name)), `${name} is in ${tab}: ${shown[tab]}`);
    }
    assert.ok(shown.ranges.length > 30 && shown.memory.length > 0 && shown.api.length > 1 && shown.scorecard.length > 5);
    await isNoWider(page);
    await page.context().close();
  }
  assert.ok(shortened > 10, `names were shortened: ${shortened}`);
};

export const says_what_was_lost = async () => {
  await everywhere(async (page, size) => {
    assert.match(await page.locator("#figures").innerText(), /Incomplete/);
    assert.match(await page.locator("#selection").innerText(), /7 records dropped by CUPTI/);
    await openTab(page, "recording");
    assert.match(await page.locator("#panel-recording").innerText(), /Incomplete[\s\S]*7 records dropped by CUPTI/);
    await picture(page, `losses-${size.width}-${size.scheme}`, { fullPage: true });
  });
};

export const says_what_has_no_time = async () => {
  const page = await opened();
  const call = await page.evaluate(() => profile.state.rows.lanes.find((lane) => lane.type === "call").rows[1]);
  await page.mouse.click(...await placeOf(page, "call", call));
  await settled(page);
  const before = await view(page);
  await page.locator("#selection button", { hasText: "unseen" }).click();
  await settled(page);
  const said = await panel(page);
  assert.match(said, /unseen[\s\S]*Start\s+no timestamps/);
  assert.doesNotMatch(said, /GPU time|After its call| ms/);
  await isView(page, before, "there is nowhere to go");
  assert.ok(await page.locator("#zoom-selection").isDisabled());
  await page.locator("#selection button", { hasText: "cuLaunchKernel" }).click();
  await settled(page);
  assert.match(await panel(page), /Start\s+[0-9.]+ ms/);
};

/** Operations that end before they start, or lie a second before the session: everything can be opened, selected and summed. */
export const shows_clocks_that_go_back = async () => {
  await everywhere(async (page) => {
    for (const tab of await page.locator("#tabs button:visible").evaluateAll((tabs) => tabs.map(({ id }) => id.slice(4)))) {
      await openTab(page, tab);
      assert.doesNotMatch(await page.locator(`#panel-${tab}`).innerText(), /NaN|undefined|Infinity/, tab);
    }
    await press(page, ".", ".", "f", "m", "Escape", "Escape", "0", ..."wasd");
    await isLaidOut(page);
    const [from, to] = await view(page);
    assert.ok(from < to && Number.isFinite(to - from), `${from} to ${to}`);
    assert.doesNotMatch(await page.locator("body").innerText(), /NaN|undefined|Infinity/);
  });
};

export const says_what_failed = async () => {
  const page = await opened();
  await page.evaluate(() => setTimeout(() => { throw new Error("planted"); }, 0));
  await page.locator("#failure").waitFor({ state: "visible" });
  assert.match(await page.locator("#failure").innerText(), /could not be drawn: Error: planted/);
  assert.ok(wrong.length > 0 && wrong.every((text) => text.includes("planted")), wrong);
  wrong.length = 0;
};

export const shows_an_empty_session = async () => {
  await everywhere(async (page, size) => {
    assert.match(await page.locator("#plot").innerText(), /No ranges, no calls and no GPU operations were recorded/);
    for (const [tab, text] of [["ranges", "No range was entered"], ["kernels", "No kernel ran"], ["memory", "No copy and no memset ran"], ["api", "No API call was recorded"]]) {
      await openTab(page, tab);
      assert.ok((await page.locator(`#panel-${tab}`).innerText()).includes(text), text);
    }
    await openTab(page, "flame");
    // Every key does nothing, and nothing goes wrong.
    await press(page, ..."wasd0fmnp.,oti/", "Escape", "Home", "End", "ArrowUp", "+", "-");
    await picture(page, `empty-${size.width}-${size.scheme}`, { fullPage: true });
  });
};

/** Tracks of samplers with their units; energy in joules. */
export const draws_what_was_sampled = async () => {
  await everywhere(async (page, size) => {
    const found = await page.evaluate(() => profile.state.rows.lanes.filter(({ type }) => type === "track").map(({ track, length, index }) => ({ label: track.label, device: track.device, length, index })));
    assert.deepEqual(found.map(({ label, device, length }) => [label, device, length]), [
      ["SM active (hardware counters)", 0, 99], ["DRAM read", 0, 100], ["SM clock", 0, 2], ["Clock event reasons", 0, 2], ["Power", 0, 10],
      ["SM active (NVML)", 0, 10], ["energy", 0, 10],
      ["SM active", 1, 99], ["DRAM read", 1, 100],
    ]);
    const figures = await page.locator("#figures").innerText();
    assert.match(figures, /SM active \(hardware counters\), GPU 0\s+42\.9 %/);
    assert.match(figures, /energy, GPU 0\s+45\.00 mJ/, "energy is in joules");
    await openTab(page, "sampled");
    const rows = await page.locator("#panel-sampled tbody tr").allInnerTexts();
    assert.equal(rows.length, 9);
    assert.match(rows[1], /DRAM read\s+0\s+49.50 GB\/s\s+0 B\/s\s+99.00 GB\/s\s+4\.7\d+ MiB\s+100/);
    assert.match(rows[2], /SM clock\s+0\s+1.512 GHz\s+1.200 GHz\s+1.980 GHz\s+10/);
    assert.match(rows.find((row) => row.startsWith("energy")), /energy\s+0\s+450\.0 W\s+4\.500 mJ\s+45\.00 mJ\s+45\.00 mJ\s+10/);
    assert.match(await page.locator("#panel-sampled ul").innerText(), /GPU 0, hardware counters: 1 gaps, 7.000 us in total[\s\S]*GPU 2, hardware counters: counters are for administrators/);
    await picture(page, `sampled-${size.width}-${size.scheme}`);
    await sampledHeights(page, found.find(({ label, device }) => label === "SM active" && device === 1).index);
    await sampledValues(page, found);
  });
};
const onLane = (page, index, by) => page.evaluate(([index, by]) => {
  const lane = profile.state.rows.lanes[index];
  const scroller = document.getElementById("scroller");
  scroller.scrollTop = lane.y - 60;
  scroller.scrollIntoView({ block: "center" });
  profile.show([lane.start[0], lane.start[0] + 107000]);
  const box = document.getElementById("canvas").getBoundingClientRect();
  return [box.left + profile.xOf(lane.start[0] + by), box.top + lane.y - scroller.scrollTop + lane.height / 2];
}, [index, by]);
/** The height of every pixel of a track, from the values that the test knows. */
const sampledHeights = async (page, index) => {
  const start = await page.evaluate((index) => {
    const lane = profile.state.rows.lanes[index];
    document.getElementById("scroller").scrollTop = lane.y - 60;
    profile.show([lane.start[0], lane.start[0] + 107000]);
    return lane.start[0];
  }, index);
  await settled(page);
  await settled(page);
  const { seen, height } = await page.evaluate((index) => {
    const canvas = document.getElementById("canvas");
    const lane = profile.state.rows.lanes[index];
    const { gutter, plot } = profile.plotting;
    const [from, to] = profile.state.view;
    const top = Math.round(lane.y - document.getElementById("scroller").scrollTop + 1);
    const image = canvas.getContext("2d").getImageData(0, top, canvas.width, lane.height - 2);
    const seen = [];
    for (let x = 2; x < Math.floor(plot); x++) {
      let inked = 0;
      for (let y = 0; y < image.height; y++) {
        const at = 4 * (y * canvas.width + gutter + x);
        const [r, g, b] = image.data.slice(at, at + 3);
        inked += Math.max(r, g, b) - Math.min(r, g, b) > 40;
      }
      seen.push([from + (x + 0.5) * (to - from) / plot, inked]);
    }
    return { seen, height: lane.height };
  }, index);
  const expected = (t) => {
    if (t >= 60000 && t < 67000) return null;
    const i = Math.floor((t >= 67000 ? t - 7000 : t) / 1000);
    return i === 10 || i >= 100 ? null : (i % 8) * 12.5;
  };
  let checked = 0;
  for (const [t, inked] of seen) {
    // Where one value meets the next a pixel has both.
    const near = [-500, -250, 0, 250, 500].map((by) => expected(t - start + by));
    if (near.some((value) => value !== near[2])) continue;
    checked++;
    const high = near[2] === null ? 0 : (height - 6) * near[2] / 100;
    assert.ok(Math.abs(inked - high) <= (near[2] === null ? 0 : 2.5), `at ${t} ns ${inked} px of ${high}`);
  }
  assert.ok(checked > seen.length / 40, `${checked} pixels`);
};
/** What is under the pointer, and what the panel says of it. */
const sampledValues = async (page, found) => {
  const tip = () => page.locator("#tip").innerText();
  const index = found.find(({ label, device }) => label === "SM active" && device === 1).index;
  const at = await onLane(page, index, 13500);
  await page.mouse.move(...at);
  await settled(page);
  assert.equal(await tip(), "SM active, GPU 1 \u00b7 62.5 %, 1 sample \u00b7 1.000 \u00b5s");
  await page.mouse.click(...at);
  await settled(page);
  assert.match(await panel(page), /SM active, GPU 1\s+Sampled[\s\S]*Value\s+62.5 %[\s\S]*sm__cycles_active[\s\S]*In the whole session:\s+Mean\s+42\.9 %\s+Samples\s+99/);
  await press(page, ".");
  assert.match(await panel(page), /Value\s+75.0 %/, "the next sample");
  const gap = await onLane(page, index, 63000);
  await page.mouse.move(...gap);
  assert.ok(await page.locator("#tip").isHidden(), "a gap has no sample");
  await page.mouse.move(...await onLane(page, found.find(({ label }) => label === "Clock event reasons").index, 45000));
  await settled(page);
  assert.equal(await tip(), "Clock event reasons, GPU 0 \u00b7 power limit (0x4), 6 samples \u00b7 60.00 \u00b5s");
  await page.mouse.move(...await onLane(page, found.find(({ label }) => label === "energy").index, 15000));
  await settled(page);
  assert.match(await tip(), /^energy, GPU 0 \u00b7 9\.000 mJ, 1 sample/, "joules since the first sample");
  // A range has the means, and an area those of its time.
  await press(page, "Escape", "Escape", "0");
  await page.getByLabel("Search names").fill("step");
  await page.waitForFunction(() => profile.state.search?.total === 2);
  await page.getByLabel("Search names").press("Enter");
  await settled(page);
  assert.match(await panel(page), /^step[\s\S]*Sampled while the work of its 2 instances was on the GPU:[\s\S]*SM active \(hardware counters\), GPU 0\s+[\d.]+ % \(\d+ samples?\)/);
  await press(page, "Escape", "0");
  await press(page, "m");
  await filled(page);
  assert.match(await panel(page), /Sampled, mean by time[\s\S]*Power, GPU 0\s+400\.5 W, [\d.]+ mJ[\s\S]*energy, GPU 0\s+45\.00 mJ, 450\.0 W/);
  await press(page, "Escape");
};

/** Script of the frames in which the view moves over the session, at each share of it: 60 frames each. */
const framesOf = async (page, shares) => {
  const result = {};
  const whole = await view(page);
  for (const share of shares) {
    result[`${share * 100} % of the session`] = await scriptWhile(page, () => page.evaluate(async ([[from, to], share]) => {
      const span = (to - from) * share;
      for (let i = 0; i < 60; i++) {
        profile.show([from + (to - from - span) * i / 60, from + (to - from - span) * i / 60 + span]);
        await new Promise((done) => requestAnimationFrame(done));
      }
      await new Promise((done) => setTimeout(done, 300));
    }, [whole, share]));
  }
  await showSpan(page, whole);
  return result;
};
/** Script of what people do beside that. */
const actionsOf = async (page) => {
  const result = {};
  const box = await page.locator("#canvas").boundingBox();
  const during = async (name, act) => {
    result[name] = await scriptWhile(page, async () => {
      await act();
      await filled(page);
    });
  };
  const back = async () => {
    await page.getByLabel("Search names").fill("");
    await page.waitForFunction(() => profile.state.search === null);
    await press(page, "Escape", "Escape", "0");
    await filled(page);
  };
  await during("wheel", async () => {
    await page.mouse.move(box.x + 700, box.y + 200);
    for (let i = 0; i < 40; i++) await page.mouse.wheel(0, i < 20 ? -120 : 120);
  });
  await during("pointer", async () => {
    for (let i = 0; i < 60; i++) await page.mouse.move(box.x + 300 + i * 10, box.y + 60 + i * 3);
  });
  await during("area", async () => {
    await page.mouse.move(box.x + 400, box.y + 150);
    await page.mouse.down();
    for (let i = 0; i < 40; i++) await page.mouse.move(box.x + 400 + i * 8, box.y + 150 + i);
    await page.mouse.up();
  });
  await back();
  const range = await page.evaluate(() => {
    const { R, names } = profile.state.model;
    return [...R.name.keys()].find((row) => names[R.name[row]] === "layer" && R.start[row] > profile.state.model.whole / 3);
  });
  await showSpan(page, await page.evaluate((row) => [profile.state.model.R.start[row] - 3e5, profile.state.model.R.end[row] + 3e5], range));
  const place = await placeOf(page, "range", range);
  await during("a range", () => page.mouse.click(...place));
  await during("a path", () => page.locator("#selection").getByRole("button", { name: "All instances" }).click());
  await during("steps", () => press(page, "n", "n", "n"));
  await press(page, "0");
  Object.assign(result, Object.fromEntries(Object.entries(await framesOf(page, [1, 0.1])).map(([name, frames]) => [`${name}, a path selected`, frames])));
  await back();
  await during("search", async () => {
    await page.getByLabel("Search names").fill("gemm");
    await page.waitForFunction(() => profile.state.search?.total > 0);
    await press(page, "n", "n", "n");
  });
  await press(page, "0");
  Object.assign(result, Object.fromEntries(Object.entries(await framesOf(page, [1, 0.1])).map(([name, frames]) => [`${name}, after a search`, frames])));
  await back();
  const findings = page.locator("#findings").getByRole("button", { name: "Show" });
  for (let i = 0; i < await findings.count(); i++) {
    await during(`finding ${i + 1}`, () => findings.nth(i).click());
    await back();
  }
  return result;
};
/** The quickest of some rounds: what else a machine does makes them slower, and nothing makes them faster. */
const quickest = async (rounds, measure, of, limit) => {
  let best = null;
  for (let round = 0; round < rounds && (best === null || of(best) > limit); round++) {
    const now = await measure();
    if (best === null || of(now) < of(best)) best = now;
  }
  return best;
};
/** The longest piece of script: of a frame, of a timer, or of what pointer and keys start. */
const worst = (parts) => Math.max(...Object.values(parts).map(({ most, longest }) => Math.max(most, longest)));
/** Script of every frame, until a page can be used, and of a search, in milliseconds: times `PAGE_TIMES_FACTOR`. */
const FACTOR = Number(process.env.PAGE_TIMES_FACTOR);
const [FRAME, READY, SEARCH] = [8 * FACTOR, 2000 * FACTOR, 1000 * FACTOR];
const readyAfter = async () => {
  const page = await opened();
  const ready = await page.evaluate(() => Math.round(profile.readyAfter));
  await page.context().close();
  return ready;
};

export const is_fast_with_8000000_samples = async () => {
  const page = await opened();
  const figures = { "ready ms": await quickest(4, readyAfter, (ready) => ready, READY), frames: await quickest(4, () => framesOf(page, [1, 0.1, 0.01]), worst, FRAME) };
  const rows = await page.evaluate(() => profile.state.rows.lanes.filter(({ type }) => type === "track").map(({ length }) => length));
  console.log(JSON.stringify(figures));
  assert.equal(rows.length, 8);
  assert.ok(rows.every((length) => length <= 20_000 && length > 10_000), String(rows));
  assert.ok(figures["ready ms"] <= READY && worst(figures.frames) <= FRAME, JSON.stringify(figures));
  await openTab(page, "sampled");
  assert.match((await page.locator("#panel-sampled tbody tr").allInnerTexts())[0], /1,000,000/, "all samples count");
  await picture(page, "sampled-long");
};

/** Ready within 2 s, and 8 ms of script a frame in a window of 1280 x 800. */
export const is_fast_with_330000_kernels = async () => {
  const page = await opened();
  const kernels = await page.evaluate(() => profile.state.model.O.kind.reduce((sum, kind) => sum + (kind === 0), 0));
  assert.equal(kernels, 330_000);
  const figures = {
    kernels, "ready ms": await quickest(4, readyAfter, (ready) => ready, READY), "heap MiB": await page.evaluate(() => Math.round(performance.memory.usedJSHeapSize / 2 ** 20)),
    frames: await quickest(4, () => framesOf(page, [1, 0.3, 0.1, 0.01, 0.0001]), worst, FRAME),
    actions: await quickest(4, () => actionsOf(page), worst, FRAME),
  };
  await picture(page, "large");
  await isLaidOut(page);
  // What people do with it takes no longer than they notice.
  figures["search ms"] = await page.evaluate(async () => {
    const began = performance.now();
    const search = document.getElementById("search");
    search.value = "gemm";
    search.dispatchEvent(new Event("input"));
    while (!(profile.state.search?.total > 0)) await new Promise((next) => setTimeout(next, 1));
    return Math.round(performance.now() - began);
  });
  await press(page, "n", "n", "n");
  await page.getByLabel("Search names").fill("");
  await page.waitForFunction(() => profile.state.search === null);
  await press(page, "Escape", "0");
  await openTab(page, "kernels");
  await showSpan(page, await page.evaluate(() => [profile.state.model.whole * 0.1, profile.state.model.whole * 0.9]));
  await filled(page);
  const kernelsShown = (await columnOf(page, "kernels", 3)).map((text) => Number(text.replaceAll(",", ""))).reduce((sum, number) => sum + number, 0);
  assert.ok(kernelsShown > 200_000 && kernelsShown < 330_000, String(kernelsShown));
  await openTab(page, "flame");
  await picture(page, "large-flame");
  console.log(JSON.stringify(figures));
  assert.ok(figures["ready ms"] <= READY && worst({ ...figures.frames, ...figures.actions }) <= FRAME, JSON.stringify(figures));
  assert.ok(Object.values(figures.frames).every(({ frames }) => frames >= 55), "frames were seen");
  assert.ok(figures["heap MiB"] < 500 && figures["search ms"] <= SEARCH, JSON.stringify(figures));
};

/** Each process of a run has its rows, and says what is missing of it. */
export const groups_processes = async () => {
  await everywhere(async (page, size) => {
    const groups = await page.evaluate(() => profile.state.rows.groups.map(({ label, lanes }) => [label, lanes.map(({ type }) => type)]));
    assert.equal(groups.length, 3);
    for (const rank of [0, 1]) {
      assert.match(groups[rank][0], new RegExp(`^rank ${rank}, train\\.py, process [0-9]+`));
      assert.deepEqual(groups[rank][1], ["process", "range", "mark", "call"]);
    }
    const streams = await page.evaluate(() => profile.state.rows.groups[2].lanes.filter(({ type }) => type === "operation").map(({ label }) => label));
    assert.equal(new Set(streams).size, 4, streams.join());
    await openTab(page, "recording");
    const text = await page.locator("#panel-recording").innerText();
    assert.match(text, /Incomplete[\s\S]*rank 1, train\.py, process [0-9]+[^:]*: 1 truncated recording[\s\S]*Processes[\s\S]*rank 0, train\.py[\s\S]*rank 1, train\.py/);
    await picture(page, `processes-${size.width}-${size.scheme}`, { fullPage: true });
    const rows = await page.evaluate(() => profile.state.rows.lanes.filter(({ type }) => type === "range").map(({ rows }) => rows[0]));
    for (const [rank, row] of rows.entries()) {
      await page.mouse.click(...await placeOf(page, "range", row));
      await settled(page);
      assert.match(await panel(page), new RegExp(`step[\\s\\S]*Thread\\s.*rank ${rank}, train\\.py`));
    }
  });
};
