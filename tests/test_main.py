"""`app.main`: the import only reads settings; `create_app` uses the given settings and store."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import fastapi
import pytest
from fastapi.testclient import TestClient

import app.main
from app.config import Settings
from app.errors import SolarError
from app.main import create_app
from app.storage.embedded import server as embedded
from app.storage.embedded.server import EmbeddedServer
from tests.api.services import application
from tests.servers import server

__all__ = ["server"]  # a fixture
ROOT = Path(__file__).parents[1]

#: Prints the side effects of an import, from Python's audit events.
AUDIT_SCRIPT = """
import os, sys

seen = []
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
STARTED = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system",
           "socket.__new__", "socket.bind", "socket.connect", "socket.getaddrinfo",
           "os.mkdir", "os.remove", "os.rename", "os.link", "os.symlink", "shutil.rmtree",
           "tempfile.mkdtemp", "tempfile.mkstemp", "signal.pthread_kill", "os.kill")

def note(event, given):
    if event == "open" and given[2] is not None and given[2] & WRITING:
        seen.append((event, str(given[0])))
    elif event in STARTED:
        seen.append((event, str(given[:1])))

sys.addaudithook(note)
{first}
import app.main
import threading
seen += [("thread", one.name) for one in threading.enumerate()[1:]]
print(sorted(set(seen)))
"""


def audit_import(folder: Path, first: str = "") -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}
    ran = subprocess.run(
        [sys.executable, "-B", "-c", AUDIT_SCRIPT.replace("{first}", first)], cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), "SOLAR_DATA_DIR": str(folder / "data")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout.strip()


def test_the_import_writes_no_file_opens_no_socket_and_starts_nothing(tmp_path: Path) -> None:
    assert audit_import(tmp_path) == "[]"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "event"),
    [
        ("open('written', 'w').close()", "open"),
        ("import socket; socket.socket().close()", "socket.__new__"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        (
            "import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()",
            "thread",
        ),
    ],
)
def test_the_audit_detects_each_side_effect(tmp_path: Path, first: str, event: str) -> None:
    assert event in audit_import(tmp_path, first)


def test_an_application_serves_from_the_given_store(server: EmbeddedServer) -> None:
    with application(server.url) as first, application(server.url) as second:
        assert first.put("/models/books", json={"features": 2}).status_code == 201
        assert second.get("/models/books").json()["features"] == ["f1", "f2"]
        assert first.get("/readyz").json() == {
            "status": "ready", "degraded": False, "down": [],
        }  # fmt: skip


def test_the_same_application_can_be_started_again(server: EmbeddedServer) -> None:
    app = create_app(Settings(learner=False), server.url)
    for _ in range(2):
        with TestClient(app) as client:
            assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "settings", [{"keys": "web"}, {"default_features": "a,a"}, {"default_features": "0"}]
)
def test_invalid_settings_are_refused_before_the_start(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(SolarError):
        create_app(Settings(learner=False, **settings), "redis://127.0.0.1:1")


def test_an_invalid_setting_fails_the_import_with_one_line(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import app.main"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SOLAR_KEYS": "web:root:qzSECRETzq"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("solar: SOLAR_KEYS: expected")
    assert ran.stderr.count("\n") == 1
    assert "qzSECRETzq" not in ran.stderr


def test_the_application_is_a_fastapi_application() -> None:
    assert isinstance(app.main.app, fastapi.FastAPI)


def test_without_a_store_url_an_embedded_store_is_started_for_a_test_client(tmp_path: Path) -> None:
    made = create_app(Settings(learner=False, data_dir=tmp_path))
    for status in (201, 200):  # the second run finds the data of the first
        with TestClient(made) as client:
            assert client.put("/models/books", json={"features": 2}).status_code == status
        assert embedded.find(tmp_path) is None


def test_a_failed_start_ends_its_companions(tmp_path: Path) -> None:
    (tmp_path / "valkey.lock").mkdir()  # makes the lock fail
    with (
        pytest.raises(SolarError, match="cannot store data there"),
        TestClient(create_app(Settings(data_dir=tmp_path))),
    ):
        pass
    assert [one.name for one in threading.enumerate() if one.name == "solar-companions"] == []
