"""Learners that are killed, paused, stopped, or too many."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from app.domain.model_config import ModelConfig
from tests.faults import rounds
from tests.faults.checker import check
from tests.faults.invented import MODEL, Invented
from tests.faults.learners import LEASE, LearnerProcess, LearnerProcesses
from tests.faults.posters import at_work, insist
from tests.faults.proxy import Proxy, call
from tests.faults.scene import Scene, a_model, play
from tests.faults.server import Server
from tests.faults.waiting import until


def test_learners_killed_at_random_moments_lose_and_double_nothing(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scene() -> None:
        async with a_model(server, 1) as model:
            async with await at_work(server.url, model.epoch, model.ledger, 1):
                learners = [pool.hire(server.url) for _ in range(2)]
                await until(model.beyond(0), "the first commit")
                for _ in range(rounds(5)):
                    await model.moment(0.05, 1.0)
                    pool.kill(learners.pop(0))
                    learners.append(pool.hire(server.url))
            await check(
                server.url, model.ledger, "killed at random", watch=model.watch, kills=pool.kills
            )

    play(scene())


def kill_at_commit(
    pool: LearnerProcesses, proxy: Proxy, learner: LearnerProcess, point: str
) -> None:
    """Kill the learner right before its next commit reaches the server, or right after."""

    async def before(request: bytes) -> None:
        if call("commit") in request and learner.lives():
            pool.kill(learner)

    async def after(request: bytes, answer: bytes) -> None:
        if answer.startswith(b":"):
            await before(request)

    if point == "before":
        proxy.on_request = before
    else:
        proxy.on_answer = after


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_learner_killed_right_at_its_commit_loses_and_doubles_nothing(
    server: Server, pool: LearnerProcesses, point: str
) -> None:
    async def one_life(model: Scene) -> None:
        async with Proxy(server.socket) as proxy:
            committed = await model.committed()
            learner = pool.hire(proxy.url)
            kill_at_commit(pool, proxy, learner, point)
            await until(dead(learner), "the learner comes to its commit")
        assert (await model.committed() > committed) == (point == "after")

    async def scene() -> None:
        async with a_model(server, 2) as model:
            async with await at_work(server.url, model.epoch, model.ledger, 2):
                for _ in range(rounds(2)):
                    await one_life(model)
            pool.hire(server.url)
            title = f"killed right {point} the commit"
            await check(server.url, model.ledger, title, watch=model.watch, kills=pool.kills)

    play(scene())


def dead(learner: LearnerProcess) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return not learner.lives()

    return condition


def test_progress_is_made_though_no_learner_leads_for_longer_than_a_second(
    server: Server, pool: LearnerProcesses
) -> None:
    """And though all records that wait take longer than that."""
    n = 100
    settings = ModelConfig(tuple(f"f{at}" for at in range(n)))

    async def one_life(model: Scene) -> None:
        fence = await model.fence()
        learner = pool.hire(server.url)
        await until(model.taken(fence), "the learner takes the lease")
        await model.moment(0.5, 1.0)
        pool.kill(learner)

    async def scene() -> None:
        async with a_model(server, 3, settings) as model:
            invented = Invented(3, n=n)
            heavy = [invented.labels(100) for _ in range(120)]
            await insist(model.store, model.epoch, heavy, model.ledger)
            for _ in range(rounds(2)):
                await one_life(model)
            assert await model.committed() > 0
            pool.hire(server.url)
            title = "progress though killed"
            await check(server.url, model.ledger, title, watch=model.watch, kills=pool.kills)

    play(scene())


def test_a_paused_learner_does_not_commit_over_its_successor(
    server: Server, pool: LearnerProcesses
) -> None:
    async def one_pause(model: Scene) -> None:
        """Paused with a commit on its way, which arrives after the successor's first."""
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
            learner = pool.hire(proxy.url)
            await held.wait()
            pool.pause(learner)
            committed = await model.committed()
            successor = pool.hire(server.url)
            await until(model.beyond(committed + 1), "the successor goes further")
            go_on.set()
            await asyncio.wait_for(refused.wait(), 10)
            learner.go_on()
            pool.kill(successor)
            now = await model.committed()
            await until(model.beyond(now), "the learner that was paused takes over again")
            pool.kill(learner)

    async def scene() -> None:
        async with a_model(server, 4) as model:
            async with await at_work(server.url, model.epoch, model.ledger, 4):
                for _ in range(rounds(1)):
                    await one_pause(model)
            pool.hire(server.url)
            await check(
                server.url, model.ledger, "paused with a commit on its way", watch=model.watch,
                pauses=pool.pauses, kills=pool.kills,
            )  # fmt: skip

    play(scene())


def test_a_learner_that_lost_its_lease_cannot_commit_even_before_its_successor_has(
    server: Server, pool: LearnerProcesses
) -> None:
    """The state is still what its commit starts from: only the fence says no (I10)."""

    async def scene() -> None:
        async with a_model(server, 9) as model, Proxy(server.socket) as proxy:
            posted = [Invented(9).labels()]
            await insist(model.store, model.epoch, posted, model.ledger)
            held, go_on = asyncio.Event(), asyncio.Event()
            answers: list[bytes] = []

            async def hold(request: bytes) -> None:
                if call("commit") in request and not go_on.is_set():
                    held.set()
                    await go_on.wait()

            async def answered(request: bytes, answer: bytes) -> None:
                said = answer.split()[-1]  # before it there may be that of SCRIPT LOAD
                if call("commit") in request and said.startswith(b":"):
                    answers.append(said)

            proxy.on_request, proxy.on_answer = hold, answered
            learner = pool.hire(proxy.url)
            await held.wait()
            pool.pause(learner)
            await until(model.nobody_leads, "the lease expires")
            assert await model.store.leases.take(MODEL, 0, LEASE)
            go_on.set()
            learner.go_on()
            await check(server.url, model.ledger, "lost its lease", pauses=pool.pauses)
            assert answers == [b":3", b":0"]

    play(scene())


def test_a_lone_learner_that_was_paused_takes_its_lease_anew_and_not_twice(
    server: Server, pool: LearnerProcesses
) -> None:
    """A fence that nobody has keeps everybody out for as long as a lease."""

    async def scene() -> None:
        async with a_model(server, 8) as model:
            invented = Invented(8)
            await insist(model.store, model.epoch, [invented.event()], model.ledger)
            learner = pool.hire(server.url)
            await until(model.beyond(0), "the first commit")
            pool.pause(learner)
            await until(model.nobody_leads, "the lease expires")
            learner.go_on()
            await until(model.taken(1), "the lease is taken anew")
            await insist(model.store, model.epoch, [invented.event()], model.ledger)
            await check(server.url, model.ledger, "a lone pause", pauses=pool.pauses)
            assert await model.fence() == 2

    play(scene())


@pytest.mark.parametrize("count", [2, 3])
def test_several_learners_that_are_paused_at_random_do_not_disturb_each_other(
    server: Server, pool: LearnerProcesses, count: int
) -> None:
    async def one_pause(model: Scene, learners: list[LearnerProcess]) -> None:
        """Pause whoever leads, until another has gone further; then both are at work."""
        for chosen in model.rng.permutation(np.array(learners, dtype=object)):
            fence = await model.fence()
            pool.pause(chosen)
            await model.moment(1.3 * LEASE, 1.8 * LEASE)
            leads = await model.fence() > fence
            if leads:
                committed = await model.committed()
                await until(model.beyond(committed + 1), "the successor goes further")
            chosen.go_on()
            if leads:
                await model.moment(0.2 * LEASE, 0.5 * LEASE)
                return
        raise AssertionError("nobody led")

    async def scene() -> None:
        async with a_model(server, 5) as model:
            async with await at_work(server.url, model.epoch, model.ledger, 5):
                learners = [pool.hire(server.url) for _ in range(count)]
                await until(model.beyond(0), "the first commit")
                for _ in range(rounds(2)):
                    await one_pause(model, learners)
            title = f"{count} learners at once"
            await check(server.url, model.ledger, title, watch=model.watch, pauses=pool.pauses)

    play(scene())


def test_a_learner_told_to_stop_commits_what_it_folded_and_releases_the_lease(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scene() -> None:
        async with a_model(server, 6) as model, Proxy(server.socket) as proxy:
            invented = Invented(6)
            proxy.on_answer = slow_commits
            await insist(model.store, model.epoch, [invented.labels()], model.ledger)
            learner = pool.hire(proxy.url)
            folded = await folded_but_not_committed(model, proxy, invented)
            learner.terminate()
            await insist(model.store, model.epoch, [invented.labels()], model.ledger)
            await until(dead(learner), "the learner ends", 3.0)
            assert learner.code() == 0
            assert await model.committed() >= folded
            assert await model.lease() is None
            pool.hire(server.url)
            await check(server.url, model.ledger, "told to stop", watch=model.watch)

    play(scene())


async def slow_commits(request: bytes, _: bytes) -> None:
    """Slow commits are rare ones: records wait for theirs."""
    if call("commit") in request:
        await asyncio.sleep(0.5)


async def folded_but_not_committed(model: Scene, proxy: Proxy, invented: Invented) -> int:
    """The seq of a record that the learner has folded: it reads on after it."""
    folded: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def reads_on(request: bytes) -> None:
        if b"XREAD" in request and not folded.done():
            after = int(request.rstrip().rsplit(b"\r\n", 1)[-1].split(b"-")[0])
            if after == 1:  # the first commit is done, and was slow
                await insist(model.store, model.epoch, [invented.labels()], model.ledger)
            if after > await model.committed():
                folded.set_result(after)

    proxy.on_request = reads_on
    return await asyncio.wait_for(folded, 30)


def test_the_log_is_trimmed_under_kills_and_what_is_kept_is_whole(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scene() -> None:
        async with a_model(server, 7) as model:
            async with await at_work(server.url, model.epoch, model.ledger, 7):
                learners = [pool.hire(server.url, eager=True) for _ in range(2)]
                for _ in range(rounds(2)):
                    await until(model.beyond(await model.committed() + 100), "progress")
                    await model.moment(0.0, 0.5)
                    pool.kill(learners.pop(0))
                    learners.append(pool.hire(server.url, eager=True))
            title = "trimmed under kills"
            found = await check(
                server.url, model.ledger, title, watch=model.watch, kills=pool.kills
            )
            assert 0 < found.start.seq <= found.tail

    play(scene())
