/** The two charts of a duel: its evidence, and the interval of its win share. */

import { lineChart } from "./chart.js";
import { card, h } from "./dom.js";
import { number, percent } from "./format.js";

/** The interval is drawn from this share of the lists on, where it is narrow enough to be seen. */
const NARROW = 0.1;

/** The charts; `update(duel)` draws the points of its curve and its present state. */
export function duelCharts() {
  const boxes = [h("div"), h("div")];
  const [evidence, interval] = [evidenceChart(boxes[0]), intervalChart(boxes[1])];
  const element = card("Over the lists of the duel", h("div.charts", boxes), h("p.hint",
    "Evidence of 1/α is a verdict. Between equal sides it is ever reached with a chance of at most α, however often you look."));
  const update = (duel) => {
    const points = pointsOf(duel);
    evidence.update(duel, points);
    interval.update(points);
  };
  return { element, update, destroy: () => [evidence, interval].forEach((one) => one.destroy()) };
}

/** From no list on to the present state, which may be later than the last point of the curve. */
function pointsOf({ curve, lists, evidence, win_share, interval }) {
  const points = [{ lists: 0, win_share: null, evidence: 1, interval: [0, 1] }, ...curve];
  return lists > points.at(-1).lists ? [...points, { lists, win_share, evidence, interval }] : points;
}

const column = (points, name) => points.map((one) => one[name]);

function evidenceChart(root) {
  let line = 0;
  const chart = lineChart(root, {
    label: "Evidence", unit: "list", powers: true, height: 240, format: (power) => number(10 ** power),
    series: [{ label: "evidence", colour: "--blue" }, { label: "1/α", colour: "--orange", dash: [6, 4] }],
    range: (low, high) => [Math.min(-0.5, low - 0.1), Math.max(line, high) + 0.3] });
  const update = ({ alpha }, points) => {
    line = -Math.log10(alpha);
    chart.update(column(points, "lists"), [
      { values: points.map((one) => Math.log10(Math.max(1e-300, one.evidence))) }, { values: points.map(() => line) }]);
  };
  return { update, destroy: chart.destroy };
}

function intervalChart(root) {
  let room = 0.5;
  const chart = lineChart(root, {
    label: "Win share", unit: "list", height: 240, format: (share) => percent(share),
    series: [{ label: "of the champion", colour: "--blue" }, { label: "½", colour: "--orange", dash: [6, 4] }],
    range: () => [0.5 - room, 0.5 + room] });
  const update = (points) => {
    const late = points.filter((one) => one.lists >= NARROW * points.at(-1).lists && one.lists > 0);
    room = late.length ? Math.min(0.5, 1.05 * Math.max(...late.map((one) => Math.max(0.5 - one.interval[0], one.interval[1] - 0.5)))) : 0.5;
    const bound = (side) => points.map((one) => one.interval[side]);
    chart.update(column(points, "lists"), [
      { values: column(points, "win_share"), low: bound(0), high: bound(1) },
      { values: points.map(() => 0.5) }]);
  };
  return { update, destroy: chart.destroy };
}
