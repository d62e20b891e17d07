"""Invented users of a shop, over the public API alone: `traffic.py URL`, its key in SOLAR_KEY.

They see a list, look at it from the top, and click what they like; the shop's own order knows only
the text match. What they like turns slowly, so the model always has something to learn and the
curves in Grafana move. Standard library only; ends with SIGTERM.
"""

import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from types import FrameType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

MODEL = "demo"
FEATURES = ("text_match", "popularity", "freshness", "price", "rating", "in_stock")
#: What is liked at first, and half a turn later.
TASTES = ((1.0, 0.6, 0.2, -0.8, 0.9, 0.5), (0.6, -0.2, 1.0, 0.3, 0.9, 0.5))
TURN = 1800.0  # seconds for a whole turn of the taste
TIDE = 600.0  # seconds from one rush to the next
RATE = (2.0, 12.0)  # requests a second, at low tide and at high tide
SHOWN = 10  # documents that a user sees at most
REPEATED = 0.02  # share of posts that a logger sends twice, as it should when in doubt
MALFORMED = 0.005  # share of requests that a frontend gets wrong


class Refused(Exception):
    """The service gave an answer that is no success."""


@dataclass
class Service:
    """The API, over one connection at a time."""

    url: str
    key: str
    _connection: HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any) -> Any:
        """One request; once more on a new connection if the old one had ended."""
        try:
            return self._ask(method, path, body)
        except (OSError, HTTPException):
            self.close()
            return self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        self._connection = self._connection or self._connected()
        self._connection.request(method, path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status >= 400:
            raise Refused(f"{path}: {answer.status} {said[:200]!r}")
        return json.loads(said)

    def _connected(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(str(parts.hostname), parts.port, timeout=10)

    def close(self) -> None:
        """Begin anew the next time."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def taste(at: float) -> list[float]:
    """What users like at a time: it goes to and fro between two."""
    share = (1.0 - math.cos(2.0 * math.pi * at / TURN)) / 2.0
    return [a + share * (b - a) for a, b in zip(*TASTES, strict=True)]


def rate(at: float) -> float:
    """Requests a second at a time."""
    low, high = RATE
    return low + (high - low) * (1.0 - math.cos(2.0 * math.pi * at / TIDE)) / 2.0


def documents(chance: random.Random) -> list[dict[str, Any]]:
    """What the shop found, best text match first."""
    found = [
        {"id": f"d{at}", "features": {name: round(chance.random(), 4) for name in FEATURES}}
        for at in range(chance.randint(12, 40))
    ]
    return sorted(found, key=lambda one: -one["features"]["text_match"])


def clicks(shown: list[dict[str, Any]], liked: list[float], chance: random.Random) -> Iterator[str]:
    """From the top, ever less patient; a click where it is liked, rarely where it is not."""
    for at, features in enumerate(shown):
        if chance.random() > 0.9**at:
            return
        worth = sum(u * features[name] for u, name in zip(liked, FEATURES, strict=True))
        if chance.random() < 1.0 / (1.0 + math.exp(-5.0 * (worth - 1.6))):
            yield features["id"]


def visit(service: Service, at: float, chance: random.Random) -> None:
    """One user: a list, and what becomes of it."""
    found = documents(chance)
    if chance.random() < MALFORMED:
        found[0]["features"]["colour"] = 1.0  # which the model does not know
    answer = service.ask("POST", "/rank", {"model": MODEL, "documents": found, "top_k": SHOWN})
    by_id = {one["id"]: {**one["features"], "id": one["id"]} for one in found}
    shown = [by_id[one["id"]] for one in answer["documents"]]
    event = {
        "event_id": str(uuid4()),
        "type": "clicks",
        "request_id": answer["request_id"],
        "clicked": list(clicks(shown, taste(at), chance)),
        "source": "demo",
    }
    for _ in range(2 if chance.random() < REPEATED else 1):
        service.ask("POST", "/feedback", event)


def prepare(service: Service) -> None:
    """The model; waits for the service."""
    wanted = {"features": FEATURES, "normalization": "query-minmax"}
    while True:
        try:
            service.ask("PUT", f"/models/{MODEL}", wanted)
        except (OSError, HTTPException, Refused) as error:
            print(f"not yet: {error}", flush=True)
            time.sleep(2.0)
        else:
            return


def main(url: str, seconds: float = math.inf) -> None:
    """Visit after visit."""
    service, chance = Service(url, os.environ.get("SOLAR_KEY", "")), random.Random()  # noqa: S311
    prepare(service)
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        try:
            with suppress(Refused):  # the service counts them
                visit(service, at, chance)
        except (OSError, HTTPException) as error:
            print(f"away: {error}", flush=True)
            time.sleep(1.0)
        time.sleep(chance.expovariate(rate(at)))
    service.close()


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else math.inf)
