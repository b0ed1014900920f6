// The flame graph: paths of ranges from the top, below them the kernels they caused, as wide as their GPU time, and their sampled lines.
import { summedLines } from "./sums.mjs";

/** The least share of the width that a frame takes; what is less is drawn in no frame. */
const LEAST_FRAME = 1 / 2000;

/** The sampled lines of each kernel in a path, most samples first, by node and name. Samples have no time: they are of the whole session. */
const sampledLines = ({ lines }) => {
  const kernels = new Map();
  for (const row of lines) {
    const key = `${row.node - 1} ${row.kernel}`;
    if (!kernels.has(key)) kernels.set(key, []);
    kernels.get(key).push(row);
  }
  return (node, kernel) => summedLines(kernels.get(`${node} ${kernel}`) ?? []).sort((a, b) => b.samples - a.samples);
};

/**
 * Frames of all paths and of the operations in them, widest first. `paths` has the sums of `pathsOf`, `work` those of
 * `workByPath`. A frame has its depth, its left end and its width in nanoseconds, and either a `node` or the `name` of operations or of
 * a line. A line also has its `kernel`, and of its width the share that `samples` are of `all`. A range that ended before one within it is
 * as wide as that one needs; `ns` is what it counts itself.
 */
export const framesOf = (data, { nodes, outside }, work, valueOf) => {
  const children = data.nodes.map(() => []);
  const roots = [];
  data.nodes.forEach((node, row) => (node.parent ? children[node.parent - 1] : roots).push(row));
  const own = (node) => [...(work.get(node)?.values() ?? [])].sort((a, b) => b.ns - a.ns);
  const widths = nodes.map(({ inclusive }) => valueOf(inclusive));
  for (let row = nodes.length - 1; row >= 0; row--) {
    const within = children[row].reduce((sum, child) => sum + widths[child], 0) + own(row).reduce((sum, { ns }) => sum + ns, 0);
    widths[row] = Math.max(widths[row], within);
  }
  const byValue = (rows) => rows.filter((row) => widths[row] > 0).sort((a, b) => widths[b] - widths[a]);
  const total = roots.reduce((sum, row) => sum + widths[row], 0) + valueOf(outside);
  const frames = [];
  const linesIn = sampledLines(data);
  const leaves = (node, depth, left, parent) => {
    for (const { name, kind, ns, count } of own(node)) {
      if (ns >= total * LEAST_FRAME) addLines(linesIn(node, name), frames.push({ depth, left, width: ns, name, kind, count, node: -1, parent }) - 1);
      left += ns;
    }
  };
  const addLines = (lines, parent) => {
    let { depth, left, width: ns, name: kernel, kind } = frames[parent];
    const all = lines.reduce((sum, { samples }) => sum + samples, 0);
    for (const { name, samples, stalls } of lines) {
      const width = ns * samples / all;
      // Instructions without a line have the name of the kernel.
      if (name === kernel || !(width >= total * LEAST_FRAME)) continue;
      frames.push({ depth: depth + 1, left, width, name, kind, kernel, samples, all, stalls, node: -1, parent });
      left += width;
    }
  };
  // A list instead of recursion: paths may be deeper than the stack.
  const todo = [];
  const spread = (rows, depth, left, parent) => {
    for (const row of byValue(rows)) {
      const width = widths[row];
      if (width >= total * LEAST_FRAME) todo.push([row, depth, left, width, parent]);
      left += width;
    }
    return left;
  };
  const left = spread(roots, 0, 0, -1);
  leaves(-1, 0, left, -1);
  while (todo.length) {
    const [row, depth, left, width, parent] = todo.pop();
    const ns = valueOf(nodes[row].inclusive);
    const frame = frames.push({ depth, left, width, ns, name: data.nodes[row].name, kind: -1, count: nodes[row].instances, node: row, parent }) - 1;
    const next = spread(children[row], depth + 1, left, frame);
    leaves(row, depth + 1, next, frame);
  }
  const depth = frames.reduce((most, frame) => Math.max(most, frame.depth + 1), 0);
  return { frames, total, depth };
};

/** The frames that are wide enough to see between two nanoseconds, with their place from 0 to 1. */
export const visibleFrames = ({ frames, total }, focus) => {
  const [from, width] = focus === null ? [0, total] : [frames[focus].left, frames[focus].width];
  const found = [];
  frames.forEach((frame, index) => {
    const left = Math.max(0, (frame.left - from) / width);
    const right = Math.min(1, (frame.left + frame.width - from) / width);
    if (right - left >= LEAST_FRAME) found.push({ index, frame, left, right });
  });
  return found;
};

/** The frame next to one: of its row, its first child, or its parent. */
export const neighbourFrame = ({ frames }, visible, index, key) => {
  const current = frames[index];
  if (current === undefined) return visible.reduce((first, { index: other }) => (first < 0 || frames[other].depth < frames[first].depth || (frames[other].depth === frames[first].depth && frames[other].left < frames[first].left) ? other : first), -1);
  if (key === "up") return current.parent >= 0 ? current.parent : index;
  const seen = visible.map(({ index: other }) => other);
  if (key === "down") {
    const below = seen.filter((other) => frames[other].parent === index).sort((a, b) => frames[a].left - frames[b].left);
    return below.length ? below[0] : index;
  }
  const row = seen.filter((other) => frames[other].depth === current.depth).sort((a, b) => frames[a].left - frames[b].left);
  const at = row.indexOf(index) + (key === "left" ? -1 : 1);
  return row[Math.min(Math.max(at, 0), row.length - 1)] ?? index;
};
