"""Simulated visitors of a search page: they rank, look from the top and click what is good."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import numpy as np

#: Feature → its weight in the visitors' taste.
TASTE = {"bm25": 1.0, "popularity": 0.6, "recency": 0.3, "price": -0.5, "returns": -0.8}
DOCUMENTS, SHOWN = 12, 8
#: The chance that a visitor leaves without a click.
ABANDONED = 0.1


def new_model(http: httpx.Client, name: str, **settings: Any) -> None:
    """Create a model with the features of the taste."""
    answer = http.put(f"/models/{name}", json={"features": [*TASTE], **settings})
    assert answer.status_code in (200, 201), answer.text


def documents(rng: np.random.Generator, count: int = DOCUMENTS) -> list[dict[str, Any]]:
    """Draw documents; their submitted order is by the first feature."""
    rows = rng.random((count, len(TASTE))).round(3)
    rows = rows[np.argsort(-rows[:, 0])]
    return [
        {"id": f"book-{rng.integers(10_000)}-{at}", "features": dict(zip(TASTE, row, strict=True))}
        for at, row in enumerate(rows.tolist())
    ]


def visit(http: httpx.Client, model: str, rng: np.random.Generator) -> int:
    """Rank and click once; return the seq of the feedback."""
    given = documents(rng)
    ranked = http.post("/rank", json={"model": model, "documents": given, "top_k": SHOWN})
    assert ranked.status_code == 200, ranked.text
    good = {one["id"]: _utility(one["features"]) + 0.3 * rng.standard_normal() for one in given}
    shown = [one["id"] for one in ranked.json()["documents"]]
    clicked = [name for name in shown if good[name] > 0.7][:2]
    if rng.random() < ABANDONED:
        clicked = []
    event = {
        "event_id": str(uuid4()), "type": "clicks", "request_id": ranked.json()["request_id"],
        "clicked": clicked,
    }  # fmt: skip
    answer = http.post("/feedback", json=event)
    assert answer.status_code == 202, answer.text
    return int(answer.json()["seq"])


def _utility(features: dict[str, float]) -> float:
    return sum(weight * features[name] for name, weight in TASTE.items())


@contextlib.contextmanager
def traffic(http: httpx.Client, rates: dict[str, float], seed: int = 1) -> Iterator[None]:
    """Let visitors come to models at `rates` a second, from a thread, until the block ends."""
    stop = threading.Event()
    rng = np.random.default_rng(seed)
    failures = list[BaseException]()

    def send() -> None:
        due = dict.fromkeys(rates, time.monotonic())
        try:
            while not stop.is_set():
                name = min(due, key=lambda one: due[one])
                stop.wait(max(0.0, due[name] - time.monotonic()))
                visit(http, name, rng)
                due[name] += rng.exponential(1.0 / rates[name])
        except BaseException as error:  # noqa: BLE001  # raised in the test's thread
            failures.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    for error in failures:
        raise error
