/** Line charts with bands over uPlot, and sparklines as SVG. Colours come from the CSS variables. */

import { clear, h, setStyle, svg } from "./dom.js";
import { clock, count, fixed, isNumber, number, plural, power, time } from "./format.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
const FONT = "12px system-ui, sans-serif";

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A colour with an opacity of 0 to 1. */
const translucent = (name, opacity) => `color-mix(in srgb, ${colour(name)} ${100 * opacity}%, transparent)`;

/**
 * Draw lines over time below `root`. Options: {label, series: [{label, colour, dash}], height,
 * format(value), range(low, high), bounds: [low, high] of all values, least: seconds of the axis,
 * unit: what the axis counts instead of seconds ("list"), powers: whether values are exponents of 10}.
 * `update(times, lines)` takes times in seconds since 1970, or counts, and for every series {values, low, high}, where low and high (null: no band) may be left out.
 * Returns {update, destroy}; the chart follows the width of `root` and the theme.
 */
export function lineChart(root, options) {
  const box = h("div.chart");
  const legend = legendOf(options);
  clear(root, legend.element, box);
  const state = { plot: null, times: [], lines: options.series.map(() => ({ values: [] })) };

  function draw() {
    state.plot?.destroy();
    state.plot = new globalThis.uPlot(plotOptions(box, options, legend), aligned(state), box);
  }
  function update(times, lines) {
    Object.assign(state, { times, lines });
    legend.rest(lines);
    if (state.plot) state.plot.setData(aligned(state));
    else draw();
  }
  const observer = new ResizeObserver(() => resize(state, box));
  observer.observe(box);
  DARK.addEventListener("change", draw);
  return {
    update,
    destroy() {
      observer.disconnect();
      DARK.removeEventListener("change", draw);
      state.plot?.destroy();
    },
  };
}

function resize(state, box) {
  const width = Math.floor(box.clientWidth);
  if (state.plot && width > 0 && width !== state.plot.width) state.plot.setSize({ width, height: state.plot.height });
}

/** The data as uPlot wants it: times, then value, low and high of every series. */
function aligned({ times, lines }) {
  const none = times.map(() => null);
  return [times, ...lines.flatMap((line) => [line.values, line.low ?? none, line.high ?? none])];
}

function plotOptions(box, options, legend) {
  return {
    width: Math.max(200, Math.floor(box.clientWidth)),
    height: options.height ?? 200,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: options.unit ? { time: false, range: (_, low, high) => [0, high || 1] }
        : { time: true, range: (plot, low) => timeRange(plot.data[0], low, options.least ?? 60) },
      y: { range: (_, low, high) => bounded((options.range ?? padded)(low, high), options.bounds) } },
    axes: [options.unit ? countAxis() : timeAxis(), options.powers ? powerAxis() : valueAxis(options)],
    series: [{}, ...options.series.flatMap(plotSeries)],
    bands: options.series.map((one, k) => ({ series: [3 * k + 3, 3 * k + 2], fill: translucent(one.colour, 0.18) })),
    hooks: { setCursor: [(plot) => legend.at(plot)] },
  };
}

function plotSeries(one) {
  const edge = { show: true, stroke: "transparent", width: 0, points: { show: false }, spanGaps: false };
  return [{ label: one.label, stroke: colour(one.colour), width: 2, dash: one.dash, points: { show: isSinglePoint, size: 7 } }, edge, edge];
}

/** The times up to the last one, at least `least` seconds: for a single time uPlot itself offers 1,000 days. */
function timeRange(times, low, least) {
  const high = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(low ?? high, high - least), high];
}

/** Whether a series has one value only, which is drawn as a dot: no line leads to it. */
const isSinglePoint = (plot, series) => plot.data[series].filter(isNumber).length === 1;

/** Some room above and below; a flat line stands in the middle. */
function padded(low, high) {
  if (!isNumber(low) || !isNumber(high)) return [0, 1];
  const room = Math.max((high - low) * 0.08, Math.abs(high) * 0.01, 1e-6);
  return [low - room, high + room];
}

const bounded = ([low, high], bounds) => (bounds ? [Math.max(low, bounds[0]), Math.min(high, bounds[1])] : [low, high]);

const axisColours = () => ({
  stroke: colour("--muted"), font: FONT, grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } });

function timeAxis() {
  const label = (seconds, long) => (long ? time(1000 * seconds) : clock(1000 * seconds).slice(0, 5));
  return { ...axisColours(), size: 28, space: 70,
    values: (plot, ticks) => ticks.map((one) => label(one, plot.scales.x.max - plot.scales.x.min > 172800)) };
}

const countAxis = () => ({ ...axisColours(), size: 28, space: 70,
  values: (_, ticks) => ticks.map((one) => (Number.isInteger(one) ? count(one) : "")) });

const powerAxis = () => ({ ...axisColours(), size: 46, space: 30, incrs: [1, 2, 5, 10, 20, 50, 100],
  values: (_, ticks) => ticks.map((one) => (Math.abs(one) > 3 ? power(one) : number(10 ** one, 1))) });

function valueAxis(options) {
  return { ...axisColours(), size: options.axisSize ?? 46, space: 36, values: (_, ticks) => ticks.map(tickFormat(ticks)) };
}

/** As many decimals as the distance of two ticks needs. */
function tickFormat(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  const decimals = [0, 1, 2, 3, 4, 5].find((one) => Math.abs(step * 10 ** one - Math.round(step * 10 ** one)) < 1e-6) ?? 6;
  return (value) => fixed(value, decimals);
}

/** The names of the lines with their latest values, or those below the pointer. */
function legendOf({ label, series, unit, format = fixed }) {
  const values = series.map(() => h("span.numeric.legend-value"));
  const moment = h("span.legend-time");
  const items = series.map((one, k) => h("li", swatch(one), one.label, " ", values[k]));
  const element = h("div.legend", label && h("h3", label), h("ul", items), moment);
  let latest = [];
  const showAll = (found) => found.forEach((one, k) => { values[k].textContent = found.length ? one : ""; });

  function rest(lines) {
    latest = lines.map((line) => legendValue(line, line.values.findLastIndex(isNumber), format));
    moment.textContent = "";
    showAll(latest);
  }
  function at(plot) {
    const index = plot.cursor.idx;
    if (index == null) return rest(linesOf(plot, series.length));
    const at = plot.data[0][index];
    moment.textContent = unit ? plural(at, unit) : clock(1000 * at);
    return showAll(linesOf(plot, series.length).map((line) => legendValue(line, index, format)));
  }
  return { element, rest, at };
}

const linesOf = (plot, length) => Array.from({ length }, (_, k) => ({
  values: plot.data[3 * k + 1], low: plot.data[3 * k + 2], high: plot.data[3 * k + 3] }));

function legendValue(line, index, format) {
  const [value, high] = [line.values[index], line.high?.[index]];
  return isNumber(high) ? `${format(value)} ± ${format(high - value)}` : format(value);
}

function swatch(one) {
  const line = svg("line", { x1: 0, y1: 5, x2: 18, y2: 5, "stroke-width": 3, "stroke-dasharray": one.dash && "5 3" });
  setStyle(line, { stroke: `var(${one.colour})` });
  return svg("svg.swatch", { width: 18, height: 10, "aria-hidden": "true" }, line);
}

/** A small line without axes; null values are gaps. `label` is read by screen readers. */
export function sparkline(values, { label = "", width = 120, height = 28, low = 0 } = {}) {
  const known = values.filter(isNumber);
  const picture = { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label,
    preserveAspectRatio: "none" };
  const ground = svg("line.spark-none", { x1: 0, x2: width, y1: height - 1, y2: height - 1 });
  if (known.length < 2) return svg("svg", picture, ground);
  const [least, most] = [Math.min(low ?? Infinity, ...known), Math.max(...known)];
  const x = (k) => (k * (width - 4)) / (values.length - 1) + 1;
  const y = (value) => height - 2 - ((value - least) * (height - 5)) / (most - least || 1);
  const points = values.map((value, k) => (isNumber(value) ? `${x(k).toFixed(1)},${y(value).toFixed(1)}` : null)).filter(Boolean);
  const last = values.findLastIndex(isNumber);
  const area = `${points[0].split(",")[0]},${height} ${points.join(" ")} ${points.at(-1).split(",")[0]},${height}`;
  return svg("svg", picture, ground,
    svg("polygon.spark-area", { points: area }), svg("polyline.spark-line", { points: points.join(" ") }),
    svg("circle.spark-dot", { cx: x(last), cy: y(values[last]), r: 2 }));
}
