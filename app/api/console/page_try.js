/** Try: change features and see the order move; click a result and see what the model would learn. */

import { path } from "./api.js";
import { button, card, clear, confirm, empty, h, link, note, switcher } from "./dom.js";
import { count, plural, reasonOf } from "./format.js";
import { offerLists, readModel } from "./lists.js";
import { postClicks } from "./post_clicks.js";
import { orderOf, scoreList, withScored } from "./scoring.js";
import { lesson } from "./try_lesson.js";
import { rankedList } from "./try_list.js";
import { sliders } from "./try_sliders.js";

const ASK_AFTER = 300;
const MOST_DOCUMENTS = 200;

export async function show(root, context, { name }) {
  const page = {
    context, name, asked: 0, pick: h("div"), ranking: h("div"), features: h("div"),
    lesson: h("div.lesson", { "aria-live": "polite" }), posted: h("div", { role: "status" }) };
  page.post = button("Post to the real model…", () => post(page), { disabled: true });
  const clicks = h("div", page.lesson, h("div.actions", page.post), page.posted);
  page.tabs = switcher({ features: page.features, clicks },
    { features: "Features", clicks: "What clicks teach" }, "Shown beside the ranking");
  clear(root,
    h("p.intro", "Move the sliders of a document and see the order change. Click results as a "
      + "user would: a copy of the model learns, and you see which weights move."),
    card("List", page.pick),
    h("div.split", card("Ranking", page.ranking), card(null, page.tabs.element, page.features, clicks)));
  page.tabs.show("features");
  clear(page.ranking, empty("No list is chosen."));
  clear(page.features, empty("Select a document in the ranking."));
  showLesson(page);
  offerLists(page, (list) => useList(page, list));
  return () => {
    page.asked = Infinity;
    clearTimeout(page.timer);
  };
}

/** Start with a list: nothing is clicked, the first document is selected. */
function useList(page, list) {
  if (list.documents.length > MOST_DOCUMENTS) return void clear(page.ranking, note("warning",
    `This page takes at most ${MOST_DOCUMENTS} documents, these are ${count(list.documents.length)}.`));
  page.list = { ...list, documents: list.documents.map((one) => ({ ...one })) };
  page.original = page.list.documents.map((one) => [...one.features]);
  page.clicked = [];
  page.view = rankedList(page.list.documents, { 
    select: (at) => {
      page.tabs.show("features");
      select(page, at);
    },
    click: (at) => click(page, at),
  });
  page.start = orderOf(scoreList(page.list, page.scorer));
  clear(page.ranking, page.view.element);
  clear(page.posted);
  select(page, page.start[0]);
  showLesson(page);
}

function select(page, at) {
  page.selected = at;
  const { list, scorer } = page;
  const names = list.scored ? scorer.names : scorer.given;
  const { id, features } = list.documents[at];
  const changed = (k, value) => change(page, k, value);
  clear(page.features, h("p", "Document ", h("span.id", id)),
    sliders({ id, row: features, rows: page.original, names, hidden: isRamp(scorer), weights: scorer.weights, changed }),
    button("Reset all features", () => reset(page), { class: "small" }));
  draw(page);
}

/** Whether column k is a ramp, which follows from its feature. */
const isRamp = ({ given, ramps }) => (k) => k >= given.length && k < given.length + ramps.length;

function change(page, k, value) {
  const { list, scorer } = page;
  const document = list.documents[page.selected];
  document.features = list.scored ? withScored(document.features, k, value, scorer) : document.features.with(k, value);
  draw(page);
  askSoon(page);
}

function reset(page) {
  page.list.documents.forEach((one, at) => (one.features = [...page.original[at]]));
  select(page, page.selected);
  page.features.querySelector("input")?.focus();
  askSoon(page);
}

const isChanged = ({ list, original }) =>
  list.documents.some((one, at) => one.features.some((value, k) => value !== original[at][k]));

function draw(page) {
  const scores = scoreList(page.list, page.scorer);
  const { start, selected, clicked } = page;
  page.view.update({ order: orderOf(scores), start, scores, selected, clicked });
}

function click(page, at) {
  page.clicked = page.clicked.includes(at) ? page.clicked.filter((one) => one !== at) : [...page.clicked, at];
  clear(page.posted);
  page.tabs.show("clicks");
  draw(page);
  ask(page);
}

function askSoon(page) {
  clearTimeout(page.timer);
  page.timer = setTimeout(() => ask(page), ASK_AFTER);
}

const clickedIds = (page) => page.clicked.map((at) => page.list.documents[at].id);

/** Ask what the clicks would teach; only the last answer counts. */
async function ask(page) {
  const asked = ++page.asked;
  if (!page.clicked.length) return showLesson(page);
  const body = { documents: page.list.documents, scored: page.list.scored, clicks: clickedIds(page) };
  const shown = await page.context.api.post(path`models/${page.name}/what-if`, body).then(
    (answer) => lesson(answer, page.model.gamma),
    (error) => note("bad", `This cannot be computed: ${reasonOf(error)}`));
  if (asked === page.asked) showLesson(page, shown);
}

function showLesson(page, shown) {
  page.post.disabled = !shown;
  clear(page.lesson, shown ?? empty("Nothing is clicked yet.",
    h("p", "Press “Click” beside a document of the ranking.")));
}

async function post(page) {
  const { list, name } = page;
  if (list.scored && isChanged(page)) return void clear(page.posted, note("warning",
    "The real list was shown with other features. Reset all features first, or paste the documents."));
  const ids = clickedIds(page);
  const title = `Teach the model ${name} this click?`;
  if (!(await confirm(title, consequences(page, ids), { action: "Post the click" }))) return;
  page.post.disabled = true;
  const shown = await postClicks(page.context.api, name, list, ids).then((answer) => done(page, answer),
    (error) => note("bad", `Not posted: ${reasonOf(error)}`));
  page.post.disabled = !page.clicked.length;
  clear(page.posted, shown);
  (page.post.disabled ? page.posted.querySelector("a") : page.post)?.focus();
}

function consequences(page, ids) {
  const how = page.list.scored
    ? "It counts for the list as it was shown, if that is still remembered."
    : "The documents are ranked once more, as for a user, and the click counts for that ranking: "
      + "exploration may show another order, so the weights may move differently.";
  return h("div",
    h("p", `${plural(ids.length, "click")}: `, ids.map((id) => [h("span.id", id), " "])),
    h("p", `${how} All users see the new weights within a second. Only a rollback takes it back.`));
}

/** Read the new weights, and say where the record is. */
async function done(page, { seq, version, duplicates }) {
  await readModel(page).catch(() => null);  // the click is posted all the same
  page.clicked = [];
  select(page, page.selected);
  showLesson(page);
  page.context.announce(`Posted as record ${seq}`);
  const learnt = version === undefined ? "It is not learnt yet." : `Version ${count(version)} has learnt it.`;
  return note("good", duplicates ? "This click was known already. " : `Posted as record ${count(seq)}. `, learnt, " ",
    link("The Live page", "models", page.name, "live"), " shows records while it is open.");
}
