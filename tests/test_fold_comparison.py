"""`solar evaluate --folds --compare`: the paper's other systems, and those of libraries."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from app.evaluation import batch_vs_online, fold_systems, sparsity
from app.evaluation.batch_vs_online import FoldRow
from app.evaluation.fold_systems import COMPARED_SYSTEMS, GRID_PAMIR, measured
from app.evaluation.folds import Fold, rotated
from app.evaluation.letor import JudgedData
from app.evaluation.online_experiment import Experiment, OnlineRow
from app.evaluation.sparsity import SparsityRow
from app.evaluation.synthetic import SyntheticData
from app.evaluation.warm_vs_cold import STARTS
from app.ranking.batch.judgements import Judgements
from app.ranking.measures import Quality
from app.ranking.online import LabelledQuery
from app.ranking.solar import LinearLearner
from tests import oracles
from tests.oracles_batch import NaiveDomination, all_pairs
from tests.strategies_batch import judged
from tests.test_evaluation import write_partitions

OWN = [
    "ranksvm", "adarank-ndcg", "rankboost", "listnet", "solar-i", "solar-ii", "stesinbio", "pamir",
    "prank-pointwise", "prank-pairwise", "committee-perceptron",
]  # fmt: skip
LIBRARY = ["svr-l1", "svr-l2", "random-forest", "gbdt", "lambdamart"]
EXPERIMENT = Experiment(permutations=2, seed=1)
FEATURES = 5


def partitions() -> list[JudgedData]:
    """Forty queries in five parts; labels are 0, ½ and 1."""
    size = SyntheticData(features=FEATURES, queries=40, documents=8)
    _, drawn = size.draw(np.random.default_rng(3))
    queries = [LabelledQuery(query.labels / 2.0, query.documents) for query in drawn]
    return [JudgedData(FEATURES, queries[at : at + 8]) for at in range(0, 40, 8)]


@cache
def compared() -> tuple[list[Fold], list[FoldRow]]:
    folds = rotated(partitions())
    rows = batch_vs_online.run_folds(EXPERIMENT, folds, COMPARED_SYSTEMS, progress=False)
    return folds, list(rows)


def submitted_order(folds: Sequence[Fold]) -> float:
    labels = [query.labels.tolist() for fold in folds for query in fold.test]
    return float(np.mean([oracles.ndcg(one, 10) for one in labels]))


def test_every_system_of_the_papers_is_better_than_the_submitted_order() -> None:
    folds, rows = compared()
    for row in rows:
        if isinstance(row, OnlineRow):
            assert row.mean.ndcg_10 > submitted_order(folds) + 0.1, row.algorithm
            assert row.queries == 40


@pytest.mark.slow
def test_only_systems_that_depend_on_the_order_of_queries_have_a_deviation() -> None:
    rows = [row for row in compared()[1] if isinstance(row, OnlineRow)]
    varying = {row.algorithm for row in rows if row.std.ndcg > 0.0}
    assert {"pamir", "committee-perceptron"} <= varying
    assert varying <= {one.name for one in COMPARED_SYSTEMS if one.permuted}


def test_comparing_does_not_change_the_rows_of_ranksvm_solar_and_the_starts() -> None:
    folds, rows = compared()
    plain = list(batch_vs_online.run_folds(EXPERIMENT, folds, progress=False))
    assert [row for row in rows if row in plain] == plain


def naive_pamir(fold: Fold, C: float) -> oracles.Floats:
    rng, w = np.random.default_rng(0), np.zeros(FEATURES)
    for at in rng.permutation(len(fold.train)):
        query = fold.train[at]
        pairs = oracles.label_pairs(query.labels.tolist())
        for pair in rng.permutation(len(pairs)):
            i, j = pairs[pair]
            x = query.documents[i].astype(float) - query.documents[j]
            w = w + min(C, max(0.0, 1.0 - w @ x) / (x @ x)) * x
    return w


def test_pamirs_parameter_is_chosen_on_validation_queries_not_on_test_queries() -> None:
    def best(models: list[oracles.Floats], queries: list[LabelledQuery]) -> int:
        learners = [LinearLearner(FEATURES, w) for w in models]
        tried = [measured(one, queries, "standard").ndcg_10 for one in learners]
        return int(np.argmax(np.round(tried, 9)))

    (pamir,) = (one for one in COMPARED_SYSTEMS if one.name == "pamir")
    differ = 0
    for fold in compared()[0]:
        models = [naive_pamir(fold, C) for C in GRID_PAMIR]
        chosen = pamir.train(fold, "standard", np.random.default_rng(0))
        assert isinstance(chosen, LinearLearner)
        np.testing.assert_allclose(chosen.weights, models[best(models, fold.validation)], atol=1e-9)
        differ += best(models, fold.validation) != best(models, fold.test)
    assert differ > 0


def test_a_model_is_measured_query_by_query() -> None:
    queries, w = compared()[0][0].test, np.arange(1.0, FEATURES + 1)
    found = measured(LinearLearner(FEATURES, w), queries, "letor")
    served = [
        query.labels[oracles.ranking((query.documents.astype(float) @ w).tolist())].tolist()
        for query in queries
    ]
    expected = [np.mean([oracles.ndcg(one, k, "letor") for one in served]) for k in (1, 5, 10)]
    np.testing.assert_allclose(found[:3], expected, atol=1e-12)


@given(judged(most=8, n=1))
def test_the_domination_error_agrees_with_its_definition(judgements: Judgements) -> None:
    scores = judgements.X[:, 0]
    below: dict[int, list[int]] = {}
    for i, j in all_pairs(judgements.labels, judgements.starts):
        below.setdefault(i, []).append(j)
    wrong = [any(scores[j] >= scores[i] for j in others) for i, others in below.items()]
    expected = sum(wrong) / len(wrong) if wrong else 0.0
    assert sparsity.domination_error(scores, judgements) == pytest.approx(expected)


def test_sparse_models_are_measured_as_in_the_paper() -> None:
    folds, rows = compared()
    found = next(row for row in rows if isinstance(row, SparsityRow))
    each = []
    for fold in folds:
        model = fold_systems.train_stesinbio(fold, "standard")
        train, test = Judgements.of(fold.train), Judgements.of(fold.test)
        objective = NaiveDomination(train.X, train.labels, train.starts, model.penalty, 1.0)
        scores = test.X @ model.weights
        served = [test.labels[q][oracles.ranking(scores[q].tolist())] for q in test.queries]
        pairs = all_pairs(test.labels, test.starts)
        each.append(
            [
                np.mean([oracles.average_precision(one.tolist()) for one in served]),
                np.mean([sum(one[:10] >= 1.0) / 10 for one in served]),
                sparsity.domination_error(scores, test),
                np.mean([scores[i] <= scores[j] for i, j in pairs]),
                np.mean(model.weights == 0.0),
                objective.value(model.weights),
            ]
        )
    np.testing.assert_allclose(found.mean, np.mean(each, axis=0), rtol=1e-9)


def test_stesinbio_has_a_lower_objective_than_pamir() -> None:
    stesinbio, pamir = (row for row in compared()[1] if isinstance(row, SparsityRow))
    assert stesinbio.mean.objective < pamir.mean.objective


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_partitions(tmp_path_factory.mktemp("folds"), partitions())


def command(folder: Path, *more: str, **environment: str) -> tuple[str, str]:
    """Run in another process: scikit-learn changes the environment when it is imported."""
    arguments = ["evaluate", "--folds", str(folder), "--compare", "--permutations", "2"]
    ran = subprocess.run(
        [sys.executable, "-m", "app", *arguments, "--seed", "1", *more],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout, ran.stderr


@pytest.mark.slow
def test_the_command_prints_all_systems_then_sparse_models_then_starts(folder: Path) -> None:
    text, errors = command(folder)
    assert errors == ""
    table, sparse, starts = text.split("\n\n")
    *rows, note = table.splitlines()[2:]
    assert [row.split()[0] for row in rows] == OWN + LIBRARY
    assert [row.split()[0] for row in rows if " * " in row] == LIBRARY
    assert note == "* untuned: fixed settings, none chosen on validation queries"
    own = batch_vs_online.folds_table(compared()[1])
    assert "\n\n".join(["\n".join([columns(table), *rows[:11]]), sparse, starts.rstrip()]) == own
    for row in rows[11:]:
        assert float(row.split()[8]) > submitted_order(compared()[0]) + 0.1, row


def columns(table: str) -> str:
    return table.splitlines()[1]


def test_without_the_extra_the_command_runs_all_other_systems_and_says_so(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "lightgbm.py").write_text("raise ImportError(\"No module named 'lightgbm'\")\n")
    text, errors = command(folder, "--json", PYTHONPATH=str(tmp_path))
    assert errors == (
        f"solar: without {', '.join(LIBRARY)}: No module named 'lightgbm'; "
        "pip install 'solar-ranking[compare]'\n"
    )
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows == [json.loads(row.as_json()) for row in compared()[1]]
    assert [row["algorithm"] for row in rows[:11]] == OWN
    assert [row["sparsity"] for row in rows[11:13]] == ["stesinbio", "pamir"]
    assert [row["start"] for row in rows[13:]] == list(STARTS)


def test_json_of_a_sparse_model_has_all_measures() -> None:
    row = next(row for row in compared()[1] if isinstance(row, SparsityRow))
    assert list(json.loads(row.as_json())) == [
        "sparsity", "queries", "average_precision", "precision@10", "domination_error",
        "all_pairs_error", "zero_weights", "objective",
    ]  # fmt: skip


def test_json_of_an_untuned_system_says_so() -> None:
    quality = Quality(0.1, 0.2, 0.3, 0.4, 0.5)
    rows = [OnlineRow.of("gbdt", 7, [quality], None, untuned=untuned) for untuned in (True, False)]
    assert [json.loads(row.as_json()).get("untuned") for row in rows] == [True, None]
