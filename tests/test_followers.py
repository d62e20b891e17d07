"""Followers: other folds of a leader's log, and what each record of the leader does to them."""

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.agreement import agreement
from app.domain.duels import Duel, EndDuel
from app.domain.followers import (
    follower_config,
    follower_state,
    promoted_config,
    taken_over,
)
from app.domain.model import SUMS, Model, ModelState, initial_state
from app.domain.model_config import EXPLORING, ModelConfig, new_model_config
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer, decoded
from app.errors import InvalidInput
from app.ranking import covariance, debiased
from app.ranking.certainty import UNKNOWN, Certainty
from tests import oracles_duels
from tests.duel_logs import Requests, folded, in_duel, random_feedback
from tests.test_codec import bits
from tests.test_debiased import probability
from tests.test_parts import stored_and_loaded
from tests.test_reducer import BAD, DOCUMENTS, only_rejected

#: Sums that a follower shares with a leader of the same settings.
LEARNING = (
    "stepped", "passive", "refused", "squared_loss", "feedback", "rejected", "bounded",
    "largest_gap",
)  # fmt: skip
OWN = ("compared", "agreeing", "passed_by")
FORMS = [("solar-i", "full"), ("solar-ii", "full"), ("solar-ii", "diagonal")]
PRIORS = {True: 0.045, False: 0.0}


def leader(**changes: Any) -> ModelState:
    config = new_model_config(("a", "b", "c"), **{"prior": 0.0, **changes})
    return initial_state(config, seed=b"a model of its own")


def follows(state: ModelState, records: list[Record]) -> ModelState:
    return folded(state, records, follows=True)


def trained(seed: int = 1, **changes: Any) -> Model:
    """A model that has learnt something."""
    return folded(leader(**changes), random_feedback(seed, 12)).model


def sums(state: ModelState, names: tuple[str, ...] = LEARNING) -> list[float]:
    found = state.measures()
    return [found[name] for name in names]


# ---- equal settings ----


@pytest.mark.parametrize("clicks", ["debiased", "fair-pairs", "click-skip-above"])
@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("seed", range(3))
def test_a_follower_with_the_settings_of_its_leader_has_its_bits(
    seed: int, form: Any, clicks: str
) -> None:
    """After each record of all kinds that apply to both."""
    begin = leader(algorithm=form[0], covariance=form[1], clicks=clicks, gamma=50.0)
    rng = np.random.default_rng(seed)
    warm = trained(algorithm=form[0], covariance=form[1], clicks=clicks, gamma=50.0)
    others: list[Record] = [
        ResetMeasures(),
        Replace(warm, "warm start"),
        Duel("submitted", 0.2, 0.05),
    ]
    blobs = [codec.dump_record(record) for record in random_feedback(seed, 40)]
    for blob in [*(codec.dump_record(one) for one in others), b"junk"]:
        blobs.insert(int(rng.integers(len(blobs))), blob)
    one, other = Reducer(begin), Reducer(follower_state(begin, begin.model.config), follows=True)
    for blob in blobs:
        assert one.apply(blob) == other.apply(blob)
        ahead, behind = one.state(), other.state()
        assert bits(ahead.model) == bits(behind.model)
        assert (ahead.seq, ahead.chain) == (behind.seq, behind.chain)
        assert sums(ahead) == sums(behind)
    assert behind.model.weights.any()


@pytest.mark.parametrize("what", [name for name in BAD if not isinstance(BAD[name], Retune)])
def test_a_follower_rejects_what_its_leader_rejects(what: str) -> None:
    state = follower_state(leader(), leader().model.config)
    state = follows(state, random_feedback(3, 5))
    blob = codec.dump_record(BAD[what])
    reducer = Reducer(state, follows=True)
    assert reducer.apply(blob) is False
    only_rejected(state, reducer.state(), blob)


@pytest.mark.parametrize("what", [name for name in BAD if isinstance(BAD[name], Replace)])
def test_a_follower_rejects_a_warm_start_that_is_no_model(what: str) -> None:
    state = follower_state(leader(), follower_config(leader().model.config, covariance="diagonal"))
    record = BAD[what]
    assert isinstance(record, Replace)
    reducer = Reducer(state, follows=True)
    blob = codec.dump_record(replace(record, reason="warm start"))
    assert reducer.apply(blob) is False
    only_rejected(state, reducer.state(), blob)


def test_one_infinite_feature_of_sent_documents_teaches_neither_of_both() -> None:
    documents = DOCUMENTS.copy()
    documents[3, 0] = np.inf
    event = Feedback("e", "labels", documents, labels=np.array([0.0, 1.0, 2.0, 0.0]))
    for state, own in ((leader(), False), (follower_state(leader(), leader().model.config), True)):
        assert not Reducer(state, follows=own).apply(codec.dump_record(event))


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_records_give_a_follower_the_same_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    begin = follower_state(leader(), follower_config(leader().model.config, gamma=5.0))
    records = random_feedback(seed, 25)
    reducer = Reducer(begin, follows=True)
    for blob in [codec.dump_record(record) for record in records]:
        complete = False
        while not complete:
            complete = reducer.apply_part(blob, decoded(blob), int(rng.integers(1, 5)))
            if rng.random() < 0.5:
                stored = stored_and_loaded(reducer.state(), reducer.part())
                reducer = Reducer(stored, follows=True)
    whole = follows(begin, records)
    assert bits(reducer.state()) == bits(whole)
    assert whole.measures()["compared"] > 0


# ---- measures ----


def test_a_follower_measures_pairs_and_agreement_only() -> None:
    state = follows(follower_state(leader(), leader().model.config), random_feedback(0, 40))
    assert {name for name, value in state.measures().items() if value} <= {*LEARNING, *OWN}
    assert state.measures()["squared_loss"] > 0.0
    assert state.measures()["mean_quality"] == state.measures()["drift"] == 0.0


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_the_agreement_is_the_share_of_pairs_in_the_same_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 15))
    rows = rng.standard_normal((count, 2)).astype(np.float32)
    submitted = rng.permutation(count + 3)[:count]
    scores = rng.integers(0, 4, count).astype(np.float64)
    event = Feedback("e", "clicks", rows, submitted)
    leaders = list(range(count))
    if seed % 3 == 1:
        odds = rng.integers(1, 4, count) / 4.0
        leaders = sorted(leaders, key=lambda d: (-odds[d], submitted[d]))
        pinned = rng.random(count) < 0.2
        odds[pinned] = -1.0
        leaders = [d for d in leaders if not pinned[d]]
        event = replace(event, odds=np.append(odds, 1.0))
    elif seed % 3 == 2:
        swaps = np.array([[at, rng.integers(2)] for at in range(0, count - 1, 2)])
        for upper, swapped in swaps:
            if swapped:
                leaders[upper], leaders[upper + 1] = upper + 1, upper
        event = replace(event, swaps=swaps)
    found = agreement(event, scores)
    if len(leaders) < 2:
        assert found is None
    else:
        expected = oracles_duels.agreement(leaders, scores.tolist(), submitted.tolist())
        assert found == pytest.approx(expected, abs=1e-12)


def test_lists_whose_leader_order_is_unknown_have_no_agreement() -> None:
    rows, scores = np.zeros((3, 2), np.float32), np.arange(3.0)
    assert agreement(Feedback("e", "labels", rows), scores) is None
    assert agreement(in_duel([1]), np.arange(6.0)) is None
    assert agreement(Feedback("e", "clicks", rows[:1], np.array([0])), scores[:1]) is None


def test_a_ranking_is_compared_once_and_a_reset_starts_again() -> None:
    join = Requests(counts_abandoned=True)
    plain = replace(in_duel([]), swaps=None, duel=None)
    log: list[Record] = [
        join(replace(plain, clicks=np.array(clicked, np.int64))) for clicked in ([], [1], [3])
    ]
    state = follows(follower_state(leader(), leader().model.config), log)
    assert state.measures()["compared"] == 1.0
    assert 0.0 <= state.measures()["agreeing"] <= 1.0
    assert not follows(state, [ResetMeasures()]).sums.any()


def test_a_leader_compares_nothing() -> None:
    assert sums(folded(leader(), random_feedback(0, 30)), OWN) == [0.0, 0.0, 0.0]


# ---- records of the leader ----


def expected_spread(model: Model, form: Any, fresh: Any) -> Any:
    """The covariance of another model in this form, by the rules."""
    if form[0] == "solar-i":
        return np.zeros(0)
    if (model.config.algorithm, model.config.covariance) == form:
        return model.spread
    if model.config.algorithm == "solar-i":
        return fresh
    n = model.config.n
    if form[1] == "diagonal":
        return np.diag(covariance.square(model.spread, n))
    return np.diag(model.spread)[np.tril_indices(n)]


@pytest.mark.parametrize(("of_leader", "form"), list(product(FORMS, FORMS)))
def test_a_follower_takes_a_warm_start_over_as_far_as_its_covariance_has_its_form(
    of_leader: Any, form: Any
) -> None:
    begin = leader(algorithm=of_leader[0], covariance=of_leader[1])
    warm = trained(algorithm=of_leader[0], covariance=of_leader[1], gamma=3.0)
    warm = replace(warm, certainty=Certainty(0.5, 9))
    config = follower_config(begin.model.config, algorithm=form[0], covariance=form[1], gamma=70.0)
    before = follower_state(begin, config)
    state = follows(before, [*random_feedback(2, 5), Replace(warm, "warm start")])
    assert state.model.config == config
    assert state.model.weights.tobytes() == warm.weights.tobytes()
    spread = expected_spread(warm, form, initial_state(config).model.spread)
    assert state.model.spread.tobytes() == spread.tobytes()
    assert state.model.certainty == (warm.certainty if of_leader == form else UNKNOWN)
    assert state.measures()["passed_by"] == 0.0
    assert bits(follower_state(replace(begin, model=warm), config).model) == bits(state.model)


@pytest.mark.parametrize(
    "reason", ["rollback to version 3", "without source web", "promotion of b", ""]
)
def test_other_replacements_are_counted_and_change_nothing(reason: str) -> None:
    before = follows(follower_state(leader(), leader().model.config), random_feedback(1, 10))
    after = follows(before, [Replace(trained(5), reason)])
    assert bits(after.model) == bits(before.model)
    assert after.measures() == {**before.measures(), "passed_by": 1.0}


@pytest.mark.parametrize(
    "record", [Retune(gamma=1.0, clicks="fair-pairs"), Duel("submitted", 0.2, 0.05), EndDuel(4)]
)
def test_settings_and_duels_of_the_leader_pass_a_follower_by(record: Record) -> None:
    before = follows(follower_state(leader(), leader().model.config), random_feedback(1, 10))
    after = follows(before, [record])
    assert bits(replace(after, seq=before.seq, chain=before.chain)) == bits(before)
    assert follows(before, [record, in_duel([1], duel=before.seq + 1)]).duel is None


def test_a_warm_start_with_other_features_is_rejected() -> None:
    state = follower_state(leader(), leader().model.config)
    other = initial_state(new_model_config(("a", "b", "z"), prior=0.0)).model
    assert not Reducer(state, follows=True).apply(codec.dump_record(Replace(other, "warm start")))


def test_a_warm_start_begins_the_forgetting_and_the_certainty_again() -> None:
    """As for its leader: the certainty is that of the record."""
    state = follower_state(leader(), leader().model.config)
    log: list[Record] = [*random_feedback(3, 10), Replace(trained(4), "warm start")]
    assert follows(state, log).model.certainty == folded(leader(), log).model.certainty


# ---- the first state ----


@pytest.mark.parametrize("prior", [True, False])
def test_a_follower_begins_with_the_weights_and_the_chain_of_its_leader(prior: bool) -> None:
    begin = leader(prior=PRIORS[prior])
    begin = replace(begin, seq=12, sums=begin.sums + 1.0)
    changes: dict[str, Any] = {"prior": 2.0} if prior else {}
    config = follower_config(begin.model.config, gamma=1e5, **changes)
    warm, cold = follower_state(begin, config), follower_state(begin, config, cold=True)
    for state in (warm, cold):
        assert (state.seq, state.chain, state.duel) == (12, begin.chain, None)
        assert state.sums.tolist() == [0.0] * len(SUMS)
        assert state.model.config == config
    assert bits(warm.model.weights) == bits(begin.model.weights)
    assert bits(cold.model) == bits(initial_state(config).model)
    if prior:
        assert cold.model.weights[-1] == 2.0
        assert config.prior_variance == 1e5 / 500.0


# ---- settings ----


@pytest.mark.parametrize(
    ("leaders", "clicks", "allowed"),
    [
        ("debiased", "fair-pairs", False), ("fair-pairs", "debiased", False),
        ("click-skip-above", "fair-pairs", False), ("click-skip-above", "debiased", True),
        ("debiased", "click-skip-above", True), ("fair-pairs", "click-skip-above", True),
        ("fair-pairs", "fair-pairs", True), ("debiased", "debiased", True),
    ],
)  # fmt: skip
def test_a_strategy_that_would_have_the_bits_of_another_is_refused(
    leaders: str, clicks: str, allowed: bool
) -> None:
    config = leader(clicks=leaders).model.config
    if allowed:
        assert follower_config(config, clicks=clicks).clicks == clicks
    else:
        with pytest.raises(InvalidInput, match="clicks: expected another strategy"):
            follower_config(config, clicks=clicks)


def test_both_strategies_of_randomised_rankings_read_the_rankings_of_a_leader_alike() -> None:
    """But for lists of duels; so a follower with the other one would tell nothing."""
    for how in ("sampled", "swapped"):
        log = random_feedback(1, 30, (how,))
        models = [folded(leader(clicks=one, pair_bound=1.0), log).model for one in EXPLORING]
        assert bits(models[0].weights) == bits(models[1].weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "solar-iii"}, "algorithm"), ({"covariance": "none"}, "covariance"),
        ({"gamma": 0.0}, "gamma"), ({"C": 1e30}, "C: "), ({"clicks": "guess"}, "clicks"),
        ({"forgetting": 0.5}, "forgetting"), ({"prior": 1.0}, "prior: expected none"),
        ({"algorithm": "solar-i", "forgetting": 1e-4}, "forgetting: expected 0 for solar-i"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        follower_config(leader().model.config, **changes)


def test_a_follower_of_a_leader_with_the_order_needs_a_weight_for_it() -> None:
    config = leader(prior=0.045).model.config
    assert follower_config(config, prior=3.0).prior == 3.0
    with pytest.raises(InvalidInput, match="prior: expected a weight above 0"):
        follower_config(config, prior=0.0)


def test_forgetting_follows_the_algorithm_unless_it_is_given() -> None:
    second, first = leader(forgetting=1e-3).model.config, leader(algorithm="solar-i").model.config
    assert follower_config(second).forgetting == 1e-3
    assert follower_config(second, algorithm="solar-i").forgetting == 0.0
    assert follower_config(first, algorithm="solar-ii").forgetting == 3e-5
    assert follower_config(first, algorithm="solar-ii", forgetting=0.0).forgetting == 0.0
    old = ModelConfig(("a", "b"))
    assert follower_config(old, gamma=5.0) == replace(old, gamma=5.0)


def test_a_full_covariance_of_too_many_features_is_refused() -> None:
    wide = new_model_config(tuple(f"f{at}" for at in range(3000)), covariance="diagonal")
    with pytest.raises(InvalidInput, match="features"):
        follower_config(wide, covariance="full")


@pytest.mark.parametrize("explores", [True, False])
@pytest.mark.parametrize("clicks", ["debiased", "click-skip-above"])
def test_a_promoted_follower_brings_its_settings_and_rankings_stay_as_random(
    clicks: str, explores: bool
) -> None:
    config = replace(leader().model.config, explore=explores, exploration=2.0, pair_bound=7.0)
    follower = follower_config(
        leader().model.config, algorithm="solar-ii", covariance="diagonal", gamma=3.0, clicks=clicks
    )
    found = promoted_config(config, follower)
    assert found.explores == explores
    assert (found.exploration, found.pair_bound) == (2.0, 7.0)  # the leader's present ones
    assert (found.covariance, found.gamma, found.clicks) == ("diagonal", 3.0, clicks)
    taken = taken_over(found, follower_state(leader(), follower).model)
    assert folded(leader(), [Replace(taken, "promotion of b")]).model.config == found


@pytest.mark.parametrize(
    ("leaders", "clicks"),
    [("debiased", "click-skip-above"), ("click-skip-above", "debiased"), ("debiased", "debiased")],
)
def test_the_default_of_randomising_rankings_does_not_follow_the_strategy_of_a_promoted_follower(
    leaders: str, clicks: str
) -> None:
    config = leader(clicks=leaders).model.config
    assert config.explore is None
    found = promoted_config(config, follower_config(config, clicks=clicks))
    assert (found.clicks, found.explores) == (clicks, config.explores)
    assert found.explores == (leaders == "debiased")


# ---- the odds of the leader ----


def test_the_probability_of_a_ranking_times_the_share_of_a_pair_is_symmetric_for_any_drawer() -> (
    None
):
    """`P(R)·ρ(R)`: both orders of a pair teach alike, for any model that learns from them."""
    for e in ([1.0, 0.6, 0.3, 0.1], [0.05, 1.0, 1.0, 0.2]):  # two drawers
        for order, (a, b) in product(permutations(range(4)), ((0, 1), (0, 3), (1, 3), (2, 3))):
            here = [e[d] for d in order]
            there = list(here)
            there[a], there[b] = here[b], here[a]
            weighted = [
                probability(drawn, 0.4)
                * debiased.pair_weights(np.array([b]), np.array([a]), np.array([*drawn, 0.4]), 1.0)[
                    0
                ]
                for drawn in (here, there)
            ]
            assert weighted[0] == pytest.approx(weighted[1], rel=1e-12)
