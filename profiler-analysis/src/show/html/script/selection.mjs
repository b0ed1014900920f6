// What is selected, searched, summed and stepped through.
import { firstFrom, firstNumbers } from "./arrays.mjs";
import { byId } from "./dom.mjs";
import { exists, gapAt, gapsOf, hasTime, isSame, itemOf, laneOf, longestPieces, spanOf, workOf } from "./items.mjs";
import { containing, expressionOf, found, matching, numberOf, stepped } from "./search.mjs";
import { emit, state } from "./state.mjs";
import { runner } from "./sums.mjs";
import { draw, plotting, scrollTo, show } from "./timeline.mjs";
import { count, plural } from "./units.mjs";
import { fitted, isWhole, revealed } from "./view.mjs";

/** Ranges and paths have work that they caused. */
const hasWork = (item) => item !== null && (item.type === "range" || item.type === "node");

/** Dims what neither the selected range caused nor the search found. */
const emphasise = () => {
  const { rows, search, work } = state;
  for (const lane of rows.lanes) {
    const hits = work?.hits.get(lane) ?? search?.hits.get(lane);
    lane.hits = hits ?? firstNumbers(lane.length);
    lane.isSearched = hits !== undefined;
  }
};

const findWork = runner({ isEager: true });
/** Finds the work of what is selected, at once unless it is a great deal; `done` is called if it came later. */
const startWork = (item, done) => {
  let isAtOnce = true;
  state.work = null;
  findWork(hasWork(item) ? workOf(state.model, state.rows.lanes, item) : (function* () { return null; })(), (work) => {
    state.work = work;
    if (!isAtOnce) done();
  });
  isAtOnce = false;
};
/** Selects an item or, with `null`, nothing. */
export const select = (item, { isRevealed = false } = {}) => {
  if (!isSame(item, state.selected)) {
    state.selected = item;
    startWork(item, () => {
      emphasise();
      emit("selection");
      draw();
    });
    const lane = item === null ? undefined : laneOf(state, item);
    // The next match is the one after what is selected.
    if (lane?.start) state.place = { lane, at: state.model.tables[item.type]?.at?.[item.row] ?? 0, start: spanOf(state.model, item)[0] };
    emphasise();
    emit("selection");
  }
  if (item !== null && isRevealed) reveal(item);
  draw();
};
export const reveal = (item) => {
  if (!hasTime(state.model, item)) return;
  show(revealed(state.view, spanOf(state.model, item), plotting.plot, state.model.whole));
  scrollTo(item);
};

/** Selects a stretch of time for its sums; `null` or an empty one selects none. */
export const setArea = (span) => {
  state.area = span !== null && span[1] > span[0] ? span : null;
  emit("area");
  draw();
};
/** The stretch of what is selected, or else what is visible. */
export const markArea = () => {
  const { selected, view, model } = state;
  const span = selected !== null && hasTime(model, selected) ? spanOf(model, selected) : [Math.max(0, view[0]), Math.min(model.whole, view[1])];
  setArea(span);
};
/** Shows what is selected as large as it fits. */
export const showSelected = () => {
  const { selected, area, model } = state;
  if (area !== null) show(fitted(area, model.whole));
  else if (selected !== null && hasTime(model, selected)) {
    show(fitted(spanOf(model, selected), model.whole));
    scrollTo(selected);
  }
};

// --- search ---------------------------------------------------------------------------------------------------------

let stopMatching = () => {};
const find = runner({ isEager: true });
const report = () => {
  const { search, query } = state;
  const searching = byId("search");
  const isWrong = search?.error !== undefined;
  searching.setAttribute("aria-invalid", String(isWrong));
  byId("matches").textContent = search === null ? "" : isWrong ? search.error : search.total === undefined ? "\u2026" : plural(search.total, "match", "matches");
  byId("previous").disabled = byId("next").disabled = !search?.total;
  byId("regex").setAttribute("aria-pressed", String(query.isRegex));
};
const setFound = (search) => {
  state.search = search;
  emphasise();
  report();
  emit("search");
  draw();
};
const setHits = (hit, done) => {
  find(hit === null ? (function* () { return null; })() : found(state.rows.lanes, hit), (result) => {
    setFound(result);
    done();
  });
};
const setError = (error) => setHits(null, () => {
  state.search = { error, total: 0, hits: new Map() };
  report();
});
/** Searches names for a text, an expression, or the very name of a row of `names`; an empty text ends the search. */
export const searchFor = (query, done = () => {}) => {
  const { names } = state.model;
  const ended = (hit) => setHits(hit, done);
  stopMatching();
  find((function* () {})(), () => {});
  state.query = { text: "", isRegex: false, name: null, ...query };
  state.place = null;
  const { text, isRegex, name } = state.query;
  if (name !== null) ended(Uint8Array.from(names, (_, row) => (row === name ? 1 : 0)));
  else if (text === "") ended(null);
  else if (!isRegex) ended(containing(names, text));
  else {
    const { expression, error } = expressionOf(text);
    if (error !== undefined) {
      setError(error);
      return;
    }
    state.search = { hits: new Map() };
    report();
    stopMatching = matching(names, expression, (hit) => (hit === null ? setError("takes too long") : ended(hit)));
  }
};
/** All items of this very name, as a row of a table has it; goes to the first. */
export const highlight = (name) => {
  endTrail();
  select(null);
  searchFor({ name }, () => step(1));
  byId("search").value = state.model.names[name].slice(0, 300);
};

// --- steps ----------------------------------------------------------------------------------------------------------

/** At most so many instances of a path are stepped through. */
const STEPS = 10_000;

/** Goes to the next item of the trail, of the search, or of the selected path; backward for -1. */
export const step = (by) => {
  const { trail, search, selected } = state;
  if (trail !== null) {
    trail.at = (trail.at + by + trail.items.length) % trail.items.length;
    showStep();
  } else if (search?.total) {
    state.place = stepped(search, state.place, by > 0);
    const { lane, at } = state.place;
    select(itemOf(lane, at), { isRevealed: true });
    byId("matches").textContent = `${count(numberOf(search, state.place))} of ${count(search.total)}`;
  } else if (selected?.type === "node") followInstances(selected.row, by);
};
const followInstances = (node, by) => {
  const { model } = state;
  const instances = [...model.R.byNode.of(node).subarray(0, STEPS)].sort((a, b) => model.R.start[a] - model.R.start[b]);
  const items = instances.map((row) => ({ item: { type: "range", row }, span: [model.R.start[row], model.R.end[row]] }));
  if (items.length) setTrail({ title: model.pathOf(node), text: "", total: model.R.byNode.of(node).length, items, at: by > 0 ? 0 : items.length - 1 });
};
const showStep = () => {
  const { item, span } = state.trail.items[state.trail.at];
  const room = Math.max(span[1] - span[0], 200);
  show([span[0] - room, span[1] + room]);
  if (item !== null) {
    setArea(null);
    select(item);
    scrollTo(item);
  } else {
    select(null);
    setArea(span);
  }
  emit("trail");
};
const setTrail = (trail) => {
  state.trail = trail;
  showStep();
};
export const endTrail = () => {
  if (state.trail === null) return;
  state.trail = null;
  emit("trail");
};

/** The item that a moment of evidence is about: its operation, the gap that the operation ended, its call, or the range of just that time. */
export const evidenceItem = (model, [from, ns, operation, call, device]) => {
  const row = operation - 1;
  if (row >= 0 && exists(model, { type: "operation", row })) {
    if (model.O.isTimed(row) && model.O.start[row] < from + ns && model.O.end[row] > from) return { type: "operation", row };
    const gap = gapAt(model, model.streams[model.O.stream[row]].device, from);
    if (gap !== null) return gap;
  }
  if (call > 0 && exists(model, { type: "call", row: call - 1 })) return { type: "call", row: call - 1 };
  if (device > 0) return gapAt(model, device - 1, from);
  for (const lane of state.rows.lanes) {
    if (lane.type !== "range") continue;
    for (let at = firstFrom(lane.start, from); at < lane.length && lane.start[at] === from; at++) if (lane.end[at] === from + ns) return itemOf(lane, at);
  }
  return null;
};
/** Shows the evidence of a finding, and nothing of what was searched or selected before. */
export const showFinding = (finding) => {
  byId("search").value = "";
  searchFor({});
  select(null);
  const items = finding.evidence.map((moment) => ({ item: evidenceItem(state.model, moment), span: [moment[0], moment[0] + moment[1]] }));
  setTrail({ title: finding.title, text: finding.text, total: finding.count, items, at: 0 });
};

/** At most so many pieces of a part of the clock are stepped through. */
const PIECES = 200;
/** Steps through the longest pieces of a part of the clock, of all devices. */
export const showPart = (part) => {
  const { model } = state;
  const { pieces, total } = longestPieces(model, part, PIECES);
  byId("search").value = "";
  searchFor({});
  if (total > 0) setTrail({ title: `The GPU's time: ${model.data.parts[part].name}`, text: "", total, items: pieces, at: 0 });
};

/** The item before or after the selected one in its row. */
export const neighbour = (by) => {
  const { selected, rows, model } = state;
  if (selected === null || selected.type === "node") {
    const first = rows.lanes.find((lane) => lane.type !== "busy" && lane.type !== "track" && lane.length);
    if (first) select(itemOf(first, 0), { isRevealed: true });
    return;
  }
  if (selected.type === "gap" || selected.type === "track") {
    const row = selected.row + by;
    const length = selected.type === "gap" ? gapsOf(model, selected.of).length : model.tracks[selected.of].start.length;
    if (row >= 0 && row < length) select({ ...selected, row }, { isRevealed: true });
    return;
  }
  const lane = laneOf(state, selected);
  const at = lane === undefined ? -1 : model.tables[selected.type].at[selected.row] + by;
  if (at >= 0 && at < lane.length) select(itemOf(lane, at), { isRevealed: true });
};

/** Undoes the last of what narrows the view: the area, the selection, the steps, the search. */
export const escape = () => {
  if (state.area !== null && state.trail === null) setArea(null);
  else if (state.selected !== null || state.area !== null) {
    setArea(null);
    select(null);
  } else if (state.trail !== null) endTrail();
  else if (state.query.text !== "" || state.query.name !== null) {
    byId("search").value = "";
    searchFor({});
  }
};

/** The part of the profile that tables show: `kind` is whole, window, area, range or node. */
export const scopeOf = () => {
  const { follows, area, selected, work } = state;
  return follows && area === null && work !== null ? { kind: selected.type, row: selected.row, work } : timeScope();
};
/** The part of the profile that the flame graph shows: a selected path stays among the others, so only the time narrows it. */
export const timeScope = () => {
  const { follows, area, view, model } = state;
  if (follows && area !== null) return { kind: "area", span: area };
  return follows && !isWhole(view, model.whole) ? { kind: "window", span: view } : { kind: "whole" };
};
