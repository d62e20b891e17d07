/** The router, the navigation, the banner "not connected" and the dialog for the key. */

import * as api from "./api.js";
import { address, ask, button, clear, empty, h, note, setText } from "./dom.js";
import * as duel from "./page_duel.js";
import * as health from "./page_health.js";
import * as jobs from "./page_jobs.js";
import * as live from "./page_live.js";
import * as model from "./page_model.js";
import * as models from "./page_models.js";
import * as try_ from "./page_try.js";
import * as versions from "./page_versions.js";
import * as why from "./page_why.js";
import { poll } from "./poll.js";

const CHECK_SECONDS = 3;
/**
 * Loaded at once: a page can be opened also while the service does not answer. `show(root, context, parameters)` of
 * a page resolves to the function that ends it.
 */
const MODULES = { duel, health, jobs, live, model, models, try: try_, versions, why };
const PAGES = [["Models", "models"], ["Jobs", "jobs"], ["Health", "health"]];
const TABS = [["Overview", ""], ["Why", "why"], ["Try", "try"], ["Live", "live"], ["Duel", "duel"], ["Versions", "versions"]];
const element = (id) => document.getElementById(id);

/** What is shown: the number of the visit, the function that ends the page, whether it failed. */
const shown = { visit: 0, end: () => {}, failed: false };
/** The connection: "", or why there is none. `declined`: details of errors for which no key was given. */
const connection = { problem: "", declined: new Set() };

function announce(text) {
  setText(element("live"), text);
}

const context = { api, announce };

/** The page of an address: its module, its parameters, its title. */
function routeOf(hash) {
  const [place, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [first = "models", name, tab = ""] = place.split("/").filter(Boolean).map(decode);
  const params = { query: new URLSearchParams(query) };
  if (first === "models" && name === undefined) return { page: "models", section: "models", title: "Models", params };
  if (first === "models" && TABS.some(([, known]) => known === tab)) {
    return { page: tab || "model", section: "models", title: name, tab, params: { ...params, name } };
  }
  const known = PAGES.find(([, section]) => section === first);
  return known && name === undefined ? { page: first, section: first, title: known[0], params } : null;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function visit() {
  const number = ++shown.visit;
  leave();
  const route = routeOf(location.hash);
  showNavigation(route);
  document.title = `${route?.title ?? "Unknown page"} · SOLAR`;
  const root = h("div.page-body");
  const heading = h("h1", { tabindex: "-1" }, route?.title ?? "Unknown page");
  clear(element("page"), pageHead(route, heading), root);
  if (number > 1) heading.focus({ preventScroll: true });
  scrollTo(0, 0);
  if (route) await showPage(route, root, number);
  else clear(root, empty("This address has no page.", h("p", h("a", { href: "#/models" }, "Go to the models"))));
}

function leave() {
  const end = shown.end;
  shown.end = () => {};
  shown.failed = false;
  end();
}

async function showPage(route, root, number) {
  try {
    const end = (await MODULES[route.page].show(root, context, route.params)) ?? (() => {});
    if (number === shown.visit) shown.end = end;
    else end();
  } catch (error) {
    if (number === shown.visit) showFailure(root, error);
  }
}

function showFailure(root, error) {
  shown.failed = true;
  if (!(error instanceof api.ApiError)) console.error(error);
  const again = () => {
    connection.declined.clear();
    visit();
  };
  clear(root, note("bad", keyProblem(error) ?? error.detail ?? "This page could not be shown."),
    h("div.row", button("Try again", again)));
}

function pageHead(route, heading) {
  if (!route?.params.name) return h("div.page-head", heading);
  const tabs = TABS.map(([label, tab]) => h("a", {
    href: address("models", route.params.name, ...(tab ? [tab] : [])),
    "aria-current": tab === route.tab && "page" }, label));
  return h("div.page-head",
    h("nav.crumbs", { "aria-label": "Above" }, h("a", { href: "#/models" }, "Models"), " /"),
    heading, h("nav.tabs", { "aria-label": "Model" }, tabs));
}

function showNavigation(route) {
  clear(element("nav"), PAGES.map(([label, section]) =>
    h("a", { href: address(section), "aria-current": section === route?.section && "page" }, label)));
}

function showTools() {
  clear(element("tools"), h("a", { href: api.url("docs") }, "API"),
    button(api.key() ? "Change key" : "Enter key", () => enterKey("").then((given) => given && visit()), { class: "small" }));
}

/** What is wrong with the key; null for other errors. */
function keyProblem({ status, detail }) {
  if (status === 401) return api.key() ? "The service does not accept this key." : "This service needs an API key.";
  return status === 403 && detail.startsWith("authorization") ? "This needs a key with another scope: admin to change things." : null;
}

let asking = null;

/** Ask for a key after 401 or 403; a refusal counts for all requests with the same error. */
async function askKey(error) {
  if (connection.declined.has(error.detail)) return false;
  asking ??= enterKey(keyProblem(error)).finally(() => { asking = null; });
  const given = await asking;
  if (!given) connection.declined.add(error.detail);
  return given;
}

/** Show the dialog for the key; resolves to whether one was given. */
async function enterKey(detail) {
  const input = h("input", { type: "password", id: "key", autocomplete: "off", spellcheck: "false", autofocus: true });
  const answer = await ask("API key", [
    detail && note("info", detail),
    h("label", { for: "key" }, "Key, as ", h("code", "solar key"), " prints it"), input,
    h("p.hint", "It stays in this tab until the tab is closed. Reading needs the scope read, changing the scope admin."),
    h("div.dialog-buttons",
      h("button", { value: "yes", class: "primary" }, "Use this key"),
      api.key() && h("button", { value: "forget" }, "Forget the key"),
      h("button", { value: "cancel", formnovalidate: true }, "Cancel"))]);
  const secret = input.value.trim();
  if (answer === "forget") api.setKey("");
  if (answer !== "yes" || !secret) return showTools();
  api.setKey(secret);
  connection.declined.clear();
  showTools();
  return true;
}

/** Compare the service with what the banner says; a page that could not be shown is shown again. */
async function checkConnection(signal) {
  const problem = await problemOf(signal);
  const banner = element("banner");
  if (problem !== connection.problem) setText(banner, problem);
  banner.hidden = !problem;
  const healed = connection.problem && !problem;
  connection.problem = problem;
  if (healed) announce("Connected again");
  if (healed && shown.failed) visit();
}

async function problemOf(signal) {
  try {
    const answer = await api.get("readyz", { quiet: true, signal, timeout: 5000 });
    return answer.degraded
      ? "Not connected to the store. Rankings are served from memory; feedback is refused until the store answers."
      : "";
  } catch (error) {
    return error.status ? `Not connected: ${error.detail}` : "Not connected: the service does not answer. Trying again.";
  }
}

let checking = () => {};

function watchConnection() {
  checking();
  checking = poll(checkConnection, CHECK_SECONDS);
}

function start() {
  let last = 0;
  api.hooks.askKey = askKey;
  api.hooks.failed = (error) => {
    if ((error.status === 0 || error.status === 503) && !connection.problem && Date.now() - last > 1000) {
      last = Date.now();
      watchConnection();
    }
  };
  showTools();
  addEventListener("hashchange", visit);
  watchConnection();
  visit();
}

start();
