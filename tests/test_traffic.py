"""A simulated user against a naive one; sampled rankings against their probabilities."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.synthetic import SyntheticData
from app.ranking import traffic
from app.ranking import users as crowd
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.ranking.traffic import MODEL_ORDER, SAMPLED, SWAPPED, FixedRanker, Show, Site, Visit
from tests import oracles_traffic as naive

USERS = crowd.users("informational", 3, 12)


def visited(
    scores: list[float], labels: list[float], show: Show, uniforms: list[float], draws: list[float]
) -> Visit:
    ideal = Site.of([LabelledQuery(np.array(labels), np.zeros((len(labels), 1)))]).ideal[0]
    return Visit(
        0,
        *traffic.impression(
            np.array(scores), np.array(labels), *show, *USERS, np.array(uniforms),
            np.array(draws), traffic.discount_table(), ideal,
        ),
    )  # fmt: skip


@given(
    st.integers(1, 9), st.integers(1, 12), st.sampled_from([MODEL_ORDER, SAMPLED, SWAPPED]),
    st.booleans(), st.sampled_from([0.0, 0.5, 3.0]), st.integers(0, 10**6),
)  # fmt: skip
def test_a_visit_agrees_with_a_naive_reference(
    documents: int, length: int, how: int, equal: bool, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = [0.0] * documents if equal else rng.standard_normal(documents).round(1).tolist()
    labels = rng.integers(0, 3, documents).astype(float).tolist()
    uniforms, draws = rng.random(25).tolist(), rng.random(20).tolist()
    found = visited(scores, labels, Show(how, length, scale, 1.5), uniforms, draws)

    k = min(length, documents)
    plain = sorted(range(documents), key=lambda d: -scores[d])
    s = naive.sharpened(scores, scale, 1.5)
    order, uppers = plain, list[int]()
    if how == SAMPLED:
        order = naive.gumbel_order(s or [0.0] * documents, draws)
    if how == SWAPPED:
        shown, uppers = naive.swapped(plain[:k], draws)
        order = shown + plain[k:]
    assert found.shown.tolist() == order[:k]
    clicked = naive.clicks(naive.NaiveUsers(*USERS), [labels[d] for d in order[:k]], uniforms)
    assert np.flatnonzero(found.clicked).tolist() == clicked
    assert found.ndcg == pytest.approx(naive.ndcg_10([labels[d] for d in order[:k]], labels))

    pairs, omega = list[naive.Pair](), list[float]()
    if how == SAMPLED:
        pairs = naive.seen_pairs(clicked, k)
        omega = [naive.weight(order, s or [0.0] * documents, k, pair) for pair in pairs]
    if how == SWAPPED:
        pairs = naive.fair_pairs(clicked, uppers)
        assert found.omega.tolist() == [100.0] * len(pairs)
        omega = [1.0] * len(pairs)  # their weight in the wins
    rows = [(order[c], order[u]) for c, u in pairs]
    assert found.pairs.listed() == rows
    if how != SWAPPED:
        assert found.omega == pytest.approx(omega, rel=1e-6, abs=1e-9)
    wins = [plain.index(c) < plain.index(u) for c, u in rows]
    if how == SAMPLED and s is None:
        omega = [0.0] * len(pairs)  # equal scores: the model has no order of its own
    assert found.weight == pytest.approx(math.fsum(omega), rel=1e-6)
    assert found.won == pytest.approx(np.dot(wins, omega), rel=1e-6, abs=1e-9)
    assert found.submitted_won == pytest.approx(
        np.dot([c < u for c, u in rows], omega), rel=1e-6, abs=1e-9
    )


def test_sampled_orders_have_plackett_luce_frequencies() -> None:
    """Chi-square over the six orders of three documents: 5 degrees, 20.5 is p = 0.001."""
    scores, rng, times = [0.3, 0.1, -0.4], np.random.default_rng(3), 20_000
    show = Show(SAMPLED, 3, scale=3.0)
    s = (3.0 * np.array(scores)).tolist()
    seen = dict.fromkeys(permutations(range(3)), 0)
    for draws in rng.random((times, 3)):
        order, *_ = traffic.draw_order(np.array(scores), *show[:4], draws)
        seen[tuple(order.tolist())] += 1
    expected = {order: times * naive.probability(order, s, 3) for order in seen}
    chi_square = sum((seen[order] - expected[order]) ** 2 / expected[order] for order in seen)
    assert chi_square < 20.5


def test_a_scale_of_one_samples_the_unscaled_scores() -> None:
    show, rng = Show(SAMPLED, 3, scale=1.0), np.random.default_rng(0)
    first = [
        int(traffic.draw_order(np.log([4.0, 2.0, 1.0]), *show[:4], rng.random(3))[0][0])
        for _ in range(4000)
    ]
    assert np.bincount(first) / 4000 == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.03)


def small() -> Site:
    return Site.of(SyntheticData(4, 20, 6).draw(np.random.default_rng(0))[1])


def test_the_same_generator_gives_the_same_visits() -> None:
    def once() -> list[tuple[int, list[int]]]:
        learner, found = SolarII(4), []
        rng = np.random.default_rng(1)
        for visit in traffic.visits(small(), FixedRanker(learner, Show()), USERS, rng, 700):
            learner.learn_pairs(small().of_query(visit.query), visit.pairs)
            found.append((visit.query, visit.shown.tolist()))
        return found

    assert once() == once()
    assert len(once()) == 700


def test_learning_does_not_change_the_later_queries() -> None:
    fixed = [v.query for v in traffic.visits(
        small(), FixedRanker(SolarII(4), Show(MODEL_ORDER)), USERS, np.random.default_rng(1),
        600)]  # fmt: skip
    learner, met, rng = SolarII(4), list[int](), np.random.default_rng(1)
    for visit in traffic.visits(small(), FixedRanker(learner, Show()), USERS, rng, 600):
        learner.learn_pairs(small().of_query(visit.query), visit.pairs)
        met.append(visit.query)
    assert met == fixed


def test_a_sites_ndcg_agrees_with_the_formula() -> None:
    _, queries = SyntheticData(4, 20, 13).draw(np.random.default_rng(2))
    site, w = Site.of(queries), np.array([1.0, -0.5, 0.0, 0.3])
    by_hand, as_submitted = [], []
    for query in queries:
        order = sorted(range(13), key=lambda d: -float(query.documents[d] @ w))
        by_hand.append(naive.ndcg_10([query.labels[d] for d in order], query.labels.tolist()))
        as_submitted.append(naive.ndcg_10(query.labels.tolist(), query.labels.tolist()))
    assert site.ndcg(w) == pytest.approx(np.mean(by_hand))
    assert site.submitted_ndcg() == pytest.approx(as_submitted)


def test_an_unknown_clicks_setting_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"clicks: expected one of click-skip-above, .*, debiased, fair-pairs"
    ):
        Show.to_learn("tea-leaves", 10)
