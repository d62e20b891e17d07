"""A Dask cluster of processes trains as one process does, whatever happens to its workers."""

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import BadData, ClusterFailed
from app.training import cluster, trainer
from app.training.cluster import ClusterEngine, cluster_engine
from app.training.options import Training
from app.training.shards import training as sharded
from app.training.shards.engines import EngineSums, SerialEngine
from app.training.targets.file import new_config
from tests import commands
from tests.shards import N, as_queries, checked, drawn, in_one, write_text, written

SHARDS = drawn(shards=5, queries=20)


@pytest.fixture(scope="module")
def engine() -> Iterator[ClusterEngine]:
    with dask_state_put_back(), cluster_engine("local:2") as found:
        yield found


@contextmanager
def dask_state_put_back() -> Iterator[None]:
    """Undo what a local cluster changes in its process: variables for its workers, log handlers."""
    environ = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - environ.keys():
            del os.environ[name]
        os.environ.update(environ)
        for name in ("distributed.nanny", "distributed.scheduler", "distributed.worker"):
            logging.getLogger(name).handlers.clear()


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return written(tmp_path_factory.mktemp("shards"), SHARDS)


def pids(engine: ClusterEngine) -> list[int]:
    return list(engine.connected().run(os.getpid).values())


def test_a_cluster_trains_as_one_process_does(engine: ClusterEngine, urls: list[str]) -> None:
    training = Training(C=0.01)
    found = sharded.train_shards(engine, checked(urls, engine), training)
    expected = trainer.train_batch(in_one(SHARDS), training)
    assert found.ndcg == pytest.approx(
        trainer.describe_training(expected, training, "none")["ndcg@10"]
    )
    np.testing.assert_allclose(found.minimum.w, expected.weights, rtol=0, atol=1e-9)


def test_the_bits_do_not_depend_on_a_killed_worker(engine: ClusterEngine, urls: list[str]) -> None:
    killed: list[int] = []

    def kill(_: trainer.Progressed) -> None:
        if not killed:
            killed.append(pids(engine)[0])
            os.kill(killed[0], signal.SIGKILL)

    training = Training(C=0.1)
    found = sharded.train_shards(engine, checked(urls, engine), training, kill)
    serial = SerialEngine(0)
    expected = sharded.train_shards(serial, checked(urls, serial), training)
    assert killed
    assert found.minimum.w.tobytes() == expected.minimum.w.tobytes()


def test_a_stopped_workers_part_is_computed_by_another(
    engine: ClusterEngine, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.training.shards.dispatch.LEAST_SECONDS", 0.1)
    sums = EngineSums(engine, checked(urls, engine).parts())
    w = np.ones(N)
    expected = sums.loss(w)
    stopped = pids(engine)[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        found = sums.loss(w)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert found.loss == expected.loss
    assert found.gradient.tobytes() == expected.gradient.tobytes()


def test_the_error_of_a_shard_is_that_of_one_process(
    engine: ClusterEngine, urls: list[str]
) -> None:
    with pytest.raises(BadData, match="expected a readable file, got none there"):
        checked([*urls, "/nowhere/a.parquet"], engine)


def test_a_worker_with_other_versions_is_refused(
    engine: ClusterEngine, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {**cluster._worker_versions(), "solar": "0.0.1"}
    monkeypatch.setattr(cluster, "_worker_versions", lambda: others)
    with pytest.raises(ClusterFailed, match=r"worker tcp://.*: expected solar 0\.0\.1, as here"):
        checked(urls, engine)


def test_other_versions_are_refused_by_name() -> None:
    cluster.refuse_others("worker", {"python": "3.11.7"}, {"python": "3.11.2"}, minor=("python",))
    with pytest.raises(ClusterFailed, match=r"scheduler: expected numpy 2\.4, as here, got none"):
        cluster.refuse_others("scheduler", {"numpy": "2.4"}, {})


def test_a_scheduler_that_is_gone_fails_the_training_after_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.1)
    with (
        cluster_engine("tcp://127.0.0.1:9", patience=0.1) as gone,
        pytest.raises(ClusterFailed, match=r"for 0\.1 s \(--patience\); nothing was changed"),
    ):
        checked(["/nowhere/a.parquet"], gone)


def test_the_command_trains_on_a_cluster_into_a_file(
    engine: ClusterEngine, urls: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "model.json"
    address = engine.connected().scheduler.address
    code = commands.solar(
        "train", *urls, "--cluster", address, "--C", "0.1", "--output", str(output)
    )
    assert (code, "100 queries" in capsys.readouterr().out) == (0, True)
    written: dict[str, Any] = json.loads(output.read_text())
    assert list(written) == ["weights", "normalization", "training"]
    assert written["normalization"] == written["training"]["normalization"] == "none"
    expected = trainer.train_batch(in_one(SHARDS), Training(C=0.1)).weights
    np.testing.assert_allclose(list(written["weights"].values()), expected, rtol=0, atol=1e-9)
    assert [one.name for one in tmp_path.iterdir()] == ["model.json"]  # no checkpoint is left


def test_a_new_model_of_the_command_has_the_normalization_that_is_stated(
    engine: ClusterEngine, urls: list[str], tmp_path: Path
) -> None:
    address, output = engine.connected().scheduler.address, tmp_path / "model.json"
    given = ["--C", "0.1", "--normalization", "query-minmax", "--output", str(output)]
    assert commands.solar("train", *urls, "--cluster", address, *given) == 0
    written = json.loads(output.read_text())
    assert written["normalization"] == written["training"]["normalization"] == "query-minmax"
    judged = trainer.judgements(as_queries(SHARDS), new_config(N, "query-minmax"), 1e4)
    expected = trainer.train_batch(judged, Training(C=0.1)).weights
    np.testing.assert_allclose(list(written["weights"].values()), expected, rtol=0, atol=1e-9)


def test_the_command_keeps_normalization_and_splines_of_a_model(
    engine: ClusterEngine, urls: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = engine.connected().scheduler.address
    data = str(tmp_path / "data")
    text = str(write_text(tmp_path / "judged.txt", SHARDS[0]))
    to_model = ["--model", "m", "--data-dir", data, "--C", "0.1"]
    new = [*to_model, "--normalization", "query-minmax", "--splines", "4"]
    assert commands.solar("train", text, *new) == 0
    output = tmp_path / "model.json"
    on_cluster = ["train", *urls, "--cluster", address, *to_model, "--output", str(output)]
    assert commands.solar(*on_cluster) == 0
    written = json.loads(output.read_text())
    assert written["normalization"] == written["training"]["normalization"] == "query-minmax"
    assert len(written["weights"]) == N + sum(map(len, written["splines"].values()))
    capsys.readouterr()
    assert commands.solar(*on_cluster, "--normalization", "none") == 2
    assert "normalization: expected query-minmax" in capsys.readouterr().err
    assert commands.solar(*on_cluster, "--splines", "4") == 2
    assert "--splines: expected without --cluster" in capsys.readouterr().err
