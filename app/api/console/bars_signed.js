/** Horizontal bars of signed numbers: a running sum with its total, and pairs. */

import { h } from "./dom.js";
import { number, withSign } from "./format.js";
import { featureLabel } from "./scoring.js";

/** A function from a value to its place in percent, on an axis that covers all values and 0. */
function axisOf(values) {
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

const sizes = () => h("colgroup", h("col.labels"), h("col"), h("col.amounts"));

const headRow = (...texts) => h("thead.unseen",
  h("tr", texts.map((text) => h("th", { scope: "col" }, text))));

/** A running sum of steps {label, note, value}; the last row is the total. */
export function runningSum(steps, total, caption) {
  const sums = [0];
  for (const step of steps) sums.push(sums.at(-1) + step.value);
  const axis = axisOf([...sums, total.value]);
  const rows = steps.map((step, at) => sumRow(step, axis, sums[at], sums[at + 1], ""));
  return h("table.pieces.sum", h("caption.unseen", caption),
    sizes(), headRow("Feature", "Running sum", "Contribution"),
    h("tbody", rows, sumRow(total, axis, 0, total.value, "total")));
}

function sumRow(step, axis, from, to, kind) {
  return h("tr", { class: kind },
    labelCell(step.label, step.note),
    h("td.track-cell", h("div.track", { "aria-hidden": "true" },
      line(axis, 0, "zero"), bar(axis, from, to, step.value < 0 ? "down" : "up"),
      !kind && line(axis, to, "joint"))),
    h("td.numeric", withSign(step.value)));
}

const labelCell = (label, note) => h("th", { scope: "row" },
  h("span.piece-label", label), note && h("span.formula", note));

/** Pairs of weights {feature, before, after, error: of the second}, on one axis. */
export function pairedBars(rows, [before, after], caption) {
  const axis = axisOf(rows.flatMap((row) => [row.before, row.after]));
  return h("div", legend(before, after),
    h("table.pieces", h("caption.unseen", caption),
      sizes(), headRow("Feature", `${before}, ${after}`, "Change"),
      h("tbody", rows.map((row) => pairedRow(row, axis)))));
}

function legend(before, after) {
  const key = (kind, text) => h("span.key", h("span", { class: `swatch ${kind}` }), text);
  return h("p.legend", { "aria-hidden": "true" }, key("before", before), key("after", after));
}

function pairedRow(row, axis) {
  const change = row.after - row.before;
  return h("tr", labelCell(featureLabel(row.feature), pairNote(row)),
    h("td.track-cell", h("div.track.double", { "aria-hidden": "true" },
      line(axis, 0, "zero"), bar(axis, 0, row.before, "before"), bar(axis, 0, row.after, "after"))),
    h("td.numeric", withSign(change), direction(change)));
}

const pairNote = ({ before, after, error }) =>
  `${number(before)} → ${number(after)}${error == null ? "" : ` ± ${number(error, 2)}`}`;

/** Weights {label, note, value, error} with whiskers of ± error, on an axis that ends at ± most. */
export function weightBars(rows, most, caption) {
  const inside = (value) => Math.max(-most, Math.min(most, value));
  const least = rows.some((row) => row.value - (row.error ?? 0) < 0) ? -most : 0;
  const axis = axisOf([least, most]);
  return h("table.pieces", h("caption.unseen", caption), sizes(), headRow("Feature", "Weight", "Weight"),
    h("tbody", rows.map((row) => h("tr", { title: row.title }, labelCell(row.label, row.note),
      h("td.track-cell", h("div.track", { "aria-hidden": "true" },
        line(axis, 0, "zero"), bar(axis, 0, row.value, row.value < 0 ? "down" : "up"),
        row.error > 0 && bar(axis, inside(row.value - row.error), inside(row.value + row.error), "whisker"))),
      h("td.numeric", number(row.value))))));
}

/** A triangle for the direction of a change. */
export function direction(change) {
  if (!change) return null;
  const kind = change > 0 ? "rise" : "fall";
  return h("span", { class: `direction ${kind}`, "aria-hidden": "true" }, change > 0 ? " ▲" : " ▼");
}
