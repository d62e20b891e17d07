"""Whom a beacon acts for: the tenant of its list, under a source of its own that can be undone."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from app.api.auth import new_key
from app.api.tokens import new_token_key
from app.domain import codec
from app.domain.records import Feedback
from app.learning.replay import replay
from app.storage.store import Store
from tests.api.services import PLAIN, application
from tests.api.test_beacon import DOCUMENTS, added, counts, post
from tests.servers import server, url, with_store

__all__ = ["server", "url"]  # fixtures

KEYS = {name: new_key(name, "rank+feedback+admin") for name in ("web", "web@a", "web@b")}


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    settings: dict[str, Any] = {
        "keys": ",".join(entry for _, entry in KEYS.values()), "token_keys": new_token_key("k1"),
        "beacon_rate": 1e5, "source_share": 0.1,
    }  # fmt: skip
    with application(url, **settings) as opened:
        body = {"features": 2, **PLAIN}
        assert opened.put("/models/books", json=body, headers=bearer("web")).status_code == 201
        yield opened


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name][0]}"}


def ranked(client: Any, name: str = "web") -> dict[str, Any]:
    body = {"model": "books", "documents": DOCUMENTS, "explore": False}
    found: dict[str, Any] = client.post("/rank", json=body, headers=bearer(name)).json()
    return found


def click(client: Any, request: str, event: str, name: str = "web") -> int:
    """Post a click with an API key; return the status."""
    body = {"event_id": event, "type": "clicks", "request_id": request, "clicked": ["b"]}
    return int(client.post("/feedback", json=body, headers=bearer(name)).status_code)


def sources(url: str) -> list[str]:
    """The sources of all records of the log."""

    async def read(store: Store) -> list[bytes]:
        return [entry.record for entry in await store.log.read("books", 0, 1_000)]

    records = [codec.load_record(one) for one in with_store(url, read)]
    return [one.source for one in records if isinstance(one, Feedback)]


def test_a_beacon_acts_for_the_tenant_of_its_list(client: Any, url: str) -> None:
    lists = {name: ranked(client, name) for name in KEYS}
    before = counts(client)
    post(client, *({"token": one["token"], "clicked": ["b"]} for one in lists.values()))
    assert added(before, counts(client)) == {"accepted": 3}
    assert sources(url) == ["beacon"] * 3
    assert click(client, lists["web@a"]["request_id"], "e", "web@b") == 404


def test_beacons_over_their_share_are_refused_and_keys_go_on(client: Any) -> None:
    assert click(client, ranked(client)["request_id"], "first") == 202
    before = counts(client)
    for _ in range(20):
        token = ranked(client)["token"]
        post(
            client,
            *({"token": token, "clicked": ["b"], "gains": {"b": at / 2}} for at in range(15)),
        )
    found = added(before, counts(client))
    assert found.keys() == {"accepted", "over-share"}
    assert sum(found.values()) == 300
    assert found["accepted"] < 200
    assert click(client, ranked(client)["request_id"], "second") == 202


def test_a_replay_leaves_out_what_beacons_taught(client: Any, url: str) -> None:
    for at in range(5):
        assert click(client, ranked(client)["request_id"], f"e{at}") == 202
        post(client, {"token": ranked(client)["token"], "clicked": ["c"]})
    assert sorted(sources(url)) == ["beacon"] * 5 + ["web"] * 5
    command = ["replay", "books", "--redis-url", url, "--without-source", "beacon/"]
    ran = subprocess.run(
        [sys.executable, "-m", "app", *command],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "left out 5 records of source beacon/" in ran.stdout
    every, keys = weights(url, "other"), weights(url, "beacon/")
    assert keys[0] > every[0]  # the first feature is that of b: beacons prefer c


def weights(url: str, without: str) -> list[float]:
    """The weights by all records but those of a source."""
    found = with_store(url, lambda store: replay(store, "books", without))
    weights: list[float] = found.replayed.model.weights.tolist()
    return weights
