"""Followers over HTTP: other folds of a model's log, which no user sees."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.storage.keys import keys_of
from tests.api.duels import (
    STILL,
    call,
    documents,
    ids,
    post,
    rank,
    refused,
    serve_users,
    store_url,
    teach,
    until_learnt,
    with_follower,
)
from tests.api.services import PLAIN, Running, serving
from tests.servers import client, until

#: The measures of rankings, which a follower has not served.
NOT_SERVED = ("map", "map_stderr", "explored_share")


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture
def leader(http: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A model of its own for a test, named after it."""
    name = f"m{abs(hash(request.node.name)) % 10**10}"
    call(http, "PUT", f"/models/{name}", 201, STILL)
    yield name
    http.delete(f"/models/{name}?followers=delete")


def follow(http: httpx.Client, leader: str, **settings: Any) -> Any:
    return call(http, "PUT", f"/models/{leader}-b", 201, {"follows": leader, **settings})


# ---- what a follower is ----


def test_a_follower_learns_from_its_leader_with_settings_of_its_own(http: httpx.Client) -> None:
    seq = with_follower(http, "learns", "learns-b", clicks="click-skip-above")
    serve_users(http, "learns", range(20))
    led, found = call(http, "GET", "/models/learns", 200), until_learnt(http, "learns-b", seq + 20)
    assert (found["follows"], found["lag"], found["stalled"], found["may_duel"]) == (
        "learns", 0, False, True,
    )  # fmt: skip
    assert (found["gamma"], found["clicks"], found["features"]) == (
        1.0, "click-skip-above", ["good", "noise"],
    )  # fmt: skip
    assert found["feedback"] == led["feedback"] == 80
    assert found["weights"]["good"] > 0.1 > abs(led["weights"]["good"])
    assert found["pairs"]["stepped"] > 0
    assert 0.0 < found["squared_loss"] < 10.0
    assert found["compared"] == 20
    assert 0.0 < found["agreement"] < 1.0
    assert found["passed_by"] == 0


def test_a_follower_with_the_settings_of_its_leader_has_the_same_bits(
    http: httpx.Client, leader: str
) -> None:
    follow(http, leader)
    teach(http, leader)
    serve_users(http, leader, range(20))
    led = call(http, "GET", f"/models/{leader}", 200)
    found = until_learnt(http, f"{leader}-b", led["seq"])
    for field in ("weights", "stddev", "pairs", "rejected"):
        assert found[field] == led[field]
    assert found["agreement"] == 1.0


def test_the_measures_of_rankings_are_null_for_a_follower(http: httpx.Client, leader: str) -> None:
    follow(http, leader)
    serve_users(http, leader, range(20))
    led = call(http, "GET", f"/models/{leader}", 200)
    found = until_learnt(http, f"{leader}-b", led["seq"])
    assert (led["queries"], found["queries"]) == (20, 0)
    for part in (found, found["baseline"], found["lead"], found["explored"]):
        assert {*part["ndcg"].values(), part["map"], part["map_stderr"]} == {None}
    assert set(found["debiased_wins"].values()) == {None}
    assert led["ndcg"]["10"] is not None


def test_what_follows_is_listed_with_its_leader(http: httpx.Client, leader: str) -> None:
    follow(http, leader, gamma=10.0)
    listed = {one["name"]: one for one in call(http, "GET", "/models?limit=1000", 200)["models"]}
    assert listed[f"{leader}-b"]["follows"] == leader
    assert "follows" not in listed[leader]
    page = call(http, "GET", f"/models?limit=1&after={leader}", 200)
    assert [one["name"] for one in page["models"]] == [f"{leader}-b"]
    found = call(http, "GET", f"/models/{leader}/followers", 200)
    assert [one["name"] for one in found["followers"]] == [f"{leader}-b"]
    assert found["followers"][0]["gamma"] == 10.0
    assert found["damaged"] == []


def test_repeating_a_creation_is_safe_and_other_settings_are_refused(
    http: httpx.Client, leader: str
) -> None:
    body = {"follows": leader, "gamma": 5.0}
    assert call(http, "PUT", f"/models/{leader}-b", 201, body)["gamma"] == 5.0
    assert call(http, "PUT", f"/models/{leader}-b", 200, body)["gamma"] == 5.0
    detail = refused(http, "PUT", f"/models/{leader}-b", 409, {"follows": leader})
    assert "other settings" in detail
    detail = refused(http, "PUT", f"/models/{leader}-b", 409, STILL)
    assert f"{leader}-b follows {leader}" in detail
    call(http, "PUT", f"/models/{leader}-c", 201, STILL)
    assert "exists" in refused(http, "PUT", f"/models/{leader}-c", 409, body)
    call(http, "DELETE", f"/models/{leader}-c", 204)


def test_a_follower_begins_where_it_is_told(http: httpx.Client, leader: str) -> None:
    call(http, "PATCH", f"/models/{leader}", 202, {"gamma": 1.0})
    seq = teach(http, leader, 30)
    led = call(http, "GET", f"/models/{leader}", 200)["weights"]
    names: dict[str, dict[str, Any]] = {
        "now": {}, "cold": {"start": "cold"}, "oldest": {"from": "oldest"}, "first": {"from": 0},
    }  # fmt: skip
    for name, body in names.items():
        call(http, "PUT", f"/models/{leader}-{name}", 201, {"follows": leader, **body})
    found = {name: until_learnt(http, f"{leader}-{name}", seq) for name in names}
    assert found["now"]["weights"] == led
    assert found["now"]["feedback"] == found["cold"]["feedback"] == 0
    assert found["cold"]["weights"] == {"good": 0.0, "noise": 0.0, "_order": 0.3}
    assert found["oldest"]["feedback"] == found["first"]["feedback"] == 30
    assert found["oldest"]["weights"] == found["first"]["weights"] == led


@pytest.mark.parametrize("start", [1, 12_345])
def test_an_impossible_start_is_refused_with_the_versions_that_there_are(
    http: httpx.Client, leader: str, start: int
) -> None:
    body = {"follows": leader, "from": start}
    detail = refused(http, "PUT", f"/models/{leader}-b", 422, body)
    assert detail == (
        f"from: expected now, oldest, or a version that the log continues (0), got {start}"
    )
    call(http, "GET", f"/models/{leader}-b", 404)


def test_a_follower_exists_also_after_the_version_where_it_began(
    http: httpx.Client, service: Running, leader: str
) -> None:
    body = {"follows": leader, "gamma": 1.0, "from": 0}
    made = call(http, "PUT", f"/models/{leader}-b", 201, body)
    with client(store_url(service)) as connection:  # as after 100,000 records
        connection.zrem(keys_of(leader).snapshots, "0")
    assert call(http, "PUT", f"/models/{leader}-b", 200, body) == made
    assert "from: " in refused(http, "PUT", f"/models/{leader}-c", 422, body)
    other = {**body, "from": "now", "gamma": 2.0}
    assert "exists" in refused(http, "PUT", f"/models/{leader}-b", 409, other)


# ---- refusals ----

REFUSED = [
    ({"follows": "missing"}, "follows: expected the name of a model that follows no other one"),
    ({"follows": "refusing-b"}, "got one that follows refusing"),
    ({"follows": "refusing", "features": ["good"]}, "features: expected none with follows"),
    ({"follows": "refusing", "normalization": "none"}, 'unknown field "normalization"'),
    ({"follows": "refusing", "explore": True}, 'unknown field "explore"'),
    ({"follows": "refusing", "clicks": "fair-pairs"}, "clicks: expected another strategy"),
    ({"follows": "swapped", "clicks": "debiased"}, "clicks: expected another strategy"),
    ({"follows": "refusing", "algorithm": "solar-i", "forgetting": 0.1}, "forgetting: expected 0"),
    ({"follows": "refusing", "prior": 0}, "prior: expected a weight above 0"),
    ({"follows": "unordered", "prior": 1}, "prior: expected none"),
    ({"follows": "refusing", "gamma": 0}, "gamma: "),
    ({"follows": "refusing", "gamma": None}, "gamma: "),
    ({"follows": "refusing", "from": "yesterday"}, "from: expected now or oldest"),
    ({"follows": "refusing", "from": -1}, "from: "),
    ({"follows": "refusing", "from": True}, "from: "),
    ({"follows": "refusing", "start": "warm"}, "start: expected weights or cold"),
    ({"follows": "a/b"}, "follows: "),
    ({"follows": 3}, "follows: "),
]


@pytest.fixture(scope="module")
def refusing(http: httpx.Client) -> None:
    call(http, "PUT", "/models/refusing", 201, STILL)
    call(http, "PUT", "/models/refusing-b", 201, {"follows": "refusing"})
    call(http, "PUT", "/models/swapped", 201, {"features": 2, "clicks": "fair-pairs"})
    call(http, "PUT", "/models/unordered", 201, {"features": 2, "prior": 0})


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(("body", "detail"), REFUSED, ids=lambda one: str(one)[:60])
def test_an_impossible_follower_is_refused(
    http: httpx.Client, body: dict[str, Any], detail: str
) -> None:
    assert detail in refused(http, "PUT", "/models/other", 422, body)
    call(http, "GET", "/models/other", 404)


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("name", ["submitted", "version", "followers", "refusing"])
def test_a_name_that_a_duel_could_not_tell_is_refused(http: httpx.Client, name: str) -> None:
    refused(http, "PUT", f"/models/{name}", 422, {"follows": "refusing"})


OPERATIONS: list[tuple[str, str, Any]] = [
    ("PATCH", "", {"gamma": 1.0}),
    ("GET", "/versions", None),
    ("POST", "/versions", {"name": "kept"}),
    ("DELETE", "/versions/kept", None),
    ("GET", "/versions/0/diff/current", None),
    ("POST", "/rollback", {"version": 0}),
    ("POST", "/warm-start", {"queries": [{"documents": [{"label": 1, "features": [1, 2]}]}]}),
    ("GET", "/history", None),
    ("GET", "/stream", None),
    ("GET", "/impressions", None),
    ("POST", "/compare", {"documents": documents(1), "first": "d1", "second": "d2"}),
    ("POST", "/what-if", {"documents": documents(1), "clicks": ["d1"]}),
    ("GET", "/followers", None),
    ("POST", "/followers", {"grid": {"gamma": [1.0]}}),
    ("GET", "/duel", None),
    ("PUT", "/duel", {"challenger": "submitted"}),
    ("DELETE", "/duel", None),
]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
def test_what_only_a_leader_can_do_is_refused_and_names_it(
    http: httpx.Client, method: str, path: str, body: Any
) -> None:
    detail = refused(http, method, f"/models/refusing-b{path}", 409, body)
    assert "refusing-b follows refusing; send this to refusing" in detail


@pytest.mark.usefixtures("refusing")
def test_rankings_and_feedback_go_to_the_leader(http: httpx.Client) -> None:
    ranking = {"model": "refusing-b", "documents": documents(1)}
    kept = {**ranking, "version": 0}
    labels = {"event_id": "e", "type": "labels", "model": "refusing-b", "labels": {"d1": 1},
              "documents": documents(1)}  # fmt: skip
    generated = "refusing-b.01970000-0000-7000-8000-000000000000"
    clicks = {"event_id": "e", "type": "clicks", "request_id": generated, "clicked": []}
    bodies = [("/rank", ranking), ("/rank", kept), ("/feedback", labels), ("/feedback", clicks)]
    for path, body in [*bodies, ("/feedback", {"model": "refusing-b", "events": [labels]})]:
        assert "refusing-b follows refusing" in refused(http, "POST", path, 409, body)
    for address in ("refusing/refusing-b", "refusing%2Frefusing-b"):
        call(http, "POST", "/rank", 422, {**ranking, "model": address})
        call(http, "GET", f"/models/{address}", 404)


# ---- a bank ----


def test_a_bank_has_a_follower_for_each_combination(http: httpx.Client, leader: str) -> None:
    grid = {"gamma": [1e2, 0.5], "clicks": ["debiased", "click-skip-above"]}
    made = call(http, "POST", f"/models/{leader}/followers", 201, {"grid": grid})["followers"]
    assert [(one["name"], one["gamma"], one["clicks"]) for one in made] == [
        (f"{leader}-gamma0_5-click-skip-above", 0.5, "click-skip-above"),
        (f"{leader}-gamma0_5-debiased", 0.5, "debiased"),
        (f"{leader}-gamma100-click-skip-above", 100.0, "click-skip-above"),
        (f"{leader}-gamma100-debiased", 100.0, "debiased"),
    ]
    again = call(http, "POST", f"/models/{leader}/followers", 200, {"grid": grid})["followers"]
    assert [one["name"] for one in again] == [one["name"] for one in made]
    seq = teach(http, leader, 10)
    for one in made:
        until_learnt(http, one["name"], seq)


WRONG_GRIDS = [
    ({}, "grid: expected 1 to 16 followers, got none"),
    ({"gamma": []}, "grid.gamma: "),
    ({"gamma": [1.0, 1.0]}, "grid: expected different values"),
    ({"gamma": [float(at) for at in range(1, 18)]}, "grid.gamma: expected at most 16"),
    ({"gamma": [1.0, 2.0, 3.0], "C": [float(at) for at in range(1, 7)]}, "got 18 combinations"),
    ({"gamma": 1.0}, "grid"),
    ({"gama": [1.0]}, 'grid: unknown field "gama"; did you mean "gamma"?'),
    ({"clicks": ["debiased", "fair-pairs"]}, "fair-pairs: clicks: expected another strategy"),
    ({"algorithm": ["solar-i"], "forgetting": [0.0, 1e-3]}, "forgetting: expected 0 for solar-i"),
    ([], "grid"),
    ({"gamma": [[1.0]]}, "grid"),
]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(("grid", "detail"), WRONG_GRIDS, ids=lambda one: str(one)[:40])
def test_an_impossible_grid_creates_nothing(http: httpx.Client, grid: Any, detail: str) -> None:
    assert detail in refused(http, "POST", "/models/refusing/followers", 422, {"grid": grid})
    found = call(http, "GET", "/models/refusing/followers", 200)["followers"]
    assert [one["name"] for one in found] == ["refusing-b"]


def test_a_bank_with_one_taken_name_creates_nothing(http: httpx.Client, leader: str) -> None:
    call(http, "PUT", f"/models/{leader}-gamma2", 201, STILL)
    body = {"grid": {"gamma": [1.0, 2.0]}}
    assert "exists" in refused(http, "POST", f"/models/{leader}/followers", 409, body)
    assert call(http, "GET", f"/models/{leader}/followers", 200)["followers"] == []
    call(http, "GET", f"/models/{leader}-gamma1", 404)
    call(http, "DELETE", f"/models/{leader}-gamma2", 204)
    call(http, "POST", f"/models/{leader}/followers", 201, body)


# ---- deletion, limits, workers ----


def test_a_leader_is_deleted_with_its_followers_only_on_request(http: httpx.Client) -> None:
    with_follower(http, "led", "led-b")
    assert "?followers=delete" in refused(http, "DELETE", "/models/led", 409)
    assert "followers: " in refused(http, "DELETE", "/models/led?followers=keep", 422)
    assert ids(rank(http, "led", 1))
    call(http, "DELETE", "/models/led?followers=delete", 204)
    for name in ("led", "led-b"):
        call(http, "GET", f"/models/{name}", 404)
        call(http, "PUT", f"/models/{name}", 201, STILL)
        call(http, "DELETE", f"/models/{name}", 204)


def test_a_deleted_follower_may_be_created_again(http: httpx.Client) -> None:
    seq = with_follower(http, "made", "made-b")
    call(http, "DELETE", "/models/made-b", 204)
    call(http, "DELETE", "/models/made-b", 404)
    assert call(http, "GET", "/models/made/followers", 200)["followers"] == []
    made = call(http, "PUT", "/models/made-b", 201, {"follows": "made", "gamma": 2.0})
    assert (made["gamma"], made["feedback"], made["version"]) == (2.0, 0, seq)
    assert until_learnt(http, "made-b", teach(http, "made", 5))["feedback"] == 5


def test_followers_count_as_models_in_the_limit() -> None:
    with serving(environ={"SOLAR_MODELS": "4"}) as running, running.client() as http:
        call(http, "PUT", "/models/a", 201, STILL)
        call(http, "PUT", "/models/b", 201, {"follows": "a"})
        grid = {"grid": {"gamma": [1.0, 2.0, 3.0]}}
        assert "SOLAR_MODELS" in refused(http, "POST", "/models/a/followers", 409, grid)
        call(http, "POST", "/models/a/followers", 201, {"grid": {"gamma": [1.0, 2.0]}})
        assert "SOLAR_MODELS" in refused(http, "PUT", "/models/c", 409, STILL)
        assert "SOLAR_MODELS" in refused(http, "PUT", "/models/c", 409, {"follows": "a"})
        call(http, "PUT", "/models/b", 200, {"follows": "a"})
        call(http, "PUT", "/models/a", 200, STILL)


def test_every_worker_knows_a_new_follower() -> None:
    with serving("--workers", "2") as running, running.client() as http:
        call(http, "PUT", "/models/shared", 201, {"features": 2, **PLAIN})
        call(http, "PUT", "/models/shared-b", 201, {"follows": "shared", "gamma": 1.0})
        post(http, "shared", [{"event_id": "e", "type": "labels", "model": "shared",
                               "documents": documents(1), "labels": {"d1": 1}}])  # fmt: skip
        until(lambda: call(http, "GET", "/models/shared-b", 200)["version"] == 1)
        for _ in range(10):
            with running.client() as other:
                refused(other, "PATCH", "/models/shared-b", 409, {"gamma": 2.0})
