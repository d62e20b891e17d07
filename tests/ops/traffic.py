"""Traffic for every panel: valid, invalid, duplicate and excessive, with and without a store."""

import itertools
import os
import signal
import time
from collections import Counter
from typing import Any

import httpx
import numpy as np

from app.storage.embedded.server import find
from tests.api.services import Running
from tests.servers import client as store_client
from tests.servers import until

#: A model that learns from clicks, one that learns from labels, and a follower of the first.
CLICKED, JUDGED, FOLLOWER = "clicked", "judged", "clicked-b"
FEATURES, DOCUMENTS = 4, 10
#: The limit of one source's share (each worker counts separately), and the events of a source that
#: exceeds it.
SHARE, EXCESS = 0.4, 1000
#: Share of the rankings without a click.
ABANDONED = 0.1


class Traffic:
    """Requests of users, click loggers and operators; `answers` counts them by call and status.

    The model that learns from clicks has a follower, and a duel with it from the first round on.
    """

    def __init__(self, http: httpx.Client, service: Running) -> None:
        self._http, self._service = http, service
        self._random = np.random.default_rng(6)
        self._numbers = itertools.count()
        self._preference = np.array([1.0, -0.5, 0.25, 0.0])
        self.answers: Counter[str] = Counter()

    def start(self) -> None:
        """Create models, send feedback, train, fail to train, roll back, and stop the store."""
        for model in (CLICKED, JUDGED):
            self._call("PUT", f"/models/{model}", {"features": FEATURES})
        self._call("PUT", f"/models/{FOLLOWER}", {"follows": CLICKED, "gamma": 10.0})
        for _ in range(12):
            self._post([self._labelled() for _ in range(100)])
        for _ in range(250):
            self._impression()
        self._train(CLICKED, [self._labelled_query() for _ in range(20)])
        self._train(JUDGED, [{"documents": [{"label": 1, "features": [1e9] * FEATURES}]}])
        self._call("POST", f"/models/{JUDGED}/rollback", {"version": 0})
        self._without_store()

    def round(self) -> None:
        """Send one second of ordinary traffic, then one request of each faulty kind.

        A duel is on: the training job at the start ends the first one if it takes longer.
        """
        duel = {"challenger": FOLLOWER, "share": 0.5}
        self._call("PUT", f"/models/{CLICKED}/duel", duel)
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            self._impression()
            self._post([self._labelled()])
        event = self._labelled()
        self._post([event])
        self._post([event])  # a duplicate
        unknown = {"type": "clicks", "request_id": f"{CLICKED}.unknown", "clicked": ["d0"]}
        self._post([{"event_id": self._name(), "model": CLICKED, **unknown}])
        self._call("POST", "/rank", {"model": "unknown", "documents": []})
        robot = {**event, "source": "robot"}
        self._post([{**robot, "event_id": self._name()} for _ in range(EXCESS)])
        self._beacon()

    def _name(self) -> str:
        return f"e{next(self._numbers)}"

    def _call(self, method: str, path: str, body: Any) -> Any:
        answer = self._http.request(method, path, json=body)
        self.answers[f"{method} {path} {answer.status_code}"] += 1
        return answer.json()

    def _post(self, events: list[Any]) -> None:
        body = events[0] if len(events) == 1 else {"events": events}
        self._call("POST", "/feedback", body)

    def _documents(self) -> list[dict[str, Any]]:
        rows = self._random.random((DOCUMENTS, FEATURES)).round(4).tolist()
        return [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)]

    def _labels(self, documents: list[dict[str, Any]]) -> dict[str, int]:
        scores = {one["id"]: float(self._preference @ one["features"]) for one in documents}
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        return {best[0]: 2, best[1]: 1}

    def _labelled(self) -> dict[str, Any]:
        documents, number = self._documents(), next(self._numbers)
        found = {"type": "labels", "documents": documents, "labels": self._labels(documents)}
        return {"event_id": f"e{number}", "model": JUDGED, "source": f"s{number % 8}", **found}

    def _labelled_query(self) -> dict[str, Any]:
        documents = self._documents()
        labels = self._labels(documents)
        return {
            "documents": [
                {"label": labels.get(one["id"], 0), "features": one["features"]}
                for one in documents
            ]
        }

    def _impression(self) -> None:
        """Request a randomised ranking; click the best document, in most cases."""
        documents = self._documents()
        body = {"model": CLICKED, "documents": documents, "explore": True}
        answer = self._call("POST", "/rank", body)
        if answer.get("logged"):
            best = next(iter(self._labels(documents)))
            clicked = [best] if self._random.random() > ABANDONED else []
            click = {"type": "clicks", "request_id": answer["request_id"], "clicked": clicked}
            number = next(self._numbers)
            self._post([{"event_id": f"e{number}", "source": f"s{number % 8}", **click}])

    def _beacon(self) -> None:
        """Click on a page, and guess a token."""
        body = {"model": CLICKED, "documents": self._documents()}
        token = self._call("POST", "/rank", body).get("token", "")
        events = [{"token": one, "clicked": ["d0"]} for one in (token, f"{token}x")]
        answer = self._http.post("/beacon", json={"events": events})
        self.answers[f"POST /beacon {answer.status_code}"] += 1

    def _train(self, model: str, queries: list[Any]) -> None:
        self._call("POST", f"/models/{model}/warm-start", {"queries": queries, "C": 0.1})

    def _without_store(self) -> None:
        """Stop the store for some seconds: answers come from memory, feedback is refused."""
        url = find(self._service.data)
        assert url is not None
        with store_client(url) as connection:
            process = int(connection.info("server")["process_id"])
        os.kill(process, signal.SIGSTOP)
        try:
            until(lambda: self._ranks()["degraded"])
            for _ in range(20):
                self._ranks()
                self._post([self._labelled()])
        finally:
            os.kill(process, signal.SIGCONT)
        until(lambda: not self._ranks()["degraded"])

    def _ranks(self) -> Any:
        return self._call("POST", "/rank", {"model": CLICKED, "documents": self._documents()})
