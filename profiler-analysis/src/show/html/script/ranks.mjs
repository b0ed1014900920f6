// Collectives of several ranks: which kernels belong together, who arrived when, and lines between them.
import { bytes, count, time } from "./units.mjs";

const indexes = new WeakMap();
/** The collective of each kernel that has one, by the row of its operation. */
const indexOf = (model) => {
  if (!indexes.has(model)) indexes.set(model, new Map((model.data.collectives?.kernels ?? []).flatMap((rows, at) => rows.map((row) => [row, at]))));
  return indexes.get(model);
};

/**
 * The collective of an operation; `null` without one. A rank arrives when its kernel starts; until the last one has, it waits, and from then
 * to the last end the collective transfers.
 */
export const collectiveOf = (model, row) => {
  const at = indexOf(model).get(row);
  if (at === undefined) return null;
  const { kinds, kind, kernels } = model.data.collectives;
  const [name, communicator, size] = kinds[kind[at]];
  const { start, end } = model.O;
  const rows = [...kernels[at]].sort((a, b) => start[a] - start[b]);
  const [first, last] = [start[rows[0]], start[rows.at(-1)]];
  const waited = (one) => Math.min(last - start[one], end[one] - start[one]);
  return { name, communicator, size, rows, skew: last - first, transfer: Math.max(...rows.map((one) => end[one])) - last, waited: waited(row), isLast: start[row] === last };
};

/** The facts of a collective's kernel, for a table. */
export const collectiveFacts = (collective) => (collective === null ? [] : [
  ["Collective", `${collective.name} of ${bytes(collective.size)}`], ["Communicator", collective.communicator, "name"],
  ["Ranks", count(collective.rows.length)], ["Arrived", collective.isLast ? "last" : `waited ${time(collective.waited)}`],
  ["Skew", time(collective.skew)], ["Transfer", time(collective.transfer)]]);

/** At most so many other ranks in the panel, and lines to them. */
const MOST_PEERS = 16;
/** The kernels of the other ranks in order of arrival, with when they arrived by the kernel `row`. */
export const peersOf = (model, row) => {
  const collective = collectiveOf(model, row);
  if (collective === null) return { peers: [], more: 0 };
  const others = collective.rows.filter((other) => other !== row);
  const peers = others.slice(0, MOST_PEERS).map((other) => {
    const away = model.O.start[other] - model.O.start[row];
    const { process, device } = model.streams[model.O.stream[other]];
    return { row: other, text: `${model.processLabel(process) || `GPU ${device}`} arrived ${time(Math.abs(away))} ${away < 0 ? "before" : "after"} it: ` };
  });
  return { peers, more: others.length - peers.length };
};

/** Lines from the start of a kernel to those of the other ranks. `placeOf` has the `x`, `y` and height of an operation's row, if it is shown. */
export const drawPeers = (context, model, row, placeOf, color) => {
  const from = placeOf(row);
  if (!from) return 0;
  context.strokeStyle = color;
  context.lineWidth = 1.5;
  context.setLineDash([2, 2]);
  let drawn = 0;
  for (const { row: other } of peersOf(model, row).peers) {
    const to = placeOf(other);
    if (!to) continue;
    const isBelow = to.y > from.y;
    const [y0, y1] = [isBelow ? from.y + from.height : from.y, isBelow ? to.y : to.y + to.height];
    const middle = (y0 + y1) / 2;
    context.beginPath();
    context.moveTo(from.x, y0);
    context.bezierCurveTo(from.x, middle, to.x, middle, to.x, y1);
    context.stroke();
    drawn++;
  }
  context.setLineDash([]);
  return drawn;
};
