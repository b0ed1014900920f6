// A real browser for the checks: pages in windows, what goes wrong in them, and where things are.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import path from "node:path";

const require = createRequire(import.meta.url);
const { chromium } = require(path.join(process.env.MODULES, "playwright-core"));
export const axe = readFileSync(path.join(process.env.MODULES, "axe-core", "axe.min.js"), "utf8");
const [, file, pictures] = process.argv.slice(2);
const address = `file://${path.resolve(file)}`;

export const browser = await chromium.launch({
  executablePath: process.env.BROWSER,
  // As root there is no sandbox; the rest keeps the browser itself off the network.
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-precise-memory-info"],
});

/** Errors and warnings of all pages, dialogs, and addresses that they asked for. */
export const wrong = [];

/** The page in a window of its own. */
export const opened = async ({ width = 1280, height = 800, scheme = "light", hash = "", touch = false } = {}) => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, hasTouch: touch, reducedMotion: "reduce" });
  const page = await context.newPage();
  // That canvases are read is the checks' doing.
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && !message.text().includes("willReadFrequently") && wrong.push(message.text()));
  page.on("pageerror", (error) => wrong.push(`${error.stack}`));
  page.on("request", (request) => !request.url().startsWith(address) && !/^(data|blob):/.test(request.url()) && wrong.push(`asked for ${request.url()}`));
  page.on("dialog", (dialog) => {
    wrong.push(`dialog ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.goto(address + hash);
  await page.waitForFunction(() => window.profile !== undefined || document.getElementById("failure")?.hidden !== true);
  await settled(page);
  return page;
};
/** The windows that a person may have: as large as a laptop's, a screen's and a phone's; both themes in a thorough run, else they take turns. */
export const WINDOWS = [[1280, 800], [1920, 1080], [390, 844]].flatMap(([width, height], at) => ["light", "dark"]
  .filter((_, theme) => process.env.THOROUGH_TESTS !== undefined || theme === at % 2)
  .map((scheme) => ({ width, height, scheme })));
/** Nothing reaches beyond the window's right edge. */
export const isNoWider = async (page) => {
  const wider = await page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    return [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > clientWidth + 1).map((one) => `${one.tagName}#${one.id}.${one.className}`).slice(0, 20);
  });
  assert.deepEqual(wider, [], "the page is no wider than the window");
};
/** Does the same in each window. */
export const everywhere = async (check) => {
  for (const size of WINDOWS) {
    const page = await opened(size);
    try {
      await check(page, size);
      await isNoWider(page);
    } catch (error) {
      await picture(page, `failed-${size.width}-${size.scheme}`);
      throw new Error(`in a window of ${size.width} x ${size.height}, ${size.scheme}`, { cause: error });
    } finally {
      await page.context().close();
    }
  }
};
/** After the next frames are drawn, and the panel that they bring. */
export const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)))));
/** After the tables have followed. */
export const filled = async (page) => {
  await page.waitForTimeout(160);
  await page.waitForFunction(() => document.querySelector(".panel[aria-busy], [aria-busy]") === null);
  await settled(page);
};
export const picture = async (page, name, options = {}) => {
  if (pictures) await page.screenshot({ path: path.join(pictures, `${name}.png`), ...options });
};

/** Where an item of the timeline is on the screen; scrolls it there. */
export const placeOf = async (page, type, row) => {
  await page.evaluate(([type, row]) => {
    const lane = profile.state.rows.lanes.find((lane) => lane.type === type && lane.rows.includes(row));
    const scroller = document.getElementById("scroller");
    if (lane.y < scroller.scrollTop || lane.y + lane.height > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = lane.y - 60;
    const box = scroller.getBoundingClientRect();
    if (box.top < 0 || box.bottom > innerHeight) scroller.scrollIntoView({ block: "center" });
  }, [type, row]);
  await settled(page);
  return page.evaluate(([type, row]) => {
    const lane = profile.state.rows.lanes.find((lane) => lane.type === type && lane.rows.includes(row));
    const at = lane.rows.indexOf(row);
    const box = document.getElementById("canvas").getBoundingClientRect();
    const x = (profile.xOf(Math.max(lane.start[at], profile.state.view[0])) + profile.xOf(Math.min(lane.end[at], profile.state.view[1]))) / 2;
    return [box.left + x, box.top + lane.y - document.getElementById("scroller").scrollTop + lane.height / 2];
  }, [type, row]);
};
/** The colour of the canvas under a point of the window. */
export const colorAt = (page, [x, y]) => page.evaluate(([x, y]) => {
  const canvas = document.getElementById("canvas");
  const box = canvas.getBoundingClientRect();
  return [...canvas.getContext("2d").getImageData(Math.round(x - box.left), Math.round(y - box.top), 1, 1).data].slice(0, 3);
}, [x, y]);
export const panel = (page) => page.locator("#selection").innerText();
export const view = (page) => page.evaluate(() => [...profile.state.view]);
export const selected = (page) => page.evaluate(() => profile.state.selected);
export const isView = async (page, [from, to], message) => {
  const now = await view(page);
  assert.ok(Math.abs(now[0] - from) < 1 && Math.abs(now[1] - to) < 1, `${message}: ${now} and not ${[from, to]}`);
};
export const showSpan = async (page, span) => {
  await page.evaluate((span) => profile.show(span), span);
  await settled(page);
};
/** Opens a tab below the timeline. */
export const openTab = async (page, name) => {
  await page.locator(`#tab-${name}`).click();
  await filled(page);
};
export const columnOf = (page, section, place) =>
  page.locator(`#panel-${section} tbody tr`).evaluateAll((rows, place) => rows.map((row) => row.children[place].textContent), place);
/** Presses a key where nothing is typed. */
export const press = async (page, ...keys) => {
  await page.evaluate(() => document.activeElement?.blur());
  for (const key of keys) await page.keyboard.press(key);
  await settled(page);
};
export const drag = async (page, from, to, { shift = false } = {}) => {
  if (shift) await page.keyboard.down("Shift");
  await page.mouse.move(...from);
  await page.mouse.down();
  await page.mouse.move((from[0] + to[0]) / 2, (from[1] + to[1]) / 2);
  await page.mouse.move(...to);
  await page.mouse.up();
  if (shift) await page.keyboard.up("Shift");
  await settled(page);
};
/** A sum of numbers that a table shows with separators. */
export const numbers = (texts) => texts.map((text) => Number(text.replaceAll(",", "")));

/** Events of a trace that run a page's script: callbacks of frames and timers, and what pointer and keys start. */
const SCRIPT = new Set(["FireAnimationFrame", "TimerFire", "EventDispatch", "FunctionCall", "RunMicrotasks", "FireIdleCallback"]);
/**
 * Milliseconds of CPU time that the page's script takes while `act` runs: of each frame's callback, and of the longest piece of script at
 * all, which a frame may have to wait for. The time of the processor, for on a busy machine the clock goes on while nothing runs.
 */
export const scriptWhile = async (page, act) => {
  const session = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["devtools.timeline"] } });
  await act();
  const complete = new Promise((done) => session.once("Tracing.tracingComplete", done));
  await session.send("Tracing.end");
  await complete;
  await session.detach();
  // The page's own thread is the one with frames of script; what the checks evaluate in it is theirs.
  const spans = events.filter(({ ph, name, tdur }) => ph === "X" && SCRIPT.has(name) && tdur !== undefined);
  const { pid, tid } = spans.find(({ name }) => name === "FireAnimationFrame") ?? {};
  const own = spans.filter((event) => event.pid === pid && event.tid === tid).map(({ name, tdur, args }) => ({ name: [name, args?.data?.type].filter(Boolean).join(" "), ms: tdur / 1000 }));
  const frames = own.filter(({ name }) => name === "FireAnimationFrame").map(({ ms }) => ms).sort((a, b) => a - b);
  const longest = own.reduce((most, one) => (one.ms > most.ms ? one : most), { name: "", ms: 0 });
  const at = (part) => +(frames[Math.floor((frames.length - 1) * part)] ?? 0).toFixed(1);
  return { frames: frames.length, median: at(0.5), p95: at(0.95), most: at(1), longest: +longest.ms.toFixed(1), of: longest.name };
};
