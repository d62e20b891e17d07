"""Followers and duels over HTTP on a Redis Cluster, through a failover of their node."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.cli.verify import verify_models
from tests import fleets
from tests.api.duels import (
    STILL,
    call,
    ids,
    promoted,
    rank,
    refused,
    serve_users,
    teach,
    until_learnt,
    with_follower,
)
from tests.api.services import serving
from tests.fleets import ClusterFleet
from tests.servers import client, keys_like, until, with_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fleet() -> Iterator[ClusterFleet]:
    with fleets.cluster_fleet(replicas=1) as found:
        yield found


@pytest.fixture(scope="module")
def http(fleet: ClusterFleet) -> Iterator[httpx.Client]:
    flags = ["--redis-url", fleet.url, "--durability", "replicated", "--lease", "1"]
    with serving(*flags) as service, service.client() as client:
        yield client
        assert "Traceback" not in service.logged()


def verified(fleet: ClusterFleet, *models: str) -> list[str]:
    """Return the lines of `solar verify` about these models and followers."""
    lines: list[str] = []
    with_store(fleet.url, lambda store: verify_models(store, [*models], lines.append))
    return [line for line in lines if "equal to the replay" in line]


def duel_of(http: httpx.Client, model: str) -> Any:
    return call(http, "GET", f"/models/{model}/duel", 200)


def promote(http: httpx.Client, model: str) -> None:
    seq = promoted(http, model, force=True)["seq"]
    until(lambda: call(http, "GET", f"/models/{model}", 200)["version"] >= seq)


def fail_over(fleet: ClusterFleet, http: httpx.Client, model: str) -> None:
    """Kill the node of a model; wait until the service reads and remembers again."""
    old, _ = fleet.fail_over(model)
    fleet.rejoin(old)
    until(lambda: http.get(f"/models/{model}/duel").status_code == 200)
    until(lambda: rank(http, model, 0)["logged"])


def test_a_duel_goes_on_after_a_failover_and_its_challenger_is_promoted(
    fleet: ClusterFleet, http: httpx.Client
) -> None:
    with_follower(http, "known", "known-b")
    body = {"challenger": "known-b", "share": 0.5}
    assert call(http, "PUT", "/models/known/duel", 201, body)["ready"]
    first = serve_users(http, "known", range(40))
    before = duel_of(http, "known")
    assert before["lists"] == sum("duel" in one for one in first) > 5
    assert before["losses"] > before["wins"]
    until_learnt(http, "known-b", call(http, "GET", "/models/known", 200)["seq"])
    fail_over(fleet, http, "known")
    assert "is on" in refused(http, "PUT", "/models/known/duel", 409, body)
    until(lambda: duel_of(http, "known")["ready"])
    assert duel_of(http, "known") == before
    more = serve_users(http, "known", range(40, 80))
    found = duel_of(http, "known")
    assert found["lists"] == before["lists"] + sum("duel" in one for one in more)
    promote(http, "known")
    led = call(http, "GET", "/models/known", 200)
    follower = until_learnt(http, "known-b", led["seq"])
    assert (led["gamma"], led["weights"]) == (1.0, follower["weights"])
    assert follower["passed_by"] == 1
    assert duel_of(http, "known")["ended"] == {"seq": led["seq"], "why": "promotion"}
    assert len(verified(fleet, "known", "known-b")) == 2


def test_a_tournament_of_a_bank_begins_and_ends_and_leaves_no_state(
    fleet: ClusterFleet, http: httpx.Client
) -> None:
    call(http, "PUT", "/models/bank", 201, STILL)
    grid = {"gamma": [1.0, 1e10], "covariance": ["full", "diagonal"]}
    made = call(http, "POST", "/models/bank/followers", 201, {"grid": grid})["followers"]
    names = [one["name"] for one in made]
    seq = teach(http, "bank")
    for name in names:
        assert until_learnt(http, name, seq)["feedback"] == 60
    body = {"challenger": "followers", "max_lists": 400, "share": 0.5}
    begun = call(http, "PUT", "/models/bank/duel", 201, body)
    assert (begun["ready"], begun["tournament"]["followers"]) == (True, names)
    assert any("duel" in one for one in serve_users(http, "bank", range(20)))
    assert "is in a duel" in refused(http, "DELETE", f"/models/{names[-1]}", 409)
    assert call(http, "DELETE", "/models/bank/duel", 200)["ended"]["why"] == "ended"
    assert len(verified(fleet, "bank", *names)) == 1 + len(names) == 5
    assert len(ids(rank(http, "bank", 1))) == 8
    call(http, "DELETE", "/models/bank?followers=delete", 204)
    for name in ("bank", *names):
        call(http, "GET", f"/models/{name}", 404)
    with client(fleet.url) as connection:
        left = {key.rsplit(b":", 1)[-1] for key in keys_like(connection, "solar:{bank}:f:*")}
    assert left <= {b"epoch", b"fence"}
