"""The learner on a real store: every record of the log is learnt once."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any

import numpy as np
import pytest

from app.cli.replay import replay_log
from app.cli.verify import verify_models
from app.domain import codec
from app.domain.facts import Replaced
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer
from app.errors import BadBlob, NoSuchModel
from app.learning.learner import Learner
from app.learning.options import LearnerOptions, ReportFact, ignore_fact
from app.learning.pool import LearnerShare, learn_all
from app.learning.replay import replay, verify
from app.storage.keys import Keys
from app.storage.log import NewRecord
from app.storage.store import Store
from tests import fleets
from tests.servers import client, eventually, server, url, with_store
from tests.test_codec import bits

__all__ = ["server", "url"]  # fixtures

N = 4
SHORT_INTERVALS = LearnerOptions(lease=2.0, commit=0.005, idle=0.05, discover=0.02)


def first(seed: bytes = b"") -> ModelState:
    return initial_state(ModelConfig(tuple(f"f{k}" for k in range(N)), gamma=100.0), seed=seed)


def feedback(at: int) -> bytes:
    rng = np.random.default_rng(at)
    documents = rng.standard_normal((5, N)).astype(np.float32)
    labels = rng.integers(0, 3, 5).astype(np.float64)
    return codec.dump_record(Feedback(f"e{at}", "labels", documents, labels=labels))


def replacement(value: float) -> bytes:
    model = replace(first().model, weights=np.full(N, value))
    return codec.dump_record(Replace(model, "a warm start"))


def blobs(start: int, stop: int) -> list[bytes]:
    return [feedback(at) for at in range(start, stop)]


async def append(store: Store, records: list[bytes], model: str = "books", time: int = 0) -> None:
    epoch, *_ = await store.states.position(model)
    tail = await store.log.tail(model)
    events = [NewRecord(f"e{tail + at}", b"", record) for at, record in enumerate(records)]
    await store.log.append(model, epoch, events, limit=10_000, time=time)


def replayed(state: ModelState, records: list[bytes]) -> ModelState:
    reducer = Reducer(state)
    for record in records:
        reducer.apply(record)
    return reducer.state()


@contextlib.asynccontextmanager
async def learning(
    store: Store, pace: LearnerOptions = SHORT_INTERVALS, report: ReportFact = ignore_fact
) -> AsyncIterator[None]:
    """Run a learner for all models, then stop it gracefully."""
    stop = asyncio.Event()
    task = asyncio.create_task(learn_all(store, stop, pace, report))
    try:
        yield
    finally:
        stop.set()
        await task


async def committed(store: Store, seq: int, model: str = "books") -> ModelState:
    await eventually(lambda: store.states.position(model), lambda position: position[1] >= seq)
    return (await store.states.load(model)).state


# ---- records ----


def test_appended_records_are_learnt_in_order_and_bit_for_bit(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = [*blobs(0, 30), b"junk", *blobs(30, 40), codec.dump_record(ResetMeasures())]
        async with learning(store):
            for begin in range(0, len(records), 7):
                await append(store, records[begin : begin + 7])
            state = await committed(store, len(records))
        assert bits(state) == bits(replayed(first(), records))
        assert await verify(store, "books") == []

    with_store(url, act)


def test_a_backlog_is_learnt_in_batches(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = blobs(0, 100)
        await append(store, records)
        async with learning(store, replace(SHORT_INTERVALS, batch=7)):
            state = await committed(store, 100)
        assert bits(state) == bits(replayed(first(), records))

    with_store(url, act)


def test_many_models_are_learnt_in_one_process(url: str) -> None:
    async def act(store: Store) -> None:
        async with learning(store):
            for at in range(12):
                await store.models.create(f"m{at}", first(bytes([at])))
                await append(store, blobs(at, at + 10), f"m{at}")
            states = [await committed(store, 10, f"m{at}") for at in range(12)]
        for at, state in enumerate(states):
            assert bits(state) == bits(replayed(first(bytes([at])), blobs(at, at + 10)))

    with_store(url, act)


def test_two_concurrent_learners_learn_each_record_once(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = blobs(0, 60)
        async with learning(store), learning(store):
            for record in records:
                await append(store, [record])
            state = await committed(store, 60)
        assert bits(state) == bits(replayed(first(), records))

    with_store(url, act)


@pytest.mark.parametrize(
    "poison",
    [
        codec.dump_record(Retune(gamma="much")),  # type: ignore[arg-type]
        codec.dump_blob("feedback", {"event": "e", "kind": "clicks", "documents": None}, {}),
        codec.dump_blob("feedback", {}, {}),
        b"",
    ],
    ids=["words for gamma", "no documents", "no fields", "no bytes"],
)
def test_no_record_stops_a_learner(url: str, poison: bytes) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store):
            await append(store, [poison, feedback(1)])
            state = await asyncio.wait_for(committed(store, 2), 2.0)
        assert state.measures()["rejected"] == 1.0
        assert state.measures()["feedback"] == 1.0

    with_store(url, act)


# ---- deleted and new models ----


def test_the_learner_of_a_deleted_model_ends(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 3))
        learner = Learner(store, "books", replace(SHORT_INTERVALS, lease=0.3))
        task = asyncio.create_task(learner.run(asyncio.Event()))
        await committed(store, 3)
        await store.models.delete("books")
        await asyncio.wait_for(task, 10.0)
        with client(url) as connection:
            assert connection.exists(Keys("books").state, Keys("books").lease) == 0

    with_store(url, act)


def test_a_model_created_again_is_learnt_from_its_new_log(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, replace(SHORT_INTERVALS, lease=0.3)):
            await append(store, blobs(0, 9))
            await committed(store, 9)
            await store.models.delete("books")
            await store.models.create("books", first(b"again"))
            await append(store, blobs(50, 53))
            state = await committed(store, 3)
            with pytest.raises(NoSuchModel):
                await store.states.position("atlas")
        assert bits(state) == bits(replayed(first(b"again"), blobs(50, 53)))

    with_store(url, act)


def test_only_a_learner_among_others_gives_models_back(url: str) -> None:
    """A model that was created again is led before it is in the list of names again."""

    async def act(store: Store) -> None:
        share, led = LearnerShare(store, lease=5.0, clock=count(0.0, 5.0).__next__), {"books"}
        assert await share.most(0, led) == inf
        await store.leases.present("other:5000", 5.0)
        assert [await share.most(models, led) for models in (0, 3)] == [0, 2]

    with_store(url, act)


# ---- versions ----

VERSIONED = replace(SHORT_INTERVALS, version=5, versions=3)


def test_versions_are_kept_at_their_interval_and_the_log_is_trimmed_to_the_oldest(
    url: str,
) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = blobs(0, 43)
        async with learning(store, VERSIONED):
            for begin in range(0, 43, 11):
                await append(store, records[begin : begin + 11])
            state = await committed(store, 43)
        assert await store.states.versions("books") == [30, 35, 40]
        for seq in (30, 35, 40):
            stored = (await store.states.version("books", seq)).state
            assert bits(stored) == bits(replayed(first(), records[:seq]))
        assert [entry.seq for entry in await store.log.read("books", 0, 100)] == list(range(31, 44))
        assert bits(state) == bits(replayed(first(), records))
        assert await verify(store, "books") == []

    with_store(url, act)


class WallClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


async def hourly(store: Store, count: int) -> list[int]:
    """Wait until a model has an hourly version more, or as many as are kept."""
    return await eventually(
        lambda: store.versions.hourly("books"), lambda found: len(found) >= count
    )


def test_a_version_is_kept_every_hour_with_new_records(url: str) -> None:
    async def act(store: Store) -> None:
        clock = WallClock()
        await store.models.create("books", first())
        async with learning(store, replace(SHORT_INTERVALS, wall_clock=clock)):
            await append(store, blobs(0, 4))
            await committed(store, 4)
            assert await store.versions.hourly("books") == []
            clock.now += 3_601  # no further record: the model is kept as it rests
            assert await hourly(store, 1) == [4]
            clock.now += 3_601  # no new record, no new version
            await append(store, blobs(4, 5))
            await committed(store, 5)
            assert await hourly(store, 2) == [4, 5]
            clock.now -= 10_000  # set back: counts as an hour
            await append(store, blobs(5, 7))
            assert (await hourly(store, 3))[:2] == [4, 5]
        stored = (await store.versions.load("books", 4)).state
        assert bits(stored) == bits(replayed(first(), blobs(0, 4)))
        assert await store.states.versions("books") == [0]
        assert await verify(store, "books") == []

    with_store(url, act)


def test_no_hourly_version_is_kept_while_the_store_is_nearly_full(url: str) -> None:
    async def act(store: Store) -> None:
        clock = WallClock()
        await store.models.create("books", first())
        with client(url) as connection:
            before = connection.config_get("maxmemory")["maxmemory"]
            connection.config_set("maxmemory", int(connection.info("memory")["used_memory"] / 0.8))
            try:
                async with learning(store, replace(SHORT_INTERVALS, wall_clock=clock)):
                    clock.now += 3_601
                    await append(store, blobs(0, 4))
                    await committed(store, 4)
                    assert await store.versions.hourly("books") == []
                    connection.config_set("maxmemory", before)
                    clock.now += 61  # the next attempt
                    assert await hourly(store, 1) == [4]
            finally:
                connection.config_set("maxmemory", before)

    with_store(url, act)


def test_the_hours_go_on_with_the_next_learner(url: str) -> None:
    async def act(store: Store) -> None:
        clock = WallClock()
        await store.models.create("books", first())
        for at in range(3):  # each learner leads for less than an hour
            async with learning(store, replace(SHORT_INTERVALS, wall_clock=clock)):
                await append(store, blobs(at, at + 1))
                await committed(store, at + 1)
                clock.now += 1_500
        async with learning(store, replace(SHORT_INTERVALS, wall_clock=clock)):
            assert await hourly(store, 1) == [3]

    with_store(url, act)


def test_a_model_from_before_gets_an_hourly_version_with_its_next_records(url: str) -> None:
    """Its versions have no time, and a learner may lead for less than an hour each time."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        with client(url) as connection:
            connection.hdel(Keys("books").snapshot(0), "time", "reason")
        async with learning(store):
            await append(store, blobs(0, 3))
            await committed(store, 3)
            await hourly(store, 1)
        assert await verify(store, "books") == []

    with_store(url, act)


def test_the_state_before_a_rest_is_kept_before_the_next_record(url: str) -> None:
    async def act(store: Store) -> None:
        clock = WallClock()
        await store.models.create("books", first())
        async with learning(store, replace(SHORT_INTERVALS, wall_clock=clock)):
            await append(store, blobs(0, 4))
            await committed(store, 4)
        clock.now += 3_601
        await append(store, blobs(4, 6))
        async with learning(store, replace(SHORT_INTERVALS, wall_clock=clock)):
            await committed(store, 6)
            assert await hourly(store, 1) == [4]

    with_store(url, act)


def test_verify_ignores_a_name_that_is_used_again_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        async with learning(store):
            await append(store, blobs(0, 3))
            await committed(store, 3)
            await store.versions.keep("books", epoch, "one")
            await append(store, blobs(3, 6))
            await committed(store, 6)
        read = store.versions.placed

        async def placed(model: str) -> Any:
            found = await read(model)
            await store.versions.drop("books", epoch, "one")
            await store.versions.keep("books", epoch, "one")
            return found

        monkeypatch.setattr(store.versions, "placed", placed)
        assert await verify(store, "books") == []

    with_store(url, act)


def test_hourly_versions_do_not_hold_the_log_back(url: str) -> None:
    async def act(store: Store) -> None:
        clock = WallClock()
        await store.models.create("books", first())
        pace = replace(VERSIONED, wall_clock=clock)
        async with learning(store, pace):
            for at in range(0, 48, 4):
                await append(store, blobs(at, at + 4))
                await committed(store, at + 4)
                clock.now += 3_601
                await hourly(store, min(3, at // 4 + 1))
        kept = await store.versions.hourly("books")
        assert len(kept) == 3
        oldest = (await store.states.versions("books"))[0]
        entries = [entry.seq for entry in await store.log.read("books", 0, 100)]
        assert entries[0] == oldest + 1 > 1
        for seq in kept:
            stored = (await store.versions.load("books", seq)).state
            assert bits(stored) == bits(replayed(first(), blobs(0, seq)))
        assert await verify(store, "books") == []

    with_store(url, act)


def test_a_named_version_from_before_the_log_can_be_rolled_back_to(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        async with learning(store, VERSIONED):
            await append(store, blobs(0, 3))
            await committed(store, 3)
            await store.versions.keep("books", epoch, "early")
            await append(store, blobs(3, 43))
            await committed(store, 43)
            assert (await store.states.versions("books"))[0] > 3
            model = (await store.versions.load("books", "early")).state.model
            await append(store, [codec.dump_record(Replace(model, "rollback to version early"))])
            state = await committed(store, 44)
        early = replayed(first(), blobs(0, 3))
        assert state.model.weights.tobytes() == early.model.weights.tobytes()
        found = await replay(store, "books")
        assert (found.start, found.differences()) == (35, [])
        lines: list[str] = []
        await replay_log(store, "books", None, False, lines.append)
        await verify_models(store, ["books"], lines.append)
        said = (
            "books: the log begins after version 35; 1 older hourly or named versions can be "
            "rolled back to, but not replayed from"
        )
        assert [lines[1], lines[-1]] == [said, said]
        listed = [one.reason for one in await store.versions.listed("books")]
        assert listed == ["named", "interval", "interval", "before rollback"]

    with_store(url, act)


def test_verify_finds_a_damaged_version_and_one_of_another_state(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        async with learning(store, VERSIONED):
            await append(store, blobs(0, 13))
            await committed(store, 13)
            await store.versions.keep("books", epoch, "one")
        assert await verify(store, "books") == []
        with client(url) as connection:
            other = connection.hget(Keys("books").snapshot(5), "spread")
            connection.hset(Keys("books").snapshot(10), "spread", other)
            connection.hset(Keys("books").named(epoch, "one"), "w", b"junk")
        assert await verify(store, "books") == [
            "version 10: the replay differs from it",
            "version 13: expected a SOLAR blob, got other bytes",
        ]

    with_store(url, act)


def test_ten_versions_are_kept(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, replace(SHORT_INTERVALS, version=2)):
            await append(store, blobs(0, 40))
            await committed(store, 40)
        assert await store.states.versions("books") == list(range(22, 42, 2))

    with_store(url, act)


def test_a_log_above_its_size_limit_is_trimmed_earlier_and_stays_replayable(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        size = 20 * len(feedback(0))
        async with learning(store, replace(SHORT_INTERVALS, batch=8, log_bytes=size)):
            for begin in range(0, 120, 10):
                await append(store, blobs(begin, begin + 10))
            state = await committed(store, 120)
        kept = [entry.seq for entry in await store.log.read("books", 0, 1000)]
        oldest = (await store.states.versions("books"))[0]
        assert oldest > 0
        assert kept == list(range(oldest + 1, 121))
        assert bits(state) == bits(replayed(first(), blobs(0, 120)))
        assert await verify(store, "books") == []

    with_store(url, act)


def test_the_model_before_each_replacement_is_kept_as_a_version(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = [
            *blobs(0, 3),
            replacement(1.0),
            *blobs(3, 5),
            replacement(2.0),
            replacement(3.0),
            *blobs(5, 7),
        ]
        await append(store, records)
        async with learning(store):
            await committed(store, len(records))
            await append(store, [replacement(4.0)])  # after all others are committed
            state = await committed(store, len(records) + 1)
        records.append(replacement(4.0))
        assert await store.states.versions("books") == [0, 3, 6, 7, 10]
        for seq in (3, 6, 7, 10):
            stored = (await store.states.version("books", seq)).state
            assert bits(stored) == bits(replayed(first(), records[:seq]))
        assert bits(state) == bits(replayed(first(), records))

    with_store(url, act)


# ---- commits and graceful stop ----


def test_a_replacement_is_reported_once_with_its_reason(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, [*blobs(0, 3), replacement(2.0), *blobs(3, 5)])
        facts: list[object] = []
        async with learning(store, report=facts.append):
            await committed(store, 6)
        assert [one for one in facts if isinstance(one, Replaced)] == [
            Replaced("books", "a warm start")
        ]

    with_store(url, act)


def test_the_first_batch_is_committed_at_once_and_later_ones_at_the_batch_size(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, replace(SHORT_INTERVALS, commit=3.0, batch=4)):
            started = time.monotonic()
            await append(store, blobs(0, 3))
            await committed(store, 1)
            await append(store, blobs(3, 11))
            await committed(store, 7)
            assert time.monotonic() - started < 2.0
        assert (await store.states.position("books"))[1] == 11

    with_store(url, act)


def test_a_graceful_stop_commits_and_releases_without_delay(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, replace(SHORT_INTERVALS, commit=4.0)):
            await append(store, blobs(0, 2))
            await committed(store, 1)
            await append(store, blobs(2, 5))
            with client(url) as connection:
                await eventually(has_blocked_reader(connection), bool)
            started = time.monotonic()
        assert time.monotonic() - started < 1.5
        assert bits((await store.states.load("books")).state) == bits(
            replayed(first(), blobs(0, 5))
        )
        with client(url) as connection:
            assert connection.exists(Keys("books").lease) == 0

    with_store(url, act)


def has_blocked_reader(connection: Any) -> Any:
    async def ask() -> bool:
        return int(connection.info("clients")["blocked_clients"]) > 0

    return ask


def test_a_learner_continues_from_the_last_commit_of_the_previous_one(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        for begin in range(0, 12, 3):
            async with learning(store):
                await append(store, blobs(begin, begin + 3))
                state = await committed(store, begin + 3)
        assert bits(state) == bits(replayed(first(), blobs(0, 12)))
        with client(url) as connection:
            assert int(connection.get(Keys("books").fence)) == 4

    with_store(url, act)


# ---- an unreachable store ----


def test_a_learner_logs_the_start_and_the_end_of_an_outage_with_the_address_of_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "solar")

    def lines() -> list[str]:
        return [one.getMessage() for one in caplog.records if "reachable" in one.getMessage()]

    async def outage(store: Store, node: fleets.Node) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 3))
        async with learning(store):
            await committed(store, 3)
            node.kill()
            await eventually(lambda: asyncio.sleep(0, lines()), bool)
            node.start()
            await append(store, blobs(3, 6))
            await committed(store, 6)
            await eventually(lambda: asyncio.sleep(0, len(lines())), lambda count: count == 2)
        address = f"127.0.0.1:{node.known}"
        unreachable, reachable = lines()  # one each, however many attempts failed
        assert f"the store at {address} is unreachable: " in unreachable
        assert reachable.startswith(f"the store at {address} is reachable again after ")
        assert "hush" not in caplog.text

    with fleets.server() as node:
        url = f"redis://default:hush@127.0.0.1:{node.known}"
        with_store(url, lambda store: outage(store, node))


# ---- damage ----


@pytest.mark.parametrize("field", ["w", "spread", "sums", "meta"])
def test_a_damaged_state_is_rebuilt_and_repaired_without_a_new_record(url: str, field: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, VERSIONED):
            await append(store, blobs(0, 13))
            whole = await committed(store, 13)
        with client(url) as connection:
            blob = bytearray(connection.hget(Keys("books").state, field))
            blob[-12] ^= 8
            connection.hset(Keys("books").state, field, bytes(blob))
            connection.hset(Keys("books").snapshot(10), "w", b"junk")  # and the newest version
        with pytest.raises(BadBlob):
            await store.states.load("books")

        async def repaired() -> bool:
            with contextlib.suppress(BadBlob):
                return bool(bits((await store.states.load("books")).state) == bits(whole))
            return False

        async with learning(store):
            await eventually(repaired, bool)

    with_store(url, act)


def test_a_gap_in_the_log_stops_learning_before_it(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 8))
        with client(url) as connection:
            connection.xdel(Keys("books").log, "5-0")
        async with learning(store):
            await committed(store, 4)
        state = (await store.states.load("books")).state
        assert bits(state) == bits(replayed(first(), blobs(0, 4)))

    with_store(url, act)
