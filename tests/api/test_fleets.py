"""The whole service behind Sentinels and on a Cluster, chosen by URL and durability level."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TypeAlias

import httpx
import pytest

from app.cli.verify import verify_models
from tests import fleets
from tests.api.services import Running, serving
from tests.fleets import ClusterFleet, SentinelFleet
from tests.servers import TIMEOUT, until, with_store

WAIT_UNTIL_LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}


Fleet: TypeAlias = SentinelFleet | ClusterFleet
KINDS: tuple[Callable[[], AbstractContextManager[Fleet]], ...] = (
    fleets.sentinel_fleet,
    partial(fleets.cluster_fleet, replicas=1),
)


@contextmanager
def service_on(
    kind: Callable[[], AbstractContextManager[Fleet]],
) -> Iterator[tuple[Fleet, Running]]:
    with kind() as fleet:
        flags = ["--redis-url", fleet.url, "--durability", "replicated", "--lease", "1"]
        with serving(*flags, environ={"SOLAR_REMEMBER_SECONDS": "0.1"}) as running:
            yield fleet, running


@pytest.fixture(scope="module")
def services() -> Iterator[list[tuple[Fleet, Running]]]:
    """One service behind Sentinels, one on a Cluster; both start at the same time."""
    with ExitStack() as stack, ThreadPoolExecutor(len(KINDS)) as pool:
        yield list(pool.map(lambda kind: stack.enter_context(service_on(kind)), KINDS))


def labels_event(name: str) -> dict[str, object]:
    documents = [{"id": at, "features": [float(at == "a"), 0.5]} for at in "ab"]
    return {
        "event_id": name, "type": "labels", "model": "books", "documents": documents,
        "labels": {"a": 1},
    }  # fmt: skip


def verify_output(url: str) -> str:
    """Return the output of `solar verify`."""
    lines: list[str] = []
    with_store(url, lambda store: verify_models(store, [], lines.append))
    return "\n".join(lines)


@pytest.mark.parametrize("at", range(len(KINDS)), ids=["sentinel", "cluster"])
def test_the_service_learns_through_a_failover_and_answers_at_worst_503(
    services: list[tuple[Fleet, Running]], at: int
) -> None:
    fleet, service = services[at]
    with service.client() as http, ThreadPoolExecutor(1) as pool:
        made = http.put("/models/books", json={"features": ["x", "y"]})
        assert made.status_code == 201, made.text
        first = http.post("/feedback", json=labels_event("first"), headers=WAIT_UNTIL_LEARNT)
        assert first.status_code == 200, first.text
        failing = pool.submit(fail_over, fleet)
        statuses, seqs = set[int](), dict[str, int]()
        while not failing.done() or len(seqs) < 5:
            post(http, f"e{len(statuses)}-{len(seqs)}", statuses, seqs)
            statuses.add(http.post("/rank", json=rank_body()).status_code)
        failing.result()
        assert statuses <= {200, 202, 503}
        last = accepted(http, "last")["seq"]
        until(lambda: http.get("/models/books").json()["version"] >= last)
        for name, seq in seqs.items():
            again = accepted(http, name)
            assert (again["seq"], again["duplicates"]) == (seq, 1)
    assert "equal to the replay" in verify_output(fleet.url)
    assert service.stop() == 0
    assert "Traceback" not in service.logged()


def fail_over(fleet: Fleet) -> None:
    """Kill the master, wait for the new one, and restart the old one as its replica."""
    old, _ = fleet.fail_over() if isinstance(fleet, SentinelFleet) else fleet.fail_over("books")
    fleet.rejoin(old)


def rank_body() -> dict[str, object]:
    return {"model": "books", "documents": [{"id": "a", "features": [1.0, 0.0]}]}


def post(http: httpx.Client, name: str, statuses: set[int], seqs: dict[str, int]) -> None:
    """Post one event once; record its status, and its seq if it was accepted."""
    answer = http.post("/feedback", json=labels_event(name))
    statuses.add(answer.status_code)
    if answer.status_code == 202:
        seqs[name] = answer.json()["seq"]
    else:
        assert answer.headers["retry-after"]


def accepted(http: httpx.Client, name: str) -> dict[str, int]:
    """Post one event until it is accepted: it is 503 while a replica is behind."""
    answers: list[httpx.Response] = []

    def is_accepted() -> bool:
        answers.append(http.post("/feedback", json=labels_event(name)))
        assert answers[-1].status_code in (202, 503), answers[-1].text
        return answers[-1].status_code == 202

    until(is_accepted)
    found: dict[str, int] = answers[-1].json()
    return found
