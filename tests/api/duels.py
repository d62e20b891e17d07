"""Requests, simulated users and the models of tests of followers and duels."""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import httpx
import numpy as np

from app.storage.embedded import server
from app.storage.keys import keys_of
from app.storage.store import Store
from tests.api.services import Running
from tests.servers import client, until, with_store

DOCUMENTS = 8
EVENTS = count()
#: A model that keeps the submitted order: no click moves it.
STILL = {"features": ["good", "noise"], "gamma": 1e12, "prior": 0.3, "clicks": "debiased"}


def call(http: httpx.Client, method: str, path: str, status: int, body: Any = None) -> Any:
    """Send a request; return its answer, which must have this status."""
    answer = http.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def promoted(http: httpx.Client, model: str, **body: Any) -> Any:
    """Promote the challenger of a duel; return the answer.

    A 503 is tried again, as clients do: on a busy machine the challenger may take more than the
    10 s that a request waits for it.
    """
    answers: list[httpx.Response] = []

    def is_answered() -> bool:
        answers.append(http.post(f"/models/{model}/duel/promote", json=body))
        return answers[-1].status_code != 503

    until(is_answered)
    assert answers[-1].status_code == 202, answers[-1].text
    return answers[-1].json()


def refused(http: httpx.Client, method: str, path: str, status: int, body: Any = None) -> str:
    """Send a request that is refused; return the detail."""
    found: str = call(http, method, path, status, body)["detail"]
    return found


def documents(seed: int) -> list[dict[str, Any]]:
    """Return documents in a random order, with different values of both features."""
    drawn = np.random.default_rng(seed)
    rows = np.column_stack([drawn.permutation(DOCUMENTS) / DOCUMENTS, drawn.random(DOCUMENTS)])
    return [{"id": f"d{at}", "features": row} for at, row in enumerate(rows.tolist())]


def rank(http: httpx.Client, model: str, seed: int, **options: Any) -> Any:
    """Rank documents under a request id of the seed."""
    body = {"model": model, "request_id": f"{model}-{seed}", "documents": documents(seed)}
    return call(http, "POST", "/rank", 200, {**body, **options})


def ids(answer: Any) -> list[str]:
    """Return the document ids of a ranking."""
    return [one["id"] for one in answer["documents"]]


def best(seed: int, shown: Sequence[str]) -> list[str]:
    """Return the click of a user who looks at four documents and takes the best one."""
    good = {one["id"]: one["features"][0] for one in documents(seed)}
    return [max(shown[:4], key=good.__getitem__)]


def click_event(model: str, seed: int, clicked: Sequence[str]) -> dict[str, Any]:
    """Return an event about a ranking of `rank`."""
    return {
        "event_id": f"e{next(EVENTS)}", "type": "clicks", "model": model,
        "request_id": f"{model}-{seed}", "clicked": list(clicked),
    }  # fmt: skip


def post(http: httpx.Client, model: str, events: Sequence[dict[str, Any]]) -> int:
    """Post events, wait until they are learnt, and return the seq of the last one."""
    answer = http.post(
        "/feedback",
        json={"model": model, "events": list(events)},
        headers={"prefer": "wait=30"},
    )
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["rejected"] == 0, found
    return int(found["seq"])


def serve_users(
    http: httpx.Client, model: str, seeds: Sequence[int], *, worst: bool = False
) -> list[Any]:
    """Rank for users, and post their clicks; return the rankings."""
    answers, events = [], []
    for seed in seeds:
        answer = rank(http, model, seed)
        clicked = best(seed, ids(answer))
        events.append(click_event(model, seed, ids(answer)[-1:] if worst else clicked))
        answers.append(answer)
    post(http, model, events)
    return answers


def teach(http: httpx.Client, model: str, records: int = 60) -> int:
    """Post labels by the first feature; return the seq of the last one."""
    events = []
    for seed in range(records):
        given = documents(10_000 + seed)
        labels = {one["id"]: round(4 * one["features"][0]) for one in given}
        events.append({"event_id": f"e{next(EVENTS)}", "type": "labels", "model": model,
                       "documents": given, "labels": labels})  # fmt: skip
    return post(http, model, events)


def until_learnt(http: httpx.Client, follower: str, seq: int) -> Any:
    """Wait until a follower has learnt a record; return its fields."""
    until(lambda: call(http, "GET", f"/models/{follower}", 200)["version"] >= seq)
    return call(http, "GET", f"/models/{follower}", 200)


def with_follower(http: httpx.Client, leader: str, follower: str, **settings: Any) -> int:
    """Create a model that stays as it is, and a follower that knows what is good."""
    call(http, "PUT", f"/models/{leader}", 201, STILL)
    call(http, "PUT", f"/models/{follower}", 201, {"follows": leader, "gamma": 1.0, **settings})
    seq = teach(http, leader)
    until_learnt(http, follower, seq)
    return seq


def store_url(service: Running) -> str:
    """Return the URL of the store that a service has started."""
    url = server.find(service.data)
    assert url is not None
    return url


@contextlib.contextmanager
def nothing_learnt(service: Running, model: str) -> Iterator[None]:
    """Take the lease of a model from its learner for the block, so that no record is learnt."""
    url = store_url(service)
    fences = list[int]()

    async def take(store: Store) -> None:
        fences.append(await store.leases.take(model, 0, 60.0))

    async def release(store: Store) -> None:
        await store.leases.release(model, fences[-1])

    while not any(fences):
        with client(url) as connection:
            connection.delete(keys_of(model).lease)
        with_store(url, take)
    try:
        yield
    finally:
        with_store(url, release)
