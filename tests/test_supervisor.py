"""Child processes, their environment, the embedded store and the listening socket."""

import contextlib
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
from app.storage.embedded.server import EmbeddedServer
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


def test_a_child_that_ended_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MIN_LIFETIME", 0.0)  # every start counts as a success
    with running_child(Child("worker", python(SLEEP))) as child:
        for _ in range(children.MAX_FAILED_STARTS + 2):
            before = pid(child)
            assert child._process is not None
            child._process.kill()
            until(lambda: ended(child))
            child.keep({})
            assert pid(child) != before


def test_repeated_failed_starts_of_a_child_are_an_error() -> None:
    with running_child(Child("worker 3", python("raise SystemExit(7)"))) as child:
        for _ in range(children.MAX_FAILED_STARTS - 1):
            until(lambda: ended(child))
            child.keep({})
        until(lambda: ended(child))
        with pytest.raises(SolarError, match="worker 3: ended 5 times within 2 s of its start"):
            child.keep({})


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


def test_an_embedded_store_is_started_once_restarted_when_it_ends_and_stopped_on_close(
    tmp_path: Path,
) -> None:
    locator = StoreLocator(Settings(data_dir=tmp_path))
    try:
        url = locator.url()
        assert locator.url() == url
        with client(url) as connection:
            connection.set("kept", "yes")
        server = locator._server
        assert server is not None
        server._process.kill()
        until(lambda: not server.alive())
        with client(locator.url()) as connection:
            assert connection.get("kept") == b"yes"
        again = locator._server
        assert again is not None
    finally:
        locator.close()
    assert not again.alive()


def test_a_server_that_already_runs_is_used_and_not_stopped(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        locator = StoreLocator(Settings(data_dir=tmp_path))
        assert locator.url() == server.url
        locator.close()
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
