"""One stream of gaps through SOLAR and through other libraries.

A hidden linear utility, seen through noise, says which document of a pair is preferred. Every
library makes one pass over the same gaps in the same order, without an intercept, and is then asked
to order the same held-out gaps.
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
#: What takes a millisecond a pair gets only the first of them.
FEW = 2_000
#: The spread of the noise in a judgement, as a share of the spread of the true differences.
NOISE = 0.3
SECONDS = 30.0


class Peer(NamedTuple):
    """A row of the table; `needs` names a module and what must be in it."""

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


OURS, SKLEARN = "app.ranking.solar:SolarI", "sklearn.linear_model:SGDClassifier"
PEERS = (
    Peer("SOLAR-I", "learn, one batch", OURS, lambda gaps: SolarBatch(SolarI(N), gaps)),
    Peer("SOLAR-II", "learn, one batch", OURS, lambda gaps: SolarBatch(SolarII(N), gaps)),
    Peer("SOLAR-I", "learn, one by one", OURS, lambda gaps: SolarOneByOne(SolarI(N), gaps)),
    Peer("SOLAR-II", "learn, one by one", OURS, lambda gaps: SolarOneByOne(SolarII(N), gaps)),
    Peer("river PAClassifier", "learn_one, dicts", "river.linear_model:PAClassifier", River),
    Peer(
        "scikit-learn SGDClassifier",
        "partial_fit, one batch",
        SKLEARN,
        lambda gaps: _sgd(gaps, len(gaps)),
    ),
    Peer(
        "scikit-learn SGDClassifier",
        f"partial_fit, one by one, {FEW:,} pairs",
        SKLEARN,
        lambda gaps: _sgd(gaps, 1),
        FEW,
    ),
    Peer(
        "scikit-learn PassiveAggressiveClassifier",
        "partial_fit, one batch",
        "sklearn.linear_model:PassiveAggressiveClassifier",
        _passive_aggressive,
    ),
    Peer("Vowpal Wabbit", "learn, parsed examples", "vowpalwabbit:Workspace", VowpalWabbit),
)


class LogEntry:
    """A peer in the race; it keeps the contender of its last turn, to be examined."""

    def __init__(self, peer: Peer, gaps: Floats) -> None:
        self._make, self._gaps = peer.make, gaps[: peer.pairs]
        self.contender: Contender | None = None

    def __call__(self) -> Run:
        """A new contender before its pass."""
        self.contender = self._make(self._gaps)
        return self.contender

    def share(self, held_out: Floats) -> float:
        """The share of held-out gaps that the last contender orders as the judges did."""
        if self.contender is None:
            raise RuntimeError("share: expected a contender that has learnt, got none")
        return float(np.mean(held_out @ self.contender.weights > 0.0))


def run() -> list[Goal]:
    """Print the table; there are no goals."""
    gaps, held_out = np.split(world(PAIRS + HELD_OUT), [PAIRS])
    entries = {peer: LogEntry(peer, gaps) for peer in PEERS if not missing(peer.needs)}
    seconds = side_by_side({peer: warmed(entry) for peer, entry in entries.items()}, SECONDS)
    rows = [_row(peer, entries.get(peer), seconds, held_out) for peer in PEERS]
    title = f"{PAIRS:,} gaps of {N} features, one pass; then {HELD_OUT:,} held-out gaps"
    head = ["library", "call", "pairs/s", "time / SOLAR-I", "ordered"]
    print(table(title, head, rows, words=2), end="\n\n")
    return []


def _row(
    peer: Peer, entry: LogEntry | None, seconds: dict[Peer, float], held_out: Floats
) -> list[str]:
    if entry is None:
        return [peer.library, peer.call, missing(peer.needs), "", ""]
    times = seconds[peer] / peer.pairs / (seconds[PEERS[0]] / PAIRS)
    share = entry.share(held_out)
    return [
        *(peer.library, peer.call, rate(peer.pairs, seconds[peer])),
        *(f"{times:,.1f}", f"{share:.1%}"),
    ]


def world(count: int) -> Floats:
    """Gaps from documents whose utility is linear, preferred as a noisy judge says."""
    rng = np.random.default_rng(2016)
    utility = rng.standard_normal(N)
    gaps = rng.random((count, N)) - rng.random((count, N))
    differences = gaps @ utility
    judged = differences + NOISE * differences.std() * rng.standard_normal(count)
    turned: Floats = gaps * np.where(judged > 0.0, 1.0, -1.0)[:, None]
    return turned


def missing(needs: str) -> str:
    """Why `module:name` cannot be had; nothing if it can."""
    module, name = needs.split(":")
    try:
        found = hasattr(import_module(module), name)
    except ModuleNotFoundError:
        return "not installed"
    return "" if found else "not in this version"
