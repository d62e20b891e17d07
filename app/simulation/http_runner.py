"""`solar simulate --url`: the same traffic against a running service, over HTTP.

Each connection is a thread that requests a ranking, simulates a user's clicks and waits until they
are acknowledged, in a loop. A 429, a 503 and a lost connection are retried and counted. Any other
error ends the run with the service's message. A repeated event keeps its id and counts once.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np
from solar_client import Conflict, Model, Ranking, RejectedEvent, Solar
from tqdm import tqdm

from app.errors import SolarError
from app.ranking import measures
from app.ranking import users as crowd
from app.ranking.online import LabelledQuery
from app.ranking.traffic import DEPTH, Site, discount_table
from app.simulation.results import Trace, checkpoints
from app.simulation.runner import Judged, Scenario, check_scenario, visitors
from app.simulation.service_client import REQUEST_SECONDS, retrying, service_client

T = TypeVar("T")
PROGRESS_POLL_SECONDS = 0.05  # interval of the progress bar and of polls for the learner
CATCH_UP_SECONDS = 120.0  # timeout of the learner for the last records


class Ended(NamedTuple):
    """A run that is over: its test queries, and the NDCG@10 of its model on them."""

    users: str
    seed: int
    model: str
    test: Site
    ndcg: float


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
        refused: list[RejectedEvent] = []
        with service_client(self.url, refused.append) as client:
            about = self._create(client, model, scenario, arranged.n)
            ready = arranged.normalised() if about.normalization == "query-minmax" else arranged
            site = Site.of(arranged.train)
            test = Site.of((ready.with_order() if about.prior else ready).test)
            stage = Stage(client, about, scenario, arranged.train, site,
                          visitors(scenario, judged, users), seed, refused)  # fmt: skip
            self.report(f"{users}: model {model}")
            self._begin(client, model)
            trace = Trace.begun(scenario.impressions, site.submitted_ndcg())
            self._watch(stage, trace, test)
            self.report(stage.summary(trace.seconds))
            self._end(client, Ended(users, seed, model, test, trace.end))
        return trace

    def _begin(self, client: Solar, model: str) -> None:
        """Prepare a new model before the first request."""

    def _end(self, client: Solar, run: "Ended") -> None:
        """Read what the service knows of a run, after all records are learnt."""

    def _create(self, client: Solar, model: str, scenario: Scenario, n: int) -> Model:
        covariance = "diagonal" if scenario.algorithm == "solar-ii-diagonal" else "full"
        wanted = {
            "clicks": scenario.clicks, "covariance": covariance,
            "algorithm": scenario.algorithm.removesuffix("-diagonal"),
            **{name: value for name, value in self.settings.items() if value is not None},
        }  # fmt: skip
        try:
            return retrying(lambda: client.create_model(model, n, **wanted), [])
        except Conflict:
            raise SolarError(
                f"model {model}: expected a new model or one with these settings, got one with "
                "other settings; choose another --model"
            ) from None

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

    client: Solar
    about: Model
    scenario: Scenario
    queries: Sequence[LabelledQuery]
    site: Site
    users: crowd.Users
    seed: int
    refused: Sequence[RejectedEvent]
    done: int = 0
    not_logged: int = 0
    stopped: Event = field(default_factory=Event)
    took: dict[str, list[float]] = field(default_factory=lambda: {"/rank": [], "/feedback": []})
    waited: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next, self._lock = count(), Lock()

    def work(self, trace: Trace) -> None:
        """Run one connection: visit after visit, until all are done or a connection failed."""
        while (at := next(self._next)) < len(trace.shown) and not self.stopped.is_set():
            self._visit(at, trace)

    def _visit(self, at: int, trace: Trace) -> None:
        rng = np.random.default_rng([self.seed, 2, at])
        q = int(rng.integers(len(self.queries)))
        answer = self._timed("/rank", lambda: self._rank(self.queries[q]))
        shown = [int(one) for one in answer.ids]
        labels = self.queries[q].labels[shown]
        clicked = crowd.clicks(self.users, labels, rng.random(1 + 2 * len(shown)))
        gained = measures.discounted(labels, discount_table(), min(DEPTH, len(shown)))
        trace.shown[at] = gained / self.site.ideal[q] if self.site.ideal[q] > 0.0 else 0.0
        trace.submitted[at] = trace.by_query[q]
        if answer.logged:
            positions = [str(shown[position]) for position in clicked]
            self._timed("/feedback", lambda: self._post(answer, positions))
        with self._lock:
            self.done += 1
            self.not_logged += not answer.logged

    def _rank(self, query: LabelledQuery) -> Ranking:
        ids = [str(at) for at in range(len(query.documents))]
        return retrying(
            lambda: self.client.rank(
                ids, query.documents, model=self.about.name, top_k=self.scenario.top_k,
                timeout=REQUEST_SECONDS, fallback=False,
            ),
            self.waited, self.stopped,
        )  # fmt: skip

    def _post(self, answer: Ranking, clicked: list[str]) -> None:
        """Send the clicks and wait until they are acknowledged."""
        self.client.click(answer, clicked)
        if self.client.flush(REQUEST_SECONDS).pending:
            raise SolarError(
                f"/feedback: expected an answer within {REQUEST_SECONDS:g} s, got none"
            )
        if self.refused:
            first = self.refused[0]
            raise SolarError(f"the service answered {first.status}: {first.detail}")

    def _timed(self, path: str, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        answer = call()
        self.took[path].append(time.perf_counter() - began)
        return answer

    def weights(self, drained: bool = False) -> Any:
        """Return the model's weights; with `drained`, wait until all records are learnt."""
        until, name = time.monotonic() + CATCH_UP_SECONDS, self.about.name
        while True:
            self.about = retrying(lambda: self.client.get_model(name), self.waited)
            if not drained or self.about.version >= self.about.seq:
                return np.array(list(self.about.weights.values()))
            if time.monotonic() > until:
                raise SolarError(
                    f"model {name}: expected all records learnt within {CATCH_UP_SECONDS:g} s, "
                    f"got {self.about.seq - self.about.version} unlearnt records"
                )
            time.sleep(PROGRESS_POLL_SECONDS)

    def wins(self) -> tuple[float, float, float]:
        """Return the debiased wins as shares: of all, of the model, of the submitted order."""
        won = self.about.debiased_wins or {}
        model, submitted = won.get("model"), won.get("submitted")
        return float(model is not None), model or 0.0, submitted or 0.0

    def summary(self, seconds: float) -> str:
        """Describe rate, latency, retries and failures in one line."""
        parts = [f"{self.done:,} rankings in {seconds:.1f} s: {self.done / seconds:,.0f}/s"]
        for path, took in self.took.items():
            p50, p99 = np.quantile(took or [0.0], (0.5, 0.99)) * 1e3
            parts.append(f"{path} p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        waited = Counter(self.waited) + Counter(self.client.counters.retries)
        if waited:
            parts.append(
                "retries: " + ", ".join(f"{waited[one]} × {one}" for one in sorted(waited))
            )
        if self.not_logged:
            parts.append(f"{self.not_logged} impressions were not logged, clicks were not sent")
        if self.about.rejected:
            parts.append(f"the learner rejected {self.about.rejected} records")
        return "; ".join(parts)
