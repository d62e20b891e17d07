"""Models, the bodies of requests, and what users click on; from one seed."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tests.soak.calls import JSON
from tests.soak.ledger import Book

DOCUMENTS, SHOWN, BODIES = 20, 10, 16
MSGPACK = {"content-type": "application/msgpack"}
FORMS = ("objects", "columns", "binary")
#: The settings of the models that a run keeps, and their shares of the traffic.
LASTING: dict[str, tuple[dict[str, Any], float]] = {
    "shop": ({"features": [f"f{at}" for at in range(8)]}, 0.5),
    "books": ({"features": 46, "covariance": "diagonal", "normalization": "query-minmax",
               "clicks": "click-skip-above"}, 0.25),
    "lite": ({"features": 8, "algorithm": "solar-i"}, 0.15),
}  # fmt: skip
CHURNING: tuple[dict[str, Any], float] = ({"features": 8}, 0.1)


@dataclass
class Target:
    """A model that gets traffic: its documents as encoded bodies, and its book."""

    name: str
    book: Book
    features: int
    share: float
    rows: list[Any] = field(default_factory=list)
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    open: bool = True
    posts: int = 0  # in flight

    async def posted(self) -> None:
        """Wait until no post is in flight."""
        while self.posts:
            await asyncio.sleep(0.01)


def new_target(name: str, book: Book, settings: dict[str, Any], share: float, seed: int) -> Target:
    """Prepare the traffic of a model."""
    features = settings["features"]
    n = features if isinstance(features, int) else len(features)
    made, rng = Target(name, book, n, share), np.random.default_rng([seed, *name.encode()])
    ids = [f"d{at}" for at in range(DOCUMENTS)]
    for form in FORMS:
        made.bodies[form] = []
    for _ in range(BODIES):
        rows = rng.random((DOCUMENTS, n)).round(4)
        made.rows.append(rows.tolist())
        asked = {"model": name, "top_k": SHOWN}
        columns = {"ids": ids, "features": rows.tolist()}
        raw = {"ids": ids, "features": rows.astype("<f4").tobytes()}
        made.bodies["objects"].append(
            json.dumps({**asked, "documents": documents(rows.tolist())}).encode()
        )
        made.bodies["columns"].append(json.dumps({**asked, **columns}).encode())
        made.bodies["binary"].append(msgspec.msgpack.encode({**asked, **raw}))
    return made


def documents(rows: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Return documents as objects."""
    return [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)]


def ranking(target: Target, rng: random.Random) -> tuple[int, bytes, dict[str, str]]:
    """Return a body of /rank: the number of its documents, its bytes and its headers."""
    form, at = rng.choice(FORMS), rng.randrange(BODIES)
    return at, target.bodies[form][at], MSGPACK if form == "binary" else JSON


@dataclass(frozen=True, slots=True)
class ShownList:
    """A remembered ranking: the positions of its documents in the request, best first."""

    target: Target
    request: str
    token: str
    rows: int
    order: bytes

    def ids(self, *positions: int) -> list[str]:
        """Return the ids of the documents at these places of the list."""
        return [f"d{self.order[at]}" for at in positions]


def shown_list(target: Target, rows: int, answer: dict[str, Any]) -> ShownList:
    """Return the list of an answer of /rank."""
    order = bytes(int(one["id"][1:]) for one in answer["documents"])
    return ShownList(target, answer["request_id"], answer.get("token", ""), rows, order)


def clicked(one: ShownList, rng: random.Random) -> list[str]:
    """Return the clicks of a user who likes the first feature; one list in ten has none."""
    if rng.random() < 0.1:
        return []
    likes = [one.target.rows[one.rows][at][0] + rng.random() / 2 for at in one.order[:5]]
    best = max(range(len(likes)), key=likes.__getitem__)
    return one.ids(best) if rng.random() < 0.8 else one.ids(best, rng.randrange(len(one.order)))


def click(one: ShownList, event: str, rng: random.Random) -> dict[str, Any]:
    """Return a first click event."""
    body: dict[str, Any] = {
        "event_id": event, "type": "clicks", "model": one.target.name, "request_id": one.request,
        "clicked": clicked(one, rng),
    }  # fmt: skip
    if rng.random() < 0.2:
        body["examined"] = rng.randint(1, len(one.order))
    return body


def purchase(one: ShownList, event: str, rng: random.Random) -> dict[str, Any]:
    """Return a later event on a list: what was bought."""
    bought = one.ids(rng.randrange(len(one.order)))
    return {
        "event_id": event, "type": "clicks", "model": one.target.name, "request_id": one.request,
        "clicked": bought, "gains": {bought[0]: rng.choice(["add_to_cart", "purchase"])},
    }  # fmt: skip


def judgement(target: Target, event: str, rng: random.Random) -> dict[str, Any]:
    """Return labels or triplets, with their documents."""
    rows = target.rows[rng.randrange(BODIES)][:6]
    body: dict[str, Any] = {"event_id": event, "model": target.name, "documents": documents(rows)}
    if rng.random() < 0.5:
        labels = {f"d{at}": round(3 * row[0]) for at, row in enumerate(rows)}
        return {**body, "type": "labels", "labels": labels}
    best, worst = sorted(rng.sample(range(6), 2), key=lambda at: -rows[at][0])
    return {**body, "type": "triplets", "triplets": [[f"d{best}", f"d{worst}"]]}


def judged_text(target: Target) -> bytes:
    """Return judged queries for a warm start, as LETOR text."""
    return "".join(
        f"{round(3 * row[0])} qid:{query} "
        + " ".join(f"{at}:{value}" for at, value in enumerate(row, start=1))
        + "\n"
        for query, rows in enumerate(target.rows)
        for row in rows
    ).encode()
