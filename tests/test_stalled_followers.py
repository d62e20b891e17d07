"""Stalled followers: they harm neither their leader nor the check of a store."""

import asyncio
from dataclasses import replace

import pytest

from app.cli.replay import replay_log
from app.cli.verify import verify_models
from app.errors import NoSuchModel, SolarError, Stalled
from app.learning.learner import Learner
from app.learning.options import LearnerOptions
from app.learning.replay import replay, verify
from app.storage.keys import keys_of
from app.storage.store import Store
from tests.servers import client, server, url, with_store
from tests.test_follower_learner import FOLLOWER, OPTIONS, VERSIONED, follow
from tests.test_learner import append, blobs, committed, feedback, first, learning

__all__ = ["server", "url"]  # fixtures

SMALL_LOG = replace(VERSIONED, log_bytes=30 * len(feedback(0)))
CHECKED = "log without gaps, chain and state equal to the replay, weights valid"
STALLED = (
    "stalled, cannot be replayed: the log begins after its first version; "
    "checksums and weights valid"
)


async def lead_alone(store: Store, options: LearnerOptions, *ends: int) -> None:
    """Let the leader learn records up to each seq, and no follower."""
    stop = asyncio.Event()
    ahead = asyncio.create_task(Learner(store, "books", options).run(stop))
    for end in ends:
        await append(store, blobs(await store.log.tail("books"), end))
        await committed(store, end)
    stop.set()
    await ahead


async def stalled_follower(store: Store) -> None:
    """Create a leader, a follower that learns 7 records and stalls, and another follower."""
    await store.models.create("books", first())
    await follow(store)
    async with learning(store, OPTIONS):
        await append(store, blobs(0, 7))
        await committed(store, 7, FOLLOWER)
    await lead_alone(store, SMALL_LOG, *range(10, 90, 5))
    assert await store.followers.of("books") == {"books-b": True}
    await follow(store, "books-c")


async def verified(store: Store, *models: str, bound: bool = False) -> list[str]:
    lines = list[str]()
    await verify_models(store, [*models], lines.append, bound=bound)
    return lines


# ---- checks of a store ----


def test_verify_says_that_a_stalled_follower_cannot_be_replayed_and_finds_no_error(
    url: str,
) -> None:
    async def act(store: Store) -> None:
        await stalled_follower(store)
        books, *others = await verified(store)
        assert books == f"books: {CHECKED}"
        assert others == [f"books-b: {STALLED}", f"books-c: {CHECKED}"]
        assert await verified(store, "books-b", bound=True) == [f"books-b: {STALLED}"]
        with pytest.raises(Stalled, match="model books-b: it is stalled"):
            await replay_log(store, "books-b", None, False, print)

    with_store(url, act)


@pytest.mark.parametrize("kept", ["state", "version"])
def test_verify_finds_a_damaged_stalled_follower(url: str, kept: str) -> None:
    async def act(store: Store) -> None:
        await stalled_follower(store)
        keys = keys_of(FOLLOWER)
        with client(url) as connection:
            connection.hset(keys.state if kept == "state" else keys.snapshot(0), "w", b"junk")
        lines = list[str]()
        with pytest.raises(SolarError, match="1 of 3 models"):
            await verify_models(store, [], lines.append)
        [problem] = [line for line in lines if line.startswith("books-b:")]
        assert STALLED not in problem
        assert ("version 0:" in problem) == (kept == "version")

    with_store(url, act)


def test_verify_replays_a_stalled_follower_while_the_log_has_its_records(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        async with learning(store, OPTIONS):
            await append(store, blobs(0, 7))
            await committed(store, 7, FOLLOWER)
        await store.followers.stall(FOLLOWER)
        await lead_alone(store, OPTIONS, 9)
        assert await verified(store) == [f"books: {CHECKED}", f"books-b: {CHECKED}"]
        assert (await replay(store, FOLLOWER)).differences() == []
        with client(url) as connection:
            connection.xdel(keys_of("books").log, "8-0")
        assert await verify(store, FOLLOWER) == ["the log has a gap: expected record 8"]

    with_store(url, act)


def test_verify_skips_a_name_whose_creation_did_not_end_and_checks_the_others(url: str) -> None:
    """As after a crash between the registration of a name and the creation."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        await store.followers.register("books", ["a-follower"])
        await store.followers.register("", ["a-model"])
        skipped = "not checked: no model yet, or no longer: only its name is there"
        assert await verified(store) == [
            f"a-model: {skipped}", f"books: {CHECKED}",
            f"a-follower: {skipped}", f"books-b: {CHECKED}",
        ]  # fmt: skip
        for name in ("a-follower", "a-model"):
            with pytest.raises(NoSuchModel):
                await verified(store, name)

    with_store(url, act)
