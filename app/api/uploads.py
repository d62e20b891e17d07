"""A large body, from the socket to a file: bounded in bytes and time, unpacked on the way."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from starlette.types import Receive

from app.api.errors import Problem, too_large, too_slow
from app.api.routing import Disconnected

#: Bytes that are gathered before they are written.
ENOUGH = 1 << 20
GZIP, SLICE = b"\x1f\x8b", 1 << 16


def unwritable() -> Problem:
    """The answer to an upload that this machine cannot keep."""
    return Problem(503, "the upload cannot be written to disk here; try again")


async def save(receive: Receive, path: Path, most: int, seconds: float) -> int:
    """Write a body to a file, plain or from gzip; how many bytes that are.

    413 if it is (or unpacks to) more than `most` bytes, 408 if it takes too long, 400 if it is
    empty or its gzip is not whole.
    """
    writer = _Writer(path, most)
    try:
        async with asyncio.timeout(seconds):
            async for part in _parts(receive):
                await asyncio.to_thread(writer.write, part)
        await asyncio.to_thread(writer.finish)
    except TimeoutError:
        raise too_slow(seconds) from None
    except OSError:
        raise unwritable() from None
    finally:
        with suppress(OSError):  # a full disk, once more
            writer.close()
    if not writer.size:
        raise Problem(400, "body: expected judged documents, got nothing")
    return writer.size


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    """The body in parts that are worth a thread's while."""
    gathered, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part, more = message.get("body", b""), message.get("more_body", False)
        gathered.append(part)
        size += len(part)
        if size >= ENOUGH:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


class _Writer:
    """A file that a body goes to."""

    def __init__(self, path: Path, most: int) -> None:
        self._file = path.open("wb")
        self._most, self.size = most, 0
        self._begun, self._gzip = False, False
        self._unpacker = zlib.decompressobj(wbits=31)

    def write(self, part: bytes) -> None:
        """The next part."""
        if part and not self._begun:
            self._begun, self._gzip = True, part.startswith(GZIP)
        if not self._gzip:
            self._put(part)
            return
        for at in range(0, len(part), SLICE):  # what is left of it is copied at every member's end
            self._unpack(part[at : at + SLICE])

    def _unpack(self, part: bytes) -> None:
        while part:
            try:
                self._put(self._unpacker.decompress(part, ENOUGH))
            except zlib.error:
                raise Problem(400, "body: expected whole gzip data") from None
            part = self._unpacker.unconsumed_tail
            if self._unpacker.eof and self._unpacker.unused_data:  # one more member follows
                part = self._unpacker.unused_data
                self._unpacker = zlib.decompressobj(wbits=31)

    def _put(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._most:
            raise too_large(self._most)
        self._file.write(data)

    def finish(self) -> None:
        """The body has ended."""
        if self._gzip and not self._unpacker.eof:
            raise Problem(400, "body: expected whole gzip data")
        self._file.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
