"""Results of simulated duels: a row of each run, a table, and how often which side won."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from app.domain.duels import DuelState
from app.ranking import evidence
from app.ranking.arrays import Integers
from app.ranking.duel_traffic import evidence_after, verdict

VERDICTS = {1: "champion", -1: "challenger", 0: "undecided"}


@dataclass(frozen=True, slots=True)
class DuelRow:
    """One run. Wins and win share are the champion's; `needed` counts lists up to the verdict.

    `champion_ndcg` and `challenger_ndcg` are the true NDCG@10 on the test queries at the end.
    """

    users: str
    seed: int
    lists: int
    wins: int
    losses: int
    ties: int
    win_share: float | None
    interval: tuple[float, float]
    evidence: float
    p_value: float
    verdict: str
    needed: int | None
    lists_to_go: int | None
    champion_ndcg: float | None = None
    challenger_ndcg: float | None = None

    @classmethod
    def of_outcomes(
        cls, users: str, seed: int, outcomes: Integers, alpha: float, truth: tuple[float, float]
    ) -> "DuelRow":
        """Build the row of a duel of two sides that do not learn."""
        decided = outcomes[outcomes != 0]
        won, found = int((decided > 0).sum()), verdict(outcomes, alpha)
        course = np.append(1.0, evidence_after(decided))
        return cls(
            users, seed, len(outcomes), won, len(decided) - won, len(outcomes) - len(decided),
            won / len(decided) if len(decided) else None,
            evidence.interval(won, len(decided) - won, alpha), float(course[-1]),
            float(1.0 / course.max()), VERDICTS[found.winner],
            found.lists if found.winner else None,
            None if found.winner else evidence.lists_to_go(won, len(decided) - won, alpha), *truth,
        )  # fmt: skip

    @classmethod
    def of_state(
        cls, users: str, seed: int, duel: DuelState, needed: int | None, truth: tuple[float, float]
    ) -> "DuelRow":
        """Build the row of a duel of models that learn."""
        alpha, to_go = duel.settings.alpha, evidence.lists_to_go
        return cls(
            users, seed, duel.lists, duel.wins, duel.losses, duel.lists - duel.wins - duel.losses,
            duel.won / duel.decided if duel.decided else None,
            evidence.interval(duel.won, duel.lost, alpha), duel.evidence, 1.0 / duel.largest,
            VERDICTS[duel.verdict], needed,
            None if duel.verdict else to_go(duel.won, duel.lost, alpha), *truth,
        )  # fmt: skip

    def as_json(self) -> str:
        """Return one JSON object on one line."""
        return json.dumps(asdict(self))


_HEAD = (
    "users", "seed", "lists", "wins", "losses", "ties", "win share", "interval", "evidence",
    "p-value", "verdict", "lists needed", "NDCG@10",
)  # fmt: skip


def duel_table(rows: Sequence[DuelRow]) -> str:
    """Format the rows as text."""
    cells = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def _cells(row: DuelRow) -> tuple[str, ...]:
    low, high = row.interval
    both = row.champion_ndcg, row.challenger_ndcg
    return (
        row.users, str(row.seed), *(f"{one:,}" for one in (row.lists, row.wins, row.losses)),
        f"{row.ties:,}", "–" if row.win_share is None else f"{row.win_share:.4f}",
        f"{low:.4f} to {high:.4f}", f"{row.evidence:.3g}", f"{row.p_value:.2g}", row.verdict,
        _needed(row), " / ".join("–" if one is None else f"{one:.4f}" for one in both),
    )  # fmt: skip


def _needed(row: DuelRow) -> str:
    if row.needed is not None:
        return f"{row.needed:,}"
    return "–" if row.lists_to_go is None else f"{row.lists_to_go:,} decided to go"


def verdict_counts(rows: Sequence[DuelRow]) -> str:
    """Count the verdicts of several seeds with the same users.

    >>> row = DuelRow("pbm", 0, 9, 5, 4, 0, 0.6, (0.1, 0.9), 1.0, 1.0, "undecided", None, None)
    >>> verdict_counts([row])
    'pbm: champion 0, challenger 0, undecided 1 of 1'
    """
    found = [row.verdict for row in rows]
    counts = ", ".join(f"{name} {found.count(name)}" for name in VERDICTS.values())
    text = f"{rows[0].users}: {counts} of {len(rows)}"
    needed = [row.needed for row in rows if row.needed is not None]
    return text + (f"; lists to a verdict: median {np.median(needed):,.0f}" if needed else "")
