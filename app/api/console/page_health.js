/** The state of the service: processes, store, backlog, last errors. */

import { badge, card, h, link, meter, note, redraw, table, tiles } from "./dom.js";
import { bytes, count, duration, isNumber, percent, time } from "./format.js";
import { poll } from "./poll.js";

const SECONDS = 5;
const MOST_NAMES = 5;

export async function show(root, { api }) {
  const update = async (signal) => redraw(root, await api.get("status", { signal }), statusParts);
  await update();
  return poll(update, SECONDS);
}

function statusParts(status) {
  return [
    verdictNote(status),
    mainNumbers(status),
    h("div.columns", storeCard(status.store), processesCard(status)),
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

function mainNumbers({ version, models, backlog, lag_seconds: lag }) {
  const largest = backlog?.largest;
  return card(null, tiles([
    ["Release", version, ""],
    ["Models", h("a", { href: "#/models" }, count(models)), ""],
    ["Records that wait", count(backlog?.records), largest && link(`${largest.model}: ${count(largest.records)}`, "models", largest.model)],
    ["Lag", isNumber(lag) ? duration(lag) : "–", "longest time in which nothing was learnt while records wait"],
  ]));
}

function storeCard(store) {
  const memory = store.memory_limit !== 0 && isNumber(store.memory_share)
    ? meter(store.memory_share, percent(store.memory_share), "Memory of the store")
    : isNumber(store.memory_used) ? "no limit" : "–";
  const used = isNumber(store.memory_used) && `${bytes(store.memory_used)}${store.memory_limit ? ` of ${bytes(store.memory_limit)}` : ""}`;
  return card("Store", facts([
    ["Connection", store.reachable ? badge("good", "reachable") : badge("bad", "not reachable")],
    ["Memory", [memory, used && h("span.hint", used)]],
    ["Append-only file", aofText(store.aof)],
    ["Durability", store.durability || "not set"],
    ["Server", store.version ?? "–"]]));
}

function aofText(aof) {
  if (!aof) return "unknown";
  if (!aof.enabled) return badge("warning", "off: a crash loses data");
  const written = aof.last_write_ok === false ? badge("bad", "last write failed") : badge("good", "written");
  return h("span.row", written, aof.fsync && `fsync ${aof.fsync}`);
}

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
  if (!learners) return h("p.hint", "Which learners run on the store is not known.");
  if (!learners.length) return note("bad", "No learner runs on the store: feedback waits.");
  return h("div.below", table([
    { label: "Learner", head: true, cell: (one) => h("code", one.id) },
    { label: "Models", numeric: true, cell: (one) => count(one.models) },
    { label: "Names", cell: (one) => leadsText(one) },
  ], learners, { caption: "Learners" }));
}

function leadsText({ leads = [] }) {
  const links = leads.slice(0, MOST_NAMES).map((name) => link(name, "models", name));
  const rest = leads.length > MOST_NAMES ? "…" : "";
  return h("span.row.tight", links, rest);
}

function errorsCard(errors) {
  if (!errors.length) return card("Last errors", h("p.muted", "None since the start."));
  return card("Last errors", table([
    { label: "Time", cell: (one) => h("span.numeric", time(milliseconds(one.time))) },
    { label: "Level", cell: (one) => badge(one.level === "warning" ? "warning" : "bad", one.level) },
    { label: "Process", cell: (one) => [one.process, one.logger].filter(Boolean).join(", ") },
    { label: "Message", cell: (one) => one.message },
  ], errors, { caption: "Last errors", className: "stacked" }));
}

/** A time in seconds or ms since 1970, or as text. */
const milliseconds = (value) => (isNumber(value) && value < 1e11 ? 1000 * value : value);

const facts = (rows) => h("dl.facts", rows.map(([label, value]) => [h("dt", label), h("dd", value)]));
