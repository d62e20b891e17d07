"""uvicorn's HTTP protocol with limits on headers, waiting clients and connections.

`solar serve` and `solar learn` use it; plain uvicorn does with
`--http app.runtime.protocol:LimitedProtocol`.
"""

import asyncio
import logging
import resource
from contextlib import suppress
from functools import cache
from itertools import chain
from time import monotonic
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from app.api.errors import PROBLEM_MEDIA_TYPE, Problem
from app.api.event_stream import END_STREAM

log = logging.getLogger("solar.http")

#: Bytes of a request line with its headers; also of trailers, and of chunk sizes without data.
HEADER_BYTES = 32_768
#: Seconds for complete headers, and for the rest of a body after its answer.
HEADER_SECONDS = 10.0
#: Seconds in which a client must read a part of its answer, which holds memory meanwhile.
READ_SECONDS = 30.0
#: Requests of a connection that wait for the answer to an earlier one.
PIPELINED = 128
#: Chunks of a body with fewer bytes than this, and how many may come: each takes a microsecond.
TINY_BYTES, TINY_CHUNKS = 16, 131_072
#: File descriptors for everything but connections: store, log, files, libraries.
RESERVED_FILES = 128
MAX_FILES = 65_536
#: Seconds between two log lines about the connection limit.
WARNING_SECONDS = 60.0

#: Statuses and details of refusals.
TOO_LARGE = (431, f"headers: expected at most {HEADER_BYTES} bytes")
TOO_SLOW = (408, f"headers: expected complete headers within {HEADER_SECONDS:g} s")
TOO_MANY = (503, "the limit of connections is reached; retry after 1 second")
TOO_DEEP = (400, f"pipelining: expected at most {PIPELINED} requests without an answer")
UPGRADE = (400, "upgrade: expected a body without an Upgrade header, as with curl --http1.1")
TOO_TINY = (400, f"body: expected at most {TINY_CHUNKS} chunks of less than {TINY_BYTES} bytes")
INVALID = (400, "request: expected valid HTTP/1.1")


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit, at most to MAX_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a lower limit than the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@cache
def connection_limit() -> int:
    """Return the most connections of this process: its open files without the reserved ones."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_FILES if soft == resource.RLIM_INFINITY else soft
    return max(files - RESERVED_FILES, files // 2)


class Waiting:
    """The connections of a server that wait for their client, the longest wait first.

    At the connection limit the first one of the first non-empty group is closed.
    """

    def __init__(self) -> None:
        self.silent: dict[LimitedProtocol, None] = {}  # no complete headers, or a late body
        self.idle: dict[LimitedProtocol, None] = {}  # between two requests
        self.unread: dict[LimitedProtocol, None] = {}  # the client does not read its answer
        self.warned = -WARNING_SECONDS

    def longest(self) -> "LimitedProtocol | None":
        """Return the connection to close first; None if none waits for its client."""
        return next(chain(self.silent, self.idle, self.unread), None)

    def discard(self, connection: "LimitedProtocol") -> None:
        """Remove a connection."""
        for group in (self.silent, self.idle, self.unread):
            group.pop(connection, None)


class LimitedProtocol(HttpToolsProtocol):
    """A connection with limits; what it refuses gets application/problem+json and is closed."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._waiting: Waiting = vars(server_state).setdefault("waiting", Waiting())
        self._deadline: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._received = 0  # bytes since the last complete headers, body part or message
        self._tiny = 0  # chunks of the body with few bytes
        self._in_body = False  # after complete headers, before the end of the message
        self._refused = False  # later bytes are ignored

    # ---- the transport ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit; at the connection limit close the longest waiting connection."""
        super().connection_made(transport)
        if len(self.connections) > connection_limit():
            self._make_room()
        if not self._refused:
            self._await_bytes()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request in progress, which is not the last one of a pipeline."""
        self._stop_waiting()
        if self._reading is not None:
            self._reading.cancel()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; refuse invalid and large headers."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._waiting.idle.pop(self, None)
        self._received += len(data)
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:  # not supported, so a plain request
                data = data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                cause = error.__context__
                self._refuse(cause if isinstance(cause, Problem) else Problem(*INVALID))
                return
            else:
                break
        if self._received > HEADER_BYTES:
            self._refuse(Problem(*TOO_LARGE))
        elif self.cycle is None or self.cycle.response_complete:
            self._await_client()

    def pause_writing(self) -> None:
        """Note that the client does not read its answer."""
        super().pause_writing()
        self._waiting.unread[self] = None
        self._await_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._waiting.unread.pop(self, None)
        if self._reading is not None:
            self._reading.cancel()

    def shutdown(self) -> None:
        """Close after the answer in progress; a stream of events, which has no end, ends now."""
        super().shutdown()
        scope: Any = {} if self._running is None else self._running.scope
        if end := scope.setdefault(END_STREAM, None):
            end()
            if self in self._waiting.unread:  # the rest would wait for the client
                self.abandon()

    # ---- the parser: base methods by name, because super() takes 0.1 µs ----

    def _should_upgrade(self) -> bool:
        return False

    def on_headers_complete(self) -> None:
        """Start the request, unless its headers are too large or too many requests wait."""
        if self._received > HEADER_BYTES:  # maybe with a part of the body
            size = len(self.url) + 4 * len(self.headers)
            for name, value in self.headers:
                size += len(name) + len(value)
            if size > HEADER_BYTES:
                raise Problem(*TOO_LARGE)
        if len(self.pipeline) >= PIPELINED:
            raise Problem(*TOO_DEEP)
        if self.parser.should_upgrade() and self._has_body():
            raise Problem(*UPGRADE)
        HttpToolsProtocol.on_headers_complete(self)
        self._received, self._in_body = 0, True
        self.headers = []  # of trailers, which are ignored; the request keeps its own list
        if self._deadline is not None:
            self._stop_waiting()

    def _has_body(self) -> bool:
        sent = dict(self.headers)
        return b"transfer-encoding" in sent or sent.get(b"content-length", b"0") != b"0"

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        HttpToolsProtocol._start_asgi_task(self, cycle, app)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body, and refuse a body of tiny chunks."""
        self._received = 0
        if len(body) < TINY_BYTES:
            self._tiny += 1
            if self._tiny > TINY_CHUNKS:
                raise Problem(*TOO_TINY)
        cycle: Any = self.cycle
        if not cycle.body:
            cycle.body = b""  # adding to it copies nothing; uvicorn would copy the body twice
        elif type(cycle.body) is bytes:
            cycle.body = bytearray(cycle.body)
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._received, self._in_body, self._tiny = 0, False, 0
        if self._deadline is not None:
            self._stop_waiting()
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        """Continue with the next request, or wait for it."""
        HttpToolsProtocol.on_response_complete(self)
        if self.timeout_keep_alive_task is not None:  # open, and no request waits
            self._await_client()

    # ---- waiting and refusing ----

    def _await_client(self) -> None:
        """Wait for the rest of a request, or for the next one."""
        if self._received or self._in_body:
            if self._deadline is None:
                self._await_bytes()
            return
        self._waiting.idle[self] = None
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _await_bytes(self) -> None:
        self._waiting.silent[self] = None
        self._deadline = self.loop.call_later(
            HEADER_SECONDS, lambda: self._refuse(Problem(*TOO_SLOW))
        )

    def _await_reader(self, unread: int) -> None:
        self._reading = self.loop.call_later(READ_SECONDS, self._check_reader, unread)

    def _check_reader(self, before: int) -> None:
        """Close the connection of a client that has read nothing."""
        unread = self.transport.get_write_buffer_size()
        if unread < before:
            self._await_reader(unread)
        else:
            self.abandon()

    def _stop_waiting(self) -> None:
        self._waiting.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_room(self) -> None:
        waiting, longest = self._waiting, self._waiting.longest()
        if monotonic() - waiting.warned >= WARNING_SECONDS:
            waiting.warned = monotonic()
            log.warning(
                "the limit of %d connections is reached; connections that wait for their client "
                "are closed, the longest wait first; raise the limit of open files (ulimit -n)",
                connection_limit(),
            )
        if longest is None:
            self._refuse(Problem(*TOO_MANY))
        else:
            longest.abandon()

    def abandon(self) -> None:
        """Close the connection at once."""
        self._refused = True
        self._stop_waiting()
        self.transport.abort()

    def _refuse(self, problem: Problem) -> None:
        """Answer a problem and close the connection, after the answers to earlier requests."""
        self._refused = True
        self._stop_waiting()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self.pipeline or cycle.response_started or not self._in_body:
                cycle.keep_alive = False  # the last one, so uvicorn closes the connection after it
                return
        elif self._in_body:  # the request has its answer
            self.transport.close()
            return
        body = problem.body({})
        headers = [
            *self.server_state.default_headers,
            (b"content-type", PROBLEM_MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *((name.encode(), value.encode()) for name, value in problem.headers.items()),
        ]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", body]))
        self.transport.close()
