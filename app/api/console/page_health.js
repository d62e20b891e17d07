/** The state of the service: processes, store, backlog, last errors. */

import { address, badge, card, clear, empty, h, meter, note, table } from "./dom.js";
import { bytes, count, duration, isNumber, percent, time } from "./format.js";
import { isUnknownPath } from "./model_history.js";
import { poll } from "./poll.js";

const SECONDS = 5;
/** Names of models in the row of a learner. */
const MOST_NAMES = 5;

/** Show the page; returns the function that ends it. */
export async function show(root, { api }) {
  let shown = "";
  async function update(signal) {
    const content = await contentOf(api, signal);
    const text = JSON.stringify(content);
    if (text !== shown) clear(root, content.status ? statusParts(content.status) : olderParts(content.ready));
    shown = text;
  }
  await update();
  return poll(update, SECONDS);
}

/** The status; of an older service only what /readyz says. */
async function contentOf(api, signal) {
  try {
    return { status: await api.get("status", { signal }) };
  } catch (error) {
    if (!isUnknownPath(error)) throw error;
    return { ready: await api.get("readyz", { signal }) };
  }
}

const olderParts = ({ degraded, down }) => [
  note("info", "This service does not report its status: upgrade it to see processes, memory and errors."),
  card("Readiness", facts([
    ["Store", degraded ? badge("bad", "not reachable") : badge("good", "reachable")],
    ["Processes down", down.length ? down.join(", ") : "none"]])),
];

function statusParts(status) {
  return [
    verdictNote(status),
    tiles(status),
    h("div", { class: "columns" }, storeCard(status.store), processesCard(status)),
    errorsCard(status.errors ?? []),
  ];
}

/** One sentence: is everything well, and if not, what is wrong. */
function verdictNote({ store, down = [], damaged = [], errors }) {
  const problems = [
    !store.reachable && "the store is not reachable",
    store.memory_share >= 0.9 && "the memory of the store is nearly full",
    store.aof && store.aof.last_write_ok === false && "the store could not write its append-only file",
    down.length && `down: ${down.join(", ")}`,
    damaged.length && `damaged: ${damaged.join(", ")}`,
  ].filter(Boolean);
  if (problems.length) return note("bad", `Attention: ${problems.join("; ")}.`);
  const recent = errors?.some((one) => one.level === "error");
  return recent ? note("warning", "All parts are up; there were errors.") : note("good", "All parts are up.");
}

function tiles({ version, models, backlog, lag_seconds: lag }) {
  const largest = backlog?.largest;
  const rows = [
    ["Release", version, ""],
    ["Models", h("a", { href: "#/models" }, count(models)), ""],
    ["Records that wait", count(backlog?.records), largest && h("a", { href: address("models", largest.model) }, `${largest.model}: ${count(largest.records)}`)],
    ["Lag", isNumber(lag) ? duration(lag) : "–", "longest time in which nothing was learnt while records wait"],
  ];
  return h("section", { class: "card", "aria-label": "Main numbers" }, h("dl", { class: "tiles" }, rows.map(([label, value, small]) =>
    h("div", { class: "tile" }, h("dt", {}, label), h("dd", {}, value), h("dd", { class: "tile-note" }, small)))));
}

function storeCard(store) {
  const memory = store.memory_limit !== 0 && isNumber(store.memory_share)
    ? meter(store.memory_share, percent(store.memory_share), "Memory of the store")
    : isNumber(store.memory_used) ? "no limit" : "–";
  const used = isNumber(store.memory_used) && `${bytes(store.memory_used)}${store.memory_limit ? ` of ${bytes(store.memory_limit)}` : ""}`;
  return card("Store", facts([
    ["Connection", store.reachable ? badge("good", "reachable") : badge("bad", "not reachable")],
    ["Memory", [memory, used && h("span", { class: "hint" }, used)]],
    ["Append-only file", aofText(store.aof)],
    ["Durability", store.durability || "not set"],
    ["Server", store.version ?? "–"]]));
}

function aofText(aof) {
  if (!aof) return "unknown";
  if (!aof.enabled) return badge("warning", "off: a crash loses data");
  const written = aof.last_write_ok === false ? badge("bad", "last write failed") : badge("good", "written");
  return h("span", { class: "row" }, written, aof.fsync && `fsync ${aof.fsync}`);
}

/** The processes of this service, those that are down first, and all learners on the store. */
function processesCard({ workers = [], learners, down = [] }) {
  const known = new Set(workers.map((row) => row.name));
  const rows = [...workers, ...down.filter((name) => !known.has(name)).map((name) => ({ name, up: false }))];
  const processes = table([
    { label: "Process", head: true, cell: (row) => row.name },
    { label: "State", cell: (row) => (row.up === false ? badge("bad", "down") : badge("good", "up")) },
    { label: "Restarts", numeric: true, cell: (row) => count(row.restarts) },
  ], rows.sort((one, other) => Number(one.up) - Number(other.up)), { caption: "Processes" });
  return card("Processes", rows.length ? processes : note("info", "The service reports no processes."), learnersPart(learners));
}

function learnersPart(learners) {
  if (!learners) return h("p", { class: "hint" }, "Which learners run on the store is not known.");
  if (!learners.length) return note("bad", "No learner runs on the store: feedback waits.");
  return h("div", { class: "below" }, table([
    { label: "Learner", head: true, cell: (one) => h("code", {}, one.id) },
    { label: "Models", numeric: true, cell: (one) => count(one.models) },
    { label: "Names", cell: (one) => leadsText(one) },
  ], learners, { caption: "Learners" }));
}

/** The first names of the models of a learner, as links. */
function leadsText({ leads = [] }) {
  const links = leads.slice(0, MOST_NAMES).map((name) => h("a", { href: address("models", name) }, name));
  const rest = leads.length > MOST_NAMES ? "…" : "";
  return h("span", { class: "row tight" }, links, rest);
}

function errorsCard(errors) {
  if (!errors.length) return card("Last errors", h("p", { class: "muted" }, "None since the start."));
  return card("Last errors", table([
    { label: "Time", cell: (one) => h("span", { class: "numeric" }, time(milliseconds(one.time))) },
    { label: "Level", cell: (one) => badge(one.level === "warning" ? "warning" : "bad", one.level) },
    { label: "Process", cell: (one) => [one.process, one.logger].filter(Boolean).join(", ") },
    { label: "Message", cell: (one) => one.message },
  ], errors, { caption: "Last errors", className: "stacked" }));
}

/** A time in seconds or ms since 1970, or as text. */
const milliseconds = (value) => (isNumber(value) && value < 1e11 ? 1000 * value : value);

const facts = (rows) => h("dl", { class: "facts" }, rows.map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));
