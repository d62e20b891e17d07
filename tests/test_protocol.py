"""`LimitedProtocol`: limits on headers, waiting clients and connections, over real sockets."""

import asyncio
import contextlib
import hashlib
import inspect
import json
import random
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.api import auth
from app.runtime import protocol
from app.runtime.protocol import HEADER_BYTES, PIPELINED, LimitedProtocol
from app.runtime.worker import _new_loop as new_loop
from tests.api.services import ROOT, Running, serving
from tests.servers import TIMEOUT

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
SOON = 0.2  # seconds


class Server(uvicorn.Server):
    """A server with a small application, in this process."""

    def __init__(self) -> None:
        super().__init__(
            uvicorn.Config(
                self.application, http=LimitedProtocol, lifespan="off", log_config=None,
                timeout_keep_alive=1, ws="none", interface="asgi3",
            )
        )  # fmt: skip
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.clients: list[Client] = []
        self.requests: list[dict[str, Any]] = []
        self.gate = asyncio.Event()  # closed, /slow waits for it
        self.arrived = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer the length of the body; /early answers before it, /large answers 8 MB."""
        self.requests.append(scope)
        self.arrived.set()
        length, more = 0, scope["path"] != "/early"
        while more:
            message = await receive()
            length, more = length + len(message.get("body", b"")), message.get("more_body", False)
        if scope["path"] == "/slow":
            await self.gate.wait()
        body = bytes(1 << 23) if scope["path"] == "/large" else b"%d" % length
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def connect(self, *sent: bytes) -> "Client":
        """Open a connection and send bytes."""
        streams = await asyncio.open_connection(*self.listening.getsockname())
        client = Client(*streams)
        self.clients.append(client)
        for part in sent:
            await client.send(part)
        return client


class Client:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send bytes; the server may have closed the connection."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def reply(self) -> tuple[int, bytes]:
        """Read one answer; status 0 if the server has closed the connection."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0, b""
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        body = await self.reader.readexactly(int(length[1]))
        if not head.startswith(b"HTTP/1.1 200"):
            assert b"content-type: application/problem+json\r\n" in head
            assert b"connection: close\r\n" in head
            assert json.loads(body)["status"] == int(head[9:12])
        return int(head[9:12]), body

    async def statuses(self) -> list[int]:
        """Read all answers until the server closes the connection."""
        found = []
        while (status := (await self.reply())[0]) != 0:
            found.append(status)
        return found


def with_server(check: Callable[[Server], Awaitable[None]]) -> None:
    """Run a check against a server, on uvloop as in production."""

    async def run() -> None:
        async with asyncio.timeout(TIMEOUT), started() as server:
            await check(server)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[Server]:
    server = Server()
    task = asyncio.create_task(server.serve([server.listening]))
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield server
    finally:
        for client in server.clients:
            client.writer.close()
        server.gate.set()
        server.should_exit = server.force_exit = True
        await task


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time limit of headers."""
    assert protocol.HEADER_SECONDS == 10
    monkeypatch.setattr(protocol, "HEADER_SECONDS", SOON)


# ---- the size of headers ----


def request(*headers: bytes, path: bytes = b"/", body: bytes = b"") -> bytes:
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, *headers, b"", body])


LARGE_HEADERS = {
    "one header": request(b"x: " + HEADER_BYTES * b"y"),
    "a header name": request(HEADER_BYTES * b"y" + b": x"),
    "many headers": request(*(HEADER_BYTES // 5) * [b"x: y"]),
    "empty headers": request(*(HEADER_BYTES // 4) * [b"x:"]),
    "the path": request(path=b"/" + HEADER_BYTES * b"y"),
    "with a body": request(b"x: " + HEADER_BYTES * b"y", body=bytes(100)),
    "no end": b"GET / HTTP/1.1\r\nx: " + HEADER_BYTES * b"y",
    "no end of the path": b"GET /" + HEADER_BYTES * b"y",
    "a megabyte": request(b"x: " + bytes(1 << 20).replace(b"\0", b"y")),
}


@pytest.mark.parametrize("size", [1000, 1 << 20], ids=["in parts", "at once"])
def test_large_headers_are_431(size: int) -> None:
    async def check(server: Server) -> None:
        for case, sent in LARGE_HEADERS.items():
            parts = (sent[at : at + size] for at in range(0, len(sent), size))
            client = await server.connect(*parts)
            assert await client.statuses() == [431], case
        assert server.requests == []

    with_server(check)


def test_headers_below_the_limit_are_served_with_any_body() -> None:
    async def check(server: Server) -> None:
        client = await server.connect()
        for header in (b"x: y", b"x: " + (HEADER_BYTES - 200) * b"y"):
            for length in (0, 1, HEADER_BYTES, 50_000, 300_000):
                await client.send(request(header, body=bytes(length)))
                assert await client.reply() == (200, b"%d" % length)
                parts = request(header, body=bytes(length))
                for at in range(0, len(parts), 40_000):
                    await client.send(parts[at : at + 40_000])
                assert await client.reply() == (200, b"%d" % length)

    with_server(check)


def test_a_large_request_and_the_start_of_the_next_one_may_arrive_together() -> None:
    async def check(server: Server) -> None:
        client = await server.connect(request(body=bytes(40_000)) + GET[:10])
        assert (await client.reply())[0] == 200
        await client.send(GET[10:])
        assert (await client.reply())[0] == 200

    with_server(check)


# ---- trailers ----


def test_trailers_are_ignored_and_the_next_request_has_its_own_headers() -> None:
    async def check(server: Server) -> None:
        forged = b"Authorization: Bearer forged\r\nHost: evil.example\r\n"
        chunked = CHUNKED + b"3\r\nabc\r\n0\r\n" + forged + b"\r\n"
        client = await server.connect(chunked + GET + chunked + request(b"x: y"))
        for _ in range(4):
            assert (await client.reply())[0] == 200
        sent = [dict(scope["headers"]) for scope in server.requests]
        assert [one[b"host"] for one in sent] == 4 * [b"x"]
        assert not any(b"authorization" in one for one in sent)
        assert sent[3][b"x"] == b"y"

    with_server(check)


@pytest.mark.parametrize("extra", [b"0\r\nx: ", b"0\r\nx", b"3;x=", b"0" * 9], ids=str)
def test_large_trailers_and_chunk_extensions_are_refused(extra: bytes) -> None:
    async def check(server: Server) -> None:
        client = await server.connect(CHUNKED, b"3\r\nabc\r\n" + extra)
        await server.arrived.wait()
        for _ in range(3):
            await client.send(HEADER_BYTES * b"0")
        assert await client.statuses() in ([400], [431])

    with_server(check)


def test_a_body_of_many_small_chunks_is_served() -> None:
    async def check(server: Server) -> None:
        client = await server.connect(CHUNKED, 100_000 * b"1;x\r\na\r\n", b"0\r\n\r\n")
        assert await client.reply() == (200, b"100000")

    with_server(check)


# ---- slow clients ----


@pytest.mark.usefixtures("soon")
def test_a_body_of_tiny_chunks_is_refused() -> None:
    """16 connections with chunks of one byte, 10 MB each, delayed a probe by 8 s."""

    async def check(server: Server) -> None:
        tiny = await server.connect(CHUNKED, b"1\r\n \r\n" * (protocol.TINY_CHUNKS + 1))
        assert (await tiny.reply())[0] == 400

    with_server(check)


@pytest.mark.slow
def test_incomplete_headers_are_408_after_their_time() -> None:
    async def check(server: Server) -> None:
        began = time.monotonic()
        clients = [await server.connect(sent) for sent in (b"", b"\r\n", GET[:-1], CHUNKED[:30])]
        after_one = await server.connect(GET)
        assert (await after_one.reply())[0] == 200
        await after_one.send(b"G")
        for client in (*clients, after_one):
            assert await client.statuses() == [408]
        assert time.monotonic() - began >= SOON

    with_server(check)


@pytest.mark.usefixtures("soon")
def test_bytes_that_trickle_do_not_extend_the_time() -> None:
    async def check(server: Server) -> None:
        client = await server.connect(b"GET / HTTP/1.1\r\nx: ")
        empty_lines = await server.connect(GET)
        assert (await empty_lines.reply())[0] == 200

        async def trickle(to: Client, byte: bytes) -> None:
            while True:
                await to.send(byte)
                await asyncio.sleep(SOON / 10)

        async with asyncio.TaskGroup() as tasks:
            senders = [
                tasks.create_task(trickle(client, b"y")),
                tasks.create_task(trickle(empty_lines, b"\r\n")),
            ]
            assert await client.statuses() == [408]
            assert await empty_lines.statuses() == [408]
            for one in senders:
                one.cancel()

    with_server(check)


@pytest.mark.usefixtures("soon")
def test_an_idle_connection_is_closed_by_the_keep_alive_timeout_only() -> None:
    async def check(server: Server) -> None:
        client = await server.connect(GET)
        assert (await client.reply())[0] == 200
        began = time.monotonic()
        assert await client.statuses() == []
        assert time.monotonic() - began > 0.9  # timeout_keep_alive is 1 s

    with_server(check)


@pytest.mark.usefixtures("soon")
def test_a_slow_request_in_progress_is_not_limited() -> None:
    async def check(server: Server) -> None:
        slow = request(path=b"/slow", body=b"abc")
        client = await server.connect(slow[:-1])
        await server.arrived.wait()
        await asyncio.sleep(2 * SOON)  # nothing must happen
        await client.send(slow[-1:])
        await asyncio.sleep(2 * SOON)
        server.gate.set()
        assert await client.reply() == (200, b"3")

    with_server(check)


@pytest.mark.usefixtures("soon")
def test_a_body_that_does_not_end_after_its_answer_closes_the_connection() -> None:
    async def check(server: Server) -> None:
        early = request(path=b"/early", body=bytes(100))
        client = await server.connect(early[:-1])
        assert (await client.reply())[0] == 200
        assert await client.statuses() == []
        finished = await server.connect(early[:-1])
        assert (await finished.reply())[0] == 200
        await finished.send(early[-1:] + GET)
        assert (await finished.reply())[0] == 200
        began = time.monotonic()
        assert await finished.statuses() == []
        assert time.monotonic() - began > 0.9  # timeout_keep_alive is 1 s

    with_server(check)


def test_after_a_late_body_the_keep_alive_timeout_applies() -> None:
    async def check(server: Server) -> None:
        early = request(path=b"/early", body=bytes(100))
        client = await server.connect(early[:-1])
        assert (await client.reply())[0] == 200
        await client.send(early[-1:])
        assert await client.statuses() == []

    with_server(check)


# ---- invalid requests and pipelining ----

INVALID = [
    b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT x:443 HTTP/1.1\r\n\r\n",
    b"GET http:// HTTP/1.1\r\n\r\n", CHUNKED + b"zz\r\n", request(b"Content-Length: 2"),
]  # fmt: skip
UPGRADES = [
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " + to + b"\r\n\r\n"
    for to in (b"h2c", b"websocket", b"websocket\r\nSec-WebSocket-Key: x")
]


def test_invalid_requests_are_400_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Server) -> None:
        for sent in INVALID:
            client = await server.connect(sent)
            assert await client.statuses() == [400], sent

    with_server(check)
    assert caplog.records == []


def test_an_upgrade_is_ignored_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Server) -> None:
        client = await server.connect(b"".join(UPGRADES) + GET)
        for _ in range(4):
            assert (await client.reply())[0] == 200

    with_server(check)
    assert caplog.records == []


def test_an_upgrade_with_a_body_is_refused() -> None:
    """The parser does not read its body, and would take it for the next request."""

    async def check(server: Server) -> None:
        start = b"POST / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        for head in (b"Content-Length: 3", b"Transfer-Encoding: chunked"):
            client = await server.connect(start + head + b"\r\n\r\n" + GET)
            status, body = await client.reply()
            assert (status, b"Upgrade" in body) == (400, True)
            assert await client.statuses() == []
        empty = await server.connect(start + b"Content-Length: 0\r\n\r\n")
        assert await empty.reply() == (200, b"0")
        assert len(server.requests) == 1

    with_server(check)


def test_an_invalid_request_does_not_cut_off_the_answers_before_it() -> None:
    async def check(server: Server) -> None:
        client = await server.connect(request(path=b"/slow") + GET + b"nonsense\r\n\r\n")
        await server.arrived.wait()
        await client.send(GET)
        server.gate.set()
        assert await client.statuses() == [200, 200]
        assert len(server.requests) == 2

    with_server(check)


def test_a_pipeline_that_is_cut_off_causes_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Server) -> None:
        client = await server.connect(request(path=b"/slow") + 10 * GET)
        await server.arrived.wait()
        client.writer.transport.abort()
        while server.server_state.connections:
            await asyncio.sleep(0)
        server.gate.set()
        while server.server_state.tasks:
            await asyncio.sleep(0)
        assert len(server.requests) == 1

    with_server(check)
    assert [one.getMessage() for one in caplog.records] == []


def test_requests_that_wait_for_an_earlier_answer_are_limited() -> None:
    async def check(server: Server) -> None:
        client = await server.connect(request(path=b"/slow"), 20_000 * GET)
        await server.arrived.wait()
        server.gate.set()
        assert await client.statuses() == (PIPELINED + 1) * [200]
        assert len(server.requests) == PIPELINED + 1

    with_server(check)


def test_a_pipeline_within_the_limit_is_answered_in_order() -> None:
    async def check(server: Server) -> None:
        sent = [request(body=bytes(at)) for at in range(PIPELINED)]
        client = await server.connect(b"".join(sent))
        assert [await client.reply() for _ in sent] == [
            (200, b"%d" % at) for at in range(PIPELINED)
        ]

    with_server(check)


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_cause_no_error(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)  # noqa: S311  # not for security
    seeds = [GET, *INVALID, *UPGRADES, CHUNKED + b"3\r\nabc\r\n0\r\nx: y\r\n\r\n",
             request(body=b"abc"), request(path=b"/early", body=b"abc")]  # fmt: skip

    def mutated() -> bytes:
        data = bytearray(b"".join(chance.choices(seeds, k=chance.randint(1, 4))))
        for _ in range(chance.randint(0, 8)):
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        return bytes(data) if chance.random() < 0.9 else chance.randbytes(chance.randint(1, 300))

    async def one(server: Server) -> None:
        data = mutated()
        cut = chance.randrange(len(data) + 1)
        client = await server.connect(data[:cut], data[cut:])
        client.writer.write_eof()
        await client.reader.read()
        client.writer.close()

    async def check(server: Server) -> None:
        for _ in range(15):
            await asyncio.gather(*(one(server) for _ in range(20)))
        assert await (await server.connect(GET)).reply() == (200, b"0")

    with_server(check)
    assert [one.getMessage() for one in caplog.records] == []


# ---- the connection limit ----


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the server to three connections."""
    monkeypatch.setattr(protocol, "connection_limit", lambda: 3)


@pytest.mark.usefixtures("three")
def test_the_oldest_connection_without_complete_headers_is_closed_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check(server: Server) -> None:
        idle = await server.connect(GET)
        assert (await idle.reply())[0] == 200
        first, second = await server.connect(b"G"), await server.connect()
        for silent in (first, second):
            third = await server.connect(GET)
            assert (await third.reply())[0] == 200
            assert await silent.statuses() == []
        await idle.send(GET)
        assert (await idle.reply())[0] == 200

    with_server(check)
    assert [one.getMessage()[:32] for one in caplog.records] == ["the limit of 3 connections is re"]


@pytest.mark.usefixtures("three")
def test_without_a_silent_connection_the_longest_idle_one_is_closed() -> None:
    async def check(server: Server) -> None:
        clients = [await server.connect(GET) for _ in range(3)]
        for client in clients:
            assert (await client.reply())[0] == 200
        await clients[0].send(GET)
        assert (await clients[0].reply())[0] == 200
        new = await server.connect(GET)
        assert (await new.reply())[0] == 200
        assert await clients[1].statuses() == []
        for client in (clients[0], clients[2]):
            await client.send(GET)
            assert (await client.reply())[0] == 200

    with_server(check)


@pytest.mark.usefixtures("three")
def test_a_client_that_does_not_read_is_closed_before_requests_in_progress() -> None:
    async def check(server: Server) -> None:
        deaf = await server.connect(request(path=b"/large"))
        await deaf.reader.readuntil(b"\r\n\r\n")
        waiting = server.server_state.__dict__["waiting"]
        while not waiting.unread:
            await asyncio.sleep(0)
        busy = []
        for _ in range(2):
            server.arrived.clear()
            busy.append(await server.connect(request(path=b"/slow")))
            await server.arrived.wait()
        new = await server.connect(GET)
        assert (await new.reply())[0] == 200
        with contextlib.suppress(ConnectionError):
            assert len(await deaf.reader.read()) < 1 << 23
        server.arrived.clear()
        await new.send(request(path=b"/slow"))
        await server.arrived.wait()
        refused = await server.connect()
        assert await refused.statuses() == [503]
        server.gate.set()
        for client in (*busy, new):
            assert (await client.reply())[0] == 200

    with_server(check)


def test_a_client_that_reads_nothing_is_closed_after_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert protocol.READ_SECONDS == 30
    monkeypatch.setattr(protocol, "READ_SECONDS", SOON)

    async def check(server: Server) -> None:
        deaf = await server.connect(request(path=b"/large"))
        await deaf.reader.readuntil(b"\r\n\r\n")
        while not server.server_state.__dict__["waiting"].unread:
            await asyncio.sleep(0)
        while server.server_state.connections:
            await asyncio.sleep(SOON / 10)
        with contextlib.suppress(ConnectionError):
            assert len(await deaf.reader.read()) < 1 << 23

    with_server(check)


def test_a_client_that_has_read_a_part_gets_more_time() -> None:
    async def check(server: Server) -> None:
        slow = await server.connect(request(path=b"/large"))
        await slow.reader.readuntil(b"\r\n\r\n")
        while not (unread := server.server_state.__dict__["waiting"].unread):
            await asyncio.sleep(0)
        (connection,) = unread
        buffered = connection.transport.get_write_buffer_size()
        connection._check_reader(buffered + 1)  # as if it had read one byte
        assert len(await slow.reader.readexactly(1 << 23)) == 1 << 23
        assert not unread

    with_server(check)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A service with a key and 1,024 open files."""
    limited = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", sys.executable, "-m", "app"]
    with serving(solar=limited, environ={"SOLAR_KEYS": KEY[1]}) as started:
        yield started


KEY = auth.new_key("web", "admin")


@contextlib.contextmanager
def open_files(count: int) -> Iterator[None]:
    """Raise the limit of open files of this process to a count."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < count:
        pytest.skip(f"expected a hard limit of at least {count} open files, got {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_probes_are_answered_beside_1100_silent_connections(running: Running) -> None:
    address = (urlsplit(running.url).hostname or "", urlsplit(running.url).port or 0)
    took = []
    with open_files(2048), contextlib.ExitStack() as stack:
        for at in range(1100):
            stack.enter_context(socket.create_connection(address, TIMEOUT))
            if at % 100 == 99:
                began = time.monotonic()
                with running.client() as client:
                    assert client.get("/healthz").status_code == 200
                took.append(time.monotonic() - began)
    assert max(took) < 1
    assert running.logged().count("the limit of 896 connections is reached") == 1


def test_a_key_in_a_trailer_does_not_authenticate(running: Running) -> None:
    address = (urlsplit(running.url).hostname or "", urlsplit(running.url).port or 0)
    for trailer, header, status in (("wrong", KEY[0], b"200"), (KEY[0], "wrong", b"401")):
        with socket.create_connection(address, TIMEOUT) as connection:
            head = f"GET /models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {header}\r\n"
            body = f"0\r\nAuthorization: Bearer {trailer}\r\n\r\n"
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{body}".encode())
            assert connection.recv(12)[9:] == status


def test_the_limit_of_open_files_is_raised_to_the_hard_limit() -> None:
    code = (
        "import resource; from app.runtime.protocol import *; raise_file_limit(); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], connection_limit())"
    )
    for soft, hard, limit in ((200, 1000, 872), (300, 300, 172), (100, 100, 50)):
        command = ["sh", "-c", f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$@"', "sh"]
        ran = subprocess.run(
            [*command, sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
            check=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert ran.stdout.split() == [str(hard), str(limit)]


# ---- the body ----


class Closable(asyncio.Transport):
    """A transport that only closes."""

    def close(self) -> None:
        """Do nothing."""


async def never_answered(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.Event().wait()


def test_a_body_of_one_part_is_not_copied() -> None:
    async def run() -> None:
        config = uvicorn.Config(never_answered, log_config=None, interface="asgi3")
        config.load()
        connection = LimitedProtocol(config, ServerState(), {})
        connection.connection_made(Closable())
        connection.data_received(CHUNKED)
        part, cycle = b"the bytes of the parser", connection.cycle
        for _ in range(2):
            connection.on_body(part)
            assert (await cycle.receive()).get("body") is part
        for one in (part, b"a", b"b"):
            connection.on_body(one)
        assert type(cycle.body) is bytearray  # bytes would be copied for each part
        assert (await cycle.receive()).get("body") == part + b"ab"
        connection.connection_lost(None)

    asyncio.run(run())


# ---- uvicorn ----

#: The methods of uvicorn's protocol that LimitedProtocol extends or replaces, and the start of the
#: SHA-256 of their source in uvicorn.
EXTENDED = {
    "__init__": "4f089994",
    "_should_upgrade": "8fcad1ab",
    "_start_asgi_task": "9c08c257",
    "connection_lost": "c91a4c9b",
    "connection_made": "6efb565f",
    "data_received": "010a7ae5",
    "on_body": "dba9c32a",
    "on_headers_complete": "1ea8589a",
    "on_message_complete": "1fbad42d",
    "on_response_complete": "64e254f2",
    "pause_writing": "17a8fd21",
    "resume_writing": "7844bbaa",
    "shutdown": "d7351fa3",
}


def digest(name: str) -> str:
    source = inspect.getsource(getattr(HttpToolsProtocol, name))
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def test_uvicorn_has_not_changed_what_is_extended() -> None:
    """If it has: compare both sources, adapt LimitedProtocol, then change the digest here."""
    names = vars(LimitedProtocol).keys() & vars(HttpToolsProtocol).keys() - {
        "__doc__",
        "__module__",
    }
    assert {name: digest(name) for name in names} == EXTENDED
