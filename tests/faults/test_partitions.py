"""Networks that part: learner or posters from the store, in one direction or both, and a master
from its Sentinels.

What is held by a cut wire arrives when it is mended, though its sender has long given up.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

import pytest

from app.storage.keys import LEARNERS, Keys
from app.storage.store import Store
from tests import fleets
from tests.faults import rounds
from tests.faults.fleet import Crowd, account, fed, onlooker
from tests.faults.invented import MODEL, new_model
from tests.faults.learners import LEASE, LearnerProcesses
from tests.faults.scene import opened, play
from tests.faults.waiting import until
from tests.fleets import Node, SentinelFleet
from tests.tcp_proxies import BOTH, Direction, Who, Wire, Wires
from tests.waits import until as wait_until

Condition: TypeAlias = Callable[[], Awaitable[bool]]

IMPATIENT = "?socket_timeout=0.5"  # else a cut of five seconds is but a pause
WHOM: tuple[tuple[Who, ...], ...] = (("sentinel", "replica"), ("sentinel",))
WAYS: tuple[tuple[Direction, ...], ...] = (BOTH, ("requests",), ("answers",))


class Parted:
    """A server, and two wires to it: one that will be cut, and another."""

    def __init__(self, node: Node, wires: Wires) -> None:
        self.node, self.wire, self.other = node, wires.to(node.port), wires.to(node.port)

    @property
    def url(self) -> str:
        """By the wire that will be cut."""
        return _url(self.wire)

    @property
    def other_url(self) -> str:
        """By the one that will not."""
        return _url(self.other)


def _url(wire: Wire) -> str:
    return f"redis://127.0.0.1:{wire.port}{IMPATIENT}"


@pytest.fixture
def parted() -> Iterator[Parted]:
    with contextlib.ExitStack() as stack:
        wires, node = stack.enter_context(Wires()), stack.enter_context(fleets.server())
        yield Parted(node, wires)


def test_posters_that_are_cut_off_are_refused_and_what_they_were_told_is_there_once(
    parted: Parted, pool: LearnerProcesses
) -> None:
    async def one_cut(crowd: Crowd, ways: tuple[Direction, ...]) -> None:
        await fed(crowd)
        before = crowd.refused
        parted.wire.cut("client", ways=ways)
        await until(refused(crowd, before + 3), "they are refused")
        parted.wire.restore()
        await fed(crowd)

    async def scene() -> None:
        async with opened(parted.other_url) as store:
            epoch = await new_model(store)
            pool.hire(parted.other_url)
            crowd = Crowd(parted.url, "fsync", epoch)
            async with onlooker(parted.url) as seen, crowd:
                for _ in range(rounds(1)):
                    for ways in WAYS:
                        await one_cut(crowd, ways)
            title = "posters and ranker cut off: both ways, requests, answers"
            found = await account(parted.other_url, [crowd], title, 3 * rounds(1), seen.ranked)
            assert found["fsync"].lost == seen.backwards == 0

    play(scene(), 60 + 60 * rounds(1))


def test_a_learner_that_is_cut_off_is_replaced_and_does_no_harm_when_it_comes_back(
    parted: Parted, pool: LearnerProcesses
) -> None:
    """Two take turns: one is cut off for two leases, the other takes over; then that one is."""

    async def one_cut(store: Store, wire: Wire, ways: tuple[Direction, ...]) -> int:
        fence = await fence_of(store)
        wire.cut("client", ways=ways)
        await asyncio.sleep(2 * LEASE)
        await until(learnt_beyond(store, await store.log.tail(MODEL)), f"another learns: {ways}")
        taken = await fence_of(store) > fence
        wire.restore()
        return taken

    async def scene() -> None:
        async with opened(parted.node.url) as store:
            crowd = Crowd(parted.node.url, "fsync", await new_model(store))
            async with onlooker(parted.node.url) as seen, crowd:
                for url in (parted.url, parted.other_url):
                    pool.hire(url)
                await until(present(store, 2), "both are there")
                await until(learnt_beyond(store, 0), "one of them learns")
                taken = 0
                for at in range(3 * rounds(1)):
                    wire = (parted.wire, parted.other)[at % 2]
                    taken += await one_cut(store, wire, WAYS[at % 3])
                assert taken >= 2 * rounds(1)
            title = "learner cut off: both ways, requests, answers"
            found = await account(parted.node.url, [crowd], title, 3 * rounds(1), seen.ranked)
            assert found["fsync"].lost == seen.backwards == 0

    play(scene(), 60 + 60 * rounds(1))


async def fence_of(store: Store) -> int:
    return int(await store._client.get(Keys(MODEL).fence) or 0)


def learnt_beyond(store: Store, seq: int) -> Condition:
    async def so() -> bool:
        return (await store.states.position(MODEL))[1] > seq

    return so


def present(store: Store, count: int) -> Condition:
    """Whether so many learners say that they are there."""

    async def so() -> bool:
        return int(await store._client.zcard(LEARNERS)) >= count

    return so


def refused(crowd: Crowd, times: int) -> Condition:
    async def so() -> bool:
        return crowd.refused >= times

    return so


def test_a_master_that_only_its_clients_still_reach_acknowledges_nothing_that_is_lost(
    pool: LearnerProcesses,
) -> None:
    """At `replicated`. Below it what it takes until they see the new one is lost, and counted."""

    async def one_cut(fleet: SentinelFleet, crowds: list[Crowd], whom: Sequence[Who]) -> None:
        await fed(*crowds)
        old, new = fleet.master(), fleet.replica()
        assert old.wire is not None
        old.wire.cut(*whom)
        await asyncio.to_thread(wait_until, lambda: fleet.promoted(new))
        assert old.is_master()
        await fed(crowds[1])
        old.client.replicaof("127.0.0.1", new.known)  # as a Sentinel would, ten seconds later
        old.wire.restore()
        await asyncio.to_thread(wait_until, fleet.is_complete)
        await fed(*crowds)

    async def scene(fleet: SentinelFleet) -> None:
        async with opened(fleet.url) as store:
            epoch = await new_model(store)
            pool.hire(fleet.url)
            crowds = [Crowd(fleet.url, level, epoch, 2) for level in ("replicated", "fsync")]
            async with onlooker(fleet.url) as seen, crowds[0], crowds[1]:
                for at in range(rounds(1)):
                    await one_cut(fleet, crowds, WHOM[at % 2])
            title = "master cut off from Sentinels and replica, not from clients"
            found = await account(fleet.url, crowds, title, rounds(1), seen.ranked)
            assert found["replicated"].lost == 0

    with fleets.sentinel_fleet(wired=True) as fleet:
        play(scene(fleet), 60 + 60 * rounds(1))
