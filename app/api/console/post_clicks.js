/** Clicks on a list, posted to the real model. */

const WAIT = 5;

/** Post clicks on a recent list, or on pasted documents, which are ranked first; resolves to the answer. */
export async function postClicks(api, model, list, clicked) {
  const request = list.request ?? (await rankOnce(api, model, list.documents));
  const event = { event_id: `console-${randomId()}`, type: "clicks", model, request_id: request, clicked };
  return api.post("feedback", event, { headers: { prefer: `wait=${WAIT}` } });
}

/** Rank documents as for a user; resolves to the id of the request. */
async function rankOnce(api, model, documents) {
  const answer = await api.post("rank", { model, documents, request_id: `console-${randomId()}` });
  if (!answer.logged) throw new Error("the ranking was not stored; try again.");
  return answer.request_id;
}

/** 16 random bytes as text; crypto.randomUUID is absent without TLS. */
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}
