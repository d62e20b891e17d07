"""Tournaments: what follows is a pure function of the state, step by step, also after a kill."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.duels import (
    Duel,
    DuelState,
    EndDuel,
    Promotion,
    Tournament,
    next_step,
    results,
)
from app.domain.model import ModelState
from app.domain.records import Record, Replace
from app.domain.reducer import Reducer
from app.ranking.interleaving import SECOND
from tests import oracles_duel_log
from tests.duel_logs import Requests, folded, in_duel
from tests.test_codec import bits
from tests.test_duels import DUEL, duel_of, rejects, start
from tests.test_parts import stored_and_loaded

EACH = 80  # lists: enough for a verdict if one side wins all
NAMES = ("b", "c", "d", "e", "f")
#: The click of a list by its winner: the champion, the challenger, neither.
CLICKS = {1: [1], -1: [2], 0: list[int]()}


def first_duel(count: int, promote: bool = False, alpha: float = 0.05, each: int = EACH) -> Duel:
    tournament = Tournament(0, 0, NAMES[:count], each * count, alpha, promote)
    return Duel(NAMES[0], 0.5, tournament.alpha_each, tournament=tournament)


def lists(state: ModelState, winner: int, count: int = EACH) -> ModelState:
    """The state after lists of its duel that one side wins."""
    duel = duel_of(state).id
    clicked = CLICKS[winner]
    return folded(state, [in_duel(clicked, duel, f"{duel}-{at}") for at in range(count)])


def played_lists(count: int, winner: int, played: int, each: int = EACH) -> ModelState:
    """The state after the first lists of a tournament, all won by one side."""
    return lists(folded(start(), [first_duel(count, each=each)]), winner, played)


@cache
def fewest(count: int) -> int:
    """The lists to a verdict in a tournament of this many followers, all won by one side."""
    return next(at for at in range(EACH) if duel_of(played_lists(count, 1, at)).verdict)


def followed(state: ModelState, absent: tuple[str, ...] = ()) -> ModelState:
    """The state after the record that follows."""
    record = next_step(state.duel, absent)
    assert isinstance(record, Duel | EndDuel)
    return folded(state, [record])


def played(winners: list[int], absent: tuple[str, ...] = ()) -> ModelState:
    """The state after a tournament in which these sides win all lists of each duel."""
    state = folded(start(), [first_duel(len(winners))])
    for winner in winners:
        assert duel_of(state).is_on
        state = followed(lists(state, winner), absent)
    return state


def test_alpha_is_shared_by_all_pairs_of_the_champion_and_the_followers() -> None:
    for count, pairs in ((1, 1), (2, 3), (3, 6), (5, 15)):
        tournament = first_duel(count).tournament
        assert tournament is not None
        assert tournament.alpha_each == pytest.approx(0.05 / pairs, rel=1e-15)
        assert tournament.lists_each == EACH


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([1, -1, 0]), min_size=1, max_size=4))
def test_each_follower_meets_the_side_that_is_ahead(winners: list[int]) -> None:
    ahead, expected = "", list[tuple[str, str, int]]()
    for name, winner in zip(NAMES, winners, strict=False):
        expected.append((ahead, name, winner))
        ahead = name if winner < 0 else ahead
    duel = duel_of(played(winners))
    table = list(results(duel))
    assert [(one.champion, one.challenger, one.verdict) for one in table] == expected
    least = fewest(len(winners))
    assert [one.lists for one in table] == [least if winner else EACH for winner in winners]
    assert (duel.is_on, duel.why) == (False, "finished")
    tournament = duel.tournament()
    assert tournament is not None
    assert tournament.id == 1


def test_a_duel_of_a_tournament_goes_on_until_its_verdict_or_the_end_of_its_lists() -> None:
    state = folded(start(), [first_duel(2)])
    assert next_step(state.duel, ()) is None
    assert next_step(lists(state, 0, EACH - 1).duel, ()) is None
    assert next_step(lists(state, 0).duel, ()) is not None
    decided = lists(state, 1, EACH - 10)
    assert duel_of(decided).verdict == 1
    assert duel_of(decided).lists < EACH
    assert isinstance(next_step(decided.duel, ()), Duel)


def test_lists_between_a_due_step_and_its_record_do_not_count() -> None:
    """The step was judged before the last one of them; the table must not tell another course."""
    for count in (1, 2):
        each = fewest(count) - 1
        undecided = played_lists(count, -1, each, each)
        assert (duel_of(undecided).verdict, duel_of(undecided).lists) == (0, each)
        step = next_step(undecided.duel, ())
        assert step == next_step(lists(undecided, -1, 3).duel, ())
        assert isinstance(step, Duel | EndDuel)
        after = duel_of(folded(lists(undecided, -1, 3), [step]))
        assert next(results(after)) == duel_of(undecided).result


def test_late_clicks_on_the_lists_of_a_duel_that_is_over_change_nothing() -> None:
    state = lists(folded(start(), [first_duel(2)]), 0, EACH - 1)
    join = Requests()
    first, late = (join(in_duel(one, 1, "late")) for one in ([], [2]))
    over = folded(state, [first])
    assert duel_of(over).is_over
    assert folded(over, [late]).duel == over.duel


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, -1, 0]), st.integers(0, 40)), min_size=1, max_size=3),
    st.integers(20, 40),
    st.integers(0, 4),
)
def test_the_table_of_a_tournament_tells_its_course(
    winners: list[tuple[int, int]], each: int, delay: int
) -> None:
    """However many lists are in the log between a judgement and its step."""
    records: list[Record] = [first_duel(len(winners), alpha=0.2, each=each)]
    state = folded(start(), records)
    for winner, odd in winners:
        step, late = None, delay
        for at in range(each + delay):
            if step is not None and late == 0:
                break
            late -= step is not None
            clicked = CLICKS[winner if at != odd else -winner]
            records.append(in_duel(clicked, duel_of(state).id, f"r{len(records)}"))
            state = folded(state, records[-1:])
            step = step or next_step(state.duel, ())
        assert isinstance(step, Duel | EndDuel)
        records.append(step)
        state = folded(state, [step])
    assert oracles_duel_log.differences(state.duel, oracles_duel_log.duels(records)) == []
    table = list(results(duel_of(state)))
    for row, following in pairwise(table):
        ahead = row.challenger if row.verdict == SECOND else row.champion
        assert following.champion == ahead
    assert max(row.lists for row in table) <= each


def test_other_duels_have_no_next_step() -> None:
    assert next_step(None, ()) is None
    decided = lists(folded(start(), [DUEL]), -1, 60)
    assert duel_of(decided).verdict == -1
    assert next_step(decided.duel, ["shop-b"]) is None
    assert next_step(played([1]).duel, ()) is None  # it has ended


def test_the_winner_is_promoted_only_if_that_was_asked_for_and_a_follower_won() -> None:
    for winner, promote, expected in (
        (-1, True, Promotion("b")), (-1, False, EndDuel(1, "finished")),
        (1, True, EndDuel(1, "finished")), (0, True, EndDuel(1, "finished")),
    ):  # fmt: skip
        state = lists(folded(start(), [first_duel(1, promote)]), winner)
        assert next_step(state.duel, ()) == expected
    won = lists(folded(start(), [first_duel(1, promote=True)]), -1)
    promoted = folded(won, [Replace(won.model, "promotion of b")])
    assert (duel_of(promoted).why, next_step(promoted.duel, ())) == ("promotion", None)


def test_an_absent_challenger_is_out_at_once() -> None:
    state = folded(start(), [first_duel(3)])
    state = lists(state, 1, 3)
    assert next_step(state.duel, ["c"]) is None
    state = followed(state, ("b",))
    assert (duel_of(state).settings.challenger, duel_of(state).settings.champion) == ("c", "")
    assert [one.lists for one in results(duel_of(state))] == [3, 0]


def test_an_absent_champion_gives_way_to_the_model() -> None:
    state = followed(lists(folded(start(), [first_duel(3)]), -1))
    assert duel_of(state).settings.champion == "b"
    state = followed(state, ("b",))
    assert (duel_of(state).settings.challenger, duel_of(state).settings.champion) == ("d", "")


def test_a_winner_that_is_absent_by_then_is_not_ahead() -> None:
    state = lists(folded(start(), [first_duel(1, promote=True)]), -1)
    assert next_step(state.duel, ["b"]) == EndDuel(1, "finished")


def test_the_side_before_a_winner_that_is_absent_by_then_stays_ahead() -> None:
    b_ahead = followed(lists(folded(start(), [first_duel(3, promote=True)]), -1))
    c_won = lists(b_ahead, -1)
    assert duel_of(c_won).verdict == SECOND
    for absent, ahead in ((("c",), "b"), (("b", "c"), ""), ((), "c")):
        assert duel_of(followed(c_won, absent)).settings.champion == ahead
    last = lists(followed(lists(folded(start(), [first_duel(2, promote=True)]), -1)), -1)
    assert next_step(last.duel, ["c"]) == Promotion("b")


def test_a_tournament_of_absent_followers_ends() -> None:
    state = folded(start(), [first_duel(3)])
    for _ in range(3):
        state = followed(state, NAMES)
    assert (duel_of(state).why, duel_of(state).lists) == ("finished", 0)
    assert [one.challenger for one in results(duel_of(state))] == ["b", "c", "d"]


def test_a_tournament_goes_on_after_a_kill_at_any_record() -> None:
    """The state that was stored gives the same next record, and the same end."""
    state, log = folded(start(), [first_duel(3)]), list[Record]()
    for winner in (-1, 0, 1):
        for at in range(EACH):
            log.append(in_duel(CLICKS[winner], duel_of(state).id, f"{duel_of(state).id}-{at}"))
            state = stored_and_loaded(folded(state, log[-1:]), None)
            if step := next_step(state.duel, ()):
                assert next_step(stored_and_loaded(state, None).duel, ()) == step
                assert not isinstance(step, Promotion)
                log.append(step)
                state = folded(state, log[-1:])
                break
    assert bits(state) == bits(folded(start(), [first_duel(3), *log]))
    assert not duel_of(state).is_on


def test_a_step_that_is_appended_twice_or_late_changes_nothing() -> None:
    before = lists(folded(start(), [first_duel(3)]), 0)
    step = next_step(before.duel, ())
    assert isinstance(step, Duel)
    after = folded(before, [step])
    rejects(after, codec.dump_record(step))
    rejects(folded(before, [EndDuel(1)]), codec.dump_record(step))
    rejects(folded(before, [Replace(before.model, "rollback")]), codec.dump_record(step))
    rejects(after, codec.dump_record(first_duel(3)))
    assert step.tournament is not None
    skipped = replace(step, challenger="d", tournament=replace(step.tournament, step=2))
    rejects(before, codec.dump_record(skipped))
    other = replace(step, tournament=replace(step.tournament, id=2))
    rejects(before, codec.dump_record(other))


def test_lists_of_an_earlier_duel_of_a_tournament_do_not_count() -> None:
    state = followed(lists(folded(start(), [first_duel(2)]), 0))
    late = folded(state, [in_duel([1], duel=1, query="late")])
    assert late.duel == state.duel
    assert duel_of(folded(state, [in_duel([1], duel_of(state).id)])).wins == 1


def test_the_followers_of_a_duel_are_its_sides_and_those_that_come_later() -> None:
    assert DUEL.followers == ("shop-b",)
    assert Duel("submitted", 0.2, 0.05).followers == ()
    assert Duel("version", 0.2, 0.05, version=8).followers == ()
    assert first_duel(3).followers == ("b", "c", "d")
    state = followed(lists(folded(start(), [first_duel(4)]), -1))
    assert duel_of(state).settings.followers == ("b", "c", "d", "e")


def test_a_duel_state_is_a_value() -> None:
    state = DuelState(1, first_duel(2))
    reducer = Reducer(folded(start(), [first_duel(2)]))
    assert reducer.state().duel == state
    reducer.apply(codec.dump_record(in_duel([1])))
    assert state.lists == 0
