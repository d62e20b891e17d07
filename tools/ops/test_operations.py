"""Run the procedures of docs/operations.md on real servers."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import exceptions as foreign

from tests.api.services import serving
from tests.kubernetes_redis import NEWER, PASSWORD, SINGLE, single
from tests.servers import client, until

ROOT = Path(__file__).parents[2]
SECURITY = (ROOT / "docs" / "security.md").read_text()
ACL = (SINGLE / "solar.acl").read_text().strip()
#: Allowed commands that the tested service does not send: for other databases and RESP2.
UNUSED_COMMANDS = {"select", "auth"}
JUDGED = "".join(
    f"{int(at % 3 == 0)} qid:{query} 1:{at % 7} 2:{9 if at % 3 == 0 else at % 5}\n"
    for query in range(20)
    for at in range(8)
)


def solar(url: str, command: str, *rest: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "app", command, "--redis-url", url, *rest],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def send_clicks(http: httpx.Client, model: str, queries: int = 3) -> int:
    """Create a model, rank and click; the seq of the last record."""
    assert http.put(f"/models/{model}", json={"features": ["a", "b"]}).status_code in (200, 201)
    return click(http, model, queries)


def click(http: httpx.Client, model: str, queries: int = 3) -> int:
    """Rank and click; the seq of the last record."""
    documents = [{"id": "x", "features": [1, 0]}, {"id": "y", "features": [0, 1]}]
    seq = 0
    for at in range(queries):
        shown = http.post("/rank", json={"model": model, "documents": documents}).json()
        assert shown["logged"]
        clicks = {"event_id": f"{shown['request_id']}-{at}", "type": "clicks", "clicked": ["y"]}
        answer = http.post(
            "/feedback",
            json={**clicks, "request_id": shown["request_id"]},
            headers={"prefer": "wait=20"},
        )
        assert answer.status_code == 200, answer.text
        seq = answer.json()["version"]
    return seq


def wait_for(http: httpx.Client, seq: int) -> None:
    until(lambda: http.get("/models/books").json()["version"] >= seq)


def use_every_feature(http: httpx.Client, url: str) -> None:
    """Use every endpoint and every command once."""
    send_clicks(http, "books")
    use_questions(http)
    assert http.patch("/models/books", json={"gamma": 2.0}).status_code == 202
    text = {"content-type": "text/plain"}
    job = http.post("/models/books/warm-start", content=JUDGED, headers=text)
    assert job.status_code == 202, job.text
    where = f"/jobs/{job.json()['id']}"
    http.timeout = httpx.Timeout(120)
    for _ in range(4):  # the first training job compiles kernels
        try:
            until(lambda: http.get(where).json()["state"] != "running")
            break
        except AssertionError:
            continue
    assert http.get(where).json()["state"] == "done", http.get(where).text
    cancelled = http.post("/models/books/warm-start", content=JUDGED, headers=text)
    assert http.delete(f"/jobs/{cancelled.json()['id']}").status_code in (202, 409)
    for _ in range(12):  # each keeps a version, and the eleventh removes the oldest
        kept = http.get("/models/books/versions").json()["versions"]
        back = http.post("/models/books/rollback", json={"version": kept[-1]["version"]})
        wait_for(http, back.json()["seq"])
    use_a_duel(http)
    assert len(http.get("/models").json()["models"]) == 1
    assert "equal to the replay" in solar(url, "verify")
    assert solar(url, "log", "books", "--count", "1")
    assert "replaces" in solar(url, "replay", "books", "--without-source", "unknown", "--apply")
    assert http.delete("/models/books").status_code == 204


def use_a_duel(http: httpx.Client) -> None:
    """Use followers and duels once: of a follower, and of a version."""
    assert http.put("/models/books-b", json={"follows": "books", "gamma": 7.0}).status_code == 201
    version = http.get("/models/books/versions").json()["versions"][0]["version"]
    for challenger in ("books-b", {"version": version}):
        body = {"challenger": challenger, "share": 0.5}
        begun = http.put("/models/books/duel", json=body)
        assert begun.status_code == 201, begun.text
        click(http, "books")
        assert http.get("/models/books/duel").status_code == 200
        assert http.delete("/models/books/duel").status_code == 200
    assert http.delete("/models/books-b").status_code == 204


def use_questions(http: httpx.Client) -> None:
    """Use every endpoint of the console once."""
    for path in ("history", "impressions", "versions/current/diff/current"):
        answer = http.get(f"/models/books/{path}")
        assert answer.status_code == 200, answer.text
    assert http.get("/status").json()["store"]["reachable"]
    given = http.get("/models/books/impressions").json()["impressions"][0]["documents"]
    ids = [one["id"] for one in given]
    asked = {"documents": given, "scored": True}
    body = {**asked, "first": ids[0], "second": ids[1]}
    assert http.post("/models/books/compare", json=body).status_code == 200
    body = {**asked, "clicks": ids[1:2]}
    assert http.post("/models/books/what-if", json=body).status_code == 200
    with http.stream("GET", "/models/books/stream") as answer:
        assert answer.status_code == 200
        send_clicks(http, "books")
        assert any("record" in line for line in answer.iter_lines())


def test_the_service_uses_exactly_the_commands_of_its_acl(tmp_path: Path) -> None:
    uploads = {"SOLAR_UPLOAD_DIR": str(tmp_path / "uploads")}
    with single() as at, client(at.operator) as operator:
        operator.config_resetstat()
        with (
            serving("--workers", "2", environ={"SOLAR_REDIS_URL": at.url, **uploads}) as service,
            service.client() as http,
        ):
            use_every_feature(http, at.url)
            assert service.stop() == 0
            assert "warning" not in service.logged()
        refused = operator.acl_log()
        used = {name.removeprefix("cmdstat_") for name in operator.info("commandstats")}
    assert refused == []
    used |= {NEWER.strip(" +")}  # an older server does not have it
    allowed = {word[1:] for word in ACL.split() if word.startswith("+")}
    assert allowed - used == UNUSED_COMMANDS
    assert used - allowed <= {"config|resetstat", "acl|log"}  # sent by the operator


def test_the_acl_denies_all_other_commands_and_keys() -> None:
    with single() as at, client(at.url) as connection:
        for refused in (
            ["FLUSHALL"], ["KEYS", "*"], ["CONFIG", "SET", "maxmemory", "1"], ["ACL", "LIST"],
            ["SHUTDOWN"], ["GET", "other:key"], ["PUBLISH", "other", "x"],
            ["EVAL", "return 1", "0"], ["ACL", "SETUSER", "x"], ["REPLICAOF", "h", "1"],
        ):  # fmt: skip
            with pytest.raises(foreign.NoPermissionError):
                connection.execute_command(*refused)
        with (
            client(at.url.replace(f"solar:{PASSWORD}@", "")) as anonymous,
            pytest.raises(foreign.AuthenticationError),
        ):
            anonymous.ping()


def test_the_documented_acl_is_the_tested_one() -> None:
    written = re.findall(
        r"[+~&-][a-z|@:*]+", re.findall(r"```acl\n(.*?)```", SECURITY, re.DOTALL)[0]
    )
    assert written == ACL.split()


def test_files_copied_from_a_running_server_are_a_backup(tmp_path: Path) -> None:
    """As documented: pause AOF rewrites, copy, start a server on the copy, verify."""
    backup = tmp_path / "backup"
    with (
        single() as at,
        client(at.operator) as operator,
        serving(environ={"SOLAR_REDIS_URL": at.url}) as service,
        service.client() as http,
    ):
        seq = send_clicks(http, "books", 5)
        operator.config_set("auto-aof-rewrite-percentage", 0)
        until(lambda: not operator.info("persistence")["aof_rewrite_in_progress"])
        shutil.copytree(at.data / "appendonlydir", backup / "appendonlydir")
        operator.config_set("auto-aof-rewrite-percentage", 100)
        assert send_clicks(http, "books", 1) == seq + 1  # not in the backup
    with single(backup) as restored:
        assert "books: log without gaps" in solar(restored.url, "verify")
        with (
            serving(environ={"SOLAR_REDIS_URL": restored.url}) as service,
            service.client() as http,
        ):
            found: dict[str, Any] = http.get("/models/books").json()
            assert found["version"] == found["seq"] == seq
            assert send_clicks(http, "books", 1) == seq + 1


def test_the_directory_of_a_stopped_embedded_server_is_a_backup(tmp_path: Path) -> None:
    with serving(data=tmp_path / "data") as service, service.client() as http:
        seq = send_clicks(http, "books")
        assert service.stop() == 0
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with serving(data=tmp_path / "copy") as service, service.client() as http:
        assert http.get("/models/books").json()["version"] == seq
