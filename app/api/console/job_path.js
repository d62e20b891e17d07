/** The path of a training job over C (or the penalty): quality of each value that was tried. */

import { h, svg, table } from "./dom.js";
import { exact, fixed, number } from "./format.js";

const WIDTH = 420;
const HEIGHT = 150;
const EDGE = { left: 52, right: 12, top: 12, bottom: 30 };

/** Progress of running jobs as this page saw it: job → parameter → point. */
const seen = new Map();

/** Note the progress of a job; a later report on the same parameter replaces the earlier one. */
export function noteProgress({ id, progress }) {
  if (progress?.parameter === undefined) return;
  const path = seen.get(id) ?? new Map();
  path.set(progress.parameter, { parameter: progress.parameter, quality: progress["ndcg@10"] });
  seen.set(id, path);
}

/** The tried values of a job in ascending order: those of the result, else those that were seen. */
function pathOf({ id, training, result }) {
  const name = training?.trainer === "domination" ? "penalty" : "C";
  const tried = result?.tried?.map((one) => ({ parameter: one[name], quality: one.quality }));
  const points = tried ?? [...(seen.get(id)?.values() ?? [])];
  return { name, chosen: result?.[name], held: Boolean(tried), points: points.sort((a, b) => a.parameter - b.parameter) };
}

/** A small chart and a table of a path; null if nothing was tried yet. */
export function pathView(job) {
  const path = pathOf(job);
  if (!path.points.length) return null;
  const where = path.held ? "on held-out queries" : "on the training queries so far";
  return h("div.stack",
    h("p.hint", `${measureName(job)} ${where}, by ${path.name} (logarithmic)`),
    path.points.length > 1 && pathChart(path),
    h("details", h("summary", "As a table"), pathTable(path)));
}

const measureName = ({ training }) => (training?.by === "pairwise" ? "Pairs in the right order" : "NDCG@10");

function pathTable({ name, chosen, points }) {
  return table([
    { label: name, numeric: true, cell: (one) => exact(one.parameter) },
    { label: "Quality", numeric: true, cell: (one) => fixed(one.quality, 4) },
    { label: "Choice", cell: (one) => (one.parameter === chosen ? "chosen" : "") },
  ], points, { caption: `Path over ${name}` });
}

function pathChart({ name, chosen, points }) {
  const [low, high] = extent(points.map((one) => one.quality));
  const [first, last] = [Math.log(points[0].parameter), Math.log(points.at(-1).parameter)];
  const x = (one) => EDGE.left + ((Math.log(one.parameter) - first) / (last - first || 1)) * (WIDTH - EDGE.left - EDGE.right);
  const y = (value) => HEIGHT - EDGE.bottom - ((value - low) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const line = points.map((one) => `${x(one).toFixed(1)},${y(one.quality).toFixed(1)}`).join(" ");
  const text = (at, top, anchor, label) => svg("text", { x: at, y: top, "text-anchor": anchor }, label);
  return svg("svg.path-chart", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Quality by ${name}` },
    [low, high].map((value) => [
      svg("line.path-grid", { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(value), y2: y(value) }),
      text(EDGE.left - 6, y(value) + 4, "end", fixed(value, 4))]),
    svg("polyline.spark-line", { points: line }),
    points.map((one) => svg("circle", {
      class: one.parameter === chosen ? "path-chosen" : "spark-dot", cx: x(one), cy: y(one.quality), r: one.parameter === chosen ? 5 : 3 })),
    text(x(points[0]), HEIGHT - 10, "start", number(points[0].parameter, 2)),
    text(x(points.at(-1)), HEIGHT - 10, "end", number(points.at(-1).parameter, 2)));
}

function extent(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return high > low ? [low, high] : [low - 0.005, high + 0.005];
}
