/** Repeated requests: one at a time, only while the page is visible, until stopped. */

/**
 * Call `work(signal)` now and `seconds` after it has ended, again and again; returns a function that
 * stops. A failed call is repeated after the same time.
 */
export function poll(work, seconds) {
  const stopped = new AbortController();
  let timer = null;
  let running = false;

  async function run() {
    clearTimeout(timer);
    if (running || stopped.signal.aborted || document.visibilityState !== "visible") return;
    running = true;
    try {
      await work(stopped.signal);
    } catch {
      // api.js has told main.js
    }
    running = false;
    if (!stopped.signal.aborted) timer = setTimeout(run, 1000 * seconds);
  }

  document.addEventListener("visibilitychange", run);
  run();
  return () => {
    stopped.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", run);
  };
}
