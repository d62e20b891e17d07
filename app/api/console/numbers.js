/** Numbers in sentences and beside bars. */

import { number } from "./format.js";

/** A number with its sign: +0.12, −0.3. */
export const withSign = (value) => (value > 0 ? `+${number(value)}` : number(value));

/** A share in words: 7 %, less than 0.1 %. */
export function share(value) {
  const percent = 100 * value;
  if (percent > 0 && percent < 0.1) return "less than 0.1\u202f%";
  if (percent < 100 && percent > 99.9) return "more than 99.9\u202f%";
  return `${percent < 10 ? Number(percent.toFixed(1)) : Math.round(percent)}\u202f%`;
}

/** The reason of an error, as the end of a sentence. */
export const reasonOf = (error) => ended(error.detail || error.message || `status ${error.status}`);

/** A text with a full stop at its end. */
export const ended = (text) => (/[.!?…]$/.test(text) ? text : `${text}.`);
