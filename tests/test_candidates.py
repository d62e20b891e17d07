"""Documents of a query: bounds, normalisation, scores and order, against naive versions."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from app.api.decoding import MAX_FLOAT32
from app.domain import candidates
from app.domain.candidates import Exploration
from app.errors import InvalidInput
from app.ranking.serving import uniforms
from tests.oracles import ranking

Rows = NDArray[np.float32]

tables = arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12)


def rows(**limits: Any) -> st.SearchStrategy[Rows]:
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, **limits)
    return arrays.arrays(np.float32, tables, elements=numbers)


def naive_min_max(documents: Rows) -> Rows:
    """Round to float32, normalise in float64, round to float32; a constant feature is 0."""
    scaled = np.zeros_like(documents)
    for k in range(documents.shape[1]):
        column = [float(value) for value in documents[:, k]]
        low, high = min(column), max(column)
        for at, value in enumerate(column):
            scaled[at, k] = np.float32((value - low) / (high - low)) if high > low else 0.0
    return scaled


@given(rows())
def test_min_max_equals_the_naive_version(documents: Rows) -> None:
    found = candidates.as_documents(documents.astype(np.float64), "query-minmax", MAX_FLOAT32)
    assert found.dtype == np.float32
    assert np.array_equal(found, naive_min_max(documents))
    assert ((found >= 0.0) & (found <= 1.0)).all()


@given(rows())
def test_each_feature_spans_0_to_1_unless_it_is_constant(documents: Rows) -> None:
    found = candidates.min_max(documents)
    for before, after in zip(documents.T, found.T, strict=True):
        constant = before.min() == before.max()
        assert (after.min(), after.max()) == (0.0, 0.0 if constant else 1.0)


@given(rows())
def test_without_normalisation_documents_are_unchanged(documents: Rows) -> None:
    found = candidates.as_documents(documents.astype(np.float64), "none", MAX_FLOAT32)
    assert found.tobytes() == documents.tobytes()


@given(rows(min_value=-4.0, max_value=4.0), st.data())
def test_equal_documents_get_equal_scores_at_any_position(
    documents: Rows, data: st.DataObject
) -> None:
    weights = np.random.default_rng(0).standard_normal(documents.shape[1:])
    twice = np.concatenate([documents, documents])
    order = data.draw(st.permutations(range(len(twice))))
    found = candidates.scores(twice[order], weights)
    alone = [candidates.scores(row[None, :], weights)[0] for row in twice[order]]
    assert found.tolist() == alone


@pytest.mark.parametrize("n", [1, 7, 46, 701])
def test_equal_documents_get_equal_scores_in_long_rankings(n: int) -> None:
    rng = np.random.default_rng(n)
    one, weights = rng.standard_normal(n).astype(np.float32), rng.standard_normal(n)
    found = candidates.scores(np.tile(one, (1000, 1)), weights)
    assert len(set(found.tolist())) == 1
    expected = math.fsum(float(a) * float(b) for a, b in zip(one, weights, strict=True))
    assert found[0] == pytest.approx(expected, rel=0, abs=1e-11)


@given(rows(min_value=-4.0, max_value=4.0), st.integers(1, 14))
def test_the_best_come_first_and_ties_keep_the_submitted_order(documents: Rows, top_k: int) -> None:
    weights = np.ones(documents.shape[1])
    found = candidates.rank_candidates(np.round(documents), weights, top_k)
    assert found.shown.tolist() == ranking(found.scores.tolist())[:top_k]
    assert found.odds is None
    assert candidates.rank_candidates(np.round(documents), weights, None).shown.tolist() == ranking(
        found.scores.tolist()
    )


def sampling(name: str) -> Exploration:
    return Exploration("sampled", partial(uniforms, name))


def swapping(name: str) -> Exploration:
    return Exploration("swapped", partial(uniforms, name))


@pytest.mark.parametrize("scale", [0.0, 7.0])
def test_exploration_of_equal_scores_draws_any_order(scale: float) -> None:
    explore = sampling("any")._replace(scale=scale)
    found = candidates.rank_candidates(np.ones((5, 2), np.float32), np.ones(2), 4, explore)
    assert found.shown.tolist() == np.argsort(-uniforms("any", 5))[:4].tolist()
    assert found.explored
    assert found.odds is not None
    assert found.odds.tolist() == [1.0, 1.0, 1.0, 1.0, 1.0]


def test_exploration_puts_the_better_document_first_more_often_but_not_always() -> None:
    scores = np.array([0.0, 0.9, 1.0])
    documents = scores[:, None].astype(np.float32)
    drawn = [
        candidates.rank_candidates(documents, np.ones(1), None, sampling(str(at)))
        for at in range(1000)
    ]
    assert all(one.explored for one in drawn)
    first = [one.shown[0] for one in drawn]
    odds = np.exp(3.0 * scores / scores.std())
    assert np.bincount(first, minlength=3) / 1000 == pytest.approx(odds / odds.sum(), abs=0.05)


@pytest.mark.parametrize("bad", [1.0000001, -1.0000001, math.inf, -math.inf, math.nan, 1e300])
def test_a_feature_beyond_the_bound_is_refused_with_its_position(bad: float) -> None:
    features = np.ones((3, 2))
    features[1, 1] = bad
    with pytest.raises(
        ValueError, match=r"^documents\[1\].features\[1\]: expected a value within ±1"
    ):
        candidates.as_documents(features, "none", 1.0)


@given(rows(min_value=-1.0, max_value=1.0))
def test_features_up_to_the_bound_are_accepted(documents: Rows) -> None:
    assert candidates.features_within(documents.astype(np.float64), 1.0)
    assert candidates.features_within(np.array([[1.0, -1.0]]), 1.0)


def test_named_features_follow_the_models_order_and_absent_ones_are_0() -> None:
    index = {"bm25": 0, "price": 1, "age": 2}
    found = candidates.by_name([{"age": 3.0, "bm25": 1.0}, {}, {"price": 2.0}], index)
    assert found.tolist() == [[1.0, 0.0, 3.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    unknown = r'documents\[1\].features: unknown feature "weight"; expected bm25, price, age$'
    with pytest.raises(InvalidInput, match=unknown):
        candidates.by_name([{"age": 3.0}, {"weight": 1.0}], index)
    misspelt = r'documents\[0\].features: unknown feature "prise"; did you mean "price"\?$'
    with pytest.raises(InvalidInput, match=misspelt):
        candidates.by_name([{"prise": 3.0}], index)


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_deviations_are_the_root_of_the_quadratic_form(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = rng.standard_normal((4, n)).astype(np.float32)
    root = rng.standard_normal((n, n))
    sigma = root @ root.T
    expected = [math.sqrt(phi @ sigma @ phi) for phi in documents.astype(np.float64)]
    triangle = np.array([sigma[i, j] for i in range(n) for j in range(i + 1)])
    assert candidates.deviations(documents, triangle) == pytest.approx(expected, abs=1e-9)
    diagonal = np.diag(sigma).copy()
    expected = [math.sqrt((diagonal * phi * phi).sum()) for phi in documents.astype(np.float64)]
    assert candidates.deviations(documents, diagonal) == pytest.approx(expected, abs=1e-9)


def test_contributions_leave_out_zeros() -> None:
    document = np.array([2.0, 0.0, 3.0], np.float32)
    found = candidates.contributions(document, np.array([0.5, 1.0, 0.0]), ["a", "b", "c"])
    assert found == {"a": 1.0}


@pytest.mark.parametrize("shape", [(1, 70_000), (2, 70_000), (7, 70_000), (900, 131), (70_000, 1)])
def test_scores_and_scales_computed_in_parts_have_the_same_bits(shape: tuple[int, int]) -> None:
    """A row of this width alone gets other bits from einsum than beside another row."""
    rng = np.random.default_rng(5)
    documents = rng.standard_normal(shape).astype(np.float32)
    weights = rng.standard_normal(shape[1])
    whole = np.einsum("ij,j->i", documents.astype(np.float64), weights)
    assert np.array_equal(candidates.scores(documents, weights), whole)
    exact = documents.astype(np.float64)
    span = exact.max(axis=0) - exact.min(axis=0)
    scaled = (exact - exact.min(axis=0)) / np.where(span > 0.0, span, 1.0)
    assert np.array_equal(candidates.min_max(documents), scaled.astype(np.float32))


@given(rows())
def test_the_order_is_the_last_feature(documents: Rows) -> None:
    count = len(documents)
    places = np.array([[1.0 - at / max(1, count - 1)] for at in range(count)], np.float32)
    expected = np.concatenate([documents, places], axis=1)
    for _ in range(2):  # the second time the values of `_order` are kept ones
        assert candidates.with_order(documents).tobytes() == expected.tobytes()


def test_the_kept_values_of_the_order_are_bounded_and_cannot_be_changed() -> None:
    for count in range(1, 2 * candidates.ORDER_COLUMNS):
        candidates.order_column(count)
    assert candidates.order_column.cache_info().currsize == candidates.ORDER_COLUMNS
    with pytest.raises(ValueError, match="read-only"):
        candidates.order_column(3)[0] = 7.0
