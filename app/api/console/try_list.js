/** The ranked list of the Try page: documents move to their new places, and can be clicked. */

import { button, clear, h, setStyle, setText } from "./dom.js";
import { number } from "./format.js";

const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const MOVE = { duration: 320, easing: "cubic-bezier(0.2, 0.8, 0.2, 1)" };

/** A list of documents; `select(at)` and `click(at)` are called with positions in `documents`. */
export function rankedList(documents, { select, click }) {
  const items = documents.map((one, at) => listItem(one.id, () => select(at), () => click(at)));
  const element = h("ol.ranking");
  let placed = [];
  const update = (shown) => {
    items.forEach((item, at) => showItem(item, at, shown));
    if (shown.order.join() !== placed.join()) place(element, items, shown.order, placed.length > 0);
    placed = shown.order;
  };
  return { element, update };
}

function listItem(id, select, click) {
  const parts = {
    id, rank: h("span.ranking-rank.numeric"), filled: h("span.ranking-filled"),
    score: h("span.ranking-score.numeric"), moved: h("span.ranking-moved.numeric"),
  };
  parts.choose = button([h("span.id", id), h("span.ranking-track", parts.filled)],
    select, { class: "ranking-choose", title: "Change the features of this document" });
  parts.click = button("Click", click, { class: "small" });
  parts.element = h("li", parts.rank, parts.choose, parts.score, parts.moved, parts.click);
  return parts;
}

function showItem(item, at, { order, start, scores, selected, clicked }) {
  const rank = order.indexOf(at);
  const moved = start.indexOf(at) - rank;
  const [least, most] = [Math.min(...scores), Math.max(...scores)];
  setText(item.rank, String(rank + 1));
  setText(item.score, number(scores[at]));
  setText(item.moved, moved === 0 ? "" : moved > 0 ? `▲${moved}` : `▼${-moved}`);
  item.moved.className = `ranking-moved numeric ${moved > 0 ? "rise" : "fall"}`;
  setStyle(item.filled, { width: `${most > least ? (100 * (scores[at] - least)) / (most - least) : 0}%` });
  item.element.classList.toggle("selected", at === selected);
  item.choose.setAttribute("aria-pressed", String(at === selected));
  const word = clicked.includes(at) ? "Clicked" : "Click";
  item.click.classList.toggle("primary", clicked.includes(at));
  item.click.setAttribute("aria-label", `${word} ${item.id}`);
  setText(item.click, word);
}

/** Put the items in order; each moves from where it was, unless motion is reduced. */
function place(element, items, order, animated) {
  const focused = document.activeElement;
  const before = items.map((item) => item.element.getBoundingClientRect().top);
  clear(element, order.map((at) => items[at].element));
  if (element.contains(focused)) focused.focus({ preventScroll: true });
  if (!animated || STILL.matches) return;
  items.forEach((item, at) => {
    const distance = before[at] - item.element.getBoundingClientRect().top;
    if (distance) item.element.animate([{ transform: `translateY(${distance}px)` }, { transform: "none" }], MOVE);
  });
}
