"""Killed learners of a leader and its followers on a Cluster, with a duel.

`make test-slow` runs one round;
`SOLAR_DEV_CHAOS=20 pytest -s tests/faults/test_followers_cluster.py` runs twenty.
"""

from collections.abc import Iterator

import pytest

from app.storage.keys import follower_address, keys_of
from app.storage.store import Store
from tests import fleets
from tests.faults import rounds
from tests.faults.checker import check, check_duels, check_followers
from tests.faults.duel_generator import DuelGenerator
from tests.faults.duelling import begin_duel, committed, end_duel, three_followers
from tests.faults.event_generator import MODEL, new_model
from tests.faults.feedback_clients import Ledger, new_clients
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import opened, run_scenario
from tests.faults.proxy import call
from tests.faults.waiting import until
from tests.fleets import ClusterFleet
from tests.tcp_proxies import let_pass

pytestmark = pytest.mark.slow

FOLLOWERS = ("b", "c", "d")
COMMITTED = b":0\r\n"


@pytest.fixture
def cluster() -> Iterator[ClusterFleet]:
    with fleets.cluster_fleet(proxied=True) as fleet:
        yield fleet


async def killed_at(
    fleet: ClusterFleet, pool: LearnerProcesses, script: str, name: str, *, after: bool
) -> None:
    """Run a learner until it commits a model, and kill it before or after the store does that.

    `name` is that of a follower, or empty for the leader.
    """
    proxy = fleet.owner(MODEL).proxy
    assert proxy is not None
    state = keys_of(follower_address(MODEL, name) if name else MODEL).state.encode()
    learner = pool.start(fleet.url)

    def passes(request: bytes, answer: bytes) -> bool:
        if call(script) not in request or state not in request:
            return True
        if after and not answer.endswith(COMMITTED):
            return learner.runs()
        if learner.runs():
            pool.kill(learner)
        return False

    async def is_dead() -> bool:
        return not learner.runs()

    proxy.passes = passes
    try:
        await until(is_dead, f"the learner comes to {script} of {name or 'the leader'}")
    finally:
        proxy.passes = let_pass


async def one_round(fleet: ClusterFleet, pool: LearnerProcesses, at: int) -> None:
    """Kill the learner of the leader, of the challenger and of another follower."""
    other = FOLLOWERS[1 + at % 2]
    await killed_at(fleet, pool, "commit", "", after=at % 2 == 0)
    await killed_at(fleet, pool, "commit_follower", "b", after=at % 2 == 1)
    await killed_at(fleet, pool, "commit_follower", other, after=at % 4 < 2)


async def learnt_beyond(store: Store, seq: int) -> None:
    """Wait until the leader and all followers have learnt a later record."""

    async def so() -> bool:
        return min([await committed(store, name) for name in ("", *FOLLOWERS)]) > seq

    await until(so, f"all learn more than {seq} records")


def test_learners_killed_at_commits_on_a_cluster_lose_and_duplicate_nothing(
    cluster: ClusterFleet, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with opened(cluster.url) as store:
            epoch, ledger = await new_model(store), Ledger()
            await three_followers(store, epoch)
            duel = await begin_duel(store, epoch)
            first = pool.start(cluster.url)
            await learnt_beyond(store, duel - 1)
            pool.kill(first)
            clients = await new_clients(
                cluster.url, epoch, ledger, 51, pause=0.1, kind=DuelGenerator
            )
            async with clients:
                for at in range(rounds(1)):
                    await one_round(cluster, pool, at)
                pool.start(cluster.url)
                await learnt_beyond(store, await store.log.tail(MODEL) + 50)
                await end_duel(store, epoch, duel)
                await learnt_beyond(store, await store.log.tail(MODEL) + 20)
            title = "killed with followers on a Cluster"
            found = await check(cluster.url, ledger, title, kills=pool.kills)
            assert sorted(await check_followers(cluster.url)) == [*FOLLOWERS]
            [counted] = check_duels(found)
            assert counted.ended
            assert counted.counts[0] > 5

    run_scenario(scenario())
