"""Promotions and tournaments on a real store: a follower takes the place of its leader."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.domain import codec
from app.domain.duels import Duel, EndDuel, Tournament
from app.domain.followers import promoted_config
from app.domain.model import ModelState
from app.domain.records import Feedback, Record, Replace, Retune
from app.domain.reducer import Reducer
from app.errors import Changed, Fenced, NoSuchModel, NoSuchVersion, TrialFailed, Unavailable
from app.learning import promotion
from app.learning.duel_upkeep import DuelUpkeep, fold_in_turns
from app.learning.fair_queue import FairQueue
from app.learning.promotion import BeginFold, fold_in_process, promote
from app.learning.replay import verify
from app.serving.trial_runner import TrialRunner
from app.storage.keys import internal_event
from app.storage.log import NewRecord
from app.storage.store import Store
from tests.servers import eventually, server, url, with_store
from tests.test_codec import bits
from tests.test_follower_learner import FOLLOWER, OPTIONS, folded, follow
from tests.test_learner import append, blobs, committed, feedback, first, learning

__all__ = ["server", "url"]  # fixtures

QUICK = replace(OPTIONS, duel_step=0.02, duel_versions=0.05)


def in_turns() -> BeginFold:
    return partial(fold_in_turns, FairQueue(), FOLLOWER)


def promoted(state: ModelState, leader: ModelState) -> ModelState:
    """Return the state of a follower with the settings that it has as a leader."""
    config = promoted_config(leader.model.config, state.model.config)
    return replace(state, model=replace(state.model, config=config))


def weights_of(state: ModelState) -> tuple[bytes, bytes, Any, Any]:
    model = state.model
    return model.weights.tobytes(), model.spread.tobytes(), model.certainty, model.config


async def learnt(store: Store, count: int = 20) -> ModelState:
    """Create a model and a follower, and let both learn; return the follower's first state."""
    await store.models.create("books", first())
    start = await follow(store, gamma=7.0)
    async with learning(store, OPTIONS):
        await append(store, blobs(0, count))
        await committed(store, count)
        await committed(store, count, FOLLOWER)
    return start


# ---- promotions ----


@pytest.mark.parametrize("processes", [False, True], ids=["in turns", "in a process"])
def test_a_promoted_follower_has_learnt_all_that_its_leader_has(url: str, processes: bool) -> None:
    """The last records are in the log, and neither has learnt them yet."""

    async def act(store: Store) -> None:
        start, runner = await learnt(store), TrialRunner()
        records = [*blobs(0, 600), codec.dump_record(Retune(gamma=3.0, C=0.5)), *blobs(600, 610)]
        await append(store, records[20:])
        begin = partial(fold_in_process, runner.exchanges) if processes else in_turns()
        try:
            seq = await promote(store, "books", "books-b", begin)
        finally:
            runner.close()
        assert seq == len(records) + 1
        async with learning(store, OPTIONS):
            state = await committed(store, seq)
            follower = await committed(store, seq, FOLLOWER)
        reducer = Reducer(first())
        for record in records:
            reducer.apply(record)
        assert weights_of(state) == weights_of(promoted(folded(start, records), reducer.state()))
        assert state.model.config.gamma == 7.0
        assert follower.measures()["passed_by"] == 1.0
        assert await verify(store, "books") == []

    with_store(url, act)


def test_records_that_arrive_during_a_promotion_are_learnt_before_it(url: str) -> None:
    async def act(store: Store) -> None:
        start = await learnt(store)
        appended, stop = 20, asyncio.Event()

        async def post() -> None:
            nonlocal appended
            while not stop.is_set():
                await append(store, blobs(appended, appended + 1))
                appended += 1
                await asyncio.sleep(0.002)

        async with learning(store, OPTIONS):
            posting = asyncio.create_task(post())
            await asyncio.sleep(0.1)
            seq = await promote(store, "books", "books-b", in_turns())
            stop.set()
            await posting
            await committed(store, await store.log.tail("books"))
        entries = await store.log.read("books", 0, seq)
        want = folded(start, [entry.record for entry in entries[: seq - 1]])
        record = codec.load_record(entries[-1].record)
        assert isinstance(record, Replace)
        assert record.model.weights.tobytes() == want.model.weights.tobytes()
        assert await verify(store, "books") == []

    with_store(url, act)


def test_a_version_is_promoted_with_its_settings(url: str) -> None:
    async def act(store: Store) -> None:
        await learnt(store)
        async with learning(store, OPTIONS):
            await append(store, [codec.dump_record(Retune(gamma=3.0)), *blobs(20, 25)])
            await committed(store, 26)
            seq = await promote(store, "books", 0, in_turns())
            state = await committed(store, seq)
        assert state.model.weights.tobytes() == first().model.weights.tobytes()
        assert state.model.config.gamma == first().model.config.gamma
        with pytest.raises(NoSuchVersion):
            await promote(store, "books", 7, in_turns())

    with_store(url, act)


@pytest.mark.parametrize("lost", [False, True], ids=["cancelled", "cancellation lost"])
def test_a_promotion_needs_a_challenger_and_an_end_of_the_log(
    url: str, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Before Python 3.12 a call of the store may lose the cancellation at the limit of time."""

    async def act(store: Store) -> None:
        await learnt(store)
        with pytest.raises(NoSuchModel):
            await promote(store, "books", "unknown", in_turns())
        monkeypatch.setattr(promotion, "PROMOTION_SECONDS", 0.3)
        tail = store.log.tail

        async def moving(model: str) -> int:
            found = await tail(model)
            record = NewRecord(f"more{found}", b"", feedback(found))
            await store.log.append("books", 1, [record], limit=2_000, time=0)
            if lost and found == 20:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(20)
            return found

        monkeypatch.setattr(store.log, "tail", moving)
        with pytest.raises(Fenced, match="faster"):
            await promote(store, "books", "books-b", in_turns())

    with_store(url, act)


DUEL = Duel("books-b", 0.2, 0.05)
CHANGES = {
    "a rollback": Replace(first().model, "rollback to version 0"),
    "a warm start": Replace(first().model, "warm start of a job"),
    "the end of the duel": EndDuel(21),
    "another duel": DUEL,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("challenger", ["books-b", 0])
def test_a_promotion_passes_over_no_change_that_is_not_learnt(
    url: str, change: Record, challenger: str | int
) -> None:
    """The change was acknowledged, so a promotion after it would take it back."""

    async def act(store: Store) -> None:
        await learnt(store)
        async with learning(store, OPTIONS):
            await append(store, [codec.dump_record(DUEL)])
            duel = (await committed(store, 21)).duel
        await append(store, [feedback(21), codec.dump_record(change), feedback(22)])
        for judged in (duel, None):
            with pytest.raises(Changed):
                await promote(store, "books", challenger, in_turns(), judged=judged)
        assert await store.log.tail("books") == 24
        async with learning(store, OPTIONS):
            await committed(store, 24)
            assert await promote(store, "books", challenger, in_turns()) == 25

    with_store(url, act)


def test_a_promotion_needs_the_duel_that_was_judged(url: str) -> None:
    async def act(store: Store) -> None:
        await learnt(store)
        async with learning(store, OPTIONS):
            await append(store, [codec.dump_record(DUEL)])
            on = (await committed(store, 21)).duel
            await append(store, [codec.dump_record(EndDuel(21))])
            over = (await committed(store, 22)).duel
            with pytest.raises(Changed):
                await promote(store, "books", "books-b", in_turns(), judged=on)
            await append(store, [codec.dump_record(DUEL)])
            await committed(store, 23)
            for judged in (on, over):
                with pytest.raises(Changed):
                    await promote(store, "books", "books-b", in_turns(), judged=judged)
            assert await store.log.tail("books") == 23

    with_store(url, act)


def test_a_fold_in_a_process_that_ended_fails(url: str) -> None:
    async def act(store: Store) -> None:
        start, runner = await learnt(store), TrialRunner()
        try:
            async with fold_in_process(runner.exchanges, start.model) as fold:
                await fold([], start.model.config, "promotion")
                runner.close()
                with pytest.raises(TrialFailed):
                    await fold([feedback(0)], start.model.config, "promotion")
        finally:
            runner.close()

    with_store(url, act)


# ---- tournaments ----


def click(seed: int, duel: int, winner: int) -> bytes:
    """Return a click on a list of a duel: of the champion (1) or of the challenger (-1)."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, 4)).astype(np.float32)
    teams = np.array([duel, 1, -1, -1, 1])
    clicked = np.array([0 if winner == 1 else 1])
    swaps = np.array([[0, 0], [2, 1]])
    event = Feedback(
        f"c{seed}", "clicks", rows, np.arange(4), clicks=clicked, duel=teams, swaps=swaps
    )
    return codec.dump_record(event)


async def begin_tournament(store: Store, promote: bool = True) -> None:
    names = ("books-b", "books-c", "books-d")
    tournament = Tournament(0, 0, names, 9_000, 0.05, promote)
    await append(store, [codec.dump_record(Duel("books-b", 0.2, 0.05 / 6, tournament=tournament))])


async def play(store: Store, winner: Callable[[str, str], int]) -> ModelState:
    """Let users click until the tournament has ended; return the state."""
    seed = 1_000
    while True:
        state = await committed(store, await store.log.tail("books"))
        duel = state.duel
        assert duel is not None
        if not duel.is_on:
            return state
        if not duel.verdict:
            settings = duel.settings
            if who := winner(settings.champion, settings.challenger):
                await append(store, [click(seed + at, duel.id, who) for at in range(100)])
                seed += 100
        await asyncio.sleep(0.005)


def test_a_tournament_puts_its_winner_in_place_also_if_learners_are_killed(url: str) -> None:
    def c_is_best(_: str, challenger: str) -> int:
        return -1 if challenger == "books-c" else 1

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        for name in ("books-b", "books-c", "books-d"):
            await follow(store, name, gamma=7.0)
        async with learning(store, QUICK):
            await begin_tournament(store)
            await committed(store, 1)
        playing = asyncio.create_task(play(store, c_is_best))
        while not playing.done():  # each learner leads for a moment
            async with learning(store, QUICK):
                await asyncio.wait([playing], timeout=0.3)
        state = await playing
        duel = state.duel
        assert duel is not None
        sides = [(one.champion, one.challenger, one.verdict) for one in duel.results]
        assert sides == [("", "books-b", 1), ("", "books-c", -1)]
        assert (duel.settings.champion, duel.settings.challenger) == ("books-c", "books-d")
        assert (duel.why, state.model.config.gamma) == ("promotion", 7.0)
        steps = [
            entry for entry in await store.log.read("books", 0, 5_000) if is_step(entry.record)
        ]
        assert len(steps) == 4
        assert state.measures()["rejected"] == 0.0
        assert await verify(store, "books") == []

    with_store(url, act)


def is_step(record: bytes) -> bool:
    return any(codec.kind_is(record, kind) for kind in ("duel", "end-duel", "replace"))


def test_a_stalled_follower_is_out_and_the_model_stays_without_a_winner(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        for name in ("books-b", "books-c", "books-d"):
            await follow(store, name)
        await store.followers.stall("books/books-c")
        async with learning(store, QUICK):
            await begin_tournament(store)
            state = await play(store, lambda _, challenger: int(challenger != "books-c"))
        duel = state.duel
        assert duel is not None
        results = [one.verdict for one in (*duel.results, duel.result)]
        assert (results, duel.why) == ([1, 0, 1], "finished")
        assert not any(entry.replaces for entry in await store.log.read("books", 0, 5_000))

    with_store(url, act)


def test_a_learner_does_not_rest_before_a_due_step_is_appended(url: str) -> None:
    """The store loses the step for longer than a learner without records goes on."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        for name in ("books-b", "books-c", "books-d"):
            await follow(store, name)
        of, failures = store.followers.of, 40

        async def fails(model: str) -> dict[str, bool]:
            nonlocal failures
            failures -= 1
            if failures > 0:
                raise Unavailable("lost")
            return await of(model)

        async with learning(store, replace(QUICK, always=0, rest=0.05)):
            await begin_tournament(store)
            duel = (await committed(store, 1)).duel
            assert duel is not None
            store.followers.of = fails  # type: ignore[method-assign,assignment]
            await append(store, [click(at, duel.id, 1) for at in range(100)])
            await committed(store, 102)  # the step follows by itself

    with_store(url, act)


# ---- versions in duels ----


def test_a_version_in_a_duel_is_dropped_after_the_duel_and_never_before(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        dropped: list[int] = []
        drop = store.versions.drop_dueling

        async def noted(model: str, epoch: int, seq: int, time: bytes = b"") -> None:
            dropped.append(await store.log.tail(model))
            await drop(model, epoch, seq, time)

        store.versions.drop_dueling = noted  # type: ignore[method-assign]
        async with learning(store, QUICK):
            await append(store, blobs(0, 3))
            await committed(store, 3)
            await store.versions.keep_for_duel("books", epoch, 0)
            await append(store, [codec.dump_record(Duel("version", 0.2, 0.05, version=0))])
            for at in range(5, 25):
                await append(store, blobs(at, at + 1))
                await asyncio.sleep(0.02)
            assert await store.versions.dueling("books") == [0]
            duel = (await committed(store, 24)).duel
            assert duel is not None
            await append(store, [codec.dump_record(EndDuel(duel.id))])
            for at in range(25, 200):
                if not await store.versions.dueling("books"):
                    break
                await append(store, blobs(at, at + 1))
                await asyncio.sleep(0.02)
        assert len(dropped) == 1
        assert dropped[0] > 25
        assert bits((await store.versions.load("books", 0)).state) == bits(first())

    with_store(url, act)


@pytest.mark.parametrize("looks", [0, 1])
def test_a_version_that_is_kept_again_is_not_dropped_before_its_record_is_learnt(
    url: str, looks: int
) -> None:
    """A duel with it ended. The record of the next one waits; it comes after 0 or 1 looks."""

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        begin = codec.dump_record(Duel("version", 0.2, 0.05, version=0))
        rarely = replace(QUICK, duel_versions=1e9)
        async with learning(store, rarely):
            await store.versions.keep_for_duel("books", epoch, 0)
            await append(store, [begin, codec.dump_record(EndDuel(1))])
            state = await committed(store, 2)
        upkeep = DuelUpkeep(store, "books", epoch, FairQueue(), replace(QUICK, duel_versions=0.0))

        async def look() -> None:
            upkeep.committed(state)
            await asyncio.gather(*upkeep.tasks())

        await look()
        await look()
        await store.versions.keep_for_duel("books", epoch, 0)
        for _ in range(looks):
            await look()
        await append(store, [begin])
        for _ in range(3):
            await look()
        assert await store.versions.dueling("books") == [0]
        async with learning(store, rarely):
            state = await committed(store, 3)
        for _ in range(4):
            await look()
        assert await store.versions.dueling("books") == [0]
        async with learning(store, rarely):
            await append(store, [codec.dump_record(EndDuel(3))])
            state = await committed(store, 4)
        for _ in range(3):
            await look()
        assert await store.versions.dueling("books") == []

    with_store(url, act)


def test_a_version_whose_duel_was_never_begun_is_dropped(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        await store.versions.keep_for_duel("books", epoch, 0)
        async with learning(store, QUICK):
            await eventually(lambda: store.versions.dueling("books"), lambda kept: not kept)
        assert bits((await store.versions.load("books", 0)).state) == bits(first())

    with_store(url, act)


def test_a_step_that_is_appended_again_is_in_the_log_once(url: str) -> None:
    async def act(store: Store) -> None:
        await learnt(store)
        event = internal_event("tournament", "7-1")
        seqs = {await promote(store, "books", "books-b", in_turns(), event) for _ in range(3)}
        assert seqs == {21}
        await eventually(lambda: store.log.tail("books"), lambda tail: tail == 21)

    with_store(url, act)
