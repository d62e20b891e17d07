"""Answers of /feedback."""

import json
from typing import Any

import pytest
from solar_client.calls import Answer
from solar_client.delivery import RETRIED, read_delivery
from solar_client.events import Event

EVENTS = [Event(f"e{at}", "m", b'{"event_id":"e%d"}' % at, 0.0, at) for at in range(4)]


def answer(status: int = 202, **fields: Any) -> Answer:
    body = {"accepted": 0, "duplicates": 0, "rejected": 0, "seq": 1, "errors": [], **fields}
    return Answer(status, json.dumps(body).encode())


def error(index: int, status: int) -> dict[str, Any]:
    return {"index": index, "status": status, "title": "No", "detail": f"reason {index}"}


def test_accepted_and_repeated_events_are_acknowledged() -> None:
    found = read_delivery(EVENTS, answer(accepted=3, duplicates=1))
    assert (found.acknowledged, found.duplicates, found.again) == (4, 1, [])


def test_refused_events_are_reported_with_their_body_and_reason() -> None:
    found = read_delivery(EVENTS, answer(accepted=3, rejected=1, errors=[error(2, 410)]))
    (refused,) = found.rejected
    assert (refused.event_id, refused.event, refused.status) == ("e2", {"event_id": "e2"}, 410)
    assert (refused.detail, found.acknowledged, found.again) == ("reason 2", 3, [])


def test_an_event_over_its_share_is_sent_again() -> None:
    errors = [error(0, 429), error(3, 404)]
    found = read_delivery(EVENTS, answer(accepted=2, rejected=2, errors=errors))
    assert ([one.id for one in found.again], found.reason) == (["e0"], "429")
    assert [one.event_id for one in found.rejected] == ["e3"]


def test_events_that_an_answer_counts_but_does_not_list_are_sent_again() -> None:
    found = read_delivery(EVENTS, answer(accepted=1, rejected=3, errors=[error(1, 410)]))
    assert [one.id for one in found.again] == ["e0", "e2", "e3"]
    assert (found.acknowledged, found.reason, len(found.rejected)) == (0, "", 1)


def test_rejections_without_a_list_end() -> None:
    found = read_delivery(EVENTS, answer(422, rejected=4))
    assert found.too_large
    assert len(found.again) == 4
    assert len(read_delivery(EVENTS[:1], answer(422, rejected=1)).rejected) == 1


@pytest.mark.parametrize("status", RETRIED)
def test_a_refusal_that_passes_is_retried(status: int) -> None:
    found = read_delivery(EVENTS, Answer(status, b"<html>", 7.0))
    assert (found.again, found.reason, found.retry_after) == (EVENTS, str(status), 7.0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 415, 422, 500])
def test_other_statuses_are_not_retried(status: int) -> None:
    body = json.dumps({"title": "No", "detail": "why"}).encode()
    found = read_delivery(EVENTS, Answer(status, body))
    assert [one.event_id for one in found.rejected] == ["e0", "e1", "e2", "e3"]
    assert (found.rejected[0].status, found.rejected[0].detail) == (status, "why")
    assert not found.again


def test_a_batch_that_is_too_large_is_split_and_a_single_event_is_refused() -> None:
    assert read_delivery(EVENTS, Answer(413, b"{}")).too_large
    assert len(read_delivery(EVENTS[:1], Answer(413, b"{}")).rejected) == 1


def test_a_page_of_a_proxy_is_no_acknowledgement() -> None:
    found = read_delivery(EVENTS, Answer(200, b"<html>welcome</html>"))
    assert (found.acknowledged, found.again) == (0, EVENTS)
