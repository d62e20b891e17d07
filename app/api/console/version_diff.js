/** The difference of two versions: weights, and recent lists that change. */

import { path } from "./api.js";
import { pairedBars } from "./bars_signed.js";
import { h, note } from "./dom.js";
import { number, plural } from "./format.js";

/** Read the difference; `a` and `b` are numbers, names or "current". */
export const readDiff = (api, name, a, b) => api.get(path`models/${name}/versions/${a}/diff/${b}`);

/** The difference as nodes: at most `most` weights, and the lists. */
export function diffOf(diff, labels, most) {
  return [listsSummary(diff.lists), h("div.diff-parts",
    weightsOf(diff, labels, most), diff.lists && changedLists(diff.lists, labels))];
}

function listsSummary(lists) {
  if (lists === null) return note("info", "Which recent lists change is shown to a key with the scope admin.");
  if (!lists.length) return h("p.verdict", "No recent list to compare.");
  const changed = lists.filter((one) => one.moved > 0);
  if (!changed.length) return h("p.verdict", `None of ${plural(lists.length, "recent list")} changes.`);
  const moved = changed.reduce((sum, one) => sum + one.moved, 0);
  return h("p.verdict", h("b", `${changed.length} of ${plural(lists.length, "recent list")}`),
    ` change; ${plural(moved, "document moves", "documents move")}.`);
}

function weightsOf({ weights, rest }, labels, most) {
  const rows = weights.slice(0, most).filter((one) => one.change !== 0)
    .map((one) => ({ feature: one.feature, before: one.a, after: one.b }));
  if (!rows.length) return h("p", "All weights are equal.");
  return h("div", h("h3", "Weights, largest changes first"),
    pairedBars(rows, labels, "Weights of both versions"), moreWeights(weights.slice(rows.length), rest));
}

function moreWeights(hidden, rest) {
  const others = hidden.filter((one) => one.change !== 0).length + rest.features;
  const largest = Math.max(rest.largest_change ?? 0, ...hidden.map((one) => Math.abs(one.change)));
  if (!others || !largest) return null;
  return h("p.hint", `${plural(others, "other weight")}, changed by at most ${number(largest)}`);
}

function changedLists(lists, labels) {
  const changed = lists.filter((one) => one.moved > 0);
  if (!changed.length) return null;
  return h("div", h("h3", "Lists that change"), changed.map((one, at) => changedList(one, at + 1, labels)));
}

function changedList(one, place, labels) {
  return h("details.changed-list",
    h("summary", `List ${place}: ${one.moved} of ${plural(one.documents, "document")} move`),
    h("p.hint", `request ${one.request}`),
    h("div.two-orders", orderOf(one.a, labels[0], null), orderOf(one.b, labels[1], one.a)));
}

function orderOf(ids, label, before) {
  return h("div", h("p.hint", label), h("ol", ids.map((id, at) =>
    h("li", { class: before && before[at] !== id && "moved" }, h("span.id", id)))));
}
