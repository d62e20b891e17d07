"""Forks: a child drops the queue and the connections of its parent."""

import asyncio
import os
import threading
from collections.abc import Callable

import pytest
from scripted_server import Handler, accepts, ranks, scripted
from solar_client import AfterFork, AsyncSolar, Counters, FlushResult, Solar

REQUEST = "m.01970000-0000-7000-8000-000000000000"
DOCUMENTS = [{"id": "a", "features": [1.0]}]
LONG = 20.0

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # Python warns of forks with threads; these tests show that this one is safe.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def in_child(act: Callable[[], object]) -> str:
    """Run `act` in a forked child; return the representation of its result."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writable, repr(act()).encode())
        except BaseException as error:  # noqa: BLE001  # the parent reads it
            os.write(writable, f"raised {error!r}".encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found


def events_of(bodies: list[list[dict[str, object]]]) -> list[object]:
    return [event["event_id"] for events in bodies for event in events]


def test_a_child_sends_its_own_events_only_and_the_parent_the_others() -> None:
    with scripted(accepts) as server, Solar(server.url) as solar:
        before = [solar.click(REQUEST, "a") for _ in range(3)]

        def child() -> tuple[object, FlushResult, Counters]:
            assert solar.counters == Counters()
            return solar.click(REQUEST, "b"), solar.flush(LONG), solar.counters

        found = in_child(child)
        assert (
            "FlushResult(acknowledged=1, duplicates=0, rejected=0, dropped=0, pending=0)" in found
        )
        after = solar.click(REQUEST, "a")
        assert solar.flush(LONG).acknowledged == 4
    sent = events_of(server.events())
    assert len(sent) == len(set(sent)) == 5
    assert {*before, after} < set(sent)


def test_a_child_forked_in_the_middle_of_a_flush_sends_nothing_of_the_parent() -> None:
    """The parent's thread waits for an answer and holds what it holds."""
    arrived, release = threading.Event(), threading.Event()

    def slow(handler: Handler) -> None:
        arrived.set()
        release.wait(LONG)
        accepts(handler)

    with scripted(slow, accepts) as server, Solar(server.url) as solar:
        for _ in range(150):
            solar.click(REQUEST, "a")
        flushed: list[FlushResult] = []
        flushing = threading.Thread(target=lambda: flushed.append(solar.flush(LONG)))
        flushing.start()
        assert arrived.wait(LONG)
        found = in_child(lambda: (solar.flush(LONG), solar.click(REQUEST, "b"), solar.flush(LONG)))
        release.set()
        flushing.join()
    assert found.startswith("(FlushResult(acknowledged=0, ")
    assert "FlushResult(acknowledged=1, duplicates=0" in found
    assert flushed[0].acknowledged == 150
    sent = events_of(server.events())
    assert len(sent) == len(set(sent)) == 151


@pytest.mark.parametrize("held", ["_lock", "session"])
def test_a_child_does_not_need_the_locks_of_its_parent(held: str) -> None:
    """Another thread of the parent holds a lock while the process forks."""
    with scripted(accepts) as server, Solar(server.url) as solar:
        solar.click(REQUEST, "a")
        solar.flush(LONG)
        sender = solar._sender
        lock = sender._lock if held == "_lock" else sender.session._kept._pool._optional_thread_lock
        with lock:
            found = in_child(lambda: (solar.click(REQUEST, "b"), solar.flush(LONG)))
    assert "acknowledged=1" in found


def test_parent_and_child_do_not_share_connections() -> None:
    with scripted(ranks) as server, Solar(server.url) as solar:
        solar.rank(DOCUMENTS, timeout=LONG)
        found = in_child(lambda: solar.rank(DOCUMENTS, timeout=LONG).degraded)
        assert not solar.rank(DOCUMENTS, timeout=LONG).degraded
    assert found == "False"
    assert server.connections == 2  # of the parent, which goes on with its own, and of the child


def test_a_child_closes_the_sockets_that_it_inherits() -> None:
    """Else a connection that the parent closes stays open while the child lives."""
    with scripted(ranks) as server, Solar(server.url) as solar:
        solar.rank(DOCUMENTS, timeout=LONG)
        session = solar._sender.session
        sockets = [one.get_extra_info("socket") for one in session._backend._streams]
        assert len(sockets) == 1
        assert in_child(lambda: [one.fileno() for one in sockets]) == "[-1]"
        assert sockets[0].fileno() > 0


def test_a_child_of_a_child_works_too() -> None:
    with scripted(accepts) as server, Solar(server.url) as solar:

        def grandchild() -> FlushResult:
            solar.click(REQUEST, "c")
            return solar.flush(LONG)

        def child() -> str:
            solar.click(REQUEST, "b")
            found = in_child(grandchild)
            solar.flush(LONG)
            return found

        assert "acknowledged=1" in in_child(child)
    assert len(events_of(server.events())) == 2


def test_an_asynchronous_client_refuses_to_work_after_a_fork() -> None:
    solar = AsyncSolar("http://127.0.0.1:9")

    async def rank() -> bool:
        return (await solar.rank(DOCUMENTS)).degraded

    assert in_child(lambda: solar.click(REQUEST, "a")).startswith("raised AfterFork")
    assert in_child(lambda: asyncio.run(rank())).startswith("raised AfterFork")
    assert in_child(lambda: asyncio.run(solar.flush())).startswith("raised AfterFork")
    assert asyncio.run(rank())  # of the parent
    assert issubclass(AfterFork, Exception)
