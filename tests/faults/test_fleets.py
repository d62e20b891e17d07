"""Failovers by Sentinel and in a Cluster, and a slot that moves, with feedback coming in.

The short form; `tests/fleets.py` and `tests/faults/fleet.py` are the tools for longer ones.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import StoreError
from app.posting import post
from app.store.store import Store
from tests import fleets
from tests.faults import rounds
from tests.faults.fleet import Crowd, Onlooker, account, onlooker
from tests.faults.invented import MODEL, Invented, new_model
from tests.faults.learners import Staff
from tests.faults.posters import NO_LIMIT
from tests.faults.scene import opened, play
from tests.faults.waiting import until
from tests.fleets import ClusterFleet, SentinelFleet
from tests.waits import until as wait_until


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelFleet]:
    with fleets.sentinel_fleet() as fleet:
        yield fleet


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterFleet]:
    with fleets.cluster_fleet(replicas=1) as fleet:
        yield fleet


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test finds an empty store."""
    yield
    for name in ("sentinels", "cluster"):
        if name in request.fixturenames:
            for node in request.getfixturevalue(name).nodes:
                if node.is_master():
                    node.client.flushall()


pytestmark = pytest.mark.usefixtures("fresh")


async def fed(*crowds: Crowd, by: int = 30) -> None:
    """Wait until each of them was told of so many more events."""
    for crowd in crowds:
        await until(crowd.more_than(len(crowd.ledger.told) + by), f"{by} more events")


async def noticed(seen: Onlooker, times: int) -> None:
    async def so() -> bool:
        return seen.backwards >= times

    await until(so, f"the store was seen to go back {times} times")


async def served(seen: Onlooker, seq: int) -> None:
    async def so() -> bool:
        return seen.ranker.serving[MODEL].version >= seq

    await until(so, f"record {seq} is served")


def told_by_learners(directory: Path) -> str:
    return "".join(log.read_text() for log in directory.glob("learner*.log"))


def test_a_failover_that_loses_is_noticed_and_loses_nothing_that_is_replicated(
    sentinels: SentinelFleet, staff: Staff, tmp_path: Path
) -> None:
    """The replica misses what comes while it is gone, and is then all that is left."""
    url = sentinels.url

    async def one_failover(store: Store, seen: Onlooker, safe: Crowd, quick: Crowd) -> None:
        await fed(safe, quick)
        master, replica = sentinels.master(), sentinels.replica()
        await asyncio.to_thread(replica.kill)
        await fed(quick)
        await served(seen, await store.tail(MODEL))
        master.kill()
        await asyncio.to_thread(replica.start, replicaof=f"{fleets.HOST} {master.port}")
        await asyncio.to_thread(wait_until, lambda: sentinels.promoted(replica))
        await fed(quick)
        await asyncio.to_thread(sentinels.rejoin, master)
        await fed(safe, quick)

    async def scene() -> None:
        async with opened(url) as store:
            epoch = await new_model(store)
            staff.hire(url)
            safe, quick = (Crowd(url, level, epoch, 2) for level in ("replicated", "fsync"))
            async with onlooker(url) as seen, safe, quick:
                for at in range(rounds(1)):
                    await one_failover(store, seen, safe, quick)
                    await noticed(seen, at + 1)
            kept = await account(url, [safe], "failover, replicated")
            lost = await account(url, [quick], "failover, fsync")
            assert (kept.lost, kept.doubled) == (0, 0)
            assert lost.lost >= 30
            assert lost.doubled == 0
            assert lost.told - lost.lost + kept.told <= lost.records
        said = told_by_learners(tmp_path)
        assert "went back" in said or "not in the log any more" in said

    play(scene())


def test_an_old_master_that_is_still_reached_is_left_for_the_new_one(
    sentinels: SentinelFleet,
) -> None:
    """It stood still, was replaced, and wakes: for some seconds it takes itself for the master."""

    async def scene() -> None:
        async with opened(sentinels.url) as store:
            epoch = await new_model(store)
            old, new = sentinels.master(), sentinels.replica()
            old.pause()
            await asyncio.to_thread(wait_until, lambda: sentinels.promoted(new))
            old.go_on()
            invented = Invented(3)
            wrote = await insist(store, epoch, invented)
            assert new.client.xlen("solar:{m}:log") == wrote
            assert old.client.xlen("solar:{m}:log") == 0
            old.kill()
            await asyncio.to_thread(sentinels.rejoin, old)
            assert await insist(store, epoch, invented) == wrote + 1

    async def insist(store: Store, epoch: int, invented: Invented) -> int:
        event = invented.labels()
        record: list[Any] = []

        async def told() -> bool:
            try:
                record[:] = await post(store, MODEL, epoch, [event], limit=NO_LIMIT, time=0)
            except StoreError:
                return False
            return True

        await until(told, "an answer")
        return int(record[0].seq)

    play(scene())


def test_a_killed_master_of_a_cluster_loses_nothing_that_is_replicated(
    cluster: ClusterFleet, staff: Staff
) -> None:
    async def scene() -> None:
        async with opened(cluster.url) as store:
            epoch = await new_model(store)
            staff.hire(cluster.url)
            safe, quick = (Crowd(cluster.url, level, epoch, 2) for level in ("replicated", "fsync"))
            async with onlooker(cluster.url) as seen, safe, quick:
                for _ in range(rounds(1)):
                    await fed(safe, quick)
                    old, _ = await asyncio.to_thread(cluster.fail_over, MODEL)
                    await fed(quick)
                    await asyncio.to_thread(cluster.rejoin, old)
                    await fed(safe, quick)
                assert MODEL in seen.ranker.serving
            kept = await account(cluster.url, [safe], "cluster, replicated")
            await account(cluster.url, [quick], "cluster, fsync")
            assert (kept.lost, kept.doubled) == (0, 0)

    play(scene())


def test_a_slot_that_moves_under_load_loses_and_doubles_nothing(
    cluster: ClusterFleet, staff: Staff
) -> None:
    async def one_move() -> None:
        target = cluster.other_master(cluster.owner(MODEL))
        moving = cluster.reshard(MODEL, target)
        while (await asyncio.to_thread(next, moving, None)) is not None:
            await asyncio.sleep(0.01)  # some calls come in between
        assert cluster.owner(MODEL) is target

    async def scene() -> None:
        async with opened(cluster.url) as store:
            epoch = await new_model(store)
            staff.hire(cluster.url)
            crowd = Crowd(cluster.url, "fsync", epoch, 3)
            async with onlooker(cluster.url) as seen, crowd:
                for _ in range(rounds(1)):
                    await fed(crowd)
                    await one_move()
                    await fed(crowd)
            found = await account(cluster.url, [crowd], "resharded")
            assert (found.lost, found.doubled, seen.backwards) == (0, 0, 0)

    play(scene())
