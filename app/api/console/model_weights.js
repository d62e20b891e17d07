/** The weights of a model by their effect, with their uncertainty and their change over time. */

import { weightBars } from "./bars_signed.js";
import { button, clear, h, setText } from "./dom.js";
import { count, number } from "./format.js";

const FIRST = 15;
const MOST = 200;
const HOUR = 3600000;

/** The card of the weights; `page` has `model`, `history` and `span` (hour or day). */
export function weightsCard(page) {
  const box = h("div");
  const hint = h("p.hint");
  const more = button("", () => {
    page.allWeights = !page.allWeights;
    update();
  }, { class: "small", hidden: true });
  const element = h("section.card",
    h("div.card-head", h("h2", "Weights by effect"), more), box, hint);

  function update() {
    const all = byEffect(page.model);
    const shown = all.slice(0, page.allWeights ? MOST : FIRST);
    more.hidden = all.length <= FIRST;
    setText(more, page.allWeights ? "Show fewer" : `Show ${count(Math.min(MOST, all.length))}`);
    setText(hint, hintText(page, all.length));
    const before = earlierWeights(page);
    clear(box, weightBars(shown.map((one) => weightRow(one, before)), scaleOf(shown), "Weights by effect"));
  }
  return { element, update };
}

/**
 * Weights with their standard errors, the largest |w|/σ first (|w| without σ). Σ is in units of the
 * noise γ, so the standard error of a weight is σ/√γ.
 */
function byEffect({ weights, stddev, gamma }) {
  const effect = ([name, weight]) => Math.abs(weight) / (stddev?.[name] || 1);
  return Object.entries(weights).sort((a, b) => effect(b) - effect(a))
    .map(([name, weight]) => ({ name, weight, stddev: stddev ? stddev[name] / Math.sqrt(gamma) : null }));
}

/** The end of the scale: room for whiskers, but at most three times the largest weight. */
function scaleOf(shown) {
  const weight = Math.max(...shown.map((one) => Math.abs(one.weight)));
  const ends = Math.max(...shown.map((one) => Math.abs(one.weight) + (one.stddev ?? 0)));
  return Math.min(ends, 3 * weight || ends);
}

/** The weights of about an hour or a day ago: the latest row that is old enough, else the oldest; or null. */
function earlierWeights({ history: { data }, span }) {
  const rows = data?.weights ?? [];
  const wanted = Date.now() - (span === "day" ? 24 : 1) * HOUR;
  return rows.findLast((row) => row.time <= wanted) ?? rows[0] ?? null;
}

function weightRow({ name, weight, stddev }, before) {
  const earlier = before?.weights[name];
  const change = earlier === undefined ? null : weight - earlier;
  return {
    label: name === "_order" ? "submitted order" : name,
    value: weight,
    error: stddev,
    note: [stddev !== null && `± ${number(stddev, 2)}`, change !== null && changeText(change)].filter(Boolean).join(" · "),
    title: stddev ? `${number(Math.abs(weight) / stddev, 2)} standard errors from 0` : undefined,
  };
}

const changeText = (change) => (change === 0 ? "unchanged" : `${change > 0 ? "↑" : "↓"} ${number(Math.abs(change), 2)}`);

function hintText({ model, history, span }, all) {
  const whiskers = model.stddev ? "Whiskers are ± 1 standard error, σ/√γ, cut off at the edge; " : "";
  const order = model.stddev ? "sorted by |w|/σ" : "Sorted by |w|";
  const known = history.data?.weights.length;
  const drift = known ? `; arrows: change over the last ${span}, or since the first stored weights` : "";
  return `${whiskers}${order}${drift}. ${all > MOST ? `The first ${MOST} of ${count(all)} can be shown.` : ""}`;
}
