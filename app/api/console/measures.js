/** Means and standard errors from the sums of a model's history (app/domain/statistics.py). */

const ROUNDING = 1e-9;

/** The standard error of a mean of `count` values from their sum and the sum of their squares; null if there is none. */
function standardError(total, squares, count) {
  const spread = count >= 2 ? squares - (total * total) / count : -1;
  if (spread < -ROUNDING * squares) return null;
  return Math.sqrt(Math.max(0, spread) / (count - 1) / count);
}

/** A reader of the columns of a history: difference(before, after, name) of two points. */
export function readerOf(history) {
  const places = new Map(history.columns.map((name, k) => [name, k + 2]));
  return {
    withErrors: history.with_errors,
    has: (name) => places.has(name),
    value: (point, name) => point[places.get(name)],
    difference: (before, after, name) => after[places.get(name)] - before[places.get(name)],
  };
}

/** Mean and standard error of a measure between two points; `side`: online, baseline or lead. */
export function windowMean(reader, before, after, side, measure) {
  const queries = reader.difference(before, after, "queries");
  if (!(queries > 0)) return { mean: null, error: null, queries: 0 };
  const total = totalOf(reader, before, after, side, measure);
  const mean = total / queries;
  const squares = `square_${side === "online" ? "" : `${side}_`}${measure}`;
  const possible = reader.withErrors && reader.has(squares);
  const error = possible ? standardError(total, reader.difference(before, after, squares), queries) : null;
  return Math.abs(mean) <= 1 + ROUNDING ? { mean, error, queries } : { mean: null, error: null, queries };
}

function totalOf(reader, before, after, side, measure) {
  const online = side === "baseline" ? 0 : reader.difference(before, after, measure);
  const baseline = side === "online" ? 0 : reader.difference(before, after, `baseline_${measure}`);
  return side === "lead" ? online - baseline : online + baseline;
}

/**
 * Means over a moving window of `seconds`, one for every point but the first: {times (s), values, low,
 * high} with a band of ± 2 standard errors. Points with less than half a window before them have none,
 * unless there are no others, and points with very few queries.
 */
export function movingMeans(reader, points, seconds, side, measure) {
  const found = { times: [], values: [], low: [], high: [] };
  const length = points.at(-1)[0] - points[0][0];
  const start = points[0][0] + (length > 1000 * seconds ? 500 * seconds : 0);
  const fewest = Math.min(10, reader.difference(points[0], points.at(-1), "queries") / 10);
  let from = 0;
  for (let to = 1; to < points.length; to += 1) {
    while (from < to - 1 && points[to][0] - points[from + 1][0] >= 1000 * seconds) from += 1;
    const { mean, error } = points[to][0] < start || reader.difference(points[from], points[to], "queries") < fewest
      ? { mean: null, error: null } : windowMean(reader, points[from], points[to], side, measure);
    found.times.push(points[to][0] / 1000);
    found.values.push(mean);
    found.low.push(mean === null || error === null ? null : mean - 2 * error);
    found.high.push(mean === null || error === null ? null : mean + 2 * error);
  }
  return found;
}

/** The points of a history without those that an update repeats, oldest first, at most `most`. */
export function merged(before, after, most) {
  const known = new Map([...before, ...after].map((point) => [point[0], point]));
  return [...known.values()].sort((a, b) => a[0] - b[0]).slice(-most);
}
