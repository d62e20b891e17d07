"""Leases that outlive a step of the server's clock, leases of version 0.2, and denied commands.

A test moves the expiry of a key: after a step of the clock the server finds the same.
`tests/faults/test_clock.py` steps the clock of real processes.
"""

import re

import pytest

from app.domain.facts import ModelStatus
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.errors import Fenced
from app.storage.calls import SCRIPTS
from app.storage.embedded.server import EmbeddedServer
from app.storage.jobs import DIED, Lease
from app.storage.keys import LEARNERS, Keys
from app.storage.leases import milliseconds, with_length
from app.storage.store import Store
from tests.backends import anywhere, anywhere_emptied, client, on_servers, with_store
from tests.old_scripts import old_script
from tests.servers import server
from tests.test_store import append_records, first, later

__all__ = ["anywhere", "anywhere_emptied", "server"]  # fixtures

KEYS = Keys("books")
JOB, OTHER = (f"books.01970000-0000-7000-8000-{at:012x}" for at in range(2))
#: Milliseconds: a lease of 5 s that was renewed while the clock was two hours ahead.
TWO_HOURS = 7_205_000


def expire_in(url: str, key: str, milliseconds: int) -> None:
    with client(url) as connection:
        connection.pexpire(key, milliseconds)


async def create_model(store: Store) -> int:
    return await store.models.create("books", initial_state(ModelConfig(("a", "b"))))


async def leader(store: Store) -> int:
    return (await store.models.statuses(["books"]))["books"].leader


# ---- learners ----


def test_a_lease_that_outlives_its_length_is_taken_over_and_its_learner_cannot_commit(
    url: str,
) -> None:
    async def act(store: Store) -> None:
        state = first()
        epoch = await store.models.create("books", state)
        await append_records(store)
        stale = await store.leases.take("books", 0, 5.0)
        assert await leader(store) == stale
        expire_in(url, KEYS.lease, TWO_HOURS)
        assert await leader(store) == 0
        new = await store.leases.take("books", 0, 5.0)
        assert new == stale + 1
        assert await leader(store) == new
        assert await store.leases.take("books", stale, 5.0) == 0
        base = (epoch, 0, state.chain)
        with pytest.raises(Fenced):
            await store.states.commit("books", base, stale, later(state, 1))
        await store.states.commit("books", base, new, later(state, 1))
        await store.leases.release("books", stale)
        assert await store.leases.take("books", 0, 5.0) == 0

    with_store(url, act)


@pytest.mark.parametrize(("milliseconds", "taken"), [(5_900, 0), (6_100, 2)])
def test_a_lease_may_exceed_its_length_by_a_second(url: str, milliseconds: int, taken: int) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        assert await store.leases.take("books", 0, 5.0) == 1
        expire_in(url, KEYS.lease, milliseconds)
        assert await store.leases.take("books", 0, 5.0) == taken

    with_store(url, act)


def test_the_holder_of_a_void_lease_renews_it(url: str) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        fence = await store.leases.take("books", 0, 5.0)
        expire_in(url, KEYS.lease, TWO_HOURS)
        assert await store.leases.take("books", fence, 5.0) == fence
        assert await leader(store) == fence
        assert await store.leases.take("books", 0, 5.0) == 0

    with_store(url, act)
    with client(url) as connection:
        assert 0 < connection.pttl(KEYS.lease) <= 5_000


@on_servers
def test_a_lease_that_never_expires_is_void(url: str) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        fence = await store.leases.take("books", 0, 5.0)
        with client(url) as connection:
            connection.persist(KEYS.lease)
        assert await leader(store) == 0
        assert await store.leases.take("books", 0, 5.0) == fence + 1

    with_store(url, act)


def test_a_renewal_with_another_length_changes_the_length(url: str) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        fence = await store.leases.take("books", 0, 5.0)
        assert await store.leases.take("books", fence, 600.0) == fence
        assert await store.leases.take("books", 0, 5.0) == 0

    with_store(url, act)


def test_the_longest_lease_fits_its_ten_digits(url: str) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        for fence in (1, 2):
            assert await store.leases.take("books", 0, 1e9) == fence
            assert await store.leases.take("books", 0, 1e9) == 0
            await store.leases.release("books", fence)

    with_store(url, act)


# ---- learners of version 0.2 ----

LEASE_KEYS = [KEYS.state, KEYS.fence, KEYS.lease]


@on_servers
def test_a_lease_of_version_0_2_counts_for_60_seconds(url: str) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        assert old_script(url, "lease", LEASE_KEYS, "", 5_000) == 1
        assert await store.leases.take("books", 0, 5.0) == 0
        assert await leader(store) == 1
        expire_in(url, KEYS.lease, 60_900)
        assert await store.leases.take("books", 0, 5.0) == 0
        expire_in(url, KEYS.lease, 61_500)
        assert await leader(store) == 0
        assert await store.leases.take("books", 0, 5.0) == 2
        assert old_script(url, "lease", LEASE_KEYS, "1", 5_000) == 0

    with_store(url, act)


@on_servers
def test_a_learner_of_version_0_2_respects_a_lease_with_a_length(url: str) -> None:
    async def act(store: Store) -> None:
        await create_model(store)
        fence = await store.leases.take("books", 0, 5.0)
        assert old_script(url, "lease", LEASE_KEYS, "", 5_000) == 0
        assert old_script(url, "release", [KEYS.lease], "9") == 0
        with client(url) as connection:
            assert int(connection.get(KEYS.lease)) > 0  # an older worker reads it like this
        assert await store.leases.take("books", fence, 5.0) == fence
        await store.leases.release("books", fence)
        assert old_script(url, "lease", LEASE_KEYS, "", 5_000) == fence + 1
        assert old_script(url, "lease", LEASE_KEYS, str(fence + 1), 5_000) == fence + 1
        assert await store.leases.take("books", fence + 1, 5.0) == fence + 1

    with_store(url, act)


# ---- registrations ----


def test_a_registration_that_outlives_its_length_does_not_count_and_is_removed(url: str) -> None:
    async def act(store: Store) -> None:
        wrong, right = with_length("wrong", 5.0), with_length("right", 5.0)
        assert await store.leases.present(wrong, TWO_HOURS / 1000) == 0
        assert await store.leases.present(right, 5.0) == 1
        assert await store.leases.learners() == 1
        await store.leases.present(wrong, 5.9)
        assert await store.leases.learners() == 2

    with_store(url, act)


def test_a_registration_has_the_models_that_a_learner_leads(url: str) -> None:
    async def act(store: Store) -> None:
        assert await store.leases.led_models() == {}
        await store.leases.present("one:5000", 5.0, {"books", "atlas"})
        await store.leases.present("two:5000", 5.0)
        assert await store.leases.led_models() == {"one:5000": ["atlas", "books"], "two:5000": []}
        await store.leases.present("one:5000", 5.0, ["books"])
        await store.leases.absent("two:5000")
        assert await store.leases.led_models() == {"one:5000": ["books"]}

    with_store(url, act)


@on_servers
def test_a_stored_registration_that_outlives_its_length_does_not_count(url: str) -> None:
    """Version 0.2 wrote no length: 60 s."""

    async def act(store: Store) -> None:
        names = {"old": 59_000, "old and void": 61_500, "new:5000": 5_900, "void:5000": 6_500}
        with client(url) as connection:
            seconds, micros = connection.time()
            now = int(seconds) * 1000 + int(micros) // 1000
            connection.zadd(LEARNERS, {name: now + left for name, left in names.items()})
        assert await store.leases.learners() == 2
        assert await store.leases.present("one:5000", 5.0) == 3
        with client(url) as connection:
            assert set(connection.zrange(LEARNERS, 0, -1)) == {b"old", b"new:5000", b"one:5000"}
        assert old_script(url, "learners", [LEARNERS]) == 3
        assert old_script(url, "present", [LEARNERS], "another", 5_000) == 4
        assert (await store.leases.led_models())["another"] is None

    with_store(url, act)


# ---- training ----


@on_servers
def test_a_training_lease_that_outlives_its_length_is_not_there(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held, other = await create_model(store), job_lease(), job_lease(OTHER)
        assert await store.jobs.begin(held, epoch, {})
        assert (await store.models.statuses(["books"]))["books"].trains
        expire_in(url, KEYS.training, TWO_HOURS)
        found = await store.jobs.read("books", JOB)
        assert found is not None
        assert (found.state, found.error) == ("failed", DIED)
        assert not (await store.models.statuses(["books"]))["books"].trains
        assert await store.jobs.begin(other, epoch, {})
        assert await store.jobs.report(held, progress={}) == "lost"
        assert await store.jobs.report(other, progress={}) == "kept"

    with_store(url, act)


def job_lease(job: str = JOB, seconds: float = 5.0) -> Lease:
    return Lease("books", job, seconds)


@on_servers
def test_a_training_process_renews_its_void_lease(url: str) -> None:
    """The clock went back while it trains."""

    async def act(store: Store) -> None:
        epoch, held = await create_model(store), job_lease()
        assert await store.jobs.begin(held, epoch, {})
        expire_in(url, KEYS.training, TWO_HOURS)
        assert await store.jobs.report(held, progress={"a": 1}) == "kept"
        found = await store.jobs.read("books", JOB)
        assert found is not None
        assert found.state == "running"
        assert not await store.jobs.begin(job_lease(OTHER), epoch, {})

    with_store(url, act)


@on_servers
def test_a_report_ignores_the_void_lease_of_another_job(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await create_model(store), job_lease()
        assert await store.jobs.begin(held, epoch, {})
        with client(url) as connection:
            connection.set(KEYS.training, job_lease(OTHER).trains, px=TWO_HOURS)
        assert await store.jobs.report(held, progress={}) == "kept"

    with_store(url, act)


@on_servers
def test_a_job_with_a_void_lease_is_cancelled_at_once(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        assert await store.jobs.begin(job_lease(), epoch, {})
        expire_in(url, KEYS.training, TWO_HOURS)
        assert await store.jobs.cancel("books", JOB) == "cancelled"
        found = await store.jobs.read("books", JOB)
        assert found is not None
        assert found.state == "cancelled"

    with_store(url, act)


@on_servers
def test_a_training_lease_of_version_0_2_counts_for_60_seconds(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await create_model(store)
        keys = [KEYS.state, KEYS.job(JOB), KEYS.training, KEYS.trained, KEYS.event(epoch, "j")]
        fields = ["state", "running", "trains", "uuid"]
        assert (
            old_script(url, "job_begin", keys, epoch, "uuid", 5_000, 9_999_999, "0:", *fields) == 0
        )
        found = await store.jobs.read("books", JOB)
        assert found is not None
        assert found.state == "running"
        assert not await store.jobs.begin(job_lease(OTHER), epoch, {})
        expire_in(url, KEYS.training, 61_500)
        assert await store.jobs.begin(job_lease(OTHER), epoch, {})

    with_store(url, act)


@on_servers
def test_a_worker_of_version_0_2_finds_the_lease_of_a_job_of_this_version(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, held = await create_model(store), job_lease(seconds=60.0)
        assert await store.jobs.begin(held, epoch, {})
        flat, trains = old_script(url, "job_look", [KEYS.job(JOB), KEYS.training])
        assert dict(zip(flat[::2], flat[1::2], strict=True))[b"trains"] == trains

    with_store(url, act)


# ---- a server that denies PTTL ----


def test_without_the_right_to_pttl_every_lease_counts(server: EmbeddedServer) -> None:
    """An upgrade may meet the access list of version 0.2."""
    with client(server.url) as connection:
        connection.flushall()
        connection.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-pttl"
        )
    guest = server.url.replace("unix://", "unix://guest:secret@", 1)

    async def act(store: Store) -> None:
        epoch = await create_model(store)
        fence = await store.leases.take("books", 0, 5.0)
        assert await store.leases.take("books", fence, 5.0) == fence
        assert await store.jobs.begin(job_lease(), epoch, {})
        assert await store.jobs.report(job_lease(), progress={}) == "lost"
        for key in (KEYS.lease, KEYS.training):
            expire_in(server.url, key, TWO_HOURS)
        assert await store.leases.take("books", 0, 5.0) == 0
        assert not await store.jobs.begin(job_lease(OTHER), epoch, {})
        found = await store.jobs.read("books", JOB)
        assert found is not None
        assert found.state == "running"
        assert await store.models.statuses(["books"]) == {
            "books": ModelStatus(0, leader=1, terms=1, trains=True)
        }
        await store.leases.release("books", fence)
        assert await store.leases.take("books", 0, 5.0) == fence + 1

    with_store(guest, act)


# ---- the scripts ----


def test_all_scripts_have_the_same_rule_for_void_leases() -> None:
    rule = re.compile(r"-- A lease is void.*?\nend\n", re.DOTALL)
    found = {path.stem: rule.findall(path.read_text()) for path in SCRIPTS.glob("*.lua")}
    having = {name for name, rules in found.items() if rules}
    assert having == {"lease", "job_begin", "job_report", "job_cancel", "job_look"}
    assert len({tuple(found[name]) for name in having}) == 1


def test_a_length_is_at_least_a_millisecond_and_has_at_most_ten_digits() -> None:
    assert [milliseconds(one) for one in (0.0, 0.0004, 5.0, 1e12)] == [1, 1, 5_000, 9_999_999_999]
