// solar.js 0.2.0: clicks on ranked lists, from a web page to POST /beacon. MIT licence.
// <ol data-solar-token="TOKEN"><li data-solar-id="DOCUMENT">…</li></ol>
// data-solar-action="purchase" on a button names an action of the model instead of a click.
const ITEM = "[data-solar-id]", LIST = "[data-solar-token]";
const DELAY = 2000, MOST = 20, BYTES = 16384, SEEN = 1000;

export function solar(url, { viewer, examined = true, abandoned = true, root = document } = {}) {
  const queue = new Map(), depths = new Map(), timers = new Map(), lists = new Set();
  let timer;

  function event(token) {
    if (!queue.has(token)) queue.set(token, { token, clicked: [] });
    return queue.get(token);
  }

  function click(token, id, gain) {
    if (!token) return;  // this list was not remembered, or the service makes no tokens
    if (gain !== undefined && (queue.get(token)?.gains?.[id] ?? gain) !== gain) flush();
    lists.add(token);
    const one = event(token);
    one.clicked = [...one.clicked.filter((other) => other !== id), id];  // the last one is the last
    if (gain !== undefined) (one.gains ??= {})[id] = gain;
    timer ??= setTimeout(flush, DELAY);
    if (one.clicked.length >= MOST) flush();
  }

  function examine(token, depth) {
    if (!token || depth <= (depths.get(token) ?? 0)) return;
    depths.set(token, depth);
    event(token).examined = depth;
  }

  function send(events) {
    const body = `{"events":[${events}]}`;
    if (!navigator.sendBeacon?.(url, body))
      fetch(url, { method: "POST", body, keepalive: true, credentials: "omit" }).catch(() => {});
  }

  function flush() {
    clearTimeout(timer);
    timer = undefined;
    let part = [], size = 0;
    for (const [token, one] of queue) {
      if (!abandoned && !lists.has(token)) continue;  // its depth waits for a click
      queue.delete(token);
      const text = JSON.stringify(viewer ? { ...one, viewer } : one), bytes = new Blob([text]).size;
      if (part.length === MOST || (size && size + bytes > BYTES)) {
        send(part.splice(0));
        size = 0;
      }
      part.push(text);
      size += bytes;
    }
    if (size) send(part);
  }

  function clicked(happened) {
    if (happened.type === "auxclick" && happened.button !== 1) return;
    const item = happened.target.closest?.(ITEM), list = item?.closest(LIST);
    if (!list) return;
    const action = happened.target.closest("[data-solar-action]");
    const named = item.contains(action) ? action.dataset.solarAction : undefined;
    click(list.dataset.solarToken, item.dataset.solarId, named);
  }

  function seen(item) {  // a document may have several elements
    const list = item.closest(LIST);
    if (!list) return;
    const ids = new Set([...list.querySelectorAll(ITEM)].map((one) => one.dataset.solarId));
    examine(list.dataset.solarToken, [...ids].indexOf(item.dataset.solarId) + 1);
  }

  function watch(item) {  // time in a hidden tab does not count
    clearTimeout(timers.get(item));
    timers.set(item, document.hidden ? 0 : setTimeout(seen, SEEN, item));
  }

  root.addEventListener("click", clicked, true);
  root.addEventListener("auxclick", clicked, true);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) flush();
    [...timers.keys()].forEach(watch);
  });
  addEventListener("pagehide", flush);

  if (examined && self.IntersectionObserver) {
    const visible = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        clearTimeout(timers.get(target));
        timers.delete(target);
        if (isIntersecting) watch(target);
      }
    }, { threshold: 0.5 });
    const observe = () => root.querySelectorAll(ITEM).forEach((item) => visible.observe(item));
    new MutationObserver(observe).observe(root, { childList: true, subtree: true });
    observe();
  }
  return { click, gain: click, examined: examine, flush };
}
