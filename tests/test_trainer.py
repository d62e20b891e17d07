"""Training a batch model on judged data and converting it to an online model."""

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from app.domain import candidates, codec
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Replace
from app.domain.reducer import Reducer, sound
from app.errors import BadData
from app.evaluation import letor
from app.evaluation.letor import JudgedData
from app.evaluation.synthetic import SyntheticData
from app.ranking import covariance
from app.ranking.batch import path
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.trainers import trainer as solver
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.ranking.sparse import SparseRows
from app.training import process, trainer
from app.training.options import UPLOAD, Training, TrainingTask, check_training
from app.training.targets import file
from app.training.trainer import Progressed
from tests.oracles_batch import gaps

NAMES = tuple(f"f{at}" for at in range(1, 7))
BOUND = 1e4


def synthetic(seed: int = 0, queries: int = 30, noise: float = 1.0) -> JudgedData:
    drawn = SyntheticData(6, queries, 8, noise).draw(np.random.default_rng(seed))[1]
    return JudgedData(6, drawn)


def judged(seed: int = 0, queries: int = 30) -> Judgements:
    return trainer.judgements(synthetic(seed, queries), ModelConfig(NAMES), BOUND)


def query(labels: list[float], *rows: list[float]) -> LabelledQuery:
    return LabelledQuery(np.array(labels), np.array(rows, np.float32))


def few(*queries: LabelledQuery) -> Judgements:
    return Judgements.of(queries)


# ---- data ----


def test_judged_data_is_converted_to_what_the_model_would_receive() -> None:
    raw = JudgedData(2, [query([1, 0], [5, 300], [1, 300]), query([0, 2], [2, 7], [4, 9])])
    seen = trainer.judgements(raw, ModelConfig(("a", "b"), normalization="query-minmax"), BOUND)
    shown = [
        candidates.as_documents(np.array(q.documents, np.float64), "query-minmax", 1e38)
        for q in raw.queries
    ]
    assert (np.concatenate(shown) == seen.X).all()
    assert seen.starts.tolist() == [0, 2, 4]


def test_sparse_and_dense_data_are_scaled_alike() -> None:
    rng = np.random.default_rng(1)
    dense = np.where(rng.random((5, 7)) < 0.5, rng.standard_normal((5, 7)), 0.0).astype(np.float32)
    csr = csr_array(dense)
    rows = SparseRows(csr.shape, csr.indptr, csr.indices, csr.data)
    labels = np.arange(5.0)
    settings = ModelConfig(tuple("abcdefg"), normalization="query-minmax")
    one = trainer.judgements(JudgedData(7, [LabelledQuery(labels, rows)]), settings, BOUND)
    other = trainer.judgements(JudgedData(7, [LabelledQuery(labels, dense)]), settings, BOUND)
    assert (one.X.toarray() == other.X).all()


@pytest.mark.parametrize("n", [1, 3])
def test_data_with_another_number_of_features_is_refused(n: int) -> None:
    data = JudgedData(n, [query([1, 0], [1.0] * n, [0.0] * n)])
    with pytest.raises(BadData, match=rf"features: expected 2, as the model has \(.*\), got {n}$"):
        trainer.judgements(data, ModelConfig(("a", "b")), BOUND)


def test_features_beyond_the_bound_are_refused_without_normalization() -> None:
    data = JudgedData(1, [query([1, 0], [10_001.0], [0.0])])
    with pytest.raises(
        BadData, match="expected values within ±10000 for a model without normalization"
    ):
        trainer.judgements(data, ModelConfig(("a",)), BOUND)
    trainer.judgements(data, ModelConfig(("a",), normalization="query-minmax"), BOUND)


# ---- held-out queries ----


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_the_held_out_share_is_always_the_same_queries(share: float) -> None:
    data = judged(queries=40)
    rest, held = trainer.split(data, share)
    assert len(held.starts) - 1 == pytest.approx(share * 40, abs=1)
    assert len(rest.labels) + len(held.labels) == len(data.labels)
    again, _ = trainer.split(data, share)
    assert (again.X == rest.X).all()
    held_rows = {row.tobytes() for row in held.X}
    assert not held_rows & {row.tobytes() for row in rest.X}


def test_queries_with_equal_labels_are_split_too() -> None:
    flat = [query([1, 1], [1.0], [0.0])] * 10
    ordering = [query([1, 0], [1.0], [0.0])] * 10
    rest, held = trainer.split(few(*flat, *ordering), 0.3)
    assert held.ordering().sum() == 3
    assert rest.ordering().sum() == 7
    assert len(held.starts) - 1 == 6


def test_the_last_queries_are_held_out_if_their_number_is_given() -> None:
    data = judged(queries=10)
    rest, held = trainer.split(data, 3.0)
    assert (data.X[: data.starts[7]] == rest.X).all()
    assert (data.X[data.starts[7] :] == held.X).all()


@pytest.mark.parametrize(
    ("queries", "training"),
    [
        ([query([1, 0], [1.0], [0.0])], Training()),
        ([query([1, 0], [1.0], [0.0])] * 2, Training(validation=2.0)),
        ([query([1, 0], [1.0], [0.0])] * 2, Training(validation=5.0)),
        ([query([1, 0], [1.0], [0.0]), query([1, 1], [1.0], [0.0])], Training(validation=1.0)),
        ([query([1, 1], [1.0], [0.0]), query([1, 0], [1.0], [0.0])], Training(validation=1.0)),
    ],
)
def test_too_few_queries_to_hold_out_are_refused(
    queries: list[LabelledQuery], training: Training
) -> None:
    with pytest.raises(BadData, match="validation: expected queries with different labels both to"):
        trainer.checked_judgements(few(*queries), training)


@pytest.mark.parametrize("labels", [[1.0, 1.0], [0.0, 0.0]])
def test_data_with_equal_labels_is_refused(labels: list[float]) -> None:
    with pytest.raises(BadData, match="expected two documents of one query with different labels"):
        trainer.train_batch(few(query(labels, [1.0], [0.0])), Training(C=1.0))


def test_labels_that_differ_only_between_queries_are_refused() -> None:
    apart = few(query([1.0, 1.0], [1.0], [0.0]), query([0.0], [0.0]))
    with pytest.raises(BadData, match="expected two documents of one query with different labels"):
        trainer.train_batch(apart, Training(C=1.0))


def test_one_query_is_enough_if_c_is_given() -> None:
    found = trainer.train_batch(few(query([1, 0], [1.0], [0.0])), Training(C=1.0))
    assert found.weights[0] > 0.0


# ---- training ----


@pytest.mark.parametrize("loss", ["l2", "l1"])
def test_with_c_given_the_solver_runs_on_all_queries(loss: Any) -> None:
    data = judged()
    found = trainer.train_batch(data, Training(loss=loss, C=0.1))
    assert (found.weights == solver(loss, data).fit(0.1).w).all()
    assert found.tried == ()


@pytest.mark.parametrize(
    ("training", "kind"),
    [
        (Training(), "l2"),
        (Training(loss="l1", by="pairwise"), "l1"),
        (Training("domination"), "domination"),
    ],
)
def test_the_parameter_is_the_best_on_the_held_out_queries(training: Training, kind: Any) -> None:
    data = judged()
    found = trainer.train_batch(data, training)
    rest, held = trainer.split(data, trainer.HELD_OUT)
    naive, w = [], None
    for parameter in solver(kind, rest).grid[: len(found.tried)]:
        w = solver(kind, rest).fit(parameter, w).w
        naive.append((parameter, path.batch_quality(held, w, training.by)))
    assert found.tried == tuple(naive)
    assert found.parameter == max(naive, key=lambda one: one[1])[0]
    assert found.judged is data  # the final model is trained on all of them


def test_the_last_queries_choose_c_and_are_not_trained_on() -> None:
    data = judged(queries=20)
    worst = Judgements(data.X, data.labels.copy(), data.starts)
    worst.labels[data.starts[15] :] = 2.0 - worst.labels[data.starts[15] :]
    rest, _ = trainer.split(data, 5.0)
    chosen = []
    for one in (data, worst):
        found = trainer.train_batch(one, Training(validation=5.0))
        w = None
        for parameter, _ in found.tried:
            w = solver("l2", rest).fit(parameter, w).w
            if parameter == found.parameter:
                assert (w == found.weights).all()
        chosen.append(found.parameter)
    assert chosen[0] != chosen[1]


def test_a_penalty_leaves_zeros_and_reports_their_share() -> None:
    data = judged()
    largest = solver("domination", data).grid[0]
    found = trainer.train_batch(data, Training("domination", penalty=largest))
    training = Training("domination", penalty=largest)
    about = trainer.describe_training(found, training, "none")
    assert 0.0 < found.zeros < 1.0
    assert about["zeros"] == np.mean(found.weights == 0.0)
    assert about["penalty"] == largest
    assert "loss" not in about


def test_progress_reports_contain_iteration_and_ndcg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "PROGRESS_SECONDS", 0.0)
    reports: list[Progressed] = []
    data = judged()
    found = trainer.train_batch(data, Training(C=1.0), reports.append)
    assert [one.iteration for one in reports] == list(range(found.minimum.iterations + 1))
    assert reports[-1].objective == found.minimum.value
    assert reports[-1].distance == found.minimum.distance
    assert reports[-1].ndcg == path.batch_quality(data, found.weights, "ndcg@10")
    assert reports[0].ndcg < reports[-1].ndcg


def test_progress_is_measured_on_a_fixed_sample_of_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer, "PROGRESS_QUERIES", 7)
    monkeypatch.setattr(trainer, "PROGRESS_SECONDS", 0.0)
    data, reports = judged(), list[Progressed]()
    sample = trainer.progress_sample(data)
    assert len(sample.starts) - 1 == 7
    assert (sample.X == trainer.progress_sample(data).X).all()
    found = trainer.train_batch(data, Training(C=1.0), reports.append)
    assert reports[-1].ndcg == path.batch_quality(sample, found.weights, "ndcg@10")


def test_the_sample_of_few_queries_is_all_of_them() -> None:
    assert trainer.PROGRESS_QUERIES == 1000
    data = judged()
    assert trainer.progress_sample(data) is data


def test_a_training_that_nobody_watches_measures_nothing() -> None:
    data = judged()
    beyond = Judgements(data.X, 40.0 + data.labels, data.starts)  # measuring refuses these labels
    trainer.train_batch(beyond, Training(C=1.0))
    with pytest.raises(ValueError, match="labels: expected numbers from 0 to 30"):
        trainer.train_batch(beyond, Training(C=1.0), lambda _: None)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_measures_progress_only_on_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr, shown = Terminal() if terminal else StringIO(), list[Any]()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(file, "show", lambda *arguments: shown.append(arguments))
    file.trained(synthetic(), Training(C=1.0), ModelConfig(NAMES), BOUND)
    assert bool(shown) == terminal


def test_an_exception_of_the_progress_callback_ends_the_training() -> None:
    def stop(_: Progressed) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.train_batch(judged(), Training(C=1.0), stop)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (Training(penalty=1.0), "penalty: not an option of ranksvm; use C instead"),
        (Training("domination", C=1.0), "C: not an option of domination; use penalty instead"),
        (Training(C=0.0), "C: expected a value from"),
        (Training(C=float("nan")), "C: expected a value from"),
        (Training(C=1e13), "C: expected a value from"),
        (Training(C=1.0, validation=0.2), "validation: expected without C"),
        (Training("domination", penalty=1.0, validation=0.2), "expected without penalty"),
        (Training(validation=0.0), "validation: expected a share"),
        (Training(validation=1.5), "validation: expected a share"),
        (Training(validation=-1.0), "validation: expected a share"),
        (Training(validation=float("inf")), "validation: expected a share"),
        (Training(validation=float("nan")), "validation: expected a share"),
    ],
)
def test_invalid_training_options_are_refused(training: Training, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_training(training)


# ---- the online model ----


def test_sigma_equals_the_recursion_over_the_support_pairs() -> None:
    data = judged(queries=10)
    settings = ModelConfig(NAMES, gamma=50.0)
    found = trainer.train_batch(data, Training(C=0.1))
    model = trainer.online(found, settings)
    x = gaps(data.X, data.labels, data.starts)
    x = x[x @ found.weights < 1.0]
    learner = SolarII(6, gamma=50.0, weights=np.zeros(6))
    precision = np.eye(6) + x.T @ x / 50.0
    assert (model.weights == found.weights).all()
    assert np.allclose(covariance.square(model.spread, 6) @ precision, np.eye(6), atol=1e-9)
    for gap in x:  # each inside its margin while w is 0: eq. 9, pair by pair
        learner.learn(gap[None])
        learner = SolarII(6, gamma=50.0, weights=np.zeros(6), covariance=learner.covariance)
    assert np.allclose(learner.covariance, model.spread, atol=1e-9)


def test_a_diagonal_model_gets_the_variances() -> None:
    data = judged(queries=10)
    settings = ModelConfig(NAMES, covariance="diagonal", gamma=50.0)
    found = trainer.train_batch(data, Training(C=0.1))
    x = gaps(data.X, data.labels, data.starts)
    x = x[x @ found.weights < 1.0]
    expected = 1.0 / (1.0 + (x * x).sum(axis=0) / 50.0)
    assert trainer.online(found, settings).spread == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "settings",
    [ModelConfig(NAMES, "solar-i"), ModelConfig(NAMES), ModelConfig(NAMES, covariance="diagonal")],
)
def test_the_reducer_accepts_the_model_and_continues(settings: ModelConfig) -> None:
    found = trainer.train_batch(judged(), Training(C=0.1))
    reducer = Reducer(initial_state(settings))
    assert reducer.apply(codec.dump_record(Replace(trainer.online(found, settings), "warm start")))
    rows = np.eye(2, 6, dtype=np.float32)
    labels = np.array([0.0, 1.0])
    assert reducer.apply(codec.dump_record(Feedback("e", "labels", rows, labels=labels)))
    assert sound(reducer.state().model) == []
    assert (reducer.state().model.weights != found.weights).any()


# ---- the share of a job that is done ----


@pytest.mark.parametrize(
    "training",
    [Training(), Training(C=1.0), Training(loss="l1", C=1.0), Training(trainer="domination")],
)
def test_a_training_process_reports_the_share_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: Training
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(letor, "BYTES_AT_ONCE", 1000)
    rows = [(at, label, row) for at, one in enumerate(synthetic().queries)
            for label, row in zip(one.labels, one.documents, strict=True)]  # fmt: skip
    lines = [
        f"{label:g} qid:{at} " + " ".join(f"{k}:{value:.9g}" for k, value in enumerate(row, 1))
        for at, label, row in rows
    ]
    Path(UPLOAD).write_text("\n".join([*lines, ""]))
    reports: list[tuple[str, Any]] = []
    task = TrainingTask(ModelConfig(NAMES), training, BOUND, blob=False, memory=1 << 40)
    process.work(task, lambda event, value: reports.append((event, value)))
    events = [event for event, _ in reports]
    shares = [value for event, value in reports if event == "share"]
    reading = [value for event, value in reports[: events.index("read")] if event == "share"]
    assert len(reading) > 10
    assert reading == sorted(reading)
    assert reading[-1] == shares[len(reading)] == process.READ
    training_shares = shares[len(reading) + 1 :]
    assert all(process.READ <= share <= process.TRAINED for share in training_shares)
    assert len(set(training_shares)) > 3
    assert training_shares[-1] == process.TRAINED
