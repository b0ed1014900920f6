// What the page shows now, and who redraws when it changes.

/** The state of the page: set by the functions of the other modules, each of which names its event. */
export const state = {
  /** The tables, their rows in the timeline, and the paints of the theme. */
  model: null, rows: null, paints: null, isDark: false,
  /** The visible time, and the selected time or `null`. Events: view, area. */
  view: [0, 1], area: null,
  /** The selected item or `null`, what it caused, and the item under the pointer. Events: selection, hover. */
  selected: null, work: null, hovered: null,
  /** What is searched, what was found, and the item of it that is shown. Event: search. */
  query: { text: "", isRegex: false, name: null }, search: null, place: null,
  /** Items to step through, such as the evidence of a finding: a title, items and the one that is shown. Event: trail. */
  trail: null,
  /** Whether tables follow the selection and the visible time, and the tab that is open or `null`. Events: scope, tab. */
  follows: true, tab: null,
};

const listeners = new Map();
export const on = (events, listener) => {
  for (const event of events.split(" ")) listeners.set(event, [...(listeners.get(event) ?? []), listener]);
};
export const emit = (event) => (listeners.get(event) ?? []).forEach((listener) => listener());
