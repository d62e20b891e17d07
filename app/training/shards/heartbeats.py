"""The workers of a cluster as its scheduler describes them: who takes tasks, and who is silent."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

#: A worker without a heartbeat for this time is stopped or cut off. Each sends two a second; in a
#: cluster of n workers one in n / 200 + 1 seconds, so n / 50 are added.
MOST_SILENT = 10.0


class ClusterWorkers(NamedTuple):
    """Threads of the workers that take tasks, all workers, and those without a heartbeat.

    A worker at its memory limit is paused: it ends its tasks, and takes no others. `why` says why
    no worker goes on; empty if one does.
    """

    ready: dict[str, int]
    present: set[str]
    silent: set[str]
    why: str


class Heartbeats:
    """Remembers when the heartbeat of each worker last changed, by the clock of the caller."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def look(
        self, found: Mapping[str, Any], now: float, computing: Collection[str]
    ) -> ClusterWorkers:
        """Return the workers; `found` is the scheduler's answer, `computing` have parts."""
        self._last = {at: self._changed(at, one["last_seen"], now) for at, one in found.items()}
        most = MOST_SILENT + len(found) / 50
        silent = {at for at, (_, since) in self._last.items() if now - since > most}
        heard = {at: one for at, one in found.items() if at not in silent}
        ready = {at: one["nthreads"] for at, one in heard.items() if one["status"] == "running"}
        goes_on = ready or any(_executes(heard[at]) for at in computing if at in heard)
        return ClusterWorkers(ready, set(found), silent, "" if goes_on else _why(found, heard))

    def _changed(self, worker: str, heartbeat: float, now: float) -> tuple[float, float]:
        last = self._last.get(worker, (0.0, now))
        return last if last[0] == heartbeat else (heartbeat, now)


def _executes(worker: Mapping[str, Any]) -> bool:
    """Whether a worker computed something at its last heartbeat, also if it is paused."""
    return bool(worker["metrics"].get("task_counts", {}).get("executing", 0))


def _why(found: Collection[str], heard: Collection[str]) -> str:
    if not found:
        return "the scheduler has no worker"
    if not heard:
        return "no worker sends heartbeats: all are stopped or cut off"
    return "no worker takes tasks: all are paused at their memory limit"
