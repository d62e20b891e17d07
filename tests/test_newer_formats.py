"""Data of a newer release: refused with both formats, counted, and left unchanged."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.domain import codec
from app.domain.facts import Committed, NewerFormatFound, ServingFact, TraceHalved
from app.domain.impressions import Impression, PriorFeedback
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.errors import NewerFormat
from app.ingest.appender import Appender, PendingEvent, Post
from app.learning.learner import warm_up
from app.learning.options import Fact
from app.learning.replay import SourceFilter, verify
from app.storage.keys import APPENDED_CHANNEL, Keys
from app.storage.log import NewImpression
from app.storage.store import Store
from tests.servers import TIMEOUT, client, eventually, keys_like, server, url, with_store
from tests.test_cli import one_line, solar
from tests.test_codec import bits, newer
from tests.test_learner import (
    SHORT_INTERVALS,
    append,
    blobs,
    committed,
    feedback,
    first,
    learning,
    replacement,
    replayed,
)
from tests.test_weight_cache import following, learnt, put, saved, served, two_versions

__all__ = ["server", "url"]  # fixtures

KEYS = Keys("books")
NEWEST = codec.newest_format()
MESSAGE = f"written by a newer release (format {NEWEST + 1}, this one reads up to {NEWEST})"
#: Retries after 0.05, 0.1 and then every 0.2 seconds.
RETRYING = replace(SHORT_INTERVALS, repeat=0.2)
VERSIONED = replace(RETRYING, version=10)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile first: that takes longer than a test waits."""
    warm_up()


def stored(url: str) -> dict[bytes, Any]:
    """All data of all models, without leases, their holders and the counts of these."""
    with client(url) as connection:
        read = {
            b"hash": connection.hgetall,
            b"list": lambda key: connection.lrange(key, 0, -1),
            b"stream": connection.xrange,
            b"string": connection.get,
            b"zset": lambda key: connection.zrange(key, 0, -1, withscores=True),
        }
        keys = sorted(keys_like(connection, "solar:{*"))
        keys = [key for key in keys if not key.startswith(b"solar:{solar:learners}")]
        kept = [key for key in keys if not key.endswith((b":lease", b":fence"))]
        return {key: read[connection.type(key)](key) for key in kept}


class Facts(list[Fact]):
    """The facts that a learner reports."""

    def newer(self) -> int:
        return sum(isinstance(one, NewerFormatFound) for one in self)

    async def until_stopped(self, times: int = 2) -> None:
        """Wait until the learner has stopped at newer data some more times."""
        before = self.newer()
        await eventually(lambda: asyncio.sleep(0, self.newer()), lambda n: n >= before + times)


def change(url: str, field: str, how: Callable[[bytes], bytes], key: str = KEYS.state) -> None:
    """Change one field of a state or a version."""
    with client(url) as connection:
        connection.hset(key, field, how(connection.hget(key, field)))


def damaged(blob: bytes) -> bytes:
    return blob[:-1] + bytes([blob[-1] ^ 1])


# ---- learner: states and versions ----


@pytest.mark.parametrize("field", ["w", "spread", "sums", "meta"])
def test_a_learner_leaves_a_newer_state_unchanged_and_resumes_by_itself(
    url: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        await append(store, blobs(3, 5))
        before = saved(url)
        change(url, field, newer)
        newer_data, facts = stored(url), Facts()
        async with learning(store, RETRYING, facts.append):
            await facts.until_stopped()
            assert stored(url) == newer_data
            assert {type(one) for one in facts} == {NewerFormatFound}
            put(url, {field: before[field.encode()]})
            state = await committed(store, 5)
        assert bits(state) == bits(replayed(first(), blobs(0, 5)))

    with_store(url, act)
    lines = [one.getMessage() for one in caplog.records if "newer" in one.getMessage()]
    assert lines
    assert set(lines) == {f"model books: {MESSAGE}"}


def test_a_damaged_part_beside_a_newer_one_is_not_repaired(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        change(url, "spread", newer)
        change(url, "meta", damaged)
        before, facts = stored(url), Facts()
        async with learning(store, RETRYING, facts.append):
            await facts.until_stopped()
        assert stored(url) == before
        assert facts.newer() == len(facts)

    with_store(url, act)


def test_a_damaged_state_is_not_rebuilt_from_a_newer_version_or_past_it(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, VERSIONED):
            await append(store, blobs(0, 13))
            whole = await committed(store, 13)
        change(url, "w", newer, KEYS.snapshot(10))
        change(url, "sums", damaged)
        before, facts = stored(url), Facts()
        async with learning(store, RETRYING, facts.append):
            await facts.until_stopped()
            assert stored(url) == before
            change(url, "w", older, KEYS.snapshot(10))
            await eventually(lambda: readable(store), bool)
        assert bits((await store.states.load("books")).state) == bits(whole)

    with_store(url, act)


def older(blob: bytes) -> bytes:
    """The content of a newer blob in format 1."""
    content = b"SLR\1" + blob[4 : -codec.CHECKSUM]
    return content + codec._checksum(content)


async def readable(store: Store) -> bool:
    with contextlib.suppress(Exception):
        return bool(await store.states.load("books"))
    return False


# ---- learner: records ----


@pytest.mark.parametrize("good", [0, 1, 15, 16, 20, 40])
def test_a_learner_commits_the_records_before_a_newer_one_and_stops(url: str, good: int) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = [*blobs(0, good), newer(feedback(good)), *blobs(good + 1, good + 5)]
        await append(store, records)
        facts = Facts()
        async with learning(store, RETRYING, facts.append):
            state = await committed(store, good)
            await facts.until_stopped()
            before = stored(url)
            await facts.until_stopped()
            assert stored(url) == before
        assert bits(state) == bits(replayed(first(), blobs(0, good)))
        assert state.measures()["rejected"] == 0
        assert sum(one.records for one in facts if isinstance(one, Committed)) == good
        assert {type(one) for one in facts} <= {Committed, NewerFormatFound, TraceHalved}

    with_store(url, act)


def test_a_learner_releases_a_model_with_a_newer_record(url: str) -> None:
    """A newer learner takes it while the older one waits."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, [newer(feedback(0))])
        facts = Facts()
        async with learning(store, replace(SHORT_INTERVALS, idle=20.0), facts.append):
            await facts.until_stopped(1)
            fence = await eventually(lambda: store.leases.take("books", 0, 60.0), bool)
        assert fence == 2

    with_store(url, act)


def test_no_version_is_kept_before_a_newer_replacement(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, [*blobs(0, 3), newer(replacement(1.0))])
        facts = Facts()
        async with learning(store, RETRYING, facts.append):
            await facts.until_stopped()
        assert await store.states.versions("books") == [0]

    with_store(url, act)


def test_learning_goes_on_once_the_format_can_be_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = [*blobs(0, 20), newer(feedback(20)), *blobs(21, 30)]
        await append(store, records)
        facts = Facts()
        async with learning(store, RETRYING, facts.append):
            await facts.until_stopped()
            monkeypatch.setitem(codec.NEEDED_FORMATS, ("feedback", "later"), NEWEST + 1)
            state = await committed(store, 30)
        assert bits(state) == bits(replayed(first(), records))
        assert state.measures()["feedback"] == 30
        assert state.measures()["rejected"] == 0

    with_store(url, act)


def test_the_reducer_is_unchanged_by_a_newer_record() -> None:
    reducer = Reducer(first())
    reducer.apply(feedback(0))
    before = bits(reducer.state())
    with pytest.raises(NewerFormat):
        reducer.apply(newer(feedback(1)))
    assert bits(reducer.state()) == before


# ---- weight cache ----


@pytest.mark.parametrize("part", [b"w", b"sums", b"meta"])
def test_a_worker_serves_from_memory_and_counts_a_newer_state_once(
    url: str, part: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(store: Store) -> None:
        _, five = await two_versions(store, url)
        await store.models.create("other", first())
        facts: list[ServingFact] = []
        async with following(store, facts) as weight_cache:
            before = await served(weight_cache, 4)
            with client(url) as connection, connection.pubsub() as calls:
                calls.subscribe(APPENDED_CHANNEL)
                put(url, {**five, part: newer(five[part])})
                await eventually(lambda: asyncio.sleep(0, set(weight_cache.newer)), bool)
                await checked_again(store, weight_cache)
                connection.publish(APPENDED_CHANNEL, "the end")
                assert heard(calls) == [b"the end"]  # no learner was called
            assert await weight_cache.find("books") is before
            assert weight_cache.damaged == set()
            assert weight_cache.reachable
            assert facts.count(NewerFormatFound("books")) == 1
            put(url, five)
            assert (await served(weight_cache, 5)).version == 5
            assert weight_cache.newer == {}

    with_store(url, act)
    lines = [one.getMessage() for one in caplog.records if "newer" in one.getMessage()]
    assert lines == [f"model books: {MESSAGE}; it is not updated here"]


def heard(calls: Any) -> list[bytes]:
    """The messages of a channel up to the last one."""
    found: list[bytes] = []
    while b"the end" not in found:
        message = calls.get_message(ignore_subscribe_messages=True, timeout=TIMEOUT)
        found += [message["data"]] if message else []
    return found


async def checked_again(store: Store, weight_cache: Any) -> None:
    """Wait until the cache has checked every model once more: it finds a new one."""
    await store.models.create("later", first())
    await eventually(lambda: asyncio.sleep(0, "later" in weight_cache.serving), bool)


def test_each_newer_position_counts_once_and_is_logged_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(store: Store) -> None:
        four, five = await two_versions(store, url)
        put(url, {**four, b"w": newer(four[b"w"])})
        facts: list[ServingFact] = []
        async with following(store, facts) as weight_cache:
            assert weight_cache.started
            with pytest.raises(NewerFormat):
                await weight_cache.find("books")
            put(url, {**five, b"w": newer(five[b"w"])})
            found = NewerFormatFound("books")
            await eventually(lambda: asyncio.sleep(0, facts.count(found)), lambda n: n == 2)
            await checked_again(store, weight_cache)
            assert facts.count(found) == 2
            await store.models.delete("books")
            await eventually(lambda: asyncio.sleep(0, weight_cache.newer), lambda one: one == {})

    with_store(url, act)
    assert caplog.text.count("newer release") == 1


# ---- feedback ----


def test_a_post_on_newer_feedback_fails_alone(url: str) -> None:
    """Posts of one moment share one append."""
    record = codec.load_record(feedback(0))
    assert isinstance(record, Feedback)
    judged, order = record, np.arange(5)
    shown = Impression(("a", "b", "c", "d", "e"), record.documents, order)

    def on(request: str) -> PendingEvent:
        event = replace(judged, event=f"on {request}", query=request, submitted=order)
        return PendingEvent(event, on_request=True)

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        both = [NewImpression(name, shown.dump()) for name in ("r1", "r2")]
        await store.log.store_impressions("books", 1, both, 60)
        appender = Appender(store, 1000, 60.0)
        accumulated = newer(PriorFeedback.load(b"").dump())
        with client(url) as connection:
            connection.hset(KEYS.impression(1, "r1"), "a", accumulated)
        before = stored(url)
        loaded = await appender.load_impressions(("books", 1), ["r1", "r2"])
        assert loaded.impressions["r1"].accumulated == accumulated
        posts = [Post([on(name)], loaded.impressions) for name in ("r1", "r2", "r1")]
        answers = await asyncio.gather(
            *(appender.post(("books", 1), one) for one in posts), return_exceptions=True
        )
        assert [type(one) for one in answers] == [NewerFormat, list, NewerFormat]
        after = stored(url)
        request = KEYS.impression(1, "r1").encode()
        assert after[request] == before[request]
        assert await store.log.tail("books") == 1

    with_store(url, act)


# ---- commands ----


def test_replay_and_verify_and_log_refuse_a_newer_record_and_change_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        await append(store, [newer(feedback(3)), *blobs(4, 6)])

    with_store(url, act)
    before = stored(url)
    assert one_line(solar(url, "log", "books")) == f"solar: record 4: {MESSAGE}\n"
    without = solar(url, "replay", "books", "--without-source", "web", "--apply")
    assert one_line(without) == f"solar: record 4: {MESSAGE}\n"
    checked = solar(url, "verify")
    assert checked.stdout == f"books: record 4: {MESSAGE}\n"
    assert "1 of 1 models need a newer release" in one_line(checked)
    assert stored(url) == before


@pytest.mark.parametrize("key", [KEYS.state, KEYS.snapshot(0)])
def test_replay_and_verify_refuse_a_newer_state_or_version(url: str, key: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        change(url, "spread", newer, key)
        before = stored(url)
        with pytest.raises(NewerFormat, match=f"format {NEWEST + 1}"):
            await verify(store, "books")
        assert stored(url) == before

    with_store(url, act)
    assert one_line(solar(url, "replay", "books")) == f"solar: {MESSAGE}\n"


def test_a_source_is_not_filtered_from_newer_records() -> None:
    with pytest.raises(NewerFormat):
        SourceFilter("web").keep(newer(feedback(0)))
