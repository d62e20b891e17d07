// Scores in the page, as the service computes them (app/domain/candidates.py): features are
// rounded to float32, scaled over the list if the model does so, followed by the ramps of the
// model's splines and the submitted order, multiplied by the weights.

/** The feature that a model with a prior adds: the submitted order. */
export const ORDER = "_order";

/** The name of a feature for people. */
export const featureLabel = (name) => (name === ORDER ? "submitted order" : name);

/** What scoring needs of a model, from the answer of GET /models/NAME. */
export function scorerOf(model) {
  const given = new Set(model.features);
  const ordered = ORDER in model.weights && !given.has(ORDER);
  const columns = Object.keys(model.weights).filter((name) => !given.has(name) && name !== ORDER);
  const names = [...model.features, ...columns, ...(ordered ? [ORDER] : [])];
  return {
    version: model.version,
    given: model.features,
    names,
    ramps: rampsOf(model),
    weights: Float64Array.from(names, (name) => model.weights[name]),
    scaled: model.normalization === "query-minmax",
    ordered,
  };
}

/** The feature k and the knot of each ramp, in the order of the columns. */
function rampsOf({ features, splines = {} }) {
  const knots = new Map(Object.entries(splines));
  return features.flatMap((name, k) => (knots.get(name) ?? []).map((knot) => ({ k, knot: Math.fround(knot) })));
}

const ramp = (x, knot) => Math.max(0, Math.fround(Math.fround(x) - knot));

/** Rows of features as scored: rounded, scaled, with ramps and the submitted order. */
function scoredRows(rows, scorer) {
  const rounded = rows.map((row) => Float32Array.from(row));
  const scaled = scorer.scaled ? minMax(rounded) : rounded;
  const bent = scorer.ramps.length ? withRamps(scaled, scorer.ramps) : scaled;
  return scorer.ordered ? withOrder(bent) : bent;
}

/** The rows with max(0, x - knot) for each ramp as the last features. */
const withRamps = (rows, ramps) =>
  rows.map((row) => Float32Array.of(...row, ...ramps.map(({ k, knot }) => ramp(row[k], knot))));

/** A row as scored, with another value of feature k; its ramps follow. */
export function withScored(row, k, value, { given, ramps }) {
  const changed = row.with(k, value);
  ramps.forEach((one, at) => one.k === k && (changed[given.length + at] = ramp(value, one.knot)));
  return changed;
}

/** Each feature scaled to (x - min) / (max - min) over the rows; 0 if it is constant. */
function minMax(rows) {
  const scaled = rows.map((row) => new Float32Array(row.length));
  for (let k = 0; k < (rows[0]?.length ?? 0); k++) {
    const [least, most] = range(rows, k);
    const spread = most > least ? most - least : 1;
    rows.forEach((row, at) => (scaled[at][k] = (row[k] - least) / spread));
  }
  return scaled;
}

/** The rows with 1 - position / (rows - 1) as the last feature. */
function withOrder(rows) {
  const last = Math.max(1, rows.length - 1);
  return rows.map((row, at) => {
    const longer = new Float32Array(row.length + 1);
    longer.set(row);
    longer[row.length] = 1 - at / last;
    return longer;
  });
}

/** The least and the largest value of a feature over the rows. */
export function range(rows, k) {
  let [least, most] = [Infinity, -Infinity];
  for (const row of rows) {
    if (row[k] < least) least = row[k];
    if (row[k] > most) most = row[k];
  }
  return [least, most];
}

export function scores(rows, weights) {
  return rows.map((row) => row.reduce((sum, value, k) => sum + value * weights[k], 0));
}

/** Positions from the best score to the worst; equal scores keep their order. */
export function orderOf(found) {
  return found.map((_, at) => at).sort((a, b) => found[b] - found[a] || a - b);
}

/** Scores of a list: { documents, scored } as chosen in lists.js. */
export function scoreList(list, scorer) {
  const rows = list.documents.map((one) => one.features);
  return scores(list.scored ? rows : scoredRows(rows, scorer), scorer.weights);
}

/** The features with the largest |weight| × range over the rows, at most `count`. */
export function strongest(rows, weights, count) {
  const effects = Array.from(weights, (weight, k) => {
    const [least, most] = range(rows, k);
    return { k, effect: Math.abs(weight) * (most - least), weight: Math.abs(weight) };
  });
  effects.sort((a, b) => b.effect - a.effect || b.weight - a.weight || a.k - b.k);
  return effects.slice(0, count).map((one) => one.k);
}

/** Documents from pasted JSON: a list, or an object with `documents`, as for POST /rank. */
export function parseDocuments(text, scorer) {
  const found = parseJson(text);
  const documents = Array.isArray(found) ? found : found?.documents;
  if (!Array.isArray(documents) || !documents.length) {
    throw new Error('expected a list of documents, or {"documents": [...]}');
  }
  const seen = new Set();
  return documents.map((one, at) => {
    const id = idOf(one, at);
    if (seen.has(id)) throw new Error(`documents[${at}].id: ${id} is there twice`);
    seen.add(id);
    return { id, features: featuresOf(one.features, at, scorer) };
  });
}

function parseJson(text) {
  if (!text.trim()) throw new Error("nothing is pasted yet");
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`expected JSON: ${error.message}`);
  }
}

function idOf(one, at) {
  if (typeof one?.id !== "string" || !one.id) {
    throw new Error(`documents[${at}].id: expected a text that is not empty`);
  }
  return one.id;
}

/** A row of features from a list of numbers, or from an object by name: others are 0. */
function featuresOf(features, at, { given }) {
  const where = `documents[${at}].features`;
  if (features === null || typeof features !== "object") {
    throw new Error(`${where}: expected a list of numbers, or an object by feature name`);
  }
  const listed = Array.isArray(features);
  if (listed && features.length !== given.length) {
    throw new Error(`${where}: expected ${given.length} values, got ${features.length}`);
  }
  const unknown = listed ? undefined : Object.keys(features).find((name) => !given.includes(name));
  if (unknown !== undefined) throw new Error(`${where}: unknown feature "${unknown}"`);
  const row = listed ? features : given.map((name) => (Object.hasOwn(features, name) ? features[name] : 0));
  row.forEach((value, k) => {
    if (typeof value !== "number") throw new Error(`${where}.${given[k]}: expected a number`);
  });
  return row;
}
