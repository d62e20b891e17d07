"""Samples of learnt records: written while somebody watches, and only then."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.domain import codec
from app.domain.impressions import Impression
from app.domain.learnt import FEW_PAIRS, MOST_NOTED, SAMPLED_PAIRS, LearntRecord
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer
from app.learning.samples import MOST_IDS, SAMPLE_BURST, SAMPLE_RATE
from app.storage.keys import Keys
from app.storage.log import NewImpression, NewRecord
from app.storage.samples import MOST_SAMPLES, NewSample, SampleId, StoredSample
from app.storage.store import Store
from tests.servers import (
    STORE_KINDS,
    bare_server,
    client,
    eventually,
    server,
    started,
    url,
    with_store,
)
from tests.test_codec import bits
from tests.test_learner import SHORT_INTERVALS, append, blobs, committed, first, learning

__all__ = ["server", "url"]  # fixtures

START = SampleId(0, 0)


# ---- what the reducer notes ----


def feedback(documents: int = 4, **given: Any) -> Feedback:
    """Feedback on documents of which the last is the best, and is shown last."""
    rows = np.arange(3.0 * documents, dtype=np.float32).reshape(documents, 3)
    kind = "labels" if "labels" in given else "clicks"
    return Feedback("e", kind, rows, np.arange(documents), query="shoes", **given)  # type: ignore[arg-type]


def start(**settings: Any) -> ModelState:
    return initial_state(ModelConfig(("a", "b", "c"), **settings), seed=b"samples")


def noted(*log: Record | bytes, most: int | None = None, **settings: Any) -> list[LearntRecord]:
    """Return what a reducer notes of some records, each applied as a whole or in parts."""
    reducer = Reducer(start(**settings))
    reducer.noted = {}
    for record in log:
        blob = record if isinstance(record, bytes) else codec.dump_record(record)
        if most is None:
            reducer.apply(blob)
            continue
        decoded: Record | None = codec.load_record(blob)
        while not reducer.apply_part(blob, decoded, most):
            decoded = None
    return [*reducer.noted.values()]


def test_clicks_are_noted_with_their_positions_and_pairs() -> None:
    [found] = noted(feedback(clicks=np.array([2])), clicks="click-skip-above")
    assert found[:6] == ("clicks", True, "shoes", "", 4, [2])
    pairs, more = found.first_pairs()
    assert [(one.preferred, one.other) for one in pairs] == [(2, 0), (2, 1)]
    assert [(one.outcome, one.loss) for one in pairs][:1] == [("stepped", 1.0)]
    assert more == 0


@pytest.mark.parametrize("most", [None, 1, 7])
def test_at_most_ten_pairs_are_noted_and_the_others_counted(most: int | None) -> None:
    labels = np.arange(12.0)
    [found] = noted(feedback(12, labels=labels), most=most)
    pairs, more = found.first_pairs()
    assert len(pairs) == min(10, most or 10)
    assert len(pairs) + more == 12 * 11 // 2


def test_a_noted_record_keeps_no_large_array_alive() -> None:
    [found] = noted(feedback(40, labels=np.arange(40.0) % 5))
    assert found.pairs is not None
    assert FEW_PAIRS < 40 * 39 // 2
    for column in found.pairs[:-1]:
        assert isinstance(column, np.ndarray)
        assert column.base is None
        assert column.size == SAMPLED_PAIRS


def test_every_kind_of_record_is_noted_also_a_damaged_one() -> None:
    wrong = feedback(clicks=np.array([9]))
    model = start().model
    log = (Replace(model, "rollback to version 7"), Retune(gamma=9.0), ResetMeasures(), wrong)
    found = noted(*log, b"junk")
    assert [(one.kind, one.accepted, one.reason) for one in found] == [
        ("replace", True, "rollback to version 7"), ("retune", True, ""),
        ("reset-measures", True, ""), ("clicks", False, ""), ("damaged", False, ""),
    ]  # fmt: skip
    assert all(one.first_pairs() == ([], 0) for one in found)


def test_a_few_records_are_noted_until_they_are_taken() -> None:
    assert len(noted(*[feedback(clicks=np.array([1]))] * (MOST_NOTED + 5))) == MOST_NOTED


def test_records_after_a_cut_one_that_is_not_noted_are_noted_by_their_own_seq() -> None:
    reducer, long = Reducer(start()), codec.dump_record(feedback(9, labels=np.arange(9.0)))
    reducer.noted = {}
    for _ in range(MOST_NOTED):
        reducer.apply(codec.dump_record(feedback(clicks=np.array([1]))))
    assert not reducer.apply_part(long, codec.load_record(long), 5)  # noted are enough: not this
    reducer.noted.clear()
    assert reducer.apply_part(long, None, 99)
    reducer.apply(codec.dump_record(feedback(clicks=np.array([3]))))
    found = {seq: (one.kind, one.clicked) for seq, one in reducer.noted.items()}
    assert found == {MOST_NOTED + 2: ("clicks", [3])}


def test_noting_changes_no_bit_of_the_model() -> None:
    plain, noting = Reducer(start()), Reducer(start())
    noting.noted = {}
    for at in range(30):
        blob = codec.dump_record(feedback(9, labels=np.arange(9.0) % (at + 2)))
        plain.apply(blob)
        noting.apply(blob)
    assert bits(noting.state()) == bits(plain.state())


# ---- what the learner writes ----


async def samples(store: Store, model: str = "books") -> list[StoredSample]:
    return await store.samples.read(model, START, 2 * MOST_SAMPLES)


def content(found: Sequence[StoredSample]) -> list[dict[str, Any]]:
    return [json.loads(one.content) for one in found]


async def written(store: Store, count: int) -> list[dict[str, Any]]:
    """Return the samples once there are as many."""
    return content(await eventually(lambda: samples(store), lambda found: len(found) >= count))


async def append_on_request(store: Store, request: str, time: int = 7) -> None:
    """Append a click on a request."""
    epoch, *_ = await store.states.position("books")
    record = codec.dump_record(feedback(clicks=np.array([2])))
    new = NewRecord(f"on {request}", b"", record, request, b"", b"so far")
    await store.log.append("books", epoch, [new], limit=10, time=time)


async def show(store: Store, request: str, documents: int = 4) -> None:
    """Store the impression of a request."""
    rows = np.zeros((documents, 3), np.float32)
    shown = Impression(tuple(f"d{at}" for at in range(documents)), rows, np.arange(documents))
    epoch, *_ = await store.states.position("books")
    await store.log.store_impressions(
        "books", epoch, [NewImpression(request, shown.dump())], ttl=60.0
    )


def test_a_watched_record_becomes_a_sample(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", start(clicks="click-skip-above"))
        _, position = await store.samples.watch("books")
        await show(store, "r1")
        async with learning(store):
            await append_on_request(store, "r1")
            [found] = await written(store, 1)
        assert found.pop("pairs")[0] == {
            "preferred": 2, "other": 0, "weight": 1.0, "margin": 0.0, "outcome": "stepped",
        }  # fmt: skip
        assert found == {
            "seq": 1, "time": 7, "kind": "clicks", "accepted": True, "query": "shoes",
            "request": "r1", "reason": "", "documents": 4, "ids": ["d0", "d1", "d2", "d3"],
            "clicked": [2], "more_pairs": 0, "skipped": 0,
        }  # fmt: skip
        [stored] = await samples(store)
        assert (position, stored.id) == (SampleId(0, 0), SampleId(1, 1))
        assert await store.samples.keeps("books", stored.id)
        with client(url) as connection:
            assert 0 < connection.pttl(Keys("books").samples) <= 600_000

    with_store(url, act)


def test_a_passive_pair_has_no_margin(url: str) -> None:
    """The margin follows from the loss, which is 0 for every margin above 1."""

    async def act(store: Store) -> None:
        weights = np.array([1.0, 0.0, 0.0])
        model = replace(start(clicks="click-skip-above").model, weights=weights)
        await store.models.create("books", replace(start(), model=model))
        await store.samples.watch("books")
        async with learning(store):
            await append(store, [codec.dump_record(feedback(clicks=np.array([2])))])
            [found] = await written(store, 1)
        assert [(one["margin"], one["outcome"]) for one in found["pairs"]] == [
            (None, "passive"), (None, "passive"),
        ]  # fmt: skip

    with_store(url, act)


def test_ids_are_null_once_the_impression_has_expired(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", start())
        epoch, *_ = await store.states.position("books")
        await store.samples.watch("books")
        for request in ("r1", "r2"):
            await show(store, request)
            await append_on_request(store, request)
        with client(url) as connection:
            connection.delete(Keys("books").impression(epoch, "r1"))
        async with learning(store):
            found = await written(store, 2)
        assert [one["ids"] is None for one in found] == [True, False]
        assert [one["request"] for one in found] == ["r1", "r2"]

    with_store(url, act)


def test_a_long_list_has_its_first_ids(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", start())
        await store.samples.watch("books")
        await show(store, "r1", MOST_IDS + 7)
        await append_on_request(store, "r1")
        async with learning(store):
            [found] = await written(store, 1)
        assert found["ids"] == [f"d{at}" for at in range(MOST_IDS)]

    with_store(url, act)


def test_nothing_is_written_while_nobody_watches(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store):
            await append(store, blobs(0, 30))
            await committed(store, 30)
            with client(url) as connection:
                assert not connection.exists(Keys("books").samples, Keys("books").watched)
            await store.samples.watch("books")
            await append(store, blobs(30, 31))
            [found] = await written(store, 1)
        assert (found["seq"], found["skipped"]) == (31, 0)  # none of those before it

    with_store(url, act)


def test_at_most_20_samples_a_second_are_written_and_the_others_counted(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await store.samples.watch("books")
        loop, found = asyncio.get_running_loop(), list[StoredSample]()
        began, seen = loop.time(), dict[SampleId, float]()
        async with learning(store):
            for at in range(60):
                await append(store, blobs(10 * at, 10 * at + 10))
                found = await samples(store)
                seen |= {one.id: loop.time() for one in found if one.id not in seen}
                await asyncio.sleep(0.05)
            await committed(store, 600)
            await asyncio.sleep(0.2)
        seconds, shown = loop.time() - began, content(await samples(store))
        assert SAMPLE_BURST < len(shown) <= SAMPLE_BURST + SAMPLE_RATE * seconds + 1
        times = sorted(seen.values())
        slack = 0.1  # between the write and its observation
        assert all(
            later - earlier > 1.0 - slack for earlier, later in zip(times, times[21:], strict=False)
        )
        assert sum(one["skipped"] + 1 for one in shown) == shown[-1]["seq"]
        assert shown[-1]["seq"] > 500

    with_store(url, act)


def test_no_samples_are_written_while_the_store_is_nearly_full() -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await store.samples.watch("books")
        await store.history_budget.renew("books")
        assert store.history_budget.is_full()
        async with learning(store):
            for at in range(3):
                await append(store, blobs(at, at + 1))
                await committed(store, at + 1)
        assert await samples(store) == []

    with bare_server("--maxmemory", "20mb", "--maxmemory-policy", "noeviction") as url:
        with client(url) as connection:
            for at in range(160):
                connection.set(f"other {at}", 100_000 * b"x")
        with_store(url, act)


def test_the_stream_keeps_a_thousand_samples(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        epoch, *_ = await store.states.position("books")
        for begin in range(0, MOST_SAMPLES + 200, 100):
            some = [NewSample(seq, b"%d" % seq) for seq in range(begin + 1, begin + 101)]
            await store.samples.write("books", epoch, 1, some)
        found = await samples(store)
        assert [one.id.seq for one in found] == [*range(201, MOST_SAMPLES + 201)]
        assert not await store.samples.keeps("books", SampleId(1, 200))

    with_store(url, act)


def test_a_resent_or_late_write_adds_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        epoch, *_ = await store.states.position("books")
        for fence in (2, 2, 1):
            await store.samples.write(
                "books", epoch, fence, [NewSample(5, b"five"), NewSample(6, b"six")]
            )
        assert [one.content for one in await samples(store)] == [b"five", b"six"]
        await store.samples.write(
            "books", epoch, 3, [NewSample(5, b"five again")]
        )  # after a rollback
        assert (await samples(store))[-1] == StoredSample(SampleId(3, 5), b"five again")

    with_store(url, act)


def test_samples_of_a_deleted_model_are_not_written(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        epoch, *_ = await store.states.position("books")
        await store.samples.write("books", epoch, 1, [NewSample(1, b"one")])
        await store.samples.watch("books")
        await store.models.delete("books")
        await store.samples.write("books", epoch, 1, [NewSample(2, b"two")])
        with client(url) as connection:
            assert not connection.exists(Keys("books").samples, Keys("books").watched)
        await store.models.create("books", first())
        await store.samples.write("books", epoch, 1, [NewSample(3, b"three")])
        assert await samples(store) == []

    with_store(url, act)


def test_a_store_that_refuses_samples_does_not_disturb_the_learner(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await store.samples.watch("books")
        with client(url) as connection:
            connection.set(Keys("books").samples, "no stream")
            async with learning(store, replace(SHORT_INTERVALS, commit=0.0)):
                for at in range(30):
                    await append(store, blobs(at, at + 1))
                state = await committed(store, 30)
            assert connection.get(Keys("books").samples) == b"no stream"
        assert state.measures()["feedback"] == 30.0

    with_store(url, act)


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_samples_are_written_and_read_on_every_kind_of_store(kind: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", start())
        assert await store.samples.watch("books") == (1, SampleId(0, 0))
        await show(store, "r1")
        async with learning(store):
            await append_on_request(store, "r1")
            [found] = await written(store, 1)
        assert found["ids"] == ["d0", "d1", "d2", "d3"]
        assert await store.samples.watch("books") == (1, SampleId(1, 1))
        assert await store.samples.keeps("books", SampleId(1, 1))

    with started(kind) as url:
        with_store(url, act)
