"""Live feeds: samples of what is learnt, for the clients of this worker (decision 25).

A watched model has one feed in a worker. It keeps the model watched, polls the samples and holds
the last ones. A client is only a position: it takes what follows from the feed, or from the store
if it is further behind, so a slow client costs no memory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf

import msgspec

from app.errors import NoSuchModel, SolarError, TooManyStreams
from app.serving.served_model import ServedModel
from app.serving.weight_cache import WeightCache
from app.storage.cancellation import end
from app.storage.samples import WATCHED_MILLISECONDS, SampleId, StoredSample
from app.storage.store import Store

log = logging.getLogger("solar.serving")

#: Clients of a worker.
MOST_STREAMS = 50
#: Samples that a feed holds, and that a client takes at a time.
FEED_SAMPLES, TAKEN_SAMPLES = 200, 20
#: Seconds between two polls of a feed: 4 reads a second for a watched model, on shared connections.
FEED_POLL_SECONDS = 0.25
#: Seconds between two renewals of the watch, a quarter of its length.
RENEW_SECONDS = WATCHED_MILLISECONDS / 4000
#: Seconds of silence until a comment is sent.
HEARTBEAT_SECONDS = 15.0
#: Seconds between two events about the version.
VERSION_EVENT_SECONDS = 1.0
#: A comment, and the event that samples before the next one are missing.
HEARTBEAT, GAP = b": \n\n", b'event: gap\ndata: {"missed":true}\n\n'


#: What another tenant gets instead of ids and queries.
_WITHHELD = {"query": "", "request": "", "ids": None}


class LiveFeed:
    """What is learnt about one model, for all its clients."""

    def __init__(self, store: Store, weights: WeightCache, served: ServedModel, at: SampleId):
        self.store, self._weights, self.model = store, weights, served.name
        self.epoch, self._version = served.epoch, served.version
        self._held = deque[StoredSample](maxlen=FEED_SAMPLES)
        self._before = self.last = at  # the position before the held samples, and that of the last
        self.clients: set[Subscription] = set()
        self.ended = False
        self.versions, self.version_event = 0, b""  # number of these events, and the last one
        self._renewed, self._told = asyncio.get_running_loop().time(), -inf

    async def run(self, stops: Callable[[], bool]) -> None:
        """Poll until all clients have left, the model is deleted or the server stops."""
        try:
            while self.clients and not self.ended and not stops():
                await self._poll()
                await asyncio.sleep(FEED_POLL_SECONDS)
        finally:
            self.end()

    def end(self) -> None:
        """End the streams of all clients."""
        self.ended = True
        self._wake()

    def after(self, position: SampleId) -> Sequence[StoredSample] | None:
        """Return the next samples after a position; None if they are no longer held."""
        if position < self._before:
            return None
        if position >= self.last:
            return ()
        return [one for one in self._held if one.id > position][:TAKEN_SAMPLES]

    def _wake(self) -> None:
        for client in self.clients:
            client.news.set()

    async def _poll(self) -> None:
        served, now = self._weights.serving.get(self.model), asyncio.get_running_loop().time()
        if served is None or served.epoch != self.epoch:
            self.ended = True
            return
        try:
            if now >= self._renewed + RENEW_SECONDS:
                await self._renew()
                self._renewed = now
            self._take(await self.store.samples.read(self.model, self.last, FEED_SAMPLES))
        except NoSuchModel:
            self.ended = True
        except SolarError:  # the store is unreachable: the streams stay open
            self._renewed = now - RENEW_SECONDS
        self._note_version(served, now)

    async def _renew(self) -> None:
        """Keep the model watched; start again if the store has lost samples (a failover).

        A model that was created again is another one.
        """
        epoch, position = await self.store.samples.watch(self.model)
        if epoch != self.epoch:
            self.ended = True
        elif position < self.last:
            self._held.clear()
            self._before = self.last = position
            for client in self.clients:
                client.miss(position)

    def _take(self, found: Sequence[StoredSample]) -> None:
        for one in found:
            if len(self._held) == FEED_SAMPLES:
                self._before = self._held[0].id
            self._held.append(one)
            self.last = one.id
        if found:
            self._wake()

    def _note_version(self, served: ServedModel, now: float) -> None:
        """Tell the clients of a new version, at most once a second."""
        if served.version == self._version or now < self._told + VERSION_EVENT_SECONDS:
            return
        self._version, self._told = served.version, now
        seq = max(served.version, self._weights.tails.get(self.model, 0))
        about = {"version": served.version, "seq": seq, "lag": seq - served.version}
        self.version_event = b"event: version\ndata: %b\n\n" % msgspec.json.encode(about)
        self.versions += 1
        self._wake()


class Subscription:
    """A client of a feed: its position, and what it gets next.

    Ids and queries in samples of other tenants are withheld; None: it belongs to all tenants.
    """

    def __init__(self, heartbeat: float, tenant: str | None = None) -> None:
        self._heartbeat, self._tenant = heartbeat, tenant
        self.news = asyncio.Event()
        self._feed: LiveFeed | None = None
        self._position, self._versions = SampleId(0, 0), 0
        self._missed = self._closed = False

    def join(self, feed: LiveFeed, position: SampleId, *, missed: bool) -> None:
        """Follow a feed from a position on; `missed` says that samples before it are missing."""
        self._feed, self._position, self._missed = feed, position, missed
        self._versions = feed.versions
        feed.clients.add(self)

    def leave(self) -> None:
        """Follow no feed any more."""
        if self._feed is not None:
            self._feed.clients.discard(self)

    def miss(self, position: SampleId) -> None:
        """Continue at another position, after an event that samples are missing."""
        self._position, self._missed = position, True
        self.news.set()

    def close(self) -> None:
        """End the stream: the client has gone, or the server stops."""
        self._closed = True
        self.news.set()

    async def next(self) -> bytes:
        """Return the next events, or a comment after a silence; nothing at the end."""
        feed = self._feed
        while feed is not None and not (self._closed or feed.ended):
            self.news.clear()
            if events := await self._events(feed):
                return events
            try:
                async with asyncio.timeout(self._heartbeat):
                    await self.news.wait()
            except TimeoutError:
                return HEARTBEAT
        return b""

    async def _events(self, feed: LiveFeed) -> bytes:
        if self._missed:
            self._missed = False
            return GAP
        if self._versions != feed.versions:
            self._versions = feed.versions
            return feed.version_event
        found = feed.after(self._position)
        if found is None:
            found = await self._stored(feed)
        if found is None:
            self._position = feed.last
            return GAP
        if found:
            self._position = found[-1].id
        return b"".join(_record_event(one, self._tenant) for one in found)

    async def _stored(self, feed: LiveFeed) -> Sequence[StoredSample] | None:
        """Read the next samples from the store; None if they are gone."""
        samples = feed.store.samples
        try:
            if await samples.keeps(feed.model, self._position):
                return await samples.read(feed.model, self._position, TAKEN_SAMPLES)
        except SolarError:  # tried again with the next event or comment
            return ()
        return None


def _record_event(sample: StoredSample, tenant: str | None) -> bytes:
    content = sample.content
    if tenant is not None and sample.tenant != tenant:
        content = msgspec.json.encode({**msgspec.json.decode(content), **_WITHHELD})
    line = b" ".join(content.splitlines())
    return b"event: record\nid: %b\ndata: %b\n\n" % (str(sample.id).encode(), line)


class LiveFeeds:
    """The feeds of a worker, and the limit of their clients."""

    def __init__(
        self,
        store: Store,
        weights: WeightCache,
        report: Callable[[int], None] = lambda _: None,
        stops: Callable[[], bool] = lambda: False,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        """`report` gets the number of clients; `stops` says whether the server is stopping."""
        self._store, self._weights, self._report, self._stops = store, weights, report, stops
        self.heartbeat = heartbeat
        self._feeds: dict[str, LiveFeed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[Subscription] = set()

    @asynccontextmanager
    async def watching(
        self, model: str, last: SampleId | None = None, tenant: str | None = None
    ) -> AsyncIterator[Subscription]:
        """Watch a model as one more client, from now on or after the `last` sample.

        `tenant` as for `Subscription`.

        TooManyStreams; NoSuchModel; StoreError if the store is unreachable.
        """
        if len(self._clients) >= MOST_STREAMS:
            raise TooManyStreams
        client = Subscription(self.heartbeat, tenant)
        self._clients.add(client)
        self._report(len(self._clients))
        try:
            await self._join(client, model, last)
            yield client
        finally:
            client.leave()
            self._clients.discard(client)
            self._report(len(self._clients))

    async def _join(self, client: Subscription, model: str, last: SampleId | None) -> None:
        served = await self._weights.find(model)
        epoch, position = await self._store.samples.watch(model)
        if served.epoch != epoch:  # deleted and created again a moment ago
            served = await self._weights.load(model)
        kept = last is not None and await self._store.samples.keeps(model, last)
        feed = self._feeds.get(model)
        if feed is None or feed.ended or feed.epoch != served.epoch:
            feed = self._feeds[model] = LiveFeed(self._store, self._weights, served, position)
            task = asyncio.create_task(self._run(feed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        begin = last if last is not None and kept else position
        client.join(feed, begin, missed=last is not None and not kept)

    async def _run(self, feed: LiveFeed) -> None:
        try:
            await feed.run(self._stops)
        except Exception:  # the clients connect again
            log.exception("model %s: the live feed failed", feed.model)
        finally:
            if self._feeds.get(feed.model) is feed:
                del self._feeds[feed.model]

    async def close(self) -> None:
        """End all feeds."""
        await end([*self._tasks])
