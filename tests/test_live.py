"""Live feeds: clients of a worker share a feed, fall behind, resume, and leave nothing behind."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from app.errors import NoSuchModel, TooManyStreams, Unavailable
from app.serving import live
from app.serving.live import FEED_SAMPLES, GAP, HEARTBEAT, MOST_STREAMS, LiveFeeds, Subscription
from app.serving.weight_cache import WeightCache
from app.storage.keys import Keys
from app.storage.samples import MOST_SAMPLES, NewSample, SampleId
from app.storage.store import Store
from tests.servers import bare_server, client, eventually, opened, server, url, with_store
from tests.test_learner import append, blobs, committed, first, learning

__all__ = ["server", "url"]  # fixtures


class Clients:
    """The feeds of a worker on a store with the model `books`, and what they report."""

    def __init__(self, store: Store, weights: WeightCache, heartbeat: float) -> None:
        self.store, self.counts, self.stops = store, list[int](), False
        self.feeds = LiveFeeds(store, weights, self.counts.append, lambda: self.stops, heartbeat)
        self.epoch = 0

    async def write(self, begin: int, stop: int, fence: int = 1) -> None:
        """Write samples as a learner does."""
        for at in range(begin, stop, 100):
            some = [NewSample(seq, b'{"seq":%d}' % seq) for seq in range(at, min(at + 100, stop))]
            await self.store.samples.write("books", self.epoch, fence, some)


@contextlib.asynccontextmanager
async def worker(store: Store, heartbeat: float = 15.0) -> AsyncIterator[Clients]:
    await store.models.create("books", first())
    weights = WeightCache(store, poll=0.01)
    await weights.start()
    found = Clients(store, weights, heartbeat)
    found.epoch, *_ = await store.states.position("books")
    try:
        yield found
    finally:
        await found.feeds.close()
        await weights.close()


def on_worker(url: str, act: Callable[[Clients], Awaitable[None]], **options: Any) -> None:
    async def run(store: Store) -> None:
        async with worker(store, **options) as clients:
            await act(clients)

    with_store(url, run)


def seqs(events: bytes) -> list[int]:
    """Return the seqs of events `record`; fails if there are others."""
    parts = events.decode().split("\n\n")[:-1]
    lines = [part.split("\n") for part in parts]
    assert all(name == "event: record" for name, *_ in lines), events
    found = [json.loads(data.removeprefix("data: "))["seq"] for _, _, data in lines]
    assert [line.rpartition("-")[2] for _, line, _ in lines] == [str(seq) for seq in found]
    return found


async def received(client: Subscription, last: int) -> list[int]:
    """Return the seqs of the next samples, up to and including `last`."""
    found: list[int] = []
    while not found or found[-1] < last:
        events = await client.next()
        assert events, "the stream has ended"
        found += seqs(events)
    return found


def test_a_client_gets_the_samples_from_its_start_on(url: str) -> None:
    async def act(clients: Clients) -> None:
        await clients.write(1, 4, fence=0)  # of an earlier learner
        assert await clients.store.leases.take("books", 0, 60.0) == 1
        async with clients.feeds.watching("books") as early:
            await clients.write(4, 6)
            assert await received(early, 5) == [4, 5]
            async with clients.feeds.watching("books") as late:
                await clients.write(6, 8)
                assert await received(early, 7) == [6, 7]
                assert (await received(late, 7))[-2:] == [6, 7]
        assert clients.counts == [1, 2, 1, 0]

    on_worker(url, act)


def test_a_client_resumes_after_its_last_sample(url: str) -> None:
    async def act(clients: Clients) -> None:
        await clients.write(1, 601)
        async with clients.feeds.watching("books", SampleId(1, 50)) as one:
            assert await received(one, 600) == [*range(51, 601)]
            await clients.write(601, 603)
            assert await received(one, 602) == [601, 602]

    on_worker(url, act)


@pytest.mark.parametrize("last", [SampleId(1, 100), SampleId(9, 1), SampleId(1, 10**18)])
def test_a_client_whose_last_sample_is_not_kept_gets_a_gap(url: str, last: SampleId) -> None:
    async def act(clients: Clients) -> None:
        await clients.write(1, MOST_SAMPLES + 201)
        async with clients.feeds.watching("books", last) as one:
            assert await one.next() == GAP
            await clients.write(1301, 1303, fence=2)
            assert (await received(one, 1302))[-2:] == [1301, 1302]

    on_worker(url, act)


def test_a_slow_client_reads_on_from_the_store_and_the_feed_stays_small(url: str) -> None:
    async def act(clients: Clients) -> None:
        async with clients.feeds.watching("books") as slow, clients.feeds.watching("books") as fast:
            await clients.write(1, 11)
            assert await received(slow, 10) == await received(fast, 10)
            await clients.write(11, 11 + 3 * FEED_SAMPLES)
            last = 10 + 3 * FEED_SAMPLES
            assert await received(fast, last) == [*range(11, last + 1)]
            [feed] = clients.feeds._feeds.values()
            assert len(feed._held) == FEED_SAMPLES
            assert await received(slow, last) == [*range(11, last + 1)]

    on_worker(url, act)


def test_a_client_that_is_too_slow_gets_a_gap_and_then_the_new_samples(url: str) -> None:
    async def act(clients: Clients) -> None:
        async with clients.feeds.watching("books") as slow, clients.feeds.watching("books") as fast:
            await clients.write(1, 2)
            assert await received(slow, 1) == await received(fast, 1) == [1]
            for begin in range(2, 2002, FEED_SAMPLES):
                await clients.write(begin, begin + FEED_SAMPLES)
                await received(fast, begin + FEED_SAMPLES - 1)
            assert await slow.next() == GAP
            await clients.write(2002, 2003)
            assert await received(slow, 2002) == [2002]

    on_worker(url, act)


def test_samples_that_the_store_has_lost_are_a_gap(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover the fencing token and the samples may be older than those that were sent."""
    monkeypatch.setattr(live, "RENEW_SECONDS", 0.05)

    async def act(clients: Clients) -> None:
        with client(url) as connection:
            connection.set(Keys("books").fence, 7)
            async with clients.feeds.watching("books") as one:
                await clients.write(1, 4, fence=7)
                assert await received(one, 3) == [1, 2, 3]
                connection.delete(Keys("books").samples)
                connection.set(Keys("books").fence, 6)
                assert await one.next() == GAP
                await clients.write(1, 3, fence=6)
                assert await received(one, 2) == [1, 2]

    on_worker(url, act)


def test_a_comment_comes_after_a_silence(url: str) -> None:
    async def act(clients: Clients) -> None:
        loop = asyncio.get_running_loop()
        async with clients.feeds.watching("books") as one:
            began = loop.time()
            assert [await one.next() for _ in range(3)] == [HEARTBEAT] * 3
            assert 0.3 <= loop.time() - began < 5.0

    on_worker(url, act, heartbeat=0.1)


def test_a_new_version_is_an_event_at_most_once_a_second(url: str) -> None:
    async def act(clients: Clients) -> None:
        store, loop = clients.store, asyncio.get_running_loop()
        found = list[tuple[float, dict[str, int]]]()

        async def listen(one: Subscription) -> None:
            while not found or found[-1][1]["version"] < 30:
                events = await one.next()
                if events.startswith(b"event: version"):
                    found.append((loop.time(), json.loads(events.split(b"data: ")[1])))

        async with learning(store), clients.feeds.watching("books") as one:
            listening = asyncio.create_task(listen(one))
            for at in range(30):
                await append(store, blobs(at, at + 1))
                await committed(store, at + 1)
                await asyncio.sleep(0.07)
            await listening
        assert found[-1][1] == {"version": 30, "seq": 30, "lag": 0}
        times = [time for time, _ in found]
        assert len(times) >= 2
        assert all(after - before > 0.9 for before, after in itertools.pairwise(times))

    on_worker(url, act)


def test_the_model_is_watched_while_it_has_clients(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RENEW_SECONDS", 0.05)

    async def act(clients: Clients) -> None:
        with client(url) as connection:
            async with clients.feeds.watching("books"):
                assert 0 < connection.pttl(Keys("books").watched) <= 20_000
                connection.delete(Keys("books").watched)  # a store that has lost it
                await eventually(watched(connection), bool)
            await eventually(feeds(clients), lambda found: not found)
            connection.delete(Keys("books").watched)
            await asyncio.sleep(0.5)
            assert not connection.exists(Keys("books").watched)

    def watched(connection: Any) -> Callable[[], Awaitable[int]]:
        async def ask() -> int:
            return int(connection.exists(Keys("books").watched))

        return ask

    def feeds(clients: Clients) -> Callable[[], Awaitable[int]]:
        async def ask() -> int:
            return len(clients.feeds._feeds)

        return ask

    on_worker(url, act)


def test_the_number_of_clients_has_a_limit(url: str) -> None:
    async def act(clients: Clients) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MOST_STREAMS - 1):
                await stack.enter_async_context(clients.feeds.watching("books"))
            async with clients.feeds.watching("books"):
                with pytest.raises(TooManyStreams):
                    await stack.enter_async_context(clients.feeds.watching("books"))
            await stack.enter_async_context(clients.feeds.watching("books"))
        assert max(clients.counts) == MOST_STREAMS
        assert clients.counts[-1] == 0

    on_worker(url, act)


def test_an_unknown_model_makes_no_key_and_takes_no_place(url: str) -> None:
    async def act(clients: Clients) -> None:
        with pytest.raises(NoSuchModel):
            async with clients.feeds.watching("atlas"):
                pass
        assert clients.counts == [1, 0]
        with client(url) as connection:
            assert not connection.exists(Keys("atlas").watched)

    on_worker(url, act)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
def test_the_streams_of_a_deleted_model_end(url: str, again: bool) -> None:
    async def act(clients: Clients) -> None:
        async with clients.feeds.watching("books") as one:
            await clients.store.models.delete("books")
            if again:
                await clients.store.models.create("books", first())
            assert await asyncio.wait_for(one.next(), 5.0) == b""

    on_worker(url, act)


def test_a_worker_that_has_not_heard_of_a_new_model_of_the_name_serves_its_stream(url: str) -> None:
    async def act(store: Store) -> None:
        weights = WeightCache(store)  # not started: it hears nothing
        await store.models.create("books", first())
        await weights.load("books")
        await store.models.delete("books")
        await store.models.create("books", first())
        clients = Clients(store, weights, heartbeat=15.0)
        clients.epoch, *_ = await store.states.position("books")
        async with clients.feeds.watching("books") as one:
            await weights.load("books")
            await asyncio.sleep(0.6)  # two polls
            await clients.write(1, 3)
            assert await received(one, 2) == [1, 2]
        await clients.feeds.close()

    with_store(url, act)


def test_a_stopping_server_ends_the_streams(url: str) -> None:
    async def act(clients: Clients) -> None:
        async with clients.feeds.watching("books") as one:
            clients.stops = True
            assert await asyncio.wait_for(one.next(), 1.0) == b""

    on_worker(url, act)


def test_a_closed_subscription_ends_at_once(url: str) -> None:
    async def act(clients: Clients) -> None:
        async with clients.feeds.watching("books") as one:
            waiting = asyncio.create_task(one.next())
            await asyncio.sleep(0.05)
            one.close()
            assert await asyncio.wait_for(waiting, 0.2) == b""

    on_worker(url, act)


def test_a_stream_stays_open_while_the_store_is_unreachable() -> None:
    async def act(url: str, stop: Callable[[], None]) -> None:
        async with (
            opened(url) as store,
            worker(store, heartbeat=0.2) as clients,
            clients.feeds.watching("books") as one,
        ):
            stop()
            assert [await one.next() for _ in range(5)] == [HEARTBEAT] * 5
            with pytest.raises(Unavailable):
                async with clients.feeds.watching("books"):
                    pass

    with bare_server() as url, client(url) as connection:
        asyncio.run(act(url, lambda: connection.shutdown(nosave=True)))
