"""The contract of the store for followers: names, creation, commits, trimming, deletion.

Tests with the fixture `url` run on every kind of server and on the simulator's double.
"""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.domain.codec import next_chain
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.errors import (
    Changed,
    Fenced,
    HasFollowers,
    InvalidInput,
    ModelExists,
    NoSuchModel,
    NoSuchVersion,
    RolledBack,
    Stalled,
)
from app.storage.keys import FOLLOWER_NAMES, MODELS, Keys, keys_of
from app.storage.log import NewRecord
from app.storage.states import LogPosition, NewVersion
from app.storage.store import Store
from tests.backends import anywhere, anywhere_emptied, client, on_servers, with_store
from tests.servers import keys_like, until
from tests.test_codec import bits

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

LEADER, FOLLOWER = "shop", "shop/shop-b"


def first(**settings: Any) -> ModelState:
    return initial_state(ModelConfig(("f0", "f1", "f2"), **settings), seed=b"seed")


def follower_at(leader: ModelState, gamma: float = 7.0) -> ModelState:
    """Return the first state of a follower of a leader's state."""
    config = replace(leader.model.config, gamma=gamma)
    return replace(leader, model=replace(leader.model, config=config))


def record(seq: int) -> bytes:
    return f"record {seq}".encode()


def state_at(seq: int) -> ModelState:
    """Return the state of the leader after record `seq`, with the chain of the log."""
    state = first()
    for at in range(1, seq + 1):
        state = replace(state, seq=at, chain=next_chain(state.chain, record(at)))
    return replace(state, model=replace(state.model, weights=np.full(3, float(seq))))


def position(seq: int, epoch: int = 1) -> LogPosition:
    return epoch, seq, state_at(seq).chain


class Leader:
    """A model with a learner, for tests: its log, commits and versions."""

    def __init__(self, store: Store) -> None:
        self.store, self.seq, self.fence, self.epoch = store, 0, 0, 0

    @classmethod
    async def begin(cls, store: Store) -> "Leader":
        self = cls(store)
        self.epoch = await store.models.create(LEADER, first())
        self.fence = await store.leases.take(LEADER, 0, 60.0)
        return self

    async def learn(self, until: int, version: bool = False, **options: Any) -> None:
        """Append records and commit them."""
        events = [NewRecord(f"e{at}", b"", record(at)) for at in range(self.seq + 1, until + 1)]
        await self.store.log.append(LEADER, self.epoch, events, limit=1000, time=5)
        kept = NewVersion("interval") if version else None
        base = position(self.seq, self.epoch)
        await self.store.states.commit(
            LEADER, base, self.fence, state_at(until), version=kept, **options
        )
        self.seq = until


async def follow(store: Store, start: int = 0, name: str = "shop-b") -> int:
    """Create a follower that starts after record `start`; return its fencing token."""
    epoch, *_ = await store.states.position(LEADER)
    await store.followers.create(LEADER, epoch, {name: follower_at(state_at(start))})
    return await store.leases.take(f"{LEADER}/{name}", 0, 60.0)


async def commit(store: Store, fence: int, base: int, seq: int, **options: Any) -> None:
    state = follower_at(state_at(seq))
    await store.followers.commit(FOLLOWER, position(base), fence, state, **options)


async def log_start(store: Store) -> int:
    return (await store.log.read(LEADER, 0, 1))[0].seq


# ---- names ----


def test_a_follower_is_created_listed_loaded_and_deleted(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await leader.learn(3)
        state = follower_at(state_at(3))
        assert await store.followers.create(LEADER, 1, {"shop-b": state}) == {"shop-b": 1}
        assert await store.followers.leaders() == {"shop-b": "shop"}
        assert await store.followers.addresses() == [FOLLOWER]
        assert await store.followers.address("shop-b") == FOLLOWER
        assert await store.followers.address("shop") is None
        assert await store.followers.of("shop") == {"shop-b": False}
        assert await store.models.names() == ["shop"]
        assert bits((await store.states.load(FOLLOWER)).state) == bits(state)
        assert bits((await store.states.version(FOLLOWER, 3)).state) == bits(state)
        assert await store.states.versions(FOLLOWER) == [3]
        assert await store.log.tail(FOLLOWER) == 3
        assert [one.seq for one in await store.log.read(FOLLOWER, 1, 9)] == [2, 3]
        assert await store.followers.delete(FOLLOWER)
        assert not await store.followers.delete(FOLLOWER)
        assert await store.followers.leaders() == {}
        assert await store.followers.of("shop") == {}

    with_store(url, act)
    with client(url) as connection:
        left = {key for key in keys_like(connection) if b":f:" in key}
    assert left == {b"solar:{shop}:f:shop-b:epoch"}


def test_a_name_is_that_of_a_model_or_of_a_follower(url: str) -> None:
    async def act(store: Store) -> None:
        await Leader.begin(store)
        await store.models.create("books", first())
        await follow(store)
        with pytest.raises(ModelExists, match="shop-b"):
            await store.models.create("shop-b", first())
        for name in ("books", "shop", "shop-b"):
            with pytest.raises(ModelExists):
                await follow(store, name=name)
        with pytest.raises(ModelExists, match="shop-b"):  # also of another leader
            await store.followers.create("books", 1, {"shop-b": first()})
        assert await store.models.names() == ["books", "shop"]
        assert await store.followers.leaders() == {"shop-b": "shop"}

    with_store(url, act)


def test_a_model_that_is_not_listed_keeps_its_name(url: str) -> None:
    """A Cluster failover may lose the name alone."""

    async def act(store: Store) -> None:
        await Leader.begin(store)
        await store.models.create("books", first())
        with client(url) as connection:
            connection.srem(MODELS, "books")
        with pytest.raises(ModelExists, match="books"):
            await follow(store, name="books")
        assert await store.followers.leaders() == {}

    with_store(url, act)


def test_the_name_of_a_model_that_is_being_created_is_taken(url: str) -> None:
    async def act(store: Store) -> None:
        await Leader.begin(store)
        await store.followers.register("", ["books"])
        with pytest.raises(ModelExists, match="books"):
            await follow(store, name="books")
        assert await store.followers.of(LEADER) == {}

    with_store(url, act)


def test_the_lost_name_of_a_follower_is_restored(url: str) -> None:
    async def act(store: Store) -> None:
        await Leader.begin(store)
        await follow(store)
        with client(url) as connection:
            connection.hdel(FOLLOWER_NAMES, "shop-b")
        await store.followers.relist(FOLLOWER)
        await store.followers.relist("shop/gone")
        assert await store.followers.leaders() == {"shop-b": "shop"}

    with_store(url, act)


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "x" * 65])
def test_an_invalid_name_of_a_follower_is_refused(url: str, name: str) -> None:
    async def act(store: Store) -> None:
        await Leader.begin(store)
        with pytest.raises(InvalidInput, match="model: expected"):
            await follow(store, name=name)
        assert await store.followers.leaders() == {}

    with_store(url, act)


# ---- creation ----


def test_a_bank_is_created_all_or_none(url: str) -> None:
    async def act(store: Store) -> None:
        await Leader.begin(store)
        await follow(store)
        bank = {name: follower_at(first()) for name in ("a", "shop-b", "c")}
        with pytest.raises(ModelExists):
            await store.followers.create(LEADER, 1, bank)
        assert await store.followers.leaders() == {"shop-b": "shop"}
        del bank["shop-b"]
        assert await store.followers.create(LEADER, 1, bank) == {"a": 1, "c": 1}
        assert list(await store.followers.of(LEADER)) == ["a", "c", "shop-b"]

    with_store(url, act)


def test_a_follower_starts_where_the_log_is_whole(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await leader.learn(4, version=True)
        await leader.learn(6, version=True, drop=[0], trim=4)
        await leader.learn(8)
        for start in (3, 9):
            with pytest.raises(Changed):
                await follow(store, start)
        other = replace(state_at(8), chain=b"another chain")
        with pytest.raises(Changed):
            await store.followers.create(LEADER, 1, {"shop-b": other})
        with pytest.raises(NoSuchModel):
            await store.followers.create(LEADER, 2, {"shop-b": state_at(8)})
        with pytest.raises(NoSuchModel):
            await store.followers.create("unknown", 1, {"shop-b": state_at(8)})
        assert await store.followers.leaders() == {}
        for at, start in enumerate((4, 6, 7, 8)):  # 7: committed a moment ago
            await follow(store, start, f"b{at}")

    with_store(url, act)


def test_a_creation_that_lost_its_answer_may_be_sent_again(url: str) -> None:
    async def act(store: Store) -> None:
        await Leader.begin(store)
        await follow(store)
        with pytest.raises(ModelExists):
            await follow(store)
        assert await store.followers.address("shop-b") == FOLLOWER

    with_store(url, act)


# ---- deletion ----


def test_a_leader_with_followers_is_not_deleted(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await follow(store)
        await follow(store, name="shop-c")
        with pytest.raises(HasFollowers, match="shop"):
            await store.models.delete(LEADER)
        await leader.learn(2)
        assert await store.models.names() == ["shop"]
        await store.followers.delete_all(LEADER)
        assert await store.models.delete(LEADER)
        assert await store.models.names() == []

    with_store(url, act)


@on_servers
def test_a_follower_of_a_deleted_leader_is_gone_when_its_name_is_used_again(url: str) -> None:
    """An older release deletes a leader and leaves its followers behind."""

    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await leader.learn(5, version=True)
        await follow(store, 5)
        with client(url) as connection:
            for key in ("state", "seq", "log", "lease", "snapshots"):
                connection.delete(getattr(Keys(LEADER), key))
            connection.delete(Keys(LEADER).snapshot(0), Keys(LEADER).snapshot(5))
        assert await store.models.create(LEADER, first()) == 2
        assert await store.followers.of(LEADER) == {}
        assert await store.followers.leaders() == {}
        with pytest.raises(NoSuchModel):
            await store.states.position(FOLLOWER)

    with_store(url, act)


def test_a_follower_created_again_has_a_new_epoch_and_takes_no_old_commit(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        fence = await follow(store)
        await leader.learn(3)
        await store.followers.delete(FOLLOWER)
        again = await follow(store)
        assert again == fence + 1
        assert await store.states.position(FOLLOWER) == (2, 0, first().chain)
        with pytest.raises(Fenced):
            await commit(store, fence, 0, 3)

    with_store(url, act)


# ---- commits ----


def test_a_commit_of_a_follower_moves_its_state_and_keeps_and_drops_versions(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        fence = await follow(store)
        await leader.learn(4)
        await commit(store, fence, 0, 2, reason="interval")
        assert await store.states.versions(FOLLOWER) == [0, 2]
        await commit(store, fence, 2, 4, reason="interval", drop=[0])
        await commit(store, fence, 2, 4)  # resent
        assert await store.states.versions(FOLLOWER) == [2, 4]
        assert bits((await store.states.version(FOLLOWER, 2)).state) == bits(
            follower_at(state_at(2))
        )
        assert (await store.states.position(FOLLOWER))[1] == 4
        assert (await store.states.position(LEADER))[1] == 4
        with pytest.raises(NoSuchModel):
            await store.states.version(FOLLOWER, 0)

    with_store(url, act)


def test_a_follower_never_passes_its_leader_nor_has_another_chain(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        fence = await follow(store)
        await leader.learn(4)
        with pytest.raises(RolledBack):
            await commit(store, fence, 0, 5)
        other = replace(follower_at(state_at(4)), chain=b"x" * 32)
        with pytest.raises(RolledBack):
            await store.followers.commit(FOLLOWER, position(0), fence, other)
        entry = (await store.log.read(LEADER, 1, 1))[0]
        with pytest.raises(RolledBack):  # it has learnt a record that the log has lost
            await commit(store, fence, 0, 2, learnt=[entry._replace(record=b"lost")])
        await commit(store, fence, 0, 2, learnt=[entry])

    with_store(url, act)


def test_commits_of_followers_are_fenced(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        fence = await follow(store)
        await leader.learn(4)
        with pytest.raises(Fenced, match="another learner"):
            await commit(store, fence + 1, 0, 2)
        with pytest.raises(Fenced, match="has changed"):
            await commit(store, fence, 1, 2)
        await commit(store, fence, 0, 2)
        await commit(store, fence, 2, 0, again=True)  # back to a version
        assert (await store.states.position(FOLLOWER))[1] == 0
        await store.followers.stall(FOLLOWER)
        with pytest.raises(Stalled):
            await commit(store, fence, 0, 2)

    with_store(url, act)


def test_a_commit_of_the_leader_calls_its_followers(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await follow(store)
        heard = store.hints.appended()
        assert await anext(heard) == ""
        next_one = asyncio.ensure_future(anext(heard))
        await leader.learn(2)
        found = [await next_one, await anext(heard)]
        assert found == ["shop", FOLLOWER]

    with_store(url, act)


# ---- the log ----


def test_the_log_is_trimmed_to_the_oldest_version_of_leader_and_followers(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        fence = await follow(store)
        await leader.learn(4, version=True)
        await commit(store, fence, 0, 2, reason="interval", drop=[0])
        await leader.learn(6, version=True, drop=[0], trim=4, followers=["shop-b"])
        assert await log_start(store) == 3
        await commit(store, fence, 2, 6, reason="interval", drop=[2])
        await leader.learn(8, version=True, drop=[4], trim=5, followers=["shop-b"])
        assert await log_start(store) == 6

    with_store(url, act)


@pytest.mark.parametrize("known", [[], ["shop-c"], ["shop-b", "shop-c"]])
def test_the_log_is_not_trimmed_if_there_are_other_followers(url: str, known: list[str]) -> None:
    """They were created or deleted in between: their versions are unknown."""

    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await leader.learn(4, version=True)
        await follow(store, 4)
        await leader.learn(6, version=True, drop=[0], trim=4, followers=known)
        assert await log_start(store) == 1
        await leader.learn(8, version=True, trim=4, followers=["shop-b"])
        assert await log_start(store) == 5

    with_store(url, act)


def test_a_stalled_follower_does_not_hold_the_log_back(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await follow(store)
        await leader.learn(4, version=True)
        now = await store.states.position(LEADER)
        for lost in ((now[0], 8, b"lost"), (*now[:2], b"lost"), (now[0] + 1, *now[1:])):
            assert not await store.followers.shorten(FOLLOWER, 3, lost)  # sent again
        assert await store.followers.of(LEADER) == {"shop-b": False}
        assert await store.followers.shorten(FOLLOWER, 3, now)
        assert await store.followers.of(LEADER) == {"shop-b": True}
        assert await store.followers.is_stalled(FOLLOWER)
        assert await store.states.versions(FOLLOWER) == [0]
        await leader.learn(6, version=True, drop=[0], trim=4, followers=["shop-b"])
        assert await log_start(store) == 5
        await store.followers.delete(FOLLOWER)
        await follow(store, 4)
        assert await store.followers.of(LEADER) == {"shop-b": False}

    with_store(url, act)


def test_a_follower_with_a_newer_version_drops_the_older_ones_for_the_log(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        fence = await follow(store)
        await leader.learn(4, version=True)
        await commit(store, fence, 0, 2, reason="interval")
        await commit(store, fence, 2, 4, reason="interval")
        now = await store.states.position(LEADER)
        assert not await store.followers.shorten(FOLLOWER, 3, now)
        assert not await store.followers.shorten("shop/gone", 3, now)
        assert await store.states.versions(FOLLOWER) == [4]
        assert await store.followers.of(LEADER) == {"shop-b": False}

    with_store(url, act)
    with client(url) as connection:
        assert not connection.exists(keys_of(FOLLOWER).snapshot(2))


def test_the_progress_of_a_leader_is_its_position_and_its_versions(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await leader.learn(4, version=True)
        await leader.learn(6)
        found = await store.followers.progress(LEADER)
        assert (found.position, found.versions, found.seq) == (position(6), [0, 4], 6)
        with pytest.raises(NoSuchModel):
            await store.followers.progress("unknown")

    with_store(url, act)


# ---- versions in a duel ----


async def listed(store: Store) -> list[tuple[int, str | None]]:
    return [(one.seq, one.reason) for one in await store.versions.listed(LEADER)]


def test_a_version_in_a_duel_is_kept_until_it_is_dropped(url: str) -> None:
    async def act(store: Store) -> None:
        leader = await Leader.begin(store)
        await leader.learn(4, version=True)
        for _ in range(2):  # resent
            await store.versions.keep_for_duel(LEADER, 1, 4)
        assert await store.versions.dueling(LEADER) == [4]
        assert await store.versions.hourly(LEADER) == []
        assert await listed(store) == [(0, "created"), (4, "interval")]
        with pytest.raises(NoSuchVersion):
            await store.versions.keep_for_duel(LEADER, 1, 3)
        with pytest.raises(NoSuchModel):
            await store.versions.keep_for_duel(LEADER, 2, 4)
        await leader.learn(6, version=True, drop=[0, 4], trim=6)
        found = (await store.versions.load(LEADER, 4)).state
        assert bits(found) == bits(state_at(4))
        assert await listed(store) == [(4, "duel"), (6, "interval")]
        before = await store.versions.kept_for_duels(LEADER)
        await asyncio.sleep(0.002)  # times are in ms
        await store.versions.keep_for_duel(LEADER, 1, 4)
        await store.versions.drop_dueling(LEADER, 1, 4, before[4])
        assert (await store.versions.kept_for_duels(LEADER)).keys() == {4}
        await store.versions.drop_dueling(LEADER, 1, 4)
        assert await store.versions.dueling(LEADER) == []
        with pytest.raises(NoSuchVersion):
            await store.versions.load(LEADER, 4)
        await store.versions.keep_for_duel(LEADER, 1, 6)
        assert await store.models.delete(LEADER)

    with_store(url, act)
    with client(url) as connection:
        assert not any(b"keep" in key for key in keys_like(connection))


@on_servers
def test_every_key_of_a_leader_and_its_followers_is_in_one_slot(url: str) -> None:
    async def act(store: Store) -> None:
        await Leader.begin(store)
        await follow(store)

    with_store(url, act)
    with client(url) as connection:
        until(lambda: len(keys_like(connection, "solar:{shop}:*")) > 8)
        names = keys_like(connection) - keys_like(connection, "solar:{shop}:*")
    assert names == {MODELS.encode(), FOLLOWER_NAMES.encode()}
