// Sorted columns: searches, packing into rows, order statistics.

/** The first position from `low` on whose value is at least `value`. */
export const firstFrom = (sorted, value, low = 0, high = sorted.length) => {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
};

/** The first position from `low` on whose value is above `value`. */
export const firstAbove = (sorted, value, low = 0, high = sorted.length) => {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
};

/**
 * A faster `firstFrom` of one column: its extent is divided into cells, and the positions at which cells begin are known. Takes four
 * bytes a cell.
 */
export const indexed = (sorted) => {
  const { length } = sorted;
  const cells = Math.min(1 << 16, length >> 1);
  const low = sorted[0];
  const width = (sorted[length - 1] - low) / cells;
  if (!(width > 0)) return (value, from = 0) => firstFrom(sorted, value, from);
  const first = new Int32Array(cells + 2).fill(length);
  for (let i = length - 1; i >= 0; i--) first[Math.floor((sorted[i] - low) / width)] = i;
  for (let cell = cells; cell >= 0; cell--) if (first[cell] > first[cell + 1]) first[cell] = first[cell + 1];
  return (value, from = 0) => {
    const cell = Math.floor((value - low) / width);
    if (cell < 0) return from;
    if (cell > cells) return length;
    return firstFrom(sorted, value, Math.max(from, first[cell]), Math.max(from, first[cell + 1]));
  };
};

/** A column with the value of each row. */
export const column = (length, of, Type = Int32Array) => {
  const values = new Type(length);
  for (let i = 0; i < length; i++) values[i] = of(i);
  return values;
};

/** The sums of differences, from `value` on. */
export const summed = (deltas, Type = Float64Array, value = 0) => {
  const values = new Type(deltas.length);
  for (let i = 0; i < deltas.length; i++) values[i] = value += deltas[i];
  return values;
};

let knownNumbers = new Uint32Array(1);
/** The numbers from 0 to `length` and beyond; everyone has the same, and none changes it. */
export const firstNumbers = (length) => {
  if (knownNumbers.length <= length) {
    knownNumbers = new Uint32Array(2 * length + 1);
    for (let i = 0; i < knownNumbers.length; i++) knownNumbers[i] = i;
  }
  return knownNumbers;
};

const PART = 32_768;
/** Calls `work` with the bounds of parts of `length` rows, and pauses between them. A short table is one part, without a pause. */
export function* inParts(length, work) {
  for (let from = 0; from < length; from += PART) {
    if (from > 0) yield;
    work(from, Math.min(length, from + PART));
  }
}

/** Rows grouped by a key from 0 to `keys`: rows of key k are `rows[first[k]]` up to `rows[first[k + 1]]`; a key below 0 has none. */
export const grouped = (length, keyOf, keys) => {
  const first = new Int32Array(keys + 1);
  let total = 0;
  for (let i = 0; i < length; i++) {
    const key = keyOf(i);
    if (key >= 0) {
      first[key + 1]++;
      total++;
    }
  }
  for (let k = 0; k < keys; k++) first[k + 1] += first[k];
  const rows = new Int32Array(total);
  const next = first.slice();
  for (let i = 0; i < length; i++) {
    const key = keyOf(i);
    if (key >= 0) rows[next[key]++] = i;
  }
  return { first, rows, of: (key) => rows.subarray(first[key], first[key + 1]) };
};

/** The lowest lane that is free at a time: a tree of minima over the ends of lanes. */
class Lanes {
  constructor() {
    this.size = 1;
    this.least = new Float64Array(2).fill(-Infinity);
  }
  take(start, end) {
    if (this.least[1] > start) this.grow();
    let at = 1;
    while (at < this.size) at = this.least[2 * at] <= start ? 2 * at : 2 * at + 1;
    const lane = at - this.size;
    this.least[at] = Math.max(end, start);
    for (at >>= 1; at >= 1; at >>= 1) this.least[at] = Math.min(this.least[2 * at], this.least[2 * at + 1]);
    return lane;
  }
  grow() {
    const leaves = this.least.slice(this.size, 2 * this.size);
    this.size *= 2;
    this.least = new Float64Array(2 * this.size).fill(-Infinity);
    this.least.set(leaves, this.size);
    for (let at = this.size - 1; at >= 1; at--) this.least[at] = Math.min(this.least[2 * at], this.least[2 * at + 1]);
  }
}

/**
 * Distributes rows over lanes so that none overlaps another in its lane. Where rows nest, the outer one is above: it starts first
 * or is longer. Costs a sort and a logarithm of the number of lanes a row.
 */
export const packed = ({ start, end }, rows) => {
  const order = Int32Array.from(rows);
  let isSorted = true;
  for (let i = 1; i < order.length && isSorted; i++) {
    const [a, b] = [order[i - 1], order[i]];
    isSorted = start[a] < start[b] || (start[a] === start[b] && end[a] >= end[b]);
  }
  if (!isSorted) order.sort((a, b) => start[a] - start[b] || end[b] - end[a] || a - b);
  const free = new Lanes();
  const lanes = [];
  for (const row of order) {
    const lane = free.take(start[row], end[row]);
    (lanes[lane] ??= []).push(row);
  }
  // The tree may take a later lane first only if it is the lowest that is free, so no lane is missing.
  return lanes;
};

/** The value of rank `rank` of `values[from..to]`; reorders them. */
export const ranked = (values, rank, from = 0, to = values.length) => {
  let [low, high] = [from, to - 1];
  const wanted = from + rank;
  while (low < high) {
    const pivot = values[(low + high) >>> 1];
    let [i, j] = [low, high];
    while (i <= j) {
      while (values[i] < pivot) i++;
      while (values[j] > pivot) j--;
      if (i <= j) {
        const value = values[i];
        values[i++] = values[j];
        values[j--] = value;
      }
    }
    if (wanted <= j) high = j;
    else if (wanted >= i) low = i;
    else break;
  }
  return values[wanted];
};

/** The median of `values[from..to]`, the mean of the middle two of an even number; reorders them. */
export const median = (values, from = 0, to = values.length) => {
  const length = to - from;
  if (length === 0) return NaN;
  const upper = ranked(values, length >> 1, from, to);
  if (length % 2) return upper;
  let lower = -Infinity;
  for (let i = from; i < from + (length >> 1); i++) if (values[i] > lower) lower = values[i];
  return (lower + upper) / 2;
};
