"""The work of records: how it is counted, and the backlog limit by work."""

from dataclasses import replace
from random import Random
from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import codec
from app.domain.click_pairs import ClickPairs
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.domain.work import (
    RECORD_WORK,
    VALUE_WORK,
    label_pairs,
    most_pairs,
    pair_work,
    record_work,
)
from app.errors import Backlog, InvalidInput, WorkBacklog
from app.ingest.appender import MOST_GRADED_EVENTS
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.limits import KAPPA
from app.ranking.pairs import from_labels
from app.storage.keys import Keys, internal_event
from app.storage.log import APPENDED, REPEATED, NewRecord
from app.storage.states import NewVersion, dump_state
from app.storage.store import Store
from tests.backends import anywhere, anywhere_emptied, client, on_servers, with_store
from tests.old_scripts import old_script
from tests.test_store import append, event, first, keys_of, later

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

KEYS = Keys("books")
SHOWN = 7


# ---- counting ----


def test_a_pair_takes_n_squared_with_a_full_covariance_else_n() -> None:
    names = tuple(f"f{at}" for at in range(100))
    assert pair_work(ModelConfig(names)) == 10_200
    assert pair_work(ModelConfig(names, "solar-ii", "diagonal")) == 1_000
    assert pair_work(ModelConfig(names, "solar-i")) == 1_000


def test_work_is_that_of_the_pairs_and_of_the_record() -> None:
    documents, labels = np.zeros((400, 2), np.float32), np.repeat([0.0, 1.0], 200)
    heavy = Feedback("e", "labels", documents, labels=labels)
    assert record_work(heavy, 1000) - record_work(heavy, 0) == 40_000 * 1000
    triplets = Feedback("e", "triplets", documents, preferred=np.arange(3), other=np.arange(3) + 1)
    assert record_work(triplets, 1000) - record_work(triplets, 0) == 3000
    assert record_work(triplets, 0) > RECORD_WORK


def test_clicks_are_charged_for_the_pairs_of_all_clicks_on_the_ranking() -> None:
    """They are made again, and compared with the earlier ones; labels are not."""
    documents, so_far = np.zeros((100, 1), np.float32), PriorFeedback.load(b"")
    posted = [Feedback("e", "clicks", documents, clicks=np.array([at])) for at in range(3)]
    charged = []
    for one in posted:
        record, so_far = on_request(one, so_far)
        charged.append(record_work(record, 0) - RECORD_WORK - 100 * VALUE_WORK)
    assert charged == [clicked * (100 - clicked) * (4_000 + 8 * 100) for clicked in (1, 2, 3)]
    labels, _ = on_request(Feedback("e", "labels", documents, labels=np.ones(100)), so_far)
    assert record_work(labels, 0) == RECORD_WORK + 100 * VALUE_WORK


@given(st.lists(st.integers(0, 3), max_size=20))
def test_pairs_of_labels_are_counted_exactly(labels: list[int]) -> None:
    given = [float(one) for one in labels]
    assert label_pairs(given) == len(from_labels(np.array(given), np.arange(len(given))).listed())


@given(
    events=st.lists(st.lists(st.integers(0, SHOWN - 1), max_size=3), min_size=1, max_size=5),
    odds=st.lists(st.floats(0.01, 1.0), min_size=SHOWN + 1, max_size=SHOWN + 1),
    graded=st.randoms(use_true_random=False),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
def test_clicks_give_at_most_the_counted_pairs_with_every_strategy(
    strategy: str, events: list[list[int]], odds: list[float], graded: Random, share: float
) -> None:
    """Also with gains and examined positions in a share of the events."""
    about: dict[str, Any] = {"odds": np.array(odds)}
    if strategy == "fair-pairs":
        about = {"swaps": np.array([[0, 1], [2, 0], [5, 1]])}
    so_far = PriorFeedback.load(b"")
    for clicks in events:
        documents = np.zeros((SHOWN, 1), np.float32)
        posted = Feedback("e", "clicks", documents, clicks=np.array(clicks, np.int64), **about)
        if graded.random() < share:
            gains = np.array([graded.choice([0.0, 1.0, 2.5, 10.0]) for _ in clicks])
            examined = np.array([graded.randint(0, SHOWN)])
            posted = replace(posted, gains=gains, examined=examined)
        record, so_far = on_request(posted, so_far)
        assert len(ClickPairs(record, KAPPA).new_pairs(strategy).listed()) <= most_pairs(record)


def clicks_in_events(events: int, clicks: int, documents: int) -> Feedback:
    """The last of several events with the same number of clicks, on one ranking."""
    so_far, rows = PriorFeedback.load(b""), np.zeros((documents, 1), np.float32)
    for some in np.arange(clicks).reshape(events, -1):
        record, so_far = on_request(Feedback("e", "clicks", rows, clicks=some), so_far)
    return record


def test_clicks_are_charged_for_the_weights_of_their_pairs() -> None:
    """112 clicks on 1,000 documents took 0.04 s, and were charged for 0.002 s."""
    assert record_work(clicks_in_events(1, 112, 1000), 204) > 400_000_000


def test_clicks_are_charged_for_the_pairs_of_earlier_clicks_once() -> None:
    many, few = (record_work(clicks_in_events(one, 100, 1000), 0) for one in (100, 2))
    assert many == few


def bought_in_events(events: int, clicks: int, documents: int, strategy: str) -> Feedback:
    """The last of several events on one ranking, with other gains in each."""
    random, so_far = np.random.default_rng(1), PriorFeedback.load(b"")
    rows = random.random((documents, 2)).astype(np.float32)
    about: dict[str, Any] = {"odds": np.ones(documents + 1)} if strategy == "debiased" else {}
    for at in range(events):
        some = random.permutation(documents)[:clicks]
        gains = 10.0 * (at + random.random(clicks)) / events
        event = Feedback("e", "clicks", rows, np.arange(documents), clicks=some, gains=gains,
                         query="r", **about)  # fmt: skip
        record, so_far = on_request(event, so_far)
    return record


@pytest.mark.parametrize("strategy", ["debiased", "click-skip-above"])
@pytest.mark.parametrize(
    ("events", "clicks", "documents"),
    [(1, 1, 10), (20, 1, 10), (20, 3, 100), (1, 500, 1000), (MOST_GRADED_EVENTS, 1, 1000),
     (20, 500, 1000)],
)  # fmt: skip
def test_clicks_with_gains_are_charged_for_what_they_take(
    strategy: str, events: int, clicks: int, documents: int
) -> None:
    """Of 2,000 events on 1,000 documents the last took 40 s before there was a limit."""
    record = bought_in_events(events, clicks, documents, strategy)
    config = ModelConfig(("a", "b"), clicks=strategy)
    blob, seconds = codec.dump_record(record), list[float]()
    for _ in range(4):  # the first one may compile
        reducer = Reducer(initial_state(config))
        start = process_time()
        assert reducer.apply(blob)
        seconds.append(process_time() - start)
    assert min(seconds) < 4e-10 * record_work(record, pair_work(config))  # a busy machine is slower


# ---- limit ----


def worth(name: str, work: int) -> NewRecord:
    return event(name)._replace(work=work)


async def commit(store: Store, fence: int, seq: int) -> None:
    """Commit as a learner does: with the work of the last record."""
    base = await store.states.position("books")
    [entry] = await store.log.read("books", seq - 1, 1)
    await store.states.commit("books", base, fence, later(first(), seq), work=entry.work)


def test_a_post_over_the_limit_of_work_is_refused_and_nothing_is_stored(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        limits = {"work_limit": 1000}
        await append(store, epoch, worth("a", 300), worth("b", 400), **limits)
        before = keys_of(url)
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("c", 200), worth("d", 101), **limits)
        assert keys_of(url) == before
        assert await store.log.tail("books") == 2
        assert await append(store, epoch, worth("c", 300), **limits) == [(APPENDED, 3)]
        assert [one.work for one in await store.log.read("books", 0, 9)] == [300, 700, 1000]

    with_store(url, act)


def test_work_of_committed_records_no_longer_counts(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        limits = {"work_limit": 1000}
        await append(store, epoch, worth("a", 600), worth("b", 400), **limits)
        fence = await store.leases.take("books", 0, 5.0)
        await commit(store, fence, 1)
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("c", 601), **limits)
        assert await append(store, epoch, worth("c", 600), **limits) == [(APPENDED, 3)]
        await commit(store, fence, 3)
        assert await append(store, epoch, worth("d", 1000), **limits) == [(APPENDED, 4)]
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("e", 1), **limits)
        assert (await store.models.statuses(["books"]))["books"].waiting_work == 1000.0

    with_store(url, act)


def test_one_event_over_the_limit_is_accepted_if_no_record_waits(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        assert await append(store, epoch, worth("a", 5000), work_limit=1000) == [(APPENDED, 1)]
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("b", 1), work_limit=1000)

    with_store(url, act)


def test_several_events_that_alone_exceed_the_limit_are_invalid(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with pytest.raises(InvalidInput, match="SOLAR_BACKLOG_WORK"):
            await append(store, epoch, worth("a", 600), worth("b", 600), work_limit=1000)
        assert await store.log.tail("books") == 0

    with_store(url, act)


def test_repeated_events_take_no_work(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        some = [worth("a", 500), worth("b", 400)]
        await append(store, epoch, *some, work_limit=1000)
        assert await append(store, epoch, *some, worth("c", 100), *some, work_limit=1000) == [
            (REPEATED, 1), (REPEATED, 2), (APPENDED, 3), (REPEATED, 1), (REPEATED, 2),
        ]  # fmt: skip

    with_store(url, act)


def test_records_of_the_service_are_not_refused_for_the_work_that_waits(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await append(store, epoch, worth("a", 1000), work_limit=1000)
        record = NewRecord(internal_event("admin", "1"), b"", b"replace")
        assert await append(store, epoch, record) == [(APPENDED, 2)]
        with pytest.raises(Backlog):  # by records
            await append(store, epoch, record._replace(event="\x01admin-2"), limit=2)

    with_store(url, act)


def test_a_commit_that_rewrites_a_state_keeps_what_is_known_of_its_work(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await append(store, epoch, worth("a", 600), worth("b", 900), work_limit=2000)
        fence = await store.leases.take("books", 0, 5.0)
        await commit(store, fence, 1)
        base = await store.states.position("books")
        kept = NewVersion()
        await store.states.commit("books", base, fence, later(first(), 1), version=kept, again=True)
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("c", 200), work_limit=1000)

    with_store(url, act)


def test_work_is_counted_beyond_the_whole_numbers_of_a_double(url: str) -> None:
    """2^53 units are 10 days of learning."""

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with client(url) as connection:
            connection.hset(KEYS.state, "charged", "900000000000000000000")
        await append(store, epoch, worth("a", 10**12), work_limit=10**12)
        fence = await store.leases.take("books", 0, 5.0)
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("b", 10**12), work_limit=10**12)
        await commit(store, fence, 1)
        await append(store, epoch, worth("b", 10**12), work_limit=10**12)

    with_store(url, act)


@pytest.mark.parametrize("damage", [{"charged": "junk"}, {"worked": "0:junk"}, {"seq": "junk"}])
def test_damaged_work_is_unknown(url: str, damage: dict[str, str]) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await append(store, epoch, worth("a", 1000))
        with client(url) as connection:
            for name, value in damage.items():
                connection.hset(KEYS.state, name, value)
        assert (await store.models.statuses(["books"]))["books"].waiting_work == 0.0

    with_store(url, act)


# ---- beside older processes ----


class OlderLearner:
    """A learner of release 0.2: its commit knows nothing of work."""

    def __init__(self, url: str, epoch: int, fence: int) -> None:
        self._url, self._epoch, self._fence = url, epoch, fence

    def commit(self, base: ModelState, state: ModelState) -> None:
        keys = [KEYS.state, KEYS.fence, KEYS.log, KEYS.snapshots, KEYS.state, KEYS.seq]
        position = [self._epoch, self._fence, base.seq, base.chain, state.seq, state.chain]
        values = [*position, *dump_state(state), 0, 0, 0]
        assert old_script(self._url, "commit", keys, *values) == 0


def append_as_0_2(url: str, epoch: int, name: str) -> None:
    keys = [KEYS.state, KEYS.seq, KEYS.log, KEYS.event(epoch, name), KEYS.state]
    values = [epoch, 1000, 60_000, 5, "", "0", 16 * b"d", b"record", "", "", ""]
    assert old_script(url, "append", keys, *values)[0] == 0


@on_servers
def test_after_the_commit_of_an_older_learner_nothing_is_refused_for_earlier_work(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        fence = await store.leases.take("books", 0, 5.0)
        await append(store, epoch, worth("a", 900), worth("b", 100), work_limit=1000)
        OlderLearner(url, epoch, fence).commit(first(), later(first(), 1))
        assert await append(store, epoch, worth("c", 950), work_limit=1000) == [(APPENDED, 3)]
        await commit(store, fence, 2)  # a newer learner: the work is known again
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("d", 100), work_limit=1000)

    with_store(url, act)


@on_servers
def test_a_record_of_an_older_process_makes_the_work_unknown_until_the_next_commit(
    url: str,
) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        fence = await store.leases.take("books", 0, 5.0)
        append_as_0_2(url, epoch, "old")
        await append(store, epoch, worth("a", 900), work_limit=1000)
        await commit(store, fence, 1)
        await append(store, epoch, worth("b", 900), work_limit=1000)
        await commit(store, fence, 2)
        with pytest.raises(WorkBacklog):
            await append(store, epoch, worth("c", 200), work_limit=1000)

    with_store(url, act)


@on_servers
@pytest.mark.parametrize("seed", range(5))
def test_beside_older_processes_a_post_is_accepted_once_all_records_are_learnt(
    url: str, seed: int
) -> None:
    rng = Random(seed)  # noqa: S311

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        fence = await store.leases.take("books", 0, 60.0)
        older = OlderLearner(url, epoch, fence)
        for at in range(60):
            tail, (_, seq, _) = await store.log.tail("books"), await store.states.position("books")
            match rng.choice(["post", "post", "old post", "commit", "old commit"]):
                case "post":
                    try:
                        await append(store, epoch, worth(f"e{at}", 400), work_limit=1000)
                    except WorkBacklog:
                        assert tail > seq
                case "old post":
                    append_as_0_2(url, epoch, f"old{at}")
                case "commit" if tail > seq:
                    await commit(store, fence, rng.randint(seq + 1, tail))
                case "old commit" if tail > seq:
                    before = later(first(), seq) if seq else first()
                    older.commit(before, later(first(), rng.randint(seq + 1, tail)))
        tail, (_, seq, _) = await store.log.tail("books"), await store.states.position("books")
        if tail > seq:
            older.commit(later(first(), seq) if seq else first(), later(first(), tail))
        assert await append(store, epoch, worth("last", 1000), work_limit=1000)

    with_store(url, act)
