// Names that match a text or an expression, and the items of the timeline that have them, in the order of time.
import { firstAbove, firstFrom, inParts } from "./arrays.mjs";

/** The expression of a text, or why it is none. */
export const expressionOf = (text) => {
  for (const flags of ["iu", "i"]) {
    try {
      return { expression: new RegExp(text, flags) };
    } catch (error) {
      // Names of C++ have braces and brackets that the mode for Unicode refuses.
      if (flags === "i") return { error: error.message.replace(/^Invalid regular expression: /, "") };
    }
  }
  return { error: "not an expression" };
};

/** 1 for each name that contains the text, in any case. */
export const containing = (names, text) => {
  const wanted = text.toLowerCase();
  return Uint8Array.from(names, (name) => (name.toLowerCase().includes(wanted) ? 1 : 0));
};

/** An expression may take longer than anyone waits, so a worker matches the names: `done` gets them, or `null` after `limit` ms. */
const MATCHING = "onmessage = ({ data: { names, expression } }) => postMessage(Uint8Array.from(names, (name) => (expression.test(name) ? 1 : 0)));";
export const matching = (names, expression, done, limit = 1500) => {
  const address = URL.createObjectURL(new Blob([MATCHING], { type: "text/javascript" }));
  const worker = new Worker(address);
  const end = (hits) => {
    clearTimeout(timer);
    worker.terminate();
    URL.revokeObjectURL(address);
    if (hits !== undefined) done(hits);
  };
  const timer = setTimeout(() => end(null), limit);
  worker.onmessage = ({ data }) => end(data);
  worker.onerror = () => end(null);
  worker.postMessage({ names, expression });
  return () => end();
};

/** Types of lanes whose items have names. */
const NAMED = ["range", "call", "operation", "process", "mark"];
export const isNamed = (lane) => NAMED.includes(lane.type);

/** Counts of hits before each position of a lane. `keys` is a column of it, such as its rows or names, and `hit` is 1 for each key that is one. */
export function* hitsOf(keys, hit) {
  const hits = new Uint32Array(keys.length + 1);
  let sum = 0;
  yield* inParts(keys.length, (from, to) => {
    for (let i = from; i < to; i++) hits[i + 1] = sum += hit[keys[i]];
  });
  return hits;
}

/** What a search found: hits of each lane with names, and their number. */
export function* found(lanes, hit) {
  const hits = new Map();
  let total = 0;
  for (const lane of lanes) {
    if (!isNamed(lane)) continue;
    const own = yield* hitsOf(lane.name, hit);
    hits.set(lane, own);
    total += own[lane.length];
  }
  return { hits, total };
}

/** The end of the items of a lane that come before a place, an item's or `null` for the beginning of everything; `isAfter` includes the place. */
const boundOf = (lane, place, isAfter) => {
  if (place === null) return 0;
  if (lane.index === place.lane.index) return isAfter ? place.at + 1 : place.at;
  // Items that start together are in the order of their lanes.
  return lane.index < place.lane.index ? firstAbove(lane.start, place.start) : firstFrom(lane.start, place.start);
};
const comesBefore = (a, b) => a.start < b.start || (a.start === b.start && a.lane.index < b.lane.index);

/**
 * The hit after a place, or before it, by the time at which items start; after the last comes the first. Costs two binary searches
 * a lane. `null` without hits.
 */
export const stepped = ({ hits, total }, place, isForward) => {
  if (total === 0) return null;
  let best = null;
  for (const [lane, own] of hits) {
    const bound = place === null && !isForward ? lane.length : boundOf(lane, place, isForward);
    // Forward the first hit from the bound on, backward the last before it.
    const at = isForward ? firstAbove(own, own[bound]) - 1 : own[bound] === 0 ? -1 : firstFrom(own, own[bound]) - 1;
    if (at < 0 || at >= lane.length) continue;
    const here = { lane, at, start: lane.start[at] };
    if (best === null || comesBefore(here, best) === isForward) best = here;
  }
  return best ?? stepped({ hits, total }, null, isForward);
};

/** The number of a hit, from 1 on. */
export const numberOf = ({ hits }, place) => {
  let number = 0;
  for (const [lane, own] of hits) number += own[boundOf(lane, place, true)];
  return number;
};
