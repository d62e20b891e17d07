"""A Dask cluster of processes trains as one process does, whatever happens to its workers.

The cluster speaks TLS if openssl can make a certificate.
"""

import json
import logging
import os
import shutil
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask.config
import distributed
import numpy as np
import pytest
from distributed import LocalCluster
from distributed.comm import CommClosedError

from app.errors import BadData, ClusterFailed, ReadFailed
from app.training import cluster, trainer
from app.training.cluster import ClusterEngine, cluster_engine
from app.training.options import Training
from app.training.shards import heartbeats, versions
from app.training.shards import training as sharded
from app.training.shards.cache import Cache
from app.training.shards.engines import EngineSums, SerialEngine
from app.training.targets.file import new_config
from tests import commands
from tests.api.services import PLAIN, serving
from tests.api.trainings import done
from tests.shards import N, as_queries, checked, drawn, in_one, write_text, written
from tests.test_tls import Certificate, certified, tls_proxy
from tests.waits import until

SHARDS = drawn(shards=5, queries=20)


TLS = "distributed.comm.tls"
ENCRYPTED = "distributed.comm.require-encryption"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterEngine]:
    with ExitStack() as stack:
        stack.enter_context(dask_state_put_back())
        has_openssl = shutil.which("openssl") is not None
        if has_openssl:
            folder = tmp_path_factory.mktemp("certificates")
            stack.enter_context(dask.config.set(trusting(certified(folder, "cluster"))))
        with dask.config.set({ENCRYPTED: has_openssl}):
            found = stack.enter_context(cluster_engine("local:2"))
        yield found


def trusting(one: Certificate) -> dict[str, str]:
    """Settings of Dask: all sides have this certificate, and trust only it."""
    files = {"cert": str(one.file), "key": str(one.key)}
    roles = ("client", "scheduler", "worker")
    named = {f"{TLS}.{role}.{kind}": file for role in roles for kind, file in files.items()}
    return {f"{TLS}.ca-file": str(one.file), **named}


@contextmanager
def dask_state_put_back() -> Iterator[None]:
    """Undo what a local cluster changes in its process: variables for its workers, log handlers."""
    environ = dict(os.environ)
    names = ("distributed.nanny", "distributed.scheduler", "distributed.worker")
    handlers = {name: list(logging.getLogger(name).handlers) for name in names}
    try:
        yield
    finally:
        for name in os.environ.keys() - environ.keys():
            del os.environ[name]
        os.environ.update(environ)
        for name, before in handlers.items():
            logging.getLogger(name).handlers[:] = before


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return written(tmp_path_factory.mktemp("shards"), SHARDS)


def pids(engine: ClusterEngine) -> list[int]:
    return list(engine.connected().run(os.getpid).values())


@pytest.mark.parametrize(
    ("training", "shards"), [(Training(C=0.01), 5), (Training(), 2)], ids=["given", "chosen"]
)
def test_a_cluster_trains_as_one_process_does(
    engine: ClusterEngine, urls: list[str], training: Training, shards: int
) -> None:
    found = sharded.train_shards(engine, checked(urls[:shards], engine), training)
    expected = trainer.train_batch(in_one(SHARDS[:shards]), training)
    assert found.parameter == expected.parameter
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


@contextmanager
def impatient(engine: ClusterEngine, patience: float) -> Iterator[ClusterEngine]:
    """Connect once more, with less patience."""
    with cluster_engine(engine.connected().scheduler.address, patience) as found:
        found.connected()
        yield found


@contextmanager
def all_stopped(engine: ClusterEngine) -> Iterator[None]:
    stopped = pids(engine)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def pause_at(fraction: float, dask_worker: Any) -> None:
    """Let a worker pause at this share of its memory."""
    dask_worker.memory_manager.memory_pause_fraction = fraction


@contextmanager
def all_paused(engine: ClusterEngine) -> Iterator[None]:
    client = engine.connected()
    client.run(pause_at, 1e-6)
    try:
        until(lambda: statuses(engine) == {"paused"})
        yield
    finally:
        client.run(pause_at, 0.8)
        until(lambda: statuses(engine) == {"running"})


def statuses(engine: ClusterEngine) -> set[str]:
    client = engine.connected()
    found: dict[str, Any] = client.sync(client.scheduler.identity)["workers"]
    return {one["status"] for one in found.values()}


def test_a_training_fails_after_the_patience_if_all_workers_are_stopped(
    engine: ClusterEngine, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "MOST_SILENT", 0.6)
    with (
        impatient(engine, 0.3) as other,
        all_stopped(engine),
        pytest.raises(ClusterFailed, match=r"no worker sends heartbeats.* for 0\.3 s"),
    ):
        checked(urls, other)


def test_a_training_fails_after_the_patience_if_all_workers_are_paused(
    engine: ClusterEngine,
) -> None:
    def quick(_: Cache, at: int) -> int:
        return at

    with impatient(engine, 0.3) as other:
        running = other.map(quick, [(at,) for at in range(40)])
        assert next(running) == 0
        with all_paused(engine), pytest.raises(ClusterFailed, match="all are paused"):
            list(running)


def test_a_long_part_does_not_fail_even_if_its_worker_pauses_meanwhile(
    engine: ClusterEngine,
) -> None:
    def pauses(_: Cache, at: int) -> int:
        memory = distributed.get_worker().memory_manager
        memory.memory_pause_fraction = 1e-6
        time.sleep(1.2)
        memory.memory_pause_fraction = 0.8
        return at

    with impatient(engine, 0.3) as other:
        assert list(other.map(pauses, [(0,), (1,)])) == [0, 1]


def test_what_one_worker_cannot_read_another_one_reads(
    engine: ClusterEngine, tmp_path: Path
) -> None:
    def reads(_: Cache, at: int, once: Path) -> int:
        try:
            (once / str(at)).mkdir()
        except FileExistsError:
            return at
        raise ReadFailed("the server does not answer")

    assert list(engine.map(reads, [(0, tmp_path), (1, tmp_path)])) == [0, 1]


def test_a_pass_goes_on_after_a_restart_of_the_scheduler() -> None:
    def quick(_: Cache, at: int) -> int:
        return at

    def started(port: int = 0) -> LocalCluster:
        return LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, scheduler_port=port,
            protocol="tcp://", host="127.0.0.1", dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )  # fmt: skip

    with dask_state_put_back(), ExitStack() as stack:
        with started() as one:
            address = one.scheduler_address
            engine = stack.enter_context(cluster_engine(address))
            running = engine.map(quick, [(at,) for at in range(40)])
            assert next(running) == 0
        stack.enter_context(started(int(address.rpartition(":")[2])))
        assert list(running) == list(range(1, 40))


def test_the_error_of_a_shard_is_that_of_one_process(
    engine: ClusterEngine, urls: list[str]
) -> None:
    with pytest.raises(BadData, match="expected a readable file, but there is none"):
        checked([*urls, "/nowhere/a.parquet"], engine)


@pytest.mark.slow
def test_a_worker_with_other_versions_is_refused(
    engine: ClusterEngine, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {**versions.of_worker(), "solar": "0.0.1"}
    monkeypatch.setattr(versions, "of_worker", lambda: others)
    with pytest.raises(
        ClusterFailed, match=r"worker t[cl][ps]://.*: expected solar 0\.0\.1, as here"
    ):
        checked(urls, engine)


def test_other_versions_are_refused_by_name() -> None:
    versions.refuse_others("worker", {"python": "3.11.7"}, {"python": "3.11.2"}, minor=("python",))
    with pytest.raises(ClusterFailed, match=r"scheduler: expected numpy 2\.4, as here, got none"):
        versions.refuse_others("scheduler", {"numpy": "2.4"}, {})


def test_a_scheduler_that_is_gone_fails_the_training_after_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.1)
    with (
        cluster_engine("tcp://127.0.0.1:9", patience=0.1) as gone,
        pytest.raises(ClusterFailed, match=r"for 0\.1 s \(--patience\); nothing was changed"),
    ):
        checked(["/nowhere/a.parquet"], gone)


def test_a_scheduler_with_a_certificate_of_another_ca_is_refused_at_once(tmp_path: Path) -> None:
    own, other = certified(tmp_path, "own"), certified(tmp_path, "other")
    with (
        tls_proxy("/nowhere", other) as port,
        dask.config.set(trusting(own)),
        cluster_engine(f"tls://127.0.0.1:{port}") as strange,
        pytest.raises(ClusterFailed, match="expected certificates of one CA here and at the sched"),
    ):
        strange.connected()


def test_a_certificate_that_the_scheduler_refuses_is_named_without_addresses() -> None:
    alert = ssl.SSLError(1, "alert certificate expired")
    alert.reason = "SSLV3_ALERT_CERTIFICATE_EXPIRED"
    closed = CommClosedError("in <TLS remote=tls://10.0.0.1:8786>: closed")
    closed.__cause__ = alert
    with pytest.raises(ClusterFailed, match="of one CA") as raised:
        cluster.refuse_certificates(closed)
    assert "10.0.0.1" not in str(raised.value)
    closed.__cause__ = ConnectionResetError()
    cluster.refuse_certificates(closed)  # the scheduler may come back


@pytest.mark.parametrize(
    ("address", "settings", "message"),
    [
        ("tls://scheduler:8786", {f"{TLS}.ca-file": None}, "expected certificates for tls:// in"),
        (
            "tls://scheduler:8786",
            {f"{TLS}.ca-file": "/no.pem", f"{TLS}.client.cert": "/no.pem"},
            "expected PEM files in .*CA_FILE",
        ),
        ("tcp://127.0.0.1:8786", {ENCRYPTED: True}, "expected tls://, as Dask's setting"),
    ],
)
def test_missing_certificates_are_named_at_once(
    address: str, settings: dict[str, Any], message: str
) -> None:
    with (
        dask.config.set(settings),
        pytest.raises(ClusterFailed, match=message),
        cluster_engine(address),
    ):
        pass


@pytest.mark.slow
def test_a_job_over_http_trains_on_the_cluster_of_the_service(
    engine: ClusterEngine, urls: list[str]
) -> None:
    folder, address = str(Path(urls[0]).parent), engine.connected().scheduler.address
    names = [f"{TLS}.ca-file", f"{TLS}.client.cert", f"{TLS}.client.key"]
    files = {f"DASK_{variable(name)}": dask.config.get(name) for name in names}
    given = {name: file for name, file in files.items() if file}
    environ = {**given, "SOLAR_CLUSTER": address, "SOLAR_SHARDS": folder}
    with serving(environ=environ) as service, service.client() as http:
        http.put("/models/m", json={"features": N, **PLAIN})
        answer = http.post("/models/m/warm-start", json={"shards": [f"{folder}/*"], "C": 0.1})
        assert answer.status_code == 202, answer.text
        result = done(http, answer.json()["id"])["result"]
        until(lambda: http.get("/models/m").json()["version"] >= result["seq"])
        weights = list(http.get("/models/m").json()["weights"].values())
    names_read = set().union(*engine.connected().run(cached_names).values())
    assert names_read == {f"shards[0], file {at}.parquet" for at in range(5)}
    expected = trainer.train_batch(in_one(SHARDS), Training(C=0.1)).weights
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)


def cached_names(dask_worker: Any) -> set[str]:
    """Return the names of the shards that a worker has in its cache."""
    cache = getattr(dask_worker, "solar_cache", Cache(0))
    return {shard.name for shard, _ in cache.rows}


def variable(name: str) -> str:
    """Return the variable of a setting of Dask, without `DASK_`."""
    return name.upper().replace(".", "__").replace("-", "_")


def test_the_command_continues_from_its_checkpoint_and_says_so(
    engine: ClusterEngine, urls: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, training = tmp_path / "model.json", Training(C=0.1)
    keep = tmp_path / "model.json.checkpoint"
    expected = sharded.train_shards(engine, checked(urls, engine), training, keep=keep)
    address = engine.connected().scheduler.address
    arguments = ["--cluster", address, "--C", "0.1", "--output", str(output)]
    assert commands.solar("train", *urls, *arguments) == 0
    assert capsys.readouterr().out.startswith(f"continued from {keep}\n100 queries")
    weights = json.loads(output.read_text())["weights"].values()
    np.testing.assert_array_equal(list(weights), expected.minimum.w)
    assert not keep.exists()


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
