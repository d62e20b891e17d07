"""Duels between equal sides: how often there is a verdict by mistake.

Users who see only positions click on lists of any two models. Users who see grades click on lists
of two models that are exchanged at random from list to list. A duel goes on for 20,000 decided
lists. As a contrast: a z-test that is looked at after every list.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from app.ranking import duel_traffic
from app.ranking.arrays import Floats, Integers
from benchmarks.clicks_runs import USERS, share_out
from benchmarks.duels_cases import ALPHA, blind_users, data_sets, orders, site, users
from benchmarks.report import Goal, table

SEEDS, DECIDED = 500, 20_000
LISTS_AT_ONCE = 20_000
PAIRS = (("good", "feature"), ("few", "noisy"))
#: 1.96 standard errors; first looked at after 100 decided lists.
Z, FIRST_LOOK = 1.959964, 100


class Null(NamedTuple):
    """Two models; users who see only positions, or others and models that are exchanged."""

    data: str
    champion: str
    challenger: str
    users: str
    exchanged: bool


class Alarms(NamedTuple):
    """The number of duels with a verdict: by evidence, and by a z-test looked at all the time."""

    evidence: int
    repeated_z: int
    decided_share: float


def run() -> list[Goal]:
    """Print all cases; the goal is at most α of the duels in each."""
    cases = list(nulls())
    found = dict(zip(cases, share_out(alarms, cases), strict=True))
    rows = [
        [case.data, f"{case.champion} / {case.challenger}", case.users, _kind(case),
         f"{one.decided_share:.3f}", str(one.evidence), str(one.repeated_z)]
        for case, one in found.items()
    ]  # fmt: skip
    head = ["data", "models", "users", "equal because", "decided", "verdicts", "repeated z"]
    title = f"Verdicts between equal sides: {SEEDS} seeds of {DECIDED:,} decided lists, α = {ALPHA}"
    print(table(title, head, rows, words=4), end="\n\n")
    most = round(ALPHA * SEEDS)
    worst = max(one.evidence for one in found.values())
    total = sum(one.evidence for one in found.values())
    share = f"{total} of {SEEDS * len(found):,} in all"
    wanted = f"<= {most} of {SEEDS}"
    goal = "verdicts between equal sides, worst case"
    return [Goal(goal, wanted, f"{worst}; {share}", worst <= most)]


def _kind(case: Null) -> str:
    return "models exchanged" if case.exchanged else "only positions count"


def nulls() -> Iterator[Null]:
    """Yield all cases."""
    for data in data_sets()[:2]:
        for pair in PAIRS:
            for name in blind_users():
                yield Null(data, *pair, name, exchanged=False)
        for name in USERS:
            yield Null(data, *PAIRS[0], name, exchanged=True)


def alarms(case: Null) -> Alarms:
    """Count verdicts over all seeds."""
    found = [outcomes(case, seed) for seed in range(SEEDS)]
    decided = [one[one != 0] for one in found]
    return Alarms(
        sum(duel_traffic.verdict(one, ALPHA).winner != 0 for one in decided),
        sum(_repeated(one) for one in decided),
        sum(map(len, decided)) / sum(map(len, found)),
    )


def outcomes(case: Null, seed: int, wanted: int = DECIDED) -> Integers:
    """Return the outcomes of one duel, up to this number of decided lists."""
    crowd = users(case.data, case.users) if case.exchanged else blind_users()[case.users]
    rng = np.random.default_rng([seed, 40])
    both = site(case.data), orders(case.data, case.champion, case.challenger)
    parts, count = list[Integers](), 0
    while count < wanted:
        part = duel_traffic.play(*both, crowd, rng, LISTS_AT_ONCE)
        if case.exchanged:
            part *= np.where(rng.random(len(part)) < 0.5, 1, -1)
        parts.append(part)
        count += int(np.count_nonzero(part))
    found = np.concatenate(parts)
    last = np.flatnonzero(found)[wanted - 1]
    return found[: last + 1]


def z_scores(decided: Integers) -> Floats:
    """Return (wins - losses)/√n after each decided list."""
    found: Floats = decided.cumsum() / np.sqrt(np.arange(1, len(decided) + 1))
    return found


def _repeated(decided: Integers) -> bool:
    return bool((np.abs(z_scores(decided))[FIRST_LOOK:] > Z).any())
