"""Several tenants rank and post over HTTP while worker, learner and store are killed.

An acknowledged event is in the log once, at its seq, with the source of its key, and no tenant gets
feedback into the list of another.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from app.api import auth
from app.domain import codec
from app.domain.records import Feedback
from app.learning.replay import verify
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.api.test_faults import SHORT_LEASE, children
from tests.faults import rounds
from tests.servers import TIMEOUT, until, with_store

TENANTS = ("", "a", "b")
#: Command lines of the processes that are killed.
PROCESSES = ("app.runtime.worker", "app learn", "valkey-server")
KILLS = 8  # 160 in `make chaos`


class Tenant:
    """A client that ranks and clicks until it is stopped; it sends each post until an answer."""

    def __init__(self, running: Running, tenant: str, secret: str, others: list["Tenant"]) -> None:
        self.name, self.key = tenant, f"web@{tenant}" if tenant else "web"
        headers = {"authorization": f"Bearer {secret}"}
        self._http = running.client(headers=headers)
        self._others, self._rng = others, Random(tenant)  # noqa: S311
        self.requests: list[str] = []
        self.acknowledged: dict[str, int] = {}
        self.foreign = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(3 * TIMEOUT)
        self._http.close()
        assert self.failure is None, self.failure

    def _work(self) -> None:
        try:
            for at in range(1_000_000):
                if self._stop.is_set():
                    return
                self._rank(f"{self.key} list {at}")
                self._click(at)
                self._try_foreign(at)
        except BaseException as error:  # noqa: BLE001  # for the main thread
            self.failure = error

    def _send(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send until there is an answer other than 503."""
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = self._http.post(path, json={"model": "books", **body})
                if answer.status_code != 503:
                    return answer
            self._stop.wait(0.01)

    def _rank(self, request: str) -> None:
        documents = [{"id": f"d{at}", "features": [self._rng.random()] * 3} for at in range(4)]
        answer = self._send("/rank", {"request_id": request, "documents": documents})
        assert answer.status_code == 200, answer.text
        if answer.json()["logged"]:
            self.requests.append(request)

    def _click(self, at: int) -> None:
        if not self.requests:
            return
        request = self._rng.choice(self.requests[-3:])
        clicked, name = [f"d{self._rng.randrange(4)}"], f"event {at}"
        event = {"type": "clicks", "event_id": name, "request_id": request, "clicked": clicked,
                 "source": "shop"}  # fmt: skip
        for _ in range(self._rng.choice((1, 1, 2))):  # repeats are safe
            answer = self._send("/feedback", event)
            assert answer.status_code == 202, answer.text
            seq = answer.json()["seq"]
            assert self.acknowledged.setdefault(name, seq) == seq

    def _try_foreign(self, at: int) -> None:
        """Click on the list of another tenant, and rank under its id."""
        others = [one for one in self._others if one is not self and one.requests]
        if not others or at % 5:
            return
        requests = self._rng.choice(others).requests[-3:]
        request = self._rng.choice(requests)
        event = {"type": "clicks", "event_id": f"foreign {at}", "request_id": request,
                 "clicked": ["d1"]}  # fmt: skip
        assert self._send("/feedback", event).status_code == 404
        documents = [{"id": "evil", "features": [9, 9, 9]}]
        answer = self._send("/rank", {"request_id": request, "documents": documents})
        assert answer.status_code == 409 or not answer.json()["logged"], answer.text
        self.foreign += 1


@contextlib.contextmanager
def posting(running: Running, secrets: dict[str, str]) -> Iterator[list[Tenant]]:
    tenants: list[Tenant] = []
    tenants += [Tenant(running, name, secret, tenants) for name, secret in secrets.items()]
    for one in tenants:
        one.start()
    try:
        yield tenants
    finally:
        for one in tenants:
            one.stop()


def kill(parent: int, what: str) -> None:
    """Kill a child of this name as soon as there is one."""

    def killed() -> bool:
        for pid, line in children(parent).items():
            if what in line and "launcher.py" not in line:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    until(killed)


def acknowledged(tenants: list[Tenant]) -> int:
    return sum(len(one.acknowledged) for one in tenants)


async def logged(store: Store) -> dict[tuple[str, str], list[int]]:
    """Return the seqs of each event in the log, by source and id."""
    found: dict[tuple[str, str], list[int]] = {}
    after, tail = 0, await store.log.tail("books")
    while after < tail:
        for entry in await store.log.read("books", after, 256):
            record = codec.load_record(entry.record)
            assert isinstance(record, Feedback)
            found.setdefault((record.source, record.event), []).append(entry.seq)
            after = entry.seq
    return found


@pytest.mark.slow
def test_kills_while_tenants_post_lose_and_double_nothing(tmp_path: Path) -> None:
    keys = {one: auth.new_key(f"web@{one}" if one else "web", "rank+feedback") for one in TENANTS}
    admin, entry = auth.new_key("admin", "admin")
    environ = {**SHORT_LEASE, "SOLAR_KEYS": ",".join([entry, *(e for _, e in keys.values())])}
    kills, rng = rounds(KILLS), Random(1)  # noqa: S311
    with serving("--workers", "2", data=tmp_path, environ=environ) as running:
        with running.client(headers={"authorization": f"Bearer {admin}"}) as http:
            model = {"features": 3, "gamma": 1.0}
            assert http.put("/models/books", json=model).status_code == 201
        with posting(running, {name: secret for name, (secret, _) in keys.items()}) as tenants:
            for _ in range(kills):
                before = acknowledged(tenants)
                kill(running.process.pid, rng.choice(PROCESSES))
                until(lambda before=before: acknowledged(tenants) >= before + 6)  # type: ignore[misc]
        assert running.stop() == 0
    with EmbeddedServer.start(tmp_path) as server:
        found = with_store(server.url, logged)
        assert with_store(server.url, lambda store: verify(store, "books")) == []
    expected = {
        (f"{one.key}/shop", event): [seq]
        for one in tenants
        for event, seq in one.acknowledged.items()
    }
    lost = [event for event, seqs in expected.items() if found.get(event, [])[:1] != seqs]
    doubled = [event for event, seqs in found.items() if len(seqs) > 1]
    foreign = [event for event in found if event[1].startswith("foreign")]
    attempts = sum(one.foreign for one in tenants)
    print(  # noqa: T201
        f"\n{kills} kills, {len(expected)} acknowledged events of {len(TENANTS)} tenants: "
        f"{len(lost)} lost, {len(doubled)} doubled; {attempts} attempts on other tenants"
    )
    assert (lost, doubled, foreign) == ([], [], [])
    assert all(one.foreign for one in tenants)
