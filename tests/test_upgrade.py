"""An upgrade under load, and back: processes of both releases post events, each counts once.

`tests/golden/scripts-0.2` holds the scripts of release 0.2, whose dedupe entries are keys of their
own: `d:<epoch>:<event>`. They run here as a process of that release would run them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.storage.keys import Keys, read_slices
from app.storage.log import APPENDED, OTHER_BODY, REPEATED, AppendResult, NewRecord
from app.storage.store import Store
from tests.servers import anywhere, anywhere_emptied, client, keys_like, with_store
from tests.test_store import append, event, first

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

SCRIPTS = Path(__file__).parent / "golden" / "scripts-0.2"
KEYS = Keys("books")
HOUR = 3_600_000
Post = Callable[[NewRecord], Awaitable[AppendResult]]


class OlderProcess:
    """A process of release 0.2 that appends events."""

    def __init__(self, connection: Any, epoch: int) -> None:
        self._connection, self._epoch = connection, epoch
        self._source = (SCRIPTS / "append.lua").read_text()

    async def post(self, one: NewRecord) -> AppendResult:
        keys = [KEYS.state, KEYS.seq, KEYS.log, KEYS.event(self._epoch, one.event), KEYS.state]
        values = [self._epoch, 1000, HOUR, 5, "", "0", one.digest, one.record, "", "", ""]
        code, answer = self._connection.eval(self._source, len(keys), *keys, *values)
        assert code == 0
        return AppendResult(*answer)


def newer(store: Store, epoch: int) -> Post:
    """Return the append of this release."""

    async def post(one: NewRecord) -> AppendResult:
        (answer,) = await append(store, epoch, one)
        return answer

    return post


def as_release_0_2(connection: Any) -> None:
    """Make the model one that release 0.2 has created: without slices."""
    connection.hdel(KEYS.state, "slices", "sliced")


def plain(name: str) -> NewRecord:
    """Return an event with a digest of 16 bytes, as the service sends it."""
    one = event(name)
    return one._replace(digest=one.digest.ljust(16, b".")[:16])


def test_an_event_of_the_older_release_is_repeated_after_the_upgrade(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with client(url) as connection:
            as_release_0_2(connection)
            older = OlderProcess(connection, epoch)
            for at in range(5):
                assert await older.post(plain(f"e{at}")) == (APPENDED, at + 1)
        post = newer(store, epoch)
        assert await post(plain("e3")) == (REPEATED, 4)
        assert await post(plain("e2")._replace(digest=16 * b"x")) == (OTHER_BODY, 3)
        assert await post(plain("new")) == (APPENDED, 6)
        assert await post(plain("e4")) == (REPEATED, 5)

    with_store(url, act)


def test_an_event_of_this_release_is_repeated_by_an_older_process_next_to_it(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with client(url) as connection:
            as_release_0_2(connection)
            older, post = OlderProcess(connection, epoch), newer(store, epoch)
            assert await post(plain("a")) == (APPENDED, 1)
            assert await older.post(plain("a")) == (REPEATED, 1)
            assert await older.post(plain("b")) == (APPENDED, 2)
            assert await post(plain("b")) == (REPEATED, 2)

    with_store(url, act)


def test_an_older_process_is_noticed_also_after_slices_were_in_use(url: str) -> None:
    """As after a way back: the older release has appended to a model with slices."""

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with client(url) as connection:
            older, post = OlderProcess(connection, epoch), newer(store, epoch)
            assert await post(plain("a")) == (APPENDED, 1)
            assert not keys_like(connection, f"{KEYS.event(epoch, '*')}")
            assert await older.post(plain("b")) == (APPENDED, 2)
            assert await post(plain("b")) == (REPEATED, 2)
            assert read_slices(connection.hget(KEYS.state, "slices")).legacy
            assert await post(plain("a")) == (REPEATED, 1)

    with_store(url, act)


def test_keys_of_the_older_release_are_no_longer_written_after_two_windows(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with client(url) as connection:
            as_release_0_2(connection)
            (one,) = await append(store, epoch, plain("a"), dedupe=0.2)
            assert one == (APPENDED, 1)
            assert connection.exists(KEYS.event(epoch, "a"))
            for at in range(1000):
                await append(store, epoch, plain(f"b{at}"), dedupe=0.2)
                if not read_slices(connection.hget(KEYS.state, "slices")).legacy:
                    break
                await asyncio.sleep(0.02)
            await append(store, epoch, plain("last"), dedupe=0.2)
            assert not connection.exists(KEYS.event(epoch, "last"))

    with_store(url, act)


@pytest.mark.parametrize("seed", range(3))
def test_an_upgrade_and_a_way_back_under_load_double_no_event(url: str, seed: int) -> None:
    """Clients post each event until it is answered twice, each time by a process of any release."""
    rng = Random(seed)  # noqa: S311

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        with client(url) as connection:
            as_release_0_2(connection)
            stores = [store, Store.open(url)]
            old = OlderProcess(connection, epoch).post
            new = [newer(one, epoch) for one in stores]
            phases: list[list[Post]] = [[old], [old, *new], new, [old, *new], [old]]
            answers: dict[str, set[int]] = {}
            for at, phase in enumerate(phases):
                await asyncio.gather(
                    *(load(phase, f"{at}-{name}", answers, rng) for name in range(8))
                )
            await stores[1].close()
        assert all(len(seqs) == 1 for seqs in answers.values())
        assert sorted(seq for seqs in answers.values() for seq in seqs) == [
            *range(1, len(answers) + 1)
        ]
        assert await store.log.tail("books") == len(answers)

    async def load(phase: list[Post], name: str, answers: dict[str, set[int]], rng: Random) -> None:
        for at in range(10):
            known = [one for one in answers if rng.random() < 0.02]
            for one in [f"{name}-{at}", f"{name}-{at}", *known[:2]]:
                answer = await rng.choice(phase)(plain(one))
                assert answer.outcome in (APPENDED, REPEATED)
                answers.setdefault(one, set()).add(answer.seq)

    with_store(url, act)
