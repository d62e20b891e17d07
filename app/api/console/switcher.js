/** Buttons that show one of several panels. */

import { button, h } from "./dom.js";

/** Panels and labels by key; returns the buttons and `show(key)`. */
export function switcher(panels, labels, name) {
  const show = (wanted) => {
    for (const [key, panel] of Object.entries(panels)) {
      panel.hidden = key !== wanted;
      buttons[key].setAttribute("aria-pressed", String(key === wanted));
    }
  };
  const buttons = Object.fromEntries(Object.keys(panels).map((key) => [key, button(labels[key], () => show(key))]));
  const group = { class: "choice switch", role: "group", "aria-label": name };
  return { element: h("div", group, Object.values(buttons)), show };
}
