"""`solar simulate --url`: the same traffic against a running service, over HTTP.

Each connection is a thread that asks for a list, lets a user click, and posts that, one after the
other. Where the service asks to wait it waits, and counts it; whatever else goes wrong ends the run
with what the service said. Event ids stay the same when a post is repeated, so each counts once.
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

PROGRESS_POLL_SECONDS = 0.05  # seconds between two looks at how far it is
CATCH_UP_SECONDS = 120.0  # seconds that a learner gets to catch up at the end


@dataclass(frozen=True, slots=True)
class Live:
    """A service somewhere, and how its models are to be."""

    url: str
    model: str | None
    connections: int
    settings: Mapping[str, Any]
    say: Callable[[str], None]

    def run(
        self, scenario: Scenario, judged: Judged, users: Sequence[str], seeds: int
    ) -> Iterator[tuple[str, list[Trace]]]:
        """All users, one after the other, each run with a model of its own."""
        check_scenario(scenario, judged, users)
        base = self.model or f"simulated-{uuid4().hex[:8]}"
        alone = len(users) * seeds == 1
        for name in users:
            models = [base if alone else f"{base}-{name}-{seed}" for seed in range(seeds)]
            yield name, [self._play(scenario, judged, name, *one) for one in enumerate(models)]

    def _play(self, scenario: Scenario, judged: Judged, users: str, seed: int, model: str) -> Trace:
        arranged = judged.submitted(scenario.submitted, np.random.default_rng([seed, 1]))
        about = self._created(model, scenario, arranged.n)
        ready = arranged.normalised() if about["normalization"] == "query-minmax" else arranged
        site = Site.of(arranged.train)
        test = Site.of((ready.with_order() if about["prior"] else ready).test)
        stage = Stage(self.url, model, scenario, arranged.train, site,
                      visitors(scenario, judged, users), seed)  # fmt: skip
        self.say(f"{users}: model {model}")
        trace = Trace.begun(scenario.impressions, site.submitted_ndcg())
        self._watch(stage, trace, test)
        self.say(stage.summary(trace.seconds))
        return trace

    def _created(self, model: str, scenario: Scenario, n: int) -> dict[str, Any]:
        covariance = "diagonal" if scenario.algorithm == "solar-ii-diagonal" else "full"
        wanted = {
            "features": n, "clicks": scenario.clicks, "covariance": covariance,
            "algorithm": scenario.algorithm.removesuffix("-diagonal"),
            **{name: value for name, value in self.settings.items() if value is not None},
        }  # fmt: skip
        with HttpClient(self.url) as line:
            status, said = line.ask("PUT", f"/models/{model}", json.dumps(wanted).encode())
        if status == 409:
            raise SolarError(f"model {model}: expected a new one, or one with these settings")
        return _expected(status, said, (200, 201))

    def _watch(self, stage: "Stage", trace: Trace, test: Site) -> None:
        """Let all connections work; test the model's weights on the way and at the end."""
        ends, at, began = checkpoints(stage.scenario.impressions), 1, time.perf_counter()
        trace.test[0] = test.ndcg(stage.weights())
        with ThreadPoolExecutor(self.connections) as pool, _bar(stage) as bar:
            working = [pool.submit(stage.work, trace) for _ in range(self.connections)]
            try:
                while not _over(working):
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


def _over(working: Sequence["Future[None]"]) -> bool:
    """Whether all are done, or one has failed."""
    done, left = wait(working, PROGRESS_POLL_SECONDS, FIRST_EXCEPTION)
    return not left or any(one.exception() for one in done)


def _bar(stage: "Stage") -> Any:
    return tqdm(total=stage.scenario.impressions, unit="list", disable=None, leave=False)


@dataclass
class Stage:
    """One run against one model: what is sent, who clicks, and what came of it."""

    url: str
    model: str
    scenario: Scenario
    queries: Sequence[LabelledQuery]
    site: Site
    users: crowd.Users
    seed: int
    done: int = 0
    forgotten: int = 0
    stopped: Event = field(default_factory=Event)
    took: dict[str, list[float]] = field(default_factory=lambda: {"/rank": [], "/feedback": []})
    waited: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next, self._lock = count(), Lock()
        head = {"model": self.model, "top_k": self.scenario.top_k}
        self._bodies = [json.dumps({**head, **_documents(one)}).encode() for one in self.queries]

    def work(self, trace: Trace) -> None:
        """One connection: visit after visit, until all are done or somebody failed."""
        with HttpClient(self.url, self.stopped) as line:
            while (at := next(self._next)) < len(trace.shown) and not self.stopped.is_set():
                self._visit(line, at, trace)
            with self._lock:
                self.waited += line.waited

    def _visit(self, line: HttpClient, at: int, trace: Trace) -> None:
        rng = np.random.default_rng([self.seed, 2, at])
        q = int(rng.integers(len(self.queries)))
        answer = self._timed(line, "/rank", self._bodies[q], (200,))
        shown = [int(one["id"]) for one in answer["documents"]]
        labels = self.queries[q].labels[shown]
        clicked = crowd.clicks(self.users, labels, rng.random(1 + 2 * len(shown)))
        gained = measures.discounted(labels, discount_table(), min(DEPTH, len(shown)))
        trace.shown[at] = gained / self.site.ideal[q] if self.site.ideal[q] > 0.0 else 0.0
        trace.submitted[at] = trace.by_query[q]
        if answer["logged"]:
            self._post(line, at, answer, [str(shown[place]) for place in clicked])
        with self._lock:
            self.done += 1
            self.forgotten += not answer["logged"]

    def _post(self, line: HttpClient, at: int, answer: dict[str, Any], clicked: list[str]) -> None:
        event = {
            "event_id": f"{self.model}-{at}-{answer['request_id']}",
            "type": "clicks",
            "request_id": answer["request_id"],
            "clicked": clicked,
        }
        self._timed(line, "/feedback", json.dumps(event).encode(), (200, 202))

    def _timed(self, line: HttpClient, path: str, body: bytes, expect: tuple[int, ...]) -> Any:
        began = time.perf_counter()
        status, said = line.ask("POST", path, body)
        self.took[path].append(time.perf_counter() - began)
        return _expected(status, said, expect)

    def weights(self, drained: bool = False) -> Any:
        """What the model has learnt so far; once it has learnt all, if it should be `drained`."""
        until = time.monotonic() + CATCH_UP_SECONDS
        with HttpClient(self.url) as line:
            while True:
                self.about = _expected(*line.ask("GET", f"/models/{self.model}"), (200,))
                if not drained or self.about["version"] >= self.about["seq"]:
                    return np.array(list(self.about["weights"].values()))
                if time.monotonic() > until:
                    behind = self.about["seq"] - self.about["version"]
                    raise SolarError(f"model {self.model}: {behind} records are not learnt yet")
                time.sleep(PROGRESS_POLL_SECONDS)

    def wins(self) -> tuple[float, float, float]:
        """The debiased wins, as shares: of all, of the model, of the submitted order."""
        won = self.about["debiased_wins"]
        return float(won["model"] + won["submitted"] > 0.0), won["model"], won["submitted"]

    def summary(self, seconds: float) -> str:
        """Rate and latency, and all that did not go as it should."""
        said = [f"{self.done:,} lists in {seconds:.1f} s: {self.done / seconds:,.0f}/s"]
        for path, took in self.took.items():
            middle, late = np.quantile(took or [0.0], (0.5, 0.99)) * 1e3
            said.append(f"{path} p50 {middle:.1f} ms, p99 {late:.1f} ms")
        if self.waited:
            whys = [f"{self.waited.count(why)} times for {why}" for why in sorted(set(self.waited))]
            said.append("waited " + ", ".join(whys))
        if self.forgotten:
            said.append(f"{self.forgotten} lists were not remembered, their clicks were not sent")
        if self.about["rejected"]:
            said.append(f"{self.about['rejected']} records were rejected by the learner")
        return "; ".join(said)


def _documents(query: LabelledQuery) -> dict[str, Any]:
    rows = query.documents.tolist()
    return {"ids": [str(at) for at in range(len(rows))], "features": rows}


def _expected(status: int, said: Any, expect: tuple[int, ...]) -> dict[str, Any]:
    if status not in expect:
        raise SolarError(f"the service says {status}: {said.get('detail') or said.get('title')}")
    return dict(said)
