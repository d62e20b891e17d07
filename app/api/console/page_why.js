/** Why: two documents of a list, and what each feature adds to the gap between their scores. */

import { path } from "./api.js";
import { runningSum } from "./bars_signed.js";
import { button, card, clear, empty, h, note } from "./dom.js";
import { count, number, plural, reasonOf, share } from "./format.js";
import { offerLists } from "./lists.js";
import { featureLabel, orderOf, scoreList } from "./scoring.js";

const FIRST_FEATURES = 12;
const FEW_MORE = 4;
const MOST_DOCUMENTS = 100;

export async function show(root, context, { name }) {
  const page = {
    context, name, asked: 0,
    pick: h("div"), documents: h("div"), answer: h("div", { "aria-live": "polite" }) };
  clear(root,
    h("p.intro", "Pick two documents of a list. The bars show what each feature adds to the "
      + "gap between their scores: its weight times the difference of its values."),
    card("List", page.pick),
    h("div.split", card("Documents, best first", page.documents), card("The gap", page.answer)));
  clear(page.documents, empty("No list is chosen."));
  clear(page.answer, empty("No documents to compare."));
  offerLists(page, (list) => useList(page, list));
  return () => (page.asked = Infinity);
}

function useList(page, list) {
  page.list = list;
  const scores = scoreList(list, page.scorer);
  page.ranked = orderOf(scores).slice(0, MOST_DOCUMENTS)
    .map((at) => ({ id: list.documents[at].id, score: scores[at] }));
  [page.first, page.second] = [page.ranked[0], page.ranked[1]];
  if (page.ranked.length < 2) {
    clear(page.answer, empty("No documents to compare."));
    return void clear(page.documents, empty("This list has one document: there is no gap."));
  }
  clear(page.documents, documentTable(page), swapButton(page));
  compare(page);
}

function documentTable(page) {
  const rows = page.ranked.map((one, rank) => h("tr",
    h("td.numeric", rank + 1),
    h("th", { scope: "row", class: "id" }, one.id),
    h("td.numeric", number(one.score)),
    h("td", radio(page, "first", one, `A is ${one.id}`)),
    h("td", radio(page, "second", one, `B is ${one.id}`))));
  const heads = ["#", "Document", "Score", "A", "B"].map((text) => h("th", { scope: "col" }, text));
  return [
    h("div.tall",
      h("table.picks", h("thead", h("tr", heads)), h("tbody", rows))),
    h("p.hint", `Scores by version ${count(page.scorer.version)}, read when the page was opened.`)];
}

function radio(page, side, one, label) {
  const input = h("input", { type: "radio", name: `why-${side}`, "aria-label": label });
  input.checked = page[side] === one;
  input.addEventListener("change", () => {
    page[side] = one;
    compare(page);
  });
  return h("label.pick", input);
}

function swapButton(page) {
  return button("Exchange A and B", () => {
    [page.first, page.second] = [page.second, page.first];
    clear(page.documents, documentTable(page), swapButton(page));
    page.documents.querySelector("button").focus();
    compare(page);
  });
}

/** Ask for the gap; only the last answer counts. */
async function compare(page) {
  const { list, first, second } = page;
  const asked = ++page.asked;
  if (first === second) return void clear(page.answer, empty("Pick two different documents."));
  const body = { documents: list.documents, first: first.id, second: second.id, scored: list.scored };
  const shown = await page.context.api.post(path`models/${page.name}/compare`, body).then(explain,
    (error) => note("bad", `The documents cannot be compared: ${reasonOf(error)}`));
  if (asked === page.asked) clear(page.answer, shown);
}

const explain = (answer) => [sentence(answer), certainty(answer), contributions(answer), hint(answer)];

/** "a is above b by 0.42 ± 0.11." */
function sentence({ first, second, gap, stderr }) {
  if (gap === 0) return h("p.verdict", id(first), " and ", id(second), " have equal scores.");
  const [above, below] = gap > 0 ? [first, second] : [second, first];
  const size = stderr === null ? number(Math.abs(gap)) : `${number(Math.abs(gap))} ± ${number(stderr, 2)}`;
  return h("p.verdict", id(above), " is above ", id(below), " by ", h("b", size), ".");
}

const id = (document) => h("span.id", document.id);

/** How sure the model is, and how often exploration shows the other order. */
function certainty({ first, second, gap, stderr, exchange_probability: exchange }) {
  const sure = stderr === null
    ? "SOLAR-I keeps no uncertainty of its weights. "
    : stderr > 0 && `${sureness(Math.abs(gap) / stderr)} `;
  if (exchange === null) return h("p", sure, "The model does not explore: this order is always shown.");
  const below = gap >= 0 ? second : first;
  return h("p", sure, "Exploration shows ", id(below), " above in ", h("b", share(exchange)), " of draws.");
}

function sureness(deviations) {
  const known = deviations >= 3 ? "is sure" : deviations >= 1 ? "is fairly sure" : "hardly knows";
  return `The model ${known}: the gap is ${number(deviations, 2)} standard errors.`;
}

/** The largest contributions as steps, the others as one step; a button shows all. */
function contributions(answer) {
  const place = h("div", { tabindex: "-1" });
  const draw = (shown) => {
    const more = answer.contributions.length - shown;
    const showAll = () => {
      draw(answer.contributions.length);
      place.focus();
    };
    clear(place, steps(answer, shown), more > 0 && button(`Show ${plural(more, "more feature")}`, showAll));
  };
  const all = answer.contributions.length;
  draw(all <= FIRST_FEATURES + FEW_MORE ? all : FIRST_FEATURES);
  return place;
}

function steps({ contributions, rest, gap, first, second }, shown) {
  const found = contributions.slice(0, shown).map((one) => ({
    label: featureLabel(one.feature), value: one.contribution,
    note: `${number(one.weight)} × (${number(one.first)} − ${number(one.second)})`,
  }));
  const hidden = contributions.slice(shown);
  const others = hidden.length + rest.features;
  if (others) {
    const value = hidden.reduce((sum, one) => sum + one.contribution, rest.contribution);
    found.push({ label: plural(others, "other feature"), value });
  }
  const total = { label: "Gap, A − B", value: gap, note: `${number(first.score)} − ${number(second.score)}` };
  return runningSum(found, total, "Contributions of the features to the gap");
}

const hint = ({ version }) => h("p.hint",
  `Weights of version ${count(version)}. Bars to the right favour A, bars to the left favour B.`);
