"""Rankings from scores."""

from functools import partial
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.domain import candidates
from app.domain.candidates import Exploration
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


# ---- samples: the bits of plain code that checks every number at every step ----


def naive_sharpened(scores: Any, scale: float, exploration: float) -> Any:
    assert np.isfinite(scores).all()
    if scores.min() == scores.max():
        return np.zeros(len(scores))
    with np.errstate(over="ignore", invalid="ignore"):
        if scale:
            scaled = scores * scale
            return scaled if np.isfinite(scaled).all() else np.zeros(len(scores))
        centred = scores - scores.sum() / len(scores)
        spread = sqrt(centred @ centred / len(scores))
    if not 0.0 < spread < inf:
        return np.zeros(len(scores))
    return scores * (min(8.0, float(len(scores))) / exploration / spread)


def naive_odds(sharp: Any, shown: Any) -> Any:
    e = np.exp(sharp - sharp.max())
    hidden = np.array([at not in set(shown.tolist()) for at in range(len(e))])
    return np.append(e[shown], e[hidden].sum())


@given(
    scores,
    st.sampled_from([0.0, 1e-3, 1.0, 12.0, 1e305]),
    st.sampled_from([0.5, 1.0]),
    st.integers(1, 700),
)
def test_a_sample_and_its_odds_have_the_bits_of_the_plain_version(
    some: Any, scale: float, amount: float, length: int
) -> None:
    documents = np.round(some).astype(np.float32)[:, None]
    explore = Exploration("sampled", partial(serving.uniforms, "any"), scale, amount)
    found = candidates.rank_candidates(documents, np.ones(1), length, explore)
    sharp = naive_sharpened(documents[:, 0].astype(np.float64), scale, amount)
    noisy = sharp - np.log(-np.log(serving.uniforms("any", len(some))))
    assert found.shown.tolist() == ranking(noisy.tolist())[:length]
    assert found.odds is not None
    assert found.odds.tobytes() == naive_odds(sharp, found.shown).tobytes()


@given(scores, st.floats(0.0, 1e308), st.floats(0.01, 10.0))
def test_sharpened_scores_have_the_bits_of_the_plain_version(
    some: Any, scale: float, amount: float
) -> None:
    expected = naive_sharpened(some, scale, amount)
    with np.errstate(over="ignore", invalid="ignore"):
        assert serving.sharpened(some, scale, amount).tobytes() == expected.tobytes()


@pytest.mark.parametrize("scale", [0.0, 3.0])
@pytest.mark.parametrize("bad", [np.nan, inf, -inf])
def test_a_sample_of_scores_that_are_not_finite_is_refused(scale: float, bad: float) -> None:
    with pytest.raises(ValueError, match=rf"scores\[1\]: expected a finite number, got {bad}"):
        serving.sharpened(np.array([1.0, bad, 2.0]), scale)


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_a_sample_that_overflows_is_refused() -> None:
    """Without a scale, by the smallest exploration that a model may have."""
    explore = Exploration("sampled", partial(serving.uniforms, "any"), amount=1e-308)
    documents = np.array([[0.0], [1.0]], np.float32)
    with pytest.raises(ValueError, match=r"scores\[\d\]: expected a finite number"):
        candidates.rank_candidates(documents, np.ones(1), 2, explore)
