"""Large uploads from the socket to a file: limited in bytes and time, decompressed on the way."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from starlette.types import Receive

from app.api.errors import Problem, too_large, too_slow
from app.api.routing import Disconnected

#: Bytes to gather before a write.
CHUNK_BYTES = 1 << 20
GZIP_MAGIC, SLICE_BYTES = b"\x1f\x8b", 1 << 16


def unwritable() -> Problem:
    """Build the answer to an upload that cannot be written to disk."""
    return Problem(503, "the upload cannot be written to disk; free disk space, then retry")


async def save(receive: Receive, path: Path, most: int, seconds: float) -> int:
    """Write a body to a file, decompress gzip, and return the number of bytes written.

    Raises 413 for more than `most` bytes (decompressed), 408 for a slow body, 400 for an empty
    body or incomplete gzip data.
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
        with suppress(OSError):  # the disk may be full here too
            writer.close()
    if not writer.size:
        raise Problem(400, "body: expected judged documents, got an empty body")
    return writer.size


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the body in chunks large enough for a write in a thread."""
    gathered, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part, more = message.get("body", b""), message.get("more_body", False)
        gathered.append(part)
        size += len(part)
        if size >= CHUNK_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


class _Writer:
    """The file that a body is written to."""

    def __init__(self, path: Path, most: int) -> None:
        self._file = path.open("wb")
        self._most, self.size = most, 0
        self._begun, self._gzip = False, False
        self._unpacker = zlib.decompressobj(wbits=31)

    def write(self, part: bytes) -> None:
        """Write the next part."""
        if part and not self._begun:
            self._begun, self._gzip = True, part.startswith(GZIP_MAGIC)
        if not self._gzip:
            self._put(part)
            return
        for at in range(0, len(part), SLICE_BYTES):  # zlib copies the rest after each gzip member
            self._unpack(part[at : at + SLICE_BYTES])

    def _unpack(self, part: bytes) -> None:
        while part:
            try:
                self._put(self._unpacker.decompress(part, CHUNK_BYTES))
            except zlib.error:
                raise Problem(400, "body: expected complete gzip data") from None
            part = self._unpacker.unconsumed_tail
            if self._unpacker.eof and self._unpacker.unused_data:  # another gzip member follows
                part = self._unpacker.unused_data
                self._unpacker = zlib.decompressobj(wbits=31)

    def _put(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._most:
            raise too_large(self._most)
        self._file.write(data)

    def finish(self) -> None:
        """Finish the body; 400 if its gzip data is incomplete."""
        if self._gzip and not self._unpacker.eof:
            raise Problem(400, "body: expected complete gzip data")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
