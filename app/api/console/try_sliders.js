/** Sliders of the features of one document. */

import { clear, field, h } from "./dom.js";
import { number } from "./format.js";
import { featureLabel, range, strongest } from "./scoring.js";

const MOST_SLIDERS = 10;
const MARGIN = 0.25;
const STEPS = 200;

/**
 * Sliders for a row of features; `changed(k, value)` is called while one moves. `names`: of the
 * features; `hidden(k)`: whether a feature has no slider; `rows`: all documents as submitted, for
 * the ranges; `weights`: of the model.
 */
export function sliders({ id, row, rows, names, hidden, weights, changed }) {
  const shown = names.map((_, k) => k).filter((k) => !hidden(k));
  const list = h("div.sliders");
  const draw = (text) => {
    const wanted = text.trim().toLowerCase();
    const found = (wanted
      ? shown.filter((k) => names[k].toLowerCase().includes(wanted))
      : strongest(rows, weights.subarray(0, names.length), names.length).filter((k) => !hidden(k))
    ).slice(0, MOST_SLIDERS);
    clear(list, found.map((k) => slider(k, featureLabel(names[k]), row[k], limits(rows, k), weights[k], changed)),
      !found.length && h("p.hint", "No feature has this name."));
  };
  draw("");
  return h("div", { role: "group", "aria-label": `Features of ${id}` },
    shown.length > MOST_SLIDERS && search(shown.length, draw), list);
}

function search(total, draw) {
  const input = h("input", { type: "search", placeholder: "name of a feature" });
  input.addEventListener("input", () => draw(input.value));
  return field("feature-search", `The ${MOST_SLIDERS} strongest of ${total} features; find others`, input);
}

/** The range of a slider: that of the feature over the list, and some more. */
function limits(rows, k) {
  const [least, most] = range(rows, k);
  const more = most > least ? MARGIN * (most - least) : Math.max(1, Math.abs(least));
  return [least >= 0 ? Math.max(0, least - more) : least - more, most + more];
}

function slider(k, name, value, [least, most], weight, changed) {
  const limits = { min: least, max: most, step: (most - least) / STEPS };
  const wide = h("input", { type: "range", id: `feature-${k}`, ...limits, value });
  const exact = h("input", {
    type: "number", step: "any", "aria-label": `${name}, exact value`, value: rounded(value) });
  wide.addEventListener("input", () => {
    exact.value = rounded(wide.valueAsNumber);
    changed(k, wide.valueAsNumber);
  });
  exact.addEventListener("input", () => {
    if (!Number.isFinite(exact.valueAsNumber)) return;
    wide.value = exact.valueAsNumber;
    changed(k, exact.valueAsNumber);
  });
  return h("div.slider",
    h("label", { for: `feature-${k}` }, h("span.slider-name", name),
      h("span.hint", ` weight ${number(weight)}`)), wide, exact);
}

const rounded = (value) => String(Number(value.toPrecision(4)));
