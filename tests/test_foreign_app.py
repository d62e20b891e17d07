"""`solar` in a folder with an unrelated `app` package: every process runs SOLAR's code."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.services import PLAIN, ROOT, Running, serving
from tests.api.test_processes import free_port, status_of
from tests.api.trainings import done, judged_queries, letor, started_job, store_of, warm_start
from tests.servers import TIMEOUT, until

SOLAR = str(Path(sys.executable).parent / "solar")
#: Code that records which command imports it.
RECORD_IMPORT = """
import pathlib, sys
with (pathlib.Path(__file__).parent / "imported").open("a") as file:
    print(*sys.orig_argv, file=file)
"""
FOREIGN_APP = f'{RECORD_IMPORT}sys.exit("this is another app")'
EVENT = {
    "event_id": "e", "type": "labels", "model": "m", "labels": {"a": 1},
    "documents": [
        {"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": [0, 1, 0]},
    ],
}  # fmt: skip


@pytest.fixture(scope="module", params=["app/__init__.py", "app.py"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder with an unrelated package or module `app`; no command may import it."""
    folder = tmp_path_factory.mktemp("foreign")
    module = folder / request.param
    module.parent.mkdir(exist_ok=True)
    module.write_text(FOREIGN_APP)
    yield folder
    imports = [path.read_text() for path in folder.rglob("imported")]
    assert not imports


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    with serving(solar=[SOLAR], folder=folder) as running, running.client() as http:
        assert http.put("/models/m", json={**PLAIN, "features": 3}).status_code == 201
        yield running


def solar(folder: Path, *words: str | Path) -> str:
    ran = subprocess.run(
        [SOLAR, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False,
        timeout=3 * TIMEOUT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    path = tmp_path / "judged.txt"
    path.write_bytes(letor(judged_queries()))
    return path


def test_plain_python_imports_the_foreign_app(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FOREIGN_APP)
    command = [sys.executable, "-m", "app", "key", "web"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "this is another app" in ran.stderr
    assert "-m app key web" in (tmp_path / "imported").read_text()


def test_solar_serve_ranks_and_learns(service: Running) -> None:
    with service.client() as http:
        learnt = http.post("/feedback", json=EVENT, headers={"Prefer": f"wait={TIMEOUT:g}"})
        assert learnt.status_code == 200, learnt.text
        body = {"model": "m", "ids": ["b", "a"], "features": [[0, 1, 0], [1, 0, 0]]}
        ranked = http.post("/rank", json={**body, "explore": False}).json()
        assert [one["id"] for one in ranked["documents"]] == ["a", "b"]
    assert "ended with" not in service.logged()


def test_solar_serve_trains(service: Running) -> None:
    with service.client() as http:
        assert http.put("/models/trained", json={"features": 3}).status_code == 201
        done(http, started_job(warm_start(http, "trained", letor(judged_queries()), C=0.1)))


def test_solar_train_trains_a_model_of_a_service(
    service: Running, folder: Path, judged: Path
) -> None:
    words = ("train", judged, "--model", "posted", "--C", "0.1")
    assert "model posted" in solar(folder, *words, "--url", service.url)


def test_solar_train_trains_a_model_in_a_store(folder: Path, judged: Path, tmp_path: Path) -> None:
    words = ("train", judged, "--model", "m", "--C", "0.1")
    assert "record 1" in solar(folder, *words, "--data-dir", tmp_path / "data")


def test_solar_learn_learns(service: Running, folder: Path) -> None:
    """A second learner on the service's store, as on another machine."""
    port = str(free_port())
    command = [SOLAR, "learn", "--redis-url", store_of(service), "--port", port]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
                until(lambda: status_of(http, "/readyz") == 200 or process.poll() is not None)
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=TIMEOUT)[1]
        finally:
            process.kill()
    assert process.returncode == 0, errors


@pytest.mark.parametrize(
    "safe", [{}, pytest.param({"PYTHONSAFEPATH": "1"}, marks=pytest.mark.slow)]
)
def test_all_processes_run_the_app_of_pythonpath(tmp_path: Path, safe: dict[str, str]) -> None:
    copied = tmp_path / "path" / "app"
    shutil.copytree(ROOT / "app", copied, ignore=shutil.ignore_patterns("__pycache__"))
    worker = copied / "runtime" / "worker.py"
    worker.write_text(worker.read_text().replace("\ndef main()", f"{RECORD_IMPORT}\ndef main()"))
    path = [str(copied.parent), os.environ.get("PYTHONPATH", "")]
    environ = {"PYTHONPATH": os.pathsep.join(filter(None, path)), **safe}
    with serving("--no-learner", environ=environ, solar=[SOLAR], folder=tmp_path):
        assert "app.runtime.worker" in (copied / "runtime" / "imported").read_text()
