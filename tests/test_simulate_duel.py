"""`solar simulate --duel` in process: sides, rows, the command, and models that learn."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
import solar_client

from app.api.duel_answers import describe_duel
from app.domain.duels import SUBMITTED, Duel, DuelState, with_clicks
from app.errors import SolarError
from app.evaluation.synthetic import SyntheticData
from app.ranking import duel_traffic, evidence
from app.ranking.arrays import Floats
from app.ranking.traffic import Site
from app.simulation import duel_runner, runner
from app.simulation.duel_results import DuelRow, duel_table
from app.simulation.duel_runner import DuelPlan, requests
from app.simulation.duel_sides import Side, fixed_weights, with_settings
from app.simulation.http_duel import row
from app.simulation.http_runner import Ended
from app.simulation.in_process import InProcessModel
from app.simulation.runner import Judged, Scenario
from tests.commands import solar

SCENARIO = Scenario(impressions=600)


def judged() -> Judged:
    _, queries = SyntheticData(6, 60, 14, 0.8).draw(np.random.default_rng(5))
    return Judged(queries[:40], queries[40:])


def plan(champion: str, challenger: str, share: float = 0.5) -> DuelPlan:
    return DuelPlan(Side.of(champion), Side.of(challenger), share, 0.05)


def weights_of(text: str, seed: int = 0) -> Floats:
    found = fixed_weights(Side.of(text), judged(), seed)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("labels:0", "labels: expected a share above 0"),
        ("labels:x", "labels: expected a share above 0"),
        ("feature:1.5", "feature: expected a number from 1"),
        ("gamma=high", "gamma: expected a number, got 'high'"),
        ("features=3", "expected submitted, best, feature:N"),
        ("other", "expected submitted, best, feature:N"),
    ],
)
def test_an_impossible_side_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Side.of(text)


def test_settings_of_a_side_change_the_scenario() -> None:
    settings = Side.of("gamma=100,covariance=diagonal,clicks=click-skip-above").settings
    assert settings is not None
    found = with_settings(Scenario(C=0.5), settings)
    assert (found.gamma, found.algorithm, found.clicks) == (
        100.0, "solar-ii-diagonal", "click-skip-above",
    )  # fmt: skip
    assert found.C == 0.5


def test_sides_that_do_not_learn_have_the_weights_that_they_name() -> None:
    data = judged()
    assert fixed_weights(Side.of("submitted"), data, 0) is None
    assert np.flatnonzero(weights_of("feature:2")).tolist() == [1]
    column, sign = runner.best_feature(data.train)
    assert weights_of("best")[column] == sign
    few, many = (
        np.mean([Site.of(data.test).ndcg(weights_of(text, seed)) for seed in range(5)])
        for text in ("labels:0.05", "labels")
    )
    assert few < many


def test_a_row_of_fixed_sides_counts_the_outcomes_and_their_evidence() -> None:
    outcomes = np.array([1, 1, 0, -1, 1, 0] * 30)
    row = DuelRow.of_outcomes("pbm", 0, outcomes, 0.05, (0.5, 0.4))
    assert (row.lists, row.wins, row.losses, row.ties) == (180, 90, 30, 60)
    assert row.win_share == 0.75
    assert row.evidence == pytest.approx(np.exp(evidence.log_evidence(90, 30)))
    assert (row.verdict, row.needed) == ("champion", duel_traffic.verdict(outcomes, 0.05).lists)
    assert row.interval == evidence.interval(90, 30, 0.05)
    none = DuelRow.of_outcomes("pbm", 0, outcomes[:0], 0.05, (0.5, 0.4))
    assert (none.win_share, none.verdict, none.p_value) == (None, "undecided", 1.0)
    assert len(duel_table([row, none]).splitlines()) == 3


@pytest.mark.parametrize(
    ("champion", "challenger"), [("labels", "model"), ("model", "best"), ("submitted", "gamma=10")]
)
def test_sides_that_cannot_meet_are_refused(champion: str, challenger: str) -> None:
    with pytest.raises(SolarError, match="--duel: expected"):
        list(duel_runner.run_duels(plan(champion, challenger), SCENARIO, judged(), ["pbm"], 1))


def test_a_model_that_learns_beats_the_submitted_order() -> None:
    (row,) = duel_runner.run_duels(plan("model", "submitted"), SCENARIO, judged(), ["perfect"], 1)
    assert row.verdict == "champion"
    assert row.lists == row.wins + row.losses + row.ties
    assert row.needed is not None
    assert row.needed <= row.lists
    assert row.champion_ndcg is not None
    assert row.champion_ndcg > (row.challenger_ndcg or 0.0)


def test_a_challenger_has_the_settings_of_the_command_not_those_of_the_champion() -> None:
    same, other = (
        next(iter(duel_runner.run_duels(
            plan("gamma=100", challenger), SCENARIO, judged(), ["informational"], 1
        )))
        for challenger in ("gamma=100", "model")
    )  # fmt: skip
    assert (same.wins, same.losses) == (0, 0)  # the same model: no list has a difference
    assert same.champion_ndcg == same.challenger_ndcg
    assert other.wins + other.losses > 0


def test_about_the_wanted_share_of_the_requests_duels_and_the_others_are_sampled() -> None:
    data = judged()
    site, _ = runner.sites(SCENARIO, data, 0)
    model = InProcessModel(runner.model_config(SCENARIO, data.n), 10)
    model.append(Duel(SUBMITTED, 0.2, 0.05))
    for _ in requests(model, SCENARIO, site, runner.visitors(SCENARIO, data, "pbm"), 0):
        pass
    assert model.duel is not None
    assert model.duel.lists == pytest.approx(120, abs=40)
    sums = model.state().measures()
    assert sums["duel_queries"] <= model.duel.lists
    assert sums["feedback"] == SCENARIO.impressions
    assert model.state().seq == 1 + SCENARIO.impressions


# ---- the command ----

JUDGED = "".join(
    f"{(d * q) % 3} qid:{q} 1:{d / 5} 2:{(d * q) % 3 / 2 + d / 50}\n"
    for q in range(1, 11)
    for d in range(5)
)


@pytest.fixture
def judged_file(tmp_path: Path) -> str:
    (tmp_path / "judged.txt").write_text(JUDGED)
    return str(tmp_path / "judged.txt")


def test_the_command_prints_a_row_for_each_run_and_the_verdicts(
    judged_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--duel", "feature:2", "feature:1", "--users", "perfect", "--seeds", "2",
             "--impressions", "1000"]  # fmt: skip
    assert solar("simulate", judged_file, *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "champion feature:2, challenger feature:1: 1,000 requests, share 0.5"
    )
    assert [line.split()[0] for line in lines[1:4]] == ["users", "perfect", "perfect"]
    assert lines[4].startswith("perfect: champion 2, challenger 0, undecided 0 of 2; lists to a")


@pytest.mark.parametrize("sides", [["labels", "best"], ["model", "gamma=100"]])
def test_the_same_command_prints_the_same_rows(
    judged_file: str, capsys: pytest.CaptureFixture[str], sides: list[str]
) -> None:
    printed = []
    for _ in range(2):
        words = ["--json", "--impressions", "60", "--users", "random", "--share", "0.3"]
        assert solar("simulate", judged_file, "--duel", *sides, *words) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert printed[0]["users"] == "random"


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("later", [2, 10])
def test_a_verdict_whose_evidence_fell_before_the_next_point_has_its_lists(
    side: int, later: int
) -> None:
    """39 lists of one side are a verdict; the points before and after it are those of 37 and 41."""
    state = DuelState(1, Duel("b", 0.5, 0.05))
    for winner in [side] * 39 + [-side] * later:
        state = with_clicks(state, np.array([winner]), np.array([0]), np.array([], np.int64))
    assert state.verdict == side
    assert [point[0] for point in state.curve if 33 <= point[0] <= 41] == [33, 37, 41]
    duel = msgspec.convert(describe_duel("books", state, ready=True), solar_client.Duel)
    assert all(point.evidence < 20.0 for point in duel.curve)
    test = Site.of(judged().test)
    found = row(Ended("pbm", 0, "books", test, 0.5), duel, 0.4)
    assert found.needed == 41
    assert "to go" not in duel_table([found])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--duel", "labels", "feature:7"], "--duel: expected a feature from 1 to 2"),
        (["--duel", "labels", "model"], "--duel: expected a champion that learns"),
        (["--duel", "labels", "best", "--plot", "a.svg"], "--plot: expected no --duel"),
        (["--duel", "model", "clicks=fair-pairs"], "clicks: expected another strategy"),
    ],
)
def test_invalid_arguments_print_a_clear_error(
    judged_file: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert solar("simulate", judged_file, *words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--share", "0.6"], "--share: expected a share above 0, at most 0.5, got '0.6'"),
        (["--alpha", "0"], "--alpha: expected a number from 1e-06 to 0.2, got '0'"),
        (["--duel", "labels", "worst"], "--duel: expected submitted, best, feature:N, labels"),
    ],
)
def test_impossible_options_print_a_clear_error(
    judged_file: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit):
        solar("simulate", judged_file, *words)
    assert message in capsys.readouterr().err
