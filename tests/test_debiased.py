"""Debiased clicks against the chance of whole lists, listed place by place."""

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


def chance(drawn: list[float], rest: float) -> float:
    """Of a list that begins with these, of all lists of its documents: one draw after the other."""
    found, left = 1.0, math.fsum([*drawn, rest])
    for e in drawn:
        found *= e / left
        left -= e
    return found


@given(st.lists(odds, min_size=2, max_size=6), st.floats(0.1, 3.0), st.data())
def test_a_pair_weighs_as_the_chances_of_both_lists_say(
    shown: list[float], rest: float, data: st.DataObject
) -> None:
    clicks = data.draw(st.lists(st.integers(0, len(shown) - 1), min_size=1, unique=True))
    found = debiased.pairs(clicks, np.array([*shown, rest]))
    for (c, u), weight in zip(found.listed(), found.weights, strict=True):
        swapped = list(shown)
        swapped[c], swapped[u] = shown[u], shown[c]
        here, there = chance(shown, rest), chance(swapped, rest)
        assert weight == pytest.approx(10.0 * 2.0 * there / (here + there), rel=1e-6)


@given(st.sets(st.integers(0, 7)))
def test_the_pairs_are_the_clicked_over_what_was_seen_and_not_clicked(clicks: set[int]) -> None:
    found = debiased.pairs(list(clicks), np.ones(9)).listed()
    naive = [
        (c, u)
        for c in range(8) if c in clicks
        for u in range(8) if u not in clicks and u <= max(clicks) + 1
    ]  # fmt: skip
    assert found == naive


def test_over_all_lists_a_careless_user_prefers_nobody() -> None:
    """Clicks by place alone, whatever stands there: a sum over all lists, each with its chance."""
    e = [1.0, 0.4, 0.2, 0.05]
    won = np.zeros((4, 4))
    for order in permutations(range(4)):
        drawn = [e[d] for d in order]
        for place, click in enumerate([0.5, 0.3, 0.15, 0.05]):
            pairs = debiased.pairs([place], np.array([*drawn, 0.0]))
            for (c, u), weight in zip(pairs.listed(), pairs.weights, strict=True):
                won[order[c], order[u]] += chance(drawn, 0.0) * click * weight
    assert (won + won.T)[~np.eye(4, dtype=np.bool_)].min() > 0.1
    assert won == pytest.approx(won.T, rel=1e-9)  # each as often as its list with both exchanged
    plain = np.zeros((4, 4))  # the same, each pair as one
    for order in permutations(range(4)):
        for place, click in enumerate([0.5, 0.3, 0.15, 0.05]):
            for c, u in debiased.pairs([place], np.ones(5)).listed():
                plain[order[c], order[u]] += chance([e[d] for d in order], 0.0) * click
    assert plain[3, 0] > 1.4 * plain[0, 3]  # unweighted, what mostly stands below would win


def test_odds_out_of_reach_weigh_the_least() -> None:
    found = debiased.pairs([0], np.array([1.0, 0.0, 0.0]))
    assert found.weights.tolist() == [debiased.LEAST_WEIGHT]
    assert debiased.pairs([1], np.array([1e-300, 1e-320, 0.0])).weights[0] >= debiased.LEAST_WEIGHT


@pytest.mark.parametrize("bad", [[1.0, math.nan], [math.inf, 0.0], [-0.5, 0.0], [1.0, -1.0]])
def test_odds_that_are_none_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="odds: expected"):
        debiased.pairs([0], np.array(bad))


def test_clicks_below_the_list_are_refused() -> None:
    with pytest.raises(ValueError, match="clicks: expected positions below 2"):
        debiased.pairs([2], np.ones(3))


# ---- from a drawn list to the sums ----


def drawn(seed: int, documents: int = 8, top: int = 5) -> tuple[Impression, candidates.Ranking]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((documents, 3)).astype(np.float32)
    explore = candidates.Exploration("drawn", partial(uniforms, str(seed)))
    ranking = candidates.rank_candidates(rows, np.array([0.3, -0.2, 0.1]), top, explore)
    ids = tuple(map(str, ranking.shown))
    return Impression(ids, rows[ranking.shown], ranking.shown, ranking.odds), ranking


def test_what_is_remembered_is_what_was_drawn_from() -> None:
    shown, ranking = drawn(1)
    assert shown.odds is not None
    s = 8.0 * ranking.scores / ranking.scores.std()
    e = np.exp(s - s.max())
    assert shown.odds[:-1] == pytest.approx(e[ranking.shown])
    assert shown.odds[-1] == pytest.approx(e.sum() - e[ranking.shown].sum())
    again = Impression.load(shown.dump())
    assert again.odds is not None
    assert (again.odds == shown.odds).all()
    places = debiased.plain_places(shown.odds, shown.submitted)
    assert places[serving.order(ranking.scores[ranking.shown])].tolist() == [0, 1, 2, 3, 4]


def test_lists_are_drawn_as_their_chances_say() -> None:
    sharp = np.log([4.0, 2.0, 1.0])
    drawn = [serving.sampled(sharp, uniforms(str(at), 3)) for at in range(4000)]
    first = [int(np.argmax(one)) for one in drawn]
    assert np.bincount(first) / 4000 == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.03)


def event(shown: Impression, clicks: list[int]) -> Feedback:
    return Feedback(
        f"e{clicks}", "clicks", shown.documents, shown.submitted, clicks=np.array(clicks, np.int64),
        odds=shown.odds, query="q",
    )  # fmt: skip


def folded(*records: Feedback) -> dict[str, float]:
    fold = Reducer(initial_state(ModelConfig(("a", "b", "c"))))
    for record in records:
        assert fold.apply(codec.dump_record(record))
    return fold.state().measures()


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
    sums = folded(event(shown, [2, 0]))
    found = [sums[name] for name in ("debiased_weight", "debiased_wins", "baseline_debiased_wins")]
    assert found == pytest.approx(naive_wins(shown, [2, 0]))


def test_more_clicks_on_a_list_count_it_once() -> None:
    shown, _ = drawn(3)
    first, so_far = on_request(event(shown, [3]), PriorFeedback.load(b""))
    second, _ = on_request(event(shown, [1]), so_far)
    sums = folded(first, second)
    found = [sums[name] for name in ("debiased_weight", "debiased_wins", "baseline_debiased_wins")]
    assert found == pytest.approx(naive_wins(shown, [3, 1]))


def test_a_list_that_was_not_drawn_judges_nobody() -> None:
    shown, _ = drawn(3)
    assert folded(replace(event(shown, [1]), odds=None))["debiased_weight"] == 0.0


@pytest.mark.parametrize("bad", [np.ones(5), np.ones((2, 3)), np.ones(6, np.float32), -np.ones(6)])
def test_a_record_with_odds_that_cannot_be_is_rejected(bad: np.ndarray) -> None:
    shown, _ = drawn(3)
    fold = Reducer(initial_state(ModelConfig(("a", "b", "c"))))
    assert not fold.apply(codec.dump_record(replace(event(shown, [1]), odds=bad)))
    assert fold.state().measures()["rejected"] == 1.0
    assert fold.state().measures()["queries"] == 0.0
