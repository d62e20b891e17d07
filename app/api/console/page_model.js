/** One model: quality against the submitted order, weights, what was learnt and what was refused, settings. */

import { lineChart } from "./chart.js";
import { card, choice, clear, empty, h, note, redraw, setText, settings, tiles } from "./dom.js";
import { ago, count, duration, exact, fixed, number, percent, plural, signed } from "./format.js";
import { movingMeans, readerOf } from "./measures.js";
import { committedAt, covered, modelHistory, partsOf, pointsSince, ratesOf, verdict } from "./model_history.js";
import { weightsCard } from "./model_weights.js";
import { alarmsOf } from "./page_models.js";
import { poll } from "./poll.js";

const SECONDS = 10;
const MEASURES = [["NDCG@1", "ndcg@1"], ["NDCG@5", "ndcg@5"], ["NDCG@10", "ndcg@10"], ["MAP", "map"]];
/** Of each choice: the ring, its length, the least length of the axis and the moving windows in seconds. */
const SPANS = {
  hour: { ring: "hour", seconds: 3600, least: 300, windows: [300, 120, 60], label: "Last hour" },
  day: { ring: "day", seconds: 86400, least: 3600, windows: [3600, 1800, 600, 120], label: "Last day" },
};
const SERVED = { label: "as served", colour: "--blue" };
const SUBMITTED = { label: "submitted order", colour: "--orange", dash: [6, 4] };
const SETTINGS = [
  ["algorithm", "Algorithm"], ["covariance", "Covariance"], ["C", "C"], ["gamma", "γ"], ["normalization", "Normalization"],
  ["clicks", "Clicks become pairs by"], ["explore", "Explores"], ["exploration", "Exploration"], ["prior", "Prior of the submitted order"],
  ["pair_bound", "Bound of a pair"], ["forgetting", "Forgetting"]];

export async function show(root, { api }, { name }) {
  const page = { history: modelHistory(api, name), span: "hour", model: await api.get(api.path`models/${name}`) };
  const parts = [alarmsPart(page), tilesPart(page), qualityPart(page), weightsCard(page), trafficPart(page)];
  clear(root, parts.map((part) => part.element), detailsCards(page));
  const update = () => parts.forEach((part) => part.update());
  page.changed = update;
  const stop = poll(async (signal) => {
    page.model = await api.get(api.path`models/${name}`, { signal });
    await page.history.refresh(signal);
    update();
  }, SECONDS);
  return () => {
    stop();
    parts.forEach((part) => part.destroy?.());
  };
}

function alarmsPart(page) {
  const element = h("div.stack");
  const update = () => redraw(element, alarmsOf(page.model, page.history, page.model), (alarms) =>
    alarms.map(([kind, label, text]) => note(kind, h("b", `${label[0].toUpperCase()}${label.slice(1)}. `), text)));
  return { element, update };
}

function tilesPart(page) {
  const element = h("section.card", { "aria-label": "Main numbers" });
  return { element, update: () => redraw(element, mainNumbers(page), tiles) };
}

function mainNumbers({ model, history: { data } }) {
  const lag = model.seq - model.version;
  const committed = data && committedAt(data);
  const lead = { mean: model.lead.ndcg["10"], error: model.lead.ndcg_stderr["10"] };
  const words = { better: "better than the submitted order", worse: "worse than the submitted order", unclear: "no clear difference yet" };
  return [
    ["Version", count(model.version), lag > 0 ? `${count(lag)} behind` : "up to date"],
    ["Last commit", committed ? ago(committed) : "–", ""],
    ["Measured lists", count(model.queries), plural(model.feedback, "feedback record")],
    ["Lead, NDCG@10", lead.mean === null ? "–" : signed(lead.mean, 4),
      lead.mean === null ? "not measured yet" : `${lead.error === null ? "" : `± ${fixed(2 * lead.error, 4)}, `}${words[verdict(lead)]}`],
    ["Abandoned lists", count(model.abandoned_lists), abandonedShare(model)],
    ["Rejected records", count(model.rejected), model.rejected ? "could not be applied" : ""],
  ];
}

function abandonedShare({ abandoned_lists: abandoned, queries }) {
  return abandoned === null || !(abandoned + queries) ? "" : `${percent(abandoned / (abandoned + queries))} of lists with feedback`;
}

function qualityPart(page) {
  const hint = h("p.hint");
  const none = h("div");
  const boxes = MEASURES.map(() => h("div"));
  const grid = h("div.charts", boxes);
  const labels = Object.fromEntries(Object.entries(SPANS).map(([key, { label }]) => [key, label]));
  const spans = choice(labels, "Time span", (key) => {
    page.span = key;
    page.changed();
  });
  const element = h("section.card",
    h("div.card-head", h("h2", "Quality against the submitted order"), spans.element), none, grid, hint);
  let charts = [];
  let drawn = null;

  function draw() {
    charts.forEach((chart) => chart.destroy());
    charts = MEASURES.map(([label], k) => lineChart(boxes[k], {
      label, series: [SERVED, SUBMITTED], height: 190, format: (value) => fixed(value, 3), least: SPANS[page.span].least, bounds: [0, 1] }));
    drawn = page.span;
  }
  function update() {
    const points = measuredPoints(page);
    spans.show(page.span);
    grid.hidden = hint.hidden = points.length < 2;
    clear(none, points.length < 2 && noCurves(page));
    if (points.length < 2) return;
    if (drawn !== page.span) draw();
    setText(hint, `Each point is the mean of the ${duration(windowOf(page, points))} before it; bands are ± 2 standard errors.`);
    MEASURES.forEach(([, measure], k) => fillChart(charts[k], page, points, measure));
  }
  return { element, update, destroy: () => charts.forEach((chart) => chart.destroy()) };
}

/** The points of the chosen time; none if no list was measured between them. */
function measuredPoints({ history: { data }, span }) {
  const points = data ? pointsSince(data, SPANS[span].ring, SPANS[span].seconds) : [];
  return points.length && readerOf(data).difference(points[0], points.at(-1), "queries") !== 0 ? points : [];
}

/** The moving window: the longest that is at most a sixth of the time that is known. */
function windowOf({ span }, points) {
  const seconds = (points.at(-1)[0] - points[0][0]) / 1000;
  return SPANS[span].windows.find((one) => one <= seconds / 6) ?? SPANS[span].windows.at(-1);
}

function fillChart(chart, page, points, measure) {
  const reader = readerOf(page.history.data);
  const [served, submitted] = ["online", "baseline"].map((side) =>
    movingMeans(reader, points, windowOf(page, points), side, measure));
  chart.update(served.times, [served, submitted]);
}

function noCurves({ history }) {
  return empty(history.data ? "There are no curves yet." : "Reading the history.",
    h("p", "The learner writes a point at most every 10 seconds while it learns, and a curve needs lists between two points: send feedback to see curves here."));
}

function trafficPart(page) {
  const box = h("div");
  const none = h("div");
  const outcomes = h("dl.facts.wide");
  const element = h("div.columns",
    card("Traffic", none, box), card("What was learnt, and what was not", outcomes));
  const series = [{ label: "lists with feedback /s", colour: "--blue" }, { label: "feedback records /s", colour: "--green", dash: [6, 4] }];
  const chart = lineChart(box, { series, height: 320, format: (value) => number(value, 2), range: (_, high) => [0, 1.1 * (high || 1)] });

  function update() {
    clear(outcomes, outcomeRows(page.model));
    box.hidden = !page.history.data;
    clear(none, !page.history.data && noCurves(page));
    if (!page.history.data) return;
    const { ring, least } = SPANS[page.span];
    const seconds = covered(page.history.data, ring, SPANS[page.span].seconds, least);
    const bins = partsOf(seconds);
    const end = page.history.data.now[0];
    const rates = (names) => ({ values: ratesOf(page.history.data, names, { ring, seconds, bins, end }) });
    const times = Array.from({ length: bins }, (_, k) => end / 1000 - seconds + ((k + 1) * seconds) / bins);
    chart.update(times, [rates(["queries", "abandoned"]), rates(["feedback"])]);
  }
  return { element, update, destroy: chart.destroy };
}

function outcomeRows({ pairs, rejected, abandoned_lists: abandoned, feedback, explored_share: explored }) {
  const all = pairs.stepped + pairs.passive + pairs.refused;
  const share = (value) => (all ? ` (${percent(value / all)})` : "");
  return [
    ["Feedback records learnt", count(feedback), "clicks, labels and triplets"],
    ["Pairs that changed the weights", count(pairs.stepped) + share(pairs.stepped), ""],
    ["Pairs already in the right order", count(pairs.passive) + share(pairs.passive), "passive: no step was needed"],
    ["Pairs refused", count(pairs.refused) + share(pairs.refused), "beyond the numeric limits"],
    ["Pairs with a bounded weight", count(pairs.bounded), "weight scaled down to the bound of a pair"],
    ["Records rejected", count(rejected), "wrong number of features, or positions outside the list"],
    ["Lists abandoned", count(abandoned), "shown, but without a click so far"],
    ["Lists explored", percent(explored), "measured lists whose order was randomised"],
  ].map(([label, value, reason]) => [h("dt", label, reason && h("span.hint.block", reason)), h("dd", value)]);
}

/** The settings, and the features of a model without names of its own. */
function detailsCards({ model }) {
  const rows = SETTINGS.filter(([field]) => model[field] !== undefined)
    .map(([field, label]) => [label, settingText(model[field])]);
  const knots = Object.values(model.splines ?? {}).flat().length;
  const counts = [["Features", count(model.features.length)], ...(knots ? [["Knots of splines", count(knots)]] : [])];
  return card("Settings", settings([...rows, ...counts]));
}

function settingText(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? exact(value) : value;
}
