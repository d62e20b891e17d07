"""The expected loss of a randomised ranking is measured against the model order."""

from functools import partial
from math import log2

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain import candidates
from app.domain.candidates import Exploration, Ranking
from app.ranking.serving import uniforms

WEIGHTS = np.array([1.0, -0.5])


def dcg(scores: list[float], shown: list[int]) -> float:
    """DCG@10 of a ranking whose gains are the scores above the lowest one."""
    least = min(scores)
    return sum((scores[at] - least) / log2(2 + rank) for rank, at in enumerate(shown[:10]))


@given(
    st.integers(1, 14), st.sets(st.integers(0, 13)), st.integers(1, 14),
    st.sampled_from(["sampled", "swapped"]), st.text(max_size=3),
)  # fmt: skip
@example(4, {1}, 4, "sampled", "")
def test_the_loss_is_that_of_dcg_against_the_model_order_with_the_same_pins(
    count: int, held: set[int], top: int, how: str, name: str
) -> None:
    rows = np.random.default_rng(count).standard_normal((count, 2)).astype(np.float32)
    pinned = np.array(sorted(at for at in held if at < count), np.int64)
    explore = Exploration("swapped" if how == "swapped" else "sampled", partial(uniforms, name))
    found = candidates.rank_candidates(rows, WEIGHTS, top, explore, pinned)
    order = candidates.rank_candidates(rows, WEIGHTS, top, None, pinned)
    scores = found.scores.tolist()
    best = dcg(scores, sorted(range(count), key=lambda at: -scores[at])[: len(found.shown)])
    lost = dcg(scores, order.shown.tolist()) - dcg(scores, found.shown.tolist())
    expected = lost / best if best > 0.0 else 0.0
    assert candidates.exploration_loss(found, pinned) == pytest.approx(expected, abs=1e-12)
    assert candidates.exploration_loss(order, pinned) == 0.0


def test_a_loss_that_is_no_number_counts_as_0() -> None:
    """A counter that is NaN once stays NaN."""
    large = Ranking(np.array([1, 0]), np.array([1.7e308, -1.7e308]), explored=True)
    with np.errstate(over="ignore", invalid="ignore"):
        assert candidates.exploration_loss(large) == 0.0
