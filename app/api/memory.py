"""The memory of a request: held in the worker's budget before it is used."""

from contextlib import suppress

import msgspec

from app.api import schemas
from app.api.errors import Problem
from app.config import Settings
from app.storage.batching import SMALL, Held

#: Bytes that a feature value takes while a request is answered: two rows of float32, one encoded.
ROW_BYTES = 12
#: Up to this number of feature values, the memory of a request is not counted.
SMALL_ROWS = SMALL // ROW_BYTES
#: The share of the memory budget that the decoded values of one body may take.
DECODED_SHARE = 0.5
#: Bytes of a JSON body that do not begin or separate values.
_UNCOUNTED = bytes(set(range(256)) - set(b',"[{'))


def hold_decoded(
    body: bytes,
    held: Held,
    element_bytes: int = 36,
    uncounted: int = 0,
    share: float = DECODED_SHARE,
) -> None:
    """Hold the memory of a JSON body before it is decoded; 413 above the limit.

    Its punctuation bounds the number of values. The factors are measured. Up to `uncounted` bytes
    the length alone bounds it: counting takes 8 % of the time of a request. `share` is the part of
    the budget that one body may take.
    """
    if len(body) <= uncounted:
        held.add(30 * len(body))
        return
    marks = body.translate(None, _UNCOUNTED)
    commas, quotes = marks.count(b","), marks.count(b'"')
    size = element_bytes * commas + 56 * quotes + 96 * (len(marks) - commas - quotes)
    plain = body.isascii() and b"\\u" not in body  # else one character can widen all of a text
    hold_values(size if plain else size + 5 * len(body), held, share)


def hold_binary(body: bytes, held: Held) -> None:
    """Hold the memory of a msgpack body before it is decoded; 413 above the limit.

    All but its rows may be short strings, which take up to 30 times as much memory.
    """
    rows = 0
    with suppress(msgspec.DecodeError, RecursionError):  # the complete decoder names the error
        rows = len(schemas.decode_binary_rows(body).features)
    hold_values(rows + 30 * (len(body) - rows), held)


def hold_values(size: int, held: Held, share: float = DECODED_SHARE) -> None:
    """Hold the memory of decoded values; 413 above a share of the budget."""
    most = int(held.budget.limit * share)
    if size > most:
        raise Problem(
            413,
            f"body: its values take up to {size} bytes of memory, the limit is {most} "
            f"(SOLAR_INFLIGHT_BYTES times {share:g}); send less at once",
        )
    held.add(size)


async def hold_rows(numbers: int, limits: Settings, held: Held) -> None:
    """Hold the memory of rows before they are built; 413 above the limit."""
    if numbers > limits.numbers:
        raise Problem(
            413,
            f"documents: expected at most {limits.numbers} feature values (SOLAR_NUMBERS), "
            f"documents times features, got {numbers}; send fewer documents",
        )
    held.add(ROW_BYTES * numbers)
    await held.budget.turn(ROW_BYTES * numbers)
