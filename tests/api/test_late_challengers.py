"""Challengers that are behind their leader, or stalled: no list shows their order.

The learners run apart from the service, so a test decides who learns.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.domain.followers import MOST_BEHIND
from app.storage.embedded import server
from tests.api.duels import STILL, call, rank, refused, teach
from tests.api.learners import SHORT_LOG, learning
from tests.api.services import Running, serving
from tests.servers import until

SEEDS = range(40)


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving(environ={"SOLAR_LEARNER": "false"}) as running:
        yield running


@pytest.fixture(scope="module")
def url(service: Running) -> str:
    found = server.find(service.data)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def new_pair(http: httpx.Client, leader: str) -> str:
    """Create a model and a follower that knows nothing yet; return the follower."""
    call(http, "PUT", f"/models/{leader}", 201, STILL)
    call(http, "PUT", f"/models/{leader}-b", 201, {"follows": leader, "gamma": 1.0})
    return f"{leader}-b"


def begin(http: httpx.Client, leader: str, challenger: str) -> Any:
    body = {"challenger": challenger, "share": 0.5}
    return call(http, "PUT", f"/models/{leader}/duel", 201, body)


def until_ready(http: httpx.Client, leader: str, ready: bool) -> None:
    """Wait until lists show both sides, or no longer do."""
    path = f"/models/{leader}/duel"
    until(lambda: call(http, "GET", path, 200)["ready"] is ready)


def duelling(http: httpx.Client, leader: str) -> list[int]:
    """Return the seeds of the requests whose list is one of a duel."""
    answers = {seed: rank(http, leader, seed) for seed in SEEDS}
    assert all(one["logged"] and len(one["documents"]) == 8 for one in answers.values())
    return [seed for seed, one in answers.items() if one.get("duel", False)]


def test_no_list_shows_a_challenger_that_is_too_far_behind_until_it_has_caught_up(
    http: httpx.Client, url: str
) -> None:
    challenger = new_pair(http, "slow")
    with contextlib.ExitStack() as stack:
        stack.enter_context(learning(url, "slow"))
        teach(http, "slow", MOST_BEHIND - 1)
        begin(http, "slow", challenger)
        until_ready(http, "slow", True)
        before = duelling(http, "slow")
        assert 10 <= len(before) <= 30
        teach(http, "slow", 1)
        until_ready(http, "slow", False)
        assert duelling(http, "slow") == []
        found = call(http, "GET", f"/models/{challenger}", 200)
        assert (found["lag"], found["may_duel"], found["stalled"]) == (
            MOST_BEHIND + 1, False, False,
        )  # fmt: skip
        stack.enter_context(learning(url, f"slow/{challenger}"))
        until_ready(http, "slow", True)
        assert duelling(http, "slow") == before
        duel = call(http, "GET", "/models/slow/duel", 200)
        assert (duel["ended"], duel["lists"]) == (None, 0)


def test_a_challenger_that_is_behind_may_begin_a_duel_that_is_not_ready(
    http: httpx.Client, url: str
) -> None:
    challenger = new_pair(http, "late")
    with learning(url, "late"):
        teach(http, "late", MOST_BEHIND)
        assert begin(http, "late", challenger)["ready"] is False
        assert duelling(http, "late") == []


def test_no_list_shows_a_stalled_challenger_and_a_duel_with_it_is_refused(
    http: httpx.Client, url: str
) -> None:
    challenger = new_pair(http, "held")
    with learning(url, "held", SHORT_LOG):
        begin(http, "held", challenger)
        until_ready(http, "held", True)
        assert duelling(http, "held")
        until(lambda: teach(http, "held", 20) and is_stalled(http, challenger))
        until_ready(http, "held", False)
        assert duelling(http, "held") == []
        assert call(http, "GET", f"/models/{challenger}", 200)["lag"] <= MOST_BEHIND
        assert "is in a duel" in refused(http, "DELETE", f"/models/{challenger}", 409)
        call(http, "DELETE", "/models/held/duel", 200)
        body = {"challenger": challenger, "share": 0.5}
        detail = refused(http, "PUT", "/models/held/duel", 409, body)
        assert detail == (
            f"challenger: {challenger} is stalled; delete it and create it again, then it may duel"
        )
        tournament = {"challenger": "followers", "max_lists": 100}
        assert "without any" in refused(http, "PUT", "/models/held/duel", 422, tournament)
        call(http, "DELETE", f"/models/{challenger}", 204)
        call(http, "PUT", f"/models/{challenger}", 201, {"follows": "held", "gamma": 1.0})
        begin(http, "held", challenger)
        until_ready(http, "held", True)
        assert duelling(http, "held")


def is_stalled(http: httpx.Client, follower: str) -> bool:
    found: bool = call(http, "GET", f"/models/{follower}", 200)["stalled"]
    return found
