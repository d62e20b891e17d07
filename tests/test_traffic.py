"""One simulated user against the naive one; drawn lists against the chances of whole lists."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.synthetic import World
from app.ranking import traffic
from app.ranking import users as crowd
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.ranking.traffic import DRAWN, PLAIN, SWAPPED, Show, Site, Visit
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
    st.integers(1, 9), st.integers(1, 12), st.sampled_from([PLAIN, DRAWN, SWAPPED]),
    st.booleans(), st.integers(0, 10**6),
)  # fmt: skip
def test_a_visit_is_the_naive_one(
    documents: int, places: int, how: int, equal: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = [0.0] * documents if equal else rng.standard_normal(documents).round(1).tolist()
    labels = rng.integers(0, 3, documents).astype(float).tolist()
    uniforms, draws = rng.random(25).tolist(), rng.random(20).tolist()
    found = visited(scores, labels, Show(how, places), uniforms, draws)

    k = min(places, documents)
    plain = sorted(range(documents), key=lambda d: -scores[d])
    s = naive.sharpened(scores)
    order, uppers = plain, list[int]()
    if how == DRAWN and s is not None:
        order = naive.gumbel_order(s, draws)
    if how == SWAPPED:
        shown, uppers = naive.swapped(plain[:k], draws)
        order = shown + plain[k:]
    assert found.shown.tolist() == order[:k]
    clicked = naive.clicks(naive.NaiveUsers(*USERS), [labels[d] for d in order[:k]], uniforms)
    assert np.flatnonzero(found.clicked).tolist() == clicked
    assert found.ndcg == pytest.approx(naive.ndcg_10([labels[d] for d in order[:k]], labels))

    pairs, omega = list[naive.Pair](), list[float]()
    if how == DRAWN:
        pairs = naive.seen_pairs(clicked, k)
        omega = [naive.weight(order, s or [0.0] * documents, k, pair) for pair in pairs]
    if how == SWAPPED:
        pairs = naive.fair_pairs(clicked, uppers)
        assert found.omega.tolist() == [100.0] * len(pairs)
        omega = [10.0] * len(pairs)  # what they weigh where they judge
    rows = [(order[c], order[u]) for c, u in pairs]
    assert found.pairs.listed() == rows
    if how != SWAPPED:
        assert found.omega == pytest.approx(omega, rel=1e-6, abs=1e-9)
    wins = [plain.index(c) < plain.index(u) for c, u in rows]
    if how == DRAWN and s is None:
        omega = [0.0] * len(pairs)  # who could not stand elsewhere judges nobody
    assert found.weight == pytest.approx(math.fsum(omega), rel=1e-6)
    assert found.won == pytest.approx(np.dot(wins, omega), rel=1e-6, abs=1e-9)
    assert found.submitted_won == pytest.approx(
        np.dot([c < u for c, u in rows], omega), rel=1e-6, abs=1e-9
    )


def test_lists_are_drawn_as_plackett_and_luce_say() -> None:
    """Chi-square over the six orders of three documents: 5 degrees, 20.5 is p = 0.001."""
    scores, rng, times = [0.3, 0.1, -0.4], np.random.default_rng(3), 20_000
    show = Show(DRAWN, 3, sharpness=1.0)
    s = (np.array(scores) / np.std(scores)).tolist()
    seen = dict.fromkeys(permutations(range(3)), 0)
    for draws in rng.random((times, 3)):
        order, *_ = traffic.draw_list(np.array(scores), *show[:2], show.sharpness, draws)
        seen[tuple(order.tolist())] += 1
    expected = {order: times * naive.chance(order, s, 3) for order in seen}
    off = sum((seen[order] - expected[order]) ** 2 / expected[order] for order in seen)
    assert off < 20.5


def test_raw_scores_are_drawn_from_where_nothing_sharpens_them() -> None:
    show, rng = Show(DRAWN, 3, sharpness=0.0), np.random.default_rng(0)
    first = [
        int(traffic.draw_list(np.log([4.0, 2.0, 1.0]), *show[:2], 0.0, rng.random(3))[0][0])
        for _ in range(4000)
    ]
    assert np.bincount(first) / 4000 == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.03)


def small() -> Site:
    return Site.of(World(4, 20, 6).draw(np.random.default_rng(0))[1])


def test_the_same_generator_brings_the_same_users() -> None:
    def once() -> list[tuple[int, list[int]]]:
        learner, found = SolarII(4), []
        rng = np.random.default_rng(1)
        for visit in traffic.visits(small(), learner, Show(), USERS, rng, 700):
            learner.learn_pairs(small().of_query(visit.query), visit.pairs)
            found.append((visit.query, visit.shown.tolist()))
        return found

    assert once() == once()
    assert len(once()) == 700


def test_what_is_learnt_changes_no_query_that_comes_after() -> None:
    fixed = [v.query for v in traffic.visits(
        small(), SolarII(4), Show(PLAIN), USERS, np.random.default_rng(1), 600)]  # fmt: skip
    learner, met = SolarII(4), []
    for visit in traffic.visits(small(), learner, Show(), USERS, np.random.default_rng(1), 600):
        learner.learn_pairs(small().of_query(visit.query), visit.pairs)
        met.append(visit.query)
    assert met == fixed


def test_a_site_measures_as_the_formula_says() -> None:
    _, queries = World(4, 20, 13).draw(np.random.default_rng(2))
    site, w = Site.of(queries), np.array([1.0, -0.5, 0.0, 0.3])
    by_hand, as_submitted = [], []
    for query in queries:
        order = sorted(range(13), key=lambda d: -float(query.documents[d] @ w))
        by_hand.append(naive.ndcg_10([query.labels[d] for d in order], query.labels.tolist()))
        as_submitted.append(naive.ndcg_10(query.labels.tolist(), query.labels.tolist()))
    assert site.ndcg(w) == pytest.approx(np.mean(by_hand))
    assert site.submitted_ndcg() == pytest.approx(as_submitted)


def test_a_reading_of_clicks_that_nobody_knows_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"clicks: expected one of click-skip-above, .*, debiased, fair-pairs"
    ):
        Show.to_learn("tea-leaves", 10)
