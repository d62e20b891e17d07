"""Test the image in one container: `trial.py ROOT CONFIG FOLDER` (mounted files, configuration).

The container has an embedded store. It ranks, learns, trains, compiles nothing, and drains. Its
data are backed up, both stopped and live, and `solar verify` checks them in another container.
"""

import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from uuid import uuid4

from app.api.auth import new_key
from tools.ops.containers import Container, Image, folder, running, until

PORT = 18_700
JUDGED = "".join(
    f"{grade} qid:{query} 1:{grade / 3 + query % 3 / 10} 2:{query % 5 / 5}\n"
    for query in range(40)
    for grade in range(3)
)
DOCUMENTS = [{"id": "a", "features": [0.9, 0.1]}, {"id": "b", "features": [0.1, 0.9]}]


def report(what: str) -> None:
    """Print a result with the time."""
    print(f"{time.strftime('%H:%M:%S')}  {what}", flush=True)


class Client:
    """An HTTP client of SOLAR."""

    def __init__(self, key: str, port: int = PORT, host: str = "127.0.0.1") -> None:
        self._key, self._port, self._host = key, port, host

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request on a new connection; the status and the body."""
        connection = HTTPConnection(self._host, self._port, timeout=30)
        payload = body if isinstance(body, str | None) else json.dumps(body)
        headers = {"authorization": f"Bearer {self._key}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if payload is not None:
            headers.setdefault("content-type", "application/json")
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        kind = answer.headers.get("content-type", "")
        return answer.status, json.loads(content) if "json" in kind else content.decode()

    def ready(self) -> bool:
        """Whether the service is ready."""
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except (OSError, HTTPException):
            return False


@contextmanager
def service(
    image: Image, place: Path, data: Path, name: str, entry: str
) -> Iterator[tuple[Container, float]]:
    """A container that serves and learns, and the seconds until it was ready."""
    environ = {"SOLAR_KEYS": entry, "SOLAR_PORT": str(PORT)}
    started = time.monotonic()
    mounts = [(data, "/data", "rw")]
    with running(image, name, place / name, mounts=mounts, environ=environ) as container:
        client = Client("")
        until(lambda: client.ready() or _assert_running(container))
        yield container, time.monotonic() - started


def _assert_running(container: Container) -> bool:
    if container.process.poll() is not None:
        raise SystemExit(f"{container.name} ended:\n{container.logged()}")
    return False


def check_confinement(container: Container) -> None:
    """No root, no capabilities, no writable root, no build tools."""
    inside = container.run("cat", "/proc/1/cmdline").stdout.replace("\0", " ")
    assert re.search(r"solar serve", inside), inside
    status = container.run("cat", "/proc/1/status").stdout
    uid, gid = container.image.user
    assert re.search(rf"^Uid:\t{uid}\t{uid}", status, re.MULTILINE), status
    assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), status
    assert container.run("touch", "/opt/solar/there").returncode != 0
    assert container.run("python", "-m", "pip", "--version").returncode != 0
    for tool in ("pip", "gcc", "cc"):
        assert container.run("sh", "-c", f"command -v {tool}").returncode != 0, tool
    report(f"process 1 is solar, user {uid}:{gid}, no capabilities, root read-only, no pip, no cc")
    assert until(container.healthy)
    report("the image's health check passes")


def check_answers(client: Client) -> None:
    """Rank, and learn from every kind of feedback."""
    made = client.ask("PUT", "/models/books", {"features": 2, "prior": 0})
    assert made[0] == 201, made
    status, ranked = client.ask("POST", "/rank", {"model": "books", "documents": DOCUMENTS})
    assert status == 200, ranked
    assert ranked["logged"], ranked
    common = {"model": "books", "documents": DOCUMENTS}
    _, explored = client.ask("POST", "/rank", {**common, "explore": True})
    for event in (
        {"type": "clicks", "request_id": ranked["request_id"], "clicked": ["b"]},
        {"type": "clicks", "request_id": explored["request_id"], "clicked": ["b"]},
        {"type": "labels", "labels": {"b": 2}, **common},
        {"type": "triplets", "triplets": [["b", "a", 0.5]], **common},
    ):
        body = {"event_id": str(uuid4()), **event}
        status, received = client.ask("POST", "/feedback", body, prefer="wait=20")
        assert status == 200, received
    status, ranked = client.ask("POST", "/rank", {**common, "explore": False})
    assert [one["id"] for one in ranked["documents"]] == ["b", "a"], ranked
    report("/rank answers and ranks the clicked document first")


def check_training(client: Client) -> None:
    """Warm starts from judged text."""
    for options in ("C=0.1", "validation=0.3", "loss=l1&C=0.1", "trainer=domination&penalty=0.01"):
        path = f"/models/books/warm-start?{options}"
        status, job = client.ask("POST", path, JUDGED, content_type="text/plain")
        assert status == 202, job
        done = until(partial(_ended, client, f"/jobs/{job['id']}"))
        assert done["state"] == "done", done
        report(f"warm start with {options}: done in {done['result']['seconds']} s")


def _ended(client: Client, path: str) -> Any:
    _, job = client.ask("GET", path)
    return job if job["state"] != "running" else None


def check_kernels(container: Container) -> None:
    """All kernels came from the image's cache; a kernel compiled here would be a new file."""
    links = container.run("sh", "-c", "find /tmp/solar-kernels-*/ -name '*.nb?' -type l | wc -l")
    files = container.run("sh", "-c", "find /tmp/solar-kernels-*/ -type f")
    assert int(links.stdout) > 40, links
    assert files.stdout == "", f"compiled at run time:\n{files.stdout}"
    again = container.run("python", "-m", "app.runtime.precompile", "--check")
    assert again.returncode == 0, again
    report(f"no kernel was compiled since the start: {links.stdout.strip()} files from the image; "
           f"a new process: {again.stdout.strip()}")  # fmt: skip


class LoadClient(threading.Thread):
    """Sends /rank and /feedback requests continuously and counts the answers.

    With `retry` it sends a failed request again; without it the first failure ends it.
    """

    def __init__(self, client: Client, *, retry: bool = False) -> None:
        super().__init__(daemon=True, name=str(uuid4()))
        self._client, self._active, self._retry = client, True, retry
        self.statuses: dict[int, int] = {}
        self.cut, self.seq = 0, 0

    def run(self) -> None:
        """Send requests until `end`, or until a request fails without `retry`."""
        at = 0
        while self._active:
            at += 1
            event = {"event_id": f"{self.name}.{at}", "type": "triplets", "model": "books",
                     "documents": DOCUMENTS, "triplets": [["a", "b"]]}  # fmt: skip
            body = {"model": "books", "documents": DOCUMENTS}
            for path, sent in (("/rank", body), ("/feedback", event)):
                while not self._call(path, sent):
                    if not self._retry:
                        return

    def _call(self, path: str, body: Any) -> bool:
        try:
            status, answer = self._client.ask("POST", path, body)
        except (OSError, HTTPException):
            self.cut += 1
            return False
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.seq = max(self.seq, answer.get("seq", 0))
        return True

    def end(self) -> None:
        """Stop sending."""
        self._active = False
        self.join()


def check_drain(container: Container, client: Client) -> int:
    """SIGTERM under load: open requests are answered, exit code 0; the last acknowledged seq."""
    clients = [LoadClient(client) for _ in range(4)]
    for caller in clients:
        caller.start()
    until(lambda: sum(sum(one.statuses.values()) for one in clients) > 200)
    code, seconds = container.stop()
    for caller in clients:
        caller.end()
    statuses = {status: sum(one.statuses.get(status, 0) for one in clients)
                for status in {s for one in clients for s in one.statuses}}  # fmt: skip
    assert code == 0, (code, container.logged())
    assert set(statuses) <= {200, 202}, statuses
    report(f"SIGTERM under load: ended with 0 after {seconds:.1f} s; answers {statuses}")
    return max(one.seq for one in clients)


def verified(container: Container) -> str:
    """The output of `solar verify` in a container."""
    found = container.run("solar", "verify")
    assert found.returncode == 0, found
    return found.stdout.strip()


def weights(client: Client, least: int) -> tuple[int, Any] | None:
    """The served version and its weights; None below version `least`."""
    _, model = client.ask("GET", "/models/books")
    return (model["version"], model["weights"]) if model["version"] >= least else None


def main(root: str, config: str, place_: str) -> None:
    """Run all checks."""
    image = Image(Path(root), json.loads(Path(config).read_text())["Docker"]["config"])
    place, (secret, entry) = Path(place_), new_key("trial", "rank+feedback+admin")
    client, data = Client(secret), folder(place / "data", image.user)
    with service(image, place, data, "solar-first", entry) as (container, seconds):
        report(f"read-only and without root: ready after {seconds:.1f} s")
        check_confinement(container)
        check_answers(client)
        check_training(client)
        check_kernels(container)
        acknowledged = check_drain(container, client)

    stopped = place / "stopped"
    shutil.copytree(data, stopped, ignore=shutil.ignore_patterns("*.sock"))
    _chown(stopped, image)
    with service(image, place, stopped, "solar-restored", entry) as (container, seconds):
        version = until(lambda: weights(client, acknowledged))
        report(f"restored from a copy made while stopped: ready after {seconds:.1f} s, version "
               f"{version[0]}, acknowledged {acknowledged}; {verified(container)}")  # fmt: skip
        live_copy(image, place, container, client, entry)


def live_copy(image: Image, place: Path, container: Container, client: Client, entry: str) -> None:
    """Copy the AOF under load, then serve the copy."""
    caller = LoadClient(client)
    caller.start()
    until(lambda: sum(caller.statuses.values()) > 50)
    live, before = place / "live", caller.seq
    rewriting(container, 0)  # a rewrite would replace the files during the copy
    shutil.copytree(place / "stopped" / "appendonlydir", live / "appendonlydir")
    after = caller.seq
    rewriting(container, 100)
    until(lambda: caller.seq > after + 10)
    caller.end()
    code, _ = container.stop()
    assert code == 0, container.logged()
    _chown(live, image)
    with service(image, place, live, "solar-live", entry) as (restored, _):
        version, _ = until(lambda: weights(client, before))
        report(f"restored from a copy made under load: version {version}, acknowledged up to "
               f"{before} before the copy and {after} after it; {verified(restored)}")  # fmt: skip
        code, _ = restored.stop()
        assert code == 0, restored.logged()


def rewriting(container: Container, percentage: int) -> None:
    """Set the growth in percent after which the embedded server rewrites its AOF; 0: never."""
    script = (
        "import redis, sys, time; server = redis.Redis.from_url('unix:///data/valkey.sock')\n"
        "server.config_set('auto-aof-rewrite-percentage', sys.argv[1])\n"
        "while server.info('persistence')['aof_rewrite_in_progress']: time.sleep(0.1)"
    )
    found = container.run("python", "-c", script, str(percentage))
    assert found.returncode == 0, found


def _chown(folder_: Path, image: Image) -> None:
    for path in (folder_, *folder_.rglob("*")):
        shutil.chown(path, *image.user)


if __name__ == "__main__":
    main(*sys.argv[1:])
