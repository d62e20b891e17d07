"""The kernels against C and against BLAS, and the other operations without a reference.

SOLAR is measured through its public API, `learner.learn(gaps)`, so the time includes the Python
around a kernel.
"""

import ctypes
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.pairs import Pairs, from_labels
from app.ranking.solar import DEFAULT_C, DEFAULT_GAMMA, SolarI, SolarII, SolarIIDiagonal
from app.ranking.sparse import SparseRows
from benchmarks.blas import BlasII
from benchmarks.native import NativeI, NativeII, libraries
from benchmarks.report import Goal, at_least, at_most, not_measured, rate, table
from benchmarks.timing import Prepare, Run, again, side_by_side, warmed

MOST_TIMES_C = 1.2
LEAST_TIMES_BLAS = 0.8

#: Gaps in a batch, by n: enough to make Python's share small, and few enough for 8 MB of cache.
BATCH = {46: 20_000, 136: 7_000, 500: 200}
FORMS: dict[str, tuple[type[SolarI | SolarII], type[NativeI | NativeII], float]] = {
    "SOLAR-I": (SolarI, NativeI, DEFAULT_C),
    "SOLAR-II": (SolarII, NativeII, DEFAULT_GAMMA),
}


class Learner(Protocol):
    """The interface of SOLAR's and BLAS's learners."""

    def learn(self, gaps: Floats) -> object:
        """Learn from gaps, row by row."""


def run() -> list[Goal]:
    """Print three tables, return the goals."""
    return [*against_c(), *against_blas(), *without_reference()]


def random_gaps(n: int, count: int) -> Floats:
    """Random gaps without a common direction, so that every pair has a loss."""
    rng = np.random.default_rng(n)
    return rng.random((count, n)) - rng.random((count, n))


def fresh(make: Callable[[], Learner], gaps: Floats) -> Prepare:
    """A new learner in each round, constructed before the clock starts."""

    def prepare() -> Run:
        learner = make()
        return lambda: learner.learn(gaps)

    return warmed(prepare, times=3)


def agree(name: str, solar: SolarI | SolarII, other: NativeI | NativeII | BlasII) -> None:
    """Raise RuntimeError unless two learners have the same state."""
    fields = ["weights"] + ["covariance"] * isinstance(solar, SolarII)
    for field in fields:
        if not np.allclose(getattr(solar, field), getattr(other, field), rtol=1e-9, atol=1e-12):
            raise RuntimeError(f"{name}: expected SOLAR's {field}, got different values")


def against_c() -> list[Goal]:
    """SOLAR-I and SOLAR-II at 46 and 136 features, as many as LETOR 4.0 and MSLR have."""
    builds = libraries()
    if not builds:
        print("no C compiler: the C columns are skipped")
    times = {
        (form, n): side_by_side(_candidates(form, n, builds), lasting=5.0)
        for form in FORMS
        for n in (46, 136)
    }
    head = ["", "n", "pairs/s", *(text for b in builds for text in (b, f"time / {b}"))]
    rows = [_c_row(*case, seconds) for case, seconds in times.items()]
    print(table("Kernels against C, from a stream of gaps", head, rows), end="\n\n")
    return [_c_goal(*case, seconds) for case, seconds in times.items()]


def _candidates(form: str, n: int, builds: dict[str, ctypes.CDLL]) -> dict[str, Prepare]:
    solar, native, parameter = FORMS[form]
    gaps = random_gaps(n, BATCH[n])
    candidates = {"SOLAR": fresh(lambda: solar(n, parameter), gaps)}
    for build, library in builds.items():
        _check_c(form, native(library, gaps, parameter), solar(n, parameter), gaps)
        candidates[build] = warmed(partial(native, library, gaps, parameter), times=3)
    return candidates


def _check_c(form: str, native: NativeI | NativeII, solar: SolarI | SolarII, gaps: Floats) -> None:
    native()
    steps = solar.learn(gaps)
    if steps.stepped < len(gaps):
        raise RuntimeError(f"{form}: expected {len(gaps)} steps, got {steps.stepped}")
    if not np.array_equal(steps.outcome, native.outcome):
        raise RuntimeError(f"{form}: expected SOLAR's outcomes from C, got different ones")
    agree(f"{form} in C", solar, native)


def _c_row(form: str, n: int, seconds: dict[str, float]) -> list[str]:
    solar, *others = seconds.values()
    cells = [form, str(n), rate(BATCH[n], solar)]
    for other in others:
        cells += [rate(BATCH[n], other), f"{solar / other:.2f}"]
    return cells


def _c_goal(form: str, n: int, seconds: dict[str, float]) -> Goal:
    name = f"{form}, n = {n}, time"
    if "C" not in seconds:
        return not_measured(name, f"<= {MOST_TIMES_C} x C")
    return at_most(name, MOST_TIMES_C, "x C", seconds["SOLAR"] / seconds["C"])


def against_blas() -> list[Goal]:
    """SOLAR-II at 500 features, where Σ exceeds the cache of a core."""
    n, goal = 500, "SOLAR-II, n = 500, speed"
    if find_spec("scipy") is None:
        return [not_measured(goal, f">= {LEAST_TIMES_BLAS} x BLAS")]
    gaps = random_gaps(n, BATCH[n])
    _check_blas(gaps)
    makers: dict[str, Callable[[], Learner]] = {
        "SOLAR": lambda: SolarII(n),
        "BLAS, dsymv + dsyr": lambda: BlasII(n, DEFAULT_GAMMA),
    }
    seconds = side_by_side({name: fresh(make, gaps) for name, make in makers.items()}, 5.0)
    solar, blas = seconds.values()
    rows = [[name, rate(BATCH[n], spent), f"{blas / spent:.2f}"] for name, spent in seconds.items()]
    head = ["", "pairs/s", "speed / BLAS"]
    print(table("SOLAR-II with n = 500 against BLAS, one thread", head, rows), end="\n\n")
    return [at_least(goal, LEAST_TIMES_BLAS, "x BLAS", blas / solar)]


def _check_blas(gaps: Floats) -> None:
    solar, blas = SolarII(gaps.shape[1]), BlasII(gaps.shape[1], DEFAULT_GAMMA)
    solar.learn(gaps)
    blas.learn(gaps)  # if BLAS copied its arguments, nothing would be learnt
    agree("SOLAR-II on BLAS", solar, blas)


def without_reference() -> list[Goal]:
    """Operations without a goal: other inputs of the learners, and scoring."""
    candidates = {**_from_documents(), **_diagonal(), **_from_sparse_rows(), **_scoring()}
    warm = {name: warmed(again(run), times=3) for name, (_, run) in candidates.items()}
    seconds = side_by_side(warm, lasting=5.0)
    rows = [
        [name, rate(count, seconds[name]), f"{seconds[name] * 1e6:.0f} µs for {count}"]
        for name, (count, _) in candidates.items()
    ]
    print(table("Other operations, without goals", ["", "rate", "one call"], rows), end="\n\n")
    return []


def _from_documents() -> dict[str, tuple[int, Run]]:
    rng = np.random.default_rng(40)
    documents = rng.random((40, 46), dtype=np.float32)
    pairs: Pairs = from_labels(rng.integers(0, 3, 40).astype(np.float64))
    first, second = SolarI(46), SolarII(46)
    text = "40 float32 documents, n = 46, pairs"
    return {
        f"SOLAR-I, {text}": (len(pairs), lambda: first.learn_pairs(documents, pairs)),
        f"SOLAR-II, {text}": (len(pairs), lambda: second.learn_pairs(documents, pairs)),
    }


def _diagonal() -> dict[str, tuple[int, Run]]:
    gaps, learner = random_gaps(136, 2_000), SolarIIDiagonal(136)
    return {"SOLAR-II diagonal, n = 136, gaps": (len(gaps), lambda: learner.learn(gaps))}


def _from_sparse_rows() -> dict[str, tuple[int, Run]]:
    n, count, filled = 10**6, 2_000, 50
    rng = np.random.default_rng(n)
    indices = np.sort(rng.integers(0, n // filled, (count, filled)) + np.arange(0, n, n // filled))
    values = rng.random(count * filled) - rng.random(count * filled)
    starts = np.arange(0, count * filled + 1, filled)
    rows = SparseRows((count, n), starts, indices.reshape(-1), values)
    first, second = SolarI(n), SolarIIDiagonal(n)
    text = "n = 1,000,000, sparse gaps of 50"
    return {
        f"SOLAR-I, {text}": (count, lambda: first.learn(rows)),
        f"SOLAR-II diagonal, {text}": (count, lambda: second.learn(rows)),
    }


def _scoring() -> dict[str, tuple[int, Run]]:
    learner = SolarI(46, weights=np.linspace(-1.0, 1.0, 46))
    documents = random_gaps(46, 100)
    return {"scoring 100 documents, n = 46": (100, lambda: learner.score(documents))}
