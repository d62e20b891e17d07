/** All models: alarms first, then version, lag, freshness, traffic and the lead over the submitted order. */

import { sparkline } from "./chart.js";
import { address, arrange, badge, clear, copyable, empty, h, redraw, setText } from "./dom.js";
import { ago, count, duration, fixed, number, plural, signed } from "./format.js";
import { verdictOf } from "./duel_text.js";
import { committedAt, covered, modelHistory, partsOf, ratesOf, recentMean, verdict, wholeMean } from "./model_history.js";
import { poll } from "./poll.js";

const LIST_SECONDS = 5;
const HISTORY_SECONDS = 10;
const DETAILS_MS = 60000;
/** Models whose history is read; the others are found by the filter. */
const MOST_SHOWN = 24;
const LAG_ALARM = 1000;
const DRIFT_ALARM = 20;
const MEASURED_ENOUGH = 20;

export async function show(root, { api, announce }) {
  const page = { api, announce, root, models: [], rows: new Map(), filter: "" };
  page.list = h("div.stack");
  page.summary = h("p.muted.grow");
  page.search = filterInput(page);
  page.bar = h("div.row", page.summary, page.search);
  await readList(page);
  clear(root, page.bar, page.list);
  const stops = [
    poll((signal) => readList(page, signal), LIST_SECONDS),
    poll((signal) => readHistories(page, signal), HISTORY_SECONDS),
  ];
  return () => stops.forEach((stop) => stop());
}

function filterInput(page) {
  return h("input", {
    type: "search", class: "filter", placeholder: "Filter by name", "aria-label": "Filter models by name",
    oninput: (event) => {
      page.filter = event.target.value.trim().toLowerCase();
      showList(page);
      readHistories(page);
    } });
}

async function readList(page, signal) {
  const { models } = await page.api.get("models", { signal });
  page.models = models.filter((one) => !one.follows);
  page.followers = models.filter((one) => one.follows);
  showList(page);
}

/** The models that match the filter, alarms first, then by name. */
function chosen(page) {
  const matching = page.models.filter((model) => model.name.toLowerCase().includes(page.filter));
  const rank = (model) => (alarmsIn(page, model).length ? 0 : 1);
  return matching.sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
}

function showList(page) {
  page.search.hidden = page.models.length <= 5 && !page.filter;
  page.bar.hidden = page.models.length === 0;
  if (!page.models.length) return clear(page.list, firstSteps(page));
  const found = chosen(page);
  const shown = found.slice(0, MOST_SHOWN);
  const alarms = found.filter((model) => alarmsIn(page, model).length).length;
  setText(page.summary, summaryText(page, found.length, alarms));
  for (const model of shown) rowOf(page, model).update(model);
  arrange(page.list, shown.map((model) => page.rows.get(model.name).element));
  if (!found.length) clear(page.list, empty("No model has this in its name."));
  return undefined;
}

function summaryText(page, found, alarms) {
  const all = page.filter ? `${count(found)} of ${plural(page.models.length, "model")}` : plural(page.models.length, "model");
  const hidden = found > MOST_SHOWN ? `; the first ${MOST_SHOWN} are shown` : "";
  return `${all}, ${alarms ? plural(alarms, "alarm") : "no alarms"}${hidden}`;
}

async function readHistories(page, signal) {
  for (const model of chosen(page).slice(0, MOST_SHOWN)) {
    if (signal?.aborted) return;
    if (!model.damaged && !model.newer_format) await readHistory(page, page.rows.get(model.name), signal);
  }
  showList(page);
}

async function readHistory(page, row, signal) {
  try {
    await row.history.refresh(signal);
    if (Date.now() - row.read > DETAILS_MS) {
      row.details = await page.api.get(page.api.path`models/${row.name}`, { signal });
      row.read = Date.now();
    }
  } catch (error) {
    if (error.status !== 404 && error.status !== 503) throw error; // deleted meanwhile, or damaged
  }
}

function alarmsIn(page, model) {
  const row = page.rows.get(model.name);
  return alarmsOf(model, row?.history, row?.details);
}

/** What is wrong with a model: [[kind, label, explanation]]. */
export function alarmsOf(model, history, details) {
  const lag = model.seq - model.version;
  const found = [];
  if (model.damaged) found.push(["bad", "damaged", "The stored state is damaged: roll back to a kept version."]);
  if (model.newer_format) found.push(["bad", "newer format", "A newer release wrote the state: upgrade this one."]);
  if (lag >= LAG_ALARM) found.push(["warning", `${count(lag)} records behind`, "The learner does not keep up, or is down."]);
  if (details?.drift >= DRIFT_ALARM) found.push(["warning", "drift", "NDCG@10 has fallen below its own mean. Compare the versions, and check the features."]);
  if (history && isWorse(history)) found.push(["bad", "worse than submitted", "NDCG@10 is below that of the submitted order by more than 2 standard errors."]);
  return found;
}

function isWorse({ data }) {
  const lead = data && wholeMean(data, "lead", "ndcg@10");
  return Boolean(lead && lead.queries >= MEASURED_ENOUGH && verdict(lead) === "worse");
}

/** The row of a model, made once; `update(model)` fills it. */
function rowOf(page, model) {
  const known = page.rows.get(model.name);
  if (known) return known;
  const cells = {
    badges: h("span.row"), kind: h("div.hint"), duel: h("div"), version: value(), lag: sub(), fresh: value(),
    lists: value(), feedback: value(), listsLine: h("div"), feedbackLine: h("div"), lead: value(), recent: sub() };
  const link = h("a", { href: address("models", model.name), class: "model-name" }, model.name);
  const element = h("article.card.model-row",
    h("div.model-title", h("h2", link), cells.badges, cells.kind, cells.duel),
    fact("Version", cells.version, cells.lag),
    fact("Last commit", cells.fresh),
    fact("Lists with feedback", cells.lists, cells.listsLine),
    fact("Feedback records", cells.feedback, cells.feedbackLine),
    fact("Lead, NDCG@10", cells.lead, cells.recent));
  const row = { name: model.name, element, cells, history: modelHistory(page.api, model.name), details: null, read: 0,
    followers: () => page.followers.filter((one) => one.follows === model.name).map((one) => one.name) };
  row.update = (found) => fillRow(row, found);
  page.rows.set(model.name, row);
  return row;
}

const value = () => h("span.fact-value.numeric");
const sub = () => h("div.hint.numeric");
const fact = (label, ...children) => h("div.fact", h("div.fact-label", label), children);

function fillRow(row, model) {
  const { cells, history: { data } } = row;
  const lag = model.seq - model.version;
  const alarms = alarmsOf(model, row.history, row.details);
  row.element.classList.toggle("alarm", alarms.some(([kind]) => kind === "bad"));
  clear(cells.badges, alarms.map(([kind, label, title]) => badge(kind, label, title)));
  setText(cells.kind, model.algorithm ? `${model.algorithm.toUpperCase()}, ${plural(model.features, "feature")}` : "");
  setText(cells.version, count(model.version));
  setText(cells.lag, Number.isFinite(lag) ? (lag > 0 ? `${count(lag)} behind` : "up to date") : "");
  setText(cells.fresh, data ? ago(committedAt(data)) : "–");
  redraw(cells.duel, [model.duel, row.followers()], duelPart(model.name));
  fillTraffic(cells, "lists", data, ["queries", "abandoned"]);
  fillTraffic(cells, "feedback", data, ["feedback"]);
  fillLead(cells, data);
}

/** The verdict of the duel of a model that is on, and the names of its followers. */
const duelPart = (name) => ([duel, followers]) => h("div.hint",
  duel && duelLink(name, duel.ended ? { text: "the last duel has ended", kind: "" } : verdictOf(duel, name)),
  followers.length > 0 && `Followers: ${followers.join(", ")}`);

const duelLink = (name, { text, kind }) => h("a", { href: address("models", name, "duel"), class: `block ${kind}` }, text);

function fillTraffic(cells, name, data, columns) {
  const seconds = data && covered(data, "hour", 3600, 300);
  const rates = data ? ratesOf(data, columns, { seconds, bins: partsOf(seconds) }) : [];
  const latest = data && (ratesOf(data, columns, { seconds: 60, bins: 1 })[0] ?? rates.at(-1));
  setText(cells[name], data ? `${number(latest ?? 0, 2)} /s` : "–");
  clear(cells[`${name}Line`], sparkline(rates, { label: `last ${duration(seconds)}, now ${number(latest ?? 0, 2)} a second`, width: 150 }));
}

function fillLead(cells, data) {
  const lead = data ? wholeMean(data, "lead", "ndcg@10") : NO_LEAD;
  const recent = data && recentMean(data, 3600, "lead", "ndcg@10");
  const kinds = { better: "good-text", worse: "bad-text", unclear: "" };
  cells.lead.className = `fact-value numeric ${kinds[verdict(lead)]}`;
  setText(cells.lead, leadText(lead));
  setText(cells.recent, recent?.mean != null ? `last ${recentText(data)} ${leadText(recent)}` : plural(lead.queries, "list"));
}

/** The time of the points of the last hour: "hour", or less for a model whose points are younger. */
function recentText(data) {
  const seconds = covered(data, "hour", 3600, 0);
  return seconds > 3500 ? "hour" : duration(seconds);
}

const NO_LEAD = { mean: null, error: null, queries: 0 };

const leadText = ({ mean, error }) =>
  mean === null ? "not measured yet" : `${signed(mean, 4)}${error === null ? "" : ` ± ${fixed(2 * error, 4)}`}`;

function firstSteps({ api, announce }) {
  const call = (text, path, body, method = "") => [h("p", text), copyable(
    `curl ${method}${api.url(path)} -H 'content-type: application/json' \\\n  -d '${JSON.stringify(body)}'`, announce)];
  return empty("There is no model yet.",
    call("1. Create one with the features of your documents:", "models/books", { features: ["bm25", "price"] }, "-X PUT "),
    call("2. Rank documents:", "rank",
      { model: "books", documents: [{ id: "a", features: [1.2, 0.3] }, { id: "b", features: [0.7, 0.9] }] }),
    call("3. Send the clicks, with the request_id of the answer:", "feedback",
      { event_id: "e1", type: "clicks", model: "books", request_id: "REQUEST_ID", clicked: ["b"] }),
    h("p", "With API keys add -H 'authorization: Bearer KEY'. ",
      h("a", { href: api.url("docs") }, "All calls"), " can be tried in the browser."));
}
