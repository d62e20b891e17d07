/** Small columns of counts, as SVG. */

import { svg } from "./dom.js";
import { count } from "./format.js";

const HEIGHT = 32;

/** One column for each value; the last one is the newest. */
export function columns(values, label) {
  const most = Math.max(1, ...values);
  const bars = values.map((value, k) => {
    const height = (HEIGHT * value) / most;
    return value > 0 && svg("rect", { x: 4 * k, y: HEIGHT - height, width: 3, height });
  });
  return svg("svg", {
    class: "count-columns", viewBox: `0 0 ${4 * values.length} ${HEIGHT}`, preserveAspectRatio: "none",
    role: "img", "aria-label": `${label}: at most ${count(Math.max(0, ...values))}` }, bars);
}
