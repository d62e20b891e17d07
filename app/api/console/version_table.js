/** The table of versions: two to compare, and what can be done with each. */

import { badge, button, h } from "./dom.js";
import { count, fixed, plural, time } from "./format.js";

/** The key of the committed state, as the API names it. */
export const CURRENT = "current";

const REASONS = {
  hour: "hourly", interval: "every 10,000 records", named: "kept by hand", created: "when the model was created",
};

/** A version in words: its name, or its number. */
export const versionLabel = (one) => one.name ?? `version ${count(one.version)}`;

/**
 * Rows of the committed state and of versions with a `key`. `actions`: choose(side, key),
 * rollback(version), remove(version). `chosen`: {a, b}.
 */
export function versionTable(versions, model, chosen, actions) {
  const labels = ["A", "B", "Version", "NDCG@10 since the one before", "Actions"];
  const heads = labels.map((text) => h("th", { scope: "col" }, text));
  return h("table.versions", h("caption.unseen", "Versions of the model"),
    h("thead", h("tr", heads)),
    h("tbody", currentRow(model, chosen, actions), versions.map((one) => versionRow(one, chosen, actions))));
}

function currentRow(model, chosen, actions) {
  const label = h("span", h("b", "current"), " ", badge("good", "served"));
  const note = model ? `version ${count(model.version)}` : "cannot be read";
  return h("tr", radios(CURRENT, "current", chosen, actions), nameCell(label, note), h("td"), h("td"));
}

function versionRow(one, chosen, actions) {
  const label = one.name
    ? h("span", h("b", one.name), " ", badge("info", "named")) : h("b", count(one.version));
  const why = REASONS[one.reason] ?? one.reason;
  const parts = [one.name && `version ${count(one.version)}`, one.time && time(one.time), !one.name && why];
  return h("tr", radios(one.key, versionLabel(one), chosen, actions),
    nameCell(label, parts.filter(Boolean).join(" · ")), qualityCell(one.since), actionCell(one, actions));
}

const nameCell = (label, note) =>
  h("th", { scope: "row", class: "version-name" }, label, h("span.hint", note));

function radios(key, label, chosen, actions) {
  return ["a", "b"].map((side) => {
    const letter = side.toUpperCase();
    const input = h("input", { type: "radio", name: `version-${side}`, "aria-label": `${letter} is ${label}` });
    input.checked = chosen[side] === key;
    input.addEventListener("change", () => actions.choose(side, key));
    return h("td", { class: `side side-${side}` },
      h("label.pick", input, h("span.side-name", { "aria-hidden": "true" }, letter)));
  });
}

function qualityCell(since) {
  const value = since?.ndcg?.["10"];
  if (value == null) return h("td.quality.hint", "–");
  const error = since.ndcg_stderr?.["10"];
  const text = error == null ? fixed(value) : `${fixed(value)} ± ${fixed(error)}`;
  return h("td.quality", h("span.numeric", text),
    h("span.hint", plural(since.queries, "list")));
}

function actionCell(one, actions) {
  const act = (text, label, work) => button(text, work, { class: "small", "aria-label": label });
  return h("td.version-actions", h("div.row",
    act("Roll back…", `Roll back to ${versionLabel(one)}`, () => actions.rollback(one)),
    one.name && act("Delete", `Delete ${one.name}`, () => actions.remove(one))));
}
