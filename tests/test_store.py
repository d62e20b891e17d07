"""The contract of the store: its data, its refusals and its errors.

Tests with the fixture `url` run on every kind of server and on the simulator's double.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.domain.facts import ModelStatus
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.work import RECORD_WORK
from app.errors import (
    Backlog,
    BadBlob,
    Changed,
    Fenced,
    Full,
    ModelExists,
    NoSuchModel,
    OldServer,
    RolledBack,
    SolarError,
    StoreError,
    Unavailable,
)
from app.storage.embedded.server import EmbeddedServer
from app.storage.jobs import Lease
from app.storage.keys import MODELS, Keys, event_hash, read_slices
from app.storage.late_impressions import LateImpression
from app.storage.log import (
    APPENDED,
    NO_IMPRESSION,
    NOT_REPEATED,
    ONLY_CLICKS,
    OTHER_BODY,
    REPEATED,
    TOO_FAR_AHEAD,
    TOO_OLD,
    AppendResult,
    LogEntry,
    NewImpression,
    NewRecord,
)
from app.storage.states import NewVersion
from app.storage.store import Store
from tests.backends import anywhere, anywhere_emptied, client, on_servers, with_store
from tests.servers import (
    TIMEOUT,
    bare_server,
    eventually,
    keys_like,
    old_server,
    opened,
    server,
    total,
    until,
)
from tests.simulation.keyspace import Keyspace
from tests.test_codec import bits

__all__ = ["anywhere", "anywhere_emptied", "server"]  # fixtures

LIMIT = 1_000
KEYS = Keys("books")
DOCS = Path(__file__).parents[1] / "docs"


def first(n: int = 3, **settings: Any) -> ModelState:
    return initial_state(ModelConfig(tuple(f"f{k}" for k in range(n)), **settings), seed=b"seed")


def later(state: ModelState, seq: int) -> ModelState:
    """Return a state after record `seq`."""
    model = replace(state.model, weights=np.full(state.model.config.n, float(seq)))
    return ModelState(seq, bytes([seq % 256]) * 32, model, state.sums + seq)


def event(name: str, body: str = "", **on_request: Any) -> NewRecord:
    body = body or f"record of {name}"
    return NewRecord(name, body.encode(), body.encode(), **on_request)


async def append(
    store: Store, epoch: int, *events: NewRecord, **options: Any
) -> list[AppendResult]:
    return await store.log.append("books", epoch, events, **{"limit": LIMIT, "time": 5, **options})


async def append_records(store: Store, count: int = 20) -> None:
    """Append `count` records."""
    epoch, *_ = await store.states.position("books")
    await append(store, epoch, *(event(f"event {at}") for at in range(count)))


def keys_of(url: str) -> set[bytes]:
    with client(url) as connection:
        return keys_like(connection)


# ---- models ----


def test_a_model_is_created_listed_loaded_and_deleted(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        assert await store.models.names() == []
        assert await store.models.create("books", state) == 1
        await store.models.create("atlas", first(5, algorithm="solar-i"))
        assert await store.models.names() == ["atlas", "books"]
        stored = await store.states.load("books")
        assert stored.epoch == 1
        assert bits(stored.state) == bits(state)
        assert bits((await store.states.version("books", 0)).state) == bits(state)
        assert await store.states.versions("books") == [0]
        assert await store.log.tail("books") == 0
        assert await store.states.position("books") == (1, 0, state.chain)
        with pytest.raises(ModelExists, match="books"):
            await store.models.create("books", state)
        assert await store.models.delete("books")
        assert not await store.models.delete("books")
        assert await store.models.names() == ["atlas"]

    with_store(url, act)
    assert keys_of(url) >= {b"solar:{books}:epoch"}
    assert not any(key.startswith(b"solar:{books}:s") for key in keys_of(url))


def test_a_model_created_again_has_a_new_epoch_and_does_not_see_old_keys(url: str) -> None:
    async def act(store: Store) -> None:
        old = await store.models.create("books", first())
        await store.log.store_impressions("books", old, [NewImpression("r", b"shown")], 60.0)
        await append(store, old, event("e", request="r", new=b"1"))
        await store.models.delete("books")
        new = await store.models.create("books", first())
        assert new == old + 1
        assert await store.log.tail("books") == 0
        assert await store.log.read("books", 0, 10) == []
        assert await store.log.load_impressions("books", new, ["r"]) == [None]
        assert await append(store, new, event("e", "another body")) == [AppendResult(APPENDED, 1)]
        with pytest.raises(NoSuchModel):
            await append(store, old, event("f"))
        assert await store.log.tail("books") == 1

    with_store(url, act)


def test_an_unknown_model_is_an_error_and_creates_no_key(url: str) -> None:
    async def act(store: Store) -> None:
        for asked in (
            store.states.load("books"),
            store.states.load_weights("books"),
            store.states.position("books"),
            store.log.tail("books"),
            store.states.version("books", 0),
            store.leases.take("books", 0, 1.0),
            append(store, 1, event("e"), event("f", request="r", new=b"1")),
        ):
            with pytest.raises(NoSuchModel, match="books"):
                await asked
        assert await store.log.read("books", 0, 10) == []
        assert await store.states.versions("books") == []
        assert not await store.models.delete("books")
        await store.leases.release("books", 1)

    with_store(url, act)
    assert keys_of(url) == set()


@pytest.mark.parametrize("name", ["", "a.b", "a{b}", "a b", "ä", "x" * 65, "a\n", "a:b"])
def test_an_invalid_name_is_refused(url: str, name: str) -> None:
    with pytest.raises(ValueError, match="model: expected"):
        with_store(url, lambda store: store.models.create(name, first()))
    assert keys_of(url) == set()


def test_a_model_whose_creation_was_interrupted_is_listed_after_a_second_creation(url: str) -> None:
    """As after a lost connection: the script ran, redis-py resends it, and it answers "exists"."""

    async def act(store: Store) -> list[str]:
        await store.models.create("books", first())
        with client(url) as connection:
            connection.srem(MODELS, "books")
        with pytest.raises(ModelExists):
            await store.models.create("books", first())
        return await store.models.names()

    assert with_store(url, act) == ["books"]


# ---- append ----


def test_seqs_are_dense_across_posts_and_clients(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        posts = [
            append(store, epoch, *(event(f"{post}-{at}") for at in range(1 + post % 4)))
            for post in range(40)
        ]
        answers = [answer for post in await asyncio.gather(*posts) for answer in post]
        assert {answer.outcome for answer in answers} == {APPENDED}
        assert sorted(answer.seq for answer in answers) == list(range(1, len(answers) + 1))
        entries = await store.log.read("books", 0, 1000)
        assert [entry.seq for entry in entries] == list(range(1, len(answers) + 1))
        assert await store.log.tail("books") == len(answers)

    with_store(url, act)


def test_a_repeated_event_is_appended_once_and_gets_the_same_answer(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        assert await append(store, epoch, event("e")) == [AppendResult(APPENDED, 1)]
        assert await append(store, epoch, event("e")) == [AppendResult(REPEATED, 1)]
        assert await append(store, epoch, event("e", "other")) == [AppendResult(OTHER_BODY, 1)]
        mixed = await append(
            store, epoch, event("e"), event("f"), event("e", "other"), event("g"), event("f")
        )
        assert mixed == [
            (REPEATED, 1),
            (APPENDED, 2),
            (OTHER_BODY, 1),
            (APPENDED, 3),
            (REPEATED, 2),
        ]
        records = [entry.record for entry in await store.log.read("books", 0, 10)]
        assert records == [b"record of e", b"record of f", b"record of g"]

    with_store(url, act)


def test_many_posts_of_one_event_at_once_make_one_record(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        answers = await asyncio.gather(*(append(store, epoch, event("e")) for _ in range(50)))
        assert sorted(answers) == [[(APPENDED, 1)], *[[(REPEATED, 1)]] * 49]

    with_store(url, act)


def test_a_digest_may_be_any_bytes(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        for at, digest in enumerate([b"", b":", b"\n\0:1", bytes(range(256))]):
            one = NewRecord(f"e{at}", digest, b"r")
            assert await append(store, epoch, one) == [(APPENDED, at + 1)]
            assert await append(store, epoch, one) == [(REPEATED, at + 1)]
            assert await append(store, epoch, one._replace(digest=b"x")) == [(OTHER_BODY, at + 1)]

    with_store(url, act)


def test_at_the_backlog_limit_the_whole_post_is_refused_and_nothing_is_stored(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await store.log.store_impressions("books", epoch, [NewImpression("r", b"shown")], 60.0)
        await append(store, epoch, event("a"), event("b"), limit=3)
        before = keys_of(url)
        with pytest.raises(Backlog, match="backlog limit of 3 records is reached"):
            await append(store, epoch, event("c"), event("d", request="r", new=b"1"), limit=3)
        assert keys_of(url) == before
        assert await store.log.tail("books") == 2
        assert await store.log.load_impressions("books", epoch, ["r"]) == [(b"shown", b"", "")]
        assert await append(store, epoch, event("c"), limit=3) == [(APPENDED, 3)]
        fence = await store.leases.take("books", 0, 5.0)
        await store.states.commit(
            "books", await store.states.position("books"), fence, later(first(), 3)
        )
        assert await append(store, epoch, event("d"), limit=3) == [(APPENDED, 4)]

    with_store(url, act)


def test_an_event_on_a_request_builds_on_the_latest_feedback_or_is_refused(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await store.log.store_impressions("books", epoch, [NewImpression("r", b"shown")], 60.0)
        on_r: dict[str, Any] = {"request": "r", "new": b"1"}
        assert await append(store, epoch, event("a", **on_r)) == [(APPENDED, 1)]
        with pytest.raises(Changed):
            await append(store, epoch, event("b", **on_r))
        assert await append(store, epoch, event("a", **on_r)) == [(REPEATED, 1)]
        both = [
            event("b", request="r", expected=b"1", new=b"2"),
            event("c", request="r", expected=b"2", new=b"3"),
            event("e", request="gone", new=b"1"),
            event("f"),
            event("b", request="r", expected=b"1", new=b"2"),
        ]
        with pytest.raises(Changed):  # all or none
            await append(store, epoch, *both, event("d", request="r", expected=b"2", new=b"4"))
        assert await store.log.tail("books") == 1
        answers = await append(store, epoch, *both)
        assert answers == [
            (APPENDED, 2),
            (APPENDED, 3),
            (NO_IMPRESSION, 0),
            (APPENDED, 4),
            (REPEATED, 2),
        ]
        assert await store.log.load_impressions("books", epoch, ["r", "unknown"]) == [
            (b"shown", b"3", ""),
            None,
        ]
        assert [entry.seq for entry in await store.log.read("books", 0, 10)] == [1, 2, 3, 4]

    with_store(url, act)
    kept = keys_of(url)
    refused = {KEYS.event(1, "d"), KEYS.event(1, "e"), KEYS.impression(1, "gone")}
    assert kept.isdisjoint(name.encode() for name in refused)


def bucket_ttls(url: str) -> list[int]:
    """Return the TTLs of all buckets of dedupe entries, in ms."""
    with client(url) as connection:
        return [connection.pttl(key) for key in buckets(url)]


def buckets(url: str) -> list[str]:
    return sorted(key.decode() for key in keys_of(url) if key.startswith(b"solar:{books}:e:"))


def test_an_entry_is_kept_for_the_window_and_the_allowed_difference_of_clocks(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        shown = [NewImpression("r", b"shown")]
        await store.log.store_impressions("books", epoch, shown, 60.0)
        await append(store, epoch, event("e", request="r", new=b"1"), dedupe=10_000.0)

    with_store(url, act)
    [ttl] = bucket_ttls(url)
    assert 10_000_000 + 300_000 <= ttl <= 15_000_000 + 300_000
    with client(url) as connection:
        assert not connection.exists(KEYS.event(1, "e"))
        assert 30_000 < connection.pttl(KEYS.impression(1, "r")) <= 60_000  # a click keeps its TTL


def test_a_list_that_lives_longer_takes_only_clicks_after_its_first_lifetime(url: str) -> None:
    numbers = count()

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        shown = [NewImpression("r", b"shown")]

        async def judged() -> int:
            labels = event(f"labels {next(numbers)}", request="r", expected=b"1", new=b"1")
            [found] = await append(store, epoch, labels._replace(first_life_only=True))
            return found.outcome

        await store.log.store_impressions("books", epoch, shown, 1.0)
        await append(store, epoch, event("click", request="r", new=b"1", keep=60_000))
        assert await judged() == APPENDED
        await eventually(judged, ONLY_CLICKS.__eq__)
        late = event("late click", request="r", expected=b"1", new=b"1")
        assert [one.outcome for one in await append(store, epoch, late)] == [APPENDED]
        await store.log.store_impressions("books", epoch, shown, 60.0)
        assert await judged() == APPENDED  # it is ranked again

    with_store(url, act)


def test_an_internal_event_has_a_key_for_the_time_that_its_caller_states(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        assert await append(store, epoch, event("\x01job"), dedupe=10_000.0) == [(APPENDED, 1)]
        assert await append(store, epoch, event("\x01job"), dedupe=10_000.0) == [(REPEATED, 1)]
        assert await append(store, epoch, event("job")) == [(APPENDED, 2)]

    with_store(url, act)
    with client(url) as connection:
        assert 10_000_000 - 30_000 < connection.pttl(KEYS.event(1, "\x01job")) <= 10_000_000


# ---- deduplication by slices ----


def test_repeated_events_are_recognised_in_every_slice(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        names = [f"e{at}" for at in range(6_000)]
        for start in range(0, len(names), 500):
            some = [event(name) for name in names[start : start + 500]]
            answers = await append(store, epoch, *some, limit=10_000)
            assert {answer.outcome for answer in answers} == {APPENDED}
        with client(url) as connection:
            text = connection.hget(KEYS.state, "slices")
        assert len(read_slices(text).each) == 2  # of 8 and 128 buckets
        for other in (store, None):  # a process with the newest slices, and one that knows none
            if other is None:
                store.log._slices.clear()
            for start in range(0, len(names), 1_500):
                some = [event(name) for name in names[start : start + 1_500]]
                answers = await append(store, epoch, *some)
                assert answers == [(REPEATED, seq) for seq in range(start + 1, start + 1_501)]

    with_store(url, act)


def test_an_entry_is_kept_for_a_window_that_was_raised_or_that_another_process_has(
    url: str,
) -> None:
    names = [name for name in map(str, range(99)) if event_hash("", name)[0] % 8 == 0][:3]
    ttls = []

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        for name, window in zip(names, (100.0, 10_000.0, 100.0), strict=True):
            await append(store, epoch, event(name), dedupe=window)
            ttls.extend(bucket_ttls(url))

    with_store(url, act)
    assert [round(ttl / 100_000) for ttl in ttls] == [4, 153, 153]  # 1.5 windows + 300 s


@on_servers
def test_entries_stay_in_the_compact_encoding_and_take_at_most_70_bytes(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        for start in range(0, 20_000, 2_000):
            some = [event(f"a quite long event id {at}") for at in range(start, start + 2_000)]
            await append(store, epoch, *some, limit=1 << 40)

    with_store(url, act)
    with client(url) as connection:
        found = buckets(url)
        encodings = {connection.object("encoding", key) for key in found}
        used = sum(connection.memory_usage(key, samples=0) for key in found)
    assert encodings == {b"listpack"}
    assert used / 20_000 <= 70


def test_an_event_takes_what_the_documents_say(tmp_path: Path) -> None:
    """`used_memory` with 20,000 entries and without them; and how long they are kept."""
    pages = [(DOCS / name).read_text() for name in ("operations.md", "kubernetes.md")]
    rows = [re.search(r"\| deduplication \|.*?× (\d+) bytes.*", page) for page in pages]
    assert [row and row[1] for row in rows] == ["55", "55"]
    assert all(row and "1.5 ×" in row[0] and "300 s" in row[0] for row in rows)

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        for start in range(0, 20_000, 100):
            some = [
                event(f"event {at}: an id of 36 characters") for at in range(start, start + 100)
            ]
            await append(store, epoch, *some, limit=1 << 40)

    def used() -> int:
        """Return the memory in use, once the server's thread has freed what was deleted."""
        until(lambda: connection.info("memory")["lazyfree_pending_objects"] == 0)
        return int(connection.info("memory")["used_memory"])

    with EmbeddedServer.start(tmp_path, fsync="everysec") as server:
        with_store(server.url, act)
        assert max(bucket_ttls(server.url)) <= 1.5 * 3_600_000 + 300_000
        with client(server.url) as connection:
            connection.delete(KEYS.log)
            before = used()
            connection.flushall()
            assert 20 <= (before - used()) / 20_000 <= 55


def test_events_with_one_id_of_two_tenants_are_two_events(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        one, other = event("e"), event("e", "another body")._replace(tenant="acme")
        assert await append(store, epoch, one, other) == [(APPENDED, 1), (APPENDED, 2)]
        assert await append(store, epoch, other, one) == [(REPEATED, 2), (REPEATED, 1)]

    with_store(url, act)


def test_an_event_from_before_the_window_or_far_ahead_is_refused(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, now = await store.models.create("books", first()), server_time(url)
        times = {"old": -61_000, "edge": -50_000, "ahead": 290_000, "far": 310_000}
        events = [event(name)._replace(time=now + shift) for name, shift in times.items()]
        answers = await append(store, epoch, *events, dedupe=60.0)
        assert answers == [(TOO_OLD, 0), (APPENDED, 1), (APPENDED, 2), (TOO_FAR_AHEAD, 0)]
        old = event("edge")._replace(time=now - 1_000_000)
        assert await append(store, epoch, old, dedupe=60.0) == [(REPEATED, 1)]

    with_store(url, act)


def server_time(url: str) -> int:
    with client(url) as connection:
        if isinstance(connection, Keyspace):
            return int(connection.clock() * 1000)
        seconds, _ = connection.time()
        return int(seconds) * 1000


def test_an_event_may_be_accepted_only_if_it_is_repeated(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await append(store, epoch, event("e"))
        known, unknown = (event(name)._replace(repeated_only=True) for name in "ef")
        assert await append(store, epoch, known, unknown) == [(REPEATED, 1), (NOT_REPEATED, 0)]
        assert await store.log.tail("books") == 1

    with_store(url, act)


# ---- tenants ----


def test_a_request_belongs_to_the_tenant_of_its_impression(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        on_r: dict[str, Any] = {"request": "r", "new": b"1"}
        log = store.log
        mine, others = NewImpression("r", b"mine", "a"), NewImpression("r", b"theirs", "b")
        stored, new, _ = await log.store_impressions("books", epoch, [mine], 60.0)
        assert (stored, new) == ([True], [True])
        stored, new, _ = await log.store_impressions("books", epoch, [others], 60.0)
        assert (stored, new) == ([False], [False])
        assert await log.load_impressions("books", epoch, ["r"]) == [(b"mine", b"", "a")]
        foreign, own = event("e", **on_r)._replace(tenant="b"), event("f", **on_r)
        assert await append(store, epoch, foreign) == [(NO_IMPRESSION, 0)]
        assert await append(store, epoch, own) == [(NO_IMPRESSION, 0)]  # of no tenant
        assert await append(store, epoch, own._replace(tenant="a")) == [(APPENDED, 1)]
        again = [mine, NewImpression("s", b"s", "b"), others]
        stored, new, _ = await log.store_impressions("books", epoch, again, 60.0)
        assert (stored, new) == ([True, True, False], [False, True, False])

    with_store(url, act)


@on_servers
def test_an_impression_of_an_older_release_is_open_to_all_tenants(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with client(url) as connection:
            connection.hset(KEYS.impression(epoch, "r"), "i", b"shown")
        assert await store.log.load_impressions("books", epoch, ["r"]) == [(b"shown", b"", None)]
        click = event("e", request="r", new=b"1")._replace(tenant="a")
        assert await append(store, epoch, click) == [(APPENDED, 1)]
        resent = NewImpression("r", b"shown", "b")
        written = await store.log.store_impressions("books", epoch, [resent], 60.0)
        assert (written.stored, written.new) == ([True], [False])
        other = event("f", request="r", expected=b"1", new=b"2")._replace(tenant="c")
        assert await append(store, epoch, other) == [(APPENDED, 2)]
        await store.log.store_impressions("books", epoch, [NewImpression("r", b"new", "b")], 60.0)
        assert await store.log.load_impressions("books", epoch, ["r"]) == [(b"new", b"", "b")]

    with_store(url, act)


# ---- late impressions ----


def test_a_late_impression_is_removed_unless_it_has_feedback_or_is_another_one(url: str) -> None:
    async def act(store: Store) -> None:
        log, epoch = store.log, await store.models.create("books", first())

        async def kept() -> str:
            found = await log.load_impressions("books", epoch, "rstuv")
            return "".join(name for name, one in zip("rstuv", found, strict=True) if one)

        shown = [NewImpression(name, b"shown", "a") for name in "rstuv"]
        written = await log.store_impressions("books", epoch, shown, 60.0)
        click = event("e", request="s", new=b"1")._replace(tenant="a")
        assert await append(store, epoch, click) == [(APPENDED, 1)]
        await log.store_impressions("books", epoch, [NewImpression("t", b"new", "a")], 59.0)
        with client(url) as connection:
            connection.hset(KEYS.impression(epoch, "u"), "t", "b")
        late = [LateImpression.of(one) for one in shown[:4]]
        for _ in "ab":  # a call may be resent
            await store.late_impressions.forget("books", epoch, late, written.expire)
            assert await kept() == "stuv"
        assert (await log.load_impressions("books", epoch, ["s"])) == [(b"shown", b"1", "a")]

    with_store(url, act)


@pytest.mark.parametrize("tenant", ["", "b"])
def test_a_late_impression_that_was_stored_again_stays(url: str, tenant: str) -> None:
    """Another process may have stored the same list and answered so."""

    async def act(store: Store) -> None:
        log, epoch = store.log, await store.models.create("books", first())
        shown = [NewImpression("r", b"shown", tenant)]
        written = await log.store_impressions("books", epoch, shown, 60.0)
        again = await log.store_impressions("books", epoch, shown, 61.0)
        assert again.new == [False]
        late = [LateImpression.of(shown[0])]
        await store.late_impressions.forget("books", epoch, late, written.expire)
        assert await log.load_impressions("books", epoch, ["r"]) == [(b"shown", b"", tenant)]
        await store.late_impressions.forget("books", epoch, late, again.expire)
        assert await log.load_impressions("books", epoch, ["r"]) == [None]

    with_store(url, act)


# ---- recent requests ----


def test_the_noted_request_of_a_call_is_the_newest_of_the_recent_ones(url: str) -> None:
    async def act(store: Store) -> None:
        log, epoch = store.log, await store.models.create("books", first())
        shown = [NewImpression(name, b"x") for name in ("a", "b:c", "d")]
        assert await log.recent_requests("books", epoch) == []
        await log.store_impressions("books", epoch, shown, 60.0)
        assert await log.recent_requests("books", epoch) == []
        for noted in (1, 0, 1):
            await log.store_impressions("books", epoch, shown, 60.0, noted)
        assert await log.recent_requests("books", epoch) == ["b:c", "a"]
        assert await log.recent_requests("books", epoch + 1) == []

    with_store(url, act)


def test_at_most_100_requests_are_noted_and_they_expire_and_go_with_their_model(url: str) -> None:
    async def act(store: Store) -> None:
        log, epoch = store.log, await store.models.create("books", first())
        for at in range(103):
            await log.store_impressions("books", epoch, [NewImpression(f"r{at}", b"x")], 60.0, 0)
        expected = [f"r{at}" for at in range(102, 2, -1)]
        assert await log.recent_requests("books", epoch) == expected
        with client(url) as connection:
            assert connection.llen(KEYS.recent(epoch)) == 100
            assert 0 < connection.pttl(KEYS.recent(epoch)) <= 60_000
            await store.models.delete("books")
            assert not connection.exists(KEYS.recent(epoch))

    with_store(url, act)


def test_a_request_of_another_tenant_is_not_noted(url: str) -> None:
    async def act(store: Store) -> None:
        log, epoch = store.log, await store.models.create("books", first())
        await log.store_impressions("books", epoch, [NewImpression("r", b"mine", "a")], 60.0)
        foreign = [NewImpression("r", b"theirs", "b")]
        assert (await log.store_impressions("books", epoch, foreign, 60.0, 0)).stored == [False]
        assert await log.recent_requests("books", epoch) == []

    with_store(url, act)


# ---- read ----


def test_records_are_read_in_order_from_any_seq(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await append(store, epoch, *(event(f"e{at}") for at in range(1, 8)), time=1234)
        entries = await store.log.read("books", 2, 3)
        assert [entry.seq for entry in entries] == [3, 4, 5]
        assert entries[0] == LogEntry(3, b"record of e3", 1234, False, 3 * RECORD_WORK)
        assert await store.log.read("books", 7, 3) == []

    with_store(url, act)


def test_a_blocked_reader_gets_a_new_record_at_once(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        started = time.monotonic()
        assert await store.log.read("books", 0, 10, wait=0.05) == []
        assert 0.04 < time.monotonic() - started < 2.0
        waiting = asyncio.create_task(store.log.read("books", 0, 10, wait=4.0))
        with client(url) as connection:
            await eventually(blocked_clients(connection), bool)
        await append(store, epoch, event("e"))
        assert [entry.seq for entry in await waiting] == [1]

    with_store(url, act)


def blocked_clients(connection: Any) -> Any:
    async def ask() -> int:
        return total(connection, "clients", "blocked_clients")

    return ask


# ---- state ----


@on_servers
def test_a_replica_gets_weights_without_the_covariance(url: str) -> None:
    async def act(store: Store) -> None:
        state = first(200)
        await store.models.create("books", state)
        with client(url) as connection:
            before = total(connection, "stats", "total_net_output_bytes")
            weights = await store.states.load_weights("books")
            sent = total(connection, "stats", "total_net_output_bytes") - before
        assert (weights.epoch, weights.seq, weights.chain) == (1, 0, state.chain)
        assert weights.config == state.model.config
        assert bits(weights.weights) == bits(state.model.weights)
        assert sent < state.model.spread.nbytes / 4  # includes the bytes of INFO

    with_store(url, act)


def test_a_commit_replaces_only_its_base_state(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        epoch = await store.models.create("books", state)
        await append_records(store)
        fence = await store.leases.take("books", 0, 5.0)
        await store.states.commit("books", (epoch, 0, state.chain), fence, later(state, 3))
        assert bits((await store.states.load("books")).state) == bits(later(state, 3))
        assert await store.states.position("books") == (epoch, 3, later(state, 3).chain)
        assert await store.states.versions("books") == [0]
        for base in (
            (epoch, 0, state.chain),
            (epoch, 3, state.chain),
            (epoch, 2, later(state, 3).chain),
            (epoch + 1, 3, later(state, 3).chain),
        ):
            with pytest.raises(Fenced, match="the committed state has changed"):
                await store.states.commit("books", base, fence, later(state, 5))
        assert bits((await store.states.load("books")).state) == bits(later(state, 3))

    with_store(url, act)


def test_a_commit_beyond_the_end_of_the_log_is_refused(url: str) -> None:
    """Such a commit is resent to a server that has lost the last records in a failover."""

    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        fence = await store.leases.take("books", 0, 5.0)
        await append_records(store, 2)
        with pytest.raises(Fenced, match="the committed state has changed"):
            await store.states.commit("books", base, fence, later(state, 3))
        assert await store.states.position("books") == base
        await store.states.commit("books", base, fence, later(state, 2))

    with_store(url, act)


def test_a_commit_of_records_that_the_log_has_lost_is_refused(url: str) -> None:
    """A failover loses records that were applied but not committed, and clients append others."""

    async def act(store: Store) -> None:
        state = first()
        epoch = await store.models.create("books", state)
        base = (epoch, 0, state.chain)
        fence = await store.leases.take("books", 0, 5.0)
        await append(store, epoch, *(event(name) for name in ("a", "b", "c")))
        one, two, three = await store.log.read("books", 0, 10)
        for other in (
            two._replace(record=b"another"), two._replace(time=6), two._replace(seq=1),
            two._replace(seq=4),
        ):  # fmt: skip
            for learnt in ([other], [one, other], [other, three]):
                with pytest.raises(RolledBack, match="the log lost records up to"):
                    await store.states.commit("books", base, fence, later(state, 2), learnt=learnt)
        assert await store.states.position("books") == base
        await store.states.commit("books", base, fence, later(state, 2), learnt=[one, two])
        await store.states.commit("books", base, fence, later(state, 2), learnt=[other])  # resent

    with_store(url, act)


def test_a_resent_commit_is_made_once(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        await append_records(store)
        fence = await store.leases.take("books", 0, 5.0)
        for _ in range(2):
            await store.states.commit("books", base, fence, later(state, 3), version=NewVersion())
        assert await store.states.versions("books") == [0, 3]
        assert await store.states.position("books") == (1, 3, later(state, 3).chain)

    with_store(url, act)


def test_a_commit_that_rewrites_the_state_may_be_resent(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        await append_records(store)
        fence = await store.leases.take("books", 0, 5.0)
        for _ in range(2):
            await store.states.commit(
                "books", base, fence, later(state, 3), version=NewVersion(), again=True
            )
        assert await store.states.versions("books") == [0, 3]

    with_store(url, act)


def test_a_damaged_state_can_be_rewritten(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        with client(url) as connection:
            connection.hset(KEYS.state, "w", b"junk")
        with pytest.raises(BadBlob):
            await store.states.load("books")
        fence = await store.leases.take("books", 0, 5.0)
        await store.states.commit("books", base, fence, state)
        with pytest.raises(BadBlob):
            await store.states.load("books")
        await store.states.commit("books", base, fence, state, again=True)
        assert bits((await store.states.load("books")).state) == bits(state)

    with_store(url, act)


def test_one_of_many_commits_on_the_same_base_succeeds(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        await append_records(store)
        fence = await store.leases.take("books", 0, 5.0)
        tried = await asyncio.gather(
            *(store.states.commit("books", base, fence, later(state, seq)) for seq in range(1, 20)),
            return_exceptions=True,
        )
        assert sum(outcome is False for outcome in tried) == 1
        assert all(outcome is False or isinstance(outcome, Fenced) for outcome in tried)

    with_store(url, act)


def test_a_learner_cannot_commit_after_a_lease_takeover(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        await append_records(store)
        old = await store.leases.take("books", 0, 5.0)
        await store.leases.release("books", old)
        new = await store.leases.take("books", 0, 5.0)
        assert new > old
        with pytest.raises(Fenced, match="another learner has the lease"):
            await store.states.commit("books", base, old, later(state, 1))
        assert await store.states.position("books") == base
        await store.states.commit("books", base, new, later(state, 1))

    with_store(url, act)


def test_an_append_that_names_a_committed_state_is_refused_after_another_commit(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        await append_records(store, 2)
        assert await append(store, 1, event("judged"), chain=state.chain) == [(0, 3)]
        fence, new = await store.leases.take("books", 0, 5.0), later(state, 1)
        await store.states.commit("books", base, fence, new)
        before = keys_of(url)
        with pytest.raises(Fenced, match="its state has changed"):
            await append(store, 1, event("late"), chain=state.chain)
        assert keys_of(url) == before
        assert await append(store, 1, event("judged"), chain=state.chain) == [(1, 3)]
        assert await append(store, 1, event("late"), chain=new.chain) == [(0, 4)]

    with_store(url, act)


def test_a_commit_to_a_deleted_model_is_refused_and_creates_no_key(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        fence = await store.leases.take("books", 0, 5.0)
        await store.models.delete("books")
        before = keys_of(url)
        with pytest.raises(Fenced):
            await store.states.commit("books", base, fence, later(state, 1), version=NewVersion())
        assert keys_of(url) == before
        await store.models.create("books", state)
        with pytest.raises(Fenced):
            await store.states.commit("books", base, fence, later(state, 1))

    with_store(url, act)


def test_versions_are_kept_and_dropped_and_the_log_is_trimmed_behind_them(url: str) -> None:
    async def act(store: Store) -> None:
        state = first()
        epoch = await store.models.create("books", state)
        await append(store, epoch, *(event(f"e{at}") for at in range(6)))
        fence = await store.leases.take("books", 0, 5.0)
        await store.states.commit(
            "books", (epoch, 0, state.chain), fence, later(state, 2), version=NewVersion()
        )
        position = await store.states.position("books")
        await store.states.commit(
            "books", position, fence, later(state, 4), version=NewVersion(), drop=[0], trim=2
        )
        assert await store.states.versions("books") == [2, 4]
        assert bits((await store.states.version("books", 2)).state) == bits(later(state, 2))
        with pytest.raises(NoSuchModel):
            await store.states.version("books", 0)
        assert [entry.seq for entry in await store.log.read("books", 0, 10)] == [3, 4, 5, 6]
        assert await append(store, epoch, event("next")) == [(APPENDED, 7)]

    with_store(url, act)


@pytest.mark.parametrize("field", ["w", "spread", "sums", "meta"])
def test_a_damaged_state_is_refused(url: str, field: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        with client(url) as connection:
            blob = bytearray(connection.hget(KEYS.state, field))
            blob[-20] ^= 1
            connection.hset(KEYS.state, field, bytes(blob))
        with pytest.raises(BadBlob):
            await store.states.load("books")

    with_store(url, act)


@pytest.mark.parametrize("field", ["w", "spread", "sums", "meta", "seq", "chain"])
def test_an_incomplete_state_is_refused(url: str, field: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        with client(url) as connection:
            connection.hdel(KEYS.state, field)
        with pytest.raises(BadBlob):
            await store.states.load("books")

    with_store(url, act)


def test_a_deletion_also_removes_a_version_that_is_committed_at_the_same_time(url: str) -> None:
    """A learner may store a version between the read and the write of a deletion."""

    async def act(store: Store) -> None:
        state = first()
        epoch = await store.models.create("books", state)
        await append_records(store)
        fence = await store.leases.take("books", 0, 5.0)
        read_versions = store.states.versions

        async def versions(model: str) -> list[int]:
            found = await read_versions(model)
            base = await store.states.position(model)
            if base[1] == 0:
                await store.states.commit(model, base, fence, later(state, 5), version=NewVersion())
            return found

        store.states.versions = versions  # type: ignore[method-assign]
        await store.models.delete("books")
        await store.models.create("books", state)
        assert epoch == 1
        with pytest.raises(NoSuchModel):
            await store.states.version("books", 5)

    with_store(url, act)


# ---- lease ----


def test_one_learner_holds_the_lease_and_renews_it(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        fence = await store.leases.take("books", 0, 60.0)
        assert fence == 1
        assert await store.leases.take("books", 0, 60.0) == 0
        assert await store.leases.take("books", fence, 60.0) == fence
        await store.leases.release("books", fence + 1)
        assert await store.leases.take("books", 0, 60.0) == 0
        await store.leases.release("books", fence)
        assert await store.leases.take("books", 0, 60.0) == fence + 1

    with_store(url, act)


@on_servers
def test_the_status_of_many_models_takes_one_round_trip(url: str) -> None:
    async def act(store: Store) -> None:
        for name in ("books", "films"):
            await store.models.create(name, first())
        await store.leases.release("films", await store.leases.take("films", 0, 60.0))
        assert await store.leases.take("films", 0, 60.0) == 2
        await append(store, 1, event("a"), event("b"))
        await store.jobs.begin(Lease("books", "books.job", 60.0), 1, {})
        assert await store.models.statuses(["books", "films", "unknown"]) == {
            "books": ModelStatus(2, leader=0, terms=0, trains=True, waiting_work=2.0 * RECORD_WORK),
            "films": ModelStatus(0, leader=2, terms=2, trains=False),
        }
        assert await store.models.statuses([]) == {}

    with_store(url, act)


def test_a_lease_expires(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        fence = await store.leases.take("books", 0, 0.05)
        new = await eventually(lambda: store.leases.take("books", 0, 60.0), bool)
        assert new == fence + 1
        assert await store.leases.take("books", fence, 60.0) == 0
        await store.leases.release("books", fence)
        assert await store.leases.take("books", 0, 60.0) == 0

    with_store(url, act)


def test_renewing_a_lease_extends_it(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        fence = await store.leases.take("books", 0, 1.0)
        await store.leases.take("books", fence, 60.0)

    with_store(url, act)
    with client(url) as connection:
        assert connection.pttl(KEYS.lease) > 30_000


def test_a_learner_is_counted_until_it_leaves_or_expires(url: str) -> None:
    async def act(store: Store) -> None:
        assert await store.leases.present("one", 60.0) == 1
        assert await store.leases.present("two", 60.0) == 2
        assert await store.leases.present("one", 60.0) == 2
        await store.leases.absent("two")
        assert await store.leases.present("three", 0.001) == 2
        await eventually(lambda: store.leases.present("one", 60.0), lambda count: count == 1)

    with_store(url, act)


def test_the_lost_name_of_an_existing_model_is_restored(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        with client(url) as connection:
            connection.srem(MODELS, "books")
        for name in ("books", "films"):
            await store.models.relist(name)
        assert await store.models.names() == ["books"]

    with_store(url, act)


def test_renewing_an_expired_lease_does_not_take_a_new_one(url: str) -> None:
    """Else no learner knows the new fencing token, and the model waits until it expires."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        fence = await store.leases.take("books", 0, 60.0)
        await store.leases.release("books", fence)
        assert await store.leases.take("books", fence, 60.0) == 0
        assert await store.leases.take("books", 0, 60.0) == fence + 1

    with_store(url, act)


# ---- hints ----


async def next_hint(hints: AsyncIterator[str], model: str) -> None:
    """Wait for a hint about a model; a Cluster may send hints of the previous test late."""
    async with asyncio.timeout(TIMEOUT):
        async for found in hints:
            if found == model:
                return


def test_one_subscription_hears_of_every_new_committed_and_deleted_model(url: str) -> None:
    async def act(store: Store) -> None:
        hints = store.hints.changed()
        assert await anext(hints) == ""  # subscribed
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        await next_hint(hints, "books")
        await store.models.create("films", state)
        await next_hint(hints, "films")
        await append_records(store)
        fence = await store.leases.take("books", 0, 60.0)
        await store.states.commit("books", base, fence, later(state, 1))
        await next_hint(hints, "books")
        await store.models.delete("films")
        await next_hint(hints, "films")
        await hints.aclose()  # type: ignore[attr-defined]

    with_store(url, act)


def test_learners_hear_of_a_record_that_follows_the_last_commit(url: str) -> None:
    async def act(store: Store) -> None:
        hints = store.hints.appended()
        assert await anext(hints) == ""  # subscribed
        epoch = await store.models.create("books", first())
        await append(store, epoch, event("e1"))
        await next_hint(hints, "books")
        await append(store, epoch, event("e2"))  # another record waits: no hint
        await store.hints.call_learner("films")
        assert await asyncio.wait_for(anext(hints), TIMEOUT) == "films"
        await hints.aclose()  # type: ignore[attr-defined]

    with_store(url, act)


# ---- impressions ----


def test_impressions_are_stored_and_expire(url: str) -> None:
    async def act(store: Store) -> None:
        await store.log.store_impressions(
            "books", 1, [NewImpression("r", b"one"), NewImpression("s", b"two")], 60.0
        )
        await store.log.store_impressions("books", 1, [NewImpression("short", b"three")], 0.02)
        await eventually(
            lambda: store.log.load_impressions("books", 1, ["short"]), lambda found: found == [None]
        )
        found = await store.log.load_impressions("books", 1, ["s", "unknown", "r"])
        assert found == [(b"two", b"", ""), None, (b"one", b"", "")]
        assert await store.log.load_impressions("books", 2, ["r"]) == [None]
        assert await store.log.load_impressions("books", 1, []) == []

    with_store(url, act)
    with client(url) as connection:
        assert 30_000 < connection.pttl(KEYS.impression(1, "r")) <= 60_000


# ---- full and unreachable servers ----


@pytest.fixture
def small(tmp_path: Path) -> Any:
    with EmbeddedServer.start(tmp_path) as started:
        yield started


def fill(url: str) -> None:
    """Write more data than the memory limit."""
    with client(url) as connection:
        connection.set("other", b"x" * (2 << 20))
        connection.config_set("maxmemory", 1 << 20)


def test_a_full_store_is_an_error_and_writes_nothing(small: EmbeddedServer) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await store.log.store_impressions("books", epoch, [NewImpression("r", b"shown")], 60.0)
        fill(small.url)
        before = keys_of(small.url)
        for asked in (
            append(store, epoch, event("e"), event("f", request="r", new=b"1")),
            store.log.store_impressions("books", epoch, [NewImpression("s", b"shown")], 60.0),
            store.models.create("atlas", first()),
        ):
            with pytest.raises(Full):
                await asked
        assert keys_of(small.url) == before
        assert await store.log.tail("books") == 0
        assert await store.log.load_impressions("books", epoch, ["r"]) == [(b"shown", b"", "")]
        assert (await store.states.load("books")).epoch == epoch

    with_store(small.url, act)


def test_on_a_full_store_learners_commit_and_models_can_be_deleted(small: EmbeddedServer) -> None:
    """A commit trims the log, and a deletion frees memory."""

    async def act(store: Store) -> None:
        state = first()
        base = (await store.models.create("books", state), 0, state.chain)
        await append_records(store)
        fill(small.url)
        fence = await store.leases.take("books", 0, 5.0)
        assert await store.leases.take("books", fence, 5.0) == fence
        await store.states.commit("books", base, fence, later(state, 1))
        await store.leases.release("books", fence)
        assert await store.models.delete("books")

    with_store(small.url, act)


def test_calls_to_a_stopped_server_fail_at_once_as_unavailable(tmp_path: Path) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        lost.stop()
        started = time.monotonic()
        for asked in (
            append(store, epoch, event("e")),
            store.log.read("books", 0, 10, wait=1.0),
            store.states.load("books"),
            store.models.names(),
            store.log.store_impressions("books", epoch, [NewImpression("r", b"x")], 1.0),
            store.log.load_impressions("books", epoch, ["r"]),
            store.leases.take("books", 0, 1.0),
            store.servers.complaints(),
        ):
            with pytest.raises(Unavailable, match="is unreachable"):
                await asked
        assert time.monotonic() - started < 10.0

    with EmbeddedServer.start(tmp_path) as lost:
        with_store(lost.url, act)


def test_a_store_works_again_after_a_restart_of_its_server(tmp_path: Path) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        assert await append(store, epoch, event("e")) == [(APPENDED, 1)]
        running[0].stop()
        running.append(EmbeddedServer.start(tmp_path))
        assert await append(store, epoch, event("e")) == [(REPEATED, 1)]
        assert await append(store, epoch, event("f")) == [(APPENDED, 2)]

    running = [EmbeddedServer.start(tmp_path)]
    try:
        with_store(running[0].url, act)
    finally:
        for one in running:
            one.stop()


def test_a_missing_socket_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        with_store(f"unix://{tmp_path}/nothing.sock", lambda store: store.models.names())


@pytest.mark.parametrize(
    "bad", ["", "localhost:6379", "http://localhost", "REDIS://x", "file:///x"]
)
def test_a_url_of_another_scheme_is_refused(bad: str) -> None:
    with pytest.raises(SolarError, match="store URL: expected one of redis://"):
        Store.open(bad)


# ---- version and settings of the server ----


def test_the_embedded_server_causes_no_warnings(url: str) -> None:
    assert with_store(url, lambda store: store.servers.complaints()) == []


def _rewrites_its_log(connection: Any) -> bool:
    found = connection.info("persistence")
    return bool(found["aof_rewrite_in_progress"] or found["aof_rewrite_scheduled"])


def test_weak_settings_of_a_server_are_reported() -> None:
    with bare_server("--appendonly", "no", "--maxmemory-policy", "allkeys-lru") as url:
        complaints = with_store(url, lambda store: store.servers.complaints())
        with client(url) as connection:
            connection.config_set("appendonly", "yes")
            connection.config_set("maxmemory-policy", "noeviction")
            until(lambda: not _rewrites_its_log(connection))  # by a process that would outlive it
        everysec = with_store(url, lambda store: store.servers.complaints())
    assert [complaint.split(": got")[0].split(", got")[0] for complaint in complaints] == [
        "appendonly: expected yes",
        "appendfsync: expected always",
        "maxmemory-policy: expected noeviction",
    ]
    assert "got everysec" in everysec[0]
    assert len(everysec) == 1


@pytest.mark.parametrize(
    ("version", "named"), [("6.2.14", "6.2.14"), ("5.0.6", "5 or older (HELLO is unknown to it)")]
)
def test_an_old_server_is_refused_with_its_version_and_the_required_one(
    version: str, named: str
) -> None:
    with old_server(version) as url:
        for ask in (lambda one: one.servers.refuse_old(), lambda one: one.servers.complaints()):
            with pytest.raises(OldServer) as caught:
                with_store(url, ask)
            expected = "the store: expected Redis 7.0 or newer, or a Valkey, got"
            assert str(caught.value) == f"{expected} {named}"


def test_a_server_of_a_supported_version_is_accepted(url: str) -> None:
    with_store(url, lambda store: store.servers.refuse_old())


def test_the_error_of_a_server_without_hello_does_not_show_the_password() -> None:
    with old_server("5.0.6") as url, pytest.raises(StoreError) as caught:
        with_store(url.replace("//", "//:hush@"), lambda store: store.models.names())
    assert str(caught.value) == "the store refused a command: unknown command `HELLO`"


def test_a_server_that_denies_info_and_config_is_used_with_warnings(
    server: EmbeddedServer,
) -> None:
    url = server.url
    with client(url) as connection:
        connection.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-config", "-info"
        )
    guest = url.replace("unix://", "unix://guest:secret@", 1)

    async def act() -> tuple[list[str], int]:
        async with opened(guest) as store:
            return await store.servers.complaints(), await store.models.create("books", first())

    complaints, epoch = asyncio.run(act())
    assert [complaint.split(" ")[0] for complaint in complaints] == ["INFO", "CONFIG"]
    assert complaints[1].startswith("CONFIG GET was refused")
    assert "secret" not in str(complaints)
    assert epoch == 1


def test_the_warning_about_a_renamed_config_does_not_repeat_its_arguments() -> None:
    with bare_server("--rename-command", "CONFIG", "") as url:
        [complaint] = with_store(url, lambda store: store.servers.complaints())
    assert complaint.startswith("CONFIG GET was refused (unknown command 'CONFIG'): appendonly")


def test_a_denied_command_is_a_store_error(server: EmbeddedServer) -> None:
    url = server.url
    with client(url) as connection:
        connection.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read")
    reader = url.replace("unix://", "unix://reader:secret@", 1)
    with pytest.raises(StoreError, match="refused a command"):
        with_store(reader, lambda store: store.models.create("books", first()))


def test_an_error_does_not_show_a_wrong_password(server: EmbeddedServer) -> None:
    url = server.url
    wrong = url.replace("unix://", "unix://stranger:hush@", 1)
    with pytest.raises(StoreError) as caught:
        with_store(wrong, lambda store: store.models.names())
    assert "hush" not in str(caught.value)
