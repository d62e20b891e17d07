/** The API of the service: requests, the key, server-sent events. */

const KEY = "solar-key";
const TIMEOUT = 20000;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10000;
/** The folder above the page, which a proxy may serve below a prefix. */
const BASE = new URL("..", location.href);

/** An answer with an error; status 0: no answer at all. `detail` says what to do. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.name = "ApiError";
    this.status = status;
    this.detail = detail;
  }
}

/** What main.js sets: `askKey(detail)` resolves to whether there is a new key; `failed(error)` is called on errors. */
export const hooks = { askKey: async () => false, failed: () => {} };

/** The address of a path of the API; a template encodes its values: api.path`models/${name}`. */
export const path = (parts, ...values) =>
  parts.reduce((text, part, k) => text + encodeURIComponent(values[k - 1]) + part);

export const url = (relative) => new URL(relative.replace(/^\/+/, ""), BASE).href;

/** The typed key, or null. It is forgotten with the tab. */
export const key = () => sessionStorage.getItem(KEY);

/** Keep a key for this tab; an empty one is removed. */
export function setKey(secret) {
  if (secret) sessionStorage.setItem(KEY, secret);
  else sessionStorage.removeItem(KEY);
}

/**
 * Send a request and return the decoded answer. Options: `quiet` (no dialog for a key), `signal`,
 * `contentType` (then `body` is sent as it is), `timeout` in ms.
 */
export async function request(method, relative, body, options = {}) {
  const response = await answered(method, relative, body, options);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const get = (relative, options) => request("GET", relative, undefined, options);
export const post = (relative, body, options) => request("POST", relative, body, options);
export const put = (relative, body, options) => request("PUT", relative, body, options);
export const del = (relative, options) => request("DELETE", relative, undefined, options);

/** Send, and send again with another key if this one does not suffice. */
async function answered(method, relative, body, options) {
  for (;;) {
    const response = await send(method, relative, body, options);
    if (response.ok) return response;
    const error = new ApiError(response.status, await problemOf(response));
    if (options.quiet || !needsKey(error) || !(await hooks.askKey(error))) {
      hooks.failed(error);
      throw error;
    }
  }
}

async function send(method, relative, body, options) {
  const headers = { accept: options.accept ?? "application/json", ...authorization(), ...options.headers };
  if (body !== undefined) headers["content-type"] = options.contentType ?? "application/json";
  const sent = body === undefined || options.contentType ? body : JSON.stringify(body);
  const signal = options.stream ? options.signal : withTimeout(options.signal, options.timeout ?? TIMEOUT);
  try {
    return await fetch(url(relative), { method, headers, body: sent, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    const failure = new ApiError(0, "The service does not answer.");
    hooks.failed(failure);
    throw failure;
  }
}

const authorization = () => (key() ? { authorization: `Bearer ${key()}` } : {});

const withTimeout = (signal, ms) =>
  signal ? AbortSignal.any([signal, AbortSignal.timeout(ms)]) : AbortSignal.timeout(ms);

/** Whether another key could help: also 403 has other reasons, such as a page of another origin. */
const needsKey = (error) => error.status === 401 || (error.status === 403 && error.detail.startsWith("authorization"));

/** The detail of problem+json, or the status. */
async function problemOf(response) {
  try {
    return (await response.json()).detail ?? response.statusText;
  } catch {
    return response.statusText || `status ${response.status}`;
  }
}

/**
 * Read server-sent events until `signal` aborts; connect again after an interruption, from the last
 * id on. `onEvent({event, id, data})` gets decoded JSON; `onState("open" | "waiting", detail)`.
 * Throws ApiError if there is no such stream, or no key for it.
 */
export async function stream(relative, { onEvent, onState = () => {}, lastEventId = null, signal }) {
  const state = { id: lastEventId, wait: FIRST_WAIT };
  while (!signal.aborted) {
    try {
      await readOnce(relative, state, { onEvent, onState, signal });
      onState("waiting", "The stream ended.");
    } catch (error) {
      if (signal.aborted) return;
      if ([401, 403, 404, 422].includes(error.status)) throw error;
      onState("waiting", error.detail ?? "The stream was interrupted.");
    }
    await sleep(state.wait, signal);
    state.wait = Math.min(LONGEST_WAIT, 2 * state.wait);
  }
}

async function readOnce(relative, state, { onEvent, onState, signal }) {
  const headers = state.id ? { "last-event-id": state.id } : {};
  const response = await answered("GET", relative, undefined,
    { accept: "text/event-stream", headers, signal, stream: true });
  onState("open");
  const parser = eventParser((event) => {
    state.wait = FIRST_WAIT;
    if (event.id) state.id = event.id;
    onEvent(event);
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parser(value);
  }
}

/** A function that takes pieces of text and calls `emit` for every complete event with data. */
function eventParser(emit) {
  let rest = "";
  return (piece) => {
    const events = (rest + piece).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const { data, ...fields } = Object.fromEntries(event.split("\n").map(fieldOf));
      if (data !== undefined) emit({ event: "message", id: null, ...fields, data: JSON.parse(data) });
    }
  };
}

/** Name and value of a line of an event; the name of a comment is empty. */
const fieldOf = (line) => /^([^:]*)(?:: ?)?(.*)$/.exec(line).slice(1);

export function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
