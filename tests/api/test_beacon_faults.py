"""Beacons and late purchases while processes are killed: each counts, and counts once."""

import asyncio
import json
import os
import signal
from collections import defaultdict
from typing import Any

import httpx
import pytest

from app.api.tokens import new_token_key
from app.learning import replay
from app.storage.embedded import server
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.api.test_faults import SHORT_LEASE, child, child_replaced
from tests.faults.checker import StoredModel, read_stored
from tests.servers import TIMEOUT, until

DOCUMENTS = [{"id": f"d{at}", "features": [at / 8, 1.0 - at / 8]} for at in range(8)]
KILLED = ("app.runtime.worker", "app learn", "valkey-server")
TEXT = {"content-type": "text/plain"}
#: What users do on each list, in order: clicks, how far they read, what they buy later.
VISIT: tuple[dict[str, Any], ...] = (
    {"clicked": ["d1"]}, {"clicked": [], "examined": 6},
    {"clicked": ["d1", "d4"], "gains": {"d4": "add_to_cart"}},
    {"clicked": ["d4"], "gains": {"d4": "purchase"}},
)  # fmt: skip


def sent(client: httpx.Client, path: str, **content: Any) -> httpx.Response:
    """Send until the service answers: it may be away for a moment."""
    found: list[httpx.Response] = []

    def answered() -> bool:
        try:
            found.append(client.post(path, **content))
        except httpx.TransportError:
            return False
        return found[-1].status_code < 500

    until(answered)
    return found[-1]


def ranked(client: httpx.Client) -> dict[str, Any]:
    """Rank until the list is remembered."""
    found: list[Any] = []

    def remembered() -> bool:
        body = {"model": "shop", "documents": DOCUMENTS}
        found.append(sent(client, "/rank", json=body).json())
        return "token" in found[-1]

    until(remembered)
    answer: dict[str, Any] = found[-1]
    return answer


def beacon(client: httpx.Client, token: str, event: dict[str, Any]) -> None:
    """Post an event twice, as a page and its copy: only one may count."""
    content = json.dumps({"events": [{"token": token, **event}]})
    for _ in range(2):
        assert sent(client, "/beacon", content=content, headers=TEXT).status_code == 204


def stored(running: Running) -> StoredModel:
    url = server.find(running.data)
    assert url is not None
    return asyncio.run(read_stored(url, "shop"))


def gains_by_request(found: StoredModel) -> dict[str, list[dict[int, float]]]:
    """The gains of each event in the log, by request."""
    events: dict[str, list[dict[int, float]]] = defaultdict(list)
    for record in found.feedback().values():
        assert record.clicks is not None
        gains = [1.0] * len(record.clicks) if record.gains is None else record.gains.tolist()
        events[record.query].append(dict(zip(record.clicks.tolist(), gains, strict=True)))
    return events


async def problems(url: str) -> list[str]:
    store = Store.open(url)
    try:
        return await replay.verify(store, "shop")
    finally:
        await store.close()


@pytest.mark.slow
def test_beacons_and_late_purchases_survive_kills_and_count_once() -> None:
    environ = {**SHORT_LEASE, "SOLAR_TOKEN_KEYS": new_token_key("k1"), "SOLAR_BEACON_RATE": "1000"}
    with serving(environ=environ) as running, running.client() as client:
        assert client.put("/models/shop", json={"features": 2}).status_code == 201
        answers = [ranked(client) for _ in range(6)]
        for what, event in zip((*KILLED, None), VISIT, strict=True):
            killed = child(running.process.pid, what) if what else None
            for at, answer in enumerate(answers):
                if killed is not None and at == len(answers) // 2:
                    os.kill(killed, signal.SIGKILL)
                beacon(client, answer["token"], event)
            if what is not None and killed is not None:
                until(child_replaced(running.process.pid, what, killed))
        found = stored(running)
        until(lambda: client.get("/models/shop").json()["version"] == found.tail, TIMEOUT)
        events = gains_by_request(found)
        assert events.keys() == {answer["request_id"] for answer in answers}
        for answer in answers:
            shown = [one["id"] for one in answer["documents"]]
            first, fourth = shown.index("d1"), shown.index("d4")
            assert events[answer["request_id"]] == [
                {first: 1.0}, {}, {first: 1.0, fourth: 2.0}, {fourth: 4.0},
            ]  # fmt: skip
        measured = client.get("/models/shop").json()
        assert (measured["queries"], measured["abandoned_lists"]) == (len(answers), 0)
        url = server.find(running.data)
        assert url is not None
        assert asyncio.run(problems(url)) == []
