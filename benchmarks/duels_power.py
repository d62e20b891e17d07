"""Duels between models of different quality: verdicts, the lists they need, and other measures.

The win share of a case is measured apart on 300,000 lists. Where it is clear (0.02 from one half
or more), the verdict should be right within 30,000 lists in at least 95 % of the seeds. All other
duels go on for up to 300,000 lists. Beside it, for the same 30,000 lists: a z-test at the end, and
debiased wins of 30,000 rankings that the champion draws. `possible` is the share of right verdicts
of a coin with this win share, thrown as often as lists of this case are decided in 30,000.
"""

from itertools import permutations
from typing import NamedTuple

import numpy as np

from app.ranking import duel_traffic, traffic
from app.ranking.arrays import Floats, Integers
from app.ranking.solar import SolarII
from app.ranking.traffic import FixedRanker, Show, Site
from benchmarks.clicks_runs import USERS, share_out
from benchmarks.clicks_wins import ordered
from benchmarks.duels_cases import ALPHA, MODELS, data_sets, models, orders, site, users
from benchmarks.duels_null import Z, z_scores
from benchmarks.report import Goal, table
from benchmarks.worlds import worlds

SEEDS, LISTS, MEASURED = 40, 30_000, 300_000
#: Seeds of debiased wins, which take longer.
WINS_SEEDS = 5
CLEAR, WANTED = 0.02, 0.95
COINS = 1_000
#: Win shares and spreads `a` of the table on coins.
SHARES, SPREADS = (0.51, 0.52, 0.53, 0.55, 0.6), (30.0, 100.0, 300.0, 1000.0)
COIN_THROWS = 100_000


class Case(NamedTuple):
    """Two models on the test queries of a data set, seen by these users."""

    data: str
    champion: str
    challenger: str
    users: str


class Found(NamedTuple):
    """What was measured; verdicts count as (right, wrong) by the win share measured apart.

    `needed` is the number of lists of each seed, `most` and one more if it has no verdict by then.
    `z` is that of the debiased wins of each seed.
    """

    truth: float
    share: float
    decided: float
    possible: float
    verdicts: tuple[int, int]
    late: tuple[int, int]
    needed: Integers
    most: int
    end: tuple[int, int]
    z: Floats

    @property
    def clear(self) -> bool:
        """Whether the goal counts for this case."""
        return abs(self.share - 0.5) >= CLEAR

    @property
    def met(self) -> bool:
        """Whether enough verdicts are right."""
        return self.verdicts[0] >= WANTED * SEEDS


def run() -> list[Goal]:
    """Print all cases and the table of coins; return the goals."""
    goals = list[Goal]()
    for data in data_sets():
        cases = [Case(data, *pair, name) for pair in permutations(MODELS, 2) for name in USERS]
        found = dict(zip(cases, share_out(measure, cases), strict=True))
        _print_cases(data, found)
        goals += _goals(data, found)
    print(_coins(), end="\n\n")
    return goals


def _goals(data: str, found: dict[Case, Found]) -> list[Goal]:
    clear = [one for one in found.values() if one.clear]
    met = sum(one.met for one in clear)
    able = sum(one.possible >= WANTED for one in clear)
    wrong = max(one.verdicts[1] for one in found.values())
    most = int(ALPHA * SEEDS)
    return [
        Goal(f"{data}: clear duels with >= 95 % right verdicts", f"{len(clear)} of {len(clear)}",
             f"{met}; a coin: {able}", met == len(clear)),
        Goal(f"{data}: wrong verdicts, worst of {len(found)} duels", f"<= {most} of {SEEDS}",
             str(wrong), wrong <= most),
    ]  # fmt: skip


def _print_cases(data: str, found: dict[Case, Found]) -> None:
    ndcg = ", ".join(f"{name} {site(data).ndcg(w):.4f}" for name, w in models(data).items())
    print(f"{data}: NDCG@10: {ndcg}")
    for clear in (True, False):
        rows = [_row(case, one) for case, one in found.items() if one.clear == clear]
        which = "0.02 or more from one half" if clear else "nearer to one half"
        title = f"Duels whose win share is {which}: {SEEDS} seeds of {LISTS:,} lists"
        head = ["champion", "challenger", "users", "ΔNDCG@10", "win share", "decided",
                "right/wrong", "possible", "later", "lists: median", "90 %", "z-test",
                "wins: z"]  # fmt: skip
        print(table(title, head, rows, words=3), end="\n\n")


def _row(case: Case, one: Found) -> list[str]:
    median, last = np.quantile(one.needed, (0.5, 0.9), method="higher").tolist()
    return [
        case.champion, case.challenger, case.users, f"{one.truth:+.4f}", f"{one.share:.4f}",
        f"{one.decided:.3f}", _pair(one.verdicts), f"{one.possible:.2f}", _pair(one.late),
        _lists(median, one.most), _lists(last, one.most), _pair(one.end),
        f"{one.z.mean():+.1f} ({one.z.min():+.1f} to {one.z.max():+.1f})",
    ]  # fmt: skip


def _pair(counts: tuple[int, int]) -> str:
    return f"{counts[0]}/{counts[1]}"


def _lists(count: int, most: int) -> str:
    return f"{count:,}" if count <= most else f"> {most:,}"


def measure(case: Case) -> Found:
    """Measure one case."""
    apart = play(case, 10_000, MEASURED)
    decided = apart[apart != 0]
    share, sign = float((decided > 0).mean()), int(np.sign(decided.sum()))
    lists = LISTS if abs(share - 0.5) >= CLEAR else MEASURED
    found = [play(case, seed, lists) for seed in range(SEEDS)]
    early = [duel_traffic.verdict(one[:LISTS], ALPHA) for one in found]
    late = early if lists == LISTS else [duel_traffic.verdict(one, ALPHA) for one in found]
    needed = np.array([one.lists if one.winner else lists + 1 for one in late])
    ends = [_end(one[:LISTS]) for one in found]
    one, other = (models(case.data)[name] for name in case[1:3])
    truth = site(case.data).ndcg(one) - site(case.data).ndcg(other)
    return Found(
        truth, share, len(decided) / MEASURED, possible(share, len(decided) * LISTS // MEASURED),
        _counts([one.winner for one in early], sign), _counts([one.winner for one in late], sign),
        needed, lists, _counts(ends, sign), debiased_wins(case),
    )  # fmt: skip


def play(case: Case, seed: int, lists: int) -> Integers:
    """Return the outcomes of one duel."""
    rng = np.random.default_rng([seed, 41, *map(MODELS.index, case[1:3])])
    both = orders(case.data, case.champion, case.challenger)
    return duel_traffic.play(site(case.data), both, users(case.data, case.users), rng, lists)


def _counts(winners: list[int], sign: int) -> tuple[int, int]:
    return winners.count(sign), winners.count(-sign)


def _end(outcomes: Integers) -> int:
    """Return the verdict of a z-test that is looked at once, at the end."""
    decided = outcomes[outcomes != 0]
    z = float(z_scores(decided)[-1]) if len(decided) else 0.0
    return int(np.sign(z)) if abs(z) > Z else 0


def possible(share: float, decided: int) -> float:
    """Return how often a coin with this win share gets the right verdict in these throws."""
    sign = 1 if share >= 0.5 else -1
    return float(np.mean([one.winner == sign for one in _thrown(share, decided, COINS)]))


def _thrown(
    share: float, throws: int, count: int, spread: float = 100.0
) -> list[duel_traffic.DuelVerdict]:
    rng = np.random.default_rng(42)
    coins = (np.where(rng.random(throws) < share, 1, -1) for _ in range(count))
    return [duel_traffic.verdict(one, ALPHA, spread) for one in coins]


def _coins() -> str:
    """Return decided lists to a verdict by win share: a property of the evidence alone."""
    rows = []
    for share in SHARES:
        for spread in SPREADS:
            needed = [one.decided if one.winner > 0 else COIN_THROWS + 1
                      for one in _thrown(share, COIN_THROWS, COINS, spread)]  # fmt: skip
            cells = np.quantile(needed, (0.5, 0.9, 0.95), method="higher").astype(int).tolist()
            rows.append([f"{share:g}", f"{spread:g}", *(f"{one:,}" for one in cells)])
    title = f"Decided lists to a right verdict, α = {ALPHA}, of coins with this win share"
    return table(title, ["win share", "a", "median", "90 %", "95 %"], rows)


def debiased_wins(case: Case) -> Floats:
    """Return z of the lead of the champion in debiased wins, by seed; the champion draws."""
    judged, weights = worlds()[case.data].judged, models(case.data)
    arranged = Site.of([ordered(query, weights[case.challenger]) for query in judged.test])
    fixed = FixedRanker(SolarII(judged.n, weights=weights[case.champion]), Show())
    found = np.empty(WINS_SEEDS)
    for seed in range(WINS_SEEDS):
        rng = np.random.default_rng([seed, 43])
        visits = traffic.visits(arranged, fixed, users(case.data, case.users), rng, LISTS)
        leads = np.array([one.won - one.submitted_won for one in visits])
        found[seed] = leads.mean() / leads.std() * LISTS**0.5
    return found
