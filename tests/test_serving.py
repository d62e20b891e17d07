"""Rankings from scores."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.ranking import serving
from tests.oracles import ranking

scores = arrays.arrays(
    np.float64,
    st.one_of(st.integers(1, 20), st.integers(500, 900)),
    elements=st.one_of(st.integers(-2, 2).map(float), st.floats(-1e6, 1e6)),
)


@given(scores)
def test_documents_are_ordered_from_the_best_score_with_stable_ties(some: Any) -> None:
    assert serving.order(some).tolist() == ranking(some.tolist())


@given(scores, st.integers(1, 700))
def test_the_top_k_are_the_first_k_of_the_order(some: Any, k: int) -> None:
    assert serving.top_k(some, k).tolist() == ranking(some.tolist())[:k]


def test_ties_keep_the_submitted_order() -> None:
    assert serving.order(np.zeros(1000)).tolist() == list(range(1000))
    assert serving.top_k(np.zeros(1000), 10).tolist() == list(range(10))


def test_negative_zero_ties_with_zero() -> None:
    assert serving.order(np.array([-0.0, 0.0, -0.0])).tolist() == [0, 1, 2]


def test_integer_scores_are_accepted() -> None:
    assert serving.order(np.array([0, 5], np.uint8)).tolist() == [1, 0]


def test_a_single_document_is_ranked_first() -> None:
    assert serving.order(np.array([3.0])).tolist() == [0]


@pytest.mark.parametrize("rank", [serving.order, lambda some: serving.top_k(some, 2)])
@pytest.mark.parametrize("size", [3, 1000])
def test_scores_that_are_not_finite_are_refused(rank: Any, size: int) -> None:
    some = np.zeros(size)
    some[2] = np.nan
    with pytest.raises(ValueError, match=r"scores\[2\]: expected a finite number, got nan"):
        rank(some)


def test_a_top_k_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="k: expected at least 1, got 0"):
        serving.top_k(np.zeros(3), 0)
