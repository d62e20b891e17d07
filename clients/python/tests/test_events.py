"""Events: batches, retries, refusals and flush, against a scripted server."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from scripted_server import Handler, accepts, answers_with, hangs_up, scripted
from solar_client import (
    AsyncSolar,
    ClosedClient,
    FlushResult,
    InvalidArgument,
    RejectedEvent,
    Solar,
)

REQUEST = "m.01970000-0000-7000-8000-000000000000"
OTHER = "books.01970000-0000-7000-8000-000000000000"
LONG = 20.0
DOCUMENTS = [{"id": "a", "features": [1.0]}, {"id": "b", "features": [2.0]}]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.005)


def done(acknowledged: int, **others: int) -> FlushResult:
    counts = {"duplicates": 0, "rejected": 0, "dropped": 0, "pending": 0, **others}
    return FlushResult(acknowledged, **counts)


def test_events_are_sent_in_batches_of_one_model() -> None:
    with scripted(accepts) as server, Solar(server.url, model="shop") as solar:
        ids = [solar.click(REQUEST, ["a", "b"]), solar.click(OTHER, "a")]
        ids += [solar.click("page-5", [], model="m"), solar.label(REQUEST, {"a": 2})]
        ids += [solar.prefer(None, [("a", "b", 0.5)], documents=DOCUMENTS)]
        assert solar.flush(LONG) == done(5)
    by_model = {json.loads(body)["model"]: json.loads(body)["events"] for body in server.bodies}
    assert sorted(by_model) == ["books", "m", "shop"]
    clicks, own, labels = by_model["m"]
    assert clicks == {
        "event_id": ids[0], "type": "clicks", "request_id": REQUEST, "clicked": ["a", "b"],
    }  # fmt: skip
    assert (own["request_id"], own["clicked"]) == ("page-5", [])
    assert labels["labels"] == {"a": 2}
    (preference,) = by_model["shop"]
    assert (preference["triplets"], preference["documents"]) == ([["a", "b", 0.5]], DOCUMENTS)
    assert abs(preference["time"] / 1e3 - time.time()) < LONG  # guards against late retries


def test_the_source_and_the_fields_of_an_event_are_sent() -> None:
    with scripted(accepts) as server, Solar(server.url, source="web") as solar:
        solar.click(REQUEST, "a", query_id="q", time=7, event_id="e1")
        solar.click(REQUEST, "a", source="app")
        solar.flush(LONG)
    first, second = server.events()[0]
    assert (first["event_id"], first["query_id"], first["source"], first["time"]) == (
        "e1", "q", "web", 7,
    )  # fmt: skip
    assert second["source"] == "app"


@pytest.mark.parametrize(
    "call",
    [
        lambda solar: solar.click(OTHER, "a", model="m"),
        lambda solar: solar.click("page-5", "a", model="no model"),
        lambda solar: solar.label(REQUEST, {"a": 1}, documents=DOCUMENTS),
        lambda solar: solar.label(None, {"a": object()}, documents=DOCUMENTS),
    ],
)
def test_an_event_that_would_spoil_its_batch_is_refused_at_once(call: Any) -> None:
    with Solar("http://127.0.0.1:9") as solar:
        with pytest.raises(InvalidArgument):
            call(solar)
        assert solar.counters.queued == 0


def test_the_events_of_half_a_second_are_sent_together_without_a_flush() -> None:
    with scripted(accepts) as server, Solar(server.url) as solar:
        for _ in range(7):
            solar.click(REQUEST, "a")
        until(lambda: solar.counters.acknowledged == 7)
    assert [len(events) for events in server.events()] == [7]


def test_a_full_batch_is_sent_at_once() -> None:
    with scripted(accepts) as server, Solar(server.url) as solar:
        for _ in range(250):
            solar.click(REQUEST, "a")
        assert solar.flush(LONG) == done(250)
    assert sorted(len(events) for events in server.events()) == [50, 100, 100]


def test_a_retry_is_the_same_event() -> None:
    """The first lost connection was a kept one: the post is sent again at once."""
    answers = [answers_with(503), hangs_up, hangs_up, answers_with(429), answers_with(502)]
    with scripted(*answers, accepts) as server, Solar(server.url) as solar:
        solar.click(REQUEST, "a")
        assert solar.flush(LONG) == done(1)
        retries = solar.counters.retries
    assert len(set(server.bodies)) == 1
    assert len(server.bodies) == 6
    assert retries == {"503": 1, "no connection": 1, "429": 1, "502": 1}


def test_a_retry_waits_for_retry_after() -> None:
    times: list[float] = []

    def note(script: Any) -> Any:
        def noted(handler: Handler) -> None:
            times.append(time.monotonic())
            script(handler)

        return noted

    answers = (note(answers_with(503, Retry_After="1")), note(accepts))
    with scripted(*answers) as server, Solar(server.url) as solar:
        solar.click(REQUEST, "a")
        assert solar.flush(0.2).pending == 1
        assert solar.flush(LONG) == done(1)
    assert times[1] - times[0] >= 1.0


def refuses_the_first(handler: Handler) -> None:
    many = len(json.loads(handler.body)["events"])
    error = {"index": 0, "status": 410, "title": "Gone", "detail": "request_id: expired"}
    found = {"accepted": many - 1, "duplicates": 0, "rejected": 1, "seq": 1, "errors": [error]}
    handler.answer(202, json.dumps(found).encode())


def test_a_refused_event_is_reported_and_not_sent_again() -> None:
    refused: list[RejectedEvent] = []
    with (
        scripted(refuses_the_first) as server,
        Solar(server.url, on_rejected=refused.append) as solar,
    ):
        first = solar.click(REQUEST, "a")
        solar.click(REQUEST, "b")
        assert solar.flush(LONG) == done(1, rejected=1)
        until(lambda: refused)
    assert [(one.event_id, one.status, one.detail) for one in refused] == [
        (first, 410, "request_id: expired")
    ]
    assert refused[0].event["clicked"] == ["a"]
    assert len(server.bodies) == 1


def test_a_failing_on_rejected_is_logged_and_events_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(event: RejectedEvent) -> None:
        raise RuntimeError(event.event_id)

    with scripted(refuses_the_first, accepts) as server, Solar(server.url, on_rejected=fails) as s:
        s.click(REQUEST, "a")
        s.flush(LONG)
        s.click(REQUEST, "a")
        assert s.flush(LONG).acknowledged == 1
    assert "on_rejected failed" in caplog.text


def test_a_whole_batch_that_is_refused_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    body = b'{"title": "Unauthorized", "detail": "expected a valid API key"}'
    with scripted(answers_with(401, body)) as server, Solar(server.url, "hush") as solar:
        solar.click(REQUEST, "a")
        solar.click(REQUEST, "b")
        assert solar.flush(LONG) == done(0, rejected=2)
        until(lambda: caplog.text.count("was refused: 401 expected a valid API key") == 2)
    assert len(server.bodies) == 1
    assert "hush" not in caplog.text


def test_a_full_queue_drops_the_oldest_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    def slow(handler: Handler) -> None:
        release.wait(LONG)
        accepts(handler)

    with scripted(slow) as server, Solar(server.url, queue_size=150) as solar:
        ids = []
        for batch in range(4):  # in flight
            ids += [solar.click(REQUEST, "a") for _ in range(100)]
            until(lambda batch=batch: len(server.bodies) == batch + 1)  # type: ignore[misc]
        ids += [solar.click(REQUEST, "a") for _ in range(160)]
        release.set()
        assert solar.flush(LONG) == done(550, dropped=10)
    sent = [event["event_id"] for events in server.events() for event in events]
    assert sorted(sent) == sorted(map(str, ids[:400] + ids[410:]))
    assert "the queue is full: dropped 1 events so far" in caplog.text


def test_threads_queue_at_the_same_time() -> None:
    with scripted(accepts) as server, Solar(server.url) as solar:

        def work() -> None:
            for _ in range(300):
                solar.click(REQUEST, "a")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert solar.flush(LONG) == done(1200)
    sent = [event["event_id"] for events in server.events() for event in events]
    assert len(set(sent)) == len(sent) == 1200


def test_a_closed_client_takes_no_event() -> None:
    with scripted(accepts) as server:
        solar = Solar(server.url)
        solar.click(REQUEST, "a")
        assert solar.close(LONG) == done(1)
        with pytest.raises(ClosedClient):
            solar.click(REQUEST, "a")


def test_flush_ends_in_time_and_says_what_is_pending(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "solar_client")
    solar = Solar("http://127.0.0.1:9")
    solar.click(REQUEST, "a")
    began = time.monotonic()
    assert solar.flush(0.2) == done(0, pending=1)
    assert solar.close(0.1).pending == 1
    assert time.monotonic() - began < 2.0


# ---- asyncio ----


def test_the_asynchronous_client_sends_the_same_events() -> None:
    refused: list[RejectedEvent] = []

    async def act(url: str) -> tuple[FlushResult, dict[str, int]]:
        async with AsyncSolar(url, on_rejected=refused.append) as solar:
            for _ in range(150):
                solar.click(REQUEST, "a")
            return await solar.flush(LONG), solar.counters.retries

    with scripted(answers_with(503), hangs_up, hangs_up, refuses_the_first, accepts) as server:
        result, retries = asyncio.run(act(server.url))
    assert result == done(149, rejected=1)
    assert retries == {"503": 1, "no connection": 1}
    assert len(refused) == 1
    sent = {json.dumps(event) for events in server.events() for event in events}
    assert len(sent) == 150  # a retry is the same event


def test_the_asynchronous_client_sends_without_a_flush() -> None:
    async def act(url: str) -> int:
        async with AsyncSolar(url) as solar:
            solar.click(REQUEST, "a")
            async with asyncio.timeout(LONG):
                while not solar.counters.acknowledged:
                    await asyncio.sleep(0.01)
            return solar.counters.acknowledged

    with scripted(accepts) as server:
        assert asyncio.run(act(server.url)) == 1


def test_the_events_of_a_cancelled_task_are_sent_by_the_next() -> None:
    arrived = threading.Event()

    def silent(handler: Handler) -> None:
        arrived.set()
        handler.rfile.readline()  # until the client hangs up

    async def act(url: str) -> FlushResult:
        async with AsyncSolar(url) as solar:
            solar.click(REQUEST, "a")
            assert (await solar.flush(0.0)).pending == 1
            assert await asyncio.to_thread(arrived.wait, LONG)
            for task in solar._sender._tasks:
                task.cancel()
            return await solar.flush(LONG)

    with scripted(silent, accepts) as server:
        assert asyncio.run(act(server.url)) == done(1)
    assert len(server.bodies) == 2


def test_an_asynchronous_flush_ends_in_time() -> None:
    async def act() -> FlushResult:
        solar = AsyncSolar("http://127.0.0.1:9")
        solar.click(REQUEST, "a")
        result = await solar.flush(0.2)
        await solar.aclose(0.0)
        return result

    began = time.monotonic()
    assert asyncio.run(act()) == done(0, pending=1)
    assert time.monotonic() - began < 2.0


# ---- the end of the process ----


def run(code: str, url: str, first: str = "") -> "subprocess.CompletedProcess[str]":
    code = f"{first}import sys, asyncio\nfrom solar_client import *\nR = {REQUEST!r}\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, check=False, timeout=60
    )


THREE_CLICKS = "for _ in range(3): solar.click(R, 'a')\n"


@pytest.mark.parametrize(
    "code",
    [
        f"solar = Solar(sys.argv[1])\n{THREE_CLICKS}",
        f"solar = Solar(sys.argv[1])\n{THREE_CLICKS}raise SystemExit(0)",
        "for _ in range(3): Solar(sys.argv[1]).click(R, 'a')",
        f"solar = AsyncSolar(sys.argv[1])\nasync def main():\n  {THREE_CLICKS}asyncio.run(main())",
        f"solar = AsyncSolar(sys.argv[1])\n{THREE_CLICKS}",
    ],
    ids=["end", "exit", "forgotten clients", "asyncio", "asyncio without a loop"],
)
def test_the_end_of_a_process_sends_what_is_queued(code: str) -> None:
    with scripted(accepts) as server:
        ran = run(code, server.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sum(len(events) for events in server.events()) == 3


@pytest.mark.parametrize("kind", ["Solar", "AsyncSolar"])
def test_the_end_of_a_process_waits_at_most_two_seconds(kind: str) -> None:
    """Also if a server takes the events and does not answer."""
    code = (
        "import atexit, time\n"
        "began = []\n"
        f"one, two = {kind}(sys.argv[1]), {kind}(sys.argv[1])\n"
        "one.click(R, 'a'); two.click(R, 'a')\n"
        "atexit.register(lambda: began.append(time.monotonic()))\n"  # the last one runs first
    )
    last = "import atexit\natexit.register(lambda: print(time.monotonic() - began[0]))\n"
    release = threading.Event()

    def silent(_handler: Handler) -> None:
        release.wait(LONG)

    with scripted(silent) as server:
        ran = run(code, server.url, last)
        release.set()
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 3.0  # 2.0 on a quiet machine
