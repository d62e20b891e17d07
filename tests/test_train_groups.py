"""`solar train --group-by`: one model a group, each as if trained alone."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import solar_client

from app.errors import Full
from app.evaluation.letor import JudgedData, read_letor
from app.ranking.online import LabelledQuery
from app.storage.embedded import server as embedded
from app.storage.embedded.server import EmbeddedServer
from app.storage.states import StoredState
from app.storage.store import Store
from app.training import trainer
from app.training.groups import (
    FEW_QUERIES,
    Fit,
    GroupTask,
    GroupTraining,
    Outcome,
    QualityCurve,
    Refusal,
    in_chunks,
    pooled_position,
)
from app.training.options import Training
from app.training.targets import groups_http, groups_store
from app.training.targets.file import new_config
from app.training.targets.groups import GroupRequest
from app.training.targets.groups_http import letor_text
from tests.api.services import Running, serving
from tests.commands import Solar
from tests.servers import until, with_store

BOUND = 1e4
CONFIG = new_config(3, None)
LABELS = "labels: expected two documents of one query with different labels, got none"


def judged(seed: int, queries: int, n: int = 3, documents: int = 5) -> JudgedData:
    """Draw queries with features that correlate, so that the best C is not the first."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(n)

    def query() -> LabelledQuery:
        X = (rng.random((documents, n)) + 3.0 * rng.random((documents, 1))).astype(np.float32)
        worth = X @ (w - 0.9 * w.mean()) + 0.05 * rng.standard_normal(documents)
        return LabelledQuery(np.digitize(worth, [np.median(worth)]).astype(np.float64), X)

    return JudgedData(n, [query() for _ in range(queries)])


def flat(queries: int) -> JudgedData:
    rows = np.ones((2, 3), np.float32)
    return JudgedData(3, [LabelledQuery(np.ones(2), rows) for _ in range(queries)])


def task(group: str, data: JudgedData) -> GroupTask:
    return GroupTask(group, "", CONFIG, data)


def here(
    function: Callable[[GroupTask], Any], parts: Iterable[Sequence[GroupTask]]
) -> Iterator[Any]:
    """Apply a function in this process."""
    return (function(one) for part in parts for one in part)


def train(tasks: list[GroupTask], training: Training) -> dict[str, Outcome]:
    found = GroupTraining(training, BOUND).train_all(tasks, here)
    return {one.task.group: one for one in found}


def alone(data: JudgedData, training: Training) -> trainer.BatchModel:
    return trainer.train_batch(trainer.judgements(data, CONFIG, BOUND), training)


def fit(outcome: Outcome) -> Fit:
    assert isinstance(outcome.found, Fit)
    return outcome.found


def refusal(outcome: Outcome) -> str:
    assert isinstance(outcome.found, Refusal)
    return outcome.found.reason


@pytest.mark.parametrize(
    "training",
    [Training(), Training(by="pairwise", loss="l1"), Training("domination"), Training(C=0.1)],
    ids=["l2", "l1", "domination", "given C"],
)
def test_a_group_has_the_weights_and_the_parameter_of_a_training_alone(training: Training) -> None:
    data = {f"g{seed}": judged(seed, FEW_QUERIES + seed % 3) for seed in (3, 6, 7)}
    found = train([task(*item) for item in data.items()], training)
    for group, queries in data.items():
        expected = alone(queries, training)
        assert fit(found[group]).weights == expected.weights.tolist()
        assert fit(found[group]).about[training.parameter] == expected.parameter
        assert not found[group].pooled


@pytest.mark.parametrize("training", [Training(), Training("domination")], ids=["C", "penalty"])
def test_a_small_group_is_trained_with_the_pooled_choice(training: Training) -> None:
    tasks = [task("large", judged(1, FEW_QUERIES)), *_small_tasks()]
    found = train(tasks, training)
    assert [group for group, one in found.items() if one.pooled] == ["s2", "s3", "one"]
    large = fit(found["large"]).about["tried"]
    for group in ("s2", "s3", "one"):
        about = fit(found[group]).about
        given = Training(training.trainer, **{training.parameter: about[training.parameter]})
        data = next(one.data for one in tasks if one.group == group)
        assert fit(found[group]).weights == alone(data, given).weights.tolist()
    if training.trainer == "ranksvm":
        chosen = {fit(found[group]).about["C"] for group in ("s2", "s3", "one")}
        assert chosen == {_naive_pooled_c(tasks, [one["quality"] for one in large])}
        assert chosen != {fit(found["large"]).about["C"]}


def _small_tasks() -> list[GroupTask]:
    return [task("s2", judged(2, 6)), task("s3", judged(3, 9)), task("one", judged(4, 1))]


def _naive_pooled_c(tasks: list[GroupTask], large: list[float]) -> float:
    """The C with the best mean over the held-out queries; 4 of 20, 1 of 6 and 2 of 9."""
    curves = [(4, large)]
    for small, queries in ((tasks[1], 1), (tasks[2], 2)):
        tried = alone(small.data, Training()).tried
        curves.append((queries, [quality for _, quality in tried]))
    means = [
        sum(weight * curve[min(at, len(curve) - 1)] for weight, curve in curves) for at in range(26)
    ]
    return float(2.0 ** (-15 + means.index(max(means))))


def test_a_group_whose_model_has_another_normalization_is_refused() -> None:
    request = GroupRequest((), "shop", None, Training(), None, 1, "query-minmax")
    assert str(request.refusal(task("a", judged(1, 1)))).startswith("normalization: expected none")
    scaled = GroupTask("a", "", new_config(3, "query-minmax"), judged(1, 1))
    assert request.refusal(scaled) is None


def test_the_last_quality_of_a_group_counts_for_parameters_that_it_did_not_try() -> None:
    assert pooled_position([QualityCurve((0.5, 0.4), 10), QualityCurve((0.1, 0.1, 0.9), 2)]) == 2
    assert pooled_position([QualityCurve((0.5, 0.4), 20), QualityCurve((0.1, 0.1, 0.9), 1)]) == 0
    assert pooled_position([QualityCurve((), 0)]) is None


def test_a_group_that_cannot_be_trained_is_refused_and_the_others_are_trained() -> None:
    wide = judged(1, 3, n=4)
    huge = JudgedData(3, [LabelledQuery(np.array([0.0, 1.0]), np.full((2, 3), 1e6, np.float32))])
    tasks = [task("flat", flat(30)), task("good", judged(1, 25)), task("wide", wide)]
    found = train([*tasks, task("huge", huge)], Training())
    assert refusal(found["flat"]) == LABELS
    assert refusal(found["wide"]).startswith("features: expected 3, as the model has")
    assert refusal(found["huge"]).startswith("features: expected values within")
    assert fit(found["good"]).weights == alone(judged(1, 25), Training()).weights.tolist()


def test_features_go_to_those_of_the_model_by_name() -> None:
    config = new_config(3, None, ("x", "y", "z"))
    data = judged(1, 25, n=2)
    named = GroupTask("g", "g", config, data, ("z", "x"))
    queries = [
        LabelledQuery(one.labels, np.insert(np.asarray(one.documents)[:, ::-1], 1, 0.0, axis=1))
        for one in data.queries
    ]
    found = train([named, GroupTask("h", "h", config, data, ("z", "u"))], Training())
    expected = alone(JudgedData(3, queries), Training())
    assert fit(found["g"]).weights == expected.weights.tolist()
    assert refusal(found["h"]) == 'features: the model has no feature "u"'


def test_groups_of_one_query_each_need_a_given_parameter() -> None:
    tasks = [task("a", judged(1, 1)), task("b", judged(2, 1))]
    found = train(tasks, Training())
    assert refusal(found["a"]).endswith("got none; give --C or --penalty")
    assert fit(train(tasks, Training(C=1.0))["b"]).about["C"] == 1.0


def test_chunks_hold_every_task_once_and_are_bounded() -> None:
    tasks = [task(str(at), judged(at, 1, documents=3000)) for at in range(40)]
    chunks = list(in_chunks(tasks))
    assert [one for chunk in chunks for one in chunk] == tasks
    assert [len(chunk) for chunk in chunks] == [29, 11]
    assert [len(chunk) for chunk in in_chunks(tasks[:1] * 70)] == [29, 29, 12]


# ---- the command ----


@pytest.fixture
def solar(capsys: pytest.CaptureFixture[str]) -> Solar:
    return Solar(capsys, "train")


#: A large group, a small one, one without two labels, and one whose name is invalid for a model.
SHOPS = {"a": judged(1, 22), "b": judged(2, 4), "c": flat(2), "d.e": judged(3, 2)}


def letor(groups: dict[str, JudgedData]) -> str:
    lines = []
    for group, data in groups.items():
        for at, query in enumerate(data.queries):
            for label, row in zip(query.labels, np.asarray(query.documents), strict=True):
                features = " ".join(f"{k}:{value!s}" for k, value in enumerate(row, start=1))
                lines.append(f"{label:g} qid:{group}:{at} {features}\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("groups") / "shops.txt"
    path.write_text(letor(SHOPS))
    return path


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_groups_of_a_file_are_written_in_order_by_processes(
    solar: Solar, text: Path, tmp_path: Path
) -> None:
    arguments = ["--group-by", "qid-prefix", "--processes", "2"]
    code, output, error = solar(text, *arguments, "--output", tmp_path / "models.jsonl")
    assert (code, error) == (0, "")
    assert output.splitlines() == [
        "models trained: 3, groups refused: 1",
        'C by the pooled choice (fewer than 20 queries with different labels), groups: "b", "d.e"',
        f'refused: "c": {LABELS}',
    ]
    written = read_lines(tmp_path / "models.jsonl")
    found = train([task(*item) for item in SHOPS.items()], Training())
    for line, (group, outcome) in zip(written, sorted(found.items()), strict=True):
        assert line["group"] == group
        if group == "c":
            assert line == {"group": "c", "refused": LABELS}
        else:
            np.testing.assert_allclose(
                list(line["weights"].values()), fit(outcome).weights, rtol=1e-9
            )
            assert line["training"]["C"] == fit(outcome).about["C"]
            assert line["normalization"] == line["training"]["normalization"] == "none"
            assert line["pooled"] == (group != "a")


def test_a_store_gets_all_models_and_keeps_the_settings_of_those_that_exist(
    solar: Solar, text: Path, service: Running
) -> None:
    with service.client() as client:
        settings: dict[str, Any] = {"features": ["x", "y", "z"], "normalization": "query-minmax"}
        settings["splines"] = {"y": [0.25, 0.5]}
        assert client.put("/models/shop-a", json=settings).status_code == 201
        url = embedded.find(service.data)
        assert url is not None
        code, output, error = solar(
            text, "--group-by", "qid-prefix", "--model", "shop-{group}", "--redis-url", url,
            "--processes", "1",
        )  # fmt: skip
        assert (code, error) == (0, "")
        assert "models trained: 2, groups refused: 2" in output
        assert 'refused: "d.e": model: expected a name of 1 to 64 letters' in output
        assert output.endswith("models replaced: 2\n")
        names = {one["name"] for one in client.get("/models").json()["models"]}
        assert {name for name in names if name.startswith("shop-")} == {"shop-a", "shop-b"}
        until(partial(_served, client, "shop-a"))
        until(partial(_served, client, "shop-b"))
        old, new = state(url, "shop-a"), state(url, "shop-b")
    assert old.state.model.config.normalization == "query-minmax"
    assert old.state.model.config.splines == {"y": (0.25, 0.5)}
    judgements = trainer.judgements(SHOPS["a"], old.state.model.config, BOUND)
    expected = trainer.online(trainer.train_batch(judgements, Training()), old.state.model.config)
    np.testing.assert_allclose(old.state.model.weights, expected.weights, rtol=1e-9)
    np.testing.assert_allclose(old.state.model.spread, expected.spread, rtol=1e-9)
    assert new.state.model.config.given == ("f1", "f2", "f3")
    assert new.state.model.config.normalization == "none"


def test_an_error_of_the_store_says_how_many_models_were_replaced(
    solar: Solar, text: Path, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: Store, model: str, *__: object) -> int:
        if model == "n-b":
            raise Full("the store is full")
        return 1

    monkeypatch.setattr(groups_store, "append_replacement", fails)
    url = embedded.find(service.data)
    assert url is not None
    code, output, error = solar(
        text, "--group-by", "qid-prefix", "--model", "n-{group}", "--redis-url", url,
        "--processes", "1", "--C", "1",
    )  # fmt: skip
    assert (code, output) == (2, "")
    assert error == "solar: the store is full; models replaced before: 1\n"


def test_an_error_of_the_service_says_how_many_models_were_replaced(
    solar: Solar, text: Path, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object, outcome: Outcome, *__: object) -> None:
        if outcome.task.group == "b":
            raise solar_client.SolarError("the job has failed")

    monkeypatch.setattr(groups_http, "train_remotely", fails)
    code, output, error = solar(
        text, "--group-by", "qid-prefix", "--model", "o-{group}", "--url", service.url,
        "--processes", "1", "--C", "1",
    )  # fmt: skip
    assert (code, output) == (2, "")
    assert error == "solar: the job has failed; models replaced before: 1\n"


def state(url: str, model: str) -> StoredState:
    async def load(store: Store) -> StoredState:
        return await store.states.load(model)

    return with_store(url, load)


def test_a_service_trains_all_groups_as_this_process_does(
    solar: Solar, text: Path, service: Running, tmp_path: Path
) -> None:
    bent = {"features": 3, "normalization": "query-minmax", "splines": {"f1": [0.5]}, "prior": 0.0}
    with service.client() as client:
        assert client.put("/models/a-shop", json=bent).status_code == 201
    code, output, error = solar(
        text, "--group-by", "qid-prefix", "--model", "{group}-shop", "--url", service.url,
        "--processes", "1", "--output", tmp_path / "models.jsonl",
        "--normalization", "query-minmax",
    )  # fmt: skip
    assert (code, error) == (0, "")
    assert output.endswith("models replaced: 2\n")
    written = {line["group"]: line for line in read_lines(tmp_path / "models.jsonl")}
    assert written["d.e"]["refused"].startswith("model: expected a name")
    with service.client() as client:
        for group in "ab":
            name = f"{group}-shop"
            assert written[group]["model"] == name
            until(partial(_served, client, name))
            model = client.get(f"/models/{name}").json()
            for field in ("weights", "normalization", "splines"):
                assert model.get(field) == written[group].get(field)
            assert model["normalization"] == "query-minmax"
    assert list(written["a"]["weights"]) == ["f1", "f2", "f3", "f1>0.5"]


def _served(client: httpx.Client, name: str) -> bool:
    return bool(client.get(f"/models/{name}").json()["version"] == 1)


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.mark.parametrize("names", [("x",), ("y", "x"), ("z", "y", "x"), None])
def test_the_text_for_a_service_has_the_bits_of_the_data(
    names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    data = judged(5, 3, n=len(names or "xyz"))
    sent = GroupTask("g", "g", new_config(3, None, ("x", "y", "z")), data, names)
    path = tmp_path / "text"
    path.write_bytes(letor_text(sent))
    found = read_letor([path])
    assert found.n == 3
    for query, expected in zip(found.queries, data.queries, strict=True):
        assert query.labels.tolist() == expected.labels.tolist()
        rows = dict(zip("xyz", np.asarray(query.documents).T, strict=True))
        for name, column in zip(names or "xyz", np.asarray(expected.documents).T, strict=True):
            assert (rows.pop(name) == column).all()
        assert not any(rest.any() for rest in rows.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group-by", "qid-prefix"], "expected --model NAME, --output FILE or both"),
        (["--group-by", "qid-prefix", "--model", "m"], "--model: expected {group} in it"),
        (
            ["--group-by", "qid-prefix", "--output", "m", "--validation", "3"],
            "--validation: expected a share between 0 and 1 with --group-by",
        ),
        (
            ["--group-by", "qid-prefix", "--output", "m", "--validate", "m"],
            "--validate: expected without --group-by",
        ),
        (
            ["--group-by", "qid-prefix", "--output", "m", "--splines", "4"],
            "--splines: expected without --group-by",
        ),
        (["--processes", "2", "--output", "m"], "--processes: expected with --group-by only"),
        (
            ["--group-by", "shop", "--output", "m", "--processes", "1"],
            "--group-by: expected qid-prefix for LETOR text",
        ),
    ],
)
def test_options_that_do_not_fit_groups_are_refused(
    solar: Solar, text: Path, arguments: list[str], message: str
) -> None:
    code, output, error = solar(text, *arguments)
    assert (code, output) == (2, "")
    assert error.startswith(f"solar: {message}"), error


def test_more_new_models_than_the_store_may_have_change_nothing(
    solar: Solar, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOLAR_MODELS", "2")
    code, output, error = solar(
        text, "--group-by", "qid-prefix", "--model", "{group}", "--data-dir", tmp_path,
        "--processes", "1",
    )  # fmt: skip
    assert (code, output) == (2, "")
    assert error.startswith("solar: expected at most 2 models (SOLAR_MODELS), got 0 and 3 new ones")


def test_a_training_without_any_valid_group_fails_and_changes_nothing(
    solar: Solar, tmp_path: Path
) -> None:
    path = tmp_path / "flat.txt"
    path.write_text(letor({"c": flat(2)}))
    code, output, error = solar(
        path, "--group-by", "qid-prefix", "--model", "{group}", "--data-dir", tmp_path / "data",
        "--processes", "1", "--output", tmp_path / "models.jsonl",
    )  # fmt: skip
    assert (code, output) == (2, "")
    assert error == f'solar: expected a group to train on, got none: "c": {LABELS}\n'
    assert not (tmp_path / "models.jsonl").exists()

    async def models(store: Store) -> list[str]:
        return await store.models.names()

    with EmbeddedServer.start(tmp_path / "data") as server:
        assert with_store(server.url, models) == []
