// Builds the page from its data, and keeps its address and its theme.
import { fragmentOf, stateOf } from "./address.mjs";
import { CALLS, OPERATIONS, paintsOf, partColor } from "./colors.mjs";
import { byId, element, swatch } from "./dom.mjs";
import { describe } from "./details.mjs";
import { exists } from "./items.mjs";
import { drawFlame, flameState, makeFlame } from "./flamegraph.mjs";
import { listen } from "./input.mjs";
import { decoded } from "./model.mjs";
import { hasTab, makePanels, openTab, remake, shareHeight, tabLabel } from "./panels.mjs";
import { rowsOf } from "./rows.mjs";
import { searchFor, select, setArea } from "./selection.mjs";
import { on, state } from "./state.mjs";
import { summarise } from "./summary.mjs";
import { SMALL, draw, drawNow, drawing, layOut, plotting, show, xOf } from "./timeline.mjs";
import { isWhole, wholeView } from "./view.mjs";

const began = performance.now();
const failed = (error) => {
  const notice = byId("failure");
  notice.hidden = false;
  notice.textContent = `The page could not be drawn: ${error}. The data in it may be damaged.`;
  console.error(error);
};
// What is thrown outside of what is caught below; an event without an error is a warning of the browser.
window.addEventListener("error", ({ error }) => { if (error) failed(error); });

// --- theme --------------------------------------------------------------------------------------------------------------

const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
try {
  chosenTheme = localStorage.getItem("gpu-profile-theme");
} catch {
  // A page from disk may have no storage.
}
/** The colours of the stylesheet, as the canvas needs them. */
const themeColors = () => {
  const probe = element("i");
  document.body.append(probe);
  const found = {};
  for (const [key, name] of Object.entries({ panel: "panel", raised: "raised", ink: "ink", muted: "muted", line: "line", strongLine: "strong-line", accent: "accent",
    accentFill: "accent-fill", hit: "hit", projection: "projection", areaFill: "area-fill", veil: "veil" })) {
    probe.style.color = `var(--${name})`;
    found[key] = getComputedStyle(probe).color;
  }
  const parts = state.model.data.parts.map((_, part) => {
    probe.style.color = partColor(part);
    return getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
  });
  probe.remove();
  return { colors: found, parts };
};
const legend = () => {
  const { model, isDark } = state;
  const kinds = new Set(model.data.works.map(([kind]) => kind));
  const classes = new Set(model.data.call_kinds.map(([, name]) => name));
  const theme = isDark ? 2 : 1;
  const entry = (color, text) => element("li", {}, swatch(color), text);
  byId("legend").replaceChildren(
    ...model.data.parts.map(({ name }, part) => entry(partColor(part), `GPU: ${name}`)),
    ...OPERATIONS.slice(1).filter((_, at) => kinds.has(at + 1)).map((one) => entry(one[theme], one[0])),
    ...Object.entries(CALLS).filter(([name]) => classes.has(name)).map(([, one]) => entry(one[theme], one[0])));
};
const applyTheme = (isPrinted = false) => {
  state.isDark = !isPrinted && (chosenTheme === null ? wantsDark.matches : chosenTheme === "dark");
  document.documentElement.dataset.theme = state.isDark ? "dark" : "light";
  const theme = byId("theme");
  theme.setAttribute("aria-pressed", String(state.isDark));
  theme.setAttribute("aria-label", state.isDark ? "Switch to the light theme" : "Switch to the dark theme");
  const { colors, parts } = themeColors();
  drawing.colors = colors;
  state.paints = paintsOf(state.model, state.model.data.kernels.map(({ name }) => name), parts, state.isDark);
  legend();
};
const repaint = () => {
  describe();
  remake();
  draw();
  drawFlame();
};
const listenToTheme = () => {
  wantsDark.addEventListener("change", () => {
    applyTheme();
    repaint();
  });
  byId("theme").addEventListener("click", () => {
    chosenTheme = state.isDark ? "light" : "dark";
    try {
      localStorage.setItem("gpu-profile-theme", chosenTheme);
    } catch {
      // The choice then lasts as long as the page.
    }
    applyTheme();
    requestAnimationFrame(repaint);
  });
  window.addEventListener("beforeprint", () => {
    applyTheme(true);
    drawNow();
  });
  window.addEventListener("afterprint", () => {
    applyTheme();
    draw();
  });
};

// --- the address --------------------------------------------------------------------------------------------------------

let written = "";
let first = null;
const writeAddress = () => {
  const { view, area, selected, query, tab, model } = state;
  const fragment = fragmentOf({ view: isWhole(view, model.whole) ? null : view, area, select: selected, search: query.text, regex: query.isRegex, name: query.name, tab: tab === first ? null : tab ?? "none" });
  if (fragment === written) return;
  written = fragment;
  try {
    history.replaceState(null, "", `#${fragment}`);
  } catch {
    // Browsers limit how often the address changes; the next change writes it.
    written = null;
  }
};
const readAddress = () => {
  const { model } = state;
  written = location.hash.replace(/^#/, "");
  const wanted = stateOf(location.hash);
  if (wanted.tab === "none") openTab(null);
  else if (wanted.tab !== null && hasTab(wanted.tab)) openTab(wanted.tab);
  byId("search").value = wanted.name !== null && wanted.name < model.names.length ? model.names[wanted.name].slice(0, 300) : wanted.search;
  searchFor({ text: wanted.search, isRegex: wanted.regex, name: wanted.name !== null && wanted.name < model.names.length ? wanted.name : null });
  select(wanted.select !== null && exists(model, wanted.select) ? wanted.select : null);
  setArea(wanted.area === null ? null : wanted.area.map((t) => Math.min(Math.max(t, 0), model.whole)));
  show(wanted.view ?? wholeView(model.whole));
};
const listenToAddress = () => {
  let pending = 0;
  on("view area selection search tab", () => {
    clearTimeout(pending);
    pending = setTimeout(writeAddress, 250);
  });
  window.addEventListener("hashchange", () => location.hash.replace(/^#/, "") !== written && readAddress());
};

// --- the page -----------------------------------------------------------------------------------------------------------

const build = () => {
  const place = byId("data");
  const data = JSON.parse(place.textContent);
  place.remove();
  const model = state.model = decoded(data);
  state.rows = rowsOf(model);
  state.view = wholeView(model.whole);
  applyTheme();
  const context = byId("canvas").getContext("2d");
  context.font = SMALL;
  plotting.glyph = context.measureText("mmmmmmmmmm").width / 10;
  summarise();
  for (const [tab, rows] of [["ranges", data.nodes], ["kernels", data.kernels], ["lines", data.lines], ["memory", data.memory], ["api", data.api]]) tabLabel(tab, rows.length);
  byId("tab-lines").hidden = data.lines.length === 0;
  byId("tab-roofline").hidden = byId("panel-roofline").childElementCount === 0;
  byId("nothing").hidden = state.rows.lanes.length > 0;
  makeFlame();
  // Several things change at once; the panel is made once.
  let isPending = false;
  on("selection area trail", () => {
    if (isPending) return;
    isPending = true;
    queueMicrotask(() => {
      isPending = false;
      describe();
    });
  });
  describe();
  makePanels(data.nodes.length ? "ranges" : "kernels");
  first = state.tab;
  listen();
  listenToTheme();
  readAddress();
  listenToAddress();
  window.addEventListener("resize", shareHeight);
  let resizing = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(layOut);
  }).observe(byId("plot"));
};

try {
  build();
  drawNow();
  // For those who look into the page with a debugger, and for its tests.
  window.profile = { readyAfter: performance.now(), builtIn: performance.now() - began, state, plotting, drawing, show, xOf, drawNow, flame: flameState };
} catch (error) {
  failed(error);
}
