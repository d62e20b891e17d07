"""SOLAR and other libraries on the same stream of gaps.

A hidden linear utility with noise decides which document of a pair is preferred. Every library
makes one pass over the same gaps in the same order, without an intercept. Then it orders the same
held-out gaps.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.solar import DEFAULT_C, SolarI, SolarII
from benchmarks.contenders import (
    Contender,
    River,
    ScikitLearn,
    SolarBatch,
    SolarOneByOne,
    VowpalWabbit,
)
from benchmarks.report import Goal, rate, table
from benchmarks.timing import Run, side_by_side, warmed

N = 46
PAIRS, HELD_OUT = 20_000, 5_000
#: The number of pairs for calls that take about a millisecond a pair.
SLOW_PAIRS = 2_000
#: The spread of the noise in a judgement, as a share of the spread of the true differences.
NOISE = 0.3
SECONDS = 30.0


class Peer(NamedTuple):
    """A row of the table; `needs` is a module and a name that it must contain."""

    library: str
    call: str
    needs: str
    make: Callable[[Floats], Contender]
    pairs: int = PAIRS


def _sgd(gaps: Floats, size: int) -> Contender:
    return ScikitLearn(gaps, size, "SGDClassifier", loss="squared_hinge")


def _passive_aggressive(gaps: Floats) -> Contender:
    name = "PassiveAggressiveClassifier"
    return ScikitLearn(gaps, len(gaps), name, loss="squared_hinge", C=DEFAULT_C)


SOLAR, SKLEARN = "app.ranking.solar:SolarI", "sklearn.linear_model:SGDClassifier"
PEERS = (
    Peer("SOLAR-I", "learn, one batch", SOLAR, lambda gaps: SolarBatch(SolarI(N), gaps)),
    Peer("SOLAR-II", "learn, one batch", SOLAR, lambda gaps: SolarBatch(SolarII(N), gaps)),
    Peer("SOLAR-I", "learn, one by one", SOLAR, lambda gaps: SolarOneByOne(SolarI(N), gaps)),
    Peer("SOLAR-II", "learn, one by one", SOLAR, lambda gaps: SolarOneByOne(SolarII(N), gaps)),
    Peer("river PAClassifier", "learn_one, dicts", "river.linear_model:PAClassifier", River),
    Peer(
        "scikit-learn SGDClassifier",
        "partial_fit, one batch",
        SKLEARN,
        lambda gaps: _sgd(gaps, len(gaps)),
    ),
    Peer(
        "scikit-learn SGDClassifier",
        f"partial_fit, one by one, {SLOW_PAIRS:,} pairs",
        SKLEARN,
        lambda gaps: _sgd(gaps, 1),
        SLOW_PAIRS,
    ),
    Peer(
        "scikit-learn PassiveAggressiveClassifier",
        "partial_fit, one batch",
        "sklearn.linear_model:PassiveAggressiveClassifier",
        _passive_aggressive,
    ),
    Peer("Vowpal Wabbit", "learn, parsed examples", "vowpalwabbit:Workspace", VowpalWabbit),
)


class Turn:
    """A peer's turns in the benchmark; it keeps the contender of the last one."""

    def __init__(self, peer: Peer, gaps: Floats) -> None:
        self._make, self._gaps = peer.make, gaps[: peer.pairs]
        self.contender: Contender | None = None

    def __call__(self) -> Run:
        """Construct a new contender for its pass."""
        self.contender = self._make(self._gaps)
        return self.contender

    def share(self, held_out: Floats) -> float:
        """The share of held-out gaps that the last contender orders correctly."""
        if self.contender is None:
            raise RuntimeError("share: expected a contender that has learnt, got none")
        return float(np.mean(held_out @ self.contender.weights > 0.0))


def run() -> list[Goal]:
    """Print the table; there are no goals."""
    gaps, held_out = np.split(synthetic_gaps(PAIRS + HELD_OUT), [PAIRS])
    turns = {peer: Turn(peer, gaps) for peer in PEERS if not missing(peer.needs)}
    seconds = side_by_side({peer: warmed(turn) for peer, turn in turns.items()}, SECONDS)
    rows = [_row(peer, turns.get(peer), seconds, held_out) for peer in PEERS]
    title = f"{PAIRS:,} gaps of {N} features, one pass; then {HELD_OUT:,} held-out gaps"
    head = ["library", "call", "pairs/s", "time / SOLAR-I", "ordered correctly"]
    print(table(title, head, rows, words=2), end="\n\n")
    return []


def _row(peer: Peer, turn: Turn | None, seconds: dict[Peer, float], held_out: Floats) -> list[str]:
    if turn is None:
        return [peer.library, peer.call, missing(peer.needs), "", ""]
    times = seconds[peer] / peer.pairs / (seconds[PEERS[0]] / PAIRS)
    share = turn.share(held_out)
    return [
        *(peer.library, peer.call, rate(peer.pairs, seconds[peer])),
        *(f"{times:,.1f}", f"{share:.1%}"),
    ]


def synthetic_gaps(count: int) -> Floats:
    """Gaps of documents with a linear utility; noise is added before the preference."""
    rng = np.random.default_rng(2016)
    utility = rng.standard_normal(N)
    gaps = rng.random((count, N)) - rng.random((count, N))
    differences = gaps @ utility
    judged = differences + NOISE * differences.std() * rng.standard_normal(count)
    signed: Floats = gaps * np.where(judged > 0.0, 1.0, -1.0)[:, None]
    return signed


def missing(needs: str) -> str:
    """Why `module:name` is unavailable; empty if it is available."""
    module, name = needs.split(":")
    try:
        found = hasattr(import_module(module), name)
    except ModuleNotFoundError:
        return "not installed"
    return "" if found else "not in this version"
