"""Growth of processes and drift of latencies, against their goals."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isnan
from statistics import median
from typing import NamedTuple

from tests.soak.goals import Goal
from tests.soak.plan import Plan
from tests.soak.samples import Sample

MOST_DESCRIPTORS = 5
MOST_GROWTH = 0.10
MOST_DRIFT = 1.2
#: Roles whose memory and descriptors have goals; others live for seconds.
LASTING = ("supervisor", "worker", "learner", "store")


class Growth(NamedTuple):
    """A process at the age from which on it must not grow, and at its end, in seconds."""

    role: str
    pid: int
    begin: float
    end: float
    rss: tuple[float, float]
    descriptors: tuple[float, float]
    threads: tuple[float, float]

    @property
    def growth(self) -> float:
        """The growth of its memory, as a share."""
        return self.rss[1] / self.rss[0] - 1

    @property
    def more_descriptors(self) -> float:
        """The growth of its descriptors."""
        return self.descriptors[1] - self.descriptors[0]


def series(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Group samples by process; a process that was restarted begins a new series."""
    found = defaultdict[tuple[str, int], list[Sample]](list)
    for one in samples:
        found[one.role, one.pid].append(one)
    return [found[name] for name in sorted(found, key=lambda name: (name[0], found[name][0].at))]


def growths(samples: Iterable[Sample], warm: float, span: float) -> list[Growth]:
    """Return the growth of each process that lived for two spans after the age `warm`."""
    found = []
    for one in series(samples):
        born, died = one[0].at, one[-1].at
        if not one[0].role.startswith(LASTING) or died - born < warm + 2 * span:
            continue
        early = [each for each in one if warm <= each.at - born <= warm + span]
        late = [each for each in one if each.at >= died - span]
        if early and late:
            found.append(_growth(early, late))
    return found


def _growth(early: Sequence[Sample], late: Sequence[Sample]) -> Growth:
    def both(name: str) -> tuple[float, float]:
        first, last = (median(getattr(one, name) for one in part) for part in (early, late))
        return float(first), float(last)

    return Growth(
        early[0].role, early[0].pid, early[0].at, late[-1].at,
        both("rss"), both("descriptors"), both("threads"),
    )  # fmt: skip


def growth_goals(found: Sequence[Growth], *, judged: bool = True) -> list[Goal]:
    """Judge memory and descriptors by role: the worst process of each."""
    goals = []
    for role in sorted({one.role for one in found}):
        own = [one for one in found if one.role == role]
        worst = max(own, key=lambda one: abs(one.more_descriptors))
        few = abs(worst.more_descriptors) <= MOST_DESCRIPTORS
        goals.append(
            Goal(
                f"descriptors of {role}", f"± {MOST_DESCRIPTORS}",
                f"{worst.more_descriptors:+.0f}", few if judged else None,
            )
        )  # fmt: skip
        if role != "store":  # its data grow: see store_goal
            most = max(own, key=lambda one: one.growth)
            small = most.growth <= MOST_GROWTH
            goals.append(
                Goal(
                    f"memory of {role}", f"<= +{MOST_GROWTH:.0%}", f"{most.growth:+.1%}",
                    small if judged else None,
                )
            )  # fmt: skip
    return goals


def store_goals(
    found: Sequence[Growth], data: Sequence[tuple[float, int]], span: float, *, judged: bool = True
) -> list[Goal]:
    """Judge the memory of the store beyond its data, which grow until the logs are trimmed.

    `data` are moments and the bytes that the server has allocated.
    """
    goals = []
    for one in [one for one in found if one.role == "store"]:
        early = [size for at, size in data if one.begin <= at <= one.begin + span]
        late = [size for at, size in data if one.end - span <= at <= one.end]
        if not early or not late:
            continue
        beyond = (one.rss[1] - median(late)) - (one.rss[0] - median(early))
        share = beyond / one.rss[0]
        goals.append(
            Goal("memory of store beyond its data", f"<= +{MOST_GROWTH:.0%}", f"{share:+.1%}",
                 share <= MOST_GROWTH if judged else None)
        )  # fmt: skip
    return goals


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values do not exceed; NaN without values.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, int(len(ordered) * share + 0.5) - 1)] if ordered else float("nan")


def drift_goals(
    latencies: Mapping[str, Sequence[tuple[float, float]]], plan: Plan, *, judged: bool = True
) -> list[Goal]:
    """Judge p99 of the last window against the better of the first two, by path.

    The first minute of the first one warms up and is left out. `latencies` are (at, took).
    """
    goals, window = [], plan.window
    for path, values in latencies.items():
        first, second, last = (
            percentile([took for at, took in values if begin <= at < end], 0.99)
            for begin, end in (
                (plan.warm_up, window), (window, 2 * window), (plan.seconds - window, inf),
            )
        )  # fmt: skip
        first = second if second < first or isnan(first) else first
        ratio = last / first
        goals.append(
            Goal(
                f"p99 of {path}, last against first or second {window / 60:.2g} min",
                f"<= {MOST_DRIFT:g} x",
                f"{ratio:.2f} x ({1000 * first:.1f} to {1000 * last:.1f} ms)",
                ratio <= MOST_DRIFT if judged else None,
            )
        )
    return goals


def run_goals(
    before: Mapping[str, Mapping[str, float]],
    now: Mapping[str, Mapping[str, float]],
    *,
    judged: bool = True,
) -> list[Goal]:
    """Judge memory and descriptors by role against those of the run before on the same data.

    Both are values after as many minutes, before any fault.
    """
    goals = []
    for role in sorted(before.keys() & now.keys()):
        more = now[role]["descriptors"] - before[role]["descriptors"]
        grown = now[role]["rss"] / before[role]["rss"] - 1
        few, small = abs(more) <= MOST_DESCRIPTORS, grown <= MOST_GROWTH
        goals.append(
            Goal(f"descriptors of {role}, against the run before", f"± {MOST_DESCRIPTORS}",
                 f"{more:+.0f}", few if judged else None)
        )  # fmt: skip
        if role != "store":
            goals.append(
                Goal(f"memory of {role}, against the run before", f"<= +{MOST_GROWTH:.0%}",
                     f"{grown:+.1%}", small if judged else None)
            )  # fmt: skip
    return goals


def values_at(samples: Iterable[Sample], begin: float, end: float) -> dict[str, dict[str, float]]:
    """Return the medians between two moments, by role."""
    among = [one for one in samples if begin <= one.at <= end]
    return {
        role: {
            name: float(median(getattr(one, name) for one in among if one.role == role))
            for name in ("rss", "descriptors", "threads")
        }
        for role in {one.role for one in among if one.role.startswith(LASTING)}
    }
