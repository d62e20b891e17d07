"""Simulated duels agree with the service: the same lists, clicks, outcomes, evidence, verdicts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.duels import Duel, DuelState, with_clicks
from app.evaluation.synthetic import SyntheticData
from app.ranking import duel_traffic, interleaving, serving
from app.ranking import users as crowd
from app.ranking.arrays import Floats, Integers
from app.ranking.duel_traffic import Orders
from app.ranking.online import LabelledQuery
from app.ranking.traffic import Site

ALPHA = 0.05


def site(rng: np.random.Generator, queries: int = 12) -> Site:
    """Queries with 1 to 14 documents, some of them equal."""
    _, found = SyntheticData(4, queries, 14).draw(rng)
    short = [rng.integers(1, 15) for _ in found]
    return Site.of(
        [
            LabelledQuery(one.labels[:many], one.documents[:many].round(1))
            for one, many in zip(found, short, strict=True)
        ]
    )


def order(site: Site, weights: Floats | None, q: int) -> Integers:
    documents = site.of_query(q)
    if weights is None:
        return np.arange(len(documents))
    return serving.order(np.einsum("ij,j->i", documents.astype(np.float64), weights))


def outcome(drawn: interleaving.Draft, clicks: Integers, each_click: bool) -> int:
    """The outcome of a list that is alone in a duel, by the domain's own state."""
    duel = DuelState(1, Duel("shop-b", 0.5, ALPHA))
    events = [clicks[: at + 1] for at in range(len(clicks))] if each_click else [clicks]
    for at, so_far in enumerate(events):
        ends = np.array([len(earlier) for earlier in events[:at]], np.int64)
        duel = with_clicks(duel, drawn.teams, so_far, ends)
    return duel.won - duel.lost


@given(
    seed=st.integers(0, 2**31), length=st.integers(1, 12), each_click=st.booleans(),
    attackers=st.sampled_from([0.0, 0.3]), stop=st.sampled_from(crowd.STOPS),
    name=st.sampled_from(crowd.USER_NAMES), sides=st.sampled_from(["two", "submitted", "equal"]),
)  # fmt: skip
def test_simulated_lists_and_outcomes_are_those_of_the_service(
    seed: int, length: int, each_click: bool, attackers: float, stop: str, name: str, sides: str
) -> None:
    rng = np.random.default_rng(seed)
    found = site(rng)
    first: Floats | None = rng.standard_normal(4)
    second = {"two": rng.standard_normal(4), "submitted": None, "equal": first}[sides]
    users = crowd.users(name, 3, length, stop, attackers)
    numbers = rng.random((40, duel_traffic.numbers_of_a_list(length)))
    queries = rng.integers(len(found.ideal), size=40)
    orders = Orders.of(found, first, second, length)
    outcomes = np.full(40, 9)
    duel_traffic.judge_lists(found.labels, *orders, queries, numbers, *users, each_click, outcomes)
    expected = []
    for q, uniforms in zip(queries.tolist(), numbers, strict=True):
        both = order(found, first, q), order(found, second, q)
        coins = uniforms[1 + 2 * length :]
        drawn = interleaving.team_draft(*both, min(length, len(both[0])), coins)
        labels = found.labels[found.starts[q] + drawn.shown]
        clicks = crowd.clicks(users, labels, uniforms[: 1 + 2 * length])
        expected.append(outcome(drawn, clicks, each_click))
        shown, teams = np.full(length, -9), np.full(length, -9)
        count = duel_traffic.draft(orders.first[q], orders.second[q], coins, shown, teams)
        assert (shown[:count] - found.starts[q]).tolist() == drawn.shown.tolist()
        assert teams[:count].tolist() == drawn.teams.tolist()
    assert outcomes.tolist() == expected


@pytest.mark.parametrize("share", [0.5, 0.6, 1.0])
def test_simulated_evidence_has_the_bits_of_the_duels_state(share: float) -> None:
    rng = np.random.default_rng(4)
    outcomes = np.where(rng.random(1500) < share, 1, -1) * (rng.random(1500) < 0.7)
    evidence = duel_traffic.evidence_after(outcomes[outcomes != 0])
    state, decided = DuelState(1, Duel("shop-b", 0.5, ALPHA)), 0
    none, click = np.zeros(0, np.int64), np.zeros(1, np.int64)
    verdict = duel_traffic.DuelVerdict(0, len(outcomes), int(np.count_nonzero(outcomes)))
    for at, one in enumerate(outcomes.tolist()):
        before = state.verdict
        state = with_clicks(state, np.array([one or 1]), click if one else none, none)
        if one:
            assert state.evidence == evidence[decided]
            decided += 1
        if state.verdict and not before:
            verdict = duel_traffic.DuelVerdict(state.verdict, at + 1, decided)
    assert duel_traffic.verdict(outcomes, ALPHA) == verdict
    assert (verdict.winner != 0) == (share > 0.5)


def test_the_same_generator_gives_the_same_outcomes_in_blocks() -> None:
    found = site(np.random.default_rng(3))
    orders = Orders.of(found, np.array([1.0, 0.5, 0.0, -0.2]), None, 10)
    users = crowd.users("informational", 3, 10)
    both = [
        duel_traffic.play(found, orders, users, np.random.default_rng(1), many)
        for many in (20_000, 20_000)
    ]
    assert (both[0] == both[1]).all()
    assert len(np.unique(both[0])) == 3
