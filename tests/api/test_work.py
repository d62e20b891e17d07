"""Limits by work over HTTP: 503 and 429 with Retry-After, 422 for what can never be accepted."""

from typing import Any

from fastapi.testclient import TestClient

from app.domain.work import RECORD_WORK
from tests.api.services import PLAIN, application
from tests.servers import client as redis_client
from tests.servers import server, url

__all__ = ["server", "url"]  # fixtures

N = 100


def labels(event: str, relevant: int = 1, shown: int = 2, **more: Any) -> dict[str, Any]:
    """Return an event of `relevant` × (`shown` - `relevant`) pairs."""
    documents = [{"id": f"d{at}", "features": [float(at)] * N} for at in range(shown)]
    given = {f"d{at}": 1 for at in range(relevant)}
    return {"event_id": event, "type": "labels", "model": "books", "documents": documents,
            "labels": given, **more}  # fmt: skip


def stored(url: str) -> set[bytes]:
    with redis_client(url) as connection:
        return {*connection.keys("*"), connection.get("solar:{books}:seq")}


def test_a_post_over_the_limit_of_work_is_503_and_nothing_is_stored(url: str) -> None:
    with application(url, backlog_work=3.0 * RECORD_WORK) as client:
        client.put("/models/books", json={"features": N, **PLAIN})
        assert client.post("/feedback", json=labels("a")).status_code == 202
        before = stored(url)
        reply = client.post("/feedback", json={"events": [labels("b"), labels("c")]})
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert "SOLAR_BACKLOG_WORK" in reply.json()["detail"]
        assert stored(url) == before
        assert client.post("/feedback", json=labels("b")).status_code == 202
        metrics = client.get("/metrics").text
    [line] = [one for one in metrics.splitlines() if one.startswith("solar_backlog_work{")]
    assert 2 * RECORD_WORK < float(line.split()[1]) < 3 * RECORD_WORK


def test_an_event_of_more_pairs_than_the_limit_of_work_allows_is_422(url: str) -> None:
    with application(url, backlog_work=3.0 * RECORD_WORK) as client:
        client.put("/models/books", json={"features": N, **PLAIN})
        before = stored(url)
        reply = client.post("/feedback", json=labels("a", relevant=20, shown=40))
        assert reply.status_code == 422
        assert reply.json()["detail"] == (
            "expected at most 294 pairs of 100 features (SOLAR_BACKLOG_WORK), got 400"
        )
        clicks = ask_clicks(client, shown=40, clicked=20)
        assert (clicks.status_code, "294 pairs" in clicks.json()["detail"]) == (422, True)
        assert b"0" in stored(url)
        assert stored(url) >= before


def ask_clicks(client: TestClient, shown: int, clicked: int) -> Any:
    documents = [{"id": f"d{at}", "features": [float(at)] * N} for at in range(shown)]
    body = {"model": "books", "query_id": "q", "documents": documents}
    answer = client.post("/rank", json=body).json()
    last = [one["id"] for one in answer["documents"]][-clicked:]
    event = {"event_id": "clicks", "type": "clicks", "request_id": answer["request_id"]}
    return client.post("/feedback", json={**event, "clicked": last})


def test_several_events_of_more_work_than_the_limit_are_422_and_one_alone_is_accepted(
    url: str,
) -> None:
    with application(url, backlog_work=3.0 * RECORD_WORK) as client:
        client.put("/models/books", json={"features": N, **PLAIN})
        events = [labels(f"e{at}") for at in range(3)]
        reply = client.post("/feedback", json={"events": events})
        assert reply.status_code == 422
        assert all("send fewer events" in one["detail"] for one in reply.json()["errors"])
        assert b"0" in stored(url)
        assert client.post("/feedback", json=events[0]).status_code == 202


def test_a_source_with_most_of_the_work_is_429_also_with_few_events(url: str) -> None:
    with application(url, source_share=0.5) as client:
        client.put("/models/books", json={"features": N, **PLAIN})
        heavy = labels("heavy", relevant=100, shown=200, source="web")
        assert client.post("/feedback", json=heavy).status_code == 202
        light = [labels(f"light {at}", source="app") for at in range(20)]
        assert client.post("/feedback", json={"events": light}).status_code == 202
        before = stored(url)
        reply = client.post("/feedback", json=labels("again", source="web"))
        assert (reply.status_code, reply.headers["retry-after"]) == (429, "60")
        assert stored(url) == before
        assert client.post("/feedback", json=labels("more", source="app")).status_code == 202


def test_refused_and_repeated_events_do_not_count_as_work_of_their_source(url: str) -> None:
    """A client that retries, as a 503 asks it to, is not over its share for that."""
    with application(url, source_share=0.5, backlog_work=200.0 * RECORD_WORK) as client:
        client.put("/models/books", json={"features": N, **PLAIN})
        first = labels("first", relevant=100, shown=200, source="app")
        assert client.post("/feedback", json=first).status_code == 202  # waits: nothing learns
        for _ in range(20):
            assert client.post("/feedback", json=first).json()["duplicates"] == 1
        large = labels("large", relevant=100, shown=220, source="web")
        for _ in range(20):
            assert client.post("/feedback", json=large).status_code == 503
        many = [labels(f"{at}", source="web") for at in range(20)]
        assert client.post("/feedback", json={"events": [*many, large]}).status_code == 503
        for at in range(20):
            assert client.post("/feedback", json=labels(f"{at}", source="web")).status_code == 202


def test_clicks_are_charged_for_their_pairs(url: str) -> None:
    with application(url) as client:
        client.put("/models/books", json={"features": N, **PLAIN})
        assert ask_clicks(client, shown=40, clicked=20).status_code == 202
        metrics = client.get("/metrics").text
    [line] = [one for one in metrics.splitlines() if one.startswith("solar_backlog_work{")]
    assert float(line.split()[1]) >= RECORD_WORK + 20 * 20 * N * N


def test_the_damaged_state_of_a_model_hides_the_work_of_no_other_model(url: str) -> None:
    with application(url) as client:
        for name in ("books", "music"):
            client.put(f"/models/{name}", json={"features": N, **PLAIN})
        assert client.post("/feedback", json=labels("a")).status_code == 202
        with redis_client(url) as connection:
            connection.set("solar:{music}:state", "of another type")
        metrics = client.get("/metrics").text
    [line] = [one for one in metrics.splitlines() if one.startswith('solar_backlog_work{model="b')]
    assert float(line.split()[1]) >= RECORD_WORK
