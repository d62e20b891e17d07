"""Kept versions in the store, on every kind of store: named ones, hourly ones, and their end."""

from typing import Any

import pytest

from app.errors import (
    InvalidInput,
    NoSuchModel,
    NoSuchVersion,
    TooManyVersions,
    VersionExists,
)
from app.storage.states import NewVersion
from app.storage.store import Store
from app.storage.versions import MOST_NAMED, check_version_name
from tests.backends import anywhere, anywhere_emptied, client, with_store
from tests.servers import keys_like
from tests.test_codec import bits
from tests.test_store import KEYS, append_records, first, later

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

HOURLY = NewVersion("hour", hourly=True)


async def begin(store: Store) -> tuple[int, int]:
    """Create a model with some records; return its epoch and the fencing token of a learner."""
    epoch = await store.models.create("books", first())
    await append_records(store)
    return epoch, await store.leases.take("books", 0, 60.0)


async def commit(store: Store, fence: int, seq: int, **options: Any) -> None:
    base = await store.states.position("books")
    await store.states.commit("books", base, fence, later(first(), seq), **options)


def test_a_new_model_has_one_version_with_time_and_reason(url: str) -> None:
    async def act(store: Store) -> None:
        await begin(store)
        (kept,) = await store.versions.listed("books")
        assert (kept.seq, kept.name, kept.reason) == (0, None, "created")
        assert kept.time is not None
        assert kept.size > 100
        assert kept.sums is not None

    with_store(url, act)


def test_a_named_version_is_the_committed_state(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await commit(store, fence, 3)
        assert await store.versions.keep("books", epoch, "before-sale") == 3
        await commit(store, fence, 5)
        for wanted in ("before-sale", 3):
            found = (await store.versions.load("books", wanted)).state
            assert bits(found) == bits(later(first(), 3))
            weights = await store.versions.load_weights("books", wanted)
            assert (weights.epoch, weights.seq, weights.weights[0]) == (epoch, 3, 3.0)
        assert await store.states.versions("books") == [0]
        names = [(one.seq, one.name, one.reason) for one in await store.versions.listed("books")]
        assert names == [(0, None, "created"), (3, "before-sale", "named")]

    with_store(url, act)


def test_a_name_is_taken_until_its_version_is_deleted(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await store.versions.keep("books", epoch, "one")
        await commit(store, fence, 2)
        with pytest.raises(VersionExists):
            await store.versions.keep("books", epoch, "one")
        assert (await store.versions.load("books", "one")).state.seq == 0
        await store.versions.drop("books", epoch, "one")
        with pytest.raises(NoSuchVersion):
            await store.versions.drop("books", epoch, "one")
        with pytest.raises(NoSuchVersion):
            await store.versions.load("books", "one")
        assert await store.versions.keep("books", epoch, "one") == 2

    with_store(url, act)


def test_a_model_has_at_most_ten_named_versions(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await commit(store, fence, 1, version=HOURLY)  # does not count
        for at in range(MOST_NAMED):
            await store.versions.keep("books", epoch, f"v{at}")
        with pytest.raises(TooManyVersions):
            await store.versions.keep("books", epoch, "one-more")
        await store.versions.drop("books", epoch, "v3")
        await store.versions.keep("books", epoch, "one-more")

    with_store(url, act)


def test_a_resent_call_keeps_the_version_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost answer makes the client send the same call again."""

    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        sent = store.versions._calls.durable_script

        async def twice(*call: Any) -> Any:
            await sent(*call)
            await commit(store, fence, 4)
            return await sent(*call)

        monkeypatch.setattr(store.versions._calls, "durable_script", twice)
        assert await store.versions.keep("books", epoch, "one") == 0
        assert (await store.versions.load("books", "one")).state.seq == 0

    with_store(url, act)


def test_no_version_is_kept_of_a_missing_or_recreated_model(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, _ = await begin(store)
        for model, number in (("atlas", 1), ("books", epoch + 1)):
            with pytest.raises(NoSuchModel):
                await store.versions.keep(model, number, "one")
        assert [one.key for one in await store.versions.placed("books")] == [KEYS.snapshot(0)]
        assert await store.versions.placed("atlas") == []

    with_store(url, act)


def test_an_hourly_version_is_kept_beside_those_that_the_log_continues(url: str) -> None:
    async def act(store: Store) -> None:
        _, fence = await begin(store)
        for seq in range(1, 6):
            drop = [seq - 2] if seq > 2 else []
            await commit(store, fence, seq, version=HOURLY, drop=drop)
        assert await store.states.versions("books") == [0]
        assert await store.versions.hourly("books") == [4, 5]
        assert bits((await store.versions.load("books", 4)).state) == bits(later(first(), 4))
        with pytest.raises(NoSuchVersion):
            await store.versions.load("books", 3)
        listed = [(one.seq, one.reason) for one in await store.versions.listed("books")]
        assert listed == [(0, "created"), (4, "hour"), (5, "hour")]
        last = await store.versions.last_hourly("books", 0)
        assert (last.seq, last.time is not None) == (5, True)

    with_store(url, act)


def test_a_version_of_an_older_release_has_no_time_and_no_reason(url: str) -> None:
    async def act(store: Store) -> None:
        await begin(store)
        with client(url) as connection:
            for field in ("time", "reason"):
                connection.hdel(KEYS.snapshot(0), field)
        (kept,) = await store.versions.listed("books")
        assert (kept.seq, kept.time, kept.reason) == (0, None, None)
        assert await store.versions.last_hourly("books", 0) == (None, 0)

    with_store(url, act)


def test_a_damaged_version_is_listed_without_sums(url: str) -> None:
    async def act(store: Store) -> None:
        await begin(store)
        with client(url) as connection:
            connection.hset(KEYS.snapshot(0), "sums", b"junk")
        (kept,) = await store.versions.listed("books")
        assert (kept.seq, kept.sums) == (0, None)

    with_store(url, act)


def test_a_deleted_model_leaves_no_version(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await commit(store, fence, 1, version=HOURLY)
        await commit(store, fence, 2, version=NewVersion())
        await store.versions.keep("books", epoch, "one")
        await store.models.delete("books")
        with client(url) as connection:
            left = {key for key in keys_like(connection) if b"snap" in key or b"keep" in key}
        assert left == set()

    with_store(url, act)


def test_a_deletion_also_removes_a_version_that_is_named_at_the_same_time(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, _ = await begin(store)
        read, named = store.versions.all_keys, list[int]()

        async def all_keys(model: str) -> list[str]:
            found = await read(model)
            if not named:
                named.append(await store.versions.keep("books", epoch, "late"))
            return found

        store.versions.all_keys = all_keys  # type: ignore[method-assign]
        await store.models.delete("books")
        assert named == [0]
        with client(url) as connection:
            assert not connection.exists(KEYS.named(epoch, "late"))

    with_store(url, act)


def test_versions_that_an_older_release_left_behind_are_gone_in_a_new_model(url: str) -> None:
    """Older releases delete a model without its hourly and named versions."""

    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await commit(store, fence, 1, version=HOURLY)
        await store.versions.keep("books", epoch, "one")
        with client(url) as connection:
            for key in (KEYS.state, KEYS.seq, KEYS.log, KEYS.snapshots, KEYS.snapshot(0)):
                connection.drop(key) if url == "double" else connection.delete(key)
        await store.models.create("books", first())
        assert [one.seq for one in await store.versions.listed("books")] == [0]
        with client(url) as connection:
            assert not connection.exists(KEYS.named(epoch, "one"))
            assert not connection.exists(KEYS.hourly(epoch, 1))

    with_store(url, act)


def test_versions_of_a_deleted_model_are_not_those_of_its_successor(url: str) -> None:
    """An older release also creates the next model without a look at them."""

    async def act(store: Store) -> None:
        epoch, fence = await begin(store)
        await commit(store, fence, 1, version=HOURLY)
        await store.versions.keep("books", epoch, "one")
        with client(url) as connection:
            connection.hset(KEYS.state, "epoch", epoch + 1)
        assert [one.seq for one in await store.versions.placed("books")] == [0]
        assert await store.versions.hourly("books") == []
        for wanted in ("one", 1):
            with pytest.raises(NoSuchVersion):
                await store.versions.load("books", wanted)
        assert await store.versions.keep("books", epoch + 1, "one") == 1
        await store.models.delete("books")
        with client(url) as connection:
            assert not connection.exists(KEYS.named(epoch, "one"))

    with_store(url, act)


@pytest.mark.parametrize("field", ["time", "reason", "seq"])
@pytest.mark.parametrize("value", [b"junk", b"\xff", b"99999999999999999999", b"-1"])
def test_a_version_with_a_damaged_field_is_listed(url: str, field: str, value: bytes) -> None:
    async def act(store: Store) -> None:
        await begin(store)
        with client(url) as connection:
            connection.hset(KEYS.snapshot(0), field, value)
        (kept,) = await store.versions.listed("books")
        assert kept.seq == 0
        assert field != "time" or kept.time is None
        assert (await store.versions.last_hourly("books", 0)).seq == 0

    with_store(url, act)


@pytest.mark.parametrize("name", ["before-sale", "v1.2", "A_b", "1a", 64 * "x", "-"])
def test_a_name_has_letters_digits_and_a_few_signs(name: str) -> None:
    assert check_version_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "7", "0012", 65 * "x", "a b", "a/b", "a:b", "ü", "a\n", "a{b", ".", "..", ".a"]
)
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="expected 1 to 64 letters"):
        check_version_name(name)
