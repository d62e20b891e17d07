"""`solar evaluate --folds`, batch against online and warm against cold, with naive references."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from app.evaluation import batch_vs_online, fold_systems, warm_vs_cold
from app.evaluation.fold_systems import GRID_C, GRID_GAMMA
from app.evaluation.folds import Fold, rotated
from app.evaluation.letor import JudgedData
from app.evaluation.online_experiment import Experiment, OnlineRow
from app.evaluation.published import MQ2008, PUBLISHED_BATCH, DataShape
from app.evaluation.synthetic import SyntheticData
from app.evaluation.warm_vs_cold import STARTS, Start
from app.ranking.batch.path import MOST_WITHOUT_GAIN
from app.ranking.batch.trainers import GRID
from app.ranking.measures import DISCOUNTS, MEASURE_NAMES, Discount
from app.ranking.online import LabelledQuery
from tests import oracles
from tests.oracles import Floats, NaiveSolarI, NaiveSolarII
from tests.oracles_batch import NaiveRankSVM
from tests.test_evaluation import solar, write_partitions

FEATURES = 4
SMALL = SyntheticData(features=FEATURES, queries=40, documents=6, noise=0.5)
EXPERIMENT = Experiment(permutations=2, seed=3, gamma=50.0)


def partitions(size: SyntheticData = SMALL, seed: int = 0) -> list[JudgedData]:
    """Synthetic data in five parts; features are large enough for C and gamma to matter."""
    _, queries = size.draw(np.random.default_rng(seed))
    queries = [LabelledQuery(query.labels, 20.0 * query.documents) for query in queries]
    each = len(queries) // 5
    return [JudgedData(size.features, queries[at : at + each]) for at in range(0, 5 * each, each)]


@cache
def found() -> tuple[list[Fold], dict[str, OnlineRow], dict[str, Start]]:
    folds = rotated(partitions())
    rows = list(batch_vs_online.run_folds(EXPERIMENT, folds, progress=False))
    return (
        folds,
        {row.algorithm: row for row in rows if isinstance(row, OnlineRow)},
        {row.start: row for row in rows if isinstance(row, Start)},
    )


def served(w: Floats, query: LabelledQuery) -> list[float]:
    scores = query.documents.astype(float) @ w
    return [float(query.labels[d]) for d in oracles.ranking(scores.tolist())]


def naive_quality(w: Floats, queries: Sequence[LabelledQuery]) -> Floats:
    """NDCG@1, @5, @10, NDCG and MAP, the mean over queries."""
    rankings = [served(w, query) for query in queries]
    measured = [
        [oracles.ndcg(one, k) for k in (1, 5, 10, None)] + [oracles.average_precision(one)]
        for one in rankings
    ]
    return np.asarray(np.mean(measured, axis=0))


def ndcg_10(w: Floats, queries: Sequence[LabelledQuery]) -> float:
    return float(naive_quality(w, queries)[2])


def best(models: Sequence[Floats], queries: Sequence[LabelledQuery]) -> Floats:
    return max(models, key=lambda w: ndcg_10(w, queries))


def gaps(queries: Sequence[LabelledQuery]) -> Floats:
    rows = []
    for query in queries:
        documents = query.documents.astype(float)
        rows += [documents[i] - documents[j] for i, j in oracles.label_pairs(query.labels.tolist())]
    return np.array(rows)


def learn(
    learner: NaiveSolarI | NaiveSolarII, query: LabelledQuery, rng: np.random.Generator
) -> None:
    every = gaps([query]) if np.ptp(query.labels) else np.empty((0, FEATURES))
    for at in rng.permutation(len(every)):
        learner.step(every[at])


def one_pass(learner: NaiveSolarI | NaiveSolarII, fold: Fold, at: int) -> Floats:
    rng = np.random.default_rng([EXPERIMENT.seed, at])
    for place in rng.permutation(len(fold.train)):
        learn(learner, fold.train[place], rng)
    return learner.w


def solar_i(fold: Fold, at: int) -> list[Floats]:
    return [one_pass(NaiveSolarI(FEATURES, C), fold, at) for C in GRID_C]


def solar_ii(fold: Fold, at: int) -> list[Floats]:
    return [one_pass(NaiveSolarII(FEATURES, gamma), fold, at) for gamma in GRID_GAMMA]


def test_the_grids_are_those_of_the_paper() -> None:
    exponents = np.arange(-6.5, -3.4, 0.5)
    np.testing.assert_allclose(GRID_C, 10**exponents)
    np.testing.assert_allclose(GRID_GAMMA, 10 ** np.arange(6.0, 2.9, -0.5))


@pytest.mark.parametrize(("algorithm", "models"), [("solar-i", solar_i), ("solar-ii", solar_ii)])
def test_solars_parameter_is_chosen_on_validation_queries_not_on_test_queries(
    algorithm: str, models: Callable[[Fold, int], list[Floats]]
) -> None:
    folds, rows, _ = found()
    honest, cheating = [], []
    for at in range(EXPERIMENT.permutations):
        tried = [(fold, models(fold, at)) for fold in folds]
        honest.append([naive_quality(best(ws, fold.validation), fold.test) for fold, ws in tried])
        cheating.append([naive_quality(best(ws, fold.test), fold.test) for fold, ws in tried])
    row, means = rows[algorithm], np.mean(honest, axis=1)
    np.testing.assert_allclose(row.mean, means.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(row.std, means.std(axis=0, ddof=1), atol=1e-12)
    assert row.mean.ndcg_10 < np.mean(cheating, axis=(0, 1))[2] - 1e-3
    assert row.queries == 40


def ranksvm(fold: Fold, C: float) -> Floats:
    naive = NaiveRankSVM(gaps(fold.train), C)
    start, options = np.zeros(FEATURES), {"gtol": 1e-9, "maxiter": 500}
    exact = minimize(
        naive.l2, start, jac=naive.l2_gradient, hess=naive.hessian, method="trust-exact",
        options=options,
    )  # fmt: skip
    return np.asarray(exact.x)


@cache
def ranksvms() -> list[Floats]:
    """Each fold's weights; C is chosen until MOST_WITHOUT_GAIN in a row are no better."""
    models = []
    for fold in found()[0]:
        tried: list[Floats] = []
        for C in GRID:
            tried.append(ranksvm(fold, C))
            qualities = [ndcg_10(w, fold.validation) for w in tried]
            if len(tried) - qualities.index(max(qualities)) > MOST_WITHOUT_GAIN:
                break
        models.append(best(tried, fold.validation))
    return models


def test_ranksvms_row_agrees_with_a_naive_solver_that_chooses_on_validation() -> None:
    folds, rows, _ = found()
    tested = [naive_quality(w, fold.test) for w, fold in zip(ranksvms(), folds, strict=True)]
    np.testing.assert_allclose(rows["ranksvm"].mean, np.mean(tested, axis=0), atol=1e-12)
    assert rows["ranksvm"].std == (0.0,) * 5


def naive_play(
    w: Floats, queries: Sequence[LabelledQuery], at: int, learner: NaiveSolarII | None
) -> list[float]:
    """NDCG@10 of each ranking as served; without a learner the weights stay fixed."""
    rng = np.random.default_rng([EXPERIMENT.seed, at])
    measured = []
    for place in rng.permutation(len(queries)):
        weights = w if learner is None else learner.w
        measured.append(oracles.ndcg(served(weights, queries[place]), 10))
        if learner is not None:
            learn(learner, queries[place], rng)
    return measured


def naive_warm(fold: Fold, w: Floats) -> NaiveSolarII:
    """SOLAR-II with RankSVM's weights, and Σ⁻¹ = I + (1/γ) Σ xxᵀ over the pairs inside."""
    learner, every = NaiveSolarII(FEATURES, EXPERIMENT.gamma), gaps(fold.train)
    support = every[every @ w < 1.0]
    assert 0 < len(support) < len(every)
    learner.w = w
    precision = np.eye(FEATURES) + support.T @ support / EXPERIMENT.gamma
    learner.sigma = np.asarray(np.linalg.inv(precision), np.float64)
    return learner


def naive_starter(start: str, fold: Fold, w: Floats) -> NaiveSolarII | None:
    if start == "ranksvm-frozen":
        return None
    return naive_warm(fold, w) if "warm" in start else NaiveSolarII(FEATURES, EXPERIMENT.gamma)


@pytest.mark.parametrize("start", STARTS)
def test_a_start_agrees_with_a_naive_implementation(start: str) -> None:
    folds, _, rows = found()
    played = []
    for fold in folds:
        w = fold_systems.train_ranksvm(fold, "standard").weights
        played.append(
            [
                np.mean(naive_play(w, fold.test, at, naive_starter(start, fold, w)))
                for at in range(EXPERIMENT.permutations)
            ]
        )
    by_permutation = np.mean(played, axis=0)
    assert rows[start].all.mean == pytest.approx(by_permutation.mean(), abs=1e-12)
    assert rows[start].all.std == pytest.approx(by_permutation.std(ddof=1), abs=1e-12)
    assert rows[start].first == rows[start].all, "fewer than 100 queries"


def test_the_three_starts_have_different_results() -> None:
    _, _, rows = found()
    assert len({row.all.mean for row in rows.values()}) == 3


def test_the_first_hundred_queries_have_a_separate_result() -> None:
    folds = rotated(partitions(SyntheticData(features=FEATURES, queries=550, documents=4), seed=1))
    w = np.array([1.0, 0.5, 0.0, 0.0])
    reported: list[str] = []
    played = warm_vs_cold.play_start(EXPERIMENT, folds[0], w, reported.append)
    assert reported == [start for start in STARTS for _ in range(2)]
    for at in range(2):
        naive = naive_play(w, folds[0].test, at, None)
        assert len(naive) == 110
        expected = [np.mean(naive[:100]), np.mean(naive)]
        np.testing.assert_allclose(played[STARTS.index("ranksvm-frozen"), at], expected)


def test_the_difference_to_the_warm_start_is_computed_by_fold() -> None:
    warm, cold, frozen = np.array([[0.5, 0.7], [0.1, 0.3]]), np.array([0.1, 0.2]), 0.25
    played = [
        np.array([warm[fold], warm[fold] - cold[fold], np.full(2, frozen)])[:, :, None].repeat(2, 2)
        for fold in (0, 1)
    ]
    first, second, third = warm_vs_cold.summarise_starts(played, 7)
    assert first.all == pytest.approx((0.4, np.sqrt(0.02), 0.0, 0.0))
    assert second.all == pytest.approx((0.25, np.sqrt(0.02), -0.15, 0.05))
    assert third.first == pytest.approx((0.25, 0.0, -0.15, 0.2))
    assert (third.start, third.queries) == ("ranksvm-frozen", 7)


def test_on_stationary_data_a_warm_start_is_ahead_of_a_cold_start() -> None:
    folds = rotated(partitions(SyntheticData(features=20, queries=150, documents=8), seed=5))
    rows = batch_vs_online.run_folds(Experiment(permutations=2), folds, progress=False)
    played = {row.start: row.all for row in rows if isinstance(row, Start)}
    cold, frozen = played["solar-ii-cold"], played["ranksvm-frozen"]
    assert cold.against_warm < -0.02 < -3 * cold.error
    assert abs(frozen.against_warm) < 0.01


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_partitions(tmp_path_factory.mktemp("folds"), partitions())


def command(folder: Path, *more: str) -> list[str]:
    ran = solar("evaluate", "--folds", str(folder), "--permutations", "2", "--seed", "3", *more)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def test_the_command_prints_the_table_and_the_starts_below(folder: Path) -> None:
    head, columns, *rows, empty, of_starts, warm, cold, frozen = command(folder, "--gamma", "50")
    assert head == "40 queries, 240 documents, 4 features"
    assert columns.split() == [name.upper() for name in MEASURE_NAMES]
    assert [row.split()[0] for row in rows] == ["ranksvm", "solar-i", "solar-ii"]
    assert f"{found()[1]['solar-ii'].mean.ndcg_10:.4f}" in rows[2]
    assert empty == ""
    assert " ".join(of_starts.split()) == "online NDCG@10 FIRST 100 MINUS WARM ALL MINUS WARM"
    for line, start in zip((warm, cold, frozen), STARTS, strict=True):
        words = line.split()
        assert words[0] == start
        assert words[7] == f"{found()[2][start].all.mean:.4f}"
        assert words[10] == f"{found()[2][start].all.against_warm:+.4f}"


def test_json_output_has_an_object_for_each_row_and_each_start(folder: Path) -> None:
    rows = [json.loads(line) for line in command(folder, "--json", "--gamma", "50")]
    assert [row["algorithm"] for row in rows[:3]] == ["ranksvm", "solar-i", "solar-ii"]
    assert list(rows[0]) == ["algorithm", "queries", *MEASURE_NAMES]
    assert [row["start"] for row in rows[3:]] == list(STARTS)
    for row in rows[3:]:
        assert list(row) == ["start", "queries", "online-ndcg@10-first-100", "online-ndcg@10"]
        assert list(row["online-ndcg@10"]) == ["mean", "std", "against_warm", "error"]
    assert rows[4]["online-ndcg@10"]["mean"] == found()[2]["solar-ii-cold"].all.mean


def test_gamma_changes_only_the_starts_and_the_discount_changes_all_rows() -> None:
    folds, rows, played = found()
    plain = [*rows.values(), *played.values()]
    other = list(batch_vs_online.run_folds(replace(EXPERIMENT, gamma=1e5), folds, progress=False))
    letors = list(
        batch_vs_online.run_folds(replace(EXPERIMENT, discount="letor"), folds, progress=False)
    )
    assert plain[:3] == other[:3]
    assert all(one != same for one, same in zip(plain[3:5], other[3:5], strict=True))
    assert all(one != same for one, same in zip(plain, letors, strict=True))


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_published_figures_of_table_3_are_printed_only_for_letors_discount(
    discount: Discount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PUBLISHED_BATCH, DataShape(40, FEATURES, 240), PUBLISHED_BATCH[MQ2008])
    experiment = Experiment(permutations=1, discount=discount)
    rows = list(batch_vs_online.run_folds(experiment, found()[0], progress=False))
    published = PUBLISHED_BATCH[MQ2008] if discount == "letor" else {}
    for row in rows[:3]:
        assert isinstance(row, OnlineRow)
        assert row.published == published.get(row.algorithm)
    shown = "  published           0.3626            0.4695\n" in batch_vs_online.folds_table(rows)
    assert shown == (discount == "letor")


@pytest.mark.parametrize(
    ("n", "gamma", "message"),
    [
        (FEATURES, 0.0, "gamma: expected a value from 1e-12"),
        (FEATURES, np.nan, "gamma: expected a value from 1e-12"),
        (2001, 1.0, "n: expected at most 2000 features with a full covariance, got 2001"),
    ],
)
def test_invalid_arguments_are_reported_before_the_work(n: int, gamma: float, message: str) -> None:
    untouched = Fold(n, [], [], [])
    with pytest.raises(ValueError, match=message):
        next(batch_vs_online.run_folds(Experiment(gamma=gamma), [untouched], progress=False))
