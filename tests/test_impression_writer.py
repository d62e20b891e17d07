"""Writing impressions to a real store: grouped, and within the timeout."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import pytest

from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.errors import StoreError
from app.serving.impression_writer import NOTE_SECONDS, ImpressionWriter
from app.storage.batching import MemoryBudget
from app.storage.embedded.server import EmbeddedServer
from app.storage.log import APPENDED, NewImpression, NewRecord
from app.storage.store import Store
from tests.faults.power import COMPILER, shim
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
            assert (await log.store_impressions("m", epoch, shown, 60.0, 0)).stored == [True]
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
            for at, longest in enumerate([100, 50, 50, 50]):  # the first one was sent
                started = monotonic()
                assert not await impression_writer.store_impression("m", 1, f"r{at}", b"")
                assert monotonic() - started < longest / 1000 + 0.2  # on a busy machine
        await eventually(lambda: impression_writer.store_impression("m", 1, "after", b"back"), bool)
        assert await kept(store, "after") == [b"back"]

    with_store(url, act)


def test_an_impression_reported_as_not_written_is_not_written_later(
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
        assert await kept(store, "on its way", "waits") == [None, None]
        assert await impression_writer.store_impression("m", 1, "after", b"x")

    with_store(url, act)


SLOW_FSYNC = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int fd) {
    const char *slow = getenv("SOLAR_DEV_SLOW");
    struct timespec quarter = {0, 250000000};
    int result = syscall(SYS_fdatasync, fd);
    if (slow && access(slow, F_OK) == 0) nanosleep(&quarter, 0);
    return result;
}
"""


class SlowDisk(NamedTuple):
    """A server, and the file whose existence makes each of its fdatasync take 250 ms."""

    url: str
    file: Path

    @contextlib.contextmanager
    def slow(self) -> Iterator[None]:
        self.file.touch()
        try:
            yield
        finally:
            self.file.unlink()


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowDisk]:
    if COMPILER is None:
        pytest.skip("needs a C compiler")
    directory = tmp_path_factory.mktemp("slow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(shim(directory, SLOW_FSYNC)))
        patch.setenv("SOLAR_DEV_SLOW", str(directory / "slow"))
        started = EmbeddedServer.start(directory / "data")
    with started:
        yield SlowDisk(started.url, directory / "slow")


@pytest.fixture
def disk(slow_server: SlowDisk) -> SlowDisk:
    """The module's server with a slow disk, emptied for this test."""
    with client(slow_server.url) as connection:
        connection.flushall()
    return slow_server


async def new_writer(store: Store) -> ImpressionWriter:
    """Return a writer that has written: the script is loaded, and the server's clock is known."""
    writer = ImpressionWriter(store, 60.0)
    await eventually(lambda: writer.store_impression("m", 1, "warm", b"x"), bool)
    return writer


def test_an_impression_that_slow_fsync_reports_too_late_is_removed(disk: SlowDisk) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        writer = await new_writer(store)
        with disk.slow():
            written = [writer.store_impression("m", 1, name, b"x") for name in "ab"]
            assert not any(await asyncio.gather(*written))
        await eventually(lambda: writer.store_impression("m", 1, "next", b"x"), bool)
        assert await kept(store, "warm", "a", "b", "next") == [b"x", None, None, b"x"]

    with_store(disk.url, act)


def test_closing_removes_late_impressions(disk: SlowDisk) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        writer = await new_writer(store)
        with disk.slow():
            assert not await writer.store_impression("m", 1, "r", b"x")
            await writer.close()
        assert await kept(store, "warm", "r") == [b"x", None]

    with_store(disk.url, act)


def test_a_late_impression_that_was_stored_before_or_has_feedback_stays(disk: SlowDisk) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        other, writer = await new_writer(store), await new_writer(store)
        await eventually(lambda: other.store_impression("m", 1, "again", b"x"), bool)
        forget, click = store.late_impressions.forget, NewRecord("e", b"e", b"e", "r", new=b"1")

        async def forget_after_a_click(*late: Any) -> None:
            assert await store.log.append("m", 1, [click], limit=9, time=0) == [(APPENDED, 1)]
            await forget(*late)

        with disk.slow(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(store.late_impressions, "forget", forget_after_a_click)
            names = ("again", "r", "s")
            written = [writer.store_impression("m", 1, name, b"x") for name in names]
            assert not any(await asyncio.gather(*written))
            await writer.close()
        assert await kept(store, "again", "r", "s") == [b"x", b"x", None]

    with_store(disk.url, act)


def test_a_store_that_cannot_remove_late_impressions_raises_no_error(
    disk: SlowDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        for name, error in (("r", StoreError("refused")), ("s", ValueError("a bug"))):
            writer = await new_writer(store)

            async def fail(*_: object, error: Exception = error) -> None:
                raise error

            with disk.slow(), pytest.MonkeyPatch.context() as patch:
                patch.setattr(store.late_impressions, "forget", fail)
                assert not await writer.store_impression("m", 1, name, b"x")
                await writer.close()
        assert await kept(store, "r", "s") == [b"x", b"x"]

    with_store(disk.url, act)
    assert [record.getMessage() for record in caplog.records] == [
        "model m: lists with logged: false stay in the store: refused",
        "model m: removing impressions failed",
    ]


def test_an_answer_that_comes_after_the_timeout_counts(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0)
        assert await impression_writer.store_impression("m", 1, "warm", b"")
        written = impression_writer.store_impression("m", 1, "r", b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is sent, and nothing is read until the timeout is over
        sleep(0.06)
        assert await written
        assert await kept(store, "r") == [b"x"]

    with_store(url, act)


def test_a_server_whose_clock_steps_ahead_refuses_one_write(url: str) -> None:
    async def act(store: Store) -> None:
        await new_models(store, "m")
        impression_writer = ImpressionWriter(store, 60.0)
        assert await impression_writer.store_impression("m", 1, "warm", b"")
        store.log._clocks._ahead["m"] -= 3_600_000  # as if the server were an hour ahead now
        assert not await impression_writer.store_impression("m", 1, "r", b"x")
        assert await kept(store, "r") == [None]
        assert await impression_writer.store_impression("m", 1, "r", b"x")

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
