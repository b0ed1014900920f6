// The view as the fragment of the page's address, so that a link shows what its sender saw.

const FIELDS_OF_ADDRESS = ["view", "area", "select", "search", "regex", "name", "tab"];
const spanText = ([from, to]) => `${Math.round(from)}..${Math.round(to)}`;
const readSpan = (text) => {
  const match = /^(-?\d{1,17})\.\.(-?\d{1,17})$/.exec(text ?? "");
  const span = match && [Number(match[1]), Number(match[2])];
  return span && span[0] <= span[1] ? span : null;
};
/** The types that a selection may have, and the letters of their addresses. */
const TYPES = ["range", "call", "operation", "process", "mark", "gap", "track", "node"];

/** The fragment of a state; empty for the state in which a page opens. */
export const fragmentOf = ({ view, area, select, search, regex, name, tab }) => {
  const parts = [];
  if (view) parts.push(["view", spanText(view)]);
  if (area) parts.push(["area", spanText(area)]);
  if (select) parts.push(["select", `${select.type}.${select.of === undefined ? "" : `${select.of}.`}${select.row}`]);
  if (name !== undefined && name !== null) parts.push(["name", String(name)]);
  else if (search) parts.push(["search", search], ...(regex ? [["regex", "1"]] : []));
  if (tab) parts.push(["tab", tab]);
  return parts.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
};

/** The state of a fragment. What it does not have, or what cannot be read, is absent: a fragment comes from anywhere. */
export const stateOf = (fragment) => {
  const found = {};
  for (const part of fragment.replace(/^#/, "").slice(0, 8192).split("&")) {
    const [key, value] = part.split("=", 2);
    if (!FIELDS_OF_ADDRESS.includes(key) || value === undefined) continue;
    try {
      found[key] = decodeURIComponent(value);
    } catch {
      // A broken escape is no value.
    }
  }
  const state = { view: readSpan(found.view), area: readSpan(found.area), select: null, search: (found.search ?? "").slice(0, 500), regex: found.regex === "1", name: null,
    tab: /^[a-z]{1,20}$/.test(found.tab ?? "") ? found.tab : null };
  const select = /^([a-z]{1,10})\.(?:(\d{1,9})\.)?(\d{1,9})$/.exec(found.select ?? "");
  if (select && TYPES.includes(select[1])) state.select = { type: select[1], row: Number(select[3]), ...(select[2] === undefined ? {} : { of: Number(select[2]) }) };
  if (/^\d{1,9}$/.test(found.name ?? "")) state.name = Number(found.name);
  return state;
};
