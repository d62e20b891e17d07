"""Failovers with Sentinels and in a Cluster, and a moving slot, under load.

A proxy delays replicas by 300 ms. `make test-slow` runs one round of each test;
`SOLAR_DEV_CHAOS=100 pytest -s tests/faults/test_fleets.py -k lagging` runs a hundred.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from app.errors import StoreError
from app.ingest.appender import post
from app.storage.keys import Keys
from app.storage.store import Store
from tests import fleets
from tests.faults import rounds
from tests.faults.checker import check, check_duels, check_followers
from tests.faults.duel_generator import DuelGenerator
from tests.faults.duelling import begin_duel, three_followers
from tests.faults.event_generator import MODEL, EventGenerator, new_model
from tests.faults.feedback_clients import NO_LIMIT, Ledger, new_clients
from tests.faults.fleet import (
    Clients,
    ReplicaObserver,
    count_losses,
    fed,
    noticed,
    observed_replica,
    running_service,
)
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import opened, run_scenario
from tests.faults.waiting import until
from tests.fleets import ClusterFleet, Node, SentinelFleet
from tests.waits import until as wait_until

LAG = 0.3  # seconds
LEVELS = ("replicated", "fsync", "local")


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelFleet]:
    """Run Sentinels; the tests order each failover, so no test waits for the down time."""
    with fleets.sentinel_fleet(proxied=True, down_after=3000) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterFleet]:
    with fleets.cluster_fleet(replicas=1, proxied=True) as fleet:
        yield fleet


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty the store before each test."""
    yield
    for name in ("sentinels", "cluster"):
        if name in request.fixturenames:
            for node in request.getfixturevalue(name).nodes:
                slow(node, 0.0)
                if node.is_master():
                    node.client.flushall()


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]


def slow(node: Node, seconds: float = LAG) -> None:
    """Delay its replicas by `seconds`."""
    assert node.proxy is not None
    node.proxy.lag = seconds


async def ahead(seen: ReplicaObserver, replica: Node, by: int = 10) -> None:
    """Wait until the served version is ahead of the replica, so that a failover loses records."""

    async def so() -> bool:
        has = int(replica.value_of(Keys(MODEL).seq) or 0)
        return seen.weight_cache.serving[MODEL].version >= has + by

    await until(so, "more is served than the replica has")


def clients_at_all_levels(url: str, epoch: int) -> list[Clients]:
    """Return clients of every level; more of the slower `replicated` ones."""
    return [Clients(url, level, epoch, 6 if level == "replicated" else 2) for level in LEVELS]


async def lossy_failovers(fleet: SentinelFleet | ClusterFleet, fault: str) -> None:
    """Kill the master repeatedly while its replica lags."""
    async with opened(fleet.url) as store:
        epoch = await new_model(store)
        safe, *quick = clients = clients_at_all_levels(fleet.url, epoch)
        for node in fleet.nodes:
            slow(node)
        async with running_service(fleet.url) as reader:
            async with observed_replica(fleet.url) as seen, safe, quick[0], quick[1]:
                for _ in range(rounds(1)):
                    await one_failover(fleet, seen, clients)
            found = await count_losses(fleet.url, clients, fault, rounds(1), reader.ranked)
            print(f"\n{fault}: seen to go back {seen.backwards} times")  # noqa: T201
            assert found["replicated"].lost == 0
            assert found["fsync"].lost + found["local"].lost >= rounds(1)
            assert "version rollback in the store" in reader.service.logged()


async def one_failover(
    fleet: SentinelFleet | ClusterFleet, seen: ReplicaObserver, clients: list[Clients]
) -> None:
    """Fail over, wait until the rollback is noticed, and rejoin the old master as replica."""
    await fed(*clients)
    before = seen.backwards
    if isinstance(fleet, SentinelFleet):
        await ahead(seen, await asyncio.to_thread(fleet.replica))
        old, new = await asyncio.to_thread(fleet.switch)
    else:
        await ahead(seen, fleet.replica_of(fleet.owner(MODEL)))
        old, new = await asyncio.to_thread(fleet.fail_over, MODEL)
    await noticed(seen, before + 1)
    if isinstance(fleet, SentinelFleet):
        await asyncio.to_thread(wait_until, lambda: fleet.promoted(new))
    joining = asyncio.create_task(asyncio.to_thread(fleet.rejoin, old))
    await fed(*clients, by=4)
    await joining


def test_a_failover_to_a_lagging_replica_loses_no_replicated_event(
    sentinels: SentinelFleet,
) -> None:
    """Each failover is noticed, and losses at lower levels are counted."""
    run_scenario(lossy_failovers(sentinels, "failover, 300 ms behind"), 60 + 30 * rounds(1))


def test_a_cluster_failover_to_a_lagging_replica_loses_no_replicated_event(
    cluster: ClusterFleet,
) -> None:
    run_scenario(
        lossy_failovers(cluster, "cluster node killed, 300 ms behind"), 60 + 30 * rounds(1)
    )


async def failovers_in_a_duel(
    fleet: SentinelFleet | ClusterFleet, pool: LearnerProcesses, title: str
) -> None:
    """Kill the master repeatedly while its replica lags; followers learn, and a duel is on."""
    async with AsyncExitStack() as stack:
        store = Store.open(fleet.url, "replicated")
        stack.push_async_callback(store.close)
        epoch, ledger = await new_model(store), Ledger(loses_lists=True)
        await three_followers(store, epoch)
        await begin_duel(store, epoch)
        for node in fleet.nodes:
            slow(node)
        pool.start(fleet.url)
        clients = await new_clients(
            fleet.url, epoch, ledger, 31, pause=0.05, kind=DuelGenerator, durability="replicated"
        )
        async with clients:
            for _ in range(rounds(1)):
                await answered(ledger, 60)
                await one_of_many_failovers(fleet)
                await answered(ledger, 60)
        found = await check(fleet.url, ledger, title, failovers=rounds(1))
        assert len(await check_followers(fleet.url)) == 3
        [counted] = check_duels(found)
        assert counted.counts[0] > 5


async def answered(ledger: Ledger, more: int) -> None:
    """Wait until this many more events are acknowledged."""
    count = len(ledger.acknowledged) + more

    async def so() -> bool:
        return len(ledger.acknowledged) >= count

    await until(so, f"{more} more events")


async def one_of_many_failovers(fleet: SentinelFleet | ClusterFleet) -> None:
    """Fail over, and rejoin the old master as a replica."""
    if isinstance(fleet, SentinelFleet):
        old, new = await asyncio.to_thread(fleet.switch)
        await asyncio.to_thread(wait_until, lambda: fleet.promoted(new))
    else:
        old, _ = await asyncio.to_thread(fleet.fail_over, MODEL)
    await asyncio.to_thread(fleet.rejoin, old)


def test_followers_and_a_duel_survive_a_failover(
    sentinels: SentinelFleet, pool: LearnerProcesses
) -> None:
    scenario = failovers_in_a_duel(sentinels, pool, "failover in a duel")
    run_scenario(scenario, 60 + 30 * rounds(1))


def test_followers_and_a_duel_survive_a_failover_of_a_cluster(
    cluster: ClusterFleet, pool: LearnerProcesses
) -> None:
    scenario = failovers_in_a_duel(cluster, pool, "cluster failover in a duel")
    run_scenario(scenario, 60 + 30 * rounds(1))


def test_clients_leave_an_old_master_for_the_new_one(
    sentinels: SentinelFleet,
) -> None:
    """It was paused, replaced and resumed: for some seconds it still acts as master."""

    async def scenario() -> None:
        async with opened(sentinels.url) as store:
            epoch = await new_model(store)
            old, new = sentinels.master(), sentinels.replica()
            old.pause()
            await asyncio.to_thread(wait_until, lambda: sentinels.promoted(new))
            old.resume()
            generator = EventGenerator(3)
            wrote = await post_until_answered(store, epoch, generator)
            assert new.client.xlen("solar:{m}:log") == wrote
            assert old.client.xlen("solar:{m}:log") == 0
            old.kill()
            await asyncio.to_thread(sentinels.rejoin, old)
            assert await post_until_answered(store, epoch, generator) == wrote + 1

    async def post_until_answered(store: Store, epoch: int, generator: EventGenerator) -> int:
        event = generator.labels()
        record: list[Any] = []

        async def answered() -> bool:
            try:
                record[:] = await post(store, MODEL, epoch, [event], limit=NO_LIMIT, time=0)
            except StoreError:
                return False
            return True

        await until(answered, "an answer")
        return int(record[0].seq)

    run_scenario(scenario())


def test_moving_a_slot_under_load_loses_and_duplicates_nothing(
    cluster: ClusterFleet, pool: LearnerProcesses
) -> None:
    async def one_move() -> None:
        target = cluster.other_master(cluster.owner(MODEL))
        moving = cluster.reshard(MODEL, target)
        while (await asyncio.to_thread(next, moving, None)) is not None:
            await asyncio.sleep(0.01)  # let some calls run in between
        assert cluster.owner(MODEL) is target

    async def scenario() -> None:
        async with opened(cluster.url) as store:
            epoch = await new_model(store)
            pool.start(cluster.url)
            clients = [Clients(cluster.url, level, epoch) for level in ("replicated", "fsync")]
            async with observed_replica(cluster.url) as seen, clients[0], clients[1]:
                for _ in range(rounds(1)):
                    await fed(*clients)
                    await one_move()
                await fed(*clients)
            found = await count_losses(cluster.url, clients, "slot moved", rounds(1), seen.ranked)
            assert [one.lost for one in found.values()] == [0, 0]
            assert seen.backwards == 0

    run_scenario(scenario(), 60 + 30 * rounds(1))
