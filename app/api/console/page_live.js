/** Live: records as they are learnt, newest first. */

import { path } from "./api.js";
import { sparkline } from "./chart.js";
import { badge, button, card, clear, empty, h, link, note, setText, tiles } from "./dom.js";
import { count, ended, number, plural, reasonOf } from "./format.js";
import { gapRow, recordRow } from "./live_rows.js";

const MOST_ROWS = 200;
const DRAW_EVERY = 250;
const SPOKEN_EVERY = 20000;
const SECONDS_SHOWN = 60;
const RATE_SECONDS = 5;

export async function show(root, context, { name }) {
  const page = newPage(context, name);
  clear(root,
    h("p.intro", "Each record as it is learnt: which document should stand above which, and "
      + "whether the weights moved. At most 20 a second are sent; all are counted."),
    card(null, h("div.live-bar", page.state, page.pause, page.version), page.problem, numbersPart(page)),
    card("Records, newest first", page.empty, page.rows));
  connect(page);
  const timer = setInterval(() => draw(page), DRAW_EVERY);
  return () => {
    clearInterval(timer);
    page.stopped.abort();
  };
}

function newPage(context, name) {
  const page = {
    context, name, stopped: new AbortController(), queue: [], paused: false, lastId: null,
    seconds: new Map(), started: Date.now(), spoken: Date.now(), unspoken: 0,
    totals: { learnt: 0, skipped: 0, stepped: 0, passive: 0, refused: 0 },
    state: h("span.live-state", badge("plain", "connecting…")),
    version: h("span.hint"), problem: h("div", { role: "alert" }),
    rows: h("ol.records", { hidden: true }), numbers: {}, graph: h("div"),
    empty: empty("Waiting for feedback", h("p", "Send clicks with POST /feedback, or ",
      link("click a result on the Try page", "models", name, "try"), ".")),
  };
  page.pause = button("Pause", () => togglePause(page), { "aria-pressed": "false" });
  return page;
}

function numbersPart(page) {
  const tile = (key, label, small) => [label, page.numbers[key] = h("span", "0"), small];
  return [page.graph, h("p.hint", "Records a second in the last minute"), h("div.below", tiles([
    tile("rate", "Records a second", `mean of the last ${RATE_SECONDS} seconds`),
    tile("learnt", "Learnt", "since this page was opened"),
    tile("skipped", "Not shown", "beyond 20 samples a second"),
    tile("stepped", "Stepped pairs", "of the records shown"),
    tile("passive", "Passive pairs", "in order by a margin")]))];
}

/** Read the stream until the page ends; a refusal is shown with a button to try again. */
async function connect(page) {
  clear(page.problem);
  try {
    await page.context.api.stream(path`models/${page.name}/stream`, {
      signal: page.stopped.signal, lastEventId: page.lastId,
      onEvent: (event) => receive(page, event), onState: (state, detail) => showState(page, state, detail),
    });
  } catch (error) {
    if (page.stopped.signal.aborted) return;
    clear(page.state, badge("bad", "not connected"));
    clear(page.problem, note("bad", `The stream cannot be read: ${reasonOf(error)} `,
      button("Try again", () => connect(page), { class: "small" })));
  }
}

function showState(page, state, detail) {
  if (page.stopped.signal.aborted) return;
  page.open = state === "open";
  const why = ended(detail ?? "The stream was interrupted");
  clear(page.problem, !page.open && note("warning", `${why} Connecting again…`));
  showPill(page);
}

function showPill(page) {
  const running = page.paused ? ["plain", "paused"] : ["good", "live"];
  const [kind, text] = page.open ? running : ["warning", "connecting…"];
  clear(page.state, badge(kind, text));
}

function receive(page, { event, id, data }) {
  page.lastId = id ?? page.lastId;
  if (event === "version") return showVersion(page, data);
  if (event === "gap") return enqueue(page, () => gapRow("Some records are missing: the stream was interrupted."));
  if (event !== "record") return;
  tally(page, data);
  enqueue(page, () => recordRow(data));
}

const showVersion = (page, { version, lag }) =>
  setText(page.version, `version ${count(version)} · ${lag ? plural(lag, "record") : "no record"} waiting`);

function enqueue(page, row) {
  page.queue.push(row);
  if (page.queue.length > MOST_ROWS) page.queue.shift();
}

function tally(page, record) {
  const learnt = 1 + (record.skipped ?? 0);
  const second = Math.floor(Date.now() / 1000);
  page.seconds.set(second, (page.seconds.get(second) ?? 0) + learnt);
  page.unspoken += learnt;
  page.totals.learnt += learnt;
  page.totals.skipped += record.skipped ?? 0;
  for (const pair of record.pairs ?? []) page.totals[pair.outcome] += 1;
}

function togglePause(page) {
  page.paused = !page.paused;
  page.pause.setAttribute("aria-pressed", String(page.paused));
  setText(page.pause, page.paused ? "Resume" : "Pause");
  showPill(page);
  draw(page);
}

/** Draw what came since the last time; a screen reader hears a count now and then. */
function draw(page) {
  drawNumbers(page);
  if (page.paused) return;
  if (page.queue.length) {
    const rows = page.queue.splice(0).map((row) => row()).reverse();
    page.rows.prepend(...rows);
    while (page.rows.childElementCount > MOST_ROWS) page.rows.lastElementChild.remove();
    page.rows.hidden = !(page.empty.hidden = true);
  }
  if (page.unspoken && Date.now() - page.spoken > SPOKEN_EVERY) {
    page.context.announce(`${plural(page.unspoken, "record")} learnt`);
    [page.spoken, page.unspoken] = [Date.now(), 0];
  }
}

function drawNumbers(page) {
  const now = Math.floor(Date.now() / 1000);
  for (const second of page.seconds.keys()) if (second < now - SECONDS_SHOWN) page.seconds.delete(second);
  const counts = Array.from({ length: SECONDS_SHOWN }, (_, k) => page.seconds.get(now - SECONDS_SHOWN + k) ?? 0);
  const recent = counts.slice(-Math.max(1, Math.min(RATE_SECONDS, now - Math.floor(page.started / 1000))));
  const rate = recent.reduce((sum, one) => sum + one, 0) / recent.length;
  setText(page.numbers.rate, number(rate, 2));
  for (const key of ["learnt", "skipped", "stepped", "passive"]) setText(page.numbers[key], count(page.totals[key]));
  if (page.drawn !== now) clear(page.graph, sparkline(counts, { label: "Records a second in the last minute", width: 1100, height: 38 }));
  page.drawn = now;
}
