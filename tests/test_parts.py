"""A record learnt in parts: the same bits wherever it is cut, and no work lost."""

import asyncio
import threading
from dataclasses import replace
from itertools import count
from time import monotonic
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.model import ModelState, Part
from app.domain.records import Feedback, ResetMeasures
from app.domain.reducer import Reducer, decoded
from app.errors import Fenced, Full
from app.learning import applying, session
from app.learning.applying import apply_for
from app.learning.learner import Learner
from app.learning.options import LearnerOptions
from app.learning.replay import verify
from app.learning.session import LeaderSession
from app.ranking.bounds import bounded
from app.ranking.pairs import Pairs
from app.storage.keys import Keys
from app.storage.log import LogEntry
from app.storage.states import NewVersion, States, dump_part, dump_state, load_state
from app.storage.store import Store
from tests.servers import client, eventually, server, url, with_store
from tests.test_codec import bits
from tests.test_learner import append, blobs, committed, feedback, first, learning, replayed
from tests.test_reducer import ALGORITHMS, applied, blob_logs, start

__all__ = ["server", "url"]  # fixtures

KEYS = Keys("books")
#: Every pair is a turn, and every turn ends with a commit.
PAIR_BY_PAIR = LearnerOptions(
    lease=2.0, commit=0.0, idle=0.05, discover=0.02, part=0.0, part_share=0.0, slice=0.0,
    slice_work=1,
)  # fmt: skip


def long_record(at: int = 0, documents: int = 12) -> bytes:
    """Up to 30 documents have different labels: 66 pairs of 12."""
    rng = np.random.default_rng(at)
    rows = rng.standard_normal((documents, 4)).astype(np.float32)
    labels = (rng.permutation(documents) % 30).astype(np.float64)
    return codec.dump_record(Feedback(f"long{at}", "labels", rows, labels=labels))


LONG = long_record()
PAIRS = 66


def cut(state: ModelState, blob: bytes, pairs: int) -> tuple[ModelState, Part]:
    """The state and the part after the first pairs of the next record."""
    reducer = Reducer(state)
    assert not reducer.apply_part(blob, decoded(blob), pairs)
    part = reducer.part()
    assert part is not None
    return reducer.state(), part


def stored_and_loaded(state: ModelState, part: Part | None) -> ModelState:
    """The state after encoding and decoding all its fields."""
    names = (b"w", b"spread", b"sums", b"meta")
    fields = dict(zip(names, dump_state(state), strict=True))
    fields |= {b"seq": str(state.seq).encode(), b"chain": state.chain}
    return load_state({**fields, b"part": b"" if part is None else dump_part(part)})


# ---- reducer ----


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=" ".join)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_parts_of_records_have_the_bits_of_whole_records(
    algorithm: Any, data: st.DataObject
) -> None:
    begin = start(
        algorithm=algorithm[0], covariance=algorithm[1], C=0.5, gamma=10.0,
        pair_bound=data.draw(st.sampled_from([None, 0.5, 20.0])),
        counting=data.draw(st.sampled_from([None, 2, 3])),
    )  # fmt: skip
    log = data.draw(blob_logs())
    reducer = Reducer(begin)
    for blob in log:
        complete = False
        while not complete:
            complete = reducer.apply_part(blob, decoded(blob), data.draw(st.integers(1, 5)))
            if data.draw(st.booleans()):
                reducer = Reducer(stored_and_loaded(reducer.state(), reducer.part()))
    assert bits(reducer.state()) == bits(applied(begin, log))


def test_a_part_changes_neither_the_weights_nor_the_measures_of_the_state() -> None:
    before = applied(start(4), [feedback(1)])
    for pairs in (1, 2, PAIRS - 1):
        state, part = cut(before, LONG, pairs)
        assert bits(state) == bits(before)
        assert part.pairs == sum(part.tally[:3]) == pairs
        assert part.weights.tobytes() != before.model.weights.tobytes()
    after = applied(before, [LONG])
    assert after.measures()["queries"] == before.measures()["queries"] + 1
    assert after.measures()["feedback"] == before.measures()["feedback"] + 1


def test_a_record_continues_after_its_part() -> None:
    state, part = cut(start(4), LONG, 40)
    reducer = Reducer(replace(state, part=part))
    assert not reducer.apply_part(LONG, decoded(LONG), PAIRS - 41)
    assert reducer.learnt_pairs == PAIRS - 1  # 40 pairs of the part, 25 new ones
    assert reducer.apply_part(LONG, None, 1)
    assert bits(reducer.state()) == bits(applied(start(4), [LONG]))


def test_a_part_bounds_its_own_pairs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at all 100,000 pairs of a record of 100,000 features took 2 s in one turn."""
    looked_at = list[int]()

    def spy(documents: Any, pairs: Pairs, bound: float | None) -> tuple[Pairs, int]:
        looked_at.append(len(pairs))
        return bounded(documents, pairs, bound)

    monkeypatch.setattr("app.domain.reducer.bounds.bounded", spy)
    state, part = cut(start(4, pair_bound=0.5), LONG, 40)
    assert looked_at == [40]
    assert 0 < part.scaled <= 40
    whole = applied(start(4, pair_bound=0.5), [LONG])
    assert bits(applied(stored_and_loaded(state, part), [LONG])) == bits(whole)
    assert whole.measures()["bounded"] > part.scaled


def test_the_part_of_another_record_is_learnt_again() -> None:
    state, part = cut(start(4), LONG, 40)
    other = long_record(1)  # a failover has lost the record, and another one has its number
    assert bits(applied(replace(state, part=part), [other])) == bits(applied(start(4), [other]))
    both = [codec.dump_record(ResetMeasures()), LONG]
    assert bits(applied(replace(state, part=part), both)) == bits(applied(start(4), both))


@pytest.mark.parametrize(
    "wrong",
    [
        {"pairs": PAIRS},
        {"pairs": PAIRS + 1},
        {"weights": np.zeros(3)},
        {"spread": np.zeros(10)},
        {"spread": np.zeros(3)},
    ],
    ids=["all pairs", "too many pairs", "weights of another model", "no variance", "no covariance"],
)
def test_an_impossible_part_is_learnt_again(wrong: dict[str, Any]) -> None:
    state, part = cut(start(4), LONG, 40)
    found = applied(replace(state, part=replace(part, **wrong)), [LONG])
    assert bits(found) == bits(applied(start(4), [LONG]))


def test_a_damaged_part_does_not_damage_the_state() -> None:
    state, part = cut(start(4), LONG, 40)
    names = (b"w", b"spread", b"sums", b"meta")
    fields = dict(zip(names, dump_state(state), strict=True))
    fields |= {b"seq": b"0", b"chain": state.chain}
    blob = dump_part(part)
    for damaged in (blob[:-1], blob[:50] + b"?" + blob[51:], b"junk", dump_state(state)[0]):
        assert bits(load_state({**fields, b"part": damaged})) == bits(state)
    assert part.equals(load_state({**fields, b"part": blob}).part)


# ---- store ----


async def begun(store: Store) -> tuple[Any, int, ModelState]:
    """Create a model with one long record; return its position, a fence and its state."""
    await store.models.create("books", first())
    await append(store, [LONG])
    fence = await store.leases.take("books", 0, 5.0)
    return await store.states.position("books"), fence, (await store.states.load("books")).state


def test_a_part_is_committed_beside_the_state_and_is_not_served(url: str) -> None:
    async def act(store: Store) -> None:
        base, fence, state = await begun(store)
        served = await store.states.load_weights("books")
        _, part = cut(state, LONG, 40)
        await store.states.commit_part("books", base, fence, dump_part(part))
        assert part.equals((await store.states.load("books")).state.part)
        without = (await store.states.load("books", with_part=False)).state
        assert (without.part, bits(without)) == (None, bits(state))
        assert await store.states.position("books") == base
        now = await store.states.load_weights("books")
        assert now.weights.tobytes() == served.weights.tobytes()
        assert await verify(store, "books") == []
        kept = NewVersion()
        await store.states.commit("books", base, fence, applied(state, [LONG]), version=kept)
        assert (await store.states.load("books")).state.part is None
        assert (await store.states.version("books", 1)).state.part is None

    with_store(url, act)


def test_a_part_is_refused_on_another_state_and_from_another_learner(url: str) -> None:
    async def act(store: Store) -> None:
        base, fence, state = await begun(store)
        blob = dump_part(cut(state, LONG, 40)[1])
        with pytest.raises(Fenced, match="another learner has the lease"):
            await store.states.commit_part("books", base, fence + 1, blob)
        for other in ((base[0] + 1, *base[1:]), (base[0], 1, base[2]), (*base[:2], b"another")):
            with pytest.raises(Fenced, match="the committed state has changed"):
                await store.states.commit_part("books", other, fence, blob)
        assert (await store.states.load("books")).state.part is None

    with_store(url, act)


def test_a_wrong_part_is_reported(url: str) -> None:
    async def act(store: Store) -> None:
        base, fence, state = await begun(store)
        _, part = cut(state, LONG, 40)
        wrong = replace(part, weights=part.weights + 1.0)
        await store.states.commit_part("books", base, fence, dump_part(wrong))
        assert await verify(store, "books") == [
            "record 1: the replay differs from its committed part"
        ]
        lost = replace(part, chain=b"another record")
        await store.states.commit_part("books", base, fence, dump_part(lost))
        assert await verify(store, "books") == []

    with_store(url, act)


# ---- turns ----


@pytest.mark.parametrize(
    ("size", "decodings"),
    [(1 << 20, 4 + 3 + 2 + 1), (1, 4)],
    ids=["small records", "large records"],
)
def test_a_turn_within_a_record_decodes_no_other_record(
    size: int, decodings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that a turn decodes and does not reach are decoded again."""
    seen = list[bytes]()

    def counted(blob: bytes) -> Any:
        seen.append(blob)
        return decoded(blob)

    monkeypatch.setattr(applying, "DECODE_BYTES", size)
    monkeypatch.setattr(applying, "decoded", counted)
    records = [long_record(at) for at in range(4)]
    left = [LogEntry(seq, blob, 0) for seq, blob in enumerate(records, start=1)]
    reducer, turns = Reducer(first()), 0
    while left:
        left = left[apply_for(reducer, left, 0.0, PAIR_BY_PAIR) :]
        turns += 1
    assert turns == 4 * PAIRS
    assert len(seen) == decodings
    assert bits(reducer.state()) == bits(replayed(first(), records))


# ---- learner ----


async def progress(store: Store) -> tuple[int, int]:
    """The committed records, and the committed pairs of the next one."""
    state = (await store.states.load("books")).state
    return state.seq, 0 if state.part is None else state.part.pairs


class Killed(Exception):
    """The end of a learner: it makes no last commit."""


def test_learners_that_end_at_every_part_continue_after_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each learner is killed right after its first commit, of a part or of records."""

    def killing(commit: Any) -> Any:
        async def killed(*about: Any, **more: Any) -> None:
            await commit(*about, **more)
            raise Killed

        return killed

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        records = [feedback(1), LONG, feedback(2), long_record(1)]
        await append(store, records)
        seen: list[tuple[int, int]] = []
        while (before := await progress(store))[0] < len(records):
            seen.append(before)
            with pytest.raises(Killed):
                await Learner(store, "books", PAIR_BY_PAIR).run(asyncio.Event())
        assert seen == sorted(set(seen))  # never backwards
        assert seen[-PAIRS:] == [(3, pairs) for pairs in range(PAIRS)]  # pair by pair
        state = (await store.states.load("books")).state
        assert bits(state) == bits(replayed(first(), records))
        assert await verify(store, "books") == []

    monkeypatch.setattr(States, "commit", killing(States.commit))
    monkeypatch.setattr(States, "commit_part", killing(States.commit_part))
    with_store(url, act)


def test_a_commit_names_one_record_of_each_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store compares each of them, and a record may be large."""
    named, commit = list[list[int]](), States.commit

    async def counted(self: States, *about: Any, learnt: Any, **more: Any) -> None:
        named.append([entry.seq for entry in learnt])
        await commit(self, *about, learnt=learnt, **more)

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 10))
        fence = await store.leases.take("books", 0, 5.0)
        turns_of_one_record = replace(PAIR_BY_PAIR, commit=1000.0, slice_work=20_000_000)
        leader = await LeaderSession.begin(store, "books", fence, turns_of_one_record)
        monkeypatch.setattr(States, "commit", counted)
        for _ in range(10):  # turns
            await leader.round()
        await append(store, blobs(10, 15))
        for _ in range(5):
            await leader.round()
        await leader.commit()
        await leader.commit_done()
        assert named == [[1], [10, 15]]
        assert bits((await store.states.load("books")).state) == bits(
            replayed(first(), blobs(0, 15))
        )

    with_store(url, act)


def test_a_thread_restores_the_model_of_a_session(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full covariance of 1,500 features takes 150 ms: other models would wait for that."""
    threads = list[threading.Thread]()

    class Noted(Reducer):
        def __init__(self, state: ModelState) -> None:
            threads.append(threading.current_thread())
            super().__init__(state)

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, [feedback(1)])
        monkeypatch.setattr(session, "Reducer", Noted)
        async with learning(store):
            await committed(store, 1)
        assert threads
        assert threading.main_thread() not in threads

    with_store(url, act)


def test_a_record_has_no_part_before_the_interval_has_passed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first part after a takeover is committed at once."""
    now, parts, commit_part = 0.0, list[int](), States.commit_part

    async def counted(self: States, model: str, base: Any, *about: Any) -> None:
        parts.append(base[1] + 1)
        await commit_part(self, model, base, *about)

    async def act(store: Store) -> None:
        nonlocal now
        await store.models.create("books", first())
        monkeypatch.setattr(States, "commit_part", counted)
        async with learning(store, replace(PAIR_BY_PAIR, part=10.0, clock=lambda: now)):
            for seq in (1, 2, 3):
                await append(store, [long_record(seq)])
                await committed(store, seq)
                now += 60.0  # without a record
        assert parts == [1]

    with_store(url, act)


def test_a_stop_within_a_record_commits_its_part(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        record = long_record(0, 300)  # 43,500 pairs take seconds, one by one
        await append(store, [record])
        looks = count()  # at the clock: some after each pair
        rare = replace(  # after the first part none is due
            PAIR_BY_PAIR, part=1000.0, clock=lambda: (next(looks), monotonic())[1]
        )
        async with learning(store, rare):
            await eventually(lambda: progress(store), lambda found: found[1] > 0)
            more = next(looks) + 1000
            await eventually(lambda: asyncio.sleep(0.0, next(looks)), lambda found: found > more)
        part = (await store.states.load("books")).state.part
        assert part is not None
        assert part.pairs > 1
        assert part.equals(cut(first(), record, part.pairs)[1])
        async with learning(store):
            state = await committed(store, 1)
        assert bits(state) == bits(replayed(first(), [record]))

    with_store(url, act)


def test_a_full_store_takes_no_parts_and_the_record_is_learnt(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    async def full(*_: Any) -> None:
        refused.append(1)
        raise Full("the store is full")

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, [LONG])
        monkeypatch.setattr(States, "commit_part", full)
        async with learning(store, PAIR_BY_PAIR):
            state = await committed(store, 1)
        assert bits(state) == bits(replayed(first(), [LONG]))
        assert len(refused) > 1

    with_store(url, act)


def test_a_full_server_refuses_a_part(url: str) -> None:
    async def act(store: Store) -> None:
        base, fence, state = await begun(store)
        blob = dump_part(cut(state, LONG, 40)[1])
        with client(url) as connection:
            before = connection.config_get("maxmemory")["maxmemory"]
            connection.config_set("maxmemory", 1)
            try:
                with pytest.raises(Full):
                    await store.states.commit_part("books", base, fence, blob)
            finally:
                connection.config_set("maxmemory", before)

    with_store(url, act)
