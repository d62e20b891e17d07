"""What came of simulated traffic: one trace for each run, a row and curves for several.

Measures: the plain order's NDCG@10 on the test queries, that of the lists as shown and as
submitted, and the debiased wins of the model's order and of the one as submitted.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from app.ranking.arrays import Floats, Integers
from app.ranking.traffic import Visit
from app.simulation.plots import Curve, Panel

#: The model is tested so many times on its way.
LOOKS = 40
#: A cold start is over after so many lists.
FIRST_LISTS = 2_000


def checkpoints(impressions: int) -> Integers:
    """After how many impressions the model is tested; the first is 0, the last is all.

    >>> checkpoints(3)
    array([0, 1, 2, 3])
    """
    looks = min(LOOKS, impressions)
    return np.arange(looks + 1) * impressions // looks


@dataclass(slots=True)
class Trace:
    """One run: NDCG@10 of each list shown and submitted, of the test at each checkpoint.

    `weight` is that of all pairs, `won` and `submitted_won` that of those which the model and the
    submitted order get right; `seconds` is what it took without the tests.
    """

    shown: Floats
    submitted: Floats
    test: Floats
    by_query: Floats
    weight: float = 0.0
    won: float = 0.0
    submitted_won: float = 0.0
    seconds: float = 0.0

    @classmethod
    def begun(cls, impressions: int, by_query: Floats) -> "Trace":
        """Nothing yet; `by_query` is the NDCG@10 of each query as submitted."""
        looks = len(checkpoints(impressions))
        return cls(np.zeros(impressions), np.zeros(impressions), np.zeros(looks), by_query)

    def add(self, at: int, visit: Visit) -> None:
        """One more list."""
        self.shown[at] = visit.ndcg
        self.submitted[at] = self.by_query[visit.query]
        self.weight += visit.weight
        self.won += visit.won
        self.submitted_won += visit.submitted_won

    def timed(self, visits: Iterator[Visit]) -> Iterator[Visit]:
        """The same visits; how much of a core's time all of them took is kept."""
        began = time.process_time()
        yield from visits
        self.seconds += time.process_time() - began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done here does not count as time of the traffic."""
        began = time.process_time()
        yield
        self.seconds -= time.process_time() - began

    @property
    def end(self) -> float:
        """The test's NDCG@10 at the end."""
        return float(self.test[-1])

    def buckets(self) -> Floats:
        """The mean NDCG@10 of the lists shown between checkpoints."""
        return np.add.reduceat(self.shown, checkpoints(len(self.shown))[:-1]) / np.diff(
            checkpoints(len(self.shown))
        )


@dataclass(frozen=True, slots=True)
class SimulatedRow:
    """What several runs with the same users have in the mean."""

    users: str
    test: float
    test_std: float
    shown: float
    first: float
    submitted: float
    submitted_first: float
    wins: float | None
    submitted_wins: float | None
    rate: float

    @classmethod
    def of(cls, users: str, traces: Sequence[Trace]) -> "SimulatedRow":
        """From all runs; the deviation is n - 1, 0 of a single run."""
        ends = [trace.end for trace in traces]
        weight = sum(trace.weight for trace in traces)
        lists = sum(len(trace.shown) for trace in traces)
        return cls(
            users,
            float(np.mean(ends)),
            deviation(ends),
            mean_of_parts(trace.shown for trace in traces),
            mean_of_parts(trace.shown[:FIRST_LISTS] for trace in traces),
            mean_of_parts(trace.submitted for trace in traces),
            mean_of_parts(trace.submitted[:FIRST_LISTS] for trace in traces),
            sum(trace.won for trace in traces) / weight if weight else None,
            sum(trace.submitted_won for trace in traces) / weight if weight else None,
            lists / sum(trace.seconds for trace in traces),
        )

    def as_json(self, traces: Sequence[Trace]) -> str:
        """One object on one line, with the curves."""
        said = {name: getattr(self, name) for name in self.__slots__}
        test, shown = curves(self.users, traces)
        lines = {"test": _points(test), "shown": _points(shown)}
        return json.dumps({**said, "impressions": len(traces[0].shown), "curves": lines})


def mean_of_parts(parts: Iterator[Floats]) -> float:
    """Of all numbers of all parts."""
    return float(np.mean([part.mean() for part in parts]))


def deviation(values: Sequence[float]) -> float:
    """The standard deviation (n - 1); 0 of one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def curves(users: str, traces: Sequence[Trace]) -> tuple[Curve, Curve]:
    """Test and shown NDCG@10 over the impressions: mean and deviation over the runs."""
    ends = checkpoints(len(traces[0].shown))
    tested = np.array([trace.test for trace in traces])
    shown = np.array([trace.buckets() for trace in traces])
    return _curve(users, ends, tested), _curve(users, (ends[1:] + ends[:-1]) / 2.0, shown)


def _curve(name: str, x: Floats | Integers, runs: Floats) -> Curve:
    spread = runs.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(runs.shape[1])
    return Curve(name, x.tolist(), runs.mean(axis=0).tolist(), spread.tolist())


def _points(curve: Curve) -> dict[str, list[float]]:
    return {"impressions": curve.x, "mean": curve.mean, "std": curve.spread}


def panels(found: Sequence[tuple[str, Sequence[Trace]]]) -> list[Panel]:
    """Two panels: the test, and what users saw."""
    both = [curves(users, traces) for users, traces in found]
    return [
        Panel("test NDCG@10", [test for test, _ in both]),
        Panel("shown NDCG@10", [shown for _, shown in both]),
    ]


HEAD = ("users", "test", "shown", "first 2,000", "submitted", "wins: model", "submitted", "lists/s")


def simulation_table(rows: Sequence[SimulatedRow]) -> str:
    """The rows for people to read; NDCG@10 but for the wins and the rate."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    return "\n".join(lines)


def _cells(row: SimulatedRow) -> tuple[str, ...]:
    measures = (row.shown, row.first, row.submitted)
    return (
        row.users,
        f"{row.test:.4f} ± {row.test_std:.4f}",
        *(f"{value:.4f}" for value in measures),
        *("–" if value is None else f"{value:.4f}" for value in (row.wins, row.submitted_wins)),
        f"{row.rate:,.0f}",
    )
