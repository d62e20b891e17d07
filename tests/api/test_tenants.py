"""Tenants over HTTP: request ids, impressions, event ids and sources belong to the key's tenant."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import auth
from app.domain import codec
from app.domain.records import Feedback
from app.errors import SolarError
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from tests.api.services import PLAIN, application
from tests.servers import client as redis_client
from tests.servers import server, url, with_store

__all__ = ["server", "url"]  # fixtures

NAMES = ("rank@a", "feedback@a", "all@b", "all", "other")
DOCUMENTS = [{"id": "d1", "features": [1, 0]}, {"id": "d2", "features": [0, 1]}]
Ask = Callable[..., Any]


@pytest.fixture
def ask(url: str) -> Iterator[Ask]:
    """Send a request with the key of a name."""
    keys = {name: auth.new_key(name, "rank+feedback+admin") for name in NAMES}
    entries = ",".join(entry for _, entry in keys.values())
    with application(url, keys=entries, source_share=0.5) as client:

        def send(name: str, method: str, path: str, body: Any = None) -> Any:
            headers = {"authorization": f"Bearer {keys[name][0]}"}
            return client.request(method, path, json=body, headers=headers)

        assert send("all", "PUT", "/models/books", {"features": 2, **PLAIN}).status_code == 201
        yield send


def rank(ask: Ask, name: str, request: str, **more: Any) -> Any:
    body = {"model": "books", "request_id": request, "documents": DOCUMENTS, **more}
    return ask(name, "POST", "/rank", body)


def click(ask: Ask, name: str, request: str, event: str, **more: Any) -> Any:
    body = {"event_id": event, "type": "clicks", "model": "books", "request_id": request,
            "clicked": ["d2"], **more}  # fmt: skip
    return ask(name, "POST", "/feedback", body)


def test_keys_of_one_tenant_rank_and_click_together(ask: Ask) -> None:
    assert rank(ask, "rank@a", "r").json()["logged"]
    assert click(ask, "feedback@a", "r", "e1").status_code == 202
    assert rank(ask, "all", "s").json()["logged"]  # keys without a tenant are one tenant
    assert click(ask, "other", "s", "e2").status_code == 202


@pytest.mark.parametrize("foreign", ["all@b", "all"])
def test_feedback_on_a_request_of_another_tenant_is_404_and_stores_nothing(
    ask: Ask, foreign: str
) -> None:
    assert rank(ask, "rank@a", "r").status_code == 200
    refused = click(ask, foreign, "r", "e1")
    assert refused.status_code == 404
    assert refused.json()["detail"] == click(ask, foreign, "unknown", "e1").json()["detail"]
    assert ask("all", "GET", "/models/books").json()["seq"] == 0
    assert click(ask, "feedback@a", "r", "e1").json()["seq"] == 1


def test_a_generated_request_id_belongs_to_its_tenant_too(ask: Ask) -> None:
    body = {"model": "books", "documents": DOCUMENTS}
    request = ask("rank@a", "POST", "/rank", body).json()["request_id"]
    assert click(ask, "all@b", request, "e1").status_code == 404
    assert click(ask, "feedback@a", request, "e1").status_code == 202


@pytest.mark.parametrize("foreign", ["all@b", "all"])
def test_ranking_under_the_id_of_another_tenant_is_409_and_changes_nothing(
    ask: Ask, foreign: str
) -> None:
    assert rank(ask, "rank@a", "r").status_code == 200
    refused = rank(ask, foreign, "r", documents=[{"id": "evil", "features": [9, 9]}])
    assert refused.status_code == 409
    assert "another tenant" in refused.json()["detail"]
    assert click(ask, "feedback@a", "r", "e1").status_code == 202  # d2 is still shown
    assert rank(ask, foreign, "r", log=False).status_code == 200  # it uses no id


def test_one_event_id_of_two_tenants_is_two_events(ask: Ask) -> None:
    for at, (ranks, clicks) in enumerate([("rank@a", "feedback@a"), ("all@b", "all@b")], start=1):
        assert rank(ask, ranks, f"r{at}").status_code == 200
        assert click(ask, clicks, f"r{at}", "same").json()["seq"] == at
        again = click(ask, clicks, f"r{at}", "same").json()
        assert (again["duplicates"], again["seq"]) == (1, at)


def test_an_impression_of_an_older_release_is_open_to_every_tenant(ask: Ask, url: str) -> None:
    assert rank(ask, "rank@a", "r").status_code == 200
    with redis_client(url) as connection:
        connection.hdel("solar:{books}:imp:1:r", "t")
    assert click(ask, "all@b", "r", "e1").status_code == 202


def test_the_source_is_the_key_and_the_name_that_a_client_states(ask: Ask, url: str) -> None:
    assert rank(ask, "rank@a", "r").status_code == 200
    click(ask, "feedback@a", "r", "e1", source="shop")
    click(ask, "feedback@a", "r", "e2")
    assert with_store(url, sources) == ["feedback@a/shop", "feedback@a"]


async def sources(store: Store) -> list[str]:
    """Return the sources in the log."""
    records = [codec.load_record(one.record) for one in await store.log.read("books", 0, 100)]
    return [one.source for one in records if isinstance(one, Feedback)]


def labels(event: str, source: str) -> dict[str, Any]:
    return {"event_id": event, "type": "labels", "documents": DOCUMENTS, "labels": {"d1": 1},
            "source": source}  # fmt: skip


def post(ask: Ask, name: str, start: int, named: Callable[[int], str], count: int = 100) -> int:
    events = [labels(f"{name} {start + at}", named(at)) for at in range(count)]
    reply = ask(name, "POST", "/feedback", {"model": "books", "events": events})
    return int(reply.json()["accepted"])


def test_new_names_do_not_pass_the_share_of_a_key(ask: Ask) -> None:
    assert post(ask, "all", 0, lambda _: "honest") == 100
    assert post(ask, "other", 0, lambda at: f"name {at}") == 100
    assert post(ask, "other", 100, lambda at: f"more {at}") == 100  # up to half, and one post more
    assert post(ask, "other", 200, lambda at: f"most {at}") == 0


def test_a_batch_of_a_key_over_its_share_is_429_with_the_time_to_wait(ask: Ask) -> None:
    post(ask, "all", 0, lambda _: "honest", 1)
    assert post(ask, "other", 0, lambda _: "shop", 200) == 200
    events = [labels("a", "shop"), labels("b", "shop")]
    reply = ask("other", "POST", "/feedback", {"model": "books", "events": events})
    assert reply.status_code == 429
    assert int(reply.headers["retry-after"]) > 0
    assert [one["status"] for one in reply.json()["errors"]] == [429, 429]


def test_the_name_of_another_key_does_not_lock_it_out(ask: Ask) -> None:
    assert post(ask, "all", 0, lambda _: "web") == 100
    for start in range(0, 300, 100):
        post(ask, "other", start, lambda _: "all")
    assert post(ask, "all", 100, lambda _: "web") == 100


@pytest.mark.parametrize(
    ("name", "message"),
    [("a/b", "without /"), ("web@", "name@tenant"), ("@acme", "name@tenant")],
)
def test_a_name_that_is_ambiguous_ends_the_start_with_a_message(
    server: EmbeddedServer, name: str, message: str
) -> None:
    entry = f"{name}:rank:{64 * '0'}"
    with pytest.raises(SolarError, match=message), application(server.url, keys=entry):
        pass


def test_one_secret_for_two_keys_is_refused() -> None:
    """The tenant of a request would depend on the order of the keys."""
    with pytest.raises(SolarError, match="different hash"):
        auth.read_keys(f"web@a:rank:{64 * '0'},web@b:rank:{64 * '0'}")


def test_the_last_at_sign_separates_the_tenant() -> None:
    (key,) = auth.read_keys(f"web@shop@acme:rank:{64 * '0'}")
    assert (key.name, key.tenant) == ("web@shop@acme", "acme")


def test_without_keys_there_is_one_tenant_and_sources_are_as_stated(url: str) -> None:
    with application(url) as client:
        check_without_keys(client)
    assert with_store(url, sources) == ["shop", ""]


def check_without_keys(client: TestClient) -> None:
    client.put("/models/books", json={"features": 2, **PLAIN})
    for at, more in enumerate([{"source": "shop"}, {}]):
        body = {"model": "books", "request_id": "r", "documents": DOCUMENTS}
        assert client.post("/rank", json=body).status_code == 200
        event = {"event_id": f"e{at}", "type": "clicks", "model": "books", "request_id": "r",
                 "clicked": ["d2"], **more}  # fmt: skip
        assert client.post("/feedback", json=event).status_code == 202
