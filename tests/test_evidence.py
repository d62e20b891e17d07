"""The evidence of a duel: exact formulas, Ville's bound, and what is computed from it."""

from fractions import Fraction
from math import exp, log

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.duels import Duel, DuelState, with_clicks
from app.ranking import evidence
from app.ranking.evidence import factor, interval, lists_to_go, log_evidence
from tests import oracles_duels

counts = st.integers(0, 400)
alphas = st.sampled_from([0.2, 0.05, 0.01, 1e-6])
NO_EVENTS = np.zeros(0, np.int64)


def played(results: list[int], alpha: float = 0.05) -> DuelState:
    """A duel after lists with one click each: 1 is a win of the champion, -1 a loss."""
    duel = DuelState(7, Duel("shop-b", 0.2, alpha))
    for one in results:
        duel = with_clicks(duel, np.array([1, -1]), np.array([0 if one > 0 else 1]), NO_EVENTS)
    return duel


@given(st.lists(st.sampled_from([1, -1]), max_size=150))
def test_the_evidence_is_the_closed_formula_at_every_step(results: list[int]) -> None:
    largest = 1.0
    for many in range(len(results) + 1):
        some = results[:many]
        exact = float(oracles_duels.evidence(some.count(1), some.count(-1)))
        largest = max(largest, exact)
        if many % 10 == 0 or many == len(results):
            duel = played(some)
            assert duel.evidence == pytest.approx(exact, rel=1e-12)
            assert duel.largest == pytest.approx(largest, rel=1e-12)


@given(counts, counts)
def test_the_logarithm_of_the_evidence_is_the_closed_formula(wins: int, losses: int) -> None:
    exact = oracles_duels.evidence(wins, losses)
    assert exp(log_evidence(wins, losses)) == pytest.approx(float(exact), rel=1e-9)


@given(st.integers(0, 5), st.integers(0, 5))
def test_the_order_of_wins_and_losses_does_not_matter(wins: int, losses: int) -> None:
    found = 1.0
    for at in range(wins):
        found *= factor(at, at)
    for at in range(losses):
        found *= factor(at, wins + at)
    assert found == pytest.approx(float(oracles_duels.evidence(wins, losses)), rel=1e-13)


def test_equal_sides_expect_the_evidence_to_stay_the_same() -> None:
    """E is a martingale: the mean of its two next values is E, exactly."""
    for wins, losses in ((0, 0), (3, 1), (20, 60)):
        now = oracles_duels.evidence(wins, losses)
        nexts = oracles_duels.evidence(wins + 1, losses), oracles_duels.evidence(wins, losses + 1)
        assert sum(nexts, Fraction(0)) / 2 == now


def test_equal_sides_reach_a_verdict_no_more_often_than_alpha() -> None:
    """Ville's bound, for somebody who looks after every list: 500 duels of 2,000 lists."""
    alpha, rng = 0.05, np.random.default_rng(1)
    won = rng.integers(0, 2, (500, 2000))
    wins, decided = won.cumsum(axis=1) - won, np.arange(2000)
    same = np.where(won == 1, wins, decided - wins)
    factors = 2.0 * (same + evidence.SPREAD) / (decided + 2.0 * evidence.SPREAD)
    assert factors[3, 700] == factor(int(same[3, 700]), 700)
    reached = (np.cumprod(factors, axis=1) >= 1.0 / alpha).any(axis=1)
    assert 0 < reached.sum() <= alpha * 500


def test_the_evidence_stays_finite() -> None:
    duel = played([1] * 3000)
    assert duel.evidence == duel.largest == evidence.MOST_EVIDENCE
    after = with_clicks(duel, np.array([1, -1]), np.array([1]), NO_EVENTS)
    assert 0.0 < after.evidence < after.largest == evidence.MOST_EVIDENCE
    assert duel.verdict == after.verdict == 1


def test_a_verdict_stands_from_the_first_time_on_and_names_the_side_that_leads() -> None:
    lost = played([-1] * 200)
    assert lost.verdict == -1
    turned = played([-1] * 40 + [1] * 3000)
    assert turned.evidence > 1e6
    assert turned.verdict == played([-1] * 40).verdict == -1


@pytest.mark.parametrize("alpha", [0.2, 0.05, 1e-6])
def test_a_verdict_needs_the_evidence_of_its_alpha(alpha: float) -> None:
    wins = next(many for many in range(1000) if oracles_duels.evidence(many, 0) >= 1 / alpha)
    assert played([1] * (wins - 1), alpha).verdict == 0
    assert played([1] * wins, alpha).verdict == 1


# ---- interval ----


@given(counts, counts, alphas)
def test_the_interval_has_the_shares_that_the_evidence_does_not_exclude(
    wins: int, losses: int, alpha: float
) -> None:
    low, high = interval(wins, losses, alpha)
    share = wins / (wins + losses) if wins + losses else 0.5
    assert 0.0 <= low <= share <= high <= 1.0
    for end, edge in ((low, 0.0), (high, 1.0)):
        inside = end + (share - end) * 1e-6
        assert log_evidence(wins, losses, inside) < -log(alpha) + 1e-6
        assert end == edge or log_evidence(wins, losses, end) >= -log(alpha)


@given(counts, counts, alphas)
def test_the_interval_excludes_one_half_if_there_is_enough_evidence(
    wins: int, losses: int, alpha: float
) -> None:
    low, high = interval(wins, losses, alpha)
    found = log_evidence(wins, losses)
    assume(abs(found + log(alpha)) > 1e-6)
    assert (not low < 0.5 < high) == (found >= -log(alpha))


@given(counts, counts)
def test_the_interval_of_exchanged_sides_is_mirrored(wins: int, losses: int) -> None:
    low, high = interval(wins, losses, 0.05)
    assert interval(losses, wins, 0.05) == pytest.approx((1.0 - high, 1.0 - low), abs=1e-9)


@given(counts, counts)
def test_a_smaller_alpha_gives_a_wider_interval(wins: int, losses: int) -> None:
    wide, narrow = interval(wins, losses, 0.01), interval(wins, losses, 0.1)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]


def test_no_list_excludes_no_share() -> None:
    assert interval(0, 0, 0.05) == (0.0, 1.0)


# ---- lists to go ----


@given(counts, counts, alphas)
def test_the_lists_to_go_are_the_fewest_that_give_a_verdict_at_this_rate(
    wins: int, losses: int, alpha: float
) -> None:
    found, n = lists_to_go(wins, losses, alpha), wins + losses

    def enough(more: int) -> bool:
        return log_evidence(wins * (1 + more / n), losses * (1 + more / n)) >= -log(alpha)

    if found is None:
        assert n == 0 or not enough(evidence.MOST_TO_GO)
    else:
        assert enough(found + 1)
        assert found == 0 or not enough(found - 1)


def test_a_duel_of_equal_sides_has_no_number_of_lists_to_go() -> None:
    assert lists_to_go(1000, 1000, 0.05) is None
    assert lists_to_go(0, 0, 0.05) is None
