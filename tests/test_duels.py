"""Duels in the fold: the two counts, who is counted, what lists teach, and hostile records."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.click_pairs import ClickPairs
from app.domain.duels import Duel, DuelState, EndDuel, Tournament
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.records import Record, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer, decoded
from app.ranking.clicks import CLASSICAL_STRATEGIES
from tests import oracles_duels
from tests.duel_logs import (
    TEAMS,
    Requests,
    events,
    folded,
    in_duel,
    random_feedback,
)
from tests.test_codec import bits
from tests.test_parts import stored_and_loaded
from tests.test_reducer import only_rejected

DUEL = Duel("shop-b", 0.2, 0.05)
FIRST, SECOND = 1, 2  # places of the first pair: of the champion, of the challenger


def start(**changes: Any) -> ModelState:
    config = new_model_config(("a", "b", "c"), prior=0.0, **changes)
    return initial_state(config, seed=b"a model of its own")


def duel_of(state: ModelState) -> DuelState:
    assert state.duel is not None
    return state.duel


def counts(duel: DuelState) -> tuple[int, int, int, int, int]:
    return duel.lists, duel.wins, duel.losses, duel.won, duel.lost


def after(*records: Record, begin: Duel = DUEL) -> DuelState:
    """The duel after its record and others."""
    return duel_of(folded(start(), [begin, *records]))


# ---- two counts ----


@st.composite
def click_streams(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Events on up to four lists, mixed: (request, clicked places)."""
    event = st.tuples(
        st.sampled_from(["r1", "r2", "r3", "r4"]), st.lists(st.integers(0, 5), max_size=3)
    )
    return draw(st.lists(event, max_size=12))


@settings(max_examples=60)
@given(click_streams())
def test_both_counts_equal_those_of_a_duel_that_stores_all_clicks(
    stream: list[tuple[str, list[int]]],
) -> None:
    naive, join = oracles_duels.NaiveDuel(DUEL.alpha), Requests()
    for query, clicks in stream:
        naive.click(query, TEAMS, clicks)
    duel = after(*(join(in_duel(clicks, query=query)) for query, clicks in stream))
    assert counts(duel)[:3] == naive.counts()
    assert (duel.won, duel.lost) == (naive.won.count(1), naive.won.count(-1))
    assert duel.evidence == pytest.approx(float(naive.evidence()), rel=1e-12)
    assert duel.verdict == naive.verdict


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), max_size=6), st.data())
def test_any_split_of_the_same_clicks_into_events_gives_the_same_wins_and_losses(
    clicks: list[int], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(clicks)), max_size=4)))
    ends = [0, *cuts, len(clicks)]
    parts = [clicks[a:b] for a, b in pairwise(ends)]
    assert counts(after(*events(parts)))[:3] == counts(after(*events([clicks])))[:3]


def test_the_first_event_after_which_a_side_leads_counts_for_the_verdict() -> None:
    one_each = [FIRST, SECOND]
    for posts, expected in (
        ([[0]], (1, 0, 0, 0, 0)),  # a document of no team
        ([[]], (1, 0, 0, 0, 0)),
        ([[FIRST]], (1, 1, 0, 1, 0)),
        ([[FIRST], [SECOND, 3]], (1, 0, 1, 1, 0)),  # later clicks change the outcome only
        ([[FIRST], [SECOND]], (1, 0, 0, 1, 0)),
        ([[FIRST, FIRST, SECOND]], (1, 0, 0, 0, 0)),  # a document counts once
        ([one_each, [3]], (1, 0, 1, 0, 1)),
        ([one_each, [0], [4], [3], [5]], (1, 1, 0, 1, 0)),
    ):
        assert counts(after(*events(posts))) == expected


def test_labels_and_triplets_on_a_list_do_not_count() -> None:
    labels = in_duel([], kind="labels", clicks=None, labels=np.array([0.0, 1, 0, 0, 0, 0]))
    assert counts(after(labels)) == (0, 0, 0, 0, 0)
    clicks = replace(in_duel([FIRST]), counted=labels.labels)
    assert counts(after(labels, clicks)) == (1, 1, 0, 1, 0)


def test_the_verdict_is_of_its_first_list_whatever_follows() -> None:
    wins = [in_duel([FIRST], query=f"w{at}") for at in range(40)]
    losses = [in_duel([SECOND], query=f"l{at}") for at in range(120)]
    won = after(*wins)
    assert won.verdict == 1
    turned = after(*wins, *losses)
    assert (turned.verdict, turned.largest) == (1, max(won.largest, turned.largest))
    assert after(*losses).verdict == -1


def test_the_curve_has_growing_distances_and_ends_near_the_present() -> None:
    duel = after(*(in_duel([FIRST if at % 3 else SECOND], query=f"r{at}") for at in range(500)))
    decided = [won + lost for _, won, lost in duel.curve]
    assert decided[:5] == [1, 2, 3, 4, 5]
    assert decided == sorted(set(decided))
    assert len(decided) < 60
    assert decided[-1] > 500 / 1.1 - 1
    assert duel.curve[-1][0] >= decided[-1]


# ---- which lists count ----


def test_only_lists_of_the_duel_that_is_on_count() -> None:
    assert counts(after(in_duel([FIRST], duel=2))) == (0, 0, 0, 0, 0)
    assert folded(start(), [in_duel([FIRST])]).duel is None


def test_clicks_on_lists_of_an_ended_duel_do_not_count() -> None:
    first, second = events([[FIRST], [SECOND, 3]])
    state = folded(start(), [DUEL, first, EndDuel(1, "stopped"), second])
    assert counts(duel_of(state)) == (1, 1, 0, 1, 0)
    assert (duel_of(state).ended, duel_of(state).why) == (3, "stopped")
    again = folded(state, [DUEL, in_duel([SECOND], duel=1, query="late")])
    assert (duel_of(again).id, counts(duel_of(again))) == (5, (0, 0, 0, 0, 0))
    assert counts(duel_of(folded(again, [in_duel([SECOND], duel=5)]))) == (1, 0, 1, 0, 1)


REASONS = {
    "warm start": "warm start", "rollback to version 3": "rollback",
    "without source web": "replay", "promotion of shop-b": "promotion", "what-if": "replacement",
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_a_replaced_champion_ends_its_duel(reason: str) -> None:
    replacement = Replace(start().model, reason)
    assert replacement.kind == REASONS[reason]
    duel = after(in_duel([FIRST]), replacement, in_duel([FIRST], query="late"))
    assert (duel.ended, duel.why) == (3, REASONS[reason])
    assert counts(duel) == (1, 1, 0, 1, 0)
    ended = after(EndDuel(1), replacement)
    assert (ended.ended, ended.why) == (2, "ended")


def test_new_settings_and_a_reset_of_measures_leave_a_duel_on() -> None:
    duel = after(in_duel([FIRST]), Retune(gamma=5.0), ResetMeasures(), in_duel([SECOND], query="s"))
    assert counts(duel) == (2, 1, 1, 1, 1)
    assert duel.is_on


# ---- invalid records ----

TOURNAMENT = Tournament(0, 0, ("b", "c"), 100, 0.05, promote=False)
STEP = Duel("b", 0.5, TOURNAMENT.alpha_each, tournament=TOURNAMENT)
INVALID_DUELS: dict[str, Duel | EndDuel] = {
    "no share": replace(DUEL, share=0.0), "a share above a half": replace(DUEL, share=0.51),
    "a negative alpha": replace(DUEL, alpha=-0.05), "no alpha": replace(DUEL, alpha=0.0),
    "an alpha above 0.2": replace(DUEL, alpha=0.21),
    "a version of a follower": replace(DUEL, version=3),
    "no version": replace(DUEL, challenger="version"),
    "a later step": replace(STEP, challenger="c", tournament=replace(TOURNAMENT, step=1)),
    "a step of another tournament": replace(STEP, tournament=replace(TOURNAMENT, id=9)),
    "another follower than that of the step": replace(STEP, challenger="c"),
    "the end of no duel": EndDuel(1),
}  # fmt: skip


def rejects(before: ModelState, blob: bytes) -> None:
    """The record counts as rejected; nothing else differs."""
    reducer = Reducer(before)
    assert reducer.apply(blob) is False
    after = reducer.state()
    only_rejected(before, after, blob)
    assert after.duel == before.duel


@pytest.mark.parametrize("what", INVALID_DUELS)
def test_an_invalid_duel_is_rejected(what: str) -> None:
    rejects(start(), codec.dump_record(INVALID_DUELS[what]))
    ended = folded(start(), [DUEL, in_duel([FIRST]), EndDuel(1)])
    rejects(ended, codec.dump_record(INVALID_DUELS[what]))


def test_only_one_duel_is_on() -> None:
    state = folded(start(), [DUEL, in_duel([FIRST])])
    for record in (DUEL, STEP, EndDuel(2)):
        rejects(state, codec.dump_record(record))


#: Each place is 2 or more after the one before, by numbers that wrap around.
WRAPPED = np.array([[at, 0] for at in (0, 1 << 62, -(1 << 63), -(1 << 62), 2)])
BAD_LISTS: dict[str, Any] = {
    "no id": np.array([0, *TEAMS]), "a negative id": np.array([-1, *TEAMS]),
    "too few teams": np.array([1, *TEAMS[1:]]), "too many teams": np.array([1, *TEAMS, 0]),
    "no teams": np.array([1]), "nothing": np.zeros(0, np.int64),
    "a team of 2": np.array([1, 2, *TEAMS[1:]]),
    "the least number as a team": np.array([1, -(1 << 63), *TEAMS[1:]]),
    "fractions": np.array([1.0, *TEAMS]), "rows": np.array([[1, *TEAMS]]),
    "one team in both places of a round": np.array([1, 0, 1, 1, -1, 1, 1]),
    "the other team above": np.array([1, 0, -1, 1, -1, 1, 1]),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_LISTS)
def test_clicks_with_impossible_teams_are_rejected(what: str) -> None:
    state = folded(start(clicks="debiased"), [DUEL, in_duel([FIRST])])
    record = replace(in_duel([SECOND], query="bad"), duel=BAD_LISTS[what])
    rejects(state, codec.dump_record(record))


def test_a_list_with_odds_or_without_a_submitted_order_is_no_list_of_a_duel() -> None:
    state = folded(start(), [DUEL])
    for record in (
        in_duel([FIRST], odds=np.ones(7)), in_duel([FIRST], submitted=None),
        in_duel([FIRST], swaps=WRAPPED),
        in_duel([FIRST], rounds=np.array([2])), in_duel([FIRST], rounds=np.array([-1])),
        in_duel([9]),
    ):  # fmt: skip
        rejects(state, codec.dump_record(record))


def test_events_that_the_log_has_lost_cannot_make_a_count_negative() -> None:
    lost = in_duel([SECOND], clicked_before=np.array([FIRST]), rounds=np.array([1]))
    state = folded(start(), [DUEL, lost])
    assert counts(duel_of(state)) == (0, 0, 0, 0, 0)
    assert bits(stored_and_loaded(state, None)) == bits(state)


arrays = st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 3), max_size=8).map(
    lambda found: np.array(found, np.int64)
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    duel=arrays | st.integers(0, 7).map(lambda at: np.array([1, *TEAMS][:at])),
    swaps=st.none() | arrays.map(lambda one: one[: len(one) // 2 * 2].reshape(-1, 2)),
    rounds=st.none() | arrays,
    before=st.none() | st.lists(st.integers(-1, 6), max_size=4).map(np.array),
    strategy=st.sampled_from(["debiased", "fair-pairs", "click-skip-above"]),
)
def test_no_list_of_a_duel_stops_the_reducer(
    duel: Any, swaps: Any, rounds: Any, before: Any, strategy: str
) -> None:
    state = folded(start(clicks=strategy), [DUEL])
    early = None if before is None else before.astype(np.int64)
    record = in_duel([FIRST, 3], clicked_before=early, rounds=rounds, swaps=swaps)
    check_total(state, codec.dump_record(replace(record, duel=duel)))


values = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([10**400, -(10**400), 1 << 64])
    | st.floats() | st.sampled_from(["shop-b", "version", ""]) | st.lists(st.text(max_size=2))
)  # fmt: skip


@settings(max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from(["challenger", "share", "alpha", "version", "champion", "duel", "why"]),
        values,
    ),
    st.none() | st.dictionaries(
        st.sampled_from(["id", "step", "followers", "max_lists", "alpha", "promote"]), values
    ) | values,
    st.sampled_from(["duel", "end-duel"]),
)  # fmt: skip
def test_no_duel_record_stops_the_reducer(given_: Any, tournament: Any, kind: str) -> None:
    plain = codec.load_blob(codec.dump_record(STEP), "duel").fields
    if isinstance(tournament, dict):
        tournament = {**plain["tournament"], **tournament}
    fields = {**plain, **({"tournament": tournament} if tournament is not None else {}), **given_}
    if kind == "end-duel":
        fields = {"duel": 1, "why": "", **given_}
    blob = codec.dump_blob(kind, fields, {})
    check_total(start(), blob)
    check_total(folded(start(), [DUEL, in_duel([FIRST])]), blob)


def check_total(before: ModelState, blob: bytes) -> None:
    """The record is applied or rejected, and the state can be stored."""
    reducer = Reducer(before)
    accepted, after = reducer.apply(blob), reducer.state()
    if not accepted:
        only_rejected(before, after, blob)
        assert after.duel == before.duel
    assert bits(stored_and_loaded(after, None)) == bits(after)


# ---- what lists teach ----


def learnt(
    clicked: list[int], config: ModelConfig | None = None, **changes: Any
) -> list[tuple[int, int, float]]:
    """The pairs that a list of a duel gives, with their weights."""
    config = replace(config or start().model.config, **changes)
    found = ClickPairs(in_duel(clicked), config.kappa).new_pairs(config.clicks)
    return [(*pair, weight) for pair, weight in zip(found.listed(), found.weights, strict=True)]


def test_a_round_with_one_click_is_a_fair_pair_with_the_weight_of_the_strategy() -> None:
    assert learnt([FIRST, 3], clicks="debiased") == [(1, 2, 1.0), (3, 4, 1.0)]
    former = replace(start().model.config, exploration=None)
    assert former.kappa == 10.0
    assert learnt([FIRST], former, clicks="debiased") == [(1, 2, 10.0)]
    assert learnt([SECOND, 4], clicks="fair-pairs") == [(2, 1, 100.0), (4, 3, 100.0)]
    assert learnt([FIRST, SECOND, 0, 5], clicks="debiased") == []


@pytest.mark.parametrize("strategy", CLASSICAL_STRATEGIES)
def test_classical_strategies_read_a_list_of_a_duel_as_any_list(strategy: str) -> None:
    plain = replace(in_duel([FIRST, 4]), swaps=None, duel=None)
    found = [
        folded(start(clicks=strategy), [DUEL, one]).model for one in (in_duel([FIRST, 4]), plain)
    ]
    assert bits(found[0]) == bits(found[1])
    assert found[0].weights.any()


def test_a_list_of_a_duel_teaches_the_same_while_its_duel_is_on_and_after_it() -> None:
    begin = start(clicks="debiased")
    record = in_duel([FIRST, 3])
    logs: list[list[Record]] = [[record], [DUEL, record], [DUEL, EndDuel(1), record]]
    models = [folded(begin, log).model for log in logs]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])


def test_a_later_click_teaches_only_its_new_pairs() -> None:
    begin = start(clicks="debiased", gamma=1.0)
    split = folded(begin, events([[FIRST], [3]]))
    assert split.measures()["stepped"] == 2.0
    assert bits(split.model.weights) == bits(folded(begin, events([[FIRST, 3]])).model.weights)


# ---- measures ----

DUEL_SUMS = ("duel_queries", "duel_ndcg@1", "duel_ndcg@5", "duel_ndcg@10", "duel_ndcg", "duel_map")
SERVED = ("queries", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg", "map")


@pytest.mark.parametrize("clicks", ["debiased", "fair-pairs", "click-skip-above"])
def test_a_list_of_a_duel_counts_as_served_and_in_sums_of_its_own_only(clicks: str) -> None:
    begin = start(clicks=clicks)
    plain = replace(in_duel([2, 5]), swaps=None, duel=None, query="plain")
    state = folded(begin, [DUEL, plain, *events([[2], [5]])])
    served, alone = state.measures(), folded(begin, [plain]).measures()
    assert served["queries"] == 2.0
    assert [served[one] for one in DUEL_SUMS] == pytest.approx(
        [served[one] - alone[one] for one in SERVED]
    )
    assert served["duel_queries"] == 1.0
    for name, value in served.items():
        if name.startswith(
            ("explored", "square_explored", "debiased", "baseline_debiased", "wins")
        ):
            assert value == 0.0
    assert served["mean_quality"] == alone["mean_quality"]
    assert served["drift"] == alone["drift"] == 0.0


def test_lists_of_duels_do_not_count_as_drift() -> None:
    """Neither as evidence, nor in the number of rankings of the running mean."""
    good, bad = (replace(in_duel([d]), swaps=None, duel=None) for d in (0, 5))
    log = [replace(good, query="g"), *(replace(bad, query=f"b{at}") for at in range(5))]
    lists = [in_duel([5], query=f"d{at}") for at in range(9)]
    alone = folded(start(), log).measures()
    mixed = folded(start(), [DUEL, *lists[:5], *log[:3], *lists[5:], *log[3:]]).measures()
    assert mixed["drift"] == alone["drift"] > 0.0
    assert mixed["mean_quality"] == alone["mean_quality"]


def test_an_abandoned_list_of_a_duel_counts_once_a_click_arrives() -> None:
    join = Requests(counts_abandoned=True)
    first = folded(start(), [DUEL, join(in_duel([]))])
    assert (first.measures()["abandoned"], first.measures()["duel_queries"]) == (1.0, 0.0)
    later = folded(first, [join(in_duel([FIRST]))])
    assert (later.measures()["abandoned"], later.measures()["duel_queries"]) == (0.0, 1.0)
    assert counts(duel_of(later)) == (1, 1, 0, 1, 0)


# ---- parts, and states that are stored ----


@pytest.mark.parametrize("clicks", ["debiased", "fair-pairs", "click-skip-above"])
@pytest.mark.parametrize("seed", range(4))
def test_parts_of_records_give_the_same_duel_and_bits(clicks: str, seed: int) -> None:
    begin, rng = start(clicks=clicks), np.random.default_rng(seed)
    feedback = random_feedback(seed, 25)
    log: list[Record] = [DUEL, *feedback[:20], EndDuel(1), *feedback[20:]]
    blobs = [codec.dump_record(record) for record in log]
    reducer = Reducer(begin)
    for blob in blobs:
        complete = False
        while not complete:
            complete = reducer.apply_part(blob, decoded(blob), int(rng.integers(1, 5)))
            if rng.random() < 0.5:
                reducer = Reducer(stored_and_loaded(reducer.state(), reducer.part()))
    whole = folded(begin, log)
    assert bits(reducer.state()) == bits(whole)
    assert duel_of(whole).lists > 0


def test_a_cut_record_has_no_part_in_the_duel_yet() -> None:
    state = folded(start(), [DUEL])
    blob = codec.dump_record(in_duel([FIRST, 3]))
    reducer = Reducer(state)
    assert not reducer.apply_part(blob, decoded(blob), 1)
    assert reducer.state().duel == state.duel
    assert reducer.apply_part(blob, None, 99)
    assert counts(duel_of(reducer.state())) == (1, 0, 0, 0, 0)
