"""The learner of followers on a real store: another fold of the leader's log."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.cli.log import show_log
from app.cli.replay import replay_log
from app.cli.verify import verify_models
from app.domain import codec
from app.domain.facts import Committed
from app.domain.followers import MOST_BEHIND, follower_config, follower_state
from app.domain.model import ModelState
from app.domain.records import Feedback, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer
from app.errors import BadBlob, NoSuchModel, SolarError
from app.learning.follower_session import EARLY_COMMIT, FollowerSession
from app.learning.learner import Learner
from app.learning.options import Fact
from app.learning.replay import replay, verify
from app.learning.session import LeaderSession
from app.storage.cancellation import end
from app.storage.keys import keys_of
from app.storage.store import Store
from tests.servers import client, eventually, server, url, with_store
from tests.test_codec import bits
from tests.test_learner import (
    SHORT_INTERVALS,
    append,
    blobs,
    committed,
    feedback,
    first,
    learning,
    replacement,
)
from tests.test_rollback import StoreSnapshot

__all__ = ["server", "url"]  # fixtures

FOLLOWER = "books/books-b"
OPTIONS = replace(SHORT_INTERVALS, follow=0.01)
VERSIONED = replace(OPTIONS, version=5, versions=3)


async def follow(
    store: Store, name: str = "books-b", start: int | None = None, **changes: Any
) -> ModelState:
    """Create a follower of the committed state, or of a version; return its first state."""
    if start is None:
        stored = await store.states.load("books")
    else:
        stored = await store.states.version("books", start)
    config = follower_config(stored.state.model.config, **changes)
    state = follower_state(replace(stored.state, part=None), config)
    await store.followers.create("books", stored.epoch, {name: state})
    return state


def folded(state: ModelState, records: list[bytes]) -> ModelState:
    """Return a follower after the records that follow its state, as a sequential fold."""
    reducer = Reducer(state, follows=True)
    for record in records[state.seq :]:
        reducer.apply(record)
    return reducer.state()


def long_feedback(at: int, documents: int = 400) -> bytes:
    """Return feedback with enough pairs to be learnt in parts."""
    rng = np.random.default_rng(at)
    rows = rng.standard_normal((documents, 4)).astype(np.float32)
    labels = rng.integers(0, 3, documents).astype(np.float64)
    return codec.dump_record(Feedback(f"long{at}", "labels", rows, labels=labels))


def weights_of(state: ModelState) -> tuple[bytes, bytes]:
    return state.model.weights.tobytes(), state.model.spread.tobytes()


# ---- records ----


def test_a_follower_with_equal_settings_has_the_weights_of_its_leader_bit_for_bit(url: str) -> None:
    """Also if records are cut into parts, are damaged, or arrive while both learn."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        cuts = replace(OPTIONS, slice=0.0, follower_slice=0.0, slice_work=200_000, part=0.001)
        async with learning(store, cuts):
            await append(store, blobs(0, 7))
            await committed(store, 7)
            await follow(store)
            await follow(store, "books-c", gamma=7.0)
            records = [*blobs(7, 60), b"junk", long_feedback(1), *blobs(60, 80), long_feedback(2)]
            for begin in range(0, len(records), 9):
                await append(store, records[begin : begin + 9])
            end = 7 + len(records)
            leader = await committed(store, end)
            follower = await committed(store, end, FOLLOWER)
            other = await committed(store, end, "books/books-c")
        assert weights_of(follower) == weights_of(leader) != weights_of(other)
        assert follower.chain == other.chain == leader.chain
        assert [await verify(store, name) for name in ("books", FOLLOWER)] == [[], []]

    with_store(url, act)


def test_a_follower_keeps_its_settings_through_all_records_of_its_leader(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        start = await follow(store, gamma=7.0)
        rolled = replace(first().model, weights=np.full(4, 5.0))
        records = [
            *blobs(0, 9), replacement(2.0), *blobs(9, 15),
            codec.dump_record(Retune(gamma=3.0)), *blobs(15, 20),
            codec.dump_record(Replace(rolled, "rollback to version 3")), *blobs(20, 25),
            codec.dump_record(Replace(first().model, "warm start of a job")), *blobs(25, 30),
            codec.dump_record(ResetMeasures()), *blobs(30, 33),
        ]  # fmt: skip
        async with learning(store, OPTIONS):
            for begin in range(0, len(records), 5):
                await append(store, records[begin : begin + 5])
            leader = await committed(store, len(records))
            follower = await committed(store, len(records), FOLLOWER)
        assert bits(follower) == bits(folded(start, records))
        assert (follower.model.config.gamma, leader.model.config.gamma) == (7.0, 100.0)
        versions = await store.states.versions("books")
        assert len(versions) == 4
        assert await store.states.versions(FOLLOWER) == versions
        assert [await verify(store, name) for name in ("books", FOLLOWER)] == [[], []]

    with_store(url, act)


def test_a_follower_of_an_older_version_catches_up(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, VERSIONED):
            records = blobs(0, 23)
            for begin in range(0, 23, 7):
                await append(store, records[begin : begin + 7])
                await committed(store, min(23, begin + 7))
            versions = await store.states.versions("books")
            assert versions == [10, 15, 20]
            start = await follow(store, start=10, gamma=7.0)
            state = await committed(store, 23, FOLLOWER)
        assert bits(state) == bits(folded(start, records))
        assert await store.states.versions(FOLLOWER) == versions
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


def test_a_follower_never_passes_the_committed_state_of_its_leader(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 9))
        start = await follow(store)
        stop = asyncio.Event()
        behind = asyncio.create_task(Learner(store, FOLLOWER, OPTIONS).run(stop))
        await asyncio.sleep(0.2)
        assert (await store.states.position(FOLLOWER))[1] == 0
        ahead = asyncio.create_task(Learner(store, "books", OPTIONS).run(stop))
        state = await committed(store, 9, FOLLOWER)
        stop.set()
        await asyncio.gather(behind, ahead)
        assert bits(state) == bits(folded(start, blobs(0, 9)))

    with_store(url, act)


def test_a_follower_commits_before_it_is_too_late_for_duels(url: str) -> None:
    """All records are learnt long before its interval ends."""
    commits = list[int]()

    def note(fact: Fact) -> None:
        if isinstance(fact, Committed) and fact.model == FOLLOWER:
            commits.append(fact.records)

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 1_200))
        async with learning(store, replace(OPTIONS, follow=1.0, commit_share=0.0), note):
            await committed(store, 1_200)
            await follow(store, start=0)
            await committed(store, 1_200, FOLLOWER)
        assert max(commits) <= EARLY_COMMIT + OPTIONS.batch < MOST_BEHIND

    with_store(url, act)


def test_a_follower_looks_at_its_leader_sooner_if_records_arrive_faster(url: str) -> None:
    now = 0.0

    async def act(store: Store) -> None:
        nonlocal now
        await store.models.create("books", first())
        await follow(store)
        options = replace(OPTIONS, commit=0.03, follow=0.5, clock=lambda: now)
        fence = await store.leases.take(FOLLOWER, 0, 60.0)
        session = await FollowerSession.begin(store, FOLLOWER, fence, options)
        timeout, waits = session._read_timeout, list[float]()
        session._read_timeout = lambda: waits.append(timeout()) or 0.0  # type: ignore[method-assign,func-returns-value]
        async with learning(store, OPTIONS):
            for end in (10, 110, 210, 220):  # the first record is committed at once
                await append(store, blobs(await store.log.tail("books"), end))
                await committed(store, end)
                now += 0.1
                while session._reducer.seq < end:
                    await session.round()
        await session.commit_done()
        # of 250 records 141 are missing, at 100 in 0.1 s; then 41; then the commit is due
        assert waits == [0.5, pytest.approx(0.141), pytest.approx(0.041), pytest.approx(0.2)]

    with_store(url, act)


def test_a_follower_has_no_measures_history_samples_or_hourly_versions(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        async with learning(store, replace(OPTIONS, hour=0.01)):
            await append(store, blobs(0, 20))
            state = await committed(store, 20, FOLLOWER)
        assert state.measures()["queries"] == 0.0
        assert state.measures()["feedback"] == 20.0
        with client(url) as connection:
            keys = {key.decode() for key in connection.keys("solar:{books}:f:*")}
        prefix = "solar:{books}:f:books-b:"
        assert keys == {
            f"{prefix}{name}" for name in ("epoch", "state", "fence", "snaps", "snap:0")
        }

    with_store(url, act)


# ---- versions and the log ----


def test_a_follower_keeps_its_versions_where_its_leader_has_some(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, VERSIONED):
            await append(store, blobs(0, 3))
            await committed(store, 3)
            start = await follow(store, gamma=7.0)
            for at in range(3, 43):
                await append(store, blobs(at, at + 1))
                await committed(store, at + 1, FOLLOWER)
        assert await store.states.versions("books") == [30, 35, 40]
        assert await store.states.versions(FOLLOWER) == [30, 35, 40]
        for seq in (30, 35, 40):
            version = (await store.states.version(FOLLOWER, seq)).state
            assert bits(version) == bits(folded(start, blobs(0, seq)))
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


def test_the_log_waits_for_a_follower_that_is_behind(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        start = await follow(store, gamma=7.0)
        stop = asyncio.Event()
        ahead = asyncio.create_task(Learner(store, "books", VERSIONED).run(stop))
        for at in range(0, 60, 5):
            await append(store, blobs(at, at + 5))
            await committed(store, at + 5)
        assert await store.states.versions("books") == [50, 55, 60]
        assert (await store.log.read("books", 0, 1))[0].seq == 1
        behind = asyncio.create_task(Learner(store, FOLLOWER, VERSIONED).run(stop))
        state = await committed(store, 60, FOLLOWER)
        assert bits(state) == bits(folded(start, blobs(0, 60)))
        await append(store, blobs(60, 65))
        await committed(store, 65)
        stop.set()
        await asyncio.gather(ahead, behind)
        assert (await store.log.read("books", 0, 1))[0].seq == 51
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


def test_a_follower_that_holds_back_too_much_is_stalled_and_can_begin_anew(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        options = replace(VERSIONED, log_bytes=30 * len(feedback(0)))
        stop = asyncio.Event()
        ahead = asyncio.create_task(Learner(store, "books", options).run(stop))
        for at in range(0, 80, 5):
            await append(store, blobs(at, at + 5))
            await committed(store, at + 5)
        assert await store.followers.of("books") == {"books-b": True}
        stop.set()
        await ahead
        assert (await store.log.read("books", 0, 1))[0].seq > 50
        await asyncio.wait_for(Learner(store, FOLLOWER, options).run(asyncio.Event()), 5.0)  # rests
        assert (await store.states.position(FOLLOWER))[1] == 0
        async with learning(store, options):
            await store.followers.delete(FOLLOWER)
            start = await follow(store, gamma=7.0)
            await append(store, blobs(80, 90))
            state = await committed(store, 90, FOLLOWER)
        assert bits(state) == bits(folded(start, blobs(0, 90)))

    with_store(url, act)


def test_a_follower_is_stalled_at_the_most_records_that_a_log_may_have(url: str) -> None:
    """The backlog of the leader does not count: no follower can have learnt it."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        await append(store, blobs(0, 60))
        fence = await store.leases.take("books", 0, 60.0)
        options = replace(VERSIONED, log_records=30)
        session = await LeaderSession.begin(store, "books", fence, options)
        stalled, lengths = dict[int, bool](), dict[int, int]()
        while session._reducer.seq < 60:
            await session.round()
            await session.commit_done()
            stalled[session._reducer.seq] = (await store.followers.of("books"))["books-b"]
            lengths[session._reducer.seq] = session._reducer.seq - (
                (await store.log.read("books", 0, 1))[0].seq - 1
            )
        assert min(seq for seq, found in stalled.items() if found) == 30
        assert max(lengths.values()) <= 30
        assert lengths[60] == 10

    with_store(url, act)


def test_a_follower_keeps_a_version_that_its_leader_keeps_later(url: str) -> None:
    """The leader keeps its state before a replacement; the follower is there already."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        async with learning(store, OPTIONS):
            await append(store, blobs(0, 7))
            await committed(store, 7, FOLLOWER)
        stop = asyncio.Event()
        fence = await store.leases.take(FOLLOWER, 0, 60.0)
        session = await FollowerSession.begin(store, FOLLOWER, fence, OPTIONS)
        ahead = asyncio.create_task(Learner(store, "books", OPTIONS).run(stop))
        await append(store, [replacement(2.0), *blobs(8, 12)])
        await committed(store, 12)
        while session.position[1] < 12:
            await session.round()
            await session.commit_done()
        stop.set()
        await ahead
        assert await store.states.versions("books") == [0, 7]
        assert await store.states.versions(FOLLOWER) == [0, 7]
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


def test_the_learner_of_a_deleted_follower_ends_and_a_new_one_begins(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        async with learning(store, replace(OPTIONS, lease=0.3)):
            await append(store, blobs(0, 9))
            await committed(store, 9, FOLLOWER)
            await store.followers.delete(FOLLOWER)
            with pytest.raises(NoSuchModel):
                await store.states.position(FOLLOWER)
            start = await follow(store, gamma=7.0)
            await append(store, blobs(9, 12))
            state = await committed(store, 12, FOLLOWER)
        assert bits(state) == bits(folded(start, blobs(0, 12)))

    with_store(url, act)


# ---- faults ----


def test_a_follower_goes_on_from_its_last_commit(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        start = await follow(store, gamma=7.0)
        for at in range(0, 40, 10):
            async with learning(store, OPTIONS):
                await append(store, [*blobs(at, at + 9), long_feedback(at)])
                state = await committed(store, at + 10, FOLLOWER)
        records = [
            one for at in range(0, 40, 10) for one in (*blobs(at, at + 9), long_feedback(at))
        ]
        assert bits(state) == bits(folded(start, records))

    with_store(url, act)


def test_a_killed_learner_of_a_follower_loses_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        start = await follow(store, gamma=7.0)
        short = replace(OPTIONS, lease=0.2, follow=0.001)
        stop = asyncio.Event()
        ahead = asyncio.create_task(Learner(store, "books", short).run(stop))
        for at in range(0, 60, 4):
            killed = asyncio.create_task(Learner(store, FOLLOWER, short).run(asyncio.Event()))
            await append(store, blobs(at, at + 4))
            await asyncio.sleep(0.01 * (at % 7))
            await end([killed])
        behind = asyncio.create_task(Learner(store, FOLLOWER, short).run(stop))
        state = await committed(store, 60, FOLLOWER)
        stop.set()
        await asyncio.gather(ahead, behind)
        assert bits(state) == bits(folded(start, blobs(0, 60)))
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


@pytest.mark.parametrize("field", ["w", "spread", "sums", "meta"])
def test_a_damaged_follower_is_rebuilt_from_its_versions_and_the_log(url: str, field: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        start = await follow(store, gamma=7.0)
        async with learning(store, VERSIONED):
            await append(store, blobs(0, 13))
            await committed(store, 13, FOLLOWER)
        with client(url) as connection:
            connection.hset(keys_of(FOLLOWER).state, field, b"junk")
            connection.hset(keys_of(FOLLOWER).snapshot(10), "w", b"junk")  # and the newest version
        with pytest.raises(BadBlob):
            await store.states.load(FOLLOWER)
        async with learning(store, VERSIONED):
            await append(store, blobs(13, 15))
            state = await eventually(lambda: readable(store, 15), bool)
        assert state is not None
        assert bits(state) == bits(folded(start, blobs(0, 15)))
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


async def readable(store: Store, seq: int) -> ModelState | None:
    """Return the state of the follower, if it can be read and is that far."""
    try:
        state = (await store.states.load(FOLLOWER)).state
    except BadBlob:
        return None
    return state if state.seq == seq else None


def test_a_follower_of_other_records_goes_back_to_a_version_that_the_log_continues(
    url: str,
) -> None:
    """As after an incomplete restore: the leader and its log are older than the follower."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        start = await follow(store, gamma=7.0)
        async with learning(store, VERSIONED):
            await append(store, blobs(0, 7))
            await committed(store, 7, FOLLOWER)
        snapshot = StoreSnapshot(url)
        async with learning(store, VERSIONED):
            await append(store, blobs(100, 106))
            await committed(store, 13, FOLLOWER)
        with client(url) as connection:
            ahead = {key: connection.dump(key) for key in connection.keys("solar:{books}:f:*")}
            snapshot.restore()
            for key, value in ahead.items():
                connection.restore(key, 0, value, replace=True)
        records = blobs(0, 7)
        async with learning(store, VERSIONED):
            await eventually(lambda: at(store), lambda found: found[1] == 7)
            records += blobs(7, 20)
            await append(store, records[7:])
            state = await committed(store, 20, FOLLOWER)
        assert bits(state) == bits(folded(start, records))
        assert await store.followers.of("books") == {"books-b": False}
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


async def at(store: Store) -> Any:
    return await store.states.position(FOLLOWER)


def test_a_follower_that_learnt_other_records_notices_it_where_it_meets_its_leader(
    url: str,
) -> None:
    """Its state is behind that of its leader, so that only the chain can tell."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        start = await follow(store, gamma=7.0)
        async with learning(store, OPTIONS):
            await append(store, blobs(0, 5))
            await committed(store, 5, FOLLOWER)
        snapshot = StoreSnapshot(url)
        async with learning(store, OPTIONS):
            await append(store, blobs(100, 103))
            await committed(store, 8, FOLLOWER)
        with client(url) as connection:
            ahead = {key: connection.dump(key) for key in connection.keys("solar:{books}:f:*")}
            snapshot.restore()
            stop = asyncio.Event()
            leader = asyncio.create_task(Learner(store, "books", OPTIONS).run(stop))
            await append(store, blobs(5, 20))
            await committed(store, 20)
            for key, value in ahead.items():
                connection.restore(key, 0, value, replace=True)
        behind = asyncio.create_task(Learner(store, FOLLOWER, OPTIONS).run(stop))
        want = bits(folded(start, blobs(0, 20)))
        await eventually(lambda: store.states.load(FOLLOWER), lambda one: bits(one.state) == want)
        stop.set()
        await asyncio.gather(leader, behind)
        assert await verify(store, FOLLOWER) == []

    with_store(url, act)


def test_a_follower_without_a_version_that_the_log_continues_is_stalled(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 5))
        async with learning(store, OPTIONS):
            await committed(store, 5)
            await follow(store)
        with client(url) as connection:
            for key in (keys_of(FOLLOWER).state, keys_of(FOLLOWER).snapshot(5)):
                connection.hset(key, "chain", b"x" * 32)
        async with learning(store, OPTIONS):
            await append(store, blobs(5, 9))
            await eventually(lambda: store.followers.of("books"), lambda found: found["books-b"])
            await committed(store, 9)
        assert await verify(store, FOLLOWER) != []

    with_store(url, act)


# ---- commands ----


def test_the_commands_take_the_names_of_followers(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store, gamma=7.0)
        async with learning(store, OPTIONS):
            await append(store, blobs(0, 9))
            await committed(store, 9, FOLLOWER)
        lines: list[str] = []
        await verify_models(store, [], lines.append)
        assert [line.partition(":")[0] for line in lines] == ["books", "books-b"]
        lines.clear()
        await replay_log(store, "books-b", None, False, lines.append)
        assert lines[-1] == "books-b: the replay equals the committed state at record 9"
        lines.clear()
        await show_log(store, "books-b", 0, 100, lines.append)
        assert len(lines) == 9
        with pytest.raises(SolarError, match="books-b: --apply: expected a model"):
            await replay_log(store, "books-b", "web", True, lines.append)
        for name in ("books/books-b", "unknown"):
            with pytest.raises(NoSuchModel):
                await verify_models(store, [name], lines.append)
        assert (await replay(store, FOLLOWER)).differences() == []

    with_store(url, act)


def test_many_followers_are_learnt_in_one_process(url: str) -> None:
    """More than a process leads all the time: they rest, and are called by their leader."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        starts = {f"b{at}": await follow(store, f"b{at}", gamma=at + 1.0) for at in range(8)}
        pace = replace(OPTIONS, always=2, rest=0.05, sessions=3, turn=0.05)
        async with learning(store, pace):
            for begin in range(0, 30, 10):
                await append(store, blobs(begin, begin + 10))
                for name in starts:
                    await committed(store, begin + 10, f"books/{name}")
                await asyncio.sleep(0.1)
            states = {name: await committed(store, 30, f"books/{name}") for name in starts}
        for name, start in starts.items():
            assert bits(states[name]) == bits(folded(start, blobs(0, 30)))

    with_store(url, act)


def test_followers_take_no_places_of_models(url: str) -> None:
    """A process leads few models all the time, however many followers they have."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        names = ["books", *(f"books/b{at}" for at in range(3))]
        for name in names[1:]:
            await follow(store, name.partition("/")[2])

        async def terms() -> dict[str, int]:
            return {name: one.terms for name, one in (await store.models.statuses(names)).items()}

        async with learning(store, replace(OPTIONS, always=2, rest=0.05)):
            for at in range(0, 12, 4):
                await append(store, blobs(at, at + 4))
                for name in names:
                    await committed(store, at + 4, name)
                await eventually(lambda: leading(store, names), lambda found: len(found) <= 1)
            leader, *followers = (await terms()).values()
            assert leader == 1 < min(followers)

    with_store(url, act)


async def leading(store: Store, names: list[str]) -> list[str]:
    """Return those models and followers that a learner leads."""
    return [name for name, one in (await store.models.statuses(names)).items() if one.leader]


def test_learners_share_models_and_give_followers_the_places_that_are_left(url: str) -> None:
    """By their names alone one learner would have both models, the other one both followers."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        for at in range(2):
            await follow(store, f"b{at}")
        await store.models.create("atlas", first())
        shares = {("atlas", "books/b0"), ("atlas", "books/b1")}
        shares |= {("books", "books/b0"), ("books", "books/b1")}
        async with learning(store, OPTIONS), learning(store, OPTIONS):

            async def shared() -> bool:
                led = await store.leases.led_models()
                return len(led) == 2 and {tuple(one or ()) for one in led.values()} <= shares

            await eventually(shared, bool)

    with_store(url, act)
