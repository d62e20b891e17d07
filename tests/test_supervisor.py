"""Child processes, their environment, the embedded store and the listening socket."""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import config
from app.config import Settings
from app.errors import SolarError
from app.runtime import children
from app.runtime.children import Child, child_environ
from app.runtime.wiring import StoreLocator
from app.runtime.worker import listening
from app.storage.embedded import server
from app.storage.embedded.server import EmbeddedServer
from app.storage.embedded.stale_leases import remove_leases
from app.storage.keys import LEARNERS, MODELS, Keys
from tests.servers import TIMEOUT, client, until


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@contextlib.contextmanager
def running_child(child: Child, environ: dict[str, str] | None = None) -> Iterator[Child]:
    """Start a child and stop it after the test."""
    try:
        child.keep(environ or {})
        yield child
    finally:
        child.stop()
        child.wait(monotonic())


def pid(child: Child) -> int:
    assert child._process is not None
    return child._process.pid


def ended(child: Child) -> bool:
    assert child._process is not None
    return child._process.poll() is not None


SLEEP = "import signal; signal.pause()"


def test_a_running_child_is_not_restarted() -> None:
    with running_child(Child("worker", python(SLEEP))) as child:
        before = pid(child)
        child.keep({})
        assert pid(child) == before


def kept(child: Child, environ: dict[str, str] | None = None) -> bool:
    """Keep a child; return whether it runs."""
    child.keep(environ or {})
    return child._process is not None


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "FIRST_RESTART_PAUSE", 0.001)
    monkeypatch.setattr(children, "LONGEST_RESTART_PAUSE", 0.001)


@pytest.mark.usefixtures("no_pause")
def test_a_child_that_ended_is_restarted() -> None:
    with running_child(Child("worker", python(SLEEP))) as child:
        for at in range(children.MAX_FAILED_STARTS + 2):
            before = pid(child)
            assert child._process is not None
            child._process.kill()
            until(lambda: ended(child))
            until(lambda: kept(child))
            assert pid(child) != before
            assert child.status().restarts == at + 1


@pytest.mark.usefixtures("no_pause")
def test_repeated_failed_starts_of_a_child_are_an_error() -> None:
    with running_child(Child("worker 3", python("raise SystemExit(7)"))) as child:
        for _ in range(children.MAX_FAILED_STARTS):
            children.check_first_start([child])
            until(lambda: kept(child))
            until(lambda: ended(child))
            child.keep({})
        with pytest.raises(SolarError, match="worker 3: ended 5 times before any worker was ready"):
            children.check_first_start([child])


@pytest.mark.usefixtures("no_pause")
def test_failed_starts_are_no_error_once_a_worker_was_ready(tmp_path: Path) -> None:
    environ = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    ready = Child("worker 0", python(SLEEP))
    failing = Child("worker 1", python("raise SystemExit(7)"))
    with running_child(ready, environ), running_child(failing, environ):
        assert not ready.status().up
        (tmp_path / "worker 0.ready").touch()  # as `report_ready` does
        ready.keep(environ)
        assert ready.status() == (True, 0)
        while failing.status().restarts < children.MAX_FAILED_STARTS:
            until(lambda: kept(failing, environ))
            until(lambda: ended(failing))
            failing.keep(environ)
        children.check_first_start([ready, failing])
        os.kill(pid(ready), signal.SIGKILL)
        until(lambda: ended(ready))
        ready.keep(environ)
        assert ready.status() == (False, 1)
        children.check_first_start([ready, failing])


def test_a_program_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(server, "tied", refuse)
    child = Child("learner", python(SLEEP))
    child.keep({})
    assert child.status() == (False, 1)
    assert caplog.messages == [
        "cannot start learner: Resource temporarily unavailable; next attempt in 0.1 s"
    ]


def test_the_pause_doubles_up_to_its_limit_and_is_reset_after_a_stable_life() -> None:
    now = 100.0
    backoff = children.Backoff(lambda: now)
    pauses = []
    for life in (0.0, 0.0, 1.0, 0.0, 29.0, 0.0, 0.0, 0.0, 30.0, 0.0):
        assert backoff.due()
        backoff.started()
        now += life
        pauses.append(backoff.ended())
        now += pauses[-1] - 0.01
        assert not backoff.due()
        now += 0.02
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.1, 0.2]
    assert backoff.failures == 10


def test_a_child_that_does_not_end_by_the_deadline_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    stubborn = (
        "import pathlib, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(ready)!r}).touch(); {SLEEP}; {SLEEP}"
    )
    with running_child(Child("worker", python(stubborn))) as child:
        until(ready.exists)
        child.stop()
        child.wait(monotonic() + 0.1)
        assert child._process is not None
        assert child._process.returncode == -signal.SIGKILL


def test_a_child_gets_its_environment_and_the_socket(tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = (
        "import os, pathlib, socket, sys; s = socket.socket(fileno=int(sys.argv[1])); "
        f"pathlib.Path({str(said)!r}).write_text(os.environ['A'] + str(s.getsockname()[1]))"
    )
    with listening("127.0.0.1", 0) as socket_:
        number = socket_.fileno()
        child = Child("worker", [*python(code), str(number)], (number,))
        with running_child(child, {"A": "b"}):
            until(lambda: said.exists() and said.read_text())
            assert said.read_text() == f"b{socket_.getsockname()[1]}"


def values(name: str) -> st.SearchStrategy[Any]:
    """Return a strategy of valid values of a setting."""
    field = Settings.model_fields[name]
    bounds = {side: getattr(one, side) for one in field.metadata for side in ("ge", "le")
              if hasattr(one, side)}  # fmt: skip
    if field.annotation is bool:
        return st.booleans()
    if field.annotation is int:
        return st.integers(bounds["ge"], bounds["le"])
    if field.annotation is float:
        return st.floats(bounds["ge"], bounds.get("le"), allow_infinity=False)
    if field.annotation is Path:
        return st.sampled_from([Path("data"), Path("/a b/c"), Path("ä=#$")])
    if field.annotation is str:  # characters that an environment can hold
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
    optional = st.none() | st.integers(0, 1 << 62)
    return optional if config.is_size(name) else st.sampled_from(get_args(field.annotation))


def test_children_get_every_setting_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env").write_text("".join(f"{name}=wrong\n" for name in config.VARIABLES))
    monkeypatch.setenv("SOLAR_ENV_FILE", str(tmp_path / "env"))

    @given(st.fixed_dictionaries({name: values(name) for name in Settings.model_fields}))
    def check(given: dict[str, Any]) -> None:
        settings = Settings(**given)
        environ = child_environ(settings, "unix:///s", PROMETHEUS_MULTIPROC_DIR="/metrics")
        assert config.read_settings(environ) == settings.model_copy(
            update={"redis_url": "unix:///s"}
        )
        assert environ["PROMETHEUS_MULTIPROC_DIR"] == "/metrics"

    check()


def test_a_configured_store_is_not_started(tmp_path: Path) -> None:
    settings = Settings(redis_url="redis://elsewhere", data_dir=tmp_path / "data")
    locator = StoreLocator(settings)
    assert locator.url() == "redis://elsewhere"
    locator.close()
    assert not (tmp_path / "data").exists()


def kept_up(locator: StoreLocator) -> bool:
    """Keep the store; return whether it is up."""
    locator.keep()
    return locator.status()["store"].up


def test_an_embedded_store_is_started_once_restarted_when_it_ends_and_stopped_on_close(
    tmp_path: Path,
) -> None:
    locator = StoreLocator(Settings(data_dir=tmp_path))
    try:
        url = locator.url()
        assert locator.url() == url
        with client(url) as connection:
            connection.set("kept", "yes")
        started = locator._server
        assert started is not None
        started._process.kill()
        until(lambda: not started.alive())
        until(lambda: not kept_up(locator))
        until(lambda: kept_up(locator))
        assert locator.url() == url
        with client(url) as connection:
            assert connection.get("kept") == b"yes"
        again = locator._server
        assert again is not None
    finally:
        locator.close()
    assert not again.alive()


LEASES = (Keys("books").lease, Keys("books").training, LEARNERS)


def write_leases(url: str) -> None:
    """Write leases as processes do, with an expiry far away."""
    with client(url) as connection:
        connection.sadd(MODELS, "books")
        for key in LEASES[:2]:
            connection.set(key, "anything", px=10**7)
        connection.zadd(LEARNERS, {"anything": 10**15})
        connection.set("solar:{books}:seq", 3)


def leases(url: str) -> set[str]:
    with client(url) as connection:
        assert connection.get("solar:{books}:seq") == b"3"
        return {key for key in LEASES if connection.exists(key)}


def test_the_process_that_starts_the_embedded_store_removes_the_leases_in_its_data(
    tmp_path: Path,
) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        write_leases(server.url)
    locator = StoreLocator(Settings(data_dir=tmp_path))
    try:
        assert leases(locator.url()) == set()
    finally:
        locator.close()


def test_a_restart_of_the_embedded_store_keeps_the_leases_of_training_processes(
    tmp_path: Path,
) -> None:
    """They still run, and a client must not read that a job has failed."""
    locator = StoreLocator(Settings(data_dir=tmp_path))
    try:
        url = locator.url()
        write_leases(url)
        locator.keep()
        assert leases(url) == set(LEASES)
        assert locator._server is not None
        locator._server._process.kill()
        until(lambda: not kept_up(locator))
        until(lambda: kept_up(locator))
        assert leases(url) == {Keys("books").training}
    finally:
        locator.close()


def test_leases_that_cannot_be_removed_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedServer.start(tmp_path) as server, client(server.url) as connection:
        connection.set(MODELS, "not a set")
    locator = StoreLocator(Settings(data_dir=tmp_path))
    try:
        assert locator.url()
    finally:
        locator.close()
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "the leases of earlier learners stay until they expire"
    ]


def test_leases_of_a_server_that_has_ended_are_removed_after_its_restart() -> None:
    assert not remove_leases("unix:///nowhere/at/all", training=True)


def test_a_server_that_already_runs_is_used_and_not_stopped(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        write_leases(server.url)
        locator = StoreLocator(Settings(data_dir=tmp_path))
        assert locator.url() == server.url
        locator.close()
        assert leases(server.url) == set(LEASES)
        assert server.alive()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_in_use_is_an_error_with_a_remedy(host: str) -> None:
    with listening(host, 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SolarError, match=f"{host}:{port}: .*in use; choose another with --port"
        ):
            listening(host, port)


def test_an_address_of_another_host_is_an_error() -> None:
    for host in ("192.0.2.1", "no such host"):
        with pytest.raises(SolarError, match=f"cannot serve on {host}:0: "):
            listening(host, 0)


def test_the_socket_takes_connections_before_a_worker_accepts_them() -> None:
    with listening("127.0.0.1", 0) as socket_:
        address = socket_.getsockname()
        for _ in range(10):
            socket.create_connection(address, timeout=TIMEOUT).close()
