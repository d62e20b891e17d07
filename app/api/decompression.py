"""Uploads as plain text, gzip or xz, recognised by their first bytes and unpacked in pieces."""

import lzma
import zlib
from collections.abc import Iterator
from typing import Protocol

from app.api.errors import Problem

GZIP_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"
#: Bytes of one unpacked piece.
PIECE_BYTES = 1 << 20
#: Bytes that are unpacked at once: the rest is copied after each gzip member or xz stream.
SLICE_BYTES = 1 << 16
#: Memory limit of the xz decoder in bytes; `xz -8` needs 33 MiB, `xz -9` 65 MiB.
XZ_MEMORY = 64 << 20


class Unpacker(Protocol):
    """Unpacks one format."""

    def unpack(self, part: bytes) -> Iterator[bytes]:
        """Yield the pieces of the next part."""

    def finish(self) -> None:
        """Raise 400 if the data is incomplete."""


def unpacker(start: bytes) -> Unpacker:
    """Choose the format by the first bytes of a body."""
    if start.startswith(GZIP_MAGIC):
        return Gzip()
    return Xz() if start.startswith(XZ_MAGIC) else Plain()


class Plain:
    """Data as it is."""

    def unpack(self, part: bytes) -> Iterator[bytes]:
        """Yield the part."""
        yield part

    def finish(self) -> None:
        """Do nothing: any data is complete."""


class Gzip:
    """Gzip data of one or more members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def unpack(self, part: bytes) -> Iterator[bytes]:
        """Yield the pieces of the next part."""
        for at in range(0, len(part), SLICE_BYTES):
            yield from self._slice(part[at : at + SLICE_BYTES])

    def _slice(self, part: bytes) -> Iterator[bytes]:
        while part:
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
            try:
                yield self._member.decompress(part, PIECE_BYTES)
            except zlib.error:
                raise _incomplete("gzip") from None
            part = self._member.unconsumed_tail or self._member.unused_data

    def finish(self) -> None:
        """Raise 400 if the last member is incomplete."""
        if not self._member.eof:
            raise _incomplete("gzip")


class Xz:
    """Xz data of one or more streams, with padding between them."""

    def __init__(self) -> None:
        self._stream = _xz_stream()

    def unpack(self, part: bytes) -> Iterator[bytes]:
        """Yield the pieces of the next part."""
        for at in range(0, len(part), SLICE_BYTES):
            yield from self._slice(part[at : at + SLICE_BYTES])

    def _slice(self, part: bytes) -> Iterator[bytes]:
        while part or not (self._stream.eof or self._stream.needs_input):
            if self._stream.eof:
                part = part.lstrip(b"\0")  # padding
                if not part:
                    return
                self._stream = _xz_stream()
            try:
                yield self._stream.decompress(part, PIECE_BYTES)
            except lzma.LZMAError as error:
                raise _refused_xz(error) from None
            part = self._stream.unused_data

    def finish(self) -> None:
        """Raise 400 if the last stream is incomplete."""
        if not self._stream.eof:
            raise _incomplete("xz")


def _xz_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)


def _refused_xz(error: lzma.LZMAError) -> Problem:
    if "Memory usage limit" in str(error):
        return Problem(
            413,
            f"body: expected xz data that needs at most {XZ_MEMORY >> 20} MiB of memory to unpack; "
            "compress it with xz -8 or a lower level, or with gzip",
        )
    return _incomplete("xz")


def _incomplete(kind: str) -> Problem:
    return Problem(400, f"body: expected complete {kind} data")
