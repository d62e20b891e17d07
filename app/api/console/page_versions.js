/** Versions: list, difference, keep, delete, roll back. */

import { path, sleep } from "./api.js";
import { attempt, button, card, clear, confirm, empty, h, note } from "./dom.js";
import { count, reasonOf } from "./format.js";
import { confirmRollback } from "./change_dialogs.js";
import { diffOf, readDiff } from "./version_diff.js";
import { CURRENT, versionLabel, versionTable } from "./version_table.js";

const MOST_WEIGHTS = 20;
const ROLLBACK_SECONDS = 10;

export async function show(root, context, { name }) {
  const page = {
    context, name, stopped: new AbortController(), asked: 0, chosen: { a: null, b: CURRENT },
    list: h("div", h("p.hint", "Reading versions…")),
    message: h("div", { role: "status", tabindex: "-1" }), kept: h("div", { role: "status" }),
    diff: h("div.diff", { "aria-live": "polite" }) };
  clear(root,
    card("Keep the current state", keepForm(page)),
    card("Versions, newest first", page.message, page.list),
    card("Difference between A and B", page.diff));
  reload(page);
  return () => page.stopped.abort();
}

async function reload(page) {
  const { api } = page.context;
  try {
    const [{ versions }, model] = await Promise.all([
      api.get(path`models/${page.name}/versions`), api.get(path`models/${page.name}`).catch(() => null)]);
    if (page.stopped.signal.aborted) return;
    page.versions = [...versions].reverse();
    page.model = model;
    showVersions(page);
  } catch (error) {
    clear(page.list, note("bad", `The versions cannot be read: ${reasonOf(error)} `,
      button("Try again", () => reload(page), { class: "small" })));
    clear(page.diff, empty("No versions to compare."));
  }
}

function showVersions(page) {
  const keys = page.versions.map((one) => one.key = one.name ?? String(one.version));
  if (![...keys, CURRENT].includes(page.chosen.a)) page.chosen.a = keys[0] ?? CURRENT;
  if (![...keys, CURRENT].includes(page.chosen.b)) page.chosen.b = CURRENT;
  clear(page.list, versionTable(page.versions, page.model, page.chosen, {
    choose: (side, key) => {
      page.chosen[side] = key;
      compare(page);
    },
    rollback: (one) => rollback(page, one),
    remove: (one) => remove(page, one),
  }), !page.versions.length && empty("No version is kept yet.",
    h("p", "One is kept every hour and every 10,000 records, or now, under a name.")));
  compare(page);
}

function labelOf(page, key) {
  if (key === CURRENT) return "current";
  return versionLabel(page.versions.find((one) => one.key === key));
}

async function compare(page) {
  const { a, b } = page.chosen;
  const asked = ++page.asked;
  if (a === b) return void clear(page.diff, empty("Choose two different versions."));
  const labels = [`A: ${labelOf(page, a)}`, `B: ${labelOf(page, b)}`];
  const shown = await readDiff(page.context.api, page.name, a, b).then(
    (diff) => diffOf(diff, labels, MOST_WEIGHTS),
    (error) => note("bad", `The versions cannot be compared: ${reasonOf(error)}`));
  if (asked === page.asked) clear(page.diff, shown);
}

function keepForm(page) {
  const input = h("input", { id: "version-name", maxlength: "64", required: true, autocomplete: "off",
    placeholder: "before-sale", "aria-describedby": "version-help" });
  const submit = h("button.primary", "Keep");
  const form = h("form.keep", { novalidate: true },
    h("label", { for: "version-name" }, "Name"), h("div.row.keep-row", input, submit),
    h("p.hint", { id: "version-help" }, "Letters, digits, “-”, “_” and “.”, not digits only. Kept until "
      + "you delete it; at most ten names a model."), page.kept);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    keep(page, input, submit);
  });
  return form;
}

async function keep(page, input, submit) {
  const wanted = input.value.trim();
  if (!wanted) {
    clear(page.kept, note("warning", "Type a name first."));
    return input.focus();
  }
  submit.disabled = true;
  const done = await attempt(page.kept, "Not kept: ", async () => {
    const kept = await page.context.api.post(path`models/${page.name}/versions`, { name: wanted });
    input.value = "";
    return `Version ${count(kept.version)} is kept as ${kept.name}.`;
  });
  if (done) await reload(page);
  submit.disabled = false;
  input.focus();
}

async function remove(page, one) {
  const text = "It cannot be restored afterwards. The model and its other versions stay.";
  if (!(await confirm(`Delete the version ${one.name}?`, text, { action: "Delete", kind: "danger" }))) return;
  await act(page, `Not deleted: `, async () => {
    await page.context.api.del(path`models/${page.name}/versions/${one.name}`);
    return `The version ${one.name} is deleted.`;
  });
}

async function rollback(page, one) {
  if (!(await confirmRollback(page.context.api, page.name, one))) return;
  await act(page, "Not rolled back: ", async () => {
    const version = one.name ?? one.version;
    const { seq } = await page.context.api.post(path`models/${page.name}/rollback`, { version });
    const state = (await served(page, seq)) ? "It is served now." : "It is not served yet.";
    return `Rolled back to ${versionLabel(one)} by record ${count(seq)}. ${state}`;
  });
}

async function act(page, failure, work) {
  clear(page.kept);
  if (!(await attempt(page.message, failure, work))) return;
  await reload(page);
  page.message.focus();
}

/** Wait until the committed state includes a record; whether it does. */
async function served(page, seq) {
  const { signal } = page.stopped;
  for (const end = Date.now() + 1000 * ROLLBACK_SECONDS; Date.now() < end && !signal.aborted;) {
    const model = await page.context.api.get(path`models/${page.name}`).catch(() => null);
    if (model && model.version >= seq) return true;
    await sleep(300, signal);
  }
  return false;
}
