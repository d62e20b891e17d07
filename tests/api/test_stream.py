"""`GET /models/{name}/stream` over real sockets: what is learnt is seen at once."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.api.auth import new_key
from app.serving.live import MOST_STREAMS
from app.storage.embedded import server as embedded
from app.storage.keys import Keys
from app.storage.samples import NewSample
from app.storage.store import Store
from tests.api.services import PLAIN, Running, serving, uvicorn_ready
from tests.api.streams import streaming
from tests.api.test_faults import child, child_replaced
from tests.servers import TIMEOUT, client, until, with_store
from tests.test_metrics import read, series

ROUTE = "/models/{name}/stream"
DOCUMENTS = [{"id": "a", "features": [1.0, 0.0]}, {"id": "<b>", "features": [0.0, 1.0]}]
NUMBERS = count()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving("--workers", "2") as started:
        yield started


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    """A client, with a new model `m`."""
    with running.client() as found:
        create(found)
        yield found
        assert found.delete("/models/m").status_code in (204, 404)


def create(http: httpx.Client, model: str = "m") -> None:
    assert http.put(f"/models/{model}", json={**PLAIN, "features": 2}).status_code == 201


def click(http: httpx.Client, model: str = "m") -> tuple[int, dict[str, Any]]:
    """Rank and click the second document; return the seq of the record and the ranking."""
    ranked = http.post("/rank", json={"model": model, "documents": DOCUMENTS}).json()
    event = {
        "event_id": f"e{next(NUMBERS)}", "type": "clicks", "request_id": ranked["request_id"],
        "clicked": [ranked["documents"][1]["id"]],
    }  # fmt: skip
    answer = http.post("/feedback", json=event)
    assert answer.status_code == 202, answer.text
    return answer.json()["seq"], ranked


def test_the_first_click_after_connecting_to_a_resting_model_is_seen_within_2_s(
    running: Running, http: httpx.Client
) -> None:
    create(http, "resting")
    time.sleep(1.0)
    with streaming(running.url, "resting") as stream:
        posted = time.monotonic()
        seq, ranked = click(http, "resting")
        found = stream.record(seq)
        assert found.time - posted < 2.0
        ids = [one["id"] for one in ranked["documents"]]
        pair = {"preferred": 1, "other": 0, "weight": 1.0, "margin": 0.0, "outcome": "stepped"}
        assert found.data.pop("time") > 1.7e12
        assert found.data == {
            "seq": 1, "kind": "clicks", "accepted": True, "query": ranked["request_id"],
            "request": ranked["request_id"], "reason": "", "documents": 2, "ids": ids,
            "clicked": [1], "pairs": [pair], "more_pairs": 0, "skipped": 0,
        }  # fmt: skip
        until(lambda: [one for one in stream.events if one.name == "version"])
        [version] = [one for one in stream.events if one.name == "version"]
        assert (version.data, version.id) == ({"version": 1, "seq": 1, "lag": 0}, "")
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"


def test_every_client_sees_every_record_whichever_worker_serves_it(
    running: Running, http: httpx.Client
) -> None:
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(streaming(running.url)) for _ in range(8)]
        seqs = [click(http)[0] for _ in range(3)]
        for stream in streams:
            assert [stream.record(seq).data["seq"] for seq in seqs] == seqs


def test_a_client_of_another_service_on_the_same_store_sees_what_is_learnt(
    running: Running, http: httpx.Client
) -> None:
    url = embedded.find(running.data)
    assert url is not None
    environ = {"SOLAR_REDIS_URL": url}
    with serving("--no-learner", environ=environ) as other, streaming(other.url) as stream:
        seq, _ = click(http)
        assert stream.record(seq).data["ids"]


def test_a_stream_resumes_after_the_last_event(running: Running, http: httpx.Client) -> None:
    with streaming(running.url) as stream:
        last = stream.record(click(http)[0]).id
        seqs = [click(http)[0] for _ in range(4)]
        stream.record(seqs[-1])
    with streaming(running.url, last=last) as stream:
        assert stream.record(seqs[-1]).data["ids"]
        assert [one.data["seq"] for one in stream.records()] == seqs
        assert not [one for one in stream.events if one.name == "gap"]


def test_an_event_that_is_not_kept_is_a_gap(running: Running, http: httpx.Client) -> None:
    with streaming(running.url, last="999999-1") as stream:
        seq, _ = click(http)
        stream.record(seq)
        first, *_ = stream.events
        assert (first.name, first.data, first.id) == ("gap", {"missed": True}, "")


@pytest.mark.parametrize("last", ["x", "1", "1-", "-1-2", "1-2-3", "1" * 20 + "-1"])
def test_an_invalid_last_event_id_is_refused(http: httpx.Client, last: str) -> None:
    answer = http.get("/models/m/stream", headers={"last-event-id": last})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("last-event-id: expected ")


@pytest.mark.parametrize("name", ["missing", "%20", "a.b"])
def test_an_unknown_model_is_404(http: httpx.Client, name: str) -> None:
    assert http.get(f"/models/{name}/stream").status_code == 404


def test_a_deleted_model_ends_its_streams(running: Running, http: httpx.Client) -> None:
    with streaming(running.url) as one, streaming(running.url) as another:
        click(http)
        assert http.delete("/models/m").status_code == 204
        until(lambda: one.ended and another.ended)


def test_other_kinds_of_records_and_own_documents_are_seen(
    running: Running, http: httpx.Client
) -> None:
    with streaming(running.url) as stream:
        labels = {
            "event_id": f"e{next(NUMBERS)}", "type": "labels", "model": "m", "query_id": "shoes",
            "documents": DOCUMENTS, "labels": {"a": 1},
        }  # fmt: skip
        seq = http.post("/feedback", json=labels).json()["seq"]
        found = stream.record(seq).data
        assert (found["kind"], found["query"], found["ids"]) == ("labels", "shoes", None)
        tuned = http.patch("/models/m", json={"gamma": 9.0}).json()["seq"]
        assert stream.record(tuned).data["kind"] == "retune"
        back = http.post("/models/m/rollback", json={"version": 0}).json()["seq"]
        replaced = stream.record(back).data
        assert (replaced["kind"], replaced["reason"]) == ("replace", "rollback to version 0")


def test_nobody_watches_once_the_streams_are_closed(running: Running, http: httpx.Client) -> None:
    url = embedded.find(running.data)
    assert url is not None
    with client(url) as connection:
        click(http)
        until(lambda: http.get("/models/m").json()["version"] == 1)
        assert not connection.exists(Keys("m").watched, Keys("m").samples)
        with streaming(running.url) as stream:
            assert connection.pttl(Keys("m").watched) > 0
            stream.record(click(http)[0])
            assert connection.xlen(Keys("m").samples) == 1
            assert connection.pttl(Keys("m").samples) > 0
        connection.delete(Keys("m").watched)  # as its TTL does
        time.sleep(0.6)
        seq, _ = click(http)
        until(lambda: http.get("/models/m").json()["version"] == seq)
        assert connection.xlen(Keys("m").samples) == 1
        assert not connection.exists(Keys("m").watched)


def test_streams_are_counted_and_do_not_count_as_slow_requests(
    running: Running, http: httpx.Client
) -> None:
    def metric(name: str, **labels: str) -> float:
        return read(http.get("/metrics").content)[series(name, **labels)]

    until(lambda: metric("solar_streams") == 0)
    with streaming(running.url), streaming(running.url):
        assert metric("solar_streams") == 2
        time.sleep(1.0)
    until(lambda: metric("solar_streams") == 0)
    labels = {"route": ROUTE, "status": "200"}
    streams = metric("solar_request_seconds_count", **labels)
    assert streams >= 2
    assert metric("solar_request_seconds_sum", **labels) / streams < 0.4


def test_the_streams_of_a_killed_worker_do_not_count(running: Running, http: httpx.Client) -> None:
    def streams() -> float:
        return read(http.get("/metrics").content)[series("solar_streams")]

    with streaming(running.url):
        assert streams() == 1
        names = [one.name for one in Path("/proc").glob("[0-9]*")]
        workers = [int(one) for one in names if b"app.runtime.worker" in command(one)]
        mine = [one for one in workers if parent(one) == running.process.pid]
        for one in mine:
            os.kill(one, signal.SIGKILL)
    with contextlib.suppress(httpx.TransportError):
        http.get("/readyz")
    until(lambda: answers(http) and streams() == 0)


def command(pid: str) -> bytes:
    with contextlib.suppress(OSError):
        return (Path("/proc") / pid / "cmdline").read_bytes()
    return b""


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def answers(http: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get("/readyz").status_code == 200
    return False


# ---- services of their own ----


def test_a_key_needs_the_scope_read_which_admin_includes() -> None:
    keys = {scope: new_key(scope, scope) for scope in ("rank", "read", "admin")}
    environ = {"SOLAR_KEYS": ",".join(entry for _, entry in keys.values())}
    bearer = {scope: {"authorization": f"Bearer {secret}"} for scope, (secret, _) in keys.items()}
    with serving(environ=environ) as running, running.client() as http:
        http.headers.update(bearer["admin"])
        create(http)
        for scope in ("read", "admin"):
            with streaming(running.url, **bearer[scope]):
                pass
        assert http.get("/models/m/stream", headers=bearer["rank"]).status_code == 403
        assert http.get("/models/m/stream", headers={"authorization": ""}).status_code == 401
        assert http.get("/models", headers=bearer["read"]).status_code == 200


def test_ids_and_queries_are_withheld_from_other_tenants() -> None:
    """The records of all tenants are shown; the model belongs to none."""
    keys = {
        name: new_key(name, scopes)
        for name, scopes in (
            ("web@acme", "rank+feedback+admin"), ("desk@acme", "read"), ("spy@rival", "read"),
            ("any", "read"),
        )
    }  # fmt: skip
    environ = {"SOLAR_KEYS": ",".join(entry for _, entry in keys.values())}
    bearer = {name: {"authorization": f"Bearer {secret}"} for name, (secret, _) in keys.items()}
    with serving(environ=environ) as running, running.client() as http:
        http.headers.update(bearer["web@acme"])
        create(http)
        with contextlib.ExitStack() as stack:
            streams = {
                name: stack.enter_context(streaming(running.url, **bearer[name]))
                for name in ("desk@acme", "spy@rival", "any")
            }
            seq, ranked = click(http)
            found = {name: stream.record(seq).data for name, stream in streams.items()}
        ids = [one["id"] for one in ranked["documents"]]
        assert (found["desk@acme"]["ids"], found["desk@acme"]["clicked"]) == (ids, [1])
        for name in ("spy@rival", "any"):
            shown = found[name]
            assert (shown["ids"], shown["request"], shown["query"]) == (None, "", "")
            assert shown["pairs"] == found["desk@acme"]["pairs"]


@contextlib.contextmanager
def connected(url: str) -> Iterator[int]:
    """Open a stream, and yield its status."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), TIMEOUT) as connection:
        connection.sendall(
            f"GET /models/m/stream HTTP/1.1\r\nhost: {place.netloc}\r\n\r\n".encode()
        )
        yield int(connection.recv(12).split()[1])


@pytest.mark.slow
def test_a_worker_has_at_most_50_streams() -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(serving("--workers", "1"))
        http = stack.enter_context(running.client())
        create(http)
        with connected(running.url) as first:
            others = [stack.enter_context(connected(running.url)) for _ in range(MOST_STREAMS - 1)]
            assert {first, *others} == {200}
            refused = http.get("/models/m/stream")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.headers["content-type"] == "application/problem+json"
            assert click(http)[0] == 1  # others are served
        until(lambda: read(http.get("/metrics").content)[series("solar_streams")] == 49)
        with connected(running.url) as again:
            assert again == 200


def test_sigterm_ends_the_streams_at_once() -> None:
    with serving("--workers", "2") as running, running.client() as http:
        create(http)
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(streaming(running.url)) for _ in range(6)]
            for _ in range(2):
                seq, _ = click(http)
            for stream in streams:
                stream.record(seq)
            began = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            until(lambda: all(stream.ended for stream in streams))
            assert all(stream.ended and stream.ended - began < 1.0 for stream in streams)
        assert running.process.wait(20) == 0
        assert "Traceback" not in running.logged()


@pytest.mark.slow
def test_sigterm_does_not_wait_for_a_client_that_does_not_read() -> None:
    with serving("--workers", "1") as running, running.client() as http:
        create(http)
        url = embedded.find(running.data)
        assert url is not None
        with_store(url, write_large_samples)
        with requested(running.url, **{"last-event-id": "1-1"}) as unread:
            time.sleep(0.5)
            began = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(20) == 0
            assert time.monotonic() - began < 5.0
            assert unread.recv(1) == b"H"
        assert "Traceback" not in running.logged()


async def write_large_samples(store: Store) -> None:
    """Write samples that do not fit the buffers of a connection: 10 MB."""
    epoch, *_ = await store.states.position("m")
    for seq in range(1, 1001, 50):
        some = [NewSample(seq + at, b'"%b"' % (10_000 * b"x")) for at in range(50)]
        await store.samples.write("m", epoch, 1, some)


@pytest.mark.slow
def test_sigterm_ends_a_stream_that_waits_for_the_store() -> None:
    with serving("--workers", "1") as running, running.client() as http:
        create(http)
        store = child(running.process.pid, "valkey-server")
        assert store is not None
        os.kill(store, signal.SIGSTOP)
        with requested(running.url) as waiting:
            time.sleep(0.5)
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            os.kill(store, signal.SIGCONT)
            began, got = time.monotonic(), b""
            while part := waiting.recv(1000):
                got += part
            assert time.monotonic() - began < 2.0
            assert got.endswith(b"0\r\n\r\n")
        assert running.process.wait(20) == 0


@contextlib.contextmanager
def requested(url: str, **headers: str) -> Iterator[socket.socket]:
    """Ask for a stream on a connection with small buffers; read nothing."""
    place, connection = urlsplit(url), socket.socket()
    with connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(3 * TIMEOUT)
        connection.connect((place.hostname, place.port))
        lines = ["GET /models/m/stream HTTP/1.1", f"host: {place.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        yield connection


@pytest.mark.parametrize("protocol", ["httptools", "app.runtime.protocol:LimitedProtocol"])
def test_sigterm_ends_the_streams_of_plain_uvicorn(tmp_path: Path, protocol: str) -> None:
    with uvicorn_ready("--http", protocol, data=tmp_path) as running, running.client() as http:
        create(http)
        with streaming(running.url) as stream:
            stream.record(click(http)[0])
            began = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            until(lambda: stream.ended)
            assert stream.ended is not None
            assert stream.ended - began < 2.0
        running.process.wait(20)
        assert "Traceback" not in running.logged()


def test_a_stream_outlives_an_outage_of_the_store() -> None:
    with serving("--workers", "1") as running, running.client() as http:
        create(http)
        with streaming(running.url) as stream:
            stream.record(click(http)[0])
            store = child(running.process.pid, "valkey-server")
            assert store is not None
            os.kill(store, signal.SIGKILL)
            until(child_replaced(running.process.pid, "valkey-server", store))
            until(lambda: not http.get("/readyz").json()["degraded"])
            time.sleep(1.0)  # the watch is renewed
            seq, _ = until_learnt(http)
            stream.record(seq)
            assert stream.ended is None


def until_learnt(http: httpx.Client) -> tuple[int, dict[str, Any]]:
    """Click until the click is accepted: connections to the store are opened again."""
    found: list[tuple[int, dict[str, Any]]] = []

    def clicked() -> bool:
        with contextlib.suppress(AssertionError, KeyError):
            found.append(click(http))
        return bool(found)

    until(clicked)
    return found[0]
