// Which times the timeline shows: `[from, to]` in nanoseconds, within the session and at least 100 ns long.

/** Room at both ends of the whole, as its share. */
const ROOM = 0.01;
export const wholeView = (whole) => [-whole * ROOM, whole * (1 + ROOM)];
export const leastSpan = (whole) => Math.min(100, whole);

/** The view nearest to `[from, to]` that is allowed. */
export const clamped = ([from, to], whole) => {
  const [first, last] = wholeView(whole);
  const middle = (from + to) / 2;
  const span = Math.min(Math.max(to - from, leastSpan(whole)), last - first);
  // What is no number shows everything.
  if (!Number.isFinite(middle + span)) return [first, last];
  const start = Math.min(Math.max(middle - span / 2, first), last - span);
  return [start, start + span];
};
/** Makes the view `factor` times as long; `at` stays where it is. */
export const zoomed = ([from, to], factor, at, whole) => {
  const [first, last] = wholeView(whole);
  const span = Math.min(Math.max((to - from) * factor, leastSpan(whole)), last - first);
  const share = (at - from) / (to - from);
  return clamped([at - span * share, at - span * share + span], whole);
};
/** Moves the view by this share of its length. */
export const panned = ([from, to], share, whole) => clamped([from + (to - from) * share, to + (to - from) * share], whole);
/** True if the view shows everything. */
export const isWhole = ([from, to], whole) => from <= 0 && to >= whole;

/** The view that shows an item: as it is if the item is in it and wide enough to see in a plot of this many pixels. */
export const revealed = (view, [from, to], plot, whole) => {
  const span = view[1] - view[0];
  const middle = (from + to) / 2;
  let wanted;
  if (from < view[0] || to > view[1]) wanted = Math.max(span, (to - from) * 1.4);
  else if ((to - from) / span * plot < 3) wanted = Math.max((to - from) * 30, leastSpan(whole) * 5);
  else return view;
  return clamped([middle - wanted / 2, middle + wanted / 2], whole);
};
/** The view in which an item takes most of the width. */
export const fitted = ([from, to], whole) => {
  const room = Math.max((to - from) * 0.15, leastSpan(whole));
  return clamped([from - room, to + room], whole);
};
