"""Repeated and late events over HTTP: each is learnt once, or refused with the reason."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.routers import feedback
from tests.api.services import PLAIN, application
from tests.servers import client as redis_client
from tests.servers import server, url

__all__ = ["server", "url"]  # fixtures

WINDOW = 3600.0
DOCUMENTS = [{"id": "d1", "features": [1, 0]}, {"id": "d2", "features": [0, 1]}]


@pytest.fixture
def client(url: str) -> Iterator[TestClient]:
    with application(url) as client:
        client.put("/models/books", json={"features": 2, **PLAIN})
        yield client


def labels(event: str, **more: Any) -> dict[str, Any]:
    return {"event_id": event, "type": "labels", "model": "books", "documents": DOCUMENTS,
            "labels": {"d1": 1}, **more}  # fmt: skip


def ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1000)


def rfc3339(seconds: float, hours: float = 0.0) -> str:
    zone = timezone(timedelta(hours=hours))
    return datetime.fromtimestamp(time.time() - seconds, zone).isoformat()


Moment = Callable[[], Any]
WITHIN: dict[str, Moment] = {
    "now": lambda: ago(0),
    "just within": lambda: ago(WINDOW - 60),
    "ahead": lambda: ago(-240),
    "in UTC": lambda: rfc3339(0),
    "in Kolkata": lambda: rfc3339(10, 5.5),
    "in Seattle": lambda: rfc3339(10, -8),
    "with Z": lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
}
BEFORE: dict[str, Moment] = {
    "just before": lambda: ago(WINDOW + 60),
    "in text": lambda: rfc3339(WINDOW + 60),
    "0": lambda: 0,
    "1970": lambda: "1970-01-01T00:00:00Z",
    "year 1": lambda: "0001-01-01T00:00:00Z",
}
AHEAD: dict[str, Moment] = {
    "just ahead": lambda: ago(-360),
    "in text": lambda: rfc3339(-360),
    "far": lambda: 1 << 52,
    "9999": lambda: "9999-12-31T23:59:59Z",
}


@pytest.mark.parametrize("when", WITHIN)
def test_an_event_within_the_window_is_accepted(client: TestClient, when: str) -> None:
    assert client.post("/feedback", json=labels("e", time=WITHIN[when]())).status_code == 202


@pytest.mark.parametrize("when", BEFORE)
def test_an_event_from_before_the_window_is_422_and_leaves_nothing(
    client: TestClient, url: str, when: str
) -> None:
    reply = client.post("/feedback", json=labels("e", time=BEFORE[when]()))
    assert reply.status_code == 422
    assert "SOLAR_DEDUPE_SECONDS" in reply.json()["detail"]
    assert client.get("/models/books").json()["seq"] == 0
    with redis_client(url) as connection:
        assert not connection.keys("solar:{books}:e:*")
    assert client.post("/feedback", json=labels("e", time=ago(0))).status_code == 202


@pytest.mark.parametrize("when", AHEAD)
def test_an_event_far_ahead_of_the_clock_is_422(client: TestClient, when: str) -> None:
    reply = client.post("/feedback", json=labels("e", time=AHEAD[when]()))
    assert reply.status_code == 422
    assert "at most 300 s ahead" in reply.json()["detail"]


@pytest.mark.parametrize(
    "when",
    ["yesterday", "", "2026-11-17", "2026-11-17T10:00:00", -1, 1.5, 1 << 60, True, None, [], {}],
)
def test_a_time_that_is_none_is_422(client: TestClient, when: Any) -> None:
    reply = client.post("/feedback", json=labels("e", time=when))
    assert reply.status_code == 422
    expected = "time: expected RFC 3339 with an offset, or milliseconds since 1970 as an integer"
    assert reply.json()["detail"] == expected


def test_a_late_repeat_of_a_stored_event_is_a_duplicate(client: TestClient, url: str) -> None:
    """The store knows the event: it counts once, whatever its time."""
    first = labels("e", time=ago(WINDOW - 600))
    assert client.post("/feedback", json=first).json()["seq"] == 1
    with application(url, dedupe_seconds=60, impression_seconds=30) as shorter:
        again = shorter.post("/feedback", json=first).json()
        assert (again["duplicates"], again["seq"]) == (1, 1)
        assert shorter.post("/feedback", json={**first, "event_id": "f"}).status_code == 422


def test_late_events_of_a_batch_are_refused_one_by_one(client: TestClient) -> None:
    events = [labels("old", time=0), labels("new", time=ago(1)), labels("far", time=ago(-999))]
    reply = client.post("/feedback", json={"events": events}).json()
    assert (reply["accepted"], reply["rejected"]) == (1, 2)
    assert [(one["index"], one["status"]) for one in reply["errors"]] == [(0, 422), (2, 422)]


def test_a_late_event_does_not_hold_up_others_on_its_request(client: TestClient) -> None:
    """Nothing builds on an event that is refused: the others are appended at the second attempt."""
    client.post("/rank", json={"model": "books", "request_id": "r", "documents": DOCUMENTS})
    click = {"type": "clicks", "model": "books", "request_id": "r", "clicked": ["d2"]}
    sent = [("old", 0), ("a", ago(1)), ("far", ago(-999)), ("old", ago(1)), ("b", ago(1))]
    events = [{**click, "event_id": event, "time": moment} for event, moment in sent]
    reply = client.post("/feedback", json={"events": events})
    assert reply.status_code == 202
    answer = reply.json()
    assert (answer["accepted"], answer["rejected"], answer["seq"]) == (3, 2, 3)
    assert [one["index"] for one in answer["errors"]] == [0, 2]


def test_the_window_is_at_least_twice_the_lifetime_of_impressions(url: str) -> None:
    with application(url, dedupe_seconds=60, impression_seconds=3000) as client:
        client.put("/models/books", json={"features": 2, **PLAIN})
        assert client.post("/feedback", json=labels("a", time=ago(5900))).status_code == 202
        assert client.post("/feedback", json=labels("b", time=ago(6100))).status_code == 422


def test_a_repeat_on_a_request_at_its_feedback_limit_is_a_duplicate(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post("/rank", json={"model": "books", "request_id": "r", "documents": DOCUMENTS})
    click = {"event_id": "first", "type": "clicks", "model": "books", "request_id": "r",
             "clicked": ["d2"]}  # fmt: skip
    assert client.post("/feedback", json=click).json()["seq"] == 1
    monkeypatch.setattr(feedback, "MAX_ACCUMULATED_BYTES", 10)
    again = client.post("/feedback", json=click)
    assert (again.status_code, again.json()["duplicates"], again.json()["seq"]) == (202, 1, 1)
    other = client.post("/feedback", json={**click, "event_id": "second"})
    assert (other.status_code, other.json()["detail"]) == (422, feedback.FEEDBACK_LIMIT)
    changed = client.post("/feedback", json={**click, "clicked": ["d1"]})
    assert changed.status_code == 422
    assert "another body" in changed.json()["detail"]
