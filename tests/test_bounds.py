"""Bounds of pairs: `ω‖x‖² ≤ pair_bound`, and what attacks within and beyond them achieve."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import codec
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.records import Feedback, Retune
from app.domain.reducer import Reducer
from app.errors import InvalidInput
from app.ranking import bounds, fair, kernels, measures
from app.ranking.arrays import Floats, aligned
from app.ranking.bounds import bounded
from app.ranking.lanes import kernel
from app.ranking.limits import BOUND_PER_FEATURE, FAIR_BOUND_PER_FEATURE, KAPPA, LEAST, MOST
from app.ranking.pairs import Pairs
from app.ranking.solar import SolarII
from tests import oracles

N = 46
NAMES = tuple(f"f{at}" for at in range(1, N + 1))


# ---- the function ----


class Ranking(NamedTuple):
    """The documents and pairs of an event."""

    documents: Any
    pairs: Pairs

    def gaps(self) -> Floats:
        rows = self.documents.astype(np.float64)
        gaps: Floats = rows[self.pairs.preferred] - rows[self.pairs.other]
        return gaps


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, n, pairs = draw(st.tuples(st.integers(2, 6), st.integers(1, 19), st.integers(0, 40)))
    size = 10.0 ** draw(st.integers(-3, 4))
    documents = (size * rng.normal(size=(count, n))).astype(draw(st.sampled_from("fd")))
    preferred = rng.integers(count, size=pairs)
    other = (preferred + rng.integers(1, count, size=pairs)) % count
    weights = 10.0 ** rng.uniform(*draw(st.sampled_from([(-6, 1), (-12, 12), (0, 0)])), pairs)
    return Ranking(documents, Pairs(preferred, other, weights.clip(LEAST, MOST)))


given_bounds = st.sampled_from([1e-12, 1e-3, 1.0, 20.0, 920.0, 1e12])


@given(rankings(), given_bounds)
def test_weights_agree_with_the_naive_bound(event: Ranking, bound: float) -> None:
    found, scaled = bounded(*event, bound)
    weights = event.pairs.weights.tolist()
    naive = [oracles.bounded_weight(*one, bound) for one in zip(event.gaps(), weights, strict=True)]
    np.testing.assert_allclose(found.weights, naive, rtol=1e-12)
    changed = found.weights != event.pairs.weights
    assert scaled == changed.sum()
    assert (found.weights <= event.pairs.weights).all()
    assert found.listed() == event.pairs.listed()


@given(rankings(), given_bounds, st.data())
def test_a_pair_that_got_weight_before_gets_the_rest_of_its_bound(
    event: Ranking, bound: float, data: st.DataObject
) -> None:
    shares = [0.0, 1e-9, 0.5, 1.0, 3.0]
    each = st.lists(st.sampled_from(shares), min_size=len(event.pairs), max_size=len(event.pairs))
    before = event.pairs.weights * np.array(data.draw(each))
    found, scaled = bounded(event.documents, replace(event.pairs, before=before), bound)
    most = [oracles.bounded_weight(x, MOST, bound) for x in event.gaps()]
    naive = [
        (*pair, min(weight, limit - got))
        for pair, weight, limit, got in zip(
            event.pairs.listed(), event.pairs.weights.tolist(), most, before.tolist(), strict=True
        )
    ]
    learnt = [one for one in naive if one[2] >= LEAST]
    assert found.listed() == [(p, o) for p, o, _ in learnt]
    np.testing.assert_allclose(found.weights, [weight for *_, weight in learnt], rtol=1e-6)
    assert scaled <= len(found)


@given(rankings(), given_bounds)
def test_the_bound_holds_and_a_second_pass_changes_nothing(event: Ranking, bound: float) -> None:
    found, _ = bounded(*event, bound)
    squared = (event.gaps() ** 2).sum(axis=1)
    assert (found.weights >= LEAST).all()
    assert ((found.weights * squared <= bound * (1 + 1e-9)) | (found.weights == LEAST)).all()
    again, scaled = bounded(event.documents, found, bound)
    assert scaled == 0
    assert again.weights.tobytes() == found.weights.tobytes()


@given(rankings(), given_bounds)
def test_the_quick_check_never_skips_a_pair_above_the_bound(event: Ranking, bound: float) -> None:
    documents, weights = event.documents, event.pairs.weights
    if len(weights) and bounds.no_pair_exceeds(documents, weights, bound / bounds.MARGIN):
        for x, omega in zip(event.gaps(), weights.tolist(), strict=True):
            assert oracles.bounded_weight(x, omega, bound) == omega


@given(rankings(), given_bounds)
def test_many_pairs_get_the_weights_of_single_pairs(event: Ranking, bound: float) -> None:
    """One pair has no quick check, many pairs have one."""
    documents, pairs = event
    found, _ = bounded(documents, pairs, bound)
    for at in range(len(pairs)):
        alone, _ = bounded(documents, pairs.some(np.arange(len(pairs)) == at), bound)
        assert alone.weights[0] == found.weights[at]


@kernel
def norms_of_steps(w: Any, n: int, rows: Any, p: Any, o: Any, x: Any, found: Any) -> None:
    for t in range(p.shape[0]):
        found[t, 0] = kernels.gap(w, n, rows, p[t], rows, o[t], x)[1]
        found[t, 1] = bounds.squared_gap(rows, n, p[t], o[t])


@given(rankings())
def test_squared_norms_have_the_bits_of_the_step(event: Ranking) -> None:
    documents, pairs = event
    n, found = documents.shape[1], np.empty((len(pairs), 2))
    norms_of_steps(
        aligned(n), n, documents.reshape(-1), pairs.preferred, pairs.other, aligned(n), found
    )
    assert found[:, 0].tobytes() == found[:, 1].tobytes()


def test_no_bound_returns_the_same_pairs() -> None:
    pairs = Pairs.of([(0, 1)])
    assert bounded(np.array([[1e30], [0.0]]), pairs, None) == (pairs, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e60])
def test_gaps_that_the_learner_refuses_keep_their_weights(value: float) -> None:
    documents = np.array([[value, 1.0], [0.0, 0.0], [0.0, 100.0]])
    found, scaled = bounded(documents, Pairs.of([(0, 1), (2, 1)]), 20.0)
    assert (found.weights.tolist(), scaled) == ([1.0, 0.002], 1)
    assert SolarII(2).learn_pairs(documents, found).refused == 1


@pytest.mark.parametrize(
    "pairs",
    [
        Pairs(np.array([0]), np.array([7]), np.ones(1)),
        Pairs(np.array([0]), np.array([-1]), np.ones(1)),
        Pairs(np.array([0]), np.array([1]), np.ones(2)),
        Pairs(np.array([0]), np.array([1]), np.array([np.inf])),
        Pairs(np.array([0]), np.array([1]), np.array([np.nan])),
        Pairs(np.array([0.0]), np.array([1.0]), np.ones(1)),
    ],
)
def test_pairs_that_the_learner_refuses_are_still_refused(pairs: Pairs) -> None:
    documents = np.array([[100.0], [0.0]])
    found, scaled = bounded(documents, pairs, 20.0)
    assert (found, scaled) == (pairs, 0)
    with pytest.raises(ValueError, match="expected"):
        SolarII(1).learn_pairs(documents, found)


# ---- the setting ----


def test_new_models_have_a_bound_that_their_clicks_do_not_reach() -> None:
    assert new_model_config(NAMES).pair_bound == 4.0 * (N + 1)
    assert new_model_config(NAMES, prior=0.0).pair_bound == 4.0 * N
    assert new_model_config(NAMES, prior=0.0, clicks="fair-pairs").pair_bound == 80.0 * N
    assert new_model_config(NAMES, pair_bound=5.0).pair_bound == 5.0
    assert BOUND_PER_FEATURE >= 2.0 * KAPPA
    assert FAIR_BOUND_PER_FEATURE >= 0.8 * fair.WEIGHT


@pytest.mark.parametrize("bound", [0.0, -1.0, 1e13, float("nan"), float("inf")])
def test_a_bound_outside_the_limits_is_refused(bound: float) -> None:
    with pytest.raises(InvalidInput, match="pair_bound: expected a value from 1e-12 to"):
        new_model_config(NAMES, pair_bound=bound)
    reducer = Reducer(initial_state(ModelConfig(NAMES)))
    assert not reducer.apply(codec.dump_record(Retune(pair_bound=bound)))
    assert reducer.config.pair_bound is None


def test_an_old_model_adopts_a_bound_from_the_next_record_on() -> None:
    reducer = Reducer(initial_state(ModelConfig(NAMES)))
    for record in (forged(1.0, 1e9), Retune(pair_bound=920.0), forged(1.0, 1e9)):
        assert reducer.apply(codec.dump_record(record))
    assert reducer.config.pair_bound == 920.0
    assert reducer.state().measures()["bounded"] == N


EVENTS = {
    "labels": Feedback("e", "labels", np.eye(3, 2, dtype=np.float32) * 100, labels=np.eye(3)[0]),
    "clicks": Feedback(
        "e", "clicks", np.eye(3, 2, dtype=np.float32) * 100, np.arange(3), clicks=np.array([2]),
        odds=np.array([0.2, 0.3, 0.4, 0.1]),
    ),
    "triplets": Feedback(
        "e", "triplets", np.eye(3, 2, dtype=np.float32) * 100, preferred=np.array([0]),
        other=np.array([2]), weights=np.array([0.5]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", EVENTS)
def test_pairs_of_every_kind_are_bounded_and_counted(kind: str) -> None:
    config = new_model_config(("a", "b"), prior=0.0)
    reducer = Reducer(initial_state(config))
    assert reducer.apply(codec.dump_record(EVENTS[kind]))
    sums = reducer.state().measures()
    assert sums["bounded"] == sums["stepped"] > 0
    learner = SolarII(2)
    for x in gaps_of(EVENTS[kind]):
        learner.learn(x[None], np.array([8.0 / float(x @ x)]))
    np.testing.assert_allclose(reducer.state().model.weights, learner.weights, rtol=1e-12)


def gaps_of(event: Feedback) -> Iterator[Floats]:
    """The gaps of the pairs of EVENTS, in order."""
    pairs = {"labels": [(0, 1), (0, 2)], "clicks": [(2, 0), (2, 1)], "triplets": [(0, 2)]}
    rows = event.documents.astype(np.float64)
    for preferred, other in pairs[event.kind]:
        yield rows[preferred] - rows[other]


# ---- attacks ----


def honest(rng: np.random.Generator, truth: Floats, count: int) -> Iterator[Feedback]:
    """Events of 46 pairs: two of 25 documents are relevant, with some noise."""
    for at in range(count):
        rows = rng.random((25, N), np.float32)
        scores = rows @ truth + rng.normal(0.0, 0.3, 25)
        labels = np.zeros(25)
        labels[np.argsort(-scores)[:2]] = 1.0
        yield Feedback(f"h{at}", "labels", rows, labels=labels)


def forged(value: float, weight: float) -> Feedback:
    """One event of 46 pairs: a document of zeros over one document for each feature."""
    rows = np.zeros((N + 1, N), np.float32)
    rows[1:] = value * np.eye(N)
    return Feedback(
        "a", "triplets", rows, preferred=np.zeros(N, np.int64), other=np.arange(1, N + 1),
        weights=np.full(N, weight),
    )  # fmt: skip


@cache
def learnt(config: ModelConfig, attack: tuple[float, float] | None) -> tuple[ModelState, float]:
    """The state after 100 honest events, the attack and 5,000 honest events; its test NDCG@10."""
    rng = np.random.default_rng(1)
    truth, reducer = rng.normal(size=N), Reducer(initial_state(config))
    attacks = [forged(*attack)] if attack else []
    for event in (*honest(rng, truth, 100), *attacks, *honest(rng, truth, 5_000)):
        assert reducer.apply_decoded(b"", event)
    weights = reducer.state().model.weights
    tests = list(honest(np.random.default_rng(2), truth, 300))
    found = [_ndcg(one, weights) for one in tests]
    return reducer.state(), float(np.mean(found))


def _ndcg(event: Feedback, weights: Floats) -> float:
    assert event.labels is not None
    order = np.argsort(-(event.documents @ weights), kind="stable")
    return float(measures.ndcg(event.labels[order], 10))


BOUNDED = {
    "solar-ii": new_model_config(NAMES, prior=0.0),
    "diagonal": new_model_config(NAMES, prior=0.0, covariance="diagonal"),
    "solar-i": new_model_config(NAMES, prior=0.0, algorithm="solar-i"),
}
#: Value of the features and weight of the triplets. A caller's weight above 20 gets 422; 6.8 is the
#: value with most effect that a caller can achieve.
ATTACKS = [(1.0, 20.0), (1e4, 1.0), (1e4, 20.0), (6.8, 20.0)]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", BOUNDED)
def test_honest_events_repair_what_an_attack_within_the_bounds_did(
    kind: str, attack: tuple[float, float]
) -> None:
    (attacked, ndcg), (without, expected) = (learnt(BOUNDED[kind], one) for one in (attack, None))
    w, w_honest = attacked.model.weights, without.model.weights
    assert np.linalg.norm(w - w_honest) <= 0.1 * np.linalg.norm(w_honest)
    assert abs(ndcg - expected) <= 0.005


@pytest.mark.parametrize("attack", [(1.0, 1e12), (1e4, 1.0)])
def test_without_a_bound_the_same_attacks_ruin_a_model(attack: tuple[float, float]) -> None:
    config = BOUNDED["solar-ii"]
    (attacked, _), (without, _) = (
        learnt(replace(config, pair_bound=None, forgetting=0.0), attack), learnt(config, None)
    )  # fmt: skip
    w, w_honest = attacked.model.weights, without.model.weights
    assert np.linalg.norm(w - w_honest) > 0.5 * np.linalg.norm(w_honest)


def test_honest_events_have_the_same_bits_with_and_without_a_bound() -> None:
    config = BOUNDED["solar-ii"]
    (state, _), (unbounded, _) = (
        learnt(config, None),
        learnt(replace(config, pair_bound=None), None),
    )
    assert state.model.weights.tobytes() == unbounded.model.weights.tobytes()
    assert state.model.spread.tobytes() == unbounded.model.spread.tobytes()
    assert state.sums.tobytes() == unbounded.sums.tobytes()
    assert state.measures()["bounded"] == 0.0
