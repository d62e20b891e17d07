"""A TCP proxy in front of the server: it cuts, delays, holds or delivers data late."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from hashlib import sha1
from pathlib import Path
from types import TracebackType
from typing import Self

from app.storage.calls import SCRIPTS

OnRequest = Callable[[bytes], Awaitable[None]]
OnAnswer = Callable[[bytes, bytes], Awaitable[None]]


def call(script: str) -> bytes:
    """Return the digest that identifies a call of a script."""
    source = (Path(SCRIPTS) / f"{script}.lua").read_bytes()
    return sha1(source).hexdigest().encode()  # noqa: S324 - Redis names scripts so


class Cut(Exception):
    """Raised by a hook to close the connection."""


class Late(Exception):
    """Raised by a request hook to disconnect the client and keep the request for later."""


async def let_pass(*_: bytes) -> None:
    """Cause no fault."""


class Proxy:
    """A proxy between clients and the server; the hooks `on_request` and `on_answer` see all data.

    An answer hook gets the request and its answer: the server has executed the request, and the
    client does not know yet.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.on_request: OnRequest = let_pass
        self.on_answer: OnAnswer = let_pass
        self.cuts = 0
        self.late: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for _ in range(10):  # a connection that is accepted now starts some iterations later
            await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # let aborted connections end

    async def deliver_late(self) -> list[bytes]:
        """Send the kept requests on separate connections; return the answers."""
        answers = []
        for request in self.late:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
            writer.write(request)
            answers.append(await asyncio.wait_for(reader.read(65536), 10))
            writer.close()
            await writer.wait_closed()
        self.late.clear()
        return answers

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                upstream = await asyncio.open_unix_connection(str(self._socket))
                await _Link(self, (reader, writer), upstream).run()
        finally:
            writer.transport.abort()


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """The connection of one client."""

    def __init__(self, proxy: Proxy, client: Stream, server: Stream) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._request = b""
        self._answered = False

    async def run(self) -> None:
        directions = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in directions:
                task.cancel()
            for _, writer in (self._client, self._server):
                writer.transport.abort()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _requests(self) -> None:
        while data := await self._client[0].read(1 << 20):
            if self._answered:
                self._request, self._answered = b"", False
            self._request += data
            try:
                await self._proxy.on_request(self._request)
            except Cut:
                self._proxy.cuts += 1
                return
            except Late:
                self._proxy.late.append(self._request)
                return
            self._server[1].write(data)
            await self._server[1].drain()

    async def _answers(self) -> None:
        while data := await self._server[0].read(1 << 20):
            self._answered = True
            try:
                await self._proxy.on_answer(self._request, data)
            except Cut:
                self._proxy.cuts += 1
                return
            self._client[1].write(data)
            await self._client[1].drain()
