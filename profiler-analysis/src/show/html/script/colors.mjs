// The colours of what the timeline and the tables show, for a light and a dark theme.

/** Operations that are no kernels, by kind: text, light, dark. Kernels have a colour by name. */
export const OPERATIONS = [
  ["Kernel", "#3a6ea5", "#6ea3dc"], ["Copy host to device", "#5d8a72", "#7fae95"], ["Copy device to host", "#a07a5c", "#c29b7c"],
  ["Copy device to device", "#7d719c", "#a79bc4"], ["Copy peer to peer", "#99708a", "#bf95b0"], ["Other copy", "#76808a", "#97a1ab"],
  ["Memset", "#85805a", "#aaa47c"], ["CUDA graph", "#5b8591", "#82acb8"],
];
/** API calls by class. */
export const CALLS = {
  "launch": ["Launch", "#8fb4dd", "#3d628a"], "graph launch": ["Graph launch", "#6f97cf", "#4a75a8"],
  "host function": ["Host function", "#c0c7ce", "#4b545d"],
  "copy": ["Copy call", "#a5cfb2", "#3e6b50"], "memset": ["Memset call", "#d3cd93", "#66602d"],
  "sync": ["Synchronise", "#e08a80", "#a14a43"], "wait event": ["Wait event", "#e6bfa0", "#7a5538"],
  "query": ["Query", "#c7cdd3", "#4b545d"], "alloc": ["Allocate", "#c9b3e3", "#5f4a80"],
  "free": ["Free", "#dccdec", "#52446a"], "other": ["Other call", "#c7cdd3", "#4b545d"],
};
/** The colour of a part of the clock in the stylesheet. */
export const partColor = (part) => `var(--part-${part})`;

const HUES = [205, 150, 40, 270, 95, 330, 180, 15];

export const fromHex = (text) => {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16 & 255, value >> 8 & 255, value & 255];
};
export const fromHsl = (h, s, l) => {
  const a = s * Math.min(l, 1 - l);
  const part = (n) => {
    const k = (n + h / 30) % 12;
    return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
};
/** A colour of OKLCH, whose colours of one lightness look equally light. */
export const fromOklch = (lightness, chroma, hue) => {
  const [a, b] = [chroma * Math.cos(hue * Math.PI / 180), chroma * Math.sin(hue * Math.PI / 180)];
  const [l, m, s] = [lightness + 0.3963377774 * a + 0.2158037573 * b, lightness - 0.1055613458 * a - 0.0638541728 * b,
    lightness - 0.0894841775 * a - 1.291485548 * b].map((value) => value ** 3);
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
  return linear.map((value) => {
    const v = Math.min(1, Math.max(0, value));
    return Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055));
  });
};
const luminance = ([r, g, b]) => {
  const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
};
/** A fill with the ink that reads best on it, and the fill as a pixel of an image. */
export const paint = ([r, g, b]) => {
  const light = luminance([r, g, b]);
  return { rgb: [r, g, b], fill: `rgb(${r} ${g} ${b})`, ink: 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 ? "#ffffff" : "#0d1116", pixel: b << 16 | g << 8 | r };
};

const hashOf = (row) => Math.imul(row + 1, 0x9e3779b1) >>> 0;
/** Hues of kernels. The longest kernels have the first ones, so that what matters differs most. */
const KERNEL_HUES = [255, 40, 150, 320, 90, 200, 0, 125, 285, 65, 175, 345];

/** The paints of a theme. `ranks` are the names of kernels, longest total first, `parts` the colours of parts of the clock. */
export const paintsOf = ({ data, R, C, O }, ranks, parts, isDark) => {
  // Paints by row: names, kinds of calls, and what else has numbers.
  const cache = (make) => {
    const known = [];
    return (row) => known[row] ??= make(row);
  };
  const rankOf = new Map(ranks.map((name, rank) => [name, rank]));
  const theme = isDark ? 2 : 1;
  const kernel = cache((name) => {
    const rank = rankOf.get(name) ?? hashOf(name) >>> 20;
    const hue = KERNEL_HUES[rank % KERNEL_HUES.length];
    // The second dozen is paler, and the third darker.
    const round = Math.floor(rank / KERNEL_HUES.length) % 3;
    const lightness = (isDark ? [0.7, 0.8, 0.58] : [0.6, 0.74, 0.47])[round];
    return paint(fromOklch(lightness, [0.13, 0.075, 0.11][round], hue));
  });
  const operationKind = cache((kind) => paint(fromHex((OPERATIONS[kind] ?? OPERATIONS[5])[theme])));
  const operation = (i) => (O.kind[i] === 0 ? kernel(O.name[i]) : operationKind(O.kind[i]));
  const callClass = (name) => paint(fromHex((CALLS[name] ?? CALLS.other)[theme]));
  const callKind = cache((kind) => callClass(data.call_kinds[kind][1]));
  const call = (i) => callKind(C.kind[i]);
  const named = cache((name) => {
    const hue = HUES[(hashOf(name) >>> 20) % HUES.length];
    return paint(isDark ? fromHsl(hue, 0.26, 0.31) : fromHsl(hue, 0.45, 0.85));
  });
  const given = new Map([...R.color].map(([row, color]) => [row, paint([color >> 16 & 255, color >> 8 & 255, color & 255])]));
  const range = given.size === 0 ? (i) => named(R.name[i]) : (i) => given.get(i) ?? named(R.name[i]);
  const part = cache((row) => paint(parts[row] ?? parts[parts.length - 1]));
  const marked = paint(isDark ? [234, 189, 102] : [138, 90, 0]);
  const mark = () => marked;
  const track = ({ index }, alpha) => {
    const [r, g, b] = fromHsl(HUES[index % HUES.length], 0.55, isDark ? 0.62 : 0.40);
    return `rgb(${r} ${g} ${b} / ${alpha})`;
  };
  const ofNode = (node) => named(data.nodes[node].name);
  return { kernel, operation, operationKind, call, callClass, range, named, ofNode, part, mark, track };
};
