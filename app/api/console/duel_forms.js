/** The forms of the Duel page: begin a duel, create followers. */

import { path } from "./api.js";
import { attempt, field, h, select } from "./dom.js";
import { count, exact } from "./format.js";
import { versionLabel } from "./version_table.js";

const MOST_VERSIONS = 20;
const READINGS = ["debiased", "fair-pairs", "click-skip-above", "last-click-skip-above", "click-skip-previous"];

const input = (value, placeholder) => h("input", { value, placeholder, autocomplete: "off" });

/** A form whose button does `work()`, which resolves to what to say; `done()` is called afterwards. */
function form(fields, action, failure, { work, done }) {
  const [button, message] = [h("button.primary", action), h("div", { role: "status" })];
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    if (await attempt(message, failure, work)) done();
    button.disabled = false;
  };
  return h("form.stack", { novalidate: true, onsubmit: submit }, h("div.fields", fields), h("div.row", button), message);
}

/** The form that begins a duel. */
export function duelForm({ api, name, followers, versions, done }) {
  const ready = followers.filter((one) => !one.stalled).map((one) => one.name);
  const sides = [...ready.map((one) => [one]), ["submitted", "the submitted order"],
    ...(ready.length > 1 ? [["followers", `a tournament of ${ready.length} followers`]] : []),
    ...versions.slice(-MOST_VERSIONS).reverse().map((one) => [{ version: one.version }, versionLabel(one)])];
  const challenger = select(sides.map(([value, label = value]) => [JSON.stringify(value), label]));
  const [share, alpha, lists] = ["0.2", "0.05", "50000"].map((value) => input(value));
  const promote = select([["", "is reported"], ["yes", "is promoted"]]);
  const only = [field("duel-lists", "Lists at most", lists), field("duel-winner", "The winner", promote)];
  const tournament = () => challenger.value === '"followers"';
  const update = () => only.forEach((one) => { one.hidden = !tournament(); });
  challenger.addEventListener("change", update);
  update();
  const work = async () => {
    const body = { challenger: JSON.parse(challenger.value), share: Number(share.value), alpha: Number(alpha.value) };
    if (tournament()) Object.assign(body, { max_lists: Number(lists.value), promote: Boolean(promote.value) });
    await api.put(path`models/${name}/duel`, body);
    return "The duel has begun.";
  };
  return form([field("duel-challenger", "Challenger", challenger),
    field("duel-share", "Share of requests", share, "At most 0.5."),
    field("duel-alpha", "α", alpha, "The chance of a wrong verdict."), only], "Begin the duel", "Not begun: ", { work, done });
}

/** The form that creates a follower, or one for each combination of several values. */
export function followerForm({ api, name, model, done }) {
  const own = input("", `${name}-b`);
  const values = Object.fromEntries(["gamma", "C"].map((key) => [key, input("", exact(model[key]))]));
  values.clicks = select([["", `${model.clicks}, as ${name}`], ...READINGS.filter((one) => one !== model.clicks).map((one) => [one])]);
  const work = async () => {
    const grid = Object.fromEntries(Object.entries(values).map(([key, one]) => [key, valuesOf(one.value)]).filter(([, given]) => given.length));
    if (Object.values(grid).some((given) => given.length > 1)) {
      const { followers } = await api.post(path`models/${name}/followers`, { grid });
      return `${count(followers.length)} followers are created.`;
    }
    const settings = Object.fromEntries(Object.entries(grid).map(([key, [value]]) => [key, value]));
    await api.put(path`models/${own.value.trim()}`, { follows: name, ...settings });
    return `${own.value.trim()} follows ${name}.`;
  };
  return form([field("follower-name", "Name", own, "Not used for several."),
    field("follower-gamma", "γ", values.gamma, "Several: 1e2, 1e3, 1e4."), field("follower-C", "C", values.C),
    field("follower-clicks", "Clicks become pairs by", values.clicks)], "Create", "Not created: ", { work, done });
}

/** The values in a text, separated by commas or spaces. */
const valuesOf = (text) => text.split(/[,;\s]+/).filter(Boolean).map((one) => (Number.isNaN(Number(one)) ? one : Number(one)));
