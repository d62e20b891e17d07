/** The confirmation of a rollback: its button works after the dialog shows what would change. */

import { ask, clear, h, note } from "./dom.js";
import { reasonOf } from "./numbers.js";
import { diffOf, readDiff } from "./version_diff.js";
import { CURRENT, versionLabel } from "./version_table.js";

const MOST_WEIGHTS = 6;
/** Statuses after which a rollback would fail, too. */
const HOPELESS = [0, 401, 403, 404];

/** Ask whether to roll back to a version; resolves to true if it is confirmed. */
export async function confirmRollback(api, name, one) {
  const details = h("div", { class: "dialog-details", "aria-live": "polite" },
    h("p", { class: "hint" }, "Computing what would change…"));
  const act = h("button", { value: "yes", class: "danger", disabled: true }, "Roll back");
  showChanges(api, name, one, details, act);
  const answer = await ask(`Roll back ${name} to ${versionLabel(one)}?`, [
    h("p", {}, "The weights of this version are served again within a second. The log keeps the later records, and "
      + "the present state is kept as a version."),
    details,
    h("div", { class: "dialog-buttons" }, h("button", { value: "cancel", autofocus: true }, "Cancel"), act)]);
  return answer === "yes";
}

/** Show the difference to the current state, then let the button work. */
async function showChanges(api, name, one, details, act) {
  try {
    const diff = await readDiff(api, name, CURRENT, one.key);
    clear(details, diffOf(diff, ["now", "after the rollback"], MOST_WEIGHTS));
    act.disabled = false;
  } catch (error) {
    clear(details, note("bad", `What would change is unknown: ${reasonOf(error)}`));
    act.disabled = HOPELESS.includes(error.status);
  }
}
