"""Rows from lists of numbers in a body: equal to packing each row by itself."""

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.api import decoding, schemas
from app.domain import candidates
from app.domain.model_config import new_model_config
from app.errors import InvalidInput

WIDTHS = st.one_of(st.integers(1, 20), st.sampled_from([15, 16, 46, 65_535, 65_536]))
BOUND = decoding.MAX_FLOAT32
VALUES = st.floats(-BOUND, BOUND) | st.integers(-(2**63), 2**64 - 1)


def naive_rows(features: list[list[float]], n: int) -> bytes:
    packed = b"".join(struct.pack(f"<{n}d", *row) for row in features)
    return np.frombuffer(packed).reshape(len(features), n).astype(np.float32).tobytes()


def decoded(features: Any) -> Any:
    ids = [str(at) for at in range(len(features))]
    return schemas.decode_rank(msgspec.json.encode({"ids": ids, "features": features})).features


@given(WIDTHS, st.integers(1, 20), st.data())
def test_rows_have_the_bits_of_rows_packed_one_by_one(n: int, count: int, data: Any) -> None:
    drawn = data.draw(st.lists(VALUES, min_size=1, max_size=8))
    given_rows = [[drawn[(at + k) % len(drawn)] for k in range(n)] for at in range(count)]
    features = decoded(given_rows)
    assert decoding._listed_rows(features, n, BOUND).tobytes() == naive_rows(features, n)


@pytest.mark.parametrize("count", [15, 16, 1_500])
def test_rows_that_are_converted_in_parts_have_the_same_bits(count: int) -> None:
    features = np.random.default_rng(0).random((count, 100)).tolist()
    assert (count > candidates.BLOCK // 100) == (count == 1_500)
    assert decoding._listed_rows(features, 100, BOUND).tobytes() == naive_rows(features, 100)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=20), st.sampled_from([1, 2, 15, 16, 17]))
@example([1, 3], 2)  # as many numbers as two rows have
@example([16, 14], 15)  # with headers of other sizes
def test_the_first_row_of_another_width_is_named(widths: list[int], n: int) -> None:
    features = [[1.0] * width for width in widths]
    wrong = [at for at, width in enumerate(widths) if width != n]
    if not wrong:
        assert len(decoding._listed_rows(features, n, BOUND)) == len(widths)
        return
    expected = rf"^documents\[{wrong[0]}\].features: expected {n} values, got {widths[wrong[0]]}$"
    with pytest.raises(InvalidInput, match=expected):
        decoding._listed_rows(features, n, BOUND)


def test_a_row_of_another_width_in_a_later_part_is_named() -> None:
    features = [[1.0] * 46 for _ in range(3_000)]
    features[2_999] = [1.0]
    with pytest.raises(
        InvalidInput, match=r"^documents\[2999\].features: expected 46 values, got 1"
    ):
        decoding._listed_rows(features, 46, BOUND)


def test_every_decoder_converts_integers_to_floats() -> None:
    """An integer of 9 bytes would be read as a float."""
    whole = [[2**40, -(2**40), 1]]
    document = {"id": "a", "features": whole[0]}
    objects = schemas.decode_rank(msgspec.json.encode({"documents": [document]}))
    judged = [{"documents": [{**document, "label": 1}]}]
    found = [
        decoded(whole)[0],
        objects.documents[0].features,  # type: ignore[index]
        schemas.decode_judged(msgspec.json.encode(judged))[0].documents[0].features,
    ]
    assert [[type(one) for one in row] for row in found] == [[float] * 3] * 3
    rows = decoding.feature_rows(found, new_model_config(("a", "b", "c")), BOUND)
    assert rows.tolist() == [[2.0**40, -(2.0**40), 1.0]] * 3
