/** Training jobs: start one from a file, watch it, cancel it, start it again. */

import { arrange, badge, button, clear, confirm, empty, h, link, meter, note, setText, settings } from "./dom.js";
import { ago, count, duration, exact, fixed, number, percent, plural } from "./format.js";
import { noteProgress, pathView } from "./job_path.js";
import { poll } from "./poll.js";
import { trainingForm } from "./training_form.js";

const LIST_MS = 5000;
const RUNNING_SECONDS = 1;
const KINDS = { running: "info", done: "good", failed: "bad", cancelled: "warning" };

export async function show(root, context) {
  const page = { ...context, jobs: [], rows: new Map(), read: 0, list: h("div.stack") };
  const form = await trainingForm(context, (job) => started(page, job));
  await readJobs(page);
  clear(root, form, h("h2", "Jobs"), page.list);
  return poll((signal) => update(page, signal), RUNNING_SECONDS);
}

/** The list every few seconds, running and open jobs every second. */
async function update(page, signal) {
  if (Date.now() - page.read > LIST_MS) await readJobs(page, signal);
  for (const job of page.jobs) {
    const row = page.rows.get(job.id);
    if (job.state === "running" || (row.open && !row.job.training)) await readJob(page, job.id, signal);
  }
}

async function readJobs(page, signal) {
  const answer = await page.api.get("jobs?limit=50", { signal });
  page.read = Date.now();
  page.jobs = answer.jobs;
  if (!page.jobs.length) {
    clear(page.list, empty("There is no job yet.",
      h("p", "Choose a model and a file of judged queries above. The best C is found on held-out queries; the result replaces the weights of the model.")));
    return;
  }
  for (const job of page.jobs) showJob(page, job);
  arrangeRows(page);
}

async function readJob(page, id, signal) {
  const job = await page.api.get(page.api.path`jobs/${id}`, { signal });
  const before = page.rows.get(id)?.job.state;
  if (before === "running" && job.state !== "running") page.announce(`Job of ${job.model}: ${job.state}`);
  page.jobs = page.jobs.map((one) => (one.id === id ? { ...one, state: job.state } : one));
  showJob(page, job);
}

function started(page, job) {
  page.jobs = [job, ...page.jobs.filter((one) => one.id !== job.id)];
  showJob(page, job);
  page.rows.get(job.id).element.open = true;
  arrangeRows(page);
  page.announce(`Job of ${job.model} started`);
}

/** Put the rows in the order of the list, the newest first. */
const arrangeRows = (page) => arrange(page.list, page.jobs.map((job) => page.rows.get(job.id).element));

function showJob(page, found) {
  const row = page.rows.get(found.id) ?? newRow(page, found);
  row.job = { ...row.job, ...found };
  noteProgress(row.job);
  setText(row.state, row.job.state);
  row.state.className = `badge ${KINDS[row.job.state]}`;
  setText(row.when, ago(1000 * row.job.created));
  setText(row.share, row.job.state === "running" ? percent(row.job.share_done) : "");
  if (row.open) fillBody(page, row);
}

function newRow(page, job) {
  const row = { job, open: job.state === "running", state: badge("", ""), when: h("span.muted"), share: h("span.numeric") };
  row.body = h("div.job-body.stack");
  row.bar = h("div");
  row.buttons = h("div.row");
  row.content = h("div.stack");
  row.body.append(row.bar, row.content, row.buttons);
  const summary = h("summary.row", h("strong", job.model), row.state, row.share, row.when);
  row.element = h("details.card.job", { open: row.open, ontoggle: () => toggled(page, row) }, summary, row.body);
  page.rows.set(job.id, row);
  return row;
}

function toggled(page, row) {
  row.open = row.element.open;
  if (row.open && !row.job.training) readJob(page, row.job.id).catch(() => {});
  if (row.open) fillBody(page, row);
}

/** The inside of a row; it is replaced only if the job has changed, so that the focus stays. */
function fillBody(page, row) {
  const { job } = row;
  const text = JSON.stringify(job);
  if (text === row.filled) return;
  row.filled = text;
  clear(row.bar, job.state === "running" && meter(job.share_done, percent(job.share_done), "Progress"));
  const opened = row.content.querySelector("details")?.open;
  clear(row.content, job.error && note("bad", job.error), facts(job), pathView(job));
  if (opened) row.content.querySelector("details")?.setAttribute("open", "");
  fillButtons(page, row);
}

function fillButtons(page, row) {
  const { job } = row;
  if (row.buttonsOf === job.state) return;
  row.buttonsOf = job.state;
  const again = button("Start again", () => act(page, row, "post", page.api.path`jobs/${job.id}/start`), { class: "small" });
  const cancel = button("Cancel", () => cancelJob(page, row), { class: "small" });
  clear(row.buttons, job.state === "running" && cancel, job.state === "failed" && again,
    link("To the model", "models", job.model),
    job.state === "done" && link("To its versions", "models", job.model, "versions"));
}

async function cancelJob(page, row) {
  const sure = await confirm("Cancel this job?", `The training of ${row.job.model} stops. The model is not changed.`,
    { action: "Cancel the job", kind: "danger" });
  if (sure) await act(page, row, "del", page.api.path`jobs/${row.job.id}`);
}

/** Cancel or start again; an error stays below the buttons. */
async function act(page, row, method, address_) {
  try {
    showJob(page, await page.api[method](address_));
    await readJob(page, row.job.id);
  } catch (error) {
    row.buttons.append(note("bad", error.detail ?? "This did not work."));
  }
}

function facts({ training = {}, progress = {}, result, begun, state }) {
  const parameter = training.trainer === "domination" ? "penalty" : "C";
  const given = training[parameter];
  const rows = [
    ["Data", progress.queries && `${plural(progress.queries, "query", "queries")}, ${plural(progress.documents, "document")}`],
    ["Trainer", training.trainer && `${training.trainer}${training.trainer === "ranksvm" ? `, loss ${training.loss}` : ""}`],
    [parameter, result ? number(result[parameter]) : given !== undefined ? exact(given) : `chosen by ${training.by ?? "ndcg@10"}`],
    ["Now at", state === "running" && progress.parameter !== undefined && `${parameter} = ${number(progress.parameter)}, iteration ${count(progress.iteration)}`],
    ["NDCG@10 on all judged queries", result && fixed(result["ndcg@10"], 4)],
    ["Time", result ? duration(result.seconds) : state === "running" && begun && duration(Date.now() / 1000 - begun)],
    ["Record in the log", result && count(result.seq)],
  ].filter(([, value]) => value);
  return settings(rows);
}

