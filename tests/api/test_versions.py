"""Versions over HTTP: list, keep under a name, roll back, rank by one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx
import pytest

from app.api import auth
from app.learning.replay import verify
from app.storage.keys import Keys
from tests.api.services import PLAIN, Running, serving
from tests.api.test_models import ask, learn, rank, records, url
from tests.servers import client as connection_to
from tests.servers import until, with_store

NAMES = count()
NOT_KEPT = "version: not kept; GET /models/{name}/versions lists the kept versions"


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture
def model(http: httpx.Client) -> str:
    """A model of two features that has learnt one query."""
    name = f"versioned-{next(NAMES)}"
    settings = {**PLAIN, "features": ["bm25", "price"], "gamma": 10.0}
    assert http.put(f"/models/{name}", json=settings).status_code == 201
    learn(http, name)
    return name


def versions(http: httpx.Client, model: str) -> list[dict[str, Any]]:
    answered = http.get(f"/models/{model}/versions")
    assert answered.status_code == 200, answered.text
    found: list[dict[str, Any]] = answered.json()["versions"]
    return found


def keep(http: httpx.Client, model: str, name: Any) -> httpx.Response:
    return http.post(f"/models/{model}/versions", json={"name": name})


def until_version(http: httpx.Client, model: str, seq: int) -> None:
    until(lambda: http.get(f"/models/{model}").json()["version"] >= seq)


# ---- list ----


def test_a_version_has_a_time_a_reason_a_size_and_measures(http: httpx.Client, model: str) -> None:
    learn(http, model, best="b")
    assert http.post(f"/models/{model}/rollback", json={"version": 0}).json() == {"seq": 3}
    until_version(http, model, 3)
    first, second = versions(http, model)
    assert (first["version"], first["reason"], first["since"]) == (0, "created", None)
    assert (second["version"], second["reason"], second["name"]) == (2, "before rollback", None)
    for one in (first, second):
        age = datetime.now(UTC) - datetime.fromisoformat(one["time"])
        assert timedelta(seconds=-5) < age < timedelta(minutes=10)
        assert 300 < one["size"] < 10_000
    answer = http.get(f"/models/{model}").json()
    since = second["since"]
    assert since == {name: answer[name] for name in since}  # since the first version: all of them


def test_measures_are_those_since_the_version_before(http: httpx.Client, model: str) -> None:
    assert keep(http, model, "one").status_code == 201
    for _ in range(3):
        learn(http, model, best="b")
    kept = keep(http, model, "two").json()
    assert (kept["version"], kept["name"], kept["reason"]) == (4, "two", "named")
    assert kept == versions(http, model)[-1]
    assert kept["since"]["queries"] == 3
    assert kept["since"]["abandoned_lists"] == 0
    assert versions(http, model)[1]["since"]["queries"] == 1
    whole, first = http.get(f"/models/{model}").json(), versions(http, model)[1]["since"]
    total = first["ndcg"]["10"] + 3 * kept["since"]["ndcg"]["10"]
    assert total == pytest.approx(4 * whole["ndcg"]["10"])
    assert kept["since"]["lead"]["ndcg_stderr"]["10"] is not None


def test_a_version_of_an_older_release_has_null_for_what_it_does_not_know(
    service: Running, http: httpx.Client, model: str
) -> None:
    with connection_to(url(service)) as connection:
        connection.hdel(Keys(model).snapshot(0), "time", "reason")
    (kept,) = versions(http, model)
    assert (kept["version"], kept["time"], kept["reason"], kept["name"]) == (0, None, None, None)


def test_versions_of_a_damaged_model_are_listed(
    service: Running, http: httpx.Client, model: str
) -> None:
    with connection_to(url(service)) as connection:
        connection.hset(Keys(model).state, "meta", b"junk")
    assert [one["version"] for one in versions(http, model)] == [0]


# ---- named versions ----


def test_a_name_is_kept_once(http: httpx.Client, model: str) -> None:
    assert keep(http, model, "before-sale").status_code == 201
    again = keep(http, model, "before-sale")
    assert (again.status_code, again.json()["detail"]) == (
        409,
        "name: the model has a version of this name; choose another name",
    )
    assert http.delete(f"/models/{model}/versions/before-sale").status_code == 204
    assert http.delete(f"/models/{model}/versions/before-sale").status_code == 404
    assert keep(http, model, "before-sale").status_code == 201


def test_an_eleventh_name_is_409_until_one_is_deleted(http: httpx.Client, model: str) -> None:
    for at in range(10):
        assert keep(http, model, f"v{at}").status_code == 201
    refused = keep(http, model, "eleven")
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "name: the model has ten named versions; delete one of them",
    )
    assert http.delete(f"/models/{model}/versions/v4").status_code == 204
    assert keep(http, model, "eleven").status_code == 201


@pytest.mark.parametrize(
    "name", ["", "7", 65 * "x", "a b", "..", ".a", "a/b", "../x", "a:b", "\u0000", 7, None]
)
def test_an_invalid_name_is_422_and_nothing_is_kept(
    http: httpx.Client, model: str, name: Any
) -> None:
    refused = keep(http, model, name)
    assert refused.status_code == 422, refused.text
    assert refused.json()["detail"].startswith("name: ")
    assert len(versions(http, model)) == 1


@pytest.mark.parametrize("name", ["missing", "0", "a%20b", 65 * "x", "%00"])
def test_only_named_versions_can_be_deleted(http: httpx.Client, model: str, name: str) -> None:
    assert http.delete(f"/models/{model}/versions/{name}").status_code == 404
    assert [one["version"] for one in versions(http, model)] == [0]


def test_an_unknown_model_has_no_versions(http: httpx.Client) -> None:
    assert http.get("/models/missing/versions").status_code == 404
    assert keep(http, "missing", "one").status_code == 404
    assert http.delete("/models/missing/versions/one").status_code == 404
    assert ask(http, "missing", version=0).status_code == 404
    assert "missing" not in [one["name"] for one in http.get("/models").json()["models"]]


def test_a_deleted_model_takes_its_versions_with_it(
    service: Running, http: httpx.Client, model: str
) -> None:
    keep(http, model, "one")
    settings = http.get(f"/models/{model}").json()
    assert http.delete(f"/models/{model}").status_code == 204
    with connection_to(url(service)) as connection:
        assert not connection.exists(Keys(model).named(1, "one"))
    features = {**PLAIN, "features": settings["features"], "gamma": 10.0}
    assert http.put(f"/models/{model}", json=features).status_code == 201
    assert [one["version"] for one in versions(http, model)] == [0]
    assert http.post(f"/models/{model}/rollback", json={"version": "one"}).status_code == 404


def test_names_that_are_kept_and_deleted_at_the_same_time_are_never_an_error(
    service: Running, http: httpx.Client, model: str
) -> None:
    def work(act: str) -> set[int]:
        with service.client() as client:
            if act == "keep":
                return {keep(client, model, "one").status_code for _ in range(30)}
            path = f"/models/{model}/versions/one"
            return {client.delete(path).status_code for _ in range(30)}

    with ThreadPoolExecutor(4) as pool:
        kept, dropped, *_ = pool.map(work, ["keep", "delete", "keep", "delete"])
    assert kept <= {201, 404, 409}
    assert dropped <= {204, 404}
    learn(http, model)
    assert with_store(url(service), lambda store: verify(store, model)) == []


def test_versions_of_a_model_that_is_deleted_meanwhile_are_never_an_error(
    service: Running, http: httpx.Client
) -> None:
    settings = {**PLAIN, "features": ["bm25", "price"]}

    def churn(_: int) -> set[int]:
        with service.client() as client:
            for _ in range(30):
                client.put("/models/churned", json=settings)
                client.delete("/models/churned")
        return set()

    def read(_: int) -> set[int]:
        with service.client() as client:
            listed = [client.get("/models/churned/versions") for _ in range(60)]
            named = [keep(client, "churned", f"v{at}") for at in range(10)]
        return {one.status_code for one in [*listed, *named]}

    with ThreadPoolExecutor(3) as pool:
        churning = pool.submit(churn, 0)
        found = set().union(*pool.map(read, range(2)))
        churning.result()
    assert found <= {200, 201, 404, 409}
    http.delete("/models/churned")


def test_a_damaged_state_is_not_kept(service: Running, http: httpx.Client, model: str) -> None:
    """The learner repairs it, so that one of the next calls succeeds."""
    with connection_to(url(service)) as connection:
        connection.hset(Keys(model).state, "spread", b"junk")
    assert keep(http, model, "one").status_code == 503
    assert [one["name"] for one in versions(http, model)] == [None]


# ---- roll back ----


def test_a_rollback_takes_a_name(service: Running, http: httpx.Client, model: str) -> None:
    keep(http, model, "one")
    before = http.get(f"/models/{model}").json()
    learn(http, model, best="b")
    assert http.post(f"/models/{model}/rollback", json={"version": "one"}).json() == {"seq": 3}
    until_version(http, model, 3)
    after = http.get(f"/models/{model}").json()
    assert (after["weights"], after["stddev"]) == (before["weights"], before["stddev"])
    assert after["queries"] == 2
    assert records(service, model)[-1].reason == "rollback to version one"  # type: ignore[union-attr]
    assert with_store(url(service), lambda store: verify(store, model)) == []


@pytest.mark.parametrize("version", ["missing", 77])
def test_a_rollback_to_an_unkept_version_is_404(
    http: httpx.Client, model: str, version: Any
) -> None:
    refused = http.post(f"/models/{model}/rollback", json={"version": version})
    assert (refused.status_code, refused.json()["detail"]) == (404, NOT_KEPT)


@pytest.mark.parametrize("version", [-1, 1.5, True, None, "", 65 * "x", [0], {}])
def test_an_invalid_version_is_422(http: httpx.Client, model: str, version: Any) -> None:
    refused = http.post(f"/models/{model}/rollback", json={"version": version})
    assert refused.status_code == 422, refused.text
    assert "version" in refused.json()["detail"]
    assert http.get(f"/models/{model}").json()["seq"] == 1


# ---- rank by a version ----


def test_a_kept_version_ranks_in_its_plain_order_and_logs_nothing(
    http: httpx.Client, model: str
) -> None:
    keep(http, model, "one")
    now = rank(http, model, explore=False, log=False)
    for _ in range(5):
        learn(http, model, best="b")
    later = rank(http, model, explore=False, log=False)
    assert later["documents"] != now["documents"]
    for version in ("one", 1):
        answer = rank(http, model, version=version)
        assert answer["documents"] == now["documents"]
        assert (answer["version"], answer["logged"]) == (1, False)
        assert (answer["explored"], answer["degraded"]) == (False, False)
        click = {"event_id": f"c{next(NAMES)}", "type": "clicks", "clicked": ["a"]}
        refused = http.post("/feedback", json={**click, "request_id": answer["request_id"]})
        assert refused.status_code == 404
    assert rank(http, model, version=0)["documents"][0]["score"] == 0.0
    assert rank(http, model, explore=False, log=False)["documents"] == later["documents"]


def test_a_version_can_be_explained(http: httpx.Client, model: str) -> None:
    keep(http, model, "one")
    now = rank(http, model, explain=True, explore=False, log=False)
    learn(http, model, best="b")
    then = rank(http, model, explain=True, version="one")
    assert then["documents"] == now["documents"]
    assert then["documents"][0]["stddev"] > 0.0


def test_options_of_a_ranking_hold_for_a_version(http: httpx.Client, model: str) -> None:
    answer = rank(http, model, version=0, top_k=2, pinned=["c"], request_id="mine", query_id="q")
    assert [one["id"] for one in answer["documents"]] == ["a", "b"]
    assert (answer["request_id"], answer["query_id"]) == ("mine", "q")


@pytest.mark.parametrize("version", ["missing", 77])
def test_an_unkept_version_is_404(http: httpx.Client, model: str, version: Any) -> None:
    refused = ask(http, model, version=version)
    assert (refused.status_code, refused.json()["detail"]) == (404, NOT_KEPT)


@pytest.mark.parametrize(
    "options",
    [
        {"version": -1}, {"version": 1.5}, {"version": True}, {"version": ""},
        {"version": 65 * "x"}, {"version": [0]}, {"version": 0, "explore": True},
        {"version": 0, "min_seq": 1},
    ],
)  # fmt: skip
def test_an_invalid_combination_is_422(
    http: httpx.Client, model: str, options: dict[str, Any]
) -> None:
    refused = ask(http, model, **options)
    assert refused.status_code == 422, refused.text
    assert "version" in refused.json()["detail"]


def test_ranking_by_a_version_needs_the_scope_admin() -> None:
    secrets = {scopes: auth.new_key(scopes, scopes) for scopes in ("rank", "rank+admin", "admin")}
    entries = ",".join(entry for _, entry in secrets.values())
    with serving(environ={"SOLAR_KEYS": entries}) as running, running.client() as client:

        def ask_with(scopes: str, **options: Any) -> httpx.Response:
            headers = {"authorization": f"Bearer {secrets[scopes][0]}"}
            body = {"model": "m", "ids": ["a"], "features": [[1.0]], **options}
            return client.post("/rank", json=body, headers=headers)

        admin = {"authorization": f"Bearer {secrets['admin'][0]}"}
        assert client.put("/models/m", json={"features": 1}, headers=admin).status_code == 201
        assert ask_with("rank+admin", version=0).status_code == 200
        assert ask_with("admin", version=0).status_code == 403  # /rank itself needs rank
        assert ask_with("rank").status_code == 200
        for version in (0, "missing"):  # it does not say which versions there are
            refused = ask_with("rank", version=version)
            assert (refused.status_code, refused.json()["detail"]) == (
                403,
                "version: expected an API key with the scope admin",
            )
