"""Training jobs in the store, on real servers: start, reports, leases, cancellation, resends."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.errors import NoSuchModel, Unavailable
from app.storage.calls import ScriptRunner
from app.storage.jobs import DIED, JOB_KEPT_SECONDS, Job, Jobs, Lease, record_event
from app.storage.keys import JOB_LIST, Keys
from app.storage.log import APPENDED, REPEATED, NewRecord
from app.storage.store import Store
from tests.old_scripts import old_script
from tests.servers import anywhere, anywhere_emptied, client, eventually, keys_like, with_store

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

KEYS = Keys("books")
JOB = "books.01970000-0000-7000-8000-000000000000"
OTHER = "books.01970000-0000-7000-8000-000000000001"
ABOUT = {"training": {"trainer": "ranksvm"}, "blob": False, "begun": 1.5}
LONG, SHORT = 600.0, 0.02  # seconds


def lease(job: str = JOB, seconds: float = LONG) -> Lease:
    return Lease("books", job, seconds)


async def create_model(store: Store, n: int = 2) -> int:
    return await store.models.create(
        "books", initial_state(ModelConfig(tuple(f"f{k}" for k in range(n))))
    )


async def read_job(store: Store, job: str = JOB) -> Job:
    found = await store.jobs.read("books", job)
    assert found is not None
    return found


async def lease_expired(store: Store) -> None:
    """Wait until the lease has expired."""
    lease_exists: Callable[[], Awaitable[int]] = lambda: store._client.exists(KEYS.training)  # noqa: E731
    await eventually(lease_exists, lambda found: found == 0)


def stored_jobs(url: str) -> dict[bytes, Any]:
    """Return all keys of jobs with their values."""
    with client(url) as connection:
        jobs = {name: connection.hgetall(name) for name in keys_like(connection, "*:job:*")}
        return {**jobs, b"training": connection.get(KEYS.training)}


def remaining(url: str, key: str) -> float:
    """Return the TTL of a key in seconds."""
    with client(url) as connection:
        found: int = connection.pttl(key)
        return found / 1000


class ResendingRunner(ScriptRunner):
    """Sends every script twice, like a client after a lost connection; keeps both answers."""

    def __init__(self, store: Store) -> None:
        super().__init__(store._client)
        self.answers: list[tuple[int, int]] = []

    async def script(self, name: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
        first, second = [
            await super(ResendingRunner, self).script(name, keys, values) for _ in "12"
        ]
        if name != "job_look":
            self.answers.append((int(first), int(second)))
        return second


# ---- start ----


def test_a_started_job_is_running_and_has_its_options(url: str) -> None:
    async def act(store: Store) -> tuple[int, Job]:
        epoch = await create_model(store)
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        return epoch, await read_job(store)

    epoch, found = with_store(url, act)
    assert found == Job(epoch, "running", ABOUT, {}, {}, "")


def test_a_job_is_kept_for_a_week_and_its_lease_for_its_ttl(url: str) -> None:
    async def act(store: Store) -> None:
        assert await store.jobs.begin(lease(), await create_model(store), ABOUT)

    with_store(url, act)
    assert JOB_KEPT_SECONDS - 60 < remaining(url, KEYS.job(JOB)) <= JOB_KEPT_SECONDS
    assert LONG - 60 < remaining(url, KEYS.training) <= LONG


def test_a_second_job_of_a_model_is_refused_and_writes_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await create_model(store), lease()
        assert await store.jobs.begin(held, epoch, ABOUT)
        before = stored_jobs(url)
        assert not await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        assert not await store.jobs.begin(lease(JOB), epoch, {"training": {}})
        assert stored_jobs(url) == before
        assert await store.jobs.read("books", OTHER) is None

    with_store(url, act)


def test_two_models_are_trained_at_the_same_time(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        films = await store.models.create("films", initial_state(ModelConfig(("f",))))
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        assert await store.jobs.begin(Lease("films", "films.x", LONG), films, ABOUT)

    with_store(url, act)


def test_one_of_many_concurrent_jobs_starts(url: str) -> None:
    async def act(store: Store) -> list[bool]:
        epoch = await create_model(store)
        leases = [lease(f"books.{at}") for at in range(20)]
        begun = await asyncio.gather(*(store.jobs.begin(one, epoch, ABOUT) for one in leases))
        assert len(await store._client.keys(KEYS.job("*"))) == 1
        return list(begun)

    assert sum(with_store(url, act)) == 1


@pytest.mark.parametrize("wrong", [-1, 1])
def test_no_job_starts_for_another_epoch_of_the_model(url: str, wrong: int) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), epoch + wrong, ABOUT)

    with_store(url, act)
    assert stored_jobs(url) == {b"training": None}


def test_no_job_starts_for_a_deleted_or_unknown_model(url: str) -> None:
    async def act(store: Store) -> None:
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), 1, ABOUT)
        epoch = await create_model(store)
        await store.models.delete("books")
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), epoch, ABOUT)
        await create_model(store)
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(), epoch, ABOUT)

    with_store(url, act)
    assert stored_jobs(url) == {b"training": None}


def test_a_restarted_job_has_no_data_of_its_first_attempt(url: str) -> None:
    async def act(store: Store) -> Job:
        epoch, first = await create_model(store), lease()
        assert await store.jobs.begin(first, epoch, ABOUT)
        assert await store.jobs.report(first, progress={"iteration": 3}) == "kept"
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        await store.jobs.report(first, ends=True, state="failed", error="why", result={"seq": 1})
        again = lease()
        assert await store.jobs.begin(again, epoch, ABOUT)
        assert await store.jobs.report(again, progress={}) == "kept"
        return await read_job(store)

    found = with_store(url, act)
    assert (found.state, found.progress, found.result, found.error) == ("running", {}, {}, "")


# ---- reports ----


def test_a_report_is_stored_and_renews_the_lease_and_the_job(url: str) -> None:
    async def act(store: Store) -> Job:
        held = lease()
        assert await store.jobs.begin(held, await create_model(store), ABOUT)
        for key in (KEYS.training, KEYS.job(JOB)):
            await store._client.pexpire(key, 5000)
        assert await store.jobs.report(held, progress={"a": 1}) == "kept"
        return await read_job(store)

    found = with_store(url, act)
    assert (found.state, found.progress, found.about) == ("running", {"a": 1}, ABOUT)
    assert remaining(url, KEYS.training) > LONG - 60
    assert remaining(url, KEYS.job(JOB)) > JOB_KEPT_SECONDS - 60


def test_a_job_fails_if_its_training_process_stops_reporting(url: str) -> None:
    async def act(store: Store) -> Job:
        assert await store.jobs.begin(lease(seconds=SHORT), await create_model(store), ABOUT)
        return await eventually(lambda: read_job(store), lambda job: job.state == "failed")

    assert with_store(url, act).error == DIED


def test_a_job_fails_if_another_job_trains_its_model(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        assert await store.jobs.begin(lease(seconds=SHORT), epoch, ABOUT)
        await lease_expired(store)
        assert await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        assert (await read_job(store)).state == "failed"
        assert (await read_job(store, OTHER)).state == "running"

    with_store(url, act)


def test_a_report_renews_an_expired_lease_if_no_other_job_started(url: str) -> None:
    async def act(store: Store) -> Job:
        held, epoch = lease(), await create_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await store._client.pexpire(KEYS.training, 1)
        await lease_expired(store)
        assert await store.jobs.report(held, progress={"a": 1}) == "kept"
        assert not await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        return await read_job(store)

    found = with_store(url, act)
    assert (found.state, found.progress) == ("running", {"a": 1})


def test_a_report_during_another_job_is_refused_and_writes_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        held, epoch = lease(seconds=SHORT), await create_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await lease_expired(store)
        assert await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        before = stored_jobs(url)
        assert await store.jobs.report(held, progress={"a": 1}) == "lost"
        assert await store.jobs.report(held, ends=True, state="done") == "lost"
        assert stored_jobs(url) == before

    with_store(url, act)


def test_a_report_after_another_job_of_the_model_is_refused(url: str) -> None:
    """The result of the other job is newer."""

    async def act(store: Store) -> None:
        held, epoch, other = lease(seconds=SHORT), await create_model(store), lease(OTHER)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await lease_expired(store)
        assert await store.jobs.begin(other, epoch, ABOUT)
        assert await store.jobs.report(other, ends=True, state="done") == "kept"
        before = stored_jobs(url)
        assert await store.jobs.report(held, progress={"late": 1}) == "lost"
        assert stored_jobs(url) == before

    with_store(url, act)


@pytest.mark.parametrize("ended", [False, True])
def test_a_report_of_the_first_process_of_a_restarted_job_is_refused(url: str, ended: bool) -> None:
    """Also after the end of the second process: its report is final."""

    async def act(store: Store) -> None:
        held, epoch = lease(seconds=SHORT), await create_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        await lease_expired(store)
        again = lease(seconds=LONG if ended else SHORT)
        assert await store.jobs.begin(again, epoch, ABOUT)
        if ended:
            assert await store.jobs.report(again, ends=True, state="done") == "kept"
        await lease_expired(store)
        before = stored_jobs(url)
        assert await store.jobs.report(held, progress={"late": 1}) == "lost"
        assert await store.jobs.report(held, ends=True, state="failed") == "lost"
        assert stored_jobs(url) == before

    with_store(url, act)


def test_a_report_of_an_expired_job_is_refused_and_creates_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await create_model(store), ABOUT)
        await store._client.delete(KEYS.job(JOB))
        assert await store.jobs.report(held, progress={"a": 1}) == "lost"
        assert await store.jobs.report(held, ends=True, state="done") == "lost"
        assert await store.jobs.read("books", JOB) is None

    with_store(url, act)


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_a_job_that_ends_releases_its_lease_and_stores_its_outcome(url: str, state: str) -> None:
    async def act(store: Store) -> Job:
        held, epoch = lease(), await create_model(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        said = {"state": state, "result": {"seq": 7}, "error": "why"}
        assert await store.jobs.report(held, ends=True, **said) == "kept"
        assert await store.jobs.report(held, progress={"late": 1}) == "lost"
        assert await store.jobs.begin(lease(OTHER), epoch, ABOUT)
        assert await store.jobs.report(held, ends=True, **said) == "kept"  # resent
        return await read_job(store)

    found = with_store(url, act)
    assert (found.state, found.result, found.error) == (state, {"seq": 7}, "why")
    assert found.progress == {}
    assert remaining(url, KEYS.job(JOB)) > JOB_KEPT_SECONDS - 60


# ---- cancellation ----


def test_every_report_of_a_cancelled_job_answers_cancel_until_it_ends(url: str) -> None:
    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await create_model(store), ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert (await read_job(store)).state == "running"
        for _ in range(2):
            assert await store.jobs.report(held, progress={"a": 1}) == "cancel"
        assert (await read_job(store)).progress == {}
        assert await store.jobs.report(held, ends=True, state="cancelled") == "kept"
        assert (await read_job(store)).state == "cancelled"
        assert await store.jobs.cancel("books", JOB) == "cancelled"

    with_store(url, act)


def test_a_job_without_a_training_process_is_cancelled_at_once(url: str) -> None:
    """Its training process may only have lost the connection."""

    async def act(store: Store) -> None:
        held = lease(seconds=SHORT)
        assert await store.jobs.begin(held, await create_model(store), ABOUT)
        await lease_expired(store)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert (await read_job(store)).state == "cancelled"
        assert await store.jobs.report(held, progress={"a": 1}) == "cancel"
        assert (await read_job(store)).state == "cancelled"

    with_store(url, act)


def test_a_cancelled_job_is_cancelled_when_its_training_process_dies(url: str) -> None:
    """Stopping takes time without lease renewals, and the process may die during it."""

    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await create_model(store), ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        await store._client.pexpire(KEYS.training, 1)
        await lease_expired(store)
        found = await read_job(store)
        assert (found.state, found.error) == ("cancelled", "")
        assert await store.jobs.report(held, ends=True, state="cancelled") == "kept"
        assert (await read_job(store)).state == "cancelled"

    with_store(url, act)


@pytest.mark.parametrize("state", ["done", "failed"])
def test_an_ended_job_cannot_be_cancelled(url: str, state: str) -> None:
    async def act(store: Store) -> None:
        held = lease()
        assert await store.jobs.begin(held, await create_model(store), ABOUT)
        await store.jobs.report(held, ends=True, state=state)
        before = stored_jobs(url)
        assert await store.jobs.cancel("books", JOB) == "ended"
        assert stored_jobs(url) == before

    with_store(url, act)


async def append_record(store: Store, epoch: int) -> int:
    """Append the record of the job; return its seq."""
    record = NewRecord(record_event(JOB), b"", b"record")
    (appended,) = await store.log.append("books", epoch, [record], limit=10, time=1)
    return appended.seq


def test_a_job_whose_record_is_in_the_log_cannot_be_cancelled(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        assert await append_record(store, epoch) == 1
        before = stored_jobs(url)
        assert await store.jobs.cancel("books", JOB) == "ended"
        assert stored_jobs(url) == before
        assert await append_record(store, epoch) == 1  # resent

    with_store(url, act)


def test_the_record_of_a_cancelled_job_is_not_appended_unless_the_job_starts_again(
    url: str,
) -> None:
    """A resent append may reach the server after the cancellation."""

    async def act(store: Store) -> None:
        epoch, held = await create_model(store), lease()
        assert await store.jobs.begin(held, epoch, ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert await append_record(store, epoch) == 0
        assert await store.log.tail("books") == 0
        assert await store.jobs.report(held, ends=True, state="failed") == "kept"
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        assert await append_record(store, epoch) == 1

    with_store(url, act)


def test_calls_for_an_unknown_job_create_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        assert await store.jobs.cancel("books", JOB) == "unknown"
        assert await store.jobs.cancel("unknown", JOB) == "unknown"
        assert await store.jobs.read("unknown", JOB) is None

    with_store(url, act)
    assert stored_jobs(url) == {b"training": None}


def test_cancelling_one_job_does_not_affect_another_job_of_the_model(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await create_model(store), lease(OTHER)
        assert await store.jobs.begin(lease(seconds=SHORT), epoch, ABOUT)
        await lease_expired(store)
        assert await store.jobs.begin(held, epoch, ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert await store.jobs.report(held, progress={}) == "kept"

    with_store(url, act)


# ---- feedback with the id of version 0.2, and jobs in flight during an upgrade ----

OLD_EVENT = f"job-{JOB}"
DIGEST = b"16 bytes of hash"


def old_append(url: str, epoch: int) -> list[Any]:
    """Append the record of the job as version 0.2 does; return its outcome and its seq."""
    keys = [KEYS.state, KEYS.seq, KEYS.log, KEYS.event(epoch, OLD_EVENT), KEYS.state]
    code, answer = old_script(
        url, "append", keys, epoch, 10, 60_000, 1, "", 1, b"", b"old", "", "", ""
    )
    assert code == 0
    return list(answer)


def old_cancel(url: str, epoch: int) -> int:
    keys = [KEYS.job(JOB), KEYS.training, KEYS.event(epoch, OLD_EVENT)]
    return int(old_script(url, "job_cancel", keys, "running", "cancelled", 60_000, "0:"))


def test_feedback_with_the_id_of_version_0_2_is_no_record_of_a_job(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        feedback = [NewRecord(OLD_EVENT, DIGEST, b"feedback")]
        assert await store.log.append("books", epoch, feedback, limit=10, time=1) == [(APPENDED, 1)]
        assert await store.jobs.record_of_0_2("books", epoch, JOB) is None
        assert await append_record(store, epoch) == 2
        assert await store.jobs.cancel("books", JOB) == "ended"
        assert await store.log.append("books", epoch, feedback, limit=10, time=1) == [(REPEATED, 1)]

    with_store(url, act)


def test_a_job_is_cancelled_beside_feedback_with_the_id_of_version_0_2(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        feedback = [NewRecord(OLD_EVENT, DIGEST, b"feedback")]
        await store.log.append("books", epoch, feedback, limit=10, time=1)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert await append_record(store, epoch) == 0
        assert await store.log.append("books", epoch, feedback, limit=10, time=1) == [(REPEATED, 1)]

    with_store(url, act)


def test_a_record_that_version_0_2_appended_is_the_record_of_its_job(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        assert await store.jobs.begin(lease(seconds=SHORT), epoch, ABOUT)
        assert await store.jobs.record_of_0_2("books", epoch, JOB) is None
        assert old_append(url, epoch) == [APPENDED, 1]
        assert await store.jobs.cancel("books", JOB) == "ended"
        await lease_expired(store)
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        assert await store.jobs.record_of_0_2("books", epoch, JOB) == 1

    with_store(url, act)


def test_a_job_that_version_0_2_cancelled_is_cancelled_until_it_starts_again(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await create_model(store), lease()
        assert await store.jobs.begin(held, epoch, ABOUT)
        assert old_cancel(url, epoch) == 0
        assert await store.jobs.record_of_0_2("books", epoch, JOB) == 0
        assert await store.jobs.report(held, progress={}) == "cancel"
        assert await store.jobs.report(held, ends=True, state="cancelled") == "kept"
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        assert await store.jobs.record_of_0_2("books", epoch, JOB) is None

    with_store(url, act)


def test_a_cancelled_job_that_version_0_2_trains_appends_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        assert old_append(url, epoch) == [REPEATED, 0]
        assert await store.log.tail("books") == 0
        assert old_cancel(url, epoch) == 0

    with_store(url, act)


# ---- the list of jobs ----


def job_ids(count: int, model: str = "books", days: float = 0.0) -> list[str]:
    """Return ids of jobs that were created this long ago, in the order of creation."""
    start = int((time.time() - days * 86_400.0) * 1000)
    return [
        f"{model}.{moment[:8]}-{moment[8:]}-7000-8000-{at:012x}"
        for at in range(count)
        for moment in [f"{start + at // 2:012x}"]  # two in each millisecond
    ]


async def begin_and_end(store: Store, job: str, epoch: int) -> None:
    held = Lease(job.partition(".")[0], job, LONG)
    assert await store.jobs.begin(held, epoch, ABOUT)
    assert await store.jobs.report(held, ends=True, state="done") == "kept"


def test_jobs_of_all_models_are_listed_newest_first_in_pages(url: str) -> None:
    async def act(store: Store) -> None:
        epochs = {"books": await create_model(store)}
        epochs["films"] = await store.models.create("films", initial_state(ModelConfig(("f",))))
        ids = [job for pair in zip(job_ids(4), job_ids(4, "films"), strict=True) for job in pair]
        for job in ids:
            await begin_and_end(store, job, epochs[job.partition(".")[0]])
        newest_first = sorted(ids, key=lambda job: job.partition(".")[::-1], reverse=True)
        for limit in (1, 2, 3, 7, 8, 9):
            listed: list[str] = []
            more = True
            while more:
                jobs, more = await store.jobs.page(limit, listed[-1] if listed else "")
                assert len(jobs) == limit or not more
                assert {job.state for job in jobs.values()} <= {"done"}
                listed += jobs
            assert listed == newest_first
        await store.jobs.begin(Lease("books", ids[0], LONG), epochs["books"], ABOUT)
        assert [*(await store.jobs.page(9)).jobs] == newest_first  # a restart keeps its place

    with_store(url, act)


def test_expired_jobs_leave_the_list(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, ids = await create_model(store), job_ids(6, days=3)
        for job in ids:
            await begin_and_end(store, job, epoch)
        for job in ids[1:]:
            await store._client.delete(KEYS.job(job))
        assert await store.jobs.page(2) == ({ids[0]: await read_job(store, ids[0])}, False)
        assert await store._client.zcard(JOB_LIST) == 1
        (forgotten,) = job_ids(1, days=30)  # removed by the next start, without a list
        await store._client.zadd(JOB_LIST, {"{0[2]}.{0[0]}".format(forgotten.partition(".")): 0})
        await begin_and_end(store, job_ids(1)[0], epoch)
        assert await store._client.zcard(JOB_LIST) == 2

    with_store(url, act)


def test_a_job_that_does_not_start_is_not_listed(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, (first, second) = await create_model(store), job_ids(2)
        assert await store.jobs.begin(lease(first), epoch, ABOUT)
        assert not await store.jobs.begin(lease(second), epoch, ABOUT)
        with pytest.raises(NoSuchModel):
            await store.jobs.begin(lease(second), epoch + 1, ABOUT)
        assert await store._client.zcard(JOB_LIST) == 1
        assert not await store.jobs.begin(lease(first), epoch, ABOUT)
        assert [*(await store.jobs.page(5)).jobs] == [first]

    with_store(url, act)


# ---- resends ----


def test_each_resent_call_has_one_effect(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await create_model(store), lease()
        calls = ResendingRunner(store)
        jobs = Jobs(store._client, calls)
        assert await jobs.begin(held, epoch, ABOUT)
        assert await jobs.report(held, progress={"a": 1}) == "kept"
        assert not await jobs.begin(lease(OTHER), epoch, ABOUT)
        assert await jobs.report(held, progress={"a": 2}) == "kept"
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
        assert (await read_job(store)).state == "cancelled"

    with_store(url, act)


def test_a_resent_end_after_the_start_of_another_job_changes_nothing(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await create_model(store), lease()
        assert await store.jobs.begin(held, epoch, ABOUT)
        assert await store.jobs.report(held, ends=True, state="failed") == "kept"
        assert await store.jobs.begin(lease(), epoch, ABOUT)
        before = stored_jobs(url)
        assert await store.jobs.report(held, ends=True, state="failed") == "lost"
        assert stored_jobs(url) == before

    with_store(url, act)


# ---- the store itself ----


def test_the_keys_of_a_job_are_in_the_cluster_slot_of_its_model() -> None:
    assert all("{books}" in key for key in (KEYS.training, KEYS.job(JOB), KEYS.state))


def test_an_unreachable_store_is_an_unavailable_error() -> None:
    async def act(store: Store) -> None:
        for ask in (
            store.jobs.read("books", JOB),
            store.jobs.cancel("books", JOB),
            store.jobs.begin(lease(), 1, ABOUT),
            store.jobs.report(lease()),
            store.jobs.page(5),
        ):
            with pytest.raises(Unavailable):
                await ask

    with_store("unix:///nowhere/at/all", act)
