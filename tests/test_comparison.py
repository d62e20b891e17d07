"""Two documents of a ranking: contributions, deviation, and the chance of an exchange."""

from dataclasses import replace
from functools import partial
from math import fsum, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.domain import candidates, comparison
from app.domain.model_config import ModelConfig, new_model_config
from app.ranking import serving
from app.ranking.arrays import Floats
from app.ranking.covariance import quadratic, square, triangle_size

FINITE = st.floats(-1e4, 1e4, width=32)
DRAWS = 5_000


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(
    arrays.arrays(np.float32, (2, n), elements=FINITE),
    arrays.arrays(np.float64, n, elements=st.floats(-1e3, 1e3)),
    st.integers(0, n + 1),
)))  # fmt: skip
def test_contributions_and_the_rest_add_up_to_the_gap(
    case: tuple["np.ndarray", Floats, int],
) -> None:
    documents, weights, most = case
    gap = comparison.gap_between(documents, 0, 1)
    parts = comparison.gap_parts(gap, weights, most)
    scores = candidates.scores(documents, weights)
    size = float(np.abs(documents.astype(np.float64) * weights).sum()) + 1.0
    total = fsum([*parts.values.tolist(), parts.rest_sum])
    assert total == pytest.approx(float(scores[0] - scores[1]), abs=1e-13 * size)
    assert len(parts.columns) + parts.rest == np.count_nonzero(gap * weights)
    assert len(parts.columns) <= most
    shown = np.abs(parts.values)
    assert (shown[:-1] >= shown[1:]).all()
    assert (shown > 0.0).all()
    assert parts.values.tolist() == (gap * weights)[parts.columns].tolist()
    others = np.delete(np.abs(gap * weights), parts.columns)
    assert not (parts.rest and len(shown)) or shown[-1] >= others.max()


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_deviation_is_that_of_rank_for_the_difference_of_two_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n))
    sigma = root @ root.T
    triangle, x = sigma[np.tril_indices(n)], rng.normal(size=n)
    x[rng.random(n) < 0.3] = 0.0
    assert len(triangle) == triangle_size(n)
    assert quadratic(triangle, x) == pytest.approx(float(x @ sigma @ x), rel=1e-12)
    assert quadratic(triangle, x) == pytest.approx(float(x @ square(triangle, n) @ x), rel=1e-12)
    diagonal = np.diag(sigma).copy()
    assert quadratic(diagonal, x) == pytest.approx(float((x * x * diagonal).sum()), rel=1e-12)
    row = x.astype(np.float32)
    expected = candidates.deviations(row[np.newaxis], triangle)[0]
    found = comparison.gap_deviation(row.astype(np.float64), triangle)
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_a_deviation_that_rounding_makes_negative_is_0() -> None:
    tiny = np.array([1.0, 1.0 + 1e-16, 1.0 - 1e-15])
    assert comparison.gap_deviation(np.array([1.0, -1.0]), tiny) == 0.0


def exchanged(config: ModelConfig, scores: Floats, scale: float, pair: tuple[int, int]) -> float:
    """Count how often exploration shows the lower of two documents above the other."""

    order = serving.order(scores).tolist()
    upper, lower = sorted(pair, key=order.index)
    documents, weights = scores.astype(np.float32)[:, np.newaxis], np.ones(1)
    found = 0
    for seed in range(DRAWS):
        draw = partial(serving.uniforms, f"seed {seed}")
        explore = candidates.exploring_by(config, draw, scale)
        shown = candidates.rank_candidates(documents, weights, None, explore).shown.tolist()
        found += shown.index(lower) < shown.index(upper)
    return found / DRAWS


SCORES = np.array([0.5, 2.0, 0.5, 1.0, 0.0])
PAIRS = [(0, 1), (1, 0), (0, 2), (1, 3), (3, 0), (2, 4), (4, 1)]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    ("clicks", "scale", "exploration"),
    [("debiased", 0.0, 1.0), ("debiased", 1.5, 1.0), ("debiased", 0.0, 3.0),
     ("fair-pairs", 0.0, 1.0)],
)  # fmt: skip
def test_the_chance_of_an_exchange_is_the_share_of_the_draws_that_exchange(
    clicks: str, scale: float, exploration: float, pair: tuple[int, int]
) -> None:
    config = new_model_config(("a",), clicks=clicks, prior=0.0, exploration=exploration)
    chance = comparison.exchange_probability(config, SCORES, *pair, scale)
    assert chance is not None
    error = sqrt(max(chance * (1.0 - chance), 1e-6) / DRAWS)
    assert exchanged(config, SCORES, scale, pair) == pytest.approx(chance, abs=4.5 * error)


def test_equal_scores_are_exchanged_half_of_the_time_and_far_ones_never() -> None:
    config = new_model_config(("a",))
    equal, far = np.zeros(3), np.array([1e300, 0.0])
    assert comparison.exchange_probability(config, equal, 0, 2, 5.0) == 0.5
    assert comparison.exchange_probability(config, far, 0, 1, 1.0) == 0.0


@pytest.mark.parametrize("changed", [{"explore": False}, {"exploration": 0.0}])
def test_a_model_that_does_not_explore_has_no_chance_of_an_exchange(
    changed: dict[str, float],
) -> None:
    config = replace(new_model_config(("a",)), **changed)  # type: ignore[arg-type]
    assert comparison.exchange_probability(config, SCORES, 0, 1, 1.0) is None


def test_classical_clicks_explore_only_if_asked_to() -> None:
    config = new_model_config(("a",), clicks="click-skip-above")
    assert comparison.exchange_probability(config, SCORES, 0, 1, 1.0) is None
    asked = replace(config, explore=True)
    found = comparison.exchange_probability(asked, SCORES, 0, 1, 1.0)
    assert found == pytest.approx(1.0 / (1.0 + np.exp(1.5)))
