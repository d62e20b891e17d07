"""`solar simulate --url`: the same traffic against a running service, over HTTP.

Each connection is a thread that requests a ranking, simulates a user's clicks and posts them, in a
loop. A 429, a 503 and a lost connection are retried and counted. Any other error ends the run with
the service's message. A repeated post keeps its event id, so each event counts once.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock
from typing import Any
from uuid import uuid4

import numpy as np
from tqdm import tqdm

from app.errors import SolarError
from app.ranking import measures
from app.ranking import users as crowd
from app.ranking.online import LabelledQuery
from app.ranking.traffic import DEPTH, Site, discount_table
from app.simulation.http_client import HttpClient
from app.simulation.results import Trace, checkpoints
from app.simulation.runner import Judged, Scenario, check_scenario, visitors

PROGRESS_POLL_SECONDS = 0.05  # interval of the progress bar and of polls for the learner
CATCH_UP_SECONDS = 120.0  # timeout of the learner for the last records


@dataclass(frozen=True, slots=True)
class Live:
    """A running service, and the settings of the models to create there."""

    url: str
    model: str | None
    connections: int
    settings: Mapping[str, Any]
    report: Callable[[str], None]

    def run(
        self, scenario: Scenario, judged: Judged, users: Sequence[str], seeds: int
    ) -> Iterator[tuple[str, list[Trace]]]:
        """Simulate all users, one after the other, with a separate model for each run."""
        check_scenario(scenario, judged, users)
        base = self.model or f"simulated-{uuid4().hex[:8]}"
        alone = len(users) * seeds == 1
        for name in users:
            models = [base if alone else f"{base}-{name}-{seed}" for seed in range(seeds)]
            yield name, [self._play(scenario, judged, name, *one) for one in enumerate(models)]

    def _play(self, scenario: Scenario, judged: Judged, users: str, seed: int, model: str) -> Trace:
        arranged = judged.submitted(scenario.submitted, np.random.default_rng([seed, 1]))
        about = self._create(model, scenario, arranged.n)
        ready = arranged.normalised() if about["normalization"] == "query-minmax" else arranged
        site = Site.of(arranged.train)
        test = Site.of((ready.with_order() if about["prior"] else ready).test)
        stage = Stage(self.url, model, scenario, arranged.train, site,
                      visitors(scenario, judged, users), seed)  # fmt: skip
        self.report(f"{users}: model {model}")
        trace = Trace.begun(scenario.impressions, site.submitted_ndcg())
        self._watch(stage, trace, test)
        self.report(stage.summary(trace.seconds))
        return trace

    def _create(self, model: str, scenario: Scenario, n: int) -> dict[str, Any]:
        covariance = "diagonal" if scenario.algorithm == "solar-ii-diagonal" else "full"
        wanted = {
            "features": n, "clicks": scenario.clicks, "covariance": covariance,
            "algorithm": scenario.algorithm.removesuffix("-diagonal"),
            **{name: value for name, value in self.settings.items() if value is not None},
        }  # fmt: skip
        with HttpClient(self.url) as client:
            status, answer = client.ask("PUT", f"/models/{model}", json.dumps(wanted).encode())
        if status == 409:
            raise SolarError(
                f"model {model}: expected a new model or one with these settings, got one with "
                "other settings; choose another --model"
            )
        return _checked_answer(status, answer, (200, 201))

    def _watch(self, stage: "Stage", trace: Trace, test: Site) -> None:
        """Run all connections; test the model's weights at the checkpoints and at the end."""
        ends, at, began = checkpoints(stage.scenario.impressions), 1, time.perf_counter()
        trace.test[0] = test.ndcg(stage.weights())
        with ThreadPoolExecutor(self.connections) as pool, _bar(stage) as bar:
            working = [pool.submit(stage.work, trace) for _ in range(self.connections)]
            try:
                while not _finished(working):
                    bar.update(stage.done - bar.n)
                    if at < len(ends) - 1 and stage.done >= ends[at]:
                        trace.test[at] = test.ndcg(stage.weights())
                        at += 1
            finally:
                stage.stopped.set()
        trace.seconds = time.perf_counter() - began
        for future in working:
            future.result()
        trace.test[at:] = test.ndcg(stage.weights(drained=True))
        trace.weight, trace.won, trace.submitted_won = stage.wins()


def _finished(working: Sequence["Future[None]"]) -> bool:
    """Whether all connections are done, or one has failed."""
    done, left = wait(working, PROGRESS_POLL_SECONDS, FIRST_EXCEPTION)
    return not left or any(one.exception() for one in done)


def _bar(stage: "Stage") -> Any:
    return tqdm(total=stage.scenario.impressions, unit="ranking", disable=None, leave=False)


@dataclass
class Stage:
    """One run against one model: the requests, the users and the results."""

    url: str
    model: str
    scenario: Scenario
    queries: Sequence[LabelledQuery]
    site: Site
    users: crowd.Users
    seed: int
    done: int = 0
    not_logged: int = 0
    stopped: Event = field(default_factory=Event)
    took: dict[str, list[float]] = field(default_factory=lambda: {"/rank": [], "/feedback": []})
    waited: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next, self._lock = count(), Lock()
        head = {"model": self.model, "top_k": self.scenario.top_k}
        self._bodies = [json.dumps({**head, **_documents(one)}).encode() for one in self.queries]

    def work(self, trace: Trace) -> None:
        """Run one connection: visit after visit, until all are done or a connection failed."""
        with HttpClient(self.url, self.stopped) as client:
            while (at := next(self._next)) < len(trace.shown) and not self.stopped.is_set():
                self._visit(client, at, trace)
            with self._lock:
                self.waited += client.waited

    def _visit(self, client: HttpClient, at: int, trace: Trace) -> None:
        rng = np.random.default_rng([self.seed, 2, at])
        q = int(rng.integers(len(self.queries)))
        answer = self._timed(client, "/rank", self._bodies[q], (200,))
        shown = [int(one["id"]) for one in answer["documents"]]
        labels = self.queries[q].labels[shown]
        clicked = crowd.clicks(self.users, labels, rng.random(1 + 2 * len(shown)))
        gained = measures.discounted(labels, discount_table(), min(DEPTH, len(shown)))
        trace.shown[at] = gained / self.site.ideal[q] if self.site.ideal[q] > 0.0 else 0.0
        trace.submitted[at] = trace.by_query[q]
        if answer["logged"]:
            self._post(client, at, answer, [str(shown[position]) for position in clicked])
        with self._lock:
            self.done += 1
            self.not_logged += not answer["logged"]

    def _post(
        self, client: HttpClient, at: int, answer: dict[str, Any], clicked: list[str]
    ) -> None:
        event = {
            "event_id": f"{self.model}-{at}-{answer['request_id']}",
            "type": "clicks",
            "request_id": answer["request_id"],
            "clicked": clicked,
        }
        self._timed(client, "/feedback", json.dumps(event).encode(), (200, 202))

    def _timed(self, client: HttpClient, path: str, body: bytes, expect: tuple[int, ...]) -> Any:
        began = time.perf_counter()
        status, answer = client.ask("POST", path, body)
        self.took[path].append(time.perf_counter() - began)
        return _checked_answer(status, answer, expect)

    def weights(self, drained: bool = False) -> Any:
        """Return the model's weights; with `drained`, wait until all records are learnt."""
        until = time.monotonic() + CATCH_UP_SECONDS
        with HttpClient(self.url) as client:
            while True:
                self.about = _checked_answer(*client.ask("GET", f"/models/{self.model}"), (200,))
                if not drained or self.about["version"] >= self.about["seq"]:
                    return np.array(list(self.about["weights"].values()))
                if time.monotonic() > until:
                    behind = self.about["seq"] - self.about["version"]
                    raise SolarError(
                        f"model {self.model}: expected all records learnt within "
                        f"{CATCH_UP_SECONDS:g} s, got {behind} unlearnt records"
                    )
                time.sleep(PROGRESS_POLL_SECONDS)

    def wins(self) -> tuple[float, float, float]:
        """Return the debiased wins as shares: of all, of the model, of the submitted order."""
        won = self.about["debiased_wins"]
        return float(won["model"] is not None), won["model"] or 0.0, won["submitted"] or 0.0

    def summary(self, seconds: float) -> str:
        """Describe rate, latency, retries and failures in one line."""
        parts = [f"{self.done:,} rankings in {seconds:.1f} s: {self.done / seconds:,.0f}/s"]
        for path, took in self.took.items():
            p50, p99 = np.quantile(took or [0.0], (0.5, 0.99)) * 1e3
            parts.append(f"{path} p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        if self.waited:
            reasons = [f"{self.waited.count(one)} × {one}" for one in sorted(set(self.waited))]
            parts.append("retries: " + ", ".join(reasons))
        if self.not_logged:
            parts.append(f"{self.not_logged} impressions were not logged, clicks were not sent")
        if self.about["rejected"]:
            parts.append(f"the learner rejected {self.about['rejected']} records")
        return "; ".join(parts)


def _documents(query: LabelledQuery) -> dict[str, Any]:
    rows = query.documents.tolist()
    return {"ids": [str(at) for at in range(len(rows))], "features": rows}


def _checked_answer(status: int, answer: Any, expect: tuple[int, ...]) -> dict[str, Any]:
    if status not in expect:
        detail = answer.get("detail") or answer.get("title")
        raise SolarError(f"the service answered {status}: {detail}")
    return dict(answer)
