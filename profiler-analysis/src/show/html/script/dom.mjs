// Elements. Names reach the page through `textContent` alone.
import { headAndTail } from "./units.mjs";

export const byId = (id) => document.getElementById(id);

export const element = (tag, properties = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
};
export const button = (text, onclick, more = {}) => element("button", { type: "button", onclick, ...more }, text);
/** Makes a name the text of an element that shows its beginning and its end where it lacks room for the whole. */
export const withName = (made, name, end) => {
  const [head, tail] = headAndTail(name, end);
  made.classList.add("fit");
  if (tail === "") made.textContent = head;
  else {
    made.append(element("span", { class: "head" }, head), element("span", { class: "tail" }, tail));
    // Else assistive technology reads two words.
    if (made.tagName === "BUTTON") made.setAttribute("aria-label", name);
  }
  return made;
};
/** A name that does something when it is clicked. */
export const nameButton = (name, onclick, more = {}) => withName(element("button", { type: "button", onclick, class: "link", ...more }), name);
export const muted = (...children) => element("p", { class: "muted" }, ...children);
export const withUnit = ([number, unit]) => [number, element("span", { class: "unit" }, unit)];
/** A square of a colour, as in a legend. */
export const swatch = (color) => {
  const made = element("i", { class: "swatch", "aria-hidden": "true" });
  made.style.background = color;
  return made;
};
/** A list of labels and values; pairs without a value are left out. */
export const facts = (pairs, look) => {
  const list = element("dl", { class: look });
  for (const [label, value, type] of pairs) {
    if (value === undefined || value === null || value === "") continue;
    list.append(element("dt", {}, label), element("dd", type ? { class: type } : {}, value));
  }
  return list;
};
const plainRow = (tag, values) => element("tr", {}, ...values.map((value, at) => element(tag, { scope: tag === "th" ? "col" : undefined, class: at ? undefined : tag === "td" && typeof value === "string" ? "text name-cell" : "text" }, value)));
/** A table that neither sorts nor filters. */
export const plainTable = (caption, head, rows) =>
  element("div", { class: "sheet", tabindex: "0", role: "region", "aria-label": caption }, element("table", {}, element("caption", {}, caption), element("thead", {}, plainRow("th", head)), element("tbody", {}, ...rows.map((row) => plainRow("td", row)))));

/** Makes the canvas as large as its place, with the pixels of the screen, and returns its context. */
export const sized = (canvas, width, height) => {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
};
/** The part of a text that fits into a width. */
export const fittedText = (context, text, width) => {
  if (context.measureText(text).width <= width) return text;
  let kept = text.slice(0, Math.max(1, Math.floor(width / 5)));
  while (kept.length > 1 && context.measureText(`${kept}\u2026`).width > width) kept = kept.slice(0, -1);
  return `${kept}\u2026`;
};
