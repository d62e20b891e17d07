/** The history of a model in the page: read once, then only what is new. */

import { merged, readerOf, windowMean } from "./measures.js";

const HOUR_POINTS = 360;
const DAY_POINTS = 144;
const WEIGHT_ROWS = 25;
/** A commit later than this after the last point would have written a point. */
const POINT_MS = 10000;

/** A history that `refresh(signal)` updates; `data` is null before. */
export function modelHistory(api, name) {
  const found = { data: null, refresh };

  async function refresh(signal) {
    const last = found.data?.hour.at(-1)?.[0];
    const address = api.path`models/${name}/history`;
    const answer = await api.get(last ? `${address}?after=${last}` : address, { signal });
    const restarted = found.data && answer.now[1] < found.data.now[1];
    found.data = restarted ? await api.get(address, { signal }) : joined(found.data, answer);
  }
  return found;
}

function joined(before, answer) {
  if (!before) return answer;
  const weights = new Map([...before.weights, ...answer.weights].map((row) => [row.time, row]));
  return {
    ...answer,
    hour: merged(before.hour, answer.hour, HOUR_POINTS),
    day: merged(before.day, answer.day, DAY_POINTS),
    weights: [...weights.values()].sort((a, b) => a.time - b.time).slice(-WEIGHT_ROWS),
  };
}

/** When the model was last committed, in ms since 1970, as well as the points tell; null if it never was. */
export function committedAt(history) {
  const last = [history.hour.at(-1), history.day.at(-1)].filter(Boolean).sort((a, b) => b[0] - a[0])[0];
  if (!last) return history.now[1] > 0 ? history.now[0] : null;
  return history.now[1] > last[1] ? Math.min(history.now[0], last[0] + POINT_MS) : last[0];
}

/** All points of a ring and the latest state, at its commit and now; the last hour of a day is as fine as the hour. */
function pointsOf(history, ring) {
  const committed = [committedAt(history) ?? history.now[0], ...history.now.slice(1)];
  return merged(ring === "day" ? [...history.day, ...history.hour] : history.hour, [committed, history.now], Infinity);
}

/** The points of the last `seconds` of a ring, with the one before them as their start, and the latest state. */
export function pointsSince(history, ring, seconds) {
  const start = history.now[0] - 1000 * seconds;
  const all = pointsOf(history, ring);
  const first = all.findIndex((point) => point[0] >= start);
  return all.slice(Math.max(0, first - 1));
}

/** Mean and error of a measure since the start of the model, or since its measures were reset. */
export function wholeMean(history, side, measure) {
  const zero = history.now.map((value, k) => (k < 2 ? value : 0));
  return windowMean(readerOf(history), zero, history.now, side, measure);
}

/** Mean and error of a measure in the last `seconds`. */
export function recentMean(history, seconds, side, measure) {
  const points = pointsSince(history, seconds > 3600 ? "day" : "hour", seconds);
  return windowMean(readerOf(history), points[0], points.at(-1), side, measure);
}

/** How much of the last `seconds` a ring covers, but at least `least` seconds. */
export function covered(history, ring, seconds, least) {
  const first = pointsOf(history, ring).find((point) => point[0] >= history.now[0] - 1000 * seconds) ?? history.now;
  return Math.min(seconds, Math.max(least, (history.now[0] - first[0]) / 1000));
}

/** The number of parts of a time of `seconds`: none shorter than two intervals of 10 s. */
export const partsOf = (seconds) => Math.max(2, Math.min(60, Math.floor(seconds / 20)));

/**
 * How much sums grow in a second, in `bins` parts of the last `seconds`, oldest first; null where the
 * sums are not known or were reset.
 */
export function ratesOf(history, names, { seconds = 3600, bins = 60, ring = "hour", end = history.now[0] } = {}) {
  const reader = readerOf(history);
  const points = pointsOf(history, ring);
  const total = (point) => names.reduce((sum, name) => sum + reader.value(point, name), 0);
  const width = (1000 * seconds) / bins;
  return Array.from({ length: bins }, (_, k) => {
    const to = end - (bins - 1 - k) * width;
    const from = Math.max(to - width, points[0][0]); // the first point may be in the middle of a part
    const change = from < to ? totalAt(points, to, total) - totalAt(points, from, total) : -1;
    return change >= 0 ? (1000 * change) / (to - from) : null;
  });
}

/** A sum at a time, on the line between two points. */
function totalAt(points, time, total) {
  const k = points.findLastIndex((point) => point[0] <= time);
  const [before, after] = [points[Math.max(0, k)], points[k + 1] ?? points.at(-1)];
  const share = after[0] > before[0] ? (time - before[0]) / (after[0] - before[0]) : 0;
  return total(before) + share * (total(after) - total(before));
}

/** Compare a mean with 0: "better", "worse" or "unclear", by two standard errors. */
export function verdict({ mean, error }) {
  if (mean === null || error === null) return "unclear";
  if (mean - 2 * error > 0) return "better";
  return mean + 2 * error < 0 ? "worse" : "unclear";
}
