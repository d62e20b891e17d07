/**
 * Choice of a list of documents: one that was shown recently, or a pasted one. A list is
 * {documents: [{id, features}], scored, request, clicked}; `scored`: its features are those that
 * are multiplied by the weights, not those that were submitted.
 */

import { path } from "./api.js";
import { button, clear, empty, field, h, note, select, switcher } from "./dom.js";
import { clock, plural, reasonOf } from "./format.js";
import { parseDocuments, scorerOf } from "./scoring.js";

const MOST_LISTS = 20;
const EXAMPLE_DOCUMENTS = 6;
const EXAMPLE_FEATURES = 8;

/** Read the model of a page into `model` and `scorer`. */
export async function readModel(page) {
  page.model = await page.context.api.get(path`models/${page.name}`);
  page.scorer = scorerOf(page.model);
}

/** Read the model of a page, and show the choice in `page.pick`; `choose(list)` gets each list that is chosen. */
export async function offerLists(page, choose) {
  const { pick: root, context: { api }, name } = page;
  try {
    await readModel(page);
  } catch (error) {
    return void clear(root, note("bad", `The model cannot be read: ${reasonOf(error)}`));
  }
  const { scorer } = page;
  const recent = h("div", h("p.hint", "Reading recent lists…"));
  const pasted = pastePanel(scorer, choose);
  const labels = { recent: "Recent list", pasted: "Paste documents" };
  const tabs = switcher({ recent, pasted }, labels, "Source of the documents");
  clear(root, tabs.element, recent, pasted);
  tabs.show("recent");
  try {
    const answer = await api.get(`${path`models/${name}/impressions`}?limit=${MOST_LISTS}`, { quiet: true });
    const lists = recentLists(answer, scorer.names.length);
    if (!lists.length) return void offerPaste(pasted, tabs, noListsYet(recent));
    clear(recent, recentChoice(lists, choose));
    choose(lists[0]);
  } catch (error) {
    clear(recent, note("warning", problemOf(error)));
    offerPaste(pasted, tabs, note("warning", problemOf(error)));
  }
}

/** The lists in the answer of GET impressions; not those of an earlier model of the same name. */
function recentLists(answer, features) {
  return answer.impressions
    .filter((one) => one.documents[0]?.features.length === features)
    .map((one) => ({
      documents: one.documents, scored: true, request: one.request, clicked: one.clicked,
      time: one.time, explored: one.explored, shown: one.documents_shown,
    }));
}

function offerPaste(pasted, tabs, message) {
  pasted.prepend(message);
  tabs.show("pasted");
}

function noListsYet(place) {
  const why = "No list was shown recently.";
  clear(place, empty(why, h("p", "Send POST /rank to the model and come back, or paste documents.")));
  return note("info", `${why} Paste documents, or use an example.`);
}

function problemOf(error) {
  if (error.status === 403) {
    return "Recent lists need a key with the scope admin. Paste documents, or use an example.";
  }
  return `Recent lists cannot be read: ${reasonOf(error)}`;
}

function recentChoice(lists, choose) {
  const options = select(lists.map((one, at) => [at, listLabel(one)]));
  options.addEventListener("change", () => choose(lists[Number(options.value)]));
  return field("recent-list", "Lists as they were shown, newest first", options);
}

/** One list in words: its time, its size, its clicks. */
function listLabel(list) {
  const parts = [list.time ? clock(list.time) : "time unknown"];
  parts.push(plural(list.shown ?? list.documents.length, "document"));
  parts.push(clickLabel(list.clicked ?? []));
  if (list.explored) parts.push("explored");
  return parts.join(" · ");
}

function clickLabel(clicked) {
  if (!clicked.length) return "no click";
  return `click at ${clicked.slice(0, 5).map((at) => at + 1).join(", ")}`;
}

function pastePanel(scorer, choose) {
  const text = h("textarea", { id: "pasted-list", rows: 8, spellcheck: "false",
    placeholder: exampleText(scorer), "aria-describedby": "pasted-help pasted-problem" });
  const problem = h("div", { id: "pasted-problem", role: "alert" });
  const use = () => {
    clear(problem);
    try {
      const documents = parseDocuments(text.value, scorer);
      choose({ documents, scored: false, request: null, clicked: [] });
    } catch (error) {
      clear(problem, note("bad", `Not read: ${error.message}`));
      text.focus();
    }
  };
  const example = () => {
    text.value = exampleText(scorer);
    use();
  };
  return h("div.pick-pasted",
    h("label", { for: "pasted-list" }, "Documents as JSON, as for POST /rank"), text,
    h("p", { id: "pasted-help", class: "hint" }, pasteHelp(scorer)), problem,
    h("div.actions",
      button("Use these documents", use, { class: "primary" }), button("Use an example", example)));
}

function pasteHelp(scorer) {
  return `Features by name, or as a list of ${plural(scorer.given.length, "number")} in the model's `
    + "order. Documents in the order in which your search engine returns them.";
}

function exampleText(scorer) {
  const names = scorer.given.slice(0, EXAMPLE_FEATURES);
  const documents = Array.from({ length: EXAMPLE_DOCUMENTS }, (_, at) => ({
    id: `doc-${at + 1}`,
    features: Object.fromEntries(names.map((name, k) => [name, exampleValue(at, k)])),
  }));
  return `[\n${documents.map((one) => `  ${JSON.stringify(one)}`).join(",\n")}\n]`;
}

function exampleValue(at, k) {
  return Math.round(100 * Math.abs(Math.sin(1 + 7 * at + 3 * k))) / 100;
}
