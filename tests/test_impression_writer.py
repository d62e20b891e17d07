"""Writing impressions to a real store: grouped, and within the timeout."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from time import monotonic

import pytest

from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.serving.impression_writer import NOTE_SECONDS, ImpressionWriter
from app.storage.batching import MemoryBudget
from app.storage.embedded.server import EmbeddedServer
from app.storage.log import NewImpression
from app.storage.store import Store
from tests.servers import bare_server, client, eventually, server, url, with_store

__all__ = ["server", "url"]  # fixtures


async def new_models(store: Store, *names: str) -> None:
    for name in names:
        await store.models.create(name, initial_state(ModelConfig(("a",))))


def calls(url: str) -> int:
    """Number of script calls that the server has received."""
    with client(url) as connection:
        found = connection.info("commandstats")
    return int(found.get("cmdstat_evalsha", {"calls": 0})["calls"])


@contextlib.contextmanager
def paused(server: EmbeddedServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def kept(store: Store, *requests: str) -> list[bytes | None]:
    found = await store.log.load_impressions("m", 1, requests)
    return [one.shown if one else None for one in found]


def test_a_written_impression_can_be_loaded(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0, timeout=10.0)
        assert await impression_writer.store_impression("m", 1, "r", b"shown")
        assert await kept(store, "r", "other") == [b"shown", None]
        await impression_writer.close()

    with_store(url, act)


def test_an_impression_expires(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 0.05, timeout=10.0)
        assert await impression_writer.store_impression("m", 1, "r", b"shown")
        await eventually(lambda: kept(store, "r"), lambda found: found == [None])

    with_store(url, act)


def test_concurrent_impressions_share_one_round_trip(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0, timeout=10.0)
        assert await impression_writer.store_impression(
            "m", 1, "first", b""
        )  # the script is loaded now
        before = calls(url)
        waiting = [
            impression_writer.store_impression("m", 1, f"r{at}", b"%d" % at) for at in range(50)
        ]
        assert all(await asyncio.gather(*waiting))
        assert calls(url) == before + 1
        names = [f"r{at}" for at in range(50)]
        assert await kept(store, *names) == [b"%d" % at for at in range(50)]

    with_store(url, act)


def test_while_a_group_is_written_the_next_one_collects(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0, timeout=10.0)
        assert await impression_writer.store_impression("m", 1, "first", b"")
        before = calls(url)
        waiting = [impression_writer.store_impression("m", 1, "a", b"a")]
        await asyncio.sleep(0)  # the first group is sent
        waiting += [impression_writer.store_impression("m", 1, name, b"x") for name in "bcdef"]
        assert all(await asyncio.gather(*waiting))
        assert calls(url) == before + 2

    with_store(url, act)


def test_at_most_one_request_a_second_and_model_is_noted_as_recent(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m", "n")
        writer = ImpressionWriter(store, 60.0, timeout=10.0)
        for name in ("m", "n", "m"):
            await asyncio.gather(
                *(writer.store_impression(name, 1, f"{name}{at}", b"") for at in range(5))
            )
        assert await store.log.recent_requests("m", 1) == ["m4"]
        assert await store.log.recent_requests("n", 1) == ["n4"]
        await asyncio.sleep(NOTE_SECONDS)
        assert await writer.store_impression("m", 1, "later", b"")
        assert await store.log.recent_requests("m", 1) == ["later", "m4"]

    with_store(url, act)


def test_a_user_without_the_rights_to_lists_stores_impressions_and_has_no_recent_requests(
    url: str,
) -> None:
    async def act(store: Store) -> None:
        epoch = await store.models.create("m", initial_state(ModelConfig(("a",))))
        with client(url) as connection:
            connection.acl_setuser(
                "narrow", enabled=True, nopass=True, keys=["solar:*"], categories=["+@all"],
                commands=["-lpush", "-ltrim", "-lrange"],
            )  # fmt: skip
        narrow = Store.open(url.replace("://", "://narrow:x@", 1))
        try:
            log, shown = narrow.log, [NewImpression("r", b"shown")]
            assert await log.store_impressions("m", epoch, shown, 60.0, 0) == [True]
            assert await log.load_impressions("m", epoch, ["r"]) == [(b"shown", b"", "")]
            assert await log.recent_requests("m", epoch) == []
        finally:
            await narrow.close()
        assert await store.log.recent_requests("m", epoch) == []

    with_store(url, act)


def test_impressions_of_several_models_are_separate(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m", "n")
        impression_writer = ImpressionWriter(store, 60.0, timeout=10.0)
        waiting = [impression_writer.store_impression(name, 1, "r", name.encode()) for name in "mn"]
        assert await asyncio.gather(*waiting) == [True, True]
        for name in "mn":
            found = await store.log.load_impressions(name, 1, ["r"])
            assert [one.shown for one in found if one] == [name.encode()]

    with_store(url, act)


def test_a_hanging_store_delays_a_request_by_the_timeout_only(
    server: EmbeddedServer, url: str
) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0)
        assert await impression_writer.store_impression("m", 1, "warm", b"")
        with paused(server):
            for at in range(5):
                started = monotonic()
                assert not await impression_writer.store_impression("m", 1, f"r{at}", b"")
                assert monotonic() - started < 0.25  # 50 ms, and a busy machine
        await eventually(lambda: impression_writer.store_impression("m", 1, "after", b"back"), bool)
        assert await kept(store, "after") == [b"back"]

    with_store(url, act)


def test_an_impression_that_timed_out_while_waiting_is_not_written(
    server: EmbeddedServer, url: str
) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0)
        assert await impression_writer.store_impression("m", 1, "warm", b"")
        with paused(server):
            first = impression_writer.store_impression("m", 1, "on its way", b"x")
            await asyncio.sleep(0)
            waits = impression_writer.store_impression("m", 1, "waits", b"x")
            assert not any(await asyncio.gather(first, waits))
        await impression_writer.close()
        assert await kept(store, "waits") == [None]

    with_store(url, act)


def test_a_refusing_or_unreachable_store_raises_no_error() -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0, timeout=10.0)
        assert await impression_writer.store_impression("m", 1, "r", b"")
        with client(full) as connection:
            connection.config_set("maxmemory", 1)
        assert not await impression_writer.store_impression("m", 1, "s", b"")
        with client(full) as connection:
            connection.shutdown(nosave=True)
        assert not await impression_writer.store_impression("m", 1, "t", b"")
        await impression_writer.close()

    with bare_server() as full:
        with_store(full, act)


def test_a_bug_while_writing_is_logged_and_reported_as_not_written(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(store: Store) -> None:
        store.log._calls = None  # type: ignore[assignment]
        impression_writer = ImpressionWriter(store, 60.0, timeout=10.0)
        assert not await impression_writer.store_impression("m", 1, "r", b"shown")

    with_store(url, act)
    assert [record.getMessage() for record in caplog.records] == [
        "model m: writing impressions failed"
    ]


def test_closing_waits_for_pending_writes(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0, timeout=10.0)
        waiting = impression_writer.store_impression("m", 1, "late", b"late")
        await impression_writer.close()
        assert await waiting
        assert await kept(store, "late") == [b"late"]

    with_store(url, act)


def test_a_large_impression_holds_memory_until_it_is_written_or_dropped(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        memory = MemoryBudget(100_000)
        writer = ImpressionWriter(store, 60.0, timeout=10.0, memory=memory)
        first = writer.store_impression("m", 1, "first", b"x" * 60_000)
        assert memory.held == 60_000
        assert not await writer.store_impression("m", 1, "second", b"x" * 60_000)
        assert await writer.store_impression("m", 1, "small", b"x" * 1000)
        assert await first
        assert memory.held == 0
        assert await writer.store_impression("m", 1, "second", b"x" * 60_000)
        assert memory.held == 0
        late = ImpressionWriter(store, 60.0, timeout=0.0, memory=memory)
        held = [late.store_impression("m", 1, f"r{at}", b"x" * 20_000) for at in range(4)]
        assert memory.held == 80_000
        await asyncio.gather(*held)
        await late.close()
        assert memory.held == 0

    with_store(url, act)
