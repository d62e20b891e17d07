/** Confirmations of a rollback and of a promotion: they show what would change. */

import { path } from "./api.js";
import { ask, clear, h, note } from "./dom.js";
import { challengerName, settingsOf } from "./duel_text.js";
import { reasonOf } from "./format.js";
import { orderOf, scorerOf, scores } from "./scoring.js";
import { diffOf, readDiff } from "./version_diff.js";
import { CURRENT, versionLabel } from "./version_table.js";

const MOST_WEIGHTS = 6;
const MOST_LISTS = 20;
/** Statuses after which the change would fail, too. */
const HOPELESS = [0, 401, 403, 404];

/** Ask whether to roll back to a version; resolves to true if it is confirmed. */
export const confirmRollback = (api, name, one) => confirmChange(`Roll back ${name} to ${versionLabel(one)}?`, {
  text: "The weights of this version are served again within a second. The log keeps the later records, and "
    + "the present state is kept as a version.",
  read: () => readDiff(api, name, CURRENT, one.key), after: "after the rollback", action: "Roll back" });

/**
 * Ask whether to make a change; `read()` resolves to its difference. `choice`: a checkbox that has to
 * be checked as well; `more`: nodes below the text.
 */
async function confirmChange(title, { text, read, after, action, choice, more }) {
  const details = h("div.dialog-details", { "aria-live": "polite" }, h("p.hint", "Computing what would change…"));
  const act = h("button.danger", { value: "yes", disabled: true }, action);
  let known = false;
  const update = () => { act.disabled = !known || choice?.checked === false; };
  choice?.addEventListener("change", update);
  read().then((diff) => {
    clear(details, diffOf(diff, ["now", after], MOST_WEIGHTS));
    known = true;
  }).catch((error) => {
    clear(details, note("bad", `What would change is unknown: ${reasonOf(error)}`));
    known = !HOPELESS.includes(error.status);
  }).finally(update);
  const answer = await ask(title, [h("p", text), more, details,
    h("div.dialog-buttons", h("button", { value: "cancel", autofocus: true }, "Cancel"), act)]);
  return answer === "yes";
}

/** Ask whether to promote the challenger; resolves to the body of the request, or to null. */
export async function confirmPromotion(api, model, { id, challenger, verdict, tournament, ended }) {
  const { name } = model;
  const ahead = tournament && tournament.ahead !== name;
  const winner = ahead ? tournament.ahead : challenger;
  const [other, version] = [challengerName(winner), winner.version];
  const follower = version === undefined ? await api.get(path`models/${winner}`) : null;
  const choice = (tournament ? ahead && ended : verdict === "challenger") ? null : h("input", { type: "checkbox" });
  const why = tournament && !ended ? "the tournament goes on"
    : verdict === "champion" ? `${other} has lost` : "the duel is undecided";
  const more = [
    follower && h("p", "Settings: ", settingsOf(follower, model) || "unchanged", "."),
    choice && note("warning", h("label", choice, ` Promote all the same: ${why}.`))];
  const sure = await confirmChange(`Promote ${other} to ${name}?`, {
    text: `Users get rankings by the weights of ${other} within a second, and ${name} goes on learning from there. `
      + "The duel ends, followers stay, and the present state is kept as a version.",
    read: () => (follower ? diffTo(api, model, follower) : readDiff(api, name, CURRENT, version)),
    after: "after the promotion", action: "Promote", choice, more });
  return sure ? { force: Boolean(choice), challenger: winner, duel: id } : null;
}

/** The difference of the weights of a model and a follower, in the form of that of two versions. */
async function diffTo(api, model, follower) {
  const weights = Object.entries(model.weights)
    .map(([feature, a]) => ({ feature, a, b: follower.weights[feature], change: follower.weights[feature] - a }))
    .sort((one, other) => Math.abs(other.change) - Math.abs(one.change));
  const { impressions } = await api.get(`${path`models/${model.name}/impressions`}?limit=${MOST_LISTS}`);
  const both = [model, follower].map((one) => scorerOf(one).weights);
  return { weights, rest: { features: 0 }, lists: impressions.map((one) => moves(one, both)) };
}

/** The orders of a recent list by both weights. */
function moves({ request, documents }, both) {
  const [a, b] = both.map((weights) =>
    orderOf(scores(documents.map((one) => one.features), weights)).map((at) => documents[at].id));
  return { request, documents: a.length, moved: a.filter((id, at) => b[at] !== id).length, a, b };
}
