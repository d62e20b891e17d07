/** What clicks would teach: pairs, weights before and after, documents that move. */

import { direction, pairedBars } from "./bars_signed.js";
import { badge, h, note } from "./dom.js";
import { count, plural } from "./format.js";

const FIRST_WEIGHTS = 10;
const FIRST_PAIRS = 8;
const KINDS = { stepped: "good", passive: "plain", refused: "warning" };

/** The answer of POST what-if of a model with this gamma. */
export function lesson(answer, gamma) {
  const taught = answer.pairs.length
    ? [summary(answer), pairsOf(answer), weightsOf(answer, gamma), movesOf(answer)] : [noPair()];
  const note = `Computed on a copy of version ${count(answer.version)}; nothing was stored.`;
  return [taught, h("p.hint", note)];
}

function noPair() {
  return note("info", "This click teaches nothing: no document above it was passed over, or the "
    + "order leaves no doubt. Click a document further down.");
}

function summary({ pairs, more_pairs: more, weights, more_weights = 0 }) {
  const stepped = pairs.filter((one) => one.outcome === "stepped").length;
  const moved = plural(weights.length + more_weights, "weight");
  return h("p.verdict", `${plural(pairs.length + more, "pair")}, `,
    stepped ? `${count(stepped)} of them moved ${moved}.` : "none moved the weights.");
}

function pairsOf({ pairs, more_pairs: more }) {
  const lines = pairs.slice(0, FIRST_PAIRS).map((one) => h("li", h("span.id", one.preferred),
    " over ", h("span.id", one.other), " ", badge(KINDS[one.outcome] ?? "plain", one.outcome)));
  const hidden = pairs.length - lines.length + more;
  return h("details", h("summary", "Pairs"),
    h("ul.pair-list", lines,
      hidden > 0 && h("li.hint", `and ${plural(hidden, "more pair")}`)));
}

/** Weights that move; ± is the standard error `σ/√γ`, in the unit of the weight. */
function weightsOf({ weights, more_weights: more = 0 }, gamma) {
  if (!weights.length) return null;
  const rows = weights.slice(0, FIRST_WEIGHTS).map((one) => ({
    ...one, error: one.stddev_after === null ? null : one.stddev_after / Math.sqrt(gamma) }));
  const hidden = weights.length - rows.length + more;
  return h("div", h("h3", "Weights"), pairedBars(rows, ["now", "after this click"], "Weights that move"),
    hidden > 0 && h("p.hint", `${plural(hidden, "weight")} more with smaller changes`));
}

function movesOf({ order_before: before, order_after: after }) {
  const places = new Map(before.map((id, at) => [id, at]));
  const moves = after.map((id, at) => ({ id, from: places.get(id), to: at })).filter((one) => one.from !== one.to);
  const lines = moves.map(({ id, from, to }) => h("li", h("span.id", id),
    ` ${from + 1} → ${to + 1}`, direction(from - to)));
  return h("div", h("h3", "Order"),
    moves.length ? h("ul.moves", lines) : h("p", "No document changes its place."));
}
