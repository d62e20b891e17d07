"""Followers and duels under faults: killed learners and servers, slow and stalled followers.

Each test ends with a comparison of the leader and all followers with a replay of the log, and of
the duel with a naive count of its lists.
"""

import asyncio
from time import monotonic

import pytest

from app.domain.followers import follower_config
from app.domain.model_config import COUNTING, ModelConfig
from tests.faults import rounds
from tests.faults.checker import check, check_duels, check_followers
from tests.faults.duel_generator import DuelGenerator
from tests.faults.duelling import begin_duel, committed, end_duel, follow, three_followers
from tests.faults.event_generator import MODEL, SETTINGS, EventGenerator
from tests.faults.feedback_clients import new_clients, post_until_answered
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import ObservedModel, observed_model, run_scenario
from tests.faults.proxy import Proxy, call
from tests.faults.server import Server
from tests.faults.waiting import until


async def killed_at(
    model: ObservedModel, pool: LearnerProcesses, server: Server, script: str, *, after: bool
) -> None:
    """Run a learner until its next call of a script, and kill it before or after the answer."""
    async with Proxy(server.socket) as proxy:
        learner = pool.start(proxy.url)

        async def before(request: bytes) -> None:
            if call(script) in request and learner.runs():
                pool.kill(learner)

        async def then(request: bytes, answer: bytes) -> None:
            if answer.startswith(b":"):
                await before(request)

        async def is_dead() -> bool:
            return not learner.runs()

        if after:
            proxy.on_answer = then
        else:
            proxy.on_request = before
        await until(is_dead, f"the learner of {model.epoch} comes to {script}")


def test_learners_killed_at_the_commits_of_leader_and_follower_lose_and_duplicate_nothing(
    server: Server, pool: LearnerProcesses
) -> None:
    """Also the server is killed. Some clicks are repeated, some come after the end of the duel."""

    async def scenario() -> None:
        async with observed_model(server, 21) as model:
            store, epoch = model.store, model.epoch
            await three_followers(store, epoch)
            duel = await begin_duel(store, epoch)
            clients = new_clients(
                server.url, epoch, model.ledger, 21, pause=0.1, kind=DuelGenerator
            )
            pool.start(server.url)
            await until(model.committed_beyond(0), "the duel begins")
            pool.kill_all()
            async with await clients:
                for _ in range(rounds(1)):
                    await killed_at(model, pool, server, "commit_follower", after=False)
                    await killed_at(model, pool, server, "commit_follower", after=True)
                    await killed_at(model, pool, server, "commit", after=True)
                    server.kill()
                    server.start()
                pool.start(server.url)
                await until(model.committed_beyond(duel + 50), "lists are counted")
                await end_duel(store, epoch, duel)
                tail = await store.log.tail(MODEL)
                await until(model.committed_beyond(tail + 20), "late clicks are learnt")
            title = "killed with followers"
            found = await check(server.url, model.ledger, title, kills=pool.kills + server.kills)
            assert len(await check_followers(server.url)) == 3
            [counted] = check_duels(found)
            assert counted.ended
            assert counted.counts[0] > 5

    run_scenario(scenario())


@pytest.mark.slow
def test_a_follower_ten_times_slower_than_its_leader_does_not_hold_it_up(
    server: Server, pool: LearnerProcesses
) -> None:
    """A full covariance of 400 features against a diagonal one."""
    n = 400
    features = tuple(f"f{at}" for at in range(n))
    settings = ModelConfig(features, covariance="diagonal", counting=COUNTING)

    async def scenario() -> None:
        async with observed_model(server, 22, settings) as model:
            slow = follower_config(settings, covariance="full")
            await follow(model.store, model.epoch, {"slow": slow})
            generator = EventGenerator(22, n=n)
            posted = [generator.labels(40) for _ in range(100 * rounds(1))]
            for at in range(0, len(posted), 10):
                ten = posted[at : at + 10]
                await post_until_answered(model.store, model.epoch, ten, model.ledger)
            pool.start(server.url)
            started = monotonic()
            await until(model.committed_beyond(len(posted) - 1), "the leader has learnt all")
            took, behind = monotonic() - started, await committed(model.store, "slow")
            assert behind < len(posted) / 2
            await check(server.url, model.ledger, "a slow follower", follower_at=behind)
            assert [*await check_followers(server.url)] == ["slow"]
            whole = monotonic() - started
            print(f"seconds: leader {took:.2f}, follower {whole:.2f}")  # noqa: T201

    run_scenario(scenario())


def test_a_follower_that_would_hold_back_the_log_is_stalled_and_begins_anew(
    server: Server, pool: LearnerProcesses
) -> None:
    """A follower that looks at its leader once in half a minute, and a log of 50 kB."""

    async def scenario() -> None:
        async with observed_model(server, 23) as model:
            store, generator = model.store, EventGenerator(23)

            async def post(count: int) -> None:
                for _ in range(count):
                    events = [generator.labels() for _ in range(5)]
                    await post_until_answered(store, model.epoch, events, model.ledger)
                    await asyncio.sleep(0.005)

            async def is_stalled() -> bool:
                await post(1)
                return (await store.followers.of(MODEL))["late"]

            late = {"late": follower_config(SETTINGS, gamma=100.0)}
            await follow(store, model.epoch, late)
            learner = pool.start(server.url, eager=True, log_bytes=50_000, follow=30.0)
            await until(is_stalled, "the follower is stalled")
            await check(server.url, model.ledger, "a stalled follower")
            assert (await store.log.size(MODEL))[0] < len(model.ledger.acknowledged)
            assert await check_followers(server.url) == {}
            pool.kill(learner)
            await store.followers.delete(f"{MODEL}/late")
            await follow(store, model.epoch, late)
            pool.start(server.url)
            await post(2)
            await check(server.url, model.ledger, "begun again")
            assert [*await check_followers(server.url)] == ["late"]

    run_scenario(scenario())
