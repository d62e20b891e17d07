"""The loops against C and against BLAS, and the rest of the core without a rival.

Ours is always the public API, `learner.learn(gaps)`, so the Python around a kernel is in the time.
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

MOST_TIMES_C = 1.3
LEAST_TIMES_BLAS = 0.8

#: Gaps in a batch, by n: Python's share is small, and all of them stay in a cache of 8 MB.
BATCH = {46: 20_000, 136: 7_000, 500: 200}
FORMS: dict[str, tuple[type[SolarI | SolarII], type[NativeI | NativeII], float]] = {
    "SOLAR-I": (SolarI, NativeI, DEFAULT_C),
    "SOLAR-II": (SolarII, NativeII, DEFAULT_GAMMA),
}


class Learner(Protocol):
    """What ours and BLAS's have in common."""

    def learn(self, gaps: Floats) -> object:
        """Learn from gaps, row by row."""


def run() -> list[Goal]:
    """Print three tables, return the goals."""
    return [*against_c(), *against_blas(), *without_rivals()]


def random_gaps(n: int, count: int) -> Floats:
    """Gaps without any order in them, so that the learner is never satisfied."""
    rng = np.random.default_rng(n)
    return rng.random((count, n)) - rng.random((count, n))


def fresh(make: Callable[[], Learner], gaps: Floats) -> Prepare:
    """A new learner each round, made before the clock starts."""

    def prepare() -> Run:
        learner = make()
        return lambda: learner.learn(gaps)

    return warmed(prepare, times=3)


def agree(name: str, ours: SolarI | SolarII, other: NativeI | NativeII | BlasII) -> None:
    """Raise RuntimeError unless two learners have learnt the same."""
    fields = ["weights"] + ["covariance"] * isinstance(ours, SolarII)
    for field in fields:
        if not np.allclose(getattr(ours, field), getattr(other, field), rtol=1e-9, atol=1e-12):
            raise RuntimeError(f"{name}: expected the {field} that ours has learnt, got others")


def against_c() -> list[Goal]:
    """SOLAR-I and SOLAR-II at 46 and 136 features, as many as LETOR 4.0 and MSLR have."""
    builds = libraries()
    if not builds:
        print("no C compiler: the C columns are left out")
    times = {
        (form, n): side_by_side(_rivals(form, n, builds), lasting=5.0)
        for form in FORMS
        for n in (46, 136)
    }
    head = ["", "n", "pairs/s", *(text for b in builds for text in (b, f"time / {b}"))]
    rows = [_c_row(*case, seconds) for case, seconds in times.items()]
    print(table("Kernels against C, from a stream of gaps", head, rows), end="\n\n")
    return [_c_goal(*case, seconds) for case, seconds in times.items()]


def _rivals(form: str, n: int, builds: dict[str, ctypes.CDLL]) -> dict[str, Prepare]:
    ours, native, parameter = FORMS[form]
    gaps = random_gaps(n, BATCH[n])
    rivals = {"ours": fresh(lambda: ours(n, parameter), gaps)}
    for build, library in builds.items():
        _check_c(form, native(library, gaps, parameter), ours(n, parameter), gaps)
        rivals[build] = warmed(partial(native, library, gaps, parameter), times=3)
    return rivals


def _check_c(form: str, theirs: NativeI | NativeII, ours: SolarI | SolarII, gaps: Floats) -> None:
    theirs()
    steps = ours.learn(gaps)
    if steps.stepped < len(gaps):
        raise RuntimeError(f"{form}: expected {len(gaps)} steps, got {steps.stepped}")
    if not np.array_equal(steps.outcome, theirs.outcome):
        raise RuntimeError(f"{form}: expected the outcomes of ours from C, got others")
    agree(f"{form} in C", ours, theirs)


def _c_row(form: str, n: int, seconds: dict[str, float]) -> list[str]:
    ours, *others = seconds.values()
    cells = [form, str(n), rate(BATCH[n], ours)]
    for other in others:
        cells += [rate(BATCH[n], other), f"{ours / other:.2f}"]
    return cells


def _c_goal(form: str, n: int, seconds: dict[str, float]) -> Goal:
    name = f"{form}, n = {n}, time"
    if "C" not in seconds:
        return not_measured(name, f"<= {MOST_TIMES_C} x C")
    return at_most(name, MOST_TIMES_C, "x C", seconds["ours"] / seconds["C"])


def against_blas() -> list[Goal]:
    """SOLAR-II at 500 features, where Σ no longer fits into the cache of a core."""
    n, name = 500, "SOLAR-II, n = 500, speed"
    if find_spec("scipy") is None:
        return [not_measured(name, f">= {LEAST_TIMES_BLAS} x BLAS")]
    gaps = random_gaps(n, BATCH[n])
    _check_blas(gaps)
    makers: dict[str, Callable[[], Learner]] = {
        "ours": lambda: SolarII(n),
        "BLAS, dsymv + dsyr": lambda: BlasII(n, DEFAULT_GAMMA),
    }
    seconds = side_by_side({who: fresh(make, gaps) for who, make in makers.items()}, 5.0)
    ours, blas = seconds.values()
    rows = [[who, rate(BATCH[n], spent), f"{blas / spent:.2f}"] for who, spent in seconds.items()]
    head = ["", "pairs/s", "speed / BLAS"]
    print(table("SOLAR-II with n = 500 against BLAS, one thread", head, rows), end="\n\n")
    return [at_least(name, LEAST_TIMES_BLAS, "x BLAS", blas / ours)]


def _check_blas(gaps: Floats) -> None:
    ours, blas = SolarII(gaps.shape[1]), BlasII(gaps.shape[1], DEFAULT_GAMMA)
    ours.learn(gaps)
    blas.learn(gaps)  # had it worked on copies, it would have learnt nothing
    agree("SOLAR-II on BLAS", ours, blas)


def without_rivals() -> list[Goal]:
    """What has no goal: the other ways to learn, and scoring."""
    candidates = {**_from_documents(), **_diagonal(), **_from_sparse_rows(), **_scoring()}
    warm = {name: warmed(again(run), times=3) for name, (_, run) in candidates.items()}
    seconds = side_by_side(warm, lasting=5.0)
    rows = [
        [name, rate(count, seconds[name]), f"{seconds[name] * 1e6:.0f} µs for {count}"]
        for name, (count, _) in candidates.items()
    ]
    print(table("Without goals", ["", "rate", "one call"], rows), end="\n\n")
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
