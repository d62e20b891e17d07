/** The form that starts a training job: model, file of judged queries, options. */

import { clear, empty, field, h, note, select, setText } from "./dom.js";
import { bytes } from "./format.js";

const UPLOAD_MS = 900000;
const TYPES = { gz: "application/gzip", xz: "application/x-xz" };
const FORMAT = "2 qid:1 1:0.53 2:0.12 # label, query, features";

/** Create the form; `onStarted(job)` gets the new job. */
export async function trainingForm({ api, announce }, onStarted) {
  const { models } = await api.get("models");
  const ready = models.filter((model) => !model.damaged && !model.newer_format);
  if (!ready.length) {
    return empty("There is no model to train.", h("p", h("a", { href: "#/models" }, "Create a model first"), "."));
  }
  const state = { api, announce, onStarted, file: null, message: h("div.message") };
  state.fields = fieldsOf(ready);
  state.drop = dropZone(state);
  state.submit = h("button.primary", { disabled: true }, "Start training");
  return h("form.card.stack", { onsubmit: (event) => submit(event, state) },
    h("h2", "Train a model on judged queries"), state.drop, optionFields(state.fields),
    h("div.row", state.submit, h("span.hint",
      "The result replaces the weights of the model. The version before is kept for a rollback.")), state.message);
}

function fieldsOf(models) {
  const number = (placeholder) => h("input", { inputmode: "decimal", placeholder, autocomplete: "off" });
  return {
    model: select(models.map((model) => [model.name])),
    trainer: select([["ranksvm", "RankSVM"], ["domination", "Domination"]]),
    loss: select([["l2", "squared hinge (l2)"], ["l1", "hinge (l1)"]]),
    parameter: number("chosen by validation"),
    validation: number("0.2"),
    by: select([["ndcg@10", "NDCG@10"], ["pairwise", "pairs in order"]]),
  };
}

function optionFields(fields) {
  const parameter = h("span", "C");
  const part = (name, label, hint) => field(`train-${name}`, label, fields[name], hint);
  const loss = part("loss", "Loss");
  fields.trainer.addEventListener("change", () => {
    setText(parameter, fields.trainer.value === "ranksvm" ? "C" : "Penalty");
    loss.hidden = fields.trainer.value !== "ranksvm";
  });
  return h("div.fields",
    part("model", "Model"), part("trainer", "Trainer"), loss, part("parameter", parameter, "Empty: the best one is found."),
    part("validation", "Held-out queries", "A share, or a number of queries."), part("by", "Chosen by"));
}

/** A label around the file input, onto which a file can also be dropped. */
function dropZone(state) {
  const text = h("span", h("strong", "Choose a file"), " or drop it here");
  const input = h("input", { type: "file", class: "unseen", "aria-label": "File of judged queries", onchange: () => choose(input.files[0]) });
  const zone = h("label.drop", input, text,
    h("span.hint", "LETOR or SVMlight text, also .gz or .xz: ", h("code", FORMAT)));

  function choose(file) {
    if (!file) return;
    state.file = file;
    state.submit.disabled = false;
    clear(text, h("strong", file.name), ` (${bytes(file.size)})`);
  }
  const over = (event, on) => {
    event.preventDefault();
    zone.classList.toggle("over", on);
  };
  zone.addEventListener("dragover", (event) => over(event, true));
  zone.addEventListener("dragleave", (event) => over(event, false));
  zone.addEventListener("drop", (event) => {
    over(event, false);
    choose(event.dataTransfer.files[0]);
  });
  return zone;
}

async function submit(event, state) {
  event.preventDefault();
  const { api, fields, file } = state;
  if (!file) return;
  const contentType = TYPES[file.name.split(".").pop().toLowerCase()] ?? "text/plain";
  state.submit.disabled = true;
  clear(state.message, note("info", `Sending ${bytes(file.size)} and checking the data.`));
  try {
    const path = api.path`models/${fields.model.value}/warm-start`;
    const job = await api.request("POST", `${path}?${optionsOf(fields)}`, file, { contentType, timeout: UPLOAD_MS });
    clear(state.message);
    state.onStarted(job);
  } catch (error) {
    clear(state.message, note("bad", error.detail ?? "The file could not be sent."));
    state.announce("The training was not started");
  }
  state.submit.disabled = false;
}

function optionsOf({ trainer, loss, parameter, validation, by }) {
  const ranksvm = trainer.value === "ranksvm";
  const given = {
    trainer: trainer.value, ...(ranksvm && { loss: loss.value }), by: by.value,
    [ranksvm ? "C" : "penalty"]: parameter.value.trim(), validation: validation.value.trim() };
  return new URLSearchParams(Object.entries(given).filter(([, value]) => value)).toString();
}

