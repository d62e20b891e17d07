"""Large uploads from the socket to a file: limited in bytes, time and disk space, and unpacked."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from starlette.types import Receive

from app.api.decompression import Plain, Unpacker, unpacker
from app.api.errors import Problem, too_large, too_slow
from app.api.routing import Disconnected, Headers
from app.config import GIB, Settings

#: Bytes to gather before a write.
CHUNK_BYTES = 1 << 20
#: The default of SOLAR_FREE_BYTES: this size, or this share of a small file system.
FREE_BYTES, FREE_SHARE = GIB, 0.05
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def unwritable(error: OSError) -> Problem:
    """Build the answer to an upload that cannot be written to disk."""
    if error.errno in _FULL_DISK:
        return Problem(507, "the disk of uploads is full; free disk space, then retry")
    return Problem(503, "the upload cannot be written to disk; check SOLAR_UPLOAD_DIR, then retry")


async def check_space(directory: Path, limits: Settings, more: int) -> None:
    """Raise 507 if `more` bytes would leave less free disk space than SOLAR_FREE_BYTES."""
    with _written():
        await asyncio.to_thread(_check_space, directory, limits, more)


def _check_space(directory: Path, limits: Settings, more: int) -> None:
    disk = os.statvfs(directory)
    floor = limits.free_bytes
    if floor is None:
        floor = min(FREE_BYTES, int(FREE_SHARE * disk.f_blocks * disk.f_frsize))
    free = disk.f_bavail * disk.f_frsize
    if floor and free - more < floor:
        raise Problem(
            507,
            f"the disk of uploads: expected {floor >> 20} MiB to stay free (SOLAR_FREE_BYTES), got "
            f"{free >> 20} MiB free before {_mebibytes(more)} more; free disk space, or set "
            "SOLAR_UPLOAD_DIR to a larger disk",
        )


def _mebibytes(size: int) -> str:
    return f"{-(-size >> 20)} MiB"


def declared_bytes(headers: Headers) -> int:
    """Return the size of a body by its header; 0 if it is unknown."""
    length = headers.get(b"content-length", b"")
    return int(length[:20]) if length.isdigit() else 0


async def save(receive: Receive, path: Path, headers: Headers, limits: Settings) -> int:
    """Write a body to a file, unpack gzip and xz, and return the number of bytes written.

    Raises 413 for more than `upload_bytes` (unpacked), 507 for too little disk space, 408 for a
    slow body, 400 for an empty body or incomplete data. 413 and 507 come before the body if its
    declared size is enough to know.
    """
    declared = declared_bytes(headers)
    if declared > limits.upload_bytes:
        raise too_large(limits.upload_bytes)
    await check_space(path.parent, limits, declared)
    with _written(), closing(_Writer(path, limits)) as writer:
        try:
            async with asyncio.timeout(limits.upload_seconds):
                async for part in _parts(receive):
                    await asyncio.to_thread(writer.write, part)
        except TimeoutError:
            raise too_slow(limits.upload_seconds) from None
        await asyncio.to_thread(writer.finish)
    if not writer.size:
        raise Problem(400, "body: expected judged documents, got an empty body")
    return writer.size


async def save_blob(blob: bytes, path: Path, limits: Settings) -> None:
    """Write bytes to a file; 507 for too little disk space."""
    await check_space(path.parent, limits, len(blob))
    with _written():
        await asyncio.to_thread(path.write_bytes, blob)


@contextmanager
def _written() -> Iterator[None]:
    """Raise an error of the disk as 503 or 507."""
    try:
        yield
    except OSError as error:
        raise unwritable(error) from None


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

    def __init__(self, path: Path, limits: Settings) -> None:
        self._file = path.open("wb")
        self._directory, self._limits, self.size = path.parent, limits, 0
        self._unpacker: Unpacker | None = None

    def write(self, part: bytes) -> None:
        """Unpack and write the next part; the first one names the format."""
        if not part:
            return
        if self._unpacker is None:
            self._unpacker = unpacker(part)
        for piece in self._unpacker.unpack(part):
            self._put(piece)

    def _put(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limits.upload_bytes:
            raise too_large(self._limits.upload_bytes)
        _check_space(self._directory, self._limits, len(piece))
        self._file.write(piece)

    def finish(self) -> None:
        """Finish the body; 400 if its packed data is incomplete."""
        (self._unpacker or Plain()).finish()
        self._file.flush()

    def close(self) -> None:
        """Close the file; the disk may be full here too."""
        with suppress(OSError):
            self._file.close()
