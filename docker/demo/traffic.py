"""Simulated users of a shop over the public API: `traffic.py URL KEY_FILE`.

Users read a ranking from the top and click documents that match their preferences. The submitted
order knows only the text match. The preferences drift slowly, so the model keeps learning and the
curves in Grafana move. It uses only the standard library and stops on SIGTERM.
"""

import json
import math
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

MODEL = "demo"
FEATURES = ("text_match", "popularity", "freshness", "price", "rating", "in_stock")
#: Weights of the features in the users' preferences, at the start and half a period later.
PREFERENCES = ((1.0, 0.6, 0.2, -0.8, 0.9, 0.5), (0.6, -0.2, 1.0, 0.3, 0.9, 0.5))
DRIFT_PERIOD = 1800.0  # seconds until the preferences return to the start
LOAD_PERIOD = 600.0  # seconds from one traffic peak to the next
RATE = (2.0, 12.0)  # requests per second, lowest and highest
TOP_K = 10  # documents that a user sees at most
REPEATED = 0.02  # share of events that are sent twice, as after a timeout
MALFORMED = 0.005  # share of /rank requests with an unknown feature


class Refused(Exception):
    """The service answered with an HTTP error."""


@dataclass
class Service:
    """A client of the API with one connection."""

    url: str
    key: str
    _connection: HTTPConnection | None = None

    def call(self, method: str, path: str, body: Any) -> Any:
        """Send a request; retry once on a new connection if the old one was closed."""
        try:
            return self._call(method, path, body)
        except (OSError, HTTPException):
            self.close()
            return self._call(method, path, body)

    def _call(self, method: str, path: str, body: Any) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        self._connection = self._connection or self._connect()
        self._connection.request(method, path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise Refused(f"{path}: {answer.status} {content[:200]!r}")
        return json.loads(content)

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(str(parts.hostname), parts.port, timeout=10)

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def preferences(at: float) -> list[float]:
    """The users' preferences at a time, between the two of `PREFERENCES`."""
    share = (1.0 - math.cos(2.0 * math.pi * at / DRIFT_PERIOD)) / 2.0
    return [a + share * (b - a) for a, b in zip(*PREFERENCES, strict=True)]


def rate(at: float) -> float:
    """Requests per second at a time."""
    low, high = RATE
    return low + (high - low) * (1.0 - math.cos(2.0 * math.pi * at / LOAD_PERIOD)) / 2.0


def documents(rng: random.Random) -> list[dict[str, Any]]:
    """The candidate documents, best text match first."""
    found = [
        {"id": f"d{at}", "features": {name: round(rng.random(), 4) for name in FEATURES}}
        for at in range(rng.randint(12, 40))
    ]
    return sorted(found, key=lambda one: -one["features"]["text_match"])


def clicks(
    shown: list[dict[str, Any]], preferred: list[float], rng: random.Random
) -> Iterator[str]:
    """The clicks of a user who reads from the top and stops more likely with each position."""
    for at, features in enumerate(shown):
        if rng.random() > 0.9**at:
            return
        worth = sum(u * features[name] for u, name in zip(preferred, FEATURES, strict=True))
        if rng.random() < 1.0 / (1.0 + math.exp(-5.0 * (worth - 1.6))):
            yield features["id"]


def visit(service: Service, at: float, rng: random.Random) -> None:
    """One user: a ranking and the clicks on it."""
    found = documents(rng)
    if rng.random() < MALFORMED:
        found[0]["features"]["colour"] = 1.0  # not a feature of the model
    answer = service.call("POST", "/rank", {"model": MODEL, "documents": found, "top_k": TOP_K})
    by_id = {one["id"]: {**one["features"], "id": one["id"]} for one in found}
    shown = [by_id[one["id"]] for one in answer["documents"]]
    event = {
        "event_id": str(uuid4()),
        "type": "clicks",
        "request_id": answer["request_id"],
        "clicked": list(clicks(shown, preferences(at), rng)),
        "source": "demo",
    }
    for _ in range(2 if rng.random() < REPEATED else 1):
        service.call("POST", "/feedback", event)


def prepare(service: Service) -> None:
    """Create the model; wait until the service is ready."""
    wanted = {"features": FEATURES, "normalization": "query-minmax"}
    while True:
        try:
            service.call("PUT", f"/models/{MODEL}", wanted)
        except (OSError, HTTPException, Refused) as error:
            print(f"waiting for the service: {error}", flush=True)
            time.sleep(2.0)
        else:
            return


def main(url: str, key_file: str, seconds: float = math.inf) -> None:
    """Send visits until the time is over, with the API key in a file."""
    key = Path(key_file).read_text().strip()
    service, rng = Service(url, key), random.Random()  # noqa: S311
    prepare(service)
    started = time.monotonic()
    while (at := time.monotonic() - started) < seconds:
        try:
            with suppress(Refused):  # the service counts HTTP errors
                visit(service, at, rng)
        except (OSError, HTTPException) as error:
            print(f"the service is unreachable, retrying: {error}", flush=True)
            time.sleep(1.0)
        time.sleep(rng.expovariate(rate(at)))
    service.close()


def _stop(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else math.inf)
