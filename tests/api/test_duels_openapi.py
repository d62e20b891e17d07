"""Answers about followers and duels have the schemas of the OpenAPI document.

The generated requests of `test_openapi.py` name models that do not exist, so these operations
answer 404 there. Here they answer about models with followers, and with duels that are on.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis

from tests.api.duels import STILL, call, serve_users, teach, until_learnt, with_follower
from tests.api.services import Running, serving
from tests.api.test_openapi import CHECKS
from tests.servers import until

ONE, FOLLOWERS = "/models/{name}", "/models/{name}/followers"
DUEL, PROMOTE = "/models/{name}/duel", "/models/{name}/duel/promote"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def http(running: Running) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client


class Checked:
    """Sends requests whose answers must have a wanted status, and the schema of this status."""

    def __init__(self, url: str) -> None:
        self._schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        self.document: Any = self._schema.raw_schema

    def __call__(self, method: str, path: str, status: int, name: str = "", **parts: Any) -> Any:
        """Send a request; return its answer."""
        if "body" in parts:
            parts["media_type"] = "application/json"
        names = {"name": name} if name else {}
        case = self._schema[path][method].Case(path_parameters=names, **parts)
        response = case.call()
        assert response.status_code == status, response.text
        assert str(status) in self.document["paths"][path][method.lower()]["responses"]
        case.validate_response(response, checks=CHECKS)
        return response.json() if response.content else None

    def has_fields_of(self, component: str, answer: Any) -> bool:
        """Whether an answer has the fields of a component: all of them, and no others."""
        documented = self.document["components"]["schemas"][component]["properties"]
        assert answer.keys() == documented.keys()
        return True


@pytest.fixture(scope="module")
def checked(running: Running) -> Checked:
    return Checked(running.url)


def test_answers_about_followers_are_as_documented(checked: Checked, http: httpx.Client) -> None:
    checked("PUT", ONE, 201, "led", body=STILL)
    for status in (201, 200):
        checked("PUT", ONE, status, "led-b", body={"follows": "led", "gamma": 1.0})
        grid = {"grid": {"gamma": [1.0, 2.0], "clicks": ["debiased", "click-skip-above"]}}
        bank = checked("POST", FOLLOWERS, status, "led", body=grid)
        assert len(bank["followers"]) == 4
    serve_users(http, "led", range(10))
    seq = teach(http, "led", 5)
    for one in bank["followers"]:
        until_learnt(http, one["name"], seq)
    found = checked("GET", FOLLOWERS, 200, "led")["followers"]
    assert len(found) == 5
    for one in found:
        assert checked.has_fields_of("FollowerSummary", one)
        assert checked("GET", ONE, 200, one["name"])["follows"] == "led"
    assert len(checked("GET", "/models", 200)["models"]) >= 6
    checked("DELETE", ONE, 204, "led-b")
    checked("DELETE", ONE, 409, "led")
    checked("DELETE", ONE, 204, "led", query={"followers": "delete"})


@pytest.mark.slow
def test_answers_about_a_duel_are_as_documented(checked: Checked, http: httpx.Client) -> None:
    with_follower(http, "one", "one-b")
    checked("GET", DUEL, 404, "one")
    duel = {"challenger": "one-b", "share": 0.5}
    checked("PUT", DUEL, 201, "one", body=duel)
    checked("PUT", DUEL, 409, "one", body=duel)
    serve_users(http, "one", range(60))
    found = checked("GET", DUEL, 200, "one")
    assert checked.has_fields_of("DuelDetails", found)
    assert checked.has_fields_of("DuelPoint", found["curve"][0])
    assert found["ended"] is None
    summary = checked("GET", ONE, 200, "one")["duel"]
    assert checked.has_fields_of("DuelSummary", summary)
    checked("POST", PROMOTE, 409, "one", body={"force": False})
    promoted = checked("POST", PROMOTE, 202, "one", body={"force": True})
    assert checked.has_fields_of("PromotionRecord", promoted)
    seq = promoted["seq"]
    until(lambda: call(http, "GET", "/models/one", 200)["version"] >= seq)
    ended = checked("GET", DUEL, 200, "one")["ended"]
    assert checked.has_fields_of("DuelEnd", ended)
    against_version = {"challenger": {"version": 0}, "alpha": 0.01}
    found = checked("PUT", DUEL, 201, "one", body=against_version)
    assert checked.has_fields_of("VersionSide", found["challenger"])
    assert checked("DELETE", DUEL, 200, "one")["ended"]["why"] == "ended"
    checked("DELETE", DUEL, 404, "one")
    checked("PUT", DUEL, 422, "one", body={"challenger": "missing"})


def test_answers_about_a_tournament_are_as_documented(checked: Checked, http: httpx.Client) -> None:
    with_follower(http, "cup", "cup-b")
    call(http, "PUT", "/models/cup-c", 201, {"follows": "cup", "gamma": 1e10})
    body = {"challenger": "followers", "max_lists": 20, "share": 0.5, "promote": False}
    assert checked("PUT", DUEL, 201, "cup", body=body)["tournament"]["step"] == 0
    serve_users(http, "cup", range(60))
    until(lambda: call(http, "GET", "/models/cup/duel", 200)["tournament"]["step"] == 1)
    tournament = checked("GET", DUEL, 200, "cup")["tournament"]
    assert checked.has_fields_of("TournamentDetails", tournament)
    assert len(tournament["table"]) == 2
    assert all(checked.has_fields_of("TournamentRow", row) for row in tournament["table"])
    checked("POST", PROMOTE, 409, "cup", body={})
    checked("DELETE", DUEL, 200, "cup")
