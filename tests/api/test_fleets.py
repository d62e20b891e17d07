"""The whole service behind Sentinels and on a Cluster, by its URL and its level alone."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests import fleets
from tests.api.services import ROOT, Running, serving
from tests.fleets import ClusterFleet, SentinelFleet
from tests.servers import PATIENCE, until

LEARNT = {"Prefer": f"wait={PATIENCE:g}"}


@pytest.fixture(params=["sentinel", "cluster"])
def fleet(request: pytest.FixtureRequest) -> Iterator[SentinelFleet | ClusterFleet]:
    if request.param == "sentinel":
        with fleets.sentinel_fleet() as behind:
            yield behind
    else:
        with fleets.cluster_fleet(replicas=1) as spread:
            yield spread


@pytest.fixture
def service(fleet: SentinelFleet | ClusterFleet) -> Iterator[Running]:
    flags = ["--redis-url", fleet.url, "--durability", "replicated", "--lease", "1"]
    with serving(*flags, environ={"SOLAR_REMEMBER_SECONDS": "0.1"}) as running:
        yield running


def judged(name: str) -> dict[str, object]:
    documents = [{"id": at, "features": [float(at == "a"), 0.5]} for at in "ab"]
    return {
        "event_id": name, "type": "labels", "model": "books", "documents": documents,
        "labels": {"a": 1},
    }  # fmt: skip


def solar(url: str, *command: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "app", *command, "--redis-url", url],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return ran.stdout


def test_the_service_learns_through_a_failover_and_says_nothing_worse_than_503(
    fleet: SentinelFleet | ClusterFleet, service: Running
) -> None:
    with service.client() as http, ThreadPoolExecutor(1) as pool:
        made = http.put("/models/books", json={"features": ["x", "y"]})
        assert made.status_code == 201, made.text
        first = http.post("/feedback", json=judged("first"), headers=LEARNT)
        assert first.status_code == 200, first.text
        failing = pool.submit(fail_over, fleet)
        statuses, told = set[int](), dict[str, int]()
        while not failing.done() or len(told) < 5:
            post(http, f"e{len(statuses)}-{len(told)}", statuses, told)
            statuses.add(http.post("/rank", json=asked()).status_code)
        failing.result()
        assert statuses <= {200, 202, 503}
        last = told_at_last(http, "last")
        until(lambda: http.get("/models/books").json()["version"] >= last)
        for name, seq in told.items():
            again = http.post("/feedback", json=judged(name))
            assert (again.status_code, again.json()["seq"]) == (202, seq), again.text
            assert again.json()["duplicates"] == 1
    assert "equal to the replay" in solar(fleet.url, "verify")
    assert service.stop() == 0
    assert "Traceback" not in service.logged()


def fail_over(fleet: SentinelFleet | ClusterFleet) -> None:
    """The master is killed, the other one leads, and the first comes back as its replica."""
    old, _ = fleet.fail_over() if isinstance(fleet, SentinelFleet) else fleet.fail_over("books")
    fleet.rejoin(old)


def asked() -> dict[str, object]:
    return {"model": "books", "documents": [{"id": "a", "features": [1.0, 0.0]}]}


def post(http: httpx.Client, name: str, statuses: set[int], told: dict[str, int]) -> None:
    """One event, once."""
    answer = http.post("/feedback", json=judged(name))
    statuses.add(answer.status_code)
    if answer.status_code == 202:
        told[name] = answer.json()["seq"]
    else:
        assert answer.headers["retry-after"]


def told_at_last(http: httpx.Client, name: str) -> int:
    """One event, until it is told where it is."""
    told: dict[str, int] = {}

    def so() -> bool:
        post(http, name, set(), told)
        return bool(told)

    until(so)
    return told[name]
