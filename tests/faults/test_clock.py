"""Steps of the wall clock: leases neither stop the learning nor let two learners commit."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.storage.keys import LEARNERS, Keys, event_hash, read_slices
from app.storage.log import APPENDED, REPEATED
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.api.trainings import (
    done,
    judged_queries,
    letor,
    pause_training,
    read_job,
    started_job,
    until_long,
    warm_start,
)
from tests.faults import rounds
from tests.faults.checker import check
from tests.faults.clock import ClockedNode, SteppedClock
from tests.faults.event_generator import MODEL
from tests.faults.feedback_clients import new_clients
from tests.faults.learners import LEASE, LearnerProcesses
from tests.faults.observed_model import ObservedModel, observed_model, run_scenario
from tests.faults.power import COMPILER
from tests.faults.waiting import until
from tests.servers import until as wait_until
from tests.servers import with_store
from tests.test_metrics import read
from tests.test_store import append, event, first

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler to step clocks with")

TWO_HOURS = 7_200.0
#: Seconds of a step that ends leases, but no deduplication key.
MINUTE = 60.0
KEYS = Keys(MODEL)


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path)


@pytest.fixture
def node(tmp_path: Path, clock: SteppedClock) -> Iterator[ClockedNode]:
    made = ClockedNode(tmp_path / "node", clock)
    yield made
    made.kill()
    made.client.close()


# ---- the library ----

TELL = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
libc.time.restype = ctypes.c_int64
pair = (ctypes.c_int64 * 2)()
for line in sys.stdin:
    libc.gettimeofday(pair, None)
    wall = [time.time(), time.clock_gettime(5), pair[0] + pair[1] / 1e6, libc.time(None)]
    print(*wall, *map(time.clock_gettime, (1, 4, 7)), flush=True)
"""


@contextlib.contextmanager
def told_clocks(clock: SteppedClock) -> Iterator[Callable[[], list[float]]]:
    """Yield a function that returns what another process reads: four wall clocks, three others."""
    command = [sys.executable, "-c", TELL]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **clock.environ}, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def read_clocks() -> list[float]:
            print(file=process.stdin, flush=True)
            return [float(word) for word in process.stdout.readline().split()]  # type: ignore[union-attr]

        yield read_clocks


def test_a_step_shifts_the_wall_clock_and_no_other_clock(clock: SteppedClock) -> None:
    with told_clocks(clock) as read_clocks:
        for ahead in (0.0, TWO_HOURS, -MINUTE - 0.75, 0.999):
            clock.step(ahead)
            before = [time.time()] * 4 + [*map(time.clock_gettime, (1, 4, 7))]
            found = read_clocks()
            after = [time.time()] * 4 + [*map(time.clock_gettime, (1, 4, 7))]
            for at, (least, value, most) in enumerate(zip(before, found, after, strict=True)):
                shift = ahead if at < 4 else 0.0
                assert least - 1.02 <= value - shift <= most, (ahead, at)  # whole seconds, ticks
                assert at < 4 or least <= value


def test_a_step_reaches_a_running_server(clock: SteppedClock, node: ClockedNode) -> None:
    node.start()
    node.client.set("key", 1, px=60_000)
    clock.step(-TWO_HOURS)
    wait_until(node.has_read_clock)
    assert node.client.pttl("key") > 7_000_000
    clock.step(TWO_HOURS)
    wait_until(node.has_read_clock)
    assert node.client.get("key") is None


# ---- deduplication ----


def step(clock: SteppedClock, node: ClockedNode, ahead: float) -> None:
    clock.step(ahead)
    wait_until(node.has_read_clock)


def test_an_event_is_recognised_for_the_window_after_a_clock_that_went_back(
    clock: SteppedClock, node: ClockedNode
) -> None:
    """The step is shorter than half a window; then entries follow into the same bucket."""
    names = [name for name in map(str, range(99)) if event_hash("", name)[0] % 8 == 0][:2]

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        for seq, (ahead, name) in enumerate(zip((-1500.0, 1700.0), names, strict=True), start=1):
            step(clock, node, ahead)
            assert await append(store, epoch, event(name)) == [(APPENDED, seq)]
        step(clock, node, 1700.0 + 3500.0)
        assert await append(store, epoch, event(names[1])) == [(REPEATED, 2)]

    node.start()
    with_store(node.url, act)


def test_slices_are_dropped_after_a_clock_that_was_weeks_ahead(
    clock: SteppedClock, node: ClockedNode
) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        for at, ahead in enumerate([0.0, 1e6, *(1801.0 * half for half in range(20))]):
            step(clock, node, ahead)
            await append(store, epoch, event(str(at)))
        assert len(read_slices(node.client.hget(Keys("books").state, "slices")).each) <= 5

    node.start()
    with_store(node.url, act)


# ---- learners on a server that keeps its leases ----


@pytest.mark.slow
def test_a_lease_of_a_wrong_clock_is_taken_over_when_the_clock_is_right_again(
    clock: SteppedClock, node: ClockedNode, pool: LearnerProcesses
) -> None:
    """The holder is paused meanwhile and goes on later: nothing is lost or learnt twice."""

    async def one_round(model: ObservedModel, ahead: float) -> None:
        stale = pool.start(node.url)
        committed = await model.committed()
        await until(model.committed_beyond(committed), "a learner leads with a wrong clock")
        pool.pause(stale)
        fence = await model.fence()
        node.kill()
        clock.step(ahead)
        node.start()
        assert node.client.pttl(KEYS.lease) > 7_000_000
        committed = await model.committed()
        successor = pool.start(node.url)
        await until(model.committed_beyond(committed), "another learner takes over")
        assert await model.fence() > fence
        stale.resume()
        pool.kill(successor)
        committed = await model.committed()
        await until(model.committed_beyond(committed), "the first learner takes a new lease")
        pool.kill(stale)

    async def scenario() -> None:
        clock.step(rounds(1) * TWO_HOURS)
        node.start()
        async with observed_model(node, 21) as model:
            async with await new_clients(node.url, model.epoch, model.ledger, 21):
                for at in reversed(range(rounds(1))):
                    await one_round(model, at * TWO_HOURS)
            pool.start(node.url)
            await check(
                node.url, model.ledger, "clock two hours ahead, then right", watch=model.watch,
                kills=pool.kills, pauses=pool.pauses,
            )  # fmt: skip

    run_scenario(scenario())


@pytest.mark.slow
def test_a_clock_that_steps_while_a_learner_leads_loses_and_doubles_nothing(
    clock: SteppedClock, node: ClockedNode, pool: LearnerProcesses
) -> None:
    """Forward the lease ends early, and a learner takes a new one.

    Back the lease is void, until its holder renews it or another learner takes over.
    """

    async def lease_is_valid() -> bool:
        return 0 < int(node.client.pttl(KEYS.lease)) <= (LEASE + 1.0) * 1000

    async def step(model: ObservedModel, ahead: float) -> None:
        fence, committed = await model.fence(), await model.committed()
        clock.step(ahead)
        await asyncio.to_thread(wait_until, node.has_read_clock)
        if ahead:
            await until(model.lease_taken_after(fence), "a learner takes a new lease")
        await until(lease_is_valid, f"a valid lease with the clock at {ahead:+g} s")
        await until(model.committed_beyond(committed), "learning goes on")

    async def scenario() -> None:
        node.start()
        async with observed_model(node, 22) as model:
            async with await new_clients(node.url, model.epoch, model.ledger, 22):
                for _ in range(2):
                    pool.start(node.url)
                await until(model.committed_beyond(0), "the first commit")
                for _ in range(rounds(2)):
                    await step(model, MINUTE)
                    await step(model, 0.0)
            await check(node.url, model.ledger, "clock steps while learning", watch=model.watch)

    run_scenario(scenario())


@pytest.mark.slow
def test_a_registration_of_a_wrong_clock_does_not_count(
    clock: SteppedClock, node: ClockedNode, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        node.start()
        async with observed_model(node, 23) as model:
            clock.step(TWO_HOURS)
            learner = pool.start(node.url)

            async def registered() -> bool:
                return await model.store.leases.learners() == 1

            await until(registered, "the learner is registered")
            pool.kill(learner)
            clock.step(0.0)
            await asyncio.to_thread(wait_until, node.has_read_clock)
            assert await model.store.leases.learners() == 0
            pool.start(node.url)
            await until(registered, "the next learner is registered")

            async def alone() -> bool:
                return int(node.client.zcard(LEARNERS)) == 1

            await until(alone, "the void registration is removed")

    run_scenario(scenario())


# ---- a whole service ----


def post_feedback(http: httpx.Client, event: str) -> int:
    documents = [{"id": name, "features": [at, 1.0 - at]} for at, name in enumerate("ab")]
    triplets = {"model": MODEL, "documents": documents, "triplets": [["a", "b"]]}
    answer = http.post("/feedback", json={"event_id": event, "type": "triplets", **triplets})
    assert answer.status_code == 202, answer.text
    return int(answer.json()["seq"])


def learnt(http: httpx.Client, seq: int) -> Callable[[], bool]:
    return lambda: http.get(f"/models/{MODEL}").json()["version"] >= seq


def gauge(http: httpx.Client, name: str, **labels: str) -> float | None:
    return read(http.get("/metrics").content).get((name, frozenset(labels.items())))


@contextlib.contextmanager
def service(store: str, data: Path, clock: SteppedClock, node: ClockedNode) -> Iterator[Running]:
    """Run a service on its embedded store or on another server, which then keeps its leases."""
    environ = {**clock.environ}
    if store == "server":
        node.start()
        environ["SOLAR_REDIS_URL"] = node.url
    with serving(data=data, environ=environ) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("store", ["embedded", "server"])
def test_a_service_killed_with_a_wrong_clock_learns_and_trains_once_the_clock_is_right(
    store: str, clock: SteppedClock, node: ClockedNode, tmp_path: Path
) -> None:
    clock.step(TWO_HOURS)
    with (
        service(store, tmp_path / "data", clock, node) as running,
        running.client() as http,
    ):
        features = {"features": ["a", "b"], "clicks": "click-skip-above"}
        assert http.put(f"/models/{MODEL}", json=features).status_code == 201
        until_long(learnt(http, post_feedback(http, "e1")))
        job = started_job(warm_start(http, MODEL, letor(judged_queries(2))))
        pause_training(running)
        running.kill()
    node.kill()
    clock.step(0.0)
    with (
        service(store, tmp_path / "data", clock, node) as running,
        running.client() as http,
    ):
        until_long(learnt(http, post_feedback(http, "e2")))
        assert gauge(http, "solar_learner_present", model=MODEL) == 1
        until_long(lambda: gauge(http, "solar_learners") == 1)
        assert gauge(http, "solar_training", model=MODEL) == 0
        found = read_job(http, job)
        assert (found["state"], found["error"][:25]) == ("failed", "the training process died")
        assert http.post(f"/jobs/{job}/start").status_code == 202
        assert done(http, job)["result"]["seq"] == 3
        assert post_feedback(http, "e1") == 1
        assert running.stop() == 0
