/** Horizontal bars of signed numbers: a running sum that ends in its total, and pairs of values. */

import { h } from "./dom.js";
import { number } from "./format.js";
import { withSign } from "./numbers.js";
import { featureLabel } from "./scoring.js";

/** A function from a value to its place in percent, on an axis that covers all values and 0. */
export function axisOf(values) {
  const least = values.reduce((a, b) => Math.min(a, b), 0);
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  const width = most - least || 1;
  return (value) => (100 * (value - least)) / width;
}

function bar(axis, from, to, kind) {
  if (from === to) return null;
  const [left, right] = [axis(Math.min(from, to)), axis(Math.max(from, to))];
  return h("span", { class: `piece ${kind}`, style: { left: `${left}%`, width: `${right - left}%` } });
}

const line = (axis, at, kind) => h("span", { class: kind, style: { left: `${axis(at)}%` } });

const sizes = () => h("colgroup", {}, h("col", { class: "labels" }), h("col", {}), h("col", { class: "amounts" }));

const headRow = (...texts) => h("thead", { class: "unseen" },
  h("tr", {}, texts.map((text) => h("th", { scope: "col" }, text))));

/** A running sum of steps {label, note, value}; the last row is the total. */
export function runningSum(steps, total, caption) {
  const sums = [0];
  for (const step of steps) sums.push(sums.at(-1) + step.value);
  const axis = axisOf([...sums, total.value]);
  const rows = steps.map((step, at) => sumRow(step, axis, sums[at], sums[at + 1], ""));
  return h("table", { class: "pieces sum" }, h("caption", { class: "unseen" }, caption),
    sizes(), headRow("Feature", "Running sum", "Contribution"),
    h("tbody", {}, rows, sumRow(total, axis, 0, total.value, "total")));
}

function sumRow(step, axis, from, to, kind) {
  return h("tr", { class: kind },
    labelCell(step.label, step.note),
    h("td", { class: "track-cell" }, h("div", { class: "track", "aria-hidden": "true" },
      line(axis, 0, "zero"), bar(axis, from, to, step.value < 0 ? "down" : "up"),
      !kind && line(axis, to, "joint"))),
    h("td", { class: "numeric" }, withSign(step.value)));
}

const labelCell = (label, note) => h("th", { scope: "row" },
  h("span", { class: "piece-label" }, label), note && h("span", { class: "formula" }, note));

/** Pairs of weights {feature, before, after, error: of the second or absent}, on one axis. */
export function pairedBars(rows, [before, after], caption) {
  const axis = axisOf(rows.flatMap((row) => [row.before, row.after]));
  return h("div", {}, legend(before, after),
    h("table", { class: "pieces" }, h("caption", { class: "unseen" }, caption),
      sizes(), headRow("Feature", `${before}, ${after}`, "Change"),
      h("tbody", {}, rows.map((row) => pairedRow(row, axis)))));
}

function legend(before, after) {
  const key = (kind, text) => h("span", { class: "key" }, h("span", { class: `swatch ${kind}` }), text);
  return h("p", { class: "legend", "aria-hidden": "true" }, key("before", before), key("after", after));
}

function pairedRow(row, axis) {
  const change = row.after - row.before;
  return h("tr", {}, labelCell(featureLabel(row.feature), pairNote(row)),
    h("td", { class: "track-cell" }, h("div", { class: "track double", "aria-hidden": "true" },
      line(axis, 0, "zero"), bar(axis, 0, row.before, "before"), bar(axis, 0, row.after, "after"))),
    h("td", { class: "numeric" }, withSign(change), direction(change)));
}

const pairNote = ({ before, after, error }) =>
  `${number(before)} → ${number(after)}${error == null ? "" : ` ± ${number(error, 2)}`}`;

/** A triangle for the direction of a change. */
export function direction(change) {
  if (!change) return null;
  const kind = change > 0 ? "rise" : "fall";
  return h("span", { class: `direction ${kind}`, "aria-hidden": "true" }, change > 0 ? " ▲" : " ▼");
}
