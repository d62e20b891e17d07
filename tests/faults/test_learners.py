"""Learners that are killed, paused or stopped, and several learners at once."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from app.domain.model_config import ModelConfig
from tests.faults import rounds
from tests.faults.checker import check
from tests.faults.event_generator import MODEL, EventGenerator
from tests.faults.feedback_clients import new_clients, post_until_answered
from tests.faults.learners import LEASE, LearnerProcess, LearnerProcesses
from tests.faults.observed_model import ObservedModel, observed_model, run_scenario
from tests.faults.proxy import Proxy, call
from tests.faults.server import Server
from tests.faults.waiting import until


def test_learners_killed_at_random_lose_and_duplicate_nothing(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 1) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 1):
                learners = [pool.start(server.url) for _ in range(2)]
                await until(model.committed_beyond(0), "the first commit")
                for _ in range(rounds(5)):
                    await model.random_pause(0.05, 1.0)
                    pool.kill(learners.pop(0))
                    learners.append(pool.start(server.url))
            await check(
                server.url, model.ledger, "killed at random", watch=model.watch, kills=pool.kills
            )

    run_scenario(scenario())


def kill_at_commit(
    pool: LearnerProcesses, proxy: Proxy, learner: LearnerProcess, point: str
) -> None:
    """Kill the learner right before or after its next commit reaches the server."""

    async def before(request: bytes) -> None:
        if call("commit") in request and learner.runs():
            pool.kill(learner)

    async def after(request: bytes, answer: bytes) -> None:
        if answer.startswith(b":"):
            await before(request)

    if point == "before":
        proxy.on_request = before
    else:
        proxy.on_answer = after


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before", "after"])
def test_a_learner_killed_at_its_commit_loses_and_duplicates_nothing(
    server: Server, pool: LearnerProcesses, point: str
) -> None:
    async def one_learner(model: ObservedModel) -> None:
        async with Proxy(server.socket) as proxy:
            committed = await model.committed()
            learner = pool.start(proxy.url)
            kill_at_commit(pool, proxy, learner, point)
            await until(dead(learner), "the learner comes to its commit")
        assert (await model.committed() > committed) == (point == "after")

    async def scenario() -> None:
        async with observed_model(server, 2) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 2):
                for _ in range(rounds(2)):
                    await one_learner(model)
            pool.start(server.url)
            title = f"killed right {point} the commit"
            await check(server.url, model.ledger, title, watch=model.watch, kills=pool.kills)

    run_scenario(scenario())


def dead(learner: LearnerProcess) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return not learner.runs()

    return condition


@pytest.mark.slow
def test_learners_that_lead_for_a_second_only_make_progress(
    server: Server, pool: LearnerProcesses
) -> None:
    """The waiting records take longer than that."""
    n = 100
    settings = ModelConfig(tuple(f"f{at}" for at in range(n)))

    async def one_learner(model: ObservedModel) -> None:
        fence = await model.fence()
        learner = pool.start(server.url)
        await until(model.lease_taken_after(fence), "the learner takes the lease")
        await model.random_pause(0.5, 1.0)
        pool.kill(learner)

    async def scenario() -> None:
        async with observed_model(server, 3, settings) as model:
            generator = EventGenerator(3, n=n)
            heavy = [generator.labels(100) for _ in range(120)]
            await post_until_answered(model.store, model.epoch, heavy, model.ledger)
            for _ in range(rounds(2)):
                await one_learner(model)
            assert await model.committed() > 0
            pool.start(server.url)
            title = "progress though killed"
            await check(server.url, model.ledger, title, watch=model.watch, kills=pool.kills)

    run_scenario(scenario())


@pytest.mark.slow
def test_a_paused_learner_does_not_commit_over_its_successor(
    server: Server, pool: LearnerProcesses
) -> None:
    async def one_pause(model: ObservedModel) -> None:
        """Pause a learner during a commit, which arrives after the successor's first commit."""
        async with Proxy(server.socket) as proxy:
            held, go_on, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def hold(request: bytes) -> None:
                if call("commit") in request:
                    held.set()
                    await go_on.wait()

            async def answered(request: bytes, answer: bytes) -> None:
                if call("commit") in request and answer in (b":2\r\n", b":3\r\n"):
                    refused.set()

            proxy.on_request, proxy.on_answer = hold, answered
            learner = pool.start(proxy.url)
            await held.wait()
            pool.pause(learner)
            committed = await model.committed()
            successor = pool.start(server.url)
            await until(model.committed_beyond(committed + 1), "the successor goes further")
            go_on.set()
            await asyncio.wait_for(refused.wait(), 10)
            learner.resume()
            pool.kill(successor)
            now = await model.committed()
            await until(model.committed_beyond(now), "the learner that was paused takes over again")
            pool.kill(learner)

    async def scenario() -> None:
        async with observed_model(server, 4) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 4):
                for _ in range(rounds(1)):
                    await one_pause(model)
            pool.start(server.url)
            await check(
                server.url, model.ledger, "paused with a commit on its way", watch=model.watch,
                pauses=pool.pauses, kills=pool.kills,
            )  # fmt: skip

    run_scenario(scenario())


def test_a_learner_without_a_lease_cannot_commit_even_before_its_successor_commits(
    server: Server, pool: LearnerProcesses
) -> None:
    """The base state still matches: only the fencing token refuses the commit (I10)."""

    async def scenario() -> None:
        async with observed_model(server, 9) as model, Proxy(server.socket) as proxy:
            posted = [EventGenerator(9).labels()]
            await post_until_answered(model.store, model.epoch, posted, model.ledger)
            held, go_on = asyncio.Event(), asyncio.Event()
            answers: list[bytes] = []

            async def hold(request: bytes) -> None:
                if call("commit") in request and not go_on.is_set():
                    held.set()
                    await go_on.wait()

            async def answered(request: bytes, answer: bytes) -> None:
                said = answer.split()[-1]  # an answer to SCRIPT LOAD may come before
                if call("commit") in request and said.startswith(b":"):
                    answers.append(said)

            proxy.on_request, proxy.on_answer = hold, answered
            learner = pool.start(proxy.url)
            await held.wait()
            pool.pause(learner)
            await until(model.lease_is_free, "the lease expires")
            assert await model.store.leases.take(MODEL, 0, LEASE)
            go_on.set()
            learner.resume()
            await check(server.url, model.ledger, "lost its lease", pauses=pool.pauses)
            assert answers == [b":3", b":0"]

    run_scenario(scenario())


def test_a_single_paused_learner_takes_its_lease_again_once(
    server: Server, pool: LearnerProcesses
) -> None:
    """A fencing token without a holder would block all learners until the lease expires."""

    async def scenario() -> None:
        async with observed_model(server, 8) as model:
            generator = EventGenerator(8)
            await post_until_answered(model.store, model.epoch, [generator.event()], model.ledger)
            learner = pool.start(server.url)
            await until(model.committed_beyond(0), "the first commit")
            pool.pause(learner)
            await until(model.lease_is_free, "the lease expires")
            learner.resume()
            await until(model.lease_taken_after(1), "the lease is taken again")
            await post_until_answered(model.store, model.epoch, [generator.event()], model.ledger)
            await check(server.url, model.ledger, "a lone pause", pauses=pool.pauses)
            assert await model.fence() == 2

    run_scenario(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_learners_paused_at_random_do_not_disturb_each_other(
    server: Server, pool: LearnerProcesses, count: int
) -> None:
    async def one_pause(model: ObservedModel, learners: list[LearnerProcess]) -> None:
        """Pause the leader until another has committed; then resume it."""
        for chosen in model.rng.permutation(np.array(learners, dtype=object)):
            fence = await model.fence()
            pool.pause(chosen)
            await model.random_pause(1.3 * LEASE, 1.8 * LEASE)
            leads = await model.fence() > fence
            if leads:
                committed = await model.committed()
                await until(model.committed_beyond(committed + 1), "the successor goes further")
            chosen.resume()
            if leads:
                await model.random_pause(0.2 * LEASE, 0.5 * LEASE)
                return
        raise AssertionError("no learner led")

    async def scenario() -> None:
        async with observed_model(server, 5) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 5):
                learners = [pool.start(server.url) for _ in range(count)]
                await until(model.committed_beyond(0), "the first commit")
                for _ in range(rounds(2)):
                    await one_pause(model, learners)
            title = f"{count} learners at once"
            await check(server.url, model.ledger, title, watch=model.watch, pauses=pool.pauses)

    run_scenario(scenario())


def test_a_stopped_learner_commits_applied_records_and_releases_the_lease(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 6) as model, Proxy(server.socket) as proxy:
            generator = EventGenerator(6)
            proxy.on_answer = slow_commits
            await post_until_answered(model.store, model.epoch, [generator.labels()], model.ledger)
            learner = pool.start(proxy.url)
            applied = await applied_but_not_committed(model, proxy, generator)
            learner.terminate()
            await post_until_answered(model.store, model.epoch, [generator.labels()], model.ledger)
            await until(dead(learner), "the learner ends", 3.0)
            assert learner.code() == 0
            assert await model.committed() >= applied
            assert await model.lease() is None
            pool.start(server.url)
            await check(server.url, model.ledger, "a graceful stop", watch=model.watch)

    run_scenario(scenario())


async def slow_commits(request: bytes, _: bytes) -> None:
    """Slow down commits, so that records wait for them."""
    if call("commit") in request:
        await asyncio.sleep(0.5)


async def applied_but_not_committed(
    model: ObservedModel, proxy: Proxy, generator: EventGenerator
) -> int:
    """Return the seq of an applied record: the learner reads after it."""
    applied: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def reads_on(request: bytes) -> None:
        if b"XREAD" in request and not applied.done():
            after = int(request.rstrip().rsplit(b"\r\n", 1)[-1].split(b"-")[0])
            if after == 1:  # after the first, slow commit
                await post_until_answered(
                    model.store, model.epoch, [generator.labels()], model.ledger
                )
            if after > await model.committed():
                applied.set_result(after)

    proxy.on_request = reads_on
    return await asyncio.wait_for(applied, 30)


@pytest.mark.slow
def test_a_log_that_is_trimmed_under_kills_stays_complete(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 7) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 7):
                learners = [pool.start(server.url, eager=True) for _ in range(2)]
                for _ in range(rounds(2)):
                    await until(model.committed_beyond(await model.committed() + 100), "progress")
                    await model.random_pause(0.0, 0.5)
                    pool.kill(learners.pop(0))
                    learners.append(pool.start(server.url, eager=True))
            title = "trimmed under kills"
            found = await check(
                server.url, model.ledger, title, watch=model.watch, kills=pool.kills
            )
            assert 0 < found.start.seq <= found.tail

    run_scenario(scenario())
