"""ListNet, RankBoost and AdaRank against naive references, and their properties."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.evaluation.synthetic import SyntheticData
from app.ranking.batch import adarank, listnet, rankboost
from app.ranking.batch.accuracy import ndcg_each
from app.ranking.batch.boosting import LARGEST_EDGE
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.listnet import ListNetLoss, descend
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.rankboost import Stump, StumpRanker, boost
from app.ranking.measures import DISCOUNTS, Discount
from tests import oracles_baselines as naive
from tests.oracles import Floats
from tests.strategies_batch import judged

#: Labels of NDCG are at most 30.
graded = judged(most=14).map(lambda one: replace(one, labels=one.labels % 5))


def synthetic(seed: int, features: int = 4, queries: int = 12) -> Judgements:
    _, drawn = SyntheticData(features, queries, documents=9).draw(np.random.default_rng(seed))
    return Judgements.of(drawn)


@given(graded, st.data(), st.sampled_from(DISCOUNTS))
def test_ndcg_of_all_queries_agrees_with_the_formula(
    judgements: Judgements, data: st.DataObject, discount: Discount
) -> None:
    size = len(judgements.labels)
    scores = np.array(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), float)
    found = ndcg_each(scores, judgements.labels, judgements.starts, discount)
    expected = naive.ndcg_each(scores, judgements.labels, judgements.starts, discount)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@given(graded, st.lists(st.floats(-2.0, 2.0, width=16), min_size=4, max_size=4))
def test_listnets_gradient_agrees_with_finite_differences(
    judgements: Judgements, start: list[float]
) -> None:
    assume(len(judgements.starts) > 1)
    w = np.array(start[: judgements.n])
    expected = naive.central_gradient(w, judgements.X, judgements.labels, judgements.starts)
    np.testing.assert_allclose(ListNetLoss(judgements).gradient(w), expected, atol=1e-7)


def test_listnets_steps_are_those_of_adam() -> None:
    loss = ListNetLoss(synthetic(1))
    w, m, v = np.zeros(4), np.zeros(4), np.zeros(4)
    for t, found in enumerate(descend(loss, 0.1, 20), start=1):
        g = loss.gradient(w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(found, w, rtol=1e-9)


def test_listnets_loss_falls_to_its_minimum() -> None:
    judgements = synthetic(2)
    *_, last = descend(ListNetLoss(judgements), 0.1, 400)
    assert np.abs(ListNetLoss(judgements).gradient(last)).max() < 1e-3
    data = (judgements.X, judgements.labels, judgements.starts)
    assert naive.cross_entropy(last, *data) < naive.cross_entropy(np.zeros(4), *data)


@settings(max_examples=60)
@given(graded)
def test_every_stump_of_rankboost_has_the_largest_edge_of_a_naive_search(
    judgements: Judgements,
) -> None:
    kept = judgements.with_pairs()
    pairs, scores = naive.NaivePairWeights(kept.labels, kept.starts), np.zeros(len(kept.labels))
    for stump in boost(judgements, 4):
        edges = [pairs.edge(scores, h) for h in naive.stumps(kept.X)]
        chosen = pairs.edge(scores, (kept.X[:, stump.feature] > stump.threshold).astype(float))
        assert abs(chosen) == pytest.approx(max(map(abs, edges)), abs=1e-9)
        assert math.tanh(stump.alpha) == pytest.approx(chosen, abs=1e-9)
        scores = scores + stump.votes(kept.X)


@settings(max_examples=60)
@given(graded)
def test_rankboosts_exponential_loss_falls_at_least_by_the_factor_of_the_theorem(
    judgements: Judgements,
) -> None:
    pairs = naive.NaivePairWeights(judgements.labels, judgements.starts)
    scores = np.zeros(len(judgements.labels))
    for stump in boost(judgements, 8):
        before, edge = pairs.loss(scores), math.tanh(stump.alpha)
        scores = scores + stump.votes(judgements.X)
        assert pairs.loss(scores) <= before * math.sqrt(1.0 - edge**2) * (1.0 + 1e-9) + 1e-12


def test_the_sum_of_rankboosts_pair_weights_is_the_exponential_loss() -> None:
    judgements = synthetic(3)
    tree = OrderTree.of(judgements.labels, judgements.starts)
    scores = np.random.default_rng(0).normal(0.0, 30.0, len(judgements.labels))
    pulls = np.empty(len(scores))
    total = rankboost.pair_pulls(scores[tree.by_label], tree.label_starts, tree.first, pulls)
    pairs = naive.NaivePairWeights(judgements.labels, judgements.starts)
    assert total == pytest.approx(pairs.loss(scores), rel=1e-9)
    assert pulls.sum() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rankboost_ends_with_a_stump_that_orders_every_pair(sign: float) -> None:
    X = sign * np.array([[0.0], [1.0], [0.0], [3.0]])
    judgements = Judgements(X, np.array([0.0, 1.0, 0.0, 2.0]), np.array([0, 2, 4]))
    (stump,) = boost(judgements, 300)
    assert math.tanh(stump.alpha) == pytest.approx(sign * LARGEST_EDGE)
    scores = StumpRanker((stump,)).score(X)
    assert (scores[[1, 3]] > scores[[0, 2]]).all()


def test_rankboost_and_adarank_end_if_nothing_helps() -> None:
    irrelevant = Judgements(np.ones((2, 1)), np.zeros(2), np.array([0, 2]))
    constant = Judgements(np.ones((2, 1)), np.array([0.0, 1.0]), np.array([0, 2]))
    for judgements in (irrelevant, constant):
        assert rankboost.train_rankboost(judgements, constant).stumps == ()
    assert adarank.train_adarank(irrelevant, constant).tolist() == [0.0]


def test_a_stump_compares_float32_documents_in_float64() -> None:
    value = np.float32(0.1)
    between = float(value) - 1e-12
    documents = np.array([[value], [0.05]], np.float32)
    assert StumpRanker((Stump(0, between, 2.0),)).score(documents).tolist() == [2.0, 0.0]


@settings(max_examples=60)
@given(graded)
def test_adarank_agrees_with_a_naive_implementation(judgements: Judgements) -> None:
    X, labels, starts = judgements.X, judgements.labels, judgements.starts
    assume(len(labels) > 0)
    alone = [naive.ndcg_each(column, labels, starts) for column in X.T]
    queries = len(alone[0])
    P, w = np.full(queries, 1.0 / queries), np.zeros(judgements.n)
    taken: list[int] = []
    left = set(range(judgements.n))
    for found in adarank.add_features(judgements, 12):
        (feature,) = np.flatnonzero(found - w).tolist()
        edges = {f: float(P @ alone[f]) for f in left}
        assert feature in left
        assert edges[feature] == pytest.approx(max(edges.values()), abs=1e-12)
        odds = float(P @ (1.0 + alone[feature])) / max(float(P @ (1.0 - alone[feature])), 1e-9)
        assert found[feature] - w[feature] == pytest.approx(0.5 * math.log(odds), rel=1e-3)
        w = found
        P = np.exp(-naive.ndcg_each(X @ w, labels, starts))
        P = P / P.sum()
        taken.append(feature)
        if len(taken) >= 5 and len(set(taken[-5:])) == 1:
            left.discard(taken[-1])
    assert len(taken) <= 12


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50))
def test_adaranks_weights_of_queries_sum_to_1_and_favour_bad_rankings(ndcg: list[float]) -> None:
    weights = adarank.query_weights(np.array(ndcg))
    assert weights.sum() == pytest.approx(1.0)
    assert (weights[np.argmin(ndcg)] >= weights).all()


def test_a_feature_leaves_adarank_after_five_times_in_a_row() -> None:
    """The first feature is better on every query, so it is taken until it leaves."""
    labels, starts = np.tile([2.0, 1.0, 0.0], 4), np.arange(0, 13, 3)
    good, bad = np.tile([1.0, 2.0, 0.0], 4), np.tile([0.0, 1.0, 2.0], 4)
    judgements = Judgements(np.stack([good, bad], axis=1), labels, starts)
    ws = list(adarank.add_features(judgements, 300))
    taken = [int(np.flatnonzero(step)[0]) for step in np.diff([np.zeros(2), *ws], axis=0)]
    assert taken == [0] * 5 + [1] * 5


@pytest.mark.parametrize("name", ["listnet", "adarank", "rankboost"])
def test_held_out_queries_choose_the_round(name: str) -> None:
    train, held_out = synthetic(4), synthetic(5)
    candidates: list[Floats] = []
    if name == "rankboost":
        stumps = tuple(boost(train, 300))
        candidates = [StumpRanker(stumps[:t]).score(held_out.X) for t in range(1, len(stumps) + 1)]
        chosen = rankboost.train_rankboost(train, held_out, "letor").score(held_out.X)
    elif name == "listnet":
        loss = ListNetLoss(train)
        candidates = [held_out.X @ w for rate in (0.01, 0.1) for w in descend(loss, rate, 400)]
        chosen = held_out.X @ listnet.train_listnet(train, held_out, "letor")
    else:
        ws = adarank.add_features(train, 300, "letor")
        candidates = [held_out.X @ w for w in ws]
        chosen = held_out.X @ adarank.train_adarank(train, held_out, "letor")
    data = (held_out.labels, held_out.starts, "letor")
    qualities = [naive.ndcg_each(scores, *data).mean() for scores in candidates]
    best = int(np.argmax(np.round(qualities, 12)))
    assert len(candidates) > 4
    np.testing.assert_allclose(chosen, candidates[best], atol=1e-12)
