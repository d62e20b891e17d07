"""Algorithm 1 and `solar evaluate`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.evaluation import online_experiment
from app.evaluation.letor import JudgedData
from app.evaluation.online_experiment import BASELINES, Experiment
from app.evaluation.published import MQ2008, PUBLISHED_ONLINE, DataShape
from app.evaluation.synthetic import SyntheticData
from app.ranking import online
from app.ranking.online import LabelledQuery, Pairwise
from app.ranking.solar import ALGORITHMS, SolarI, SolarII
from tests import oracles

SMALL = SyntheticData(features=6, queries=60, documents=8)


def solar(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def synthetic_queries(seed: int = 0, size: SyntheticData = SMALL) -> list[LabelledQuery]:
    return size.draw(np.random.default_rng(seed))[1]


def as_letor(queries: list[LabelledQuery]) -> str:
    lines = []
    for at, query in enumerate(queries):
        for label, document in zip(query.labels, query.documents, strict=True):
            features = " ".join(f"{k}:{value!r}" for k, value in enumerate(document.tolist(), 1))
            lines.append(f"{label:g} qid:{at} {features}")
    return "\n".join(lines) + "\n"


def write_partitions(folder: Path, parts: list[JudgedData]) -> Path:
    """Write S1.txt, S2.txt, …; the ids of queries differ between the files."""
    for at, part in enumerate(parts, start=1):
        text = as_letor(part.queries).replace(" qid:", f" qid:{at}-")
        (folder / f"S{at}.txt").write_text(text)
    return folder


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged") / "synthetic.txt"
    path.write_text(as_letor(synthetic_queries()))
    return path


def test_algorithm_1_agrees_with_a_naive_implementation() -> None:
    queries = synthetic_queries()
    learner = SolarII(6)
    played = list(online.play_online(Pairwise(learner), queries, np.random.default_rng(5)))
    rng, naive = np.random.default_rng(5), oracles.NaiveSolarII(6)
    for at, quality in zip(rng.permutation(len(queries)), played, strict=True):
        documents, labels = queries[at].documents.astype(float), queries[at].labels
        served = labels[oracles.ranking((documents @ naive.w).tolist())].tolist()
        assert quality.ndcg_10 == pytest.approx(oracles.ndcg(served, 10), abs=1e-12)
        assert quality.map == pytest.approx(oracles.average_precision(served), abs=1e-12)
        pairs = oracles.label_pairs(labels.tolist())
        for pair in rng.permutation(len(pairs)):
            i, j = pairs[pair]
            naive.step(documents[i] - documents[j])
    np.testing.assert_allclose(learner.weights, naive.w, atol=1e-12)


def test_a_query_is_measured_before_it_is_learnt_from() -> None:
    query = LabelledQuery(np.array([0.0, 1.0]), np.array([[0.0], [1.0]]))
    first, second = online.play_online(
        Pairwise(SolarI(1)), [query, query], np.random.default_rng(0)
    )
    assert first.map == 0.5
    assert second.map == 1.0


def test_solar_ii_finds_the_hidden_utility_of_synthetic_data() -> None:
    u, queries = SyntheticData(noise=0.0).draw(np.random.default_rng(2))
    learner = SolarII(20, gamma=1.0)
    played = list(online.play_online(Pairwise(learner), queries, np.random.default_rng(2)))
    w = learner.weights
    assert w @ u / np.linalg.norm(w) > 0.97
    assert (
        online.mean_quality(played[-100:]).ndcg_10 > 0.95 > online.mean_quality(played[:1]).ndcg_10
    )


def test_every_algorithm_beats_the_submitted_order_on_synthetic_data() -> None:
    data = JudgedData(6, synthetic_queries())
    baseline = online.mean_quality(
        [
            quality
            for seed in range(3)
            for quality in online.play_online(Idle(), data.queries, np.random.default_rng(seed))
        ]
    )
    experiment = Experiment(algorithms=ALGORITHMS + BASELINES, permutations=2)
    for row in online_experiment.run_online(experiment, data, progress=False):
        assert row.mean.ndcg_10 > baseline.ndcg_10 + 0.1, row.algorithm


class Idle:
    """A contestant that never learns: documents keep the submitted order."""

    def score(self, documents: object) -> oracles.Floats:
        return np.zeros(len(documents))  # type: ignore[arg-type]

    def learn(self, query: LabelledQuery, rng: np.random.Generator) -> None:
        pass


def test_the_command_prints_a_table(judged: Path) -> None:
    ran = solar("evaluate", str(judged), "--permutations", "3", "--compare")
    assert ran.returncode == 0, ran.stderr
    head, columns, *rows = ran.stdout.splitlines()
    assert head == "60 queries, 480 documents, 6 features"
    assert columns.split() == ["NDCG@1", "NDCG@5", "NDCG@10", "NDCG", "MAP"]
    assert [row.split()[0] for row in rows] == [*BASELINES, "solar-i", "solar-ii"]
    assert all(row.count("±") == 5 for row in rows)


def test_json_output_has_one_object_a_line(judged: Path) -> None:
    ran = solar("evaluate", str(judged), "--permutations", "3", "--json", "--seed", "4")
    assert ran.returncode == 0, ran.stderr
    first, second = map(json.loads, ran.stdout.splitlines())
    assert (first["algorithm"], second["algorithm"]) == ("solar-i", "solar-ii")
    for row in (first, second):
        assert list(row) == [
            "algorithm", "queries", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg", "map",
        ]  # fmt: skip
        assert row["queries"] == 60
        assert set(row["map"]) == {"mean", "std"}
        assert 0.0 < row["map"]["std"] < row["map"]["mean"] < 1.0


def test_the_same_seed_gives_the_same_figures(judged: Path) -> None:
    command = ("evaluate", str(judged), "--algorithm", "solar-ii", "--permutations", "2", "--json")
    once, again = solar(*command, "--seed", "7"), solar(*command, "--seed", "7")
    other = solar(*command, "--seed", "8")
    assert once.stdout == again.stdout != other.stdout


def test_mean_and_deviation_are_taken_over_permutations() -> None:
    data = JudgedData(6, synthetic_queries())
    (row,) = online_experiment.run_online(
        Experiment(("solar-i",), permutations=4), data, progress=False
    )
    means = [
        online.mean_quality(
            list(
                online.play_online(
                    Pairwise(SolarI(6)), data.queries, np.random.default_rng([0, at])
                )
            )
        ).map
        for at in range(4)
    ]
    assert row.mean.map == pytest.approx(np.mean(means))
    assert row.std.map == pytest.approx(np.std(means, ddof=1))


def test_one_permutation_has_no_deviation() -> None:
    data = JudgedData(6, synthetic_queries())
    (row,) = online_experiment.run_online(
        Experiment(("solar-i",), permutations=1), data, progress=False
    )
    assert row.std == (0.0,) * 5


def test_published_figures_are_printed_below_the_measured_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PUBLISHED_ONLINE, DataShape(60, 6, 480), PUBLISHED_ONLINE[MQ2008])
    data = JudgedData(6, synthetic_queries())
    experiment = Experiment(permutations=1, discount="letor")
    rows = list(online_experiment.run_online(experiment, data, progress=False))
    assert rows[0].published == (0.3490, 0.4584, 0.5022)
    assert rows[1].published == (0.3594, 0.4680, 0.5107)
    text = online_experiment.online_table(rows)
    assert "  published           0.3594            0.4680            0.5107\n" in text + "\n"
    assert f"{rows[1].mean.ndcg_1 - 0.3594:+.4f}" in text
    published = json.loads(rows[1].as_json())["published"]
    assert published == {"ndcg@1": 0.3594, "ndcg@5": 0.4680, "ndcg@10": 0.5107}


def test_hyper_parameters_of_the_command_reach_the_learners(judged: Path) -> None:
    command = ("evaluate", str(judged), "--permutations", "1", "--json")
    plain, *others = (
        solar(*command, *more).stdout for more in ((), ("--gamma", "1"), ("--C", "1"))
    )
    first, second = plain.splitlines()
    assert others[0].splitlines()[0] == first != others[1].splitlines()[0]
    assert others[1].splitlines()[1] == second != others[0].splitlines()[1]


def test_a_closed_pipe_is_not_an_error(judged: Path) -> None:
    command = f"{sys.executable} -m app evaluate {judged} --permutations 1 --json | head -c 1"
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.stderr == ""


def test_the_command_accepts_letors_discount(judged: Path) -> None:
    command = ("evaluate", str(judged), "--permutations", "1", "--json")
    standard, letor = solar(*command), solar(*command, "--discount", "letor")
    assert solar(*command, "--discount", "standard").stdout == standard.stdout != letor.stdout


def test_wide_data_is_evaluated_as_sparse_rows(tmp_path: Path) -> None:
    wide = as_letor(synthetic_queries()).replace(" 6:", " 600000:")
    (tmp_path / "wide.txt").write_text(wide)
    command = ("evaluate", "wide.txt", "--permutations", "1")
    ran = solar(
        *command, "--algorithm", "solar-i", "--algorithm", "solar-ii-diagonal", cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert "600000 features" in ran.stdout
    ran = solar(*command, "--algorithm", "solar-ii", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        "solar: solar-ii: expected at most 2000 features, got 600000; "
        "solar-i and solar-ii-diagonal take more\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "missing.txt"], "solar: missing.txt: No such file or directory\n"),
        (["evaluate", "--world", "--C", "0"], "solar: C: expected a value from 1e-12"),
        (["evaluate", "--world", "--gamma", "nan"], "solar: gamma: expected a value from 1e-12"),
        (["evaluate", "--world", "--seed", "-1"], "--seed: expected a whole number of at least 0"),
        (
            ["evaluate", "--world", "--permutations", "0"],
            "expected a whole number of at least 1, got '0'",
        ),
        (["evaluate", "--world", "--algorithm", "best"], "invalid choice: 'best'"),
        (
            ["evaluate", "--folds", ".", "--C", "1"],
            "--folds: expected without --algorithm and --C;",
        ),
        (
            ["evaluate", "--folds", ".", "--algorithm", "solar-i"],
            "solar: --folds: expected without --algorithm and --C; remove these options",
        ),
        (["evaluate", "--folds", ".", "--world"], "not allowed with argument --folds"),
        (["evaluate"], "one of the arguments FILE --world --folds --transfer is required"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_invalid_commands_print_one_clear_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    ran = solar(*arguments, cwd=tmp_path)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


def test_a_malformed_line_stops_the_command(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("1 qid:1 1:1\n0 qid:1 1:x\n")
    ran = solar("evaluate", "bad.txt", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        "solar: bad.txt:2: expected a finite float32 as value of feature 1, got 'x'\n"
    )
