"""The memory that is held for a body before it is decoded bounds what decoding takes.

No service runs beside these tests: tracemalloc counts the allocations of all threads.
"""

import tracemalloc
from typing import Any

import msgspec
import pytest

from app.api import schemas
from app.api.memory import hold_binary, hold_decoded
from app.api.schemas import object_decoder
from app.storage.batching import Held, MemoryBudget

SIZE = 2_000_000


def repeated(start: bytes, part: bytes, end: bytes) -> bytes:
    return start + (part * (SIZE // len(part)))[:-1] + end


def named(start: bytes, count: int, end: bytes) -> bytes:
    return start + b",".join(b'"%x":0' % at for at in range(count)) + end


DOCUMENT = b'{"documents":[{"id":"a","features":{'
LABELS = b'{"type":"labels","event_id":"a","labels":{'
#: A dict of one key more than two thirds of a power of two has just grown: the worst case.
GROWN = [2**k * 2 // 3 + 1 for k in (13, 16, 18, 19)]
CLICKS = b'{"type":"clicks","event_id":"a","request_id":"b","clicked":['
JSON_BODIES = {
    "numbers": (schemas.decode_rank, repeated(b'{"features":[[', b"0,", b"]]}"), 36),
    "empty rows": (schemas.decode_rank, repeated(b'{"features":[', b"[],", b"]}"), 36),
    "short rows": (schemas.decode_rank, repeated(b'{"features":[', b"[0],", b"]}"), 36),
    "ids": (schemas.decode_rank, repeated(b'{"ids":[', b'"a",', b"]}"), 36),
    "emoji": (schemas.decode_rank, repeated(b'{"ids":[', '"😀",'.encode(), b"]}"), 36),
    "long text": (schemas.decode_rank, b'{"ids":["' + "😀".encode() + b"a" * SIZE + b'"]}', 36),
    "documents": (
        schemas.decode_rank,
        repeated(b'{"documents":[', b'{"id":"a","features":{"":0}},', b"]}"),
        36,
    ),
    "clicks": (schemas.decode_event, repeated(CLICKS, b'"a",', b"]}"), 72),
    "triplets": (
        schemas.decode_event,
        repeated(b'{"type":"triplets","event_id":"a","triplets":[', b'["a","b"],', b"]}"),
        72,
    ),
    "events": (schemas.decode_batch, repeated(b'{"events":[', b"0,", b"]}"), 72),
    "names of features": (
        object_decoder(["features"]),
        repeated(b'{"features":[', b'"a",', b"]}"),
        36,
    ),
    **{
        f"{count} names": (schemas.decode_rank, named(DOCUMENT, count, b"}}]}"), 36)
        for count in GROWN
    },
    **{
        f"{count} labels": (schemas.decode_event, named(LABELS, count, b"}}"), 72)
        for count in GROWN
    },
}


@pytest.mark.parametrize("case", JSON_BODIES)
def test_the_memory_of_a_decoded_body_is_at_most_what_was_held_for_it(case: str) -> None:
    decode, body, element_bytes = JSON_BODIES[case]
    request = Held(MemoryBudget(1 << 40))
    hold_decoded(body, request, element_bytes)
    assert decoded_bytes(decode, body) <= request.size


def test_an_escape_that_widens_a_long_text_is_held_for() -> None:
    body = b'{"ids":["\\ud83d\\ude00' + b"a" * SIZE + b'"]}'
    request = Held(MemoryBudget(1 << 40))
    hold_decoded(body, request)
    tracemalloc.start()
    try:
        decoded = schemas.decode_rank(body)
        assert decoded is not None
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 4 * SIZE <= kept <= request.size


def test_the_memory_of_a_decoded_msgpack_body_is_at_most_what_was_held_for_it() -> None:
    ids = b"\xdd" + (SIZE // 2).to_bytes(4, "big") + b"\xa1a" * (SIZE // 2)
    request = Held(MemoryBudget(1 << 40))
    body = b"\x82\xa3ids" + ids + b"\xa8features\xc4\x00"
    hold_binary(body, request)
    assert decoded_bytes(schemas.decode_binary_rank, body) <= request.size
    rows = Held(MemoryBudget(1 << 40))
    hold_binary(msgspec.msgpack.encode({"ids": ["a"], "features": bytes(SIZE)}), rows)
    assert SIZE <= rows.size <= SIZE + 1000


def decoded_bytes(decode: Any, body: bytes) -> int:
    tracemalloc.start()
    try:
        decoded = decode(body)
        assert decoded is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
