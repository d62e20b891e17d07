"""The history of a model in the store: rings beside the state, and their memory.

Tests with the fixture `url` run on every kind of server and on the simulator's double.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from app.domain.model import SUMS, Model, ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.learning.replay import verify
from app.storage.history import (
    HISTORY_BYTES,
    MOST_WEIGHTS,
    POINT_SUMS,
    StoredHistory,
    pack_point,
    pack_weights,
    point_at,
    weight_effects,
)
from app.storage.history_budget import ADMITTED_SECONDS, MEMORY_SECONDS, REFUSED_SECONDS
from app.storage.keys import HISTORIES, Keys
from app.storage.states import HistoryRows
from app.storage.store import Store
from tests.backends import anywhere, anywhere_emptied, client, with_store
from tests.servers import bare_server
from tests.servers import client as connection_to
from tests.servers import with_store as with_server
from tests.test_store import append_records, first, later

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

START = 1_750_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
DAY_MS = 86_400_000


def rows_of(state: ModelState, time: int) -> HistoryRows:
    return HistoryRows(
        time, pack_point(state.seq, state.sums), pack_weights(state.seq, state.model)
    )


async def begin(store: Store) -> tuple[int, int]:
    """Create a model with some records; return its epoch and the fencing token of a learner."""
    epoch = await store.models.create("books", first())
    await append_records(store)
    return epoch, await store.leases.take("books", 0, 600.0)


async def note(store: Store, fence: int, time: int, state: ModelState | None = None) -> None:
    """Rewrite the committed state, with the rows of a time."""
    base = await store.states.position("books")
    state = state or (await store.states.load("books")).state
    await store.states.commit("books", base, fence, state, again=True, rows=rows_of(state, time))


async def loaded(store: Store, after: int = -1) -> StoredHistory:
    epoch, *_ = await store.states.position("books")
    return await store.history.load("books", epoch, after)


def times(points: list[Any]) -> list[int]:
    return [int(one[0] - START) for one in points]


# ---- points ----


def test_a_point_has_the_seq_and_the_sums_of_its_commit(url: str) -> None:
    async def act(store: Store) -> None:
        _, fence = await begin(store)
        for seq in (3, 5):
            state = later(first(), seq)
            base = await store.states.position("books")
            rows = rows_of(state, START + seq * 10 * SECOND)
            await store.states.commit("books", base, fence, state, rows=rows)
        found = await loaded(store)
        assert [one[:2] for one in found.hour] == [[START + 30_000, 3], [START + 50_000, 5]]
        assert found.hour[1] == point_at(START + 50_000, 5, later(first(), 5).sums)
        named = dict(zip(POINT_SUMS, found.hour[1][2:], strict=True))
        assert named == {name: later(first(), 5).measures()[name] for name in POINT_SUMS}
        assert found.day == found.hour[:1]
        assert [(one.seq, one.weights) for one in found.weights] == [(3, {0: 3.0, 1: 3.0, 2: 3.0})]
        assert await loaded(store, START + 30_000) == ([found.hour[1]], [], [])

    with_store(url, act)


def test_commits_in_one_interval_add_one_row(url: str) -> None:
    async def act(store: Store) -> None:
        _, fence = await begin(store)
        start = START - START % HOUR
        for at in (0, 1, 9_999, 10_000, 19_999, 599_999, 600_000, HOUR - 1, HOUR):
            await note(store, fence, start + at)
        found = await loaded(store)
        assert [one[0] - start for one in found.hour] == [
            0, 10_000, 599_999, 600_000, HOUR - 1, HOUR,
        ]  # fmt: skip
        assert [one[0] - start for one in found.day] == [0, 600_000, HOUR - 1, HOUR]
        assert [one.time - start for one in found.weights] == [0, HOUR]

    with_store(url, act)


def test_a_commit_without_rows_adds_none(url: str) -> None:
    async def act(store: Store) -> None:
        _, fence = await begin(store)
        base = await store.states.position("books")
        await store.states.commit("books", base, fence, later(first(), 1))
        assert await loaded(store) == ([], [], [])

    with_store(url, act)


def test_a_resent_commit_adds_its_point_once(url: str) -> None:
    async def act(store: Store) -> None:
        _, fence = await begin(store)
        base, state = await store.states.position("books"), later(first(), 1)
        for at in (START, START + 30 * SECOND):
            await store.states.commit("books", base, fence, state, rows=rows_of(state, at))
        assert times((await loaded(store)).hour) == [0]

    with_store(url, act)


def test_rings_keep_360_and_144_points_and_25_rows_of_weights(url: str) -> None:
    async def act(store: Store) -> None:
        _, fence = await begin(store)
        for at in range(362):
            await note(store, fence, START + at * HOUR)
        found = await loaded(store)
        assert times(found.hour) == [at * HOUR for at in range(2, 362)]
        assert times(found.day) == [at * HOUR for at in range(218, 362)]
        assert [one.time - START for one in found.weights] == [at * HOUR for at in range(337, 362)]

    with_store(url, act)


def test_points_are_in_the_order_of_time_after_a_clock_went_back(url: str) -> None:
    async def act(store: Store) -> None:
        _, fence = await begin(store)
        for minute in (0, 1, 62, 63, 2, 3):
            await note(store, fence, START + minute * MINUTE)
        assert times((await loaded(store)).hour) == [minute * MINUTE for minute in (0, 1, 2, 3)]

    with_store(url, act)


def test_a_history_expires_a_day_after_the_last_point(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await note(store, fence, START)
        with client(url) as connection:
            for key in Keys("books").history(epoch):
                connection.pexpire(key, 1_000)
            await note(store, fence, START + 10 * SECOND)  # no weights are due
            left = [connection.pttl(key) for key in Keys("books").history(epoch)]
        assert all(DAY_MS - MINUTE < one <= DAY_MS for one in left)

    with_store(url, act)


def test_a_history_ends_with_its_model(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await store.history_budget.renew("books")
        await note(store, fence, START)
        with client(url) as connection:
            keys = [*Keys("books").history(epoch), HISTORIES]
            assert all(connection.exists(key) for key in keys)
            await store.models.delete("books")
            assert not any(connection.exists(key) for key in keys)
        await begin(store)
        assert await loaded(store) == ([], [], [])

    with_store(url, act)


def test_rows_of_another_release_are_skipped(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await note(store, fence, START)
        whole = f"{START:013}".encode() + pack_point(0, first().sums)
        odd = [b"", b"x", b"x" * len(whole), whole[:-8], whole + bytes(8)]
        odd += [whole[:13] + b"\x02" + whole[14:], b"x" * 13 + whole[13:]]
        with client(url) as connection:
            for key in Keys("books").history(epoch):
                if hasattr(connection, "rpush"):
                    connection.rpush(key, *odd)
                else:
                    connection.put(key, (*connection.find(key), *odd))
        found = await loaded(store)
        assert (times(found.hour), times(found.day)) == ([0], [0])
        assert [one.time for one in found.weights] == [START]

    with_store(url, act)


def test_a_ring_that_ends_with_an_unreadable_row_goes_on() -> None:
    with bare_server() as url:

        async def act(store: Store) -> None:
            epoch, fence = await begin(store)
            with connection_to(url) as connection:
                for key in Keys("books").history(epoch):
                    connection.rpush(key, b"not a time at all")
            await note(store, fence, START)
            assert times((await loaded(store)).hour) == [0]

        with_server(url, act)


def test_a_history_is_no_part_of_the_state(url: str) -> None:
    async def act(store: Store) -> list[str]:
        _, fence = await begin(store)
        before = (await store.states.load("books")).state
        await note(store, fence, START)
        assert (await store.states.load("books")).state.chain == before.chain
        return await verify(store, "books")

    assert with_store(url, act) == []


@pytest.mark.parametrize("denied", ["-lindex", "-rpush", "-ltrim", "-lrange"])
def test_a_user_without_rights_to_lists_commits_and_has_no_history(denied: str) -> None:
    with bare_server() as url, connection_to(url) as connection:
        connection.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", denied
        )

        async def act(store: Store) -> None:
            _, fence = await begin(store)
            await note(store, fence, START)
            await store.states.commit(
                "books", await store.states.position("books"), fence, later(first(), 2)
            )
            found = await loaded(store)
            assert found.hour == []

        with_server(url.replace("unix://", "unix://guest:secret@"), act)


# ---- weights ----


def wide(n: int, **settings: Any) -> Model:
    rng = np.random.default_rng(7)
    config = ModelConfig(tuple(f"f{k}" for k in range(n)), **settings)
    model = initial_state(config).model
    spread = rng.uniform(0.1, 2.0, n) if model.spread.size == n else model.spread
    return replace(model, weights=rng.standard_normal(n), spread=spread)


def test_the_effect_of_a_weight_counts_standard_errors_from_zero() -> None:
    model = wide(3, covariance="diagonal")
    expected = [abs(w) / v**0.5 for w, v in zip(model.weights, model.spread, strict=True)]
    assert weight_effects(model).tolist() == pytest.approx(expected)
    first_order = wide(3, algorithm="solar-i")
    assert weight_effects(first_order).tolist() == np.abs(first_order.weights).tolist()


@pytest.mark.parametrize(
    "model",
    [wide(500, covariance="diagonal"), wide(300), wide(1_000, algorithm="solar-i")],
    ids=["diagonal", "full", "solar-i"],
)
def test_a_row_has_the_200_weights_with_the_largest_effect(url: str, model: Model) -> None:
    async def act(store: Store) -> dict[int, float]:
        _, fence = await begin(store)
        state = (await store.states.load("books")).state
        row = HistoryRows(START, pack_point(1, state.sums), pack_weights(1, model))
        base = await store.states.position("books")
        await store.states.commit("books", base, fence, state, again=True, rows=row)
        return (await loaded(store)).weights[0].weights

    found, effects = with_store(url, act), weight_effects(model)
    largest = sorted(range(effects.size), key=lambda k: -effects[k])[:MOST_WEIGHTS]
    assert sorted(found) == sorted(largest)
    assert all(found[k] == np.float32(model.weights[k]) for k in largest)


# ---- memory ----


def test_a_full_history_fits_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_server() as url:

        async def act(store: Store) -> list[int]:
            epoch, fence = await begin(store)
            model = wide(500, covariance="diagonal")
            state = ModelState(2**40, b"", model, np.full(len(SUMS), np.pi))
            rows = rows_of(state, START)
            base = await store.states.position("books")
            stored = (await store.states.load("books")).state
            for at in range(361):
                due = rows._replace(time=START + at * HOUR)
                await store.states.commit("books", base, fence, stored, again=True, rows=due)
            with connection_to(url) as connection:
                keys = Keys("books").history(epoch)
                return [connection.memory_usage(key, samples=0) for key in keys]

        hour, day, weights = with_server(url, act)
    with capsys.disabled():
        print(f"\nhistory of a model: {hour} + {day} + {weights} bytes")  # noqa: T201
    assert hour + day <= 200_000
    assert weights <= 60_000
    assert hour + day + weights <= HISTORY_BYTES


@pytest.fixture
def small() -> Iterator[str]:
    """A server with room for two histories: 5 % of 9 MB."""
    with bare_server("--maxmemory", "9mb", "--maxmemory-policy", "noeviction") as url:
        yield url


async def admitted(store: Store, model: str) -> bool:
    await store.history_budget.renew(model)
    return store.history_budget.admits(model)


def test_all_histories_together_use_at_most_a_twentieth_of_the_memory(small: str) -> None:
    async def act(store: Store) -> None:
        assert [await admitted(store, name) for name in ("a", "b", "c")] == [True, True, False]
        assert store.history_budget.refuses("c")
        other = Store.open(small)
        try:
            assert [await admitted(other, name) for name in ("d", "b")] == [False, True]
        finally:
            await other.close()

    with_server(small, act)


def test_a_history_that_has_expired_makes_room(small: str) -> None:
    async def act(store: Store) -> None:
        with connection_to(small) as connection:
            seconds = connection.time()[0]
            for name, age in {"a": 90_000, "b": -7_200, "c": 80_000}.items():
                connection.zadd(HISTORIES, {name: (seconds - age) * 1000})
            assert await admitted(store, "d")
            assert set(connection.zrange(HISTORIES, 0, -1)) == {b"c", b"d"}

    with_server(small, act)


def test_without_a_memory_limit_every_model_has_a_history(url: str) -> None:
    async def act(store: Store) -> None:
        assert all([await admitted(store, f"m{at}") for at in range(50)])

    with_store(url, act)


def test_no_points_are_stored_while_the_store_is_nearly_full(small: str) -> None:
    async def act(store: Store) -> None:
        with connection_to(small) as connection:
            for at in count():
                if connection.info("memory")["used_memory"] > 0.85 * 9 * 2**20:
                    break
                connection.set(f"filler {at}", bytes(100_000))
        assert not await admitted(store, "a")
        assert store.history_budget.refuses("a")

    with_server(small, act)


def test_an_unreachable_store_admits_nothing_and_raises_nothing() -> None:
    async def act() -> None:
        store = Store.open("unix:///nowhere/solar.sock")
        await store.history_budget.renew("a")
        assert not store.history_budget.admits("a")
        assert not store.history_budget.refuses("a")
        assert store.history_budget.is_stale("a")
        await store.close()

    asyncio.run(act())


def test_a_question_that_fails_is_not_repeated_with_every_commit() -> None:
    with bare_server() as url, connection_to(url) as connection:
        connection.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-zadd"
        )

        async def act(store: Store) -> None:
            budget = store.history_budget
            assert budget.is_stale("a")
            assert not await admitted(store, "a")
            assert not budget.refuses("a")  # it is unknown
            assert not budget.is_stale("a")

        with_server(url.replace("unix://", "unix://guest:secret@"), act)


def test_a_process_keeps_an_answer_for_a_while(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(store: Store) -> None:
        budget, now = store.history_budget, asyncio.get_running_loop().time()
        assert [await admitted(store, name) for name in ("a", "b", "c")] == [True, True, False]
        stale = []
        for seconds in (0.0, MEMORY_SECONDS, REFUSED_SECONDS, ADMITTED_SECONDS):
            at = now + seconds + 1.0
            monkeypatch.setattr("app.storage.history_budget._now", lambda at=at: at)
            memory, budget._next_check = budget.is_stale("a"), at + 1.0
            stale.append((memory, budget.is_stale("a"), budget.is_stale("c")))
            budget._next_check = now + MEMORY_SECONDS
        assert stale == [
            (False, False, False), (True, False, False), (True, False, True), (True, True, True),
        ]  # fmt: skip
        assert budget.is_stale("unknown")

    with_server(small, act)
