"""Processes that ended outside of faults, and roles of which no process lived long enough."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tests.soak.announcements import Announcement
from tests.soak.drift import LASTING, Growth
from tests.soak.goals import Goal
from tests.soak.samples import Sample
from tests.soak.service import complete_roles

#: Seconds before the end of a run from which on a role may have no process.
MOST_ABSENT = 60.0


def unexplained(
    samples: Iterable[Sample], announced: Sequence[Announcement], seconds: float
) -> Iterator[str]:
    """Name each process that ended while nothing disturbed the service.

    A sample of the next process of its role tells, or that there is none until the end.
    """
    by_role: dict[str, list[Sample]] = {}
    for one in samples:
        if one.role.startswith(LASTING):
            by_role.setdefault(one.role, []).append(one)
    faults = [(one.at, one.at + one.seconds) for one in announced if one.disturbs]
    for role, own in by_role.items():
        for old, new in pairwise(own):
            if old.pid != new.pid and not any(
                begin <= new.at and end >= old.at for begin, end in faults
            ):
                yield f"{role} at {new.at:.0f} s"
        if own[-1].at < seconds - MOST_ABSENT:
            yield f"{role} after {own[-1].at:.0f} s"


def restart_goals(
    samples: Iterable[Sample], announced: Sequence[Announcement], seconds: float
) -> list[Goal]:
    """Judge that no process ends by itself."""
    found = list(unexplained(samples, announced, seconds))
    shown = ": ".join([str(len(found)), ", ".join(found[:3])] if found else ["0"])
    return [Goal("restarts outside of faults", "0", shown, not found)]


def lifetime_goals(found: Sequence[Growth], workers: int, *, judged: bool = True) -> list[Goal]:
    """Judge that the growth of each role is judged: one of its processes lived long enough."""
    return [
        Goal(f"processes of {role} that lived long enough", ">= 1", "0", False if judged else None)
        for role in sorted(complete_roles(workers) - {one.role for one in found})
    ]
