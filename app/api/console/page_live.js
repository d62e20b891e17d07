/** Placeholder. */

import { empty, clear } from "./dom.js";

/** Show the page; returns the function that ends it. */
export async function show(root) {
  clear(root, empty("This page is not there yet."));
  return () => {};
}
