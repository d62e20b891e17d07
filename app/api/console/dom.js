/** Elements: text from the API is always set as text, never parsed as HTML. */

import { reasonOf } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** Create an element: h("a.small", { href: "#", onclick: f, style: { width: "3px" } }, "text", node); attributes may be left out. */
export const h = (tag, ...rest) => build((name) => document.createElement(name), tag, rest);

export const svg = (tag, ...rest) => build((name) => document.createElementNS(SVG, name), tag, rest);

function build(create, tag, rest) {
  const [name, ...classes] = tag.split(".");
  const element = create(name);
  const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) setAttribute(element, key, value);
  return clear(element, rest);
}

const toNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

function setAttribute(element, name, value) {
  if (value == null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style") setStyle(element, value);
  else if (name === "value") element.value = value;
  else element.setAttribute(name, value === true ? "" : value);
}

/** Set CSS properties by script, which the security policy allows. */
export function setStyle(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

export function clear(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false).map(toNode));
  return node;
}

/** Set a text only if it changes, so that selections and screen readers stay. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const button = (label, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, label);

export function field(id, label, control, hint) {
  control.id = id;
  return h("div.field", h("label", { for: id }, label), control, hint && h("span.hint", hint));
}

/** A choice of options [value, label]; the label may be left out. */
export const select = (options) => h("select", options.map(([value, label]) => h("option", { value }, label ?? value)));

/** A section with a heading; `extra` stands at the right of the heading. */
export function card(title, ...children) {
  return h("section.card", title && h("h2", title), children);
}

/** Move elements into a parent only if their order changed, so that the focus stays. */
export function arrange(parent, elements) {
  const same = parent.children.length === elements.length && elements.every((one, k) => parent.children[k] === one);
  if (!same) clear(parent, elements);
}

const drawn = new WeakMap();

/** Put the nodes of `build(value)` into an element only if the value has changed; the focus stays at its place. */
export function redraw(node, value, build) {
  const text = JSON.stringify(value);
  if (drawn.get(node) === text) return;
  const controls = () => [...node.querySelectorAll("a, button, summary")];
  const at = controls().indexOf(document.activeElement);
  drawn.set(node, text);
  clear(node, build(value));
  controls()[at]?.focus({ preventScroll: true });
}

/** The main numbers: rows [label, value, small text below]. */
export const tiles = (rows) => h("dl.tiles", rows.map(([label, value, small]) =>
  h("div.tile", h("dt", label), h("dd", value), h("dd.tile-note", small))));

/** Names and values in columns: rows [label, value]. */
export const settings = (rows) => h("dl.settings", rows.map(([label, value]) =>
  h("div.pair", h("dt", label), h("dd", value))));

/** A short message in place of content: what is missing, and what to do next. */
export const empty = (title, ...children) => h("div.empty", h("p.empty-title", title), children);

/** A note in the colour of its kind: info, good, warning or bad. */
export const note = (kind, ...children) => h("p", { class: `note ${kind}` }, children);

export const badge = (kind, text, title) => h("span", { class: `badge ${kind}`, title }, text);

/** An address of the console: address("models", name, "why"). */
export const address = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/** A link to a page of the console. */
export const link = (text, ...parts) => h("a", { href: address(...parts) }, text);

/**
 * A table. Columns: {label, numeric, cell(row) -> text or node, title, head}; `head` marks the
 * column that names the row.
 */
export function table(columns, rows, { caption, className = "" } = {}) {
  const head = columns.map((one) =>
    h("th", { scope: "col", class: one.numeric && "numeric", title: one.title }, one.label));
  const body = rows.map((row) => h("tr", columns.map((one) => tableCell(one, row))));
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption ?? "Table" },
    h("table", { class: className }, caption && h("caption.unseen", caption),
      h("thead", h("tr", head)), h("tbody", body)));
}

function tableCell(column, row) {
  const attributes = { class: column.numeric && "numeric" };
  return column.head ? h("th", { scope: "row" }, column.cell(row)) : h("td", attributes, column.cell(row));
}

/** A meter of a share of 1 with a text beside it. */
export const meter = (value, text, label) => h("div.row",
  h("meter.grow", { value, low: 0.7, high: 0.9, optimum: 0, "aria-label": label }), h("span.numeric", text));

export function copyable(text, announce = () => {}) {
  const copy = button("Copy", async () => {
    await navigator.clipboard?.writeText(text);
    announce("Copied");
    setText(copy, "Copied");
    setTimeout(() => setText(copy, "Copy"), 1500);
  }, { class: "small" });
  return h("div.copyable", h("pre", { tabindex: "0" }, h("code", text)), copy);
}

/** Ask in a dialog; resolves to true if the action is confirmed. `details`: text or a node. */
export function confirm(text, details, { action = "Continue", kind = "primary" } = {}) {
  const cancel = h("button", { value: "cancel", autofocus: true }, "Cancel");
  const act = h("button", { value: "yes", class: kind }, action);
  const content = details && h("div.dialog-details", typeof details === "string" ? h("p", details) : details);
  return ask(text, [content, h("div.dialog-buttons", cancel, act)]).then((answer) => answer === "yes");
}

/** Show a modal dialog with a form; resolves to the `value` of the button that closed it. */
export function ask(title, children) {
  const heading = h("h2", { id: "dialog-title" }, title);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("form", { method: "dialog" }, heading, children));
  document.getElementById("dialog-root").append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    dialog.showModal();
  });
}

/** Do something and say below what came of it; resolves to whether it worked. */
export async function attempt(place, failure, work) {
  clear(place, h("p.hint", "Working…"));
  try {
    clear(place, note("good", await work()));
    return true;
  } catch (error) {
    clear(place, note("bad", failure, reasonOf(error)));
    return false;
  }
}

/** Buttons of which one is pressed: labels by key; `show(key)` presses one, and a click calls `choose(key)`. */
export function choice(labels, name, choose) {
  const buttons = Object.entries(labels).map(([key, label]) => [key, button(label, () => choose(key))]);
  const show = (wanted) => buttons.forEach(([key, one]) => one.setAttribute("aria-pressed", String(key === wanted)));
  return { element: h("div.choice", { role: "group", "aria-label": name }, buttons.map(([, one]) => one)), show };
}

/** The same for panels by key, of which one is shown. */
export function switcher(panels, labels, name) {
  const { element, show } = choice(labels, name, (key) => shown(key));
  const shown = (wanted) => {
    Object.entries(panels).forEach(([key, panel]) => { panel.hidden = key !== wanted; });
    show(wanted);
  };
  element.classList.add("switch");
  return { element, show: shown };
}
