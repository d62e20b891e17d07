/** Duel: which of two sides wins more lists; the followers of a model; promotion. */

import { path } from "./api.js";
import { attempt, badge, button, card, clear, confirm, empty, h, redraw, table, tiles } from "./dom.js";
import { duelCharts } from "./duel_charts.js";
import { duelForm, followerForm } from "./duel_forms.js";
import { challengerName, settingsOf, verdictOf } from "./duel_text.js";
import { count, exact, number, percent, plural } from "./format.js";
import { poll } from "./poll.js";
import { confirmPromotion } from "./change_dialogs.js";
import { readDiff } from "./version_diff.js";
import { CURRENT } from "./version_table.js";

const SECONDS = 5;
/** After these ends of a duel, or before its end, its challenger can be promoted. */
const JUDGED = [undefined, "ended", "finished"];

export async function show(root, { api, announce }, { name }) {
  const page = { api, announce, name, charts: duelCharts(), message: h("div.stack", { role: "status", tabindex: "-1" }) };
  page.parts = Object.fromEntries(["head", "table", "followers", "begin", "create"].map((part) => [part, h("div.stack")]));
  const { head, ...others } = page.parts;
  page.admin = (await readDiff(api, name, CURRENT, CURRENT)).lists !== null;
  await update(page);
  clear(root, page.message, head, page.charts.element, Object.values(others));
  const stop = poll((signal) => update(page, signal), SECONDS);
  return () => {
    stop();
    page.charts.destroy();
  };
}

/** Read all, and draw what has changed. */
async function update(page, signal) {
  const { api, name, parts, admin } = page;
  const read = (address) => api.get(address, { signal });
  const [model, { followers }] = await Promise.all([read(path`models/${name}`), read(path`models/${name}/followers`)]);
  const duel = model.duel ? await read(path`models/${name}/duel`) : null;
  if (page.duel && duel && page.duel.verdict !== duel.verdict) page.announce(verdictOf(duel, name).text);
  Object.assign(page, { model, followers, duel });
  redraw(parts.head, duel, () => card(null, duelPart(page)));
  redraw(parts.table, duel?.tournament, (tournament) => tournament && tournamentCard(tournament));
  redraw(parts.followers, followers, () => card("Followers", followersPart(page)));
  page.charts.element.hidden = !duel;
  if (duel) page.charts.update(duel);
  if (admin) await updateForms(page);
}

/** The forms change only with what can be chosen in them: nobody loses what is typed. */
async function updateForms(page) {
  const { api, name, parts, model, followers, duel } = page;
  const given = { api, name, model, followers };
  const free = !duel || duel.ended;
  const { versions } = free ? await api.get(path`models/${name}/versions`) : { versions: [] };
  const choice = free && [followers.map((one) => [one.name, one.stalled]), versions.map((one) => one.version)];
  const done = () => update(page);
  redraw(parts.begin, choice, () => free && card("Begin a duel", duelForm({ ...given, versions, done })));
  redraw(parts.create, true, () => card("New followers", followerForm({ ...given, done })));
}

function duelPart(page) {
  const { duel, admin } = page;
  if (!duel) return empty("There has been no duel yet.",
    h("p", "A share of the requests gets lists of two sides, interleaved; clicks tell which side is better."),
    !admin && h("p", "To begin one needs a key with the scope admin."));
  const on = !duel.ended;
  const state = on ? (duel.ready ? ["good", "on"] : ["warning", "paused"]) : ["plain", "ended"];
  const { text, kind } = verdictOf(duel, page.name);
  return [
    h("div.card-head", h("h2", duel.champion, " against ", challengerName(duel.challenger), " ", badge(...state, on && !duel.ready ? "No list shows both sides now: a follower is too far behind, or is stalled." : null)),
      admin && h("div.row",
        duel.challenger !== "submitted" && JUDGED.includes(duel.ended?.why) && button("Promote…", () => promote(page)),
        on && button("End the duel…", () => end(page)))),
    h("p.verdict", h("b", { class: kind }, `${text[0].toUpperCase()}${text.slice(1)}.`)),
    h("p.hint", `${exact(100 * duel.share)} % of the requests, α = ${exact(duel.alpha)}, from record ${count(duel.id)} on`,
      on ? "." : `, ended by record ${count(duel.ended.seq)}: ${duel.ended.why}.`),
    duelNumbers(duel)];
}

function duelNumbers(duel) {
  const [low, high] = duel.interval;
  return h("div.below", tiles([
    ["Decided lists", count(duel.decided), `of ${plural(duel.lists, "list")} with click events`],
    ["Won and lost", `${count(duel.wins)} : ${count(duel.losses)}`, `${count(duel.ties)} tied, by all clicks so far`],
    ["Win share", percent(duel.win_share), `between ${percent(low)} and ${percent(high)}`],
    ["Evidence", number(duel.evidence), `a verdict from ${exact(1 / duel.alpha)} on`],
    ["p-value", number(duel.p_value), "however often you look"],
    ["To go", duel.verdict === "undecided" ? count(duel.lists_to_go) : "none", "decided lists at this win share"]]));
}

function tournamentCard({ max_lists: lists, followers, table: rows }) {
  const side = (label, cell) => ({ label, cell });
  return card("Tournament", table([
    side("Champion", (one) => one.champion), side("Challenger", (one) => one.challenger),
    { label: "Lists", numeric: true, cell: (one) => count(one.lists) },
    { label: "Win share", numeric: true, cell: (one) => percent(one.win_share) },
    { label: "Interval", numeric: true, cell: (one) => one.interval.map((bound) => percent(bound)).join(" to ") },
    { label: "Verdict", cell: (one) => one.verdict },
  ], rows, { caption: "Duels of the tournament" }),
  h("p.hint", `${plural(followers.length, "follower")}, at most ${plural(lists, "list")}.`));
}

function followersPart(page) {
  const { name, followers, model, duel, admin } = page;
  if (!followers.length) return empty("No model follows this one.",
    h("p", `A follower learns from the feedback to ${name} with settings of its own. Users see nothing of it.`));
  return table([
    { label: "Follower", head: true, cell: (one) => h("span.row.tight", one.name, stateOf(one, duel)) },
    { label: "Own settings", cell: (one) => settingsOf(one, model) || "those of the model" },
    { label: "Records behind", numeric: true, cell: (one) => count(one.lag) },
    { label: "Pairs", numeric: true, cell: (one) => count(one.pairs.stepped + one.pairs.passive) },
    { label: "Loss per pair", numeric: true, title: "Squared loss before each step: comparable between followers that read clicks alike", cell: (one) => number(one.squared_loss) },
    { label: "Agreement", numeric: true, title: "Pairs of the first ten documents that it orders like the model", cell: (one) => percent(one.agreement) },
    ...(admin ? [{ label: "Actions", cell: (one) => button("Delete…", () => remove(page, one), { class: "small", "aria-label": `Delete ${one.name}` }) }] : []),
  ], followers, { caption: `Followers of ${name}` });
}

function stateOf({ name, stalled, may_duel: ready }, duel) {
  if (stalled) return badge("bad", "stalled", "It was too far behind. Delete it, and create it again.");
  if (duel && !duel.ended && duel.challenger === name) return badge("info", "in the duel");
  return !ready && badge("warning", "too far behind to duel");
}

async function promote(page) {
  const { api, name, duel, model } = page;
  const confirmed = await confirmPromotion(api, model, duel);
  if (confirmed === null) return;
  await act(page, "Not promoted: ", async () => {
    const { seq, warning } = await api.post(path`models/${name}/duel/promote`, confirmed);
    return `Promoted by record ${count(seq)}.${warning ? ` Note: ${warning}.` : ""}`;
  });
}

async function end(page) {
  const text = "Its counts stay. Later clicks on its lists count for nobody.";
  if (!(await confirm("End the duel?", text, { action: "End the duel", kind: "danger" }))) return;
  await act(page, "Not ended: ", () => page.api.del(path`models/${page.name}/duel`).then(() => "The duel has ended."));
}

async function remove(page, one) {
  const text = "It cannot be restored. The model and its log stay.";
  if (!(await confirm(`Delete the follower ${one.name}?`, text, { action: "Delete", kind: "danger" }))) return;
  await act(page, "Not deleted: ", () => page.api.del(path`models/${one.name}`).then(() => `${one.name} is deleted.`));
}

/** Do something, say what came of it, and read all again. */
async function act(page, failure, work) {
  if (await attempt(page.message, failure, work)) await update(page);
  page.message.focus();
}
