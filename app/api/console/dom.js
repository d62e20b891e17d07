/** Elements: text from the API is always set as text, never parsed as HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** Create an element: h("a", {class: "x", href: "#", onclick: f, style: {width: "3px"}}, "text", node). */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** Create an element of SVG. */
export const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false).map(toNode));
  return element;
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

/** Remove all children, and append others. */
export function clear(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false).map(toNode));
  return node;
}

/** Set the text of an element only if it changes, so that selections and screen readers stay. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A button. */
export const button = (label, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, label);

/** A section with a heading; `extra` stands at the right of the heading. */
export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", {}, title), children);
}

/** A short message in place of content: what is missing, and what to do next. */
export const empty = (title, ...children) => h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), children);

/** A note in the colour of its kind: info, good, warning or bad. */
export const note = (kind, ...children) => h("p", { class: `note ${kind}` }, children);

/** A small label in the colour of its kind. */
export const badge = (kind, text, title) => h("span", { class: `badge ${kind}`, title }, text);

/** An address of the console: address("models", name, "why"). */
export const address = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/**
 * A table. Columns: {label, numeric, cell(row) -> text or node, title, head}; `head` marks the
 * column that names the row.
 */
export function table(columns, rows, { caption, className = "" } = {}) {
  const head = columns.map((one) =>
    h("th", { scope: "col", class: one.numeric && "numeric", title: one.title }, one.label));
  const body = rows.map((row) => h("tr", {}, columns.map((one) => tableCell(one, row))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption ?? "Table" },
    h("table", { class: className }, caption && h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

function tableCell(column, row) {
  const attributes = { class: column.numeric && "numeric" };
  return column.head ? h("th", { scope: "row" }, column.cell(row)) : h("td", attributes, column.cell(row));
}

/**
 * Horizontal bars from a common zero line. Rows: {label, value, error, text, title, kind}; `error` is
 * a whisker of ± error, `text` what stands at the right.
 */
export function bars(rows, { caption = "Bars", max = largest(rows) } = {}) {
  const signed = rows.some((row) => row.value - (row.error ?? 0) < 0);
  return h("table", { class: "bars" }, h("caption", { class: "unseen" }, caption),
    h("tbody", {}, rows.map((row) => barRow(row, max || 1, signed))));
}

const largest = (rows) => Math.max(0, ...rows.map((row) => Math.abs(row.value) + (row.error ?? 0)));

function barRow(row, max, signed) {
  return h("tr", { title: row.title },
    h("th", { scope: "row" }, row.label),
    h("td", { class: "bar-cell" }, barTrack(row, max, signed)),
    h("td", { class: "numeric" }, row.text));
}

function barTrack(row, max, signed) {
  const place = (value) => (signed ? 50 + (50 * value) / max : (100 * value) / max);
  const [from, to] = [place(Math.min(0, row.value)), place(Math.max(0, row.value))];
  const bar = h("div", { class: `bar ${row.kind ?? (row.value < 0 ? "negative" : "positive")}`, style: span(from, to) });
  const error = row.error > 0 && whisker(place(row.value - row.error), place(row.value + row.error));
  return h("div", { class: "bar-track", "aria-hidden": "true" },
    signed && h("div", { class: "bar-zero" }), bar, error);
}

/** A line with ends; an end that is cut off at the edge of the track has none. */
function whisker(from, to) {
  return h("div", { class: `whisker${from < 0 ? " cut-low" : ""}${to > 100 ? " cut-high" : ""}`, style: span(from, to) });
}

function span(from, to) {
  const [low, high] = [Math.max(0, from), Math.min(100, to)];
  return { left: `${low}%`, width: `${Math.max(0, high - low)}%` };
}

/** A meter of a share of 1 with a text beside it. */
export function meter(share, text, label) {
  const kind = share >= 0.9 ? "bad" : share >= 0.7 ? "warning" : "good";
  const filled = h("div", { class: `meter-filled ${kind}`, style: { width: `${Math.min(100, 100 * share)}%` } });
  const bar = h("div", {
    class: "meter", role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100",
    "aria-valuenow": String(Math.round(100 * share)), "aria-valuetext": text }, filled);
  return h("div", { class: "meter-row" }, bar, h("span", { class: "numeric" }, text));
}

/** A text to copy, with a button. */
export function copyable(text, announce = () => {}) {
  const copy = button("Copy", async () => {
    await navigator.clipboard?.writeText(text);
    announce("Copied");
    setText(copy, "Copied");
    setTimeout(() => setText(copy, "Copy"), 1500);
  }, { class: "small" });
  return h("div", { class: "copyable" }, h("pre", { tabindex: "0" }, h("code", {}, text)), copy);
}

/** Ask in a dialog; resolves to true if the action is confirmed. `details`: text or a node. */
export function confirm(text, details, { action = "Continue", kind = "primary" } = {}) {
  const cancel = h("button", { value: "cancel", autofocus: true }, "Cancel");
  const act = h("button", { value: "yes", class: kind }, action);
  const content = details && h("div", { class: "dialog-details" }, typeof details === "string" ? h("p", {}, details) : details);
  return ask(text, [content, h("div", { class: "dialog-buttons" }, cancel, act)]).then((answer) => answer === "yes");
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
