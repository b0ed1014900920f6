// Numbers and names as texts.

/** The text with at most `most` characters; longer text loses a part after its head. */
export const shortened = (text, most) => {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) * 0.6);
  return `${text.slice(0, head)}\u2026${text.slice(text.length - (most - 1 - head))}`;
};

/** The width of a character in columns of a monospace font. */
const columnsOf = (character) => (character >= "\u1100" ? 2 : 1);
const columns = (characters) => characters.reduce((sum, character) => sum + columnsOf(character), 0);
/** Columns of a beginning that is shortened, as the style has them. */
const LEAST_HEAD = 6;
/** Splits a name in two, of which the second stays visible where room lacks: at most `end` columns, none of a short name. */
export const headAndTail = (name, end = 12) => {
  const characters = [...name];
  if (columns(characters) <= LEAST_HEAD + end) return [name, ""];
  let cut = characters.length;
  for (let room = end; room >= columnsOf(characters[cut - 1]); cut--) room -= columnsOf(characters[cut - 1]);
  return [characters.slice(0, cut).join(""), characters.slice(cut).join("")];
};

export const count = (value) => Math.round(value).toLocaleString("en-US");
export const plural = (number, what, many = `${what}s`) => `${count(number)} ${number === 1 ? what : many}`;

/** A number and its unit: the last of `units`, pairs of a size and a name, that the value reaches. */
const scaled = (value, units) => {
  let [size, unit] = units[0];
  for (const [bound, name] of units) if (Math.abs(value) >= bound) [size, unit] = [bound, name];
  const number = value / size;
  const large = Math.abs(number);
  const digits = size === 1 ? (Number.isInteger(value) ? 0 : 1) : large >= 100 ? 1 : large >= 10 ? 2 : 3;
  return [number.toFixed(digits), unit];
};
const TIMES = [[1, "ns"], [1e3, "\u00b5s"], [1e6, "ms"], [1e9, "s"]];
const BYTES = [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]];
const PREFIXES = [[1e-3, "m"], [1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]];

export const timeParts = (ns) => scaled(ns, TIMES);
export const byteParts = (bytes) => scaled(bytes, BYTES);
export const time = (ns) => timeParts(ns).join(" ");
export const bytes = (value) => byteParts(value).join(" ");
/** A value with a decimal prefix: `1.980 GHz`. */
export const decimal = (value, unit) => scaled(value, PREFIXES.slice(1).map(([size, prefix]) => [size, `${prefix}${unit}`])).join(" ").trim();
/** Bytes over nanoseconds; empty without a time. */
export const rate = (moved, ns) => (ns > 0 ? decimal(moved / ns * 1e9, "B/s") : "");
/** Energy; small values keep their digits. */
export const joules = (value) => scaled(value, PREFIXES.map(([size, prefix]) => [size, `${prefix}J`])).join(" ");

/** The value of a sampled metric with its unit. */
export const measured = (value, unit) => {
  switch (unit) {
    case "percent": return `${value.toFixed(1)} %`;
    case "bytes": return bytes(value);
    case "bytes_per_second": return decimal(value, "B/s");
    case "hertz": return decimal(value, "Hz");
    case "nanoseconds": return time(value);
    case "joules": return joules(value);
    case "watts": return `${value.toFixed(1)} W`;
    case "celsius": return `${value.toFixed(0)} \u00b0C`;
    case "flags": return `0x${Math.round(value).toString(16)}`;
    default: return Math.abs(value) < 1000 ? String(+value.toPrecision(4)) : decimal(value, "");
  }
};

/** A share in percent; one above zero never reads as zero. */
export const percent = (part, whole) => {
  const share = whole > 0 ? 100 * part / whole : 0;
  return share > 0 && share < 0.05 ? "< 0.1 %" : `${share.toFixed(1)} %`;
};

/** The distance of ticks for about `most` of them in `span`: 1, 2 or 5 of a power of ten. */
export const tickStep = (span, most) => {
  const rough = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
};

/** The times of ticks between two times: at most 200, also where a step is less than what a number resolves. */
export const ticksBetween = (from, to, step) => {
  const found = [];
  const first = Math.ceil(from / step);
  for (let i = 0; i < 200 && (first + i) * step <= to; i++) found.push((first + i) * step);
  return found;
};

/** A tick's time with the digits that tell it from the next. */
export const tickText = (t, step) => {
  const reach = Math.max(Math.abs(t), step);
  const [size, unit] = [...TIMES].reverse().find(([size]) => reach >= size) ?? TIMES[0];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${(t / size).toFixed(digits)} ${unit}`;
};
