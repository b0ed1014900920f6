// Draws the items of lanes: what is wide as boxes with names, what is narrow as the share of a pixel that it covers.
import { firstAbove, firstFrom } from "./arrays.mjs";
import { REASONS, SLOWING } from "./model.mjs";

/** Boxes of fewer pixels are drawn by the pixel. */
const NARROW = 2;

/** An image with a row for each lane: pixels of narrow items, stretched over the lane's height when all are drawn. */
export class Strips {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.places = [];
    this.width = 0;
  }
  start(width) {
    this.places = [];
    if (this.width === width) return;
    this.width = width;
    this.rows = 0;
  }
  /** The pixels of a new row, which is drawn at `y`. */
  row(y, height) {
    const at = this.places.push([y, height]) - 1;
    if (at >= this.rows) this.grow(at + 1);
    const row = this.pixels.subarray(at * this.width, (at + 1) * this.width);
    row.fill(0);
    return row;
  }
  grow(rows) {
    const old = this.rows ? this.pixels : new Uint32Array();
    this.rows = Math.max(16, 2 * rows);
    this.canvas.width = this.width;
    this.canvas.height = this.rows;
    this.context = this.canvas.getContext("2d");
    this.image = this.context.createImageData(this.width, this.rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.pixels.set(old.subarray(0, Math.min(old.length, this.pixels.length)));
  }
  draw(context, left, width) {
    if (this.places.length === 0) return;
    this.context.putImageData(this.image, 0, 0, 0, 0, this.width, this.places.length);
    context.imageSmoothingEnabled = false;
    this.places.forEach(([y, height], row) => context.drawImage(this.canvas, 0, row, this.width, 1, left, y, width, height));
  }
}

/** Lays a colour over a pixel; `alpha` is from 0 to 1. */
const blend = (row, x, pixel, alpha) => {
  const under = row[x];
  const below = under >>> 24;
  if (below === 0) {
    row[x] = (Math.round(alpha * 255) << 24 | pixel) >>> 0;
    return;
  }
  const mix = (shift) => Math.round((under >>> shift & 255) * (1 - alpha) + (pixel >>> shift & 255) * alpha) << shift;
  row[x] = (Math.max(below, Math.round(alpha * 255)) << 24 | mix(16) | mix(8) | mix(0)) >>> 0;
};

/**
 * Draws a lane at `y`. `pen` has the canvas's context, the visible times, where the plot begins, its width, pixels of the screen a
 * pixel, the glyph's width and the colours. `strip` is the lane's row of pixels; `nameOf` is `null` for items without names.
 */
export const drawLane = (pen, lane, y, strip, paintOf, nameOf) => {
  const { context, from, to, gutter, plot, ratio, glyph, colors } = pen;
  const { start, end, rows, before, length, hits, isSearched } = lane;
  const unit = plot * ratio / (to - from);
  const height = lane.height - 2;
  const right = plot * ratio + 8 * ratio;
  let [alpha, style] = [1, null];
  context.globalAlpha = 1;
  // A context takes its time over a style that is set again.
  const brush = (newAlpha, newStyle) => {
    if (newAlpha !== alpha) context.globalAlpha = alpha = newAlpha;
    if (newStyle !== style) context.fillStyle = style = newStyle;
  };
  let last = -1;
  let i = firstFrom(end, from);
  while (i < length && start[i] <= to) {
    const x = (start[i] - from) * unit;
    const wide = (end[i] - start[i]) * unit;
    if (wide >= NARROW * ratio) {
      const left = gutter + Math.max(x, 0) / ratio;
      const width = gutter + Math.min(x + wide, right) / ratio - left;
      const { fill, ink } = paintOf(rows[i]);
      const isHit = hits[i + 1] > hits[i];
      brush(isHit ? 1 : 0.22, fill);
      context.fillRect(left, y, width > 4 ? width - 0.75 : width, height);
      const room = Math.floor((width - 8) / glyph);
      if (room >= 3 && nameOf !== null) {
        const name = nameOf(i, room);
        brush(isHit ? 1 : 0.6, isHit ? ink : colors.muted);
        context.fillText(name.length > room ? `${name.slice(0, room - 1)}\u2026` : name, left + 4, y + height / 2 + 0.5);
      }
      i++;
      continue;
    }
    // All that is in this pixel, the next after the last that was drawn; a last one that is wide is drawn by itself.
    const pixel = Math.max(Math.floor(x), last + 1, 0);
    if (pixel >= strip.length) break;
    const since = from + pixel / unit;
    const until = from + (pixel + 1) / unit;
    if (end[i] < since) {
      i++;
      continue;
    }
    let next = lane.from(until, i + 1);
    if (next > i + 1 && (end[next - 1] - start[next - 1]) * unit >= NARROW * ratio) next--;
    let longest = i;
    for (let j = i + 1; j < next && j < i + 8; j++) if (end[j] - start[j] > end[longest] - start[longest]) longest = j;
    const isHit = hits[next] > hits[i];
    const cut = Math.max(0, since - start[i]) + Math.max(0, end[next - 1] - until);
    const covered = Math.min(1, (before[next] - before[i] - cut) * unit);
    blend(strip, pixel, paintOf(rows[longest]).pixel, (isSearched && isHit ? 1 : 0.35 + 0.65 * covered) * (isHit ? 1 : 0.3));
    last = pixel;
    i = end[next - 1] > until ? next - 1 : next;
  }
  context.globalAlpha = 1;
};

/** Marks have no length: a diamond each, one a pixel. */
export const drawMarks = (pen, lane, y, fill) => {
  const { context, from, to, gutter, plot } = pen;
  const { start, length, hits } = lane;
  const scale = plot / (to - from);
  const middle = y + (lane.height - 2) / 2;
  context.fillStyle = fill;
  let last = -Infinity;
  for (let i = firstFrom(start, from); i < length && start[i] <= to;) {
    const next = lane.from(start[i] + 1 / scale, i + 1);
    const x = gutter + (start[i] - from) * scale;
    if (x >= last + 0.5) {
      context.globalAlpha = hits[next] === hits[i] ? 0.25 : 1;
      context.beginPath();
      context.moveTo(x, middle - 5);
      context.lineTo(x + 4, middle);
      context.lineTo(x, middle + 5);
      context.lineTo(x - 4, middle);
      context.fill();
      last = x;
    }
    i = next;
  }
  context.globalAlpha = 1;
};

/** The sums of a track's values by pixel: area and time for the mean, and the most. */
const pixelsOf = ({ start, end, value, most, unit }, length, from, to, scale, width) => {
  const [area, covered, peak] = [new Float64Array(width), new Float64Array(width), new Float64Array(width)];
  for (let i = firstAbove(end, from); i < length && start[i] <= to; i++) {
    const left = Math.max(0, (start[i] - from) * scale);
    const right = Math.min(width, (end[i] - from) * scale);
    const last = Math.min(width - 1, Math.floor(right));
    for (let x = Math.floor(left); x <= last; x++) {
      const part = Math.min(right, x + 1) - Math.max(left, x);
      if (part <= 0) continue;
      area[x] += value[i] * part;
      covered[x] += part;
      if (unit === "flags") peak[x] |= value[i];
      else if (most[i] > peak[x]) peak[x] = most[i];
    }
  }
  return { area, covered, peak };
};

/**
 * A sampler's values: of each pixel the mean by time and behind it, paler, the most. Nothing is drawn where nothing is known. A state
 * is a line in steps.
 */
export const drawTrack = (pen, { track, height, length }, y, colorOf) => {
  const { context, from, to, gutter, plot } = pen;
  const isFlags = track.unit === "flags";
  const width = Math.ceil(plot) + 8;
  const { area, covered, peak } = pixelsOf(track, length, from, to, plot / (to - from), width);
  const floor = y + height - 3;
  // A flag is on or off; reasons for low clocks that are no trouble are low.
  const flag = (value) => (value === 0 ? 0 : track.name !== REASONS || Math.round(value) & SLOWING ? 1 : 0.3);
  const high = (share) => (height - 6) * (isFlags ? flag(share) : Math.min(1, Math.max(0, share / (track.top || 1))));
  const fill = (heightOf, alpha) => {
    context.fillStyle = colorOf(alpha);
    context.beginPath();
    for (let x = 0; x < width;) {
      if (covered[x] === 0) {
        x++;
        continue;
      }
      const h = heightOf(x);
      let next = x + 1;
      while (next < width && covered[next] > 0 && heightOf(next) === h) next++;
      if (h > 0) context.rect(gutter + x, floor - h, next - x, h);
      x = next;
    }
    context.fill();
  };
  const mean = (x) => Math.round(high(isFlags ? peak[x] : area[x] / covered[x]) * 2) / 2;
  const isState = track.kind === "state" && !isFlags;
  fill((x) => Math.round(high(peak[x]) * 2) / 2, isState ? 0.08 : 0.28);
  if (!isState) fill(mean, isFlags ? 0.5 : 0.62);
  // The line tells a value of 0 from none.
  context.strokeStyle = colorOf(1);
  context.lineWidth = isState ? 1.5 : 1;
  context.beginPath();
  let isOpen = false;
  for (let x = 0; x < width; x++) {
    if (covered[x] === 0) {
      isOpen = false;
      continue;
    }
    const h = floor - mean(x);
    if (!isOpen) context.moveTo(gutter + x, h);
    context.lineTo(gutter + x, h);
    context.lineTo(gutter + x + 1, h);
    isOpen = true;
  }
  context.stroke();
};
