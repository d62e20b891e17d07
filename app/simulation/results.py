"""Results of simulated traffic: a trace of each run, a row and curves of several runs.

Measures: NDCG@10 of the model order on the test queries, NDCG@10 of the shown rankings and of the
submitted order, and the debiased wins of the model order and of the submitted order.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from app.evaluation.plots import Curve, Panel
from app.ranking.arrays import Floats, Integers
from app.ranking.traffic import Visit

#: Number of tests in a run, the one before the first impression not counted.
CHECKPOINTS = 40
#: Rankings that count as the cold start.
FIRST_RANKINGS = 2_000


def checkpoints(impressions: int) -> Integers:
    """Return the numbers of impressions after which the model is tested, from 0 to all.

    >>> checkpoints(3)
    array([0, 1, 2, 3])
    """
    count = min(CHECKPOINTS, impressions)
    return np.arange(count + 1) * impressions // count


@dataclass(slots=True)
class Trace:
    """One run: NDCG@10 of each shown ranking and submitted order, and of the test at checkpoints.

    `weight` is the total weight of all pairs. `won` and `submitted_won` are the weights of the
    pairs that the model order and the submitted order rank correctly. `seconds` excludes tests.
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
        """Return an empty trace; `by_query` is the NDCG@10 of each query's submitted order."""
        tests = len(checkpoints(impressions))
        return cls(np.zeros(impressions), np.zeros(impressions), np.zeros(tests), by_query)

    def add(self, at: int, visit: Visit) -> None:
        """Add the results of one visit."""
        self.shown[at] = visit.ndcg
        self.submitted[at] = self.by_query[visit.query]
        self.weight += visit.weight
        self.won += visit.won
        self.submitted_won += visit.submitted_won

    def timed(self, visits: Iterator[Visit]) -> Iterator[Visit]:
        """Pass the visits on, and add up their CPU time."""
        began = time.process_time()
        yield from visits
        self.seconds += time.process_time() - began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the CPU time of this block from that of the traffic."""
        began = time.process_time()
        yield
        self.seconds -= time.process_time() - began

    @property
    def end(self) -> float:
        """The NDCG@10 of the last test."""
        return float(self.test[-1])

    def buckets(self) -> Floats:
        """Return the mean NDCG@10 of the rankings shown between checkpoints."""
        return np.add.reduceat(self.shown, checkpoints(len(self.shown))[:-1]) / np.diff(
            checkpoints(len(self.shown))
        )


@dataclass(frozen=True, slots=True)
class SimulatedRow:
    """The means of several runs with the same users."""

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
        """Build a row from all runs; the deviation uses n - 1, and is 0 for a single run."""
        ends = [trace.end for trace in traces]
        weight = sum(trace.weight for trace in traces)
        rankings = sum(len(trace.shown) for trace in traces)
        return cls(
            users,
            float(np.mean(ends)),
            deviation(ends),
            mean_of_parts(trace.shown for trace in traces),
            mean_of_parts(trace.shown[:FIRST_RANKINGS] for trace in traces),
            mean_of_parts(trace.submitted for trace in traces),
            mean_of_parts(trace.submitted[:FIRST_RANKINGS] for trace in traces),
            sum(trace.won for trace in traces) / weight if weight else None,
            sum(trace.submitted_won for trace in traces) / weight if weight else None,
            rankings / sum(trace.seconds for trace in traces),
        )

    def as_json(self, traces: Sequence[Trace]) -> str:
        """Return one JSON object on one line, with the curves."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        test, shown = curves(self.users, traces)
        lines = {"test": _points(test), "shown": _points(shown)}
        return json.dumps({**fields, "impressions": len(traces[0].shown), "curves": lines})


def mean_of_parts(parts: Iterator[Floats]) -> float:
    """Return the mean of the means of the parts."""
    return float(np.mean([part.mean() for part in parts]))


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation (n - 1); 0 for one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def curves(users: str, traces: Sequence[Trace]) -> tuple[Curve, Curve]:
    """Return test and shown NDCG@10 over the impressions: mean and deviation over the runs."""
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
    """Return two panels: NDCG@10 of the test, and of the shown rankings."""
    both = [curves(users, traces) for users, traces in found]
    return [
        Panel("test NDCG@10", [test for test, _ in both]),
        Panel("shown NDCG@10", [shown for _, shown in both]),
    ]


HEAD = (
    "users", "test", "shown", "first 2,000", "submitted", "wins: model", "wins: submitted",
    "rankings/s",
)  # fmt: skip


def simulation_table(rows: Sequence[SimulatedRow]) -> str:
    """Format the rows as text; all columns except wins and rate are NDCG@10."""
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
