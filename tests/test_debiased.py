"""Debiased clicks against the probabilities of whole rankings, computed position by position."""

import math
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import candidates, codec
from app.domain.impressions import Impression, PriorFeedback, on_request
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.ranking import debiased, serving
from app.ranking.serving import uniforms

odds = st.floats(1e-3, 1.0)


def probability(drawn: list[float], rest: float) -> float:
    """The Plackett-Luce probability of a ranking that starts with these documents."""
    found, left = 1.0, math.fsum([*drawn, rest])
    for e in drawn:
        found *= e / left
        left -= e
    return found


@given(st.lists(odds, min_size=2, max_size=6), st.floats(0.1, 3.0), st.data())
def test_a_pair_weight_follows_from_the_probabilities_of_both_rankings(
    shown: list[float], rest: float, data: st.DataObject
) -> None:
    clicks = data.draw(st.lists(st.integers(0, len(shown) - 1), min_size=1, unique=True))
    found = debiased.pairs(clicks, np.array([*shown, rest]))
    for (c, u), weight in zip(found.listed(), found.weights, strict=True):
        swapped = list(shown)
        swapped[c], swapped[u] = shown[u], shown[c]
        here, there = probability(shown, rest), probability(swapped, rest)
        assert weight == pytest.approx(2.0 * there / (here + there), rel=1e-6)


@given(st.sets(st.integers(0, 7)))
def test_pairs_prefer_clicked_documents_to_examined_unclicked_ones(clicks: set[int]) -> None:
    found = debiased.pairs(list(clicks), np.ones(9)).listed()
    naive = [
        (c, u)
        for c in range(8) if c in clicks
        for u in range(8) if u not in clicks and u <= max(clicks) + 1
    ]  # fmt: skip
    assert found == naive


def test_clicks_that_depend_on_position_alone_prefer_no_document() -> None:
    """The expected pair weights over all rankings, for a user who ignores the documents."""
    e = [1.0, 0.4, 0.2, 0.05]
    won = np.zeros((4, 4))
    for order in permutations(range(4)):
        drawn = [e[d] for d in order]
        for position, click in enumerate([0.5, 0.3, 0.15, 0.05]):
            pairs = debiased.pairs([position], np.array([*drawn, 0.0]))
            for (c, u), weight in zip(pairs.listed(), pairs.weights, strict=True):
                won[order[c], order[u]] += probability(drawn, 0.0) * click * weight
    assert (won + won.T)[~np.eye(4, dtype=np.bool_)].min() > 0.01
    assert won == pytest.approx(won.T, rel=1e-9)  # both preferences have the same expected weight
    plain = np.zeros((4, 4))  # the same with pair weights of 1
    for order in permutations(range(4)):
        for position, click in enumerate([0.5, 0.3, 0.15, 0.05]):
            for c, u in debiased.pairs([position], np.ones(5)).listed():
                plain[order[c], order[u]] += probability([e[d] for d in order], 0.0) * click
    assert plain[3, 0] > 1.4 * plain[0, 3]  # unweighted, the documents ranked low would win


def test_pairs_whose_odds_underflow_get_the_least_weight() -> None:
    found = debiased.pairs([0], np.array([1.0, 0.0, 0.0]))
    assert found.weights.tolist() == [debiased.LEAST_WEIGHT]
    assert debiased.pairs([1], np.array([1e-300, 1e-320, 0.0])).weights[0] >= debiased.LEAST_WEIGHT


@pytest.mark.parametrize("bad", [[1.0, math.nan], [math.inf, 0.0], [-0.5, 0.0], [1.0, -1.0]])
def test_invalid_odds_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="odds: expected"):
        debiased.pairs([0], np.array(bad))


def test_clicks_beyond_the_ranking_are_refused() -> None:
    with pytest.raises(ValueError, match="clicks: expected positions below 2"):
        debiased.pairs([2], np.ones(3))


# ---- from a randomised ranking to the sums ----


def drawn(seed: int, documents: int = 8, top: int = 5) -> tuple[Impression, candidates.Ranking]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((documents, 3)).astype(np.float32)
    explore = candidates.Exploration("sampled", partial(uniforms, str(seed)))
    ranking = candidates.rank_candidates(rows, np.array([0.3, -0.2, 0.1]), top, explore)
    ids = tuple(map(str, ranking.shown))
    return Impression(ids, rows[ranking.shown], ranking.shown, ranking.odds), ranking


def test_the_impression_stores_the_odds_of_the_sample() -> None:
    shown, ranking = drawn(1)
    assert shown.odds is not None
    s = 8.0 * ranking.scores / ranking.scores.std()
    e = np.exp(s - s.max())
    assert shown.odds[:-1] == pytest.approx(e[ranking.shown])
    assert shown.odds[-1] == pytest.approx(e.sum() - e[ranking.shown].sum())
    again = Impression.load(shown.dump())
    assert again.odds is not None
    assert (again.odds == shown.odds).all()
    positions = debiased.model_positions(shown.odds, shown.submitted)
    assert positions[serving.order(ranking.scores[ranking.shown])].tolist() == [0, 1, 2, 3, 4]


def test_sampled_rankings_have_plackett_luce_frequencies() -> None:
    sharp = np.log([4.0, 2.0, 1.0])
    drawn = [serving.sampled(sharp, uniforms(str(at), 3)) for at in range(4000)]
    first = [int(np.argmax(one)) for one in drawn]
    assert np.bincount(first) / 4000 == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.03)


def event(shown: Impression, clicks: list[int]) -> Feedback:
    return Feedback(
        f"e{clicks}", "clicks", shown.documents, shown.submitted, clicks=np.array(clicks, np.int64),
        odds=shown.odds, query="q",
    )  # fmt: skip


def measures_after(*records: Feedback) -> dict[str, float]:
    reducer = Reducer(initial_state(ModelConfig(("a", "b", "c"), exploration=1.0)))
    for record in records:
        assert reducer.apply(codec.dump_record(record))
    return reducer.state().measures()


def naive_wins(shown: Impression, clicks: list[int]) -> tuple[float, float, float]:
    assert shown.odds is not None
    weight = model = submitted = 0.0
    pairs = debiased.pairs(clicks, shown.odds)
    for (c, u), omega in zip(pairs.listed(), pairs.weights.tolist(), strict=True):
        weight += omega
        model += omega * (shown.odds[c] > shown.odds[u])
        submitted += omega * (shown.submitted[c] < shown.submitted[u])
    return weight, model, submitted


@pytest.mark.parametrize("seed", range(5))
def test_wins_of_both_orders_are_summed(seed: int) -> None:
    shown, _ = drawn(seed)
    sums = measures_after(event(shown, [2, 0]))
    found = [sums[name] for name in ("debiased_weight", "debiased_wins", "baseline_debiased_wins")]
    assert found == pytest.approx(naive_wins(shown, [2, 0]))


def test_later_clicks_on_a_ranking_do_not_count_it_twice() -> None:
    shown, _ = drawn(3)
    first, so_far = on_request(event(shown, [3]), PriorFeedback.load(b""))
    second, _ = on_request(event(shown, [1]), so_far)
    sums = measures_after(first, second)
    found = [sums[name] for name in ("debiased_weight", "debiased_wins", "baseline_debiased_wins")]
    assert found == pytest.approx(naive_wins(shown, [3, 1]))


def test_a_ranking_without_exploration_adds_no_wins() -> None:
    shown, _ = drawn(3)
    assert measures_after(replace(event(shown, [1]), odds=None))["debiased_weight"] == 0.0


@pytest.mark.parametrize("bad", [np.ones(5), np.ones((2, 3)), np.ones(6, np.float32), -np.ones(6)])
def test_a_record_with_invalid_odds_is_rejected(bad: np.ndarray) -> None:
    shown, _ = drawn(3)
    reducer = Reducer(initial_state(ModelConfig(("a", "b", "c"))))
    assert not reducer.apply(codec.dump_record(replace(event(shown, [1]), odds=bad)))
    assert reducer.state().measures()["rejected"] == 1.0
    assert reducer.state().measures()["queries"] == 0.0
