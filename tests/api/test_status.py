"""`GET /status`: processes, learners, store, backlog and errors; also without a store."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import __version__
from app.api import auth
from tests.api.services import Running, application, serving, uvicorn_ready
from tests.api.test_faults import (
    SHORT_LEASE,
    ExternalServer,
    child,
    child_replaced,
    learn_one,
    new_model,
)
from tests.servers import bare_server, server, until
from tests.servers import client as connection_to

__all__ = ["server"]  # a fixture


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving("--workers", "2", environ=SHORT_LEASE) as started:
        new_model(started.url)
        assert learn_one(started, "first").status_code == 200
        yield started


@pytest.fixture(scope="module")
def http(running: Running) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client


def status(http: Any) -> dict[str, Any]:
    answered = http.get("/status")
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


def test_it_reports_on_store_processes_models_and_backlog(http: httpx.Client) -> None:
    until(lambda: status(http)["down"] == [])
    found = status(http)
    assert found["version"] == __version__
    store = found["store"]
    assert store["reachable"] is True
    assert store["memory_share"] == store["memory_used"] / store["memory_limit"] > 0.0
    assert store["aof"] == {"enabled": True, "last_write_ok": True, "fsync": "always"}
    assert int(store["version"].partition(".")[0]) >= 7
    assert store["durability"] in {"", "local", "fsync"}
    names = [one["name"] for one in found["workers"]]
    assert names == ["learner", "store", "worker 0", "worker 1"]
    assert all(one["up"] for one in found["workers"])
    assert (found["models"], found["damaged"]) == (1, [])
    until(lambda: status(http)["backlog"] == {"records": 0, "largest": None})
    assert found["lag_seconds"] == 0.0


def test_it_lists_learners_with_their_models(http: httpx.Client) -> None:
    until(lambda: [one["leads"] for one in status(http)["learners"]] == [["m"]])
    (learner,) = status(http)["learners"]
    assert (learner["models"], len(learner["id"])) == (1, 36)


def test_it_shows_errors_of_all_processes_and_what_was_restarted(
    running: Running, http: httpx.Client
) -> None:
    before = child(running.process.pid, "app learn")
    assert before is not None
    os.kill(before, signal.SIGKILL)
    until(child_replaced(running.process.pid, "app learn", before))
    until(lambda: status(http)["down"] == [])
    found = status(http)
    assert {"name": "learner", "up": True, "restarts": 1} in found["workers"]
    lines = [one for one in found["errors"] if one["process"] == "supervisor"]
    assert "learner ended with exit code -9" in lines[0]["message"]
    assert (lines[0]["level"], lines[0]["logger"]) == ("warning", "solar")
    assert abs(lines[0]["time"] - time.time()) < 60.0


def test_a_backlog_without_a_learner_is_reported(tmp_path: Path) -> None:
    with (
        serving(data=tmp_path, environ={"SOLAR_LEARNER": "no"}) as running,
        running.client() as http,
    ):
        new_model(running.url)
        event = {"event_id": "e", "type": "labels", "model": "m", "labels": {"a": 1}}
        documents = [{"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": [0, 1, 0]}]
        posted = http.post("/feedback", json={**event, "documents": documents})
        assert posted.status_code == 202
        waiting = {"records": 1, "largest": {"model": "m", "records": 1}}
        until(lambda: status(http)["backlog"] == waiting)
        assert status(http)["learners"] == []
        until(lambda: status(http)["lag_seconds"] > 0.0)


@pytest.mark.parametrize("fault", ["pause", "kill"])
def test_it_answers_within_a_second_without_a_store(tmp_path: Path, fault: str) -> None:
    store = ExternalServer(tmp_path)
    try:
        flags = ("--redis-url", store.url)
        with serving(*flags, environ=SHORT_LEASE) as running, running.client() as http:
            new_model(running.url)
            assert status(http)["store"]["reachable"]
            getattr(store, fault)()
            for _ in range(4):
                started = time.perf_counter()
                found = status(http)
                assert time.perf_counter() - started < 1.0
                time.sleep(0.3)
            assert found["store"]["reachable"] is False
            assert found["store"]["aof"] is found["learners"] is None
            assert found["models"] == 1
            until(lambda: any("unreachable" in one["message"] for one in status(http)["errors"]))
            if fault == "pause":
                store.resume()
                until(lambda: status(http)["store"]["reachable"])
    finally:
        store.resume()
        store.kill()


def test_a_store_that_hides_its_settings_shows_nulls() -> None:
    with bare_server() as url, connection_to(url) as connection:
        denied = ("-info", "-config")
        connection.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", *denied
        )
        with application(url.replace("unix://", "unix://guest:secret@")) as client:
            store = status(client)["store"]
    assert store == {
        "reachable": True, "memory_share": 0.0, "memory_used": None, "memory_limit": None,
        "version": None, "durability": "", "aof": None,
    }  # fmt: skip


def test_a_store_that_hides_its_configuration_shows_the_rest() -> None:
    with bare_server() as url, connection_to(url) as connection:
        connection.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-config"
        )
        with application(url.replace("unix://", "unix://guest:secret@")) as client:
            store = status(client)["store"]
    assert store["aof"] == {"enabled": False, "last_write_ok": True, "fsync": None}
    assert (store["memory_limit"], store["memory_used"] > 0) == (0, True)


def test_plain_uvicorn_reports_its_worker_learner_and_store(tmp_path: Path) -> None:
    with uvicorn_ready(data=tmp_path / "data") as running, running.client() as http:
        until(lambda: status(http)["down"] == [])
        names = {one["name"] for one in status(http)["workers"]}
    assert names == {"worker", "learner", "store"}


def test_the_status_needs_the_scope_read(server: Any) -> None:
    keys = {scope: auth.new_key(scope, scope) for scope in auth.SCOPES}
    entries = ",".join(entry for _, entry in keys.values())
    with application(server.url, keys=entries) as client:
        statuses = {
            scope: client.get("/status", headers={"authorization": f"Bearer {secret}"}).status_code
            for scope, (secret, _) in keys.items()
        }
        assert client.get("/status").status_code == 401
    assert statuses == {"rank": 403, "feedback": 403, "read": 200, "admin": 200}
