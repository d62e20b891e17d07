"""Jobs in the store, on a real server: who may train, who has lost, what a repeated word does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.errors import NoSuchModel, Unavailable
from app.storage.calls import ScriptRunner
from app.storage.jobs import DIED, JOB_KEPT_SECONDS, Job, Jobs, Lease
from app.storage.keys import Keys
from app.storage.store import Store
from tests.servers import anywhere, anywhere_emptied, client, eventually, keys_like, with_store

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

KEYS = Keys("books")
JOB = "books.01970000-0000-7000-8000-000000000000"
OTHER = "books.01970000-0000-7000-8000-000000000001"
ABOUT = {"training": {"trainer": "ranksvm"}, "blob": False, "begun": 1.5}
LONG, SHORT = 600.0, 0.02  # seconds


def lease(job: str = JOB, seconds: float = LONG) -> Lease:
    return Lease("books", job, seconds)


async def a_model(store: Store, n: int = 2) -> int:
    return await store.models.create(
        "books", initial_state(ModelConfig(tuple(f"f{k}" for k in range(n))))
    )


async def shown(store: Store, job: str = JOB) -> Job:
    found = await store.jobs.look("books", job)
    assert found is not None
    return found


async def run_out(store: Store) -> None:
    """Wait until nobody trains."""
    nobody: Callable[[], Awaitable[int]] = lambda: store._client.exists(KEYS.training)  # noqa: E731
    await eventually(nobody, lambda found: found == 0)


def kept(url: str) -> dict[bytes, Any]:
    """All that the jobs have in the store."""
    with client(url) as connection:
        jobs = {name: connection.hgetall(name) for name in keys_like(connection, "*:job:*")}
        return {**jobs, b"training": connection.get(KEYS.training)}


def remaining(url: str, key: str) -> float:
    """Seconds until a key goes."""
    with client(url) as connection:
        found: int = connection.pttl(key)
        return found / 1000


class Insistent(ScriptRunner):
    """Sends every script twice, as a client does that lost its connection; keeps both answers."""

    def __init__(self, store: Store) -> None:
        super().__init__(store._client)
        self.answers: list[tuple[int, int]] = []

    async def script(self, name: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
        first, second = [await super(Insistent, self).script(name, keys, values) for _ in "12"]
        if name != "job_look":
            self.answers.append((int(first), int(second)))
        return second


# ---- beginning ----


def test_a_job_begins_and_is_seen_as_it_was_begun(url: str) -> None:
    async def act(store: Store) -> tuple[int, Job]:
        epoch = await a_model(store)
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        return epoch, await shown(store)

    epoch, found = with_store(url, act)
    assert found == Job(epoch, "running", ABOUT, {}, {}, "")


def test_a_job_is_kept_for_a_week_and_its_lease_for_as_long_as_it_says(url: str) -> None:
    async def act(store: Store) -> None:
        assert await store.jobs.begin(lease(), await a_model(store), ABOUT)

    with_store(url, act)
    assert JOB_KEPT_SECONDS - 60 < remaining(url, KEYS.job(JOB)) <= JOB_KEPT_SECONDS
    assert LONG - 60 < remaining(url, KEYS.training) <= LONG


def test_while_one_trains_no_other_begins_and_nothing_is_written_of_it(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await a_model(store), lease()
        assert await store.jobs.begin(held, epoch, ABOUT)
        before = kept(url)
        assert not await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        assert not await store.jobs.begin(lease(JOB), epoch, {"training": {}})
        assert kept(url) == before
        assert await store.jobs.look("books", OTHER) is None

    with_store(url, act)


def test_two_models_are_trained_side_by_side(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await a_model(store)
        films = await store.models.create("films", initial_state(ModelConfig(("f",))))
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        assert await store.jobs.begin(Lease("films", "films.x", LONG), films, ABOUT)

    with_store(url, act)


def test_of_many_who_begin_at_once_one_does(url: str) -> None:
    async def act(store: Store) -> list[bool]:
        epoch = await a_model(store)
        leases = [lease(f"books.{at}") for at in range(20)]
        begun = await asyncio.gather(*(store.jobs.begin(one, epoch, ABOUT) for one in leases))
        assert len(await store._client.keys(KEYS.job("*"))) == 1
        return list(begun)

    assert sum(with_store(url, act)) == 1


@pytest.mark.parametrize("wrong", [-1, 1])
def test_no_job_begins_for_another_life_of_the_model(url: str, wrong: int) -> None:
    async def act(store: Store) -> None:
        epoch = await a_model(store)
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), epoch + wrong, ABOUT)

    with_store(url, act)
    assert kept(url) == {b"training": None}


def test_no_job_begins_for_a_model_that_is_gone_or_never_was(url: str) -> None:
    async def act(store: Store) -> None:
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), 1, ABOUT)
        epoch = await a_model(store)
        await store.models.delete("books")
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), epoch, ABOUT)
        await a_model(store)
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), epoch, ABOUT)

    with_store(url, act)
    assert kept(url) == {b"training": None}


def test_a_job_that_is_begun_again_has_nothing_of_its_first_try(url: str) -> None:
    async def act(store: Store) -> Job:
        epoch, first = await a_model(store), lease()
        assert await store.jobs.begin(first, epoch, ABOUT)
        assert await store.jobs.report(first, progress={"iteration": 3}) == "kept"
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        await store.jobs.report(first, ends=True, state="failed", error="why", result={"seq": 1})
        again = lease()
        assert await store.jobs.begin(again, epoch, ABOUT)
        assert await store.jobs.report(again, progress={}) == "kept"
        return await shown(store)

    found = with_store(url, act)
    assert (found.state, found.progress, found.result, found.error) == ("running", {}, {}, "")


# ---- reporting ----


def test_a_report_is_seen_and_keeps_the_lease_and_the_job(url: str) -> None:
    async def act(store: Store) -> Job:
        held = lease()
        assert await store.jobs.begin(held, await a_model(store), ABOUT)
        for key in (KEYS.training, KEYS.job(JOB)):
            await store._client.pexpire(key, 5000)
        assert await store.jobs.report(held, state="finishing", progress={"a": 1}) == "kept"
        return await shown(store)

    found = with_store(url, act)
    assert (found.state, found.progress, found.about) == ("finishing", {"a": 1}, ABOUT)
    assert remaining(url, KEYS.training) > LONG - 60
    assert remaining(url, KEYS.job(JOB)) > JOB_KEPT_SECONDS - 60


def test_a_job_that_nobody_trains_any_more_looks_failed(url: str) -> None:
    async def act(store: Store) -> Job:
        assert await store.jobs.begin(lease(seconds=SHORT), await a_model(store), ABOUT)
        return await eventually(lambda: shown(store), lambda job: job.state == "failed")

    assert with_store(url, act).error == DIED


def test_a_job_whose_model_another_trains_looks_failed(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await a_model(store)
        assert await store.jobs.begin(lease(seconds=SHORT), epoch, ABOUT)
        await run_out(store)
        assert await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        assert (await shown(store)).state == "failed"
        assert (await shown(store, OTHER)).state == "running"

    with_store(url, act)


def test_a_lease_that_ran_out_is_taken_anew_if_nobody_else_trains(url: str) -> None:
    async def act(store: Store) -> Job:
        held, epoch = lease(seconds=SHORT), await a_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await run_out(store)
        assert await store.jobs.report(replace(held, seconds=LONG), progress={"a": 1}) == "kept"
        assert not await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        return await shown(store)

    found = with_store(url, act)
    assert (found.state, found.progress) == ("running", {"a": 1})


def test_who_comes_back_while_another_trains_has_lost_and_writes_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        held, epoch = lease(seconds=SHORT), await a_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await run_out(store)
        assert await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        before = kept(url)
        assert await store.jobs.report(held, progress={"a": 1}) == "lost"
        assert await store.jobs.report(held, ends=True, state="done") == "lost"
        assert kept(url) == before

    with_store(url, act)


def test_who_comes_back_after_another_has_trained_the_model_has_lost(url: str) -> None:
    """What the other put in place is newer."""

    async def act(store: Store) -> None:
        held, epoch, other = lease(seconds=SHORT), await a_model(store), lease(OTHER)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await run_out(store)
        assert await store.jobs.begin(other, epoch, ABOUT)
        assert await store.jobs.report(other, ends=True, state="done") == "kept"
        before = kept(url)
        assert await store.jobs.report(held, state="finishing") == "lost"
        assert kept(url) == before

    with_store(url, act)


@pytest.mark.parametrize("ended", [False, True])
def test_who_comes_back_to_a_job_that_was_begun_again_has_lost(url: str, ended: bool) -> None:
    """Even if nobody trains any more: what the second one said stands."""

    async def act(store: Store) -> None:
        held, epoch = lease(seconds=SHORT), await a_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await run_out(store)
        again = lease(seconds=LONG if ended else SHORT)
        assert await store.jobs.begin(again, epoch, ABOUT)
        if ended:
            assert await store.jobs.report(again, ends=True, state="done") == "kept"
        await run_out(store)
        before = kept(url)
        assert await store.jobs.report(held, state="finishing") == "lost"
        assert await store.jobs.report(held, ends=True, state="failed") == "lost"
        assert kept(url) == before

    with_store(url, act)


def test_a_job_that_was_forgotten_is_lost_and_does_not_come_back(url: str) -> None:
    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await a_model(store), ABOUT)
        await store._client.delete(KEYS.job(JOB))
        assert await store.jobs.report(held, progress={"a": 1}) == "lost"
        assert await store.jobs.report(held, ends=True, state="done") == "lost"
        assert await store.jobs.look("books", JOB) is None

    with_store(url, act)


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_a_job_that_ends_gives_its_lease_back_and_says_how_it_ended(url: str, state: str) -> None:
    async def act(store: Store) -> Job:
        held, epoch = lease(), await a_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        said = {"state": state, "result": {"seq": 7}, "error": "why"}
        assert await store.jobs.report(held, ends=True, **said) == "kept"
        assert await store.jobs.report(held, progress={"late": 1}) == "lost"
        assert await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        assert await store.jobs.report(held, ends=True, **said) == "kept"  # as it was then
        return await shown(store)

    found = with_store(url, act)
    assert (found.state, found.result, found.error) == (state, {"seq": 7}, "why")
    assert found.progress == {}
    assert remaining(url, KEYS.job(JOB)) > JOB_KEPT_SECONDS - 60


# ---- stopping ----


def test_who_trains_a_job_that_is_cancelled_is_told_so_until_it_ends(url: str) -> None:
    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await a_model(store), ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert (await shown(store)).state == "running"
        for _ in range(2):
            assert await store.jobs.report(held, state="finishing", progress={"a": 1}) == "cancel"
        assert (await shown(store)).progress == {}
        assert await store.jobs.report(held, ends=True, state="cancelled") == "kept"
        assert (await shown(store)).state == "cancelled"
        assert await store.jobs.cancel("books", JOB) == "cancelled"

    with_store(url, act)


def test_a_job_that_nobody_trains_is_cancelled_at_once_and_stays_so(url: str) -> None:
    """Whoever trained it may only have been gone for a while."""

    async def act(store: Store) -> None:
        held = lease(seconds=SHORT)
        assert await store.jobs.begin(held, await a_model(store), ABOUT)
        await run_out(store)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert (await shown(store)).state == "cancelled"
        assert await store.jobs.report(held, progress={"a": 1}) == "cancel"
        assert await store.jobs.report(held, state="finishing") == "cancel"
        assert (await shown(store)).state == "cancelled"

    with_store(url, act)


def test_a_job_that_was_to_stop_is_cancelled_when_whoever_trained_it_is_gone(url: str) -> None:
    """To stop takes time, in which nobody keeps the lease; or the process dies over it."""

    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await a_model(store), ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        await store._client.pexpire(KEYS.training, 1)
        await run_out(store)
        found = await shown(store)
        assert (found.state, found.error) == ("cancelled", "")
        assert await store.jobs.report(held, ends=True, state="cancelled") == "kept"
        assert (await shown(store)).state == "cancelled"

    with_store(url, act)


@pytest.mark.parametrize("state", ["done", "failed", "finishing"])
def test_a_job_that_has_ended_or_is_past_stopping_cannot_be_cancelled(url: str, state: str) -> None:
    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await a_model(store), ABOUT)
        await store.jobs.report(held, ends=state != "finishing", state=state)
        before = kept(url)
        assert await store.jobs.cancel("books", JOB) == "ended"
        assert kept(url) == before

    with_store(url, act)


def test_a_job_that_is_unknown_is_cancelled_by_nobody_and_made_by_nobody(url: str) -> None:
    async def act(store: Store) -> None:
        await a_model(store)
        assert await store.jobs.cancel("books", JOB) == "unknown"
        assert await store.jobs.cancel("nobody", JOB) == "unknown"
        assert await store.jobs.look("nobody", JOB) is None

    with_store(url, act)
    assert kept(url) == {b"training": None}


def test_to_cancel_one_job_leaves_another_of_the_model_alone(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await a_model(store), lease(OTHER)
        assert await store.jobs.begin(lease(seconds=SHORT), epoch, ABOUT)
        await run_out(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert await store.jobs.report(held, progress={}) == "kept"

    with_store(url, act)


# ---- sent twice ----


def test_each_word_that_is_sent_twice_is_said_once(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await a_model(store), lease()
        calls = Insistent(store)
        jobs = Jobs(calls)
        assert await jobs.begin(held, epoch, ABOUT)
        assert await jobs.report(held, progress={"a": 1}) == "kept"
        assert not await jobs.begin(lease(OTHER), epoch, ABOUT)
        assert await jobs.report(held, state="finishing") == "kept"
        assert await jobs.report(held, ends=True, state="done") == "kept"
        assert await jobs.cancel("books", JOB) == "ended"
        again = lease()
        assert await jobs.begin(again, epoch, ABOUT)
        assert await jobs.cancel("books", JOB) == "cancelled"
        assert await jobs.report(again, progress={}) == "cancel"
        assert await jobs.report(again, ends=True, state="cancelled") == "kept"
        assert await jobs.cancel("books", JOB) == "cancelled"
        assert [one for one in calls.answers if one[0] != one[1]] == []
        assert len(calls.answers) == 11
        assert (await shown(store)).state == "cancelled"

    with_store(url, act)


def test_an_end_that_is_sent_once_more_after_another_began_changes_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await a_model(store), lease()
        assert await store.jobs.begin(held, epoch, ABOUT)
        assert await store.jobs.report(held, ends=True, state="failed") == "kept"
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        before = kept(url)
        assert await store.jobs.report(held, ends=True, state="failed") == "lost"
        assert kept(url) == before

    with_store(url, act)


# ---- the store itself ----


def test_a_job_has_one_slot_with_its_model() -> None:
    assert all("{books}" in key for key in (KEYS.training, KEYS.job(JOB), KEYS.state))


def test_a_store_that_is_gone_is_an_error_of_ours() -> None:
    async def act(store: Store) -> None:
        for ask in (
            store.jobs.look("books", JOB),
            store.jobs.cancel("books", JOB),
            store.jobs.begin(lease(), 1, ABOUT),
            store.jobs.report(lease()),
        ):
            with pytest.raises(Unavailable):
                await ask

    with_store("unix:///nowhere/at/all", act)
