"""Network partitions: learner or clients from the store, in one direction or both, and a master
from its Sentinels.

Data held by a cut proxy arrive when the proxy is restored, long after the sender's timeout.
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
from tests.faults.event_generator import MODEL, new_model
from tests.faults.fleet import Clients, count_losses, fed, observed_replica
from tests.faults.learners import LEASE, LearnerProcesses
from tests.faults.observed_model import opened, run_scenario
from tests.faults.waiting import until
from tests.fleets import Node, SentinelFleet
from tests.tcp_proxies import BOTH, Direction, Peer, TcpProxies, TcpProxy
from tests.waits import until as wait_until

pytestmark = pytest.mark.slow

Condition: TypeAlias = Callable[[], Awaitable[bool]]

SHORT_TIMEOUT = "?socket_timeout=0.5"  # else a cut must outlast the timeout of five seconds
CUT_PEERS: tuple[tuple[Peer, ...], ...] = (("sentinel", "replica"), ("sentinel",))
DIRECTIONS: tuple[tuple[Direction, ...], ...] = (BOTH, ("requests",), ("answers",))


class CutServer:
    """A server with two proxies: one to cut and one that stays."""

    def __init__(self, node: Node, proxies: TcpProxies) -> None:
        self.node, self.proxy, self.other = node, proxies.to(node.port), proxies.to(node.port)

    @property
    def url(self) -> str:
        """Return the URL of the proxy to cut."""
        return _url(self.proxy)

    @property
    def other_url(self) -> str:
        """Return the URL of the other proxy."""
        return _url(self.other)


def _url(proxy: TcpProxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}{SHORT_TIMEOUT}"


@pytest.fixture
def cut_server() -> Iterator[CutServer]:
    with contextlib.ExitStack() as stack:
        proxies, node = stack.enter_context(TcpProxies()), stack.enter_context(fleets.server())
        yield CutServer(node, proxies)


def test_events_of_disconnected_clients_are_stored_once_if_acknowledged(
    cut_server: CutServer, pool: LearnerProcesses
) -> None:
    async def one_cut(group: Clients, directions: tuple[Direction, ...]) -> None:
        await fed(group)
        before = group.refused
        cut_server.proxy.cut("client", directions=directions)
        await until(refused(group, before + 3), "they are refused")
        cut_server.proxy.restore()
        await fed(group)

    async def scenario() -> None:
        async with opened(cut_server.other_url) as store:
            epoch = await new_model(store)
            pool.start(cut_server.other_url)
            group = Clients(cut_server.url, "fsync", epoch)
            async with observed_replica(cut_server.url) as seen, group:
                for _ in range(rounds(1)):
                    for directions in DIRECTIONS:
                        await one_cut(group, directions)
            title = "clients and replica cut off: both directions, requests, answers"
            found = await count_losses(
                cut_server.other_url, [group], title, 3 * rounds(1), seen.ranked
            )
            assert found["fsync"].lost == seen.backwards == 0

    run_scenario(scenario(), 60 + 60 * rounds(1))


def test_a_disconnected_learner_is_replaced_and_does_no_harm_when_it_reconnects(
    cut_server: CutServer, pool: LearnerProcesses
) -> None:
    """Two learners alternate: one is cut off for two leases, and the other takes over."""

    async def one_cut(store: Store, proxy: TcpProxy, directions: tuple[Direction, ...]) -> int:
        fence = await fence_of(store)
        proxy.cut("client", directions=directions)
        await asyncio.sleep(2 * LEASE)
        await until(
            learnt_beyond(store, await store.log.tail(MODEL)), f"another learns: {directions}"
        )
        taken = await fence_of(store) > fence
        proxy.restore()
        return taken

    async def scenario() -> None:
        async with opened(cut_server.node.url) as store:
            group = Clients(cut_server.node.url, "fsync", await new_model(store))
            async with observed_replica(cut_server.node.url) as seen, group:
                for url in (cut_server.url, cut_server.other_url):
                    pool.start(url)
                await until(present(store, 2), "both are there")
                await until(learnt_beyond(store, 0), "one of them learns")
                taken = 0
                for at in range(3 * rounds(1)):
                    proxy = (cut_server.proxy, cut_server.other)[at % 2]
                    taken += await one_cut(store, proxy, DIRECTIONS[at % 3])
                assert taken >= 2 * rounds(1)
            title = "learner cut off: both directions, requests, answers"
            found = await count_losses(
                cut_server.node.url, [group], title, 3 * rounds(1), seen.ranked
            )
            assert found["fsync"].lost == seen.backwards == 0

    run_scenario(scenario(), 60 + 60 * rounds(1))


async def fence_of(store: Store) -> int:
    return int(await store._client.get(Keys(MODEL).fence) or 0)


def learnt_beyond(store: Store, seq: int) -> Condition:
    async def so() -> bool:
        return (await store.states.position(MODEL))[1] > seq

    return so


def present(store: Store, count: int) -> Condition:
    """Return a condition: `count` learners are registered."""

    async def so() -> bool:
        return int(await store._client.zcard(LEARNERS)) >= count

    return so


def refused(group: Clients, times: int) -> Condition:
    async def so() -> bool:
        return group.refused >= times

    return so


def test_an_isolated_master_acknowledges_no_replicated_event_that_is_lost(
    pool: LearnerProcesses,
) -> None:
    """At lower levels, its acknowledged events are lost and counted."""

    async def one_cut(fleet: SentinelFleet, clients: list[Clients], peers: Sequence[Peer]) -> None:
        await fed(*clients)
        old, new = fleet.master(), fleet.replica()
        assert old.proxy is not None
        old.proxy.cut(*peers)
        await asyncio.to_thread(wait_until, lambda: fleet.promoted(new))
        assert old.is_master()
        await fed(clients[1])
        old.client.replicaof("127.0.0.1", new.known)  # a Sentinel would do it ten seconds later
        old.proxy.restore()
        await asyncio.to_thread(wait_until, fleet.is_complete)
        await fed(*clients)

    async def scenario(fleet: SentinelFleet) -> None:
        async with opened(fleet.url) as store:
            epoch = await new_model(store)
            pool.start(fleet.url)
            clients = [Clients(fleet.url, level, epoch, 2) for level in ("replicated", "fsync")]
            async with observed_replica(fleet.url) as seen, clients[0], clients[1]:
                for at in range(rounds(1)):
                    await one_cut(fleet, clients, CUT_PEERS[at % 2])
            title = "master cut off from Sentinels and replica, not from clients"
            found = await count_losses(fleet.url, clients, title, rounds(1), seen.ranked)
            assert found["replicated"].lost == 0

    with fleets.sentinel_fleet(proxied=True) as fleet:
        run_scenario(scenario(fleet), 60 + 60 * rounds(1))
