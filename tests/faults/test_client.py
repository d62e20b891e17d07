"""solar-client while workers, the store, the learner and the whole service are killed.

`make test-slow` kills for 6 seconds, `make chaos` for a minute.
"""

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from solar_client import Counters, RejectedEvent, Solar

from app.storage.embedded import server
from tests.api.services import PLAIN, Running, serving
from tests.api.test_faults import all_ended, children
from tests.api.test_processes import free_port
from tests.faults import CHAOS
from tests.faults.checker import (
    check_log,
    check_replay,
    check_requests,
    check_state,
    learnt,
    read_stored,
    repeated,
)
from tests.faults.observed_model import run_scenario
from tests.servers import TIMEOUT, until

SECONDS = 60.0 if CHAOS > 1 else 6.0
SHORT_LEASE = {"SOLAR_LEASE": "1"}
KILLED = ("app.runtime.worker", "valkey-server", "service", "app learn")
N = 3


class Service:
    """A service on one port that a test kills, as a whole or in parts."""

    def __init__(self, data: Path, stack: ExitStack) -> None:
        self._data, self._stack, self._port = data, stack, str(free_port())
        self._running = self._start()
        self.url = self._running.url

    def _start(self) -> Running:
        flags = ("--workers", "2", "--port", self._port)
        return self._stack.enter_context(serving(*flags, data=self._data, environ=SHORT_LEASE))

    def kill(self, what: str) -> None:
        """Kill one of its processes, or all and start it again."""
        family = children(self._running.process.pid)
        if what == "service":
            self._running.kill()
            until(all_ended(*family))
            self._running = self._start()
            return
        victim = next(pid for pid, command in family.items() if what in command)
        os.kill(victim, signal.SIGKILL)
        until(all_ended(victim))


class Load:
    """Threads that rank and send events through one client, and one that flushes."""

    def __init__(self, client: Solar) -> None:
        self.client, self.queued, self.acknowledged = client, list[str](), set[str]()
        self._done = threading.Event()

    def work(self, seed: int) -> None:
        """Rank, click twice and label, until the end."""
        rng = np.random.default_rng(seed)
        while not self._done.wait(0.01):
            rows = rng.standard_normal((4, N)).astype(np.float32)
            ranking = self.client.rank(["a", "b", "c", "d"], rows, timeout=2.0)
            documents = [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)]
            events = [self.client.click(ranking, ranking.ids[at]) for at in (1, 2)]
            events.append(self.client.label(None, {"d0": 1, "d2": 2}, documents=documents))
            self.queued += [event for event in events if event]

    def flush(self) -> None:
        """Note the events that a flush says are acknowledged: all before it, if none is left."""
        while not self._done.wait(0.1):
            before = len(self.queued)
            if not self.client.flush(2.0).pending:
                self.acknowledged.update(self.queued[:before])

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(self.work, seed) for seed in range(3)]
            working.append(pool.submit(self.flush))
            try:
                yield
            finally:
                self._done.set()
            for one in working:
                one.result(2 * TIMEOUT)


@pytest.mark.slow
def test_nothing_that_a_flush_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    rejected: list[RejectedEvent] = []
    with ExitStack() as stack:
        service = Service(tmp_path, stack)
        client = stack.enter_context(
            Solar(service.url, model="m", on_rejected=rejected.append, queue_size=100_000)
        )
        client.create_model("m", N, **PLAIN)
        load, kills = Load(client), 0
        with load.running():
            until(lambda: load.acknowledged)
            ends, victims = time.monotonic() + SECONDS, itertools.cycle(KILLED)
            while time.monotonic() < ends or kills < len(KILLED):
                service.kill(next(victims))
                kills += 1
                before = len(load.acknowledged)
                until(lambda before=before: len(load.acknowledged) > before)  # type: ignore[misc]
        assert client.flush(2 * TIMEOUT).pending == 0
        counters = client.counters
        store = server.find(tmp_path)
        assert store is not None
        run_scenario(check(store, load, counters, rejected, kills), 3 * TIMEOUT)


async def check(
    store: str, load: Load, counters: Counters, rejected: list[RejectedEvent], kills: int
) -> None:
    await learnt(store, "m")
    found = await read_stored(store, "m")
    feedback = found.feedback()
    stored = {record.event for record in feedback.values()}
    lost, doubled = load.acknowledged - stored, repeated(feedback)
    print(  # noqa: T201
        f"\nclient: kills {kills}, events {counters.queued}, acknowledged by a flush "
        f"{len(load.acknowledged)}, duplicates {counters.duplicates}, retries {counters.retries}, "
        f"degraded rankings {counters.degraded}, ignored {counters.ignored}, "
        f"lost {len(lost)}, doubled {len(doubled)}"
    )
    assert (lost, doubled, rejected, counters.dropped) == (set(), [], [], 0)
    assert set(load.queued) == stored  # and the last flush acknowledged all
    assert counters.acknowledged == counters.queued == len(load.queued)
    assert counters.retries
    check_log(found)
    check_requests(found, feedback)
    check_state(found)
    await check_replay(store, "m")
