"""Copies of events that come hours later, on a store and a service whose clock is stepped."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.tokens import new_token_key
from app.domain import codec
from app.learning import replay
from app.storage.keys import Keys
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.api.test_beacon_faults import KILLED, TEXT, ranked, sent
from tests.api.test_faults import SHORT_LEASE, child, child_replaced
from tests.api.test_gains import JUDGED, click, create, details, judge, measured, rank
from tests.faults.checker import StoredModel, check_state, read_stored
from tests.faults.clock import ClockedNode, SteppedClock
from tests.faults.list_checks import check_lists
from tests.faults.power import COMPILER
from tests.servers import TIMEOUT, until, with_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to step clocks with"),
]

HOUR = 3600.0
POSTS: list[dict[str, Any]] = [
    {"clicked": "d", "event": "first"},
    {
        "clicked": "dfb",
        "event": "bought",
        "gains": {"d": "add_to_cart", "f": "purchase"},
        "examined": 6,
    },
]


def learnt(client: httpx.Client, node: ClockedNode, model: str) -> tuple[list[Any], dict[str, Any]]:
    """The bits of w, the certainty and Σ, and the measures."""
    blobs = zip(("w", "spread"), node.client.hmget(Keys(model).state, "w", "spread"), strict=True)
    arrays = [codec.load_blob(blob, kind).arrays for kind, blob in blobs]
    bits = [(name, values.tobytes()) for each in arrays for name, values in each.items()]
    return bits, measured(details(client, model))


@pytest.mark.parametrize("strategy", ["debiased", "last-click-skip-above"])
def test_a_copy_after_five_hours_finds_its_clicks_and_learns_nothing(
    strategy: str, tmp_path: Path
) -> None:
    """Deduplication has forgotten the events, and the store half an hour of lists without a click.

    The clicked list is kept for six hours: it still takes a purchase.
    """
    clock = SteppedClock(tmp_path)
    node = ClockedNode(tmp_path / "node", clock)
    node.start()
    environ = {**clock.environ, "SOLAR_REDIS_URL": node.url, "SOLAR_CONVERSION_SECONDS": "21600"}
    try:
        with serving(environ=environ) as running, running.client() as client:
            model = create(client, clicks=strategy, explore=strategy == "debiased")
            request, unclicked, judged = (rank(client, model) for _ in range(3))
            for one in POSTS:
                assert click(client, model, request, **one).json()["accepted"] == 1
            assert click(client, model, judged, "d").json()["accepted"] == 1
            for kind in JUDGED:
                assert judge(client, model, judged, kind, kind).json()["accepted"] == 1
            assert click(client, model, request, **POSTS[0]).json()["duplicates"] == 1
            before = learnt(client, node, model)
            clock.step(5 * HOUR)
            until(node.has_read_clock)
            for seq, one in enumerate(POSTS, start=len(POSTS) + len(JUDGED) + 2):
                answer = click(client, model, request, **one)
                assert (answer.json()["accepted"], answer.json()["seq"]) == (1, seq), answer.text
            assert learnt(client, node, model) == before
            for kind in JUDGED:
                assert judge(client, model, judged, kind, kind).status_code == 410
            assert learnt(client, node, model) == before
            assert click(client, model, unclicked, "d").status_code == 410
            assert click(client, model, request, "f", gains={"f": 10}).status_code == 200
            assert learnt(client, node, model)[0] != before[0]
    finally:
        node.kill()
        node.client.close()


async def differences(store: Store) -> list[str]:
    return await replay.verify(store, "shop")


def kill_all(running: Running, node: ClockedNode) -> None:
    """Kill the worker, the learner and the store, and wait until others have taken over."""
    killed = {what: child(running.process.pid, what) for what in KILLED[:2]}
    node.kill()
    for what, before in killed.items():
        assert before is not None
        os.kill(before, signal.SIGKILL)
        until(child_replaced(running.process.pid, what, before))
    node.start()
    until(node.has_read_clock)


def beacon(client: httpx.Client, answer: dict[str, Any], *clicked: str, **more: Any) -> None:
    """Post an event twice, as a page and its copy."""
    events = [{"token": answer["token"], "clicked": list(clicked), **more}]
    for _ in range(2):
        assert sent(client, "/beacon", json={"events": events}, headers=TEXT).status_code == 204


def test_a_purchase_after_five_hours_and_a_kill_of_all_processes_counts_once(
    tmp_path: Path,
) -> None:
    """First beacons, then a purchase from server to server; a list without a click has ended."""
    clock = SteppedClock(tmp_path)
    node = ClockedNode(tmp_path / "node", clock)
    node.start()
    environ = {**clock.environ, **SHORT_LEASE, "SOLAR_REDIS_URL": node.url,
               "SOLAR_TOKEN_KEYS": new_token_key("k1")}  # fmt: skip
    try:
        with serving(environ=environ) as running, running.client() as client:
            assert client.put("/models/shop", json={"features": 2}).status_code == 201
            clicked, other = ranked(client), ranked(client)
            beacon(client, clicked, "d1", examined=5)
            kill_all(running, node)
            beacon(client, clicked, "d4", gains={"d4": "add_to_cart"})
            clock.step(5 * HOUR)
            until(node.has_read_clock)
            kill_all(running, node)
            bought = {"type": "clicks", "model": "shop", "event_id": "order 1", "clicked": ["d4"],
                      "request_id": clicked["request_id"], "gains": {"d4": "purchase"}}  # fmt: skip
            for _ in range(2):
                assert sent(client, "/feedback", json=bought).status_code == 202
            late = {**bought, "event_id": "order 2", "request_id": other["request_id"]}
            assert sent(client, "/feedback", json=late).status_code == 410
            found = learnt_log(client, node)
            gains = [
                one.gains.tolist() for one in found.feedback().values() if one.gains is not None
            ]
            assert (found.tail, gains) == (3, [[2.0], [4.0]])
            check_lists(found, 0.9 * HOUR)
            check_state(found)
            assert with_store(node.url, differences) == []
    finally:
        node.kill()
        node.client.close()


def learnt_log(client: httpx.Client, node: ClockedNode) -> StoredModel:
    """Return what is stored, once all of it is learnt."""
    found = asyncio.run(read_stored(node.url, "shop"))
    until(lambda: client.get("/models/shop").json()["version"] == found.tail, TIMEOUT)
    return asyncio.run(read_stored(node.url, "shop"))
