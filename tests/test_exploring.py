"""Randomised rankings: swapped neighbours, pinned documents, and learning from clicks on them."""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.admin_schemas import ClickStrategy
from app.domain import candidates, codec
from app.domain.candidates import Exploration
from app.domain.impressions import Impression, PriorFeedback, on_request
from app.domain.model import ModelState, Positions, initial_state
from app.domain.model_config import (
    EXPLORING,
    Algorithm,
    Covariance,
    ModelConfig,
    check_config,
    new_model_config,
)
from app.domain.records import Feedback, ResetMeasures, Retune
from app.domain.reducer import Reducer
from app.ranking import debiased, fair, serving
from app.ranking.certainty import UNKNOWN
from app.ranking.clicks import CLASSICAL_STRATEGIES, CLICK_STRATEGIES
from app.ranking.covariance import diagonal
from app.ranking.limits import KAPPA
from app.ranking.pairs import Pairs
from app.ranking.serving import uniforms
from app.ranking.solar import SolarII

NO_PINS = np.zeros(0, np.int64)
lengths = st.integers(1, 12)


def sampling(name: object) -> Exploration:
    return Exploration("sampled", partial(uniforms, str(name)))


def swapping(name: object) -> Exploration:
    return Exploration("swapped", partial(uniforms, str(name)))


# ---- uniforms ----


def test_uniforms_are_deterministic_per_name_and_evenly_distributed() -> None:
    assert (uniforms("a", 4) == uniforms("a", 9)[:4]).all()
    assert uniforms("a", 1) != uniforms("b", 1)
    many = uniforms("many", 100_000)
    assert 0.0 < many.min() < many.max() < 1.0
    assert np.histogram(many, 10, (0, 1))[0] == pytest.approx(10_000, abs=400)


# ---- neighbours ----


@given(lengths, st.text(max_size=5), st.sets(st.integers(0, 11)))
def test_only_paired_neighbours_are_swapped(length: int, name: str, held: set[int]) -> None:
    fixed = np.array(sorted(at for at in held if at < length), np.int64)
    moved, swaps = serving.swapped(np.arange(length), uniforms(name, 1 + length // 2), fixed)
    paired = dict(swaps.tolist())
    for upper, exchanged in paired.items():
        expected = [upper + 1, upper] if exchanged else [upper, upper + 1]
        assert moved[upper : upper + 2].tolist() == expected
    of_pairs = {*paired, *(upper + 1 for upper in paired)}
    assert len(of_pairs) == 2 * len(paired)
    assert not of_pairs & set(fixed.tolist())
    assert all(moved[at] == at for at in range(length) if at not in of_pairs)
    assert (fair.model_positions(swaps, length) == moved).all()
    fair.checked_swaps(swaps, length)


def test_each_pair_of_neighbours_is_shown_in_both_orders_equally_often() -> None:
    seen = np.zeros((4, 2))
    for at in range(4000):
        _, swaps = serving.swapped(np.arange(5), uniforms(str(at), 3), NO_PINS)
        for upper, exchanged in swaps.tolist():
            seen[upper, exchanged] += 1
    assert seen == pytest.approx(np.full((4, 2), 1000.0), abs=120)


@given(st.sets(st.integers(0, 8)), st.integers(0, 1))
def test_a_document_clicked_alone_is_preferred_to_its_neighbour(
    clicks: set[int], first: int
) -> None:
    swaps = np.array([[upper, 0] for upper in range(first, 8, 2)])
    naive = [
        (upper, upper + 1) if upper in clicks else (upper + 1, upper)
        for upper in range(first, 8, 2)
        if (upper in clicks) != (upper + 1 in clicks)
    ]
    found = fair.pairs(sorted(clicks), swaps, 9)
    assert found.listed() == naive
    assert found.weights.tolist() == [100.0] * len(naive)


def test_clicks_that_depend_on_position_alone_prefer_no_document_over_all_swaps() -> None:
    won = np.zeros((4, 4))
    for first, *coins in product((0.0, 0.9), (0.0, 0.9), (0.0, 0.9)):
        shown, swaps = serving.swapped(np.arange(4), np.array([first, *coins]), NO_PINS)
        for position, click in enumerate([0.5, 0.3, 0.15, 0.05]):
            for c, u in fair.pairs([position], swaps, 4).listed():
                won[shown[c], shown[u]] += click
    assert won.sum() > 0.0
    assert won == pytest.approx(won.T)


@pytest.mark.parametrize(
    "bad",
    [
        np.array([[0.0, 1.0]]),
        np.array([0, 1]),
        np.array([[0, 1, 0]]),
        np.array([[-1, 0]]),
        np.array([[3, 0]]),
        np.array([[0, 2]]),
        np.array([[0, 0], [1, 0]]),
        np.array([[2, 0], [0, 0]]),
    ],
)
def test_impossible_swaps_are_refused(bad: Positions) -> None:
    with pytest.raises(ValueError, match="swaps: expected"):
        fair.checked_swaps(bad, 4)
    record = replace(clicked(shown_list(swapping(1), top=4), [1]), swaps=bad)
    reducer = Reducer(initial_state(ModelConfig(("a", "b", "c"), clicks="fair-pairs")))
    assert not reducer.apply(codec.dump_record(record))


# ---- pinned ----


@given(lengths, st.sets(st.integers(0, 11)), st.integers(1, 12), st.text(max_size=3))
def test_pinned_documents_keep_their_positions_and_the_others_move(
    count: int, held: set[int], top: int, name: str
) -> None:
    rows = np.random.default_rng(count).standard_normal((count, 2)).astype(np.float32)
    pinned = np.array(sorted(at for at in held if at < count), np.int64)
    others = [at for at in range(count) if at not in held]
    for explore in (None, sampling(name), swapping(name)):
        found = candidates.rank_candidates(rows, np.array([1.0, -0.5]), top, explore, pinned)
        shown = found.shown.tolist()
        assert len(set(shown)) == len(shown) == min(top, count)
        assert all(at >= len(shown) or shown[at] == at for at in pinned.tolist())
        if explore is None:
            best = sorted(others, key=lambda at: -found.scores[at])
            free = [at for at in shown if at not in held]
            assert free == best[: len(free)]


def test_nothing_is_learnt_about_a_pinned_document() -> None:
    rows = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)
    weights = np.array([0.3, -0.2, 0.1])
    found = candidates.rank_candidates(rows, weights, 5, sampling(2), np.array([1, 5]))
    assert found.odds is not None
    assert found.odds[1] == serving.PINNED
    without = debiased.pairs([0, 2], np.delete(found.odds, 1))
    # Position 2 without the pinned document is position 3 with it.
    pairs = debiased.pairs([0, 3], found.odds)
    back = [(p - (p > 1), o - (o > 1)) for p, o in pairs.listed()]
    assert back == [pair for pair in without.listed() if pair[1] < 4]
    assert pairs.weights == pytest.approx(without.weights)
    assert debiased.pairs([1], found.odds).listed() == []


def test_a_ranking_of_pinned_documents_only_keeps_the_submitted_order() -> None:
    rows = np.eye(3, dtype=np.float32)
    for explore in (None, sampling(1), swapping(1)):
        found = candidates.rank_candidates(rows, np.ones(3), 2, explore, np.arange(3))
        assert found.shown.tolist() == [0, 1]
        assert not found.explored


# ---- learning ----

WEIGHTS = np.array([0.3, -0.2, 0.1])


def shown_list(explore: Exploration | None, top: int = 5) -> Impression:
    rows = np.random.default_rng(7).standard_normal((8, 3)).astype(np.float32)
    found = candidates.rank_candidates(rows, WEIGHTS, top, explore)
    ids = tuple(map(str, found.shown))
    return Impression(ids, rows[found.shown], found.shown, found.odds, found.swaps)


def clicked(shown: Impression, clicks: list[int]) -> Feedback:
    return Feedback(
        f"e{clicks}", "clicks", shown.documents, shown.submitted,
        clicks=np.array(clicks, np.int64), odds=shown.odds, swaps=shown.swaps, query="q",
    )  # fmt: skip


def applied(clicks: str, *records: Feedback, exploration: float | None = 1.0) -> ModelState:
    config = ModelConfig(("a", "b", "c"), clicks=clicks, exploration=exploration)
    reducer = Reducer(initial_state(config))
    for record in records:
        assert reducer.apply(codec.dump_record(record))
    return reducer.state()


def learnt_weights(shown: Impression, *batches: Pairs) -> list[float]:
    learner = SolarII(3)
    for pairs in batches:
        learner.learn_pairs(shown.documents, pairs)
    return [float(one) for one in learner.weights]


def test_debiased_clicks_are_learnt_with_the_weight_of_each_pair() -> None:
    shown = shown_list(sampling(1))
    assert shown.odds is not None
    pairs = debiased.pairs([3, 1], shown.odds)
    assert len(set(pairs.weights.tolist())) > 2
    state = applied("debiased", clicked(shown, [3, 1]))
    assert state.model.weights.tolist() == learnt_weights(shown, pairs)
    assert state.measures()["stepped"] == len(pairs) > 0


def test_a_model_from_before_exploration_keeps_the_weights_of_its_pairs() -> None:
    shown = shown_list(sampling(1))
    assert shown.odds is not None
    former = applied("debiased", clicked(shown, [3, 1]), exploration=None)
    pairs = debiased.pairs([3, 1], shown.odds, kappa=10.0)
    assert former.model.weights.tolist() == learnt_weights(shown, pairs)
    assert former.model.certainty == UNKNOWN
    assert former.measures()["drift"] == former.measures()["mean_quality"] == 0.0


def test_more_clicks_on_a_sampled_ranking_add_only_new_pairs() -> None:
    shown = shown_list(sampling(1))
    assert shown.odds is not None
    first, so_far = on_request(clicked(shown, [3]), PriorFeedback.load(b""))
    second, _ = on_request(clicked(shown, [1]), so_far)
    before, both = debiased.pairs([3], shown.odds), debiased.pairs([3, 1], shown.odds)
    new = both.some(np.array([pair not in before.listed() for pair in both.listed()]))
    assert 0 < len(new) < len(both)
    state = applied("debiased", first, second)
    assert state.model.weights.tolist() == learnt_weights(shown, before, new)


def test_fair_pairs_are_learnt_and_counted_in_the_debiased_wins() -> None:
    shown = shown_list(swapping(3))
    assert shown.swaps is not None
    state = applied("fair-pairs", clicked(shown, [1]))
    pairs = fair.pairs([1], shown.swaps, 5)
    assert len(pairs) == 1
    assert state.model.weights.tolist() == learnt_weights(shown, pairs)
    sums, (c, u) = state.measures(), pairs.listed()[0]
    plain = fair.model_positions(shown.swaps, 5)
    assert sums["debiased_weight"] == 1.0
    assert sums["debiased_wins"] == 1.0 * (plain[c] < plain[u])
    assert sums["baseline_debiased_wins"] == 1.0 * (shown.submitted[c] < shown.submitted[u])


@pytest.mark.parametrize("strategy", ["debiased", "fair-pairs"])
def test_clicks_without_exploration_teach_nothing_but_are_measured(strategy: str) -> None:
    sums = applied(strategy, clicked(shown_list(None), [3])).measures()
    assert (sums["stepped"], sums["passive"], sums["debiased_weight"]) == (0.0, 0.0, 0.0)
    assert (sums["queries"], sums["explored_queries"]) == (1.0, 0.0)


def drawn_at_equal_scores(name: object, top: int = 5) -> Impression:
    rows = np.random.default_rng(7).standard_normal((8, 3)).astype(np.float32)
    found = candidates.rank_candidates(rows, np.zeros(3), top, sampling(name))
    assert found.explored
    return Impression(tuple("abcdefgh")[:top], rows[found.shown], found.shown, found.odds)


def test_with_equal_scores_every_order_is_equally_likely_and_clicks_are_learnt() -> None:
    shown = drawn_at_equal_scores(1)
    assert sorted(shown.submitted.tolist()) != shown.submitted.tolist()
    state = applied("debiased", clicked(shown, [2]))
    pairs = Pairs(np.array([2, 2, 2]), np.array([0, 1, 3]), np.full(3, KAPPA))
    assert state.model.weights.tolist() == learnt_weights(shown, pairs)
    assert state.measures()["explored_queries"] == 1.0
    assert state.measures()["debiased_weight"] == 0.0  # the model has no order of its own
    first = [drawn_at_equal_scores(at).submitted[0] for at in range(800)]
    assert np.bincount(first) == pytest.approx([100] * 8, abs=40)


def test_a_ranking_in_the_submitted_order_at_equal_scores_does_not_count_as_explored() -> None:
    shown = shown_list(None)
    rows, submitted, odds = shown.documents, np.arange(5), np.array([1.0] * 5 + [3.0])
    record = clicked(Impression(shown.ids, rows, submitted, odds), [2])
    assert applied("debiased", record).measures()["explored_queries"] == 0.0


@pytest.mark.parametrize("explore", [None, sampling(4), swapping(4)])
def test_randomised_rankings_are_also_measured_separately(explore: Exploration | None) -> None:
    sums = applied("click-skip-above", clicked(shown_list(explore), [1])).measures()
    for name in ("queries", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg", "map"):
        assert sums[f"explored_{name}"] == (sums[name] if explore else 0.0), name
    assert sums["ndcg"] > 0.0


def test_a_randomised_ranking_with_more_clicks_counts_once() -> None:
    shown = shown_list(sampling(4))
    first, so_far = on_request(clicked(shown, [4]), PriorFeedback.load(b""))
    second, _ = on_request(clicked(shown, [0]), so_far)
    sums = applied("debiased", first, second).measures()
    whole = applied("debiased", clicked(shown, [4, 0])).measures()
    for name in ("queries", "ndcg@1", "ndcg@10", "map"):
        assert sums[f"explored_{name}"] == pytest.approx(whole[f"explored_{name}"])


def test_a_reset_also_resets_the_measures_of_randomised_rankings() -> None:
    reducer = Reducer(applied("debiased", clicked(shown_list(sampling(4)), [1])))
    assert reducer.apply(codec.dump_record(ResetMeasures()))
    assert reducer.state().measures()["explored_queries"] == 0.0


# ---- settings ----


def test_api_core_and_settings_have_the_same_click_strategies() -> None:
    assert set(get_args(ClickStrategy)) == set(CLICK_STRATEGIES)
    assert set(CLICK_STRATEGIES) == {*CLASSICAL_STRATEGIES, *EXPLORING}


def test_a_new_model_has_debiased_clicks_and_a_prior_on_the_submitted_order() -> None:
    settings = new_model_config(("a", "b"))
    assert (settings.clicks, settings.explores, settings.prior) == ("debiased", True, 0.045)
    assert (settings.exploration, settings.forgetting) == (1.0, 3e-5)
    assert (settings.given, settings.features) == (("a", "b"), ("a", "b", "_order"))
    model = initial_state(settings).model
    assert model.weights.tolist() == [0.0, 0.0, 0.045]
    assert model.spread[diagonal(3)].tolist() == [1.0, 1.0, 1e4 / 500]
    rows = candidates.as_documents(np.ones((4, 2)), "none", 1.0, ordered=True)
    assert candidates.rank_candidates(rows, model.weights, None).shown.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("algorithm", ["solar-i", "solar-ii"])
def test_every_type_of_model_can_have_a_prior_or_none(
    algorithm: Algorithm, covariance: Covariance
) -> None:
    for prior in (None, 0.0, 0.7):
        settings = new_model_config(
            ("a", "b"), algorithm=algorithm, covariance=covariance, prior=prior
        )
        state = initial_state(settings)
        assert Reducer(state).state().model.weights.tolist() == state.model.weights.tolist()
        assert len(state.model.weights) == (2 if prior == 0.0 else 3)


def test_a_model_with_the_maximum_number_of_features_has_no_prior() -> None:
    names = tuple(map(str, range(2000)))
    assert new_model_config(names).prior == 0.0
    assert new_model_config(names, covariance="diagonal").prior == 0.045
    with pytest.raises(ValueError, match="expected 1 to 1999 with a prior, got 2000"):
        new_model_config(names, prior=0.25)


def test_a_prior_that_clicks_contradict_fades() -> None:
    """Users click by a hidden utility; documents are submitted in the opposite order."""
    state = initial_state(new_model_config(("a",)))
    reducer = Reducer(state)
    for at in range(800):
        utility = np.sort(uniforms(f"u{at}", 10))
        rows = candidates.as_documents(utility[:, None], "none", 1.0, ordered=True)
        found = candidates.rank_candidates(rows, reducer.state().model.weights, 10, sampling(at))
        best = int(np.argmax(utility[found.shown]))
        shown = Impression(tuple(map(str, found.shown)), rows[found.shown], found.shown, found.odds)
        assert reducer.apply(codec.dump_record(replace(clicked(shown, [best]), event=f"e{at}")))
    a, order = reducer.state().model.weights
    assert a > 0.0
    assert a > order
    rows = candidates.as_documents(np.linspace(0, 1, 10)[:, None], "none", 1.0, ordered=True)
    assert candidates.rank_candidates(rows, reducer.state().model.weights, 1).shown.tolist() == [9]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ModelConfig(("a", "_order")), "features: expected names other than _order"),
        (ModelConfig(("a",), prior=0.5), "features: expected 1 to 1999 with a prior, got 0"),
        (ModelConfig(("a", "b"), prior=0.5), "features: expected names other than _order"),
        (ModelConfig(("a", "_order"), prior=-0.5), "prior: expected a number from 0"),
        (ModelConfig(("a", "_order"), prior=float("nan")), "prior: expected a number from 0"),
        (ModelConfig(("a",), clicks="luck"), "clicks: expected one of"),
    ],
)
def test_invalid_settings_are_refused_with_the_reason(settings: ModelConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_config(settings)


def test_prior_and_exploration_survive_encoding() -> None:
    for settings in (
        new_model_config(("a", "b"), explore=False),
        new_model_config(("a", "b"), prior=0.0, explore=True),
        ModelConfig(("a",)),
    ):
        assert codec.load_config(codec.dump_config(settings)) == settings
    assert codec.dump_config(ModelConfig(("a",))).keys().isdisjoint({"prior", "explore"})


def test_exploration_follows_the_click_strategy_unless_it_is_set() -> None:
    reducer = Reducer(initial_state(ModelConfig(("a",))))
    explores = [reducer.config.explores]
    for change in (Retune(clicks="debiased"), Retune(explore=False), Retune(clicks="fair-pairs")):
        assert reducer.apply(codec.dump_record(change))
        explores.append(reducer.config.explores)
    assert explores == [False, True, False, False]
    assert reducer.config.clicks == "fair-pairs"
