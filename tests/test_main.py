"""`app.main`: importing it does nothing but read settings; `create_app` takes what it is given."""

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

#: Tells what an import does, by the events that Python itself audits.
AUDITED = """
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


def audited(folder: Path, first: str = "") -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}
    ran = subprocess.run(
        [sys.executable, "-B", "-c", AUDITED.replace("{first}", first)], cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), "SOLAR_DATA_DIR": str(folder / "data")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout.strip()


def test_importing_it_writes_no_file_opens_no_socket_and_starts_nothing(tmp_path: Path) -> None:
    assert audited(tmp_path) == "[]"
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
def test_the_audit_notices_what_an_import_must_not_do(
    tmp_path: Path, first: str, event: str
) -> None:
    assert event in audited(tmp_path, first)


def test_an_application_serves_from_the_store_that_it_is_given(server: EmbeddedServer) -> None:
    with application(server.url) as first, application(server.url) as second:
        assert first.put("/models/books", json={"features": 2}).status_code == 201
        assert second.get("/models/books").json()["features"] == ["f1", "f2"]
        assert first.get("/readyz").json() == {"status": "ready", "degraded": False}


def test_the_same_application_can_be_started_again(server: EmbeddedServer) -> None:
    app = create_app(Settings(learner=False), server.url)
    for _ in range(2):
        with TestClient(app) as client:
            assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "settings", [{"keys": "web"}, {"default_features": "a,a"}, {"default_features": "0"}]
)
def test_settings_that_cannot_be_are_refused_before_anything_starts(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(SolarError):
        create_app(Settings(learner=False, **settings), "redis://127.0.0.1:1")


def test_it_says_in_one_line_why_it_cannot_be_imported(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import app.main"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SOLAR_KEYS": "web:root:qzSECRETzq"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("solar: SOLAR_KEYS: expected")
    assert ran.stderr.count("\n") == 1
    assert "qzSECRETzq" not in ran.stderr


def test_the_application_is_fastapis() -> None:
    assert isinstance(app.main.app, fastapi.FastAPI)


def test_without_a_store_it_starts_one_also_for_a_test_client(tmp_path: Path) -> None:
    made = create_app(Settings(learner=False, data_dir=tmp_path))
    for status in (201, 200):  # the second time it finds what the first has left
        with TestClient(made) as client:
            assert client.put("/models/books", json={"features": 2}).status_code == status
        assert embedded.find(tmp_path) is None


def test_a_start_that_fails_ends_what_it_has_started(tmp_path: Path) -> None:
    (tmp_path / "valkey.lock").mkdir()  # no server can lock its data
    with (
        pytest.raises(SolarError, match="cannot store data there"),
        TestClient(create_app(Settings(data_dir=tmp_path))),
    ):
        pass
    assert [one.name for one in threading.enumerate() if one.name == "solar-companions"] == []
