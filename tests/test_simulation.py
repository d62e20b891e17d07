"""Simulated traffic on synthetic data: learning, results, plots and the command."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from app.domain.model_config import FORGETTING, PRIOR
from app.evaluation.letor import JudgedData
from app.evaluation.plots import Curve, Panel, svg
from app.evaluation.synthetic import SyntheticData
from app.ranking import measures, traffic
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.simulation import runner
from app.simulation.results import SimulatedRow, Trace, checkpoints
from app.simulation.runner import Judged, Scenario, best_feature
from tests.commands import solar

SCENARIO = Scenario(impressions=1500)
SVG = "{http://www.w3.org/2000/svg}"


def synthetic(seed: int = 5, noise: float = 1.0) -> Judged:
    _, queries = SyntheticData(12, 150, 20, noise).draw(np.random.default_rng(seed))
    return Judged(queries[:100], queries[100:])


def ends(
    scenario: Scenario, users: str, seeds: int = 3, judged: Judged | None = None
) -> list[float]:
    return [
        runner.play_traffic(scenario, judged or synthetic(), users, seed).end
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(
    ("users", "least"), [("navigational", 0.03), ("informational", 0.05), ("pbm", 0.05)]
)
def test_debiased_clicks_learn_better_than_click_skip_above(users: str, least: float) -> None:
    classical = replace(SCENARIO, clicks="click-skip-above")
    gain = np.mean(ends(SCENARIO, users, 8)) - np.mean(ends(classical, users, 8))
    assert gain > least


def test_fair_pairs_learn_nearly_as_well_as_debiased_clicks() -> None:
    fair = replace(SCENARIO, clicks="fair-pairs")
    assert np.mean(ends(fair, "informational")) > np.mean(ends(SCENARIO, "informational")) - 0.02


def test_one_percent_of_attackers_costs_at_most_a_hundredth_of_ndcg() -> None:
    attacked = replace(SCENARIO, attackers=0.01)
    fall = np.mean(ends(SCENARIO, "informational")) - np.mean(ends(attacked, "informational"))
    assert fall <= 0.01


def judged_by_clicks(submitted: str, trained: bool) -> tuple[float, float, float]:
    """The lead of a fixed model over the submitted order: true NDCG, wins, click-NDCG."""
    judged = synthetic().submitted(submitted, np.random.default_rng(1))
    site, _ = runner.sites(SCENARIO, judged, 0)
    rng = np.random.default_rng(4)
    learner = SolarII(12)
    for q, query in enumerate(judged.train):
        learner.learn_pairs(site.of_query(q), query.pairs)
    w = learner.weights if trained else rng.standard_normal(12)
    users = runner.visitors(SCENARIO, judged, "informational")
    fixed, ahead, clicked = SolarII(12, weights=w), list[float](), list[float]()
    ranker = traffic.FixedRanker(fixed, traffic.Show())
    for visit in traffic.visits(site, ranker, users, rng, 3000):
        ahead.append(visit.won - visit.submitted_won)
        clicks = visit.clicked.astype(np.float64)
        as_submitted = clicks[np.argsort(visit.shown)]
        clicked.append(measures.ndcg(clicks, 10) - measures.ndcg(as_submitted, 10))
    truth = site.ndcg(w) - site.submitted_ndcg().mean()
    return truth, float(np.mean(ahead)), float(np.mean(clicked))


@pytest.mark.parametrize(
    ("submitted", "trained"), [("random", True), ("best", True), ("best", False)]
)
def test_debiased_wins_agree_with_true_ndcg_on_model_against_submitted_order(
    submitted: str, trained: bool
) -> None:
    truth, wins, _ = judged_by_clicks(submitted, trained)
    assert abs(truth) >= 0.02
    assert (wins > 0.0) == (truth > 0.0)


def test_click_ndcg_favours_the_order_that_was_shown() -> None:
    truth, wins, clicked = judged_by_clicks("best", trained=False)
    assert truth < -0.1
    assert wins < 0.0 < clicked


def test_a_prior_starts_from_the_submitted_order() -> None:
    best, judged = replace(SCENARIO, submitted="best", impressions=100), synthetic().normalised()
    plain, prior = (
        np.mean(
            [runner.play_traffic(one, judged, "informational", s).shown.mean() for s in range(8)]
        )
        for one in (best, replace(best, prior=PRIOR))
    )
    submitted = runner.play_traffic(best, judged, "informational", 0).submitted.mean()
    assert prior > plain
    assert prior > submitted - 0.02


def needle(seed: int, queries: int = 30, documents: int = 300) -> Judged:
    """One relevant document a query, like named-page finding: few features of it stand out."""
    rng, found = np.random.default_rng(seed), list[LabelledQuery]()
    for _ in range(queries + 10):
        rows = rng.random((documents, 20)) ** 6 * (rng.random((documents, 20)) < 0.3)
        relevant, raised = rng.integers(documents), rng.random(20) < 0.4
        rows[relevant] = np.maximum(rows[relevant], raised * rng.random(20))
        labels = np.zeros(documents)
        labels[relevant] = 2.0
        found.append(LabelledQuery(labels, rows.astype(np.float32)))
    return Judged(found[:queries], found[queries:])


@pytest.mark.parametrize("users", ["perfect", "navigational", "informational"])
@pytest.mark.parametrize("prior", [0.0, PRIOR])
def test_a_model_finds_one_relevant_document_among_hundreds(users: str, prior: float) -> None:
    """Nothing relevant is on the first page of the submitted order: only exploration finds it."""
    scenario = replace(SCENARIO, impressions=4000, prior=prior, submitted="random")
    for seed in range(3):
        shown = runner.play_traffic(scenario, needle(3), users, seed).shown
        assert shown[:100].mean() < 0.2
        assert shown[-500:].mean() > 0.75


def test_without_exploration_one_relevant_document_is_not_found() -> None:
    scenario = replace(SCENARIO, exploration=0.0)
    lost = runner.play_traffic(scenario, needle(3), "perfect", 0)
    assert lost.end == lost.test[0] < 0.2


def dealt_again(query: LabelledQuery) -> LabelledQuery:
    """The labels of a query in the order of another utility."""
    w, labels = np.random.default_rng(9).standard_normal(12), np.empty(len(query.labels))
    labels[np.argsort(-(query.documents @ w))] = np.sort(query.labels)[::-1]
    return LabelledQuery(labels, query.documents)


def test_forgetting_follows_a_change_of_what_users_want() -> None:
    before = synthetic(5, 0.3).normalised()
    changed = Judged([*map(dealt_again, before.train)], [*map(dealt_again, before.test)])
    ends = []
    for forgetting in (0.0, FORGETTING):
        scenario = replace(SCENARIO, gamma=100.0, forgetting=forgetting)
        simulated = runner.model(scenario, 12)
        for judged, impressions in ((before, 15_000), (changed, 1_000)):
            some = replace(scenario, impressions=impressions)
            site, test = runner.sites(some, judged, 0)
            users = runner.visitors(some, judged, "navigational")
            ends.append(runner.follow_traffic(some, site, test, simulated, users, 0).end)
    frozen, stayed, forgetful, followed = ends
    assert forgetful > frozen - 0.02
    assert followed > stayed + 0.1


def test_the_best_feature_is_the_one_that_decides_the_labels() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 8, 3)).astype(np.float32)
    queries = [LabelledQuery((-one[:, 1] > 0.5).astype(float), one) for one in rows]
    assert best_feature(queries) == (1, -1.0)
    arranged = Judged(queries, queries).submitted("best", rng)
    assert all((np.diff(query.documents[:, 1]) >= 0.0).all() for query in arranged.train)
    by_third = Judged(queries, queries).submitted("3", rng)
    assert all((np.diff(query.documents[:, 2]) <= 0.0).all() for query in by_third.test)


def test_with_a_prior_the_submitted_order_is_the_last_feature() -> None:
    site, test = runner.sites(replace(SCENARIO, prior=0.25), synthetic(), 0)
    for one in (site, test):
        assert one.documents.shape[1] == 13
        assert one.documents[:2, -1].tolist() == pytest.approx([1.0, 18.0 / 19.0])
    learner = runner.model(replace(SCENARIO, prior=0.25), 12).learner
    assert learner.weights.tolist() == [0.0] * 12 + [0.25]


def test_a_random_share_of_the_queries_is_held_out() -> None:
    _, queries = SyntheticData(3, 10, 4).draw(np.random.default_rng(0))
    judged = Judged.of(JudgedData(3, queries), None, 0.2)
    assert (len(judged.train), len(judged.test)) == (8, 2)
    assert {id(q) for q in (*judged.train, *judged.test)} == {id(q) for q in queries}


def test_a_row_has_the_means_of_the_runs() -> None:
    first, second = (Trace.begun(4, np.array([0.5])) for _ in range(2))
    first.shown[:], second.shown[:] = 0.2, 0.4
    first.test[-1], second.test[-1] = 0.3, 0.5
    first.weight, first.won, first.seconds = 10.0, 6.0, 2.0
    second.weight, second.won, second.seconds = 30.0, 20.0, 2.0
    row = SimulatedRow.of("perfect", [first, second])
    assert (row.test, row.shown, row.rate) == pytest.approx((0.4, 0.3, 2.0))
    assert row.test_std == pytest.approx(0.02**0.5)
    assert row.wins == pytest.approx(26.0 / 40.0)


def test_the_checkpoints_end_with_the_last_impression() -> None:
    for impressions in (1, 7, 40, 41, 12_345):
        found = checkpoints(impressions)
        assert found[0] == 0
        assert found[-1] == impressions
        assert (np.diff(found) > 0).all()


# ---- the plot ----

TWO = (
    Curve("one", [0.0, 50.0, 99.0], [0.31, 0.4, 0.45], [0.0, 0.1, 0.02]),
    Curve("two", [0.0, 50.0, 99.0], [0.3, 0.3, 0.3], [0.0, 0.0, 0.0]),
)


def paths(text: str, style: str) -> int:
    """The number of shapes with this style."""
    drawn = ET.fromstring(text)  # noqa: S314  # trusted: written by the code under test
    return sum(style in one.get("style", "") for one in drawn.iter())


def test_panels_have_a_coloured_curve_for_each_name_and_one_legend() -> None:
    text = svg("a < $b$.txt", [Panel("left", TWO), Panel("right", TWO)])
    texts = ["".join(one.itertext()).strip() for one in ET.fromstring(text).iter(f"{SVG}text")]  # noqa: S314
    for name, count in {
        "a < $b$.txt": 1, "left": 1, "right": 1, "one": 1, "two": 1, "impressions": 2,
    }.items():  # fmt: skip
        assert texts.count(name) == count, name
    assert paths(text, "stroke: #0072b2") == paths(text, "stroke: #d55e00") == 3  # and the legend
    assert paths(text, "fill: #0072b2; fill-opacity: 0.15") == 2
    assert paths(text, "fill: #d55e00; fill-opacity: 0.15") == 0  # a deviation of 0 has no band


def test_the_same_curves_give_the_same_bytes() -> None:
    drawn = {svg("a", [Panel("left", TWO)]) for _ in range(2)}
    assert len(drawn) == 1
    assert "<dc:date>" not in drawn.pop()


def test_a_plot_leaves_the_settings_of_matplotlib_unchanged() -> None:
    with matplotlib.rc_context({"svg.hashsalt": "other"}):
        svg("a", [Panel("left", TWO)])
        assert matplotlib.rcParams["svg.hashsalt"] == "other"


# ---- the command ----

JUDGED = "".join(
    f"{(d * q) % 3} qid:{q} 1:{d / 5} 2:{(d * q) % 3 / 2 + d / 50}\n"
    for q in range(1, 11)
    for d in range(5)
)


def judged_file(folder: Path, text: str = JUDGED) -> str:
    (folder / "judged.txt").write_text(text)
    return str(folder / "judged.txt")


def test_the_command_prints_a_table_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "curves.svg"
    short = ["--impressions", "60", "--seeds", "2", "--users", "perfect", "--users", "pbm"]
    assert solar("simulate", judged_file(tmp_path), *short, "--plot", str(plot)) == 0
    output = capsys.readouterr().out
    assert "60 impressions of 8 queries, 2 test queries, seeds: 2" in output
    assert [line.split()[0] for line in output.splitlines()[1:]] == ["users", "perfect", "pbm"]
    assert paths(plot.read_text(), "stroke: #d55e00") == 3


#: `solar` in which the imports of some modules fail; at the end it prints the imported ones.
WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
from app.__main__ import main
code = main(sys.argv[1:])
print(sorted(name for name in sys.modules if name in ("matplotlib", "matplotlib.pyplot")))
sys.exit(code)
"""


def in_a_process(*words: str, blocked: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT.format(blocked=blocked), "simulate", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_matplotlib_the_command_prints_the_table_and_draws_no_plot(tmp_path: Path) -> None:
    plot = tmp_path / "curves.svg"
    words = [judged_file(tmp_path), "--impressions", "50", "--users", "perfect"]
    plain = in_a_process(*words, blocked=("matplotlib",))
    asked = in_a_process(*words, "--plot", str(plot), blocked=("matplotlib",))
    assert (plain.returncode, plain.stderr, asked.returncode) == (0, "", 0)
    assert asked.stderr == (
        "--plot: matplotlib is not installed, no plot: pip install 'solar-ranking[plot]'\n"
    )
    table = asked.stdout.splitlines()
    assert [line.split()[0] for line in table[:3]] == ["50", "users", "perfect"]
    assert not plot.exists()


def test_matplotlib_is_imported_only_for_a_plot_and_pyplot_never(tmp_path: Path) -> None:
    plot = tmp_path / "curves.svg"
    words = [judged_file(tmp_path), "--impressions", "50", "--users", "perfect"]
    assert in_a_process(*words).stdout.splitlines()[-1] == "[]"
    drawn = in_a_process(*words, "--plot", str(plot))
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert drawn.stdout.splitlines()[-1] == "['matplotlib']"
    assert paths(plot.read_text(), "stroke: #0072b2") == 3


def test_the_same_command_prints_the_same_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", judged_file(tmp_path), "--json", "--impressions", "50", "--seeds", "2",
             "--users", "random", "--submitted", "random", "--clicks", "fair-pairs"]  # fmt: skip
    printed = []
    for _ in range(2):
        assert solar(*words) == 0
        printed.append(json.loads(capsys.readouterr().out))
        printed[-1].pop("rate")
    assert printed[0] == printed[1]
    assert printed[0]["curves"]["test"]["impressions"][-1] == 50


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--plot", "curves.png"],
            "--plot: expected a file name that ends in .svg, got curves.png",
        ),
        (["--submitted", "7"], "--submitted: expected file, random, best or a feature from 1 to 2"),
        (["--holdout", "0.01"], "--holdout: expected a share that leaves training and test"),
        (["--gamma", "0"], "gamma: expected a value from"),
    ],
)
def test_invalid_arguments_print_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert solar("simulate", judged_file(tmp_path), *words) == 2
    assert message in capsys.readouterr().err


def test_labels_without_a_click_model_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert solar("simulate", judged_file(tmp_path, JUDGED.replace("2 qid", "7 qid"))) == 2
    assert "labels: expected whole numbers from 0 to 2 or to 4" in capsys.readouterr().err
