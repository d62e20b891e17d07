/** Records of the stream in words. */

import { badge, h } from "./dom.js";
import { clock, count, number, plural } from "./format.js";

const KINDS = {
  clicks: "clicks", labels: "labels", triplets: "preferences", replace: "replaced",
  retune: "settings", duel: "duel", "end-duel": "duel", "reset-measures": "reset", damaged: "damaged",
};
const OUTCOMES = {
  stepped: ["good", "stepped", "The weights moved."],
  passive: ["plain", "passive", "The order was right by a margin: no step."],
  refused: ["warning", "refused", "The step would have been too large: no step."],
};

/** One record as an item of the list, newest first. */
export function recordRow(record) {
  const [first, ...others] = record.pairs ?? [];
  const more = others.length + (record.more_pairs ?? 0);
  return h("li.record",
    h("div.record-head",
      h("span.record-time", clock(record.time)), kindBadge(record),
      h("span.record-seq", `#${count(record.seq)}`)),
    h("div.record-body",
      first ? pairLine(first, record.ids) : h("span", withoutPairs(record)),
      more > 0 && morePairs(record, others, more), origin(record)));
}

function kindBadge(record) {
  if (record.accepted === false) return badge("bad", "refused");
  const kind = { damaged: "bad", replace: "warning", retune: "warning" }[record.kind] ?? "plain";
  return badge(kind, KINDS[record.kind] ?? record.kind);
}

/** "doc-7 over doc-3 · weight 6.2 · margin 0.31 · stepped" */
function pairLine(pair, ids) {
  const [kind, word, title] = OUTCOMES[pair.outcome] ?? ["plain", pair.outcome, ""];
  return h("span.pair-line",
    documentName(pair.preferred, ids), " over ", documentName(pair.other, ids),
    h("span.pair-numbers",
      ` · weight ${number(pair.weight, 2)} · margin ${number(pair.margin, 2)} · `),
    badge(kind, word, title));
}

const documentName = (position, ids) => ids?.[position] == null
  ? `position ${position + 1}` : h("span.id", ids[position]);

function morePairs(record, others, more) {
  const hidden = more - others.length;
  return h("details", h("summary", `and ${plural(more, "more pair")}`),
    h("ul.pair-list", others.map((pair) => h("li", pairLine(pair, record.ids))),
      hidden > 0 && h("li.hint", `${plural(hidden, "pair")} not sent`)));
}

/** A record that taught no pair: what it was. */
function withoutPairs(record) {
  if (record.kind === "replace") return record.reason || "The weights were replaced.";
  if (record.kind === "duel") return record.reason || "A duel began.";
  if (record.kind === "end-duel") return record.reason || "The duel ended.";
  if (record.kind === "retune") return "The settings changed.";
  if (record.kind === "reset-measures") return "The measures start again at zero.";
  if (record.kind === "damaged") return "The record is damaged and was not learnt.";
  if (record.accepted === false) return "The learner refused this record.";
  if (record.kind === "clicks") return clicksOnly(record);
  return `${plural(record.documents ?? 0, "document")}, no pair`;
}

function clicksOnly(record) {
  const clicked = record.clicked ?? [];
  if (!clicked.length) return `No click on ${plural(record.documents ?? 0, "document")}.`;
  const names = clicked.slice(0, 5).map((at) => [" ", documentName(at, record.ids)]);
  return ["Click on", names, ": no pair."];
}

/** Where a record comes from, and how many before it were learnt without being sent. */
function origin(record) {
  const own = record.query && record.query !== record.request;
  const parts = [own && `query ${record.query}`, record.request && `request ${record.request}`,
    record.skipped > 0 && `${plural(record.skipped, "record")} before it not shown`];
  const text = parts.filter(Boolean).join(" · ");
  return text && h("span.origin", text);
}

export const gapRow = (text) => h("li.record-gap", text);
