"""Logs with lists of duels, for tests of the fold."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from app.domain import candidates, codec, duel_lists
from app.domain.candidates import NO_PINS, Exploration, Ranking
from app.domain.duel_lists import Sides
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import ModelState
from app.domain.records import Feedback, Record
from app.domain.reducer import Reducer
from app.ranking.serving import uniforms

N, DOCUMENTS = 3, 8
#: Teams and fair pairs of a list that is written by hand; the challenger is above in the second.
TEAMS = [0, 1, -1, -1, 1, 1]
SWAPS = np.array([[1, 0], [3, 1]])
ROWS = np.random.default_rng(2).standard_normal((6, N)).astype(np.float32)
ORDER = np.array([2, 0, 5, 1, 3, 4])


def in_duel(clicked: Sequence[int], duel: int = 1, query: str = "r", **changes: Any) -> Feedback:
    """Clicks on the list above."""
    event = Feedback(
        f"{query}{list(clicked)}", "clicks", ROWS, ORDER, clicks=np.array(clicked, np.int64),
        swaps=SWAPS, query=query, duel=np.array([duel, *TEAMS]),
    )  # fmt: skip
    return replace(event, **changes)


class Requests:
    """Feedback on rankings; each event carries what came before on its request."""

    def __init__(self, counts_abandoned: bool = False) -> None:
        self._rule = counts_abandoned
        self._so_far: dict[str, PriorFeedback] = {}

    def __call__(self, event: Feedback) -> Feedback:
        before = self._so_far.get(event.query, PriorFeedback.load(b""))
        record, self._so_far[event.query] = on_request(event, before, self._rule)
        return record


def events(posts: Sequence[Sequence[int]], duel: int = 1, query: str = "r") -> list[Record]:
    """Records of several clicks on the same list."""
    join = Requests()
    return [join(in_duel(clicks, duel, query)) for clicks in posts]


def folded(state: ModelState, records: Sequence[Record], **options: Any) -> ModelState:
    """The state after records that are all valid."""
    reducer = Reducer(state, **options)
    for record in records:
        assert reducer.apply(codec.dump_record(record))
    return reducer.state()


def ranking(rng: np.random.Generator, how: str, rows: Any) -> Ranking:
    """A ranking of the first five: `sampled`, `swapped`, `duel` or plain, in two of them pinned."""
    weights, name = rng.standard_normal(N), str(rng.integers(1 << 30))
    pinned = np.array([2]) if how in ("duel", "sampled") and rng.random() < 0.4 else NO_PINS
    if how == "duel":
        sides = Sides(weights, rng.standard_normal(N))
        return duel_lists.interleaved(rows, weights, sides, 5, partial(uniforms, name), pinned)
    explore = None if how == "plain" else Exploration(how, partial(uniforms, name), 2.0)  # type: ignore[arg-type]
    return candidates.rank_candidates(rows, weights, 5, explore, pinned)


def random_feedback(
    seed: int,
    count: int,
    hows: Sequence[str] = ("sampled", "swapped", "duel", "duel", "plain"),
    duel: int = 1,
) -> list[Record]:
    """Events of all kinds on rankings of all kinds, and with their own documents."""
    rng, join, served = np.random.default_rng(seed), Requests(True), list[Feedback]()
    found = list[Record]()
    for at in range(count):
        rows = rng.standard_normal((DOCUMENTS, N)).astype(np.float32)
        if rng.random() < 0.15:
            found.append(
                Feedback(
                    f"o{at}",
                    "labels",
                    rows,
                    labels=rng.integers(0, 3, DOCUMENTS).astype(np.float64),
                )
            )
            continue
        if not served or rng.random() < 0.6:
            one = ranking(rng, str(rng.choice(hows)), rows)
            teams = None if one.teams is None else duel_lists.with_id(duel, one.teams)
            served.append(
                Feedback(
                    "", "clicks", rows[one.shown], one.shown, odds=one.odds, swaps=one.swaps,
                    query=f"r{at}", duel=teams,
                )
            )  # fmt: skip
        found.append(
            join(_posted(rng, served[-rng.integers(1, min(4, len(served) + 1))], f"e{at}"))
        )
    return found


def _posted(rng: np.random.Generator, shown: Feedback, event: str) -> Feedback:
    """One event on a ranking: mostly clicks."""
    count, kind = (
        len(shown.documents),
        rng.choice(["clicks", "clicks", "clicks", "labels", "triplets"]),
    )
    if kind == "clicks":
        clicks = rng.integers(0, count, rng.integers(0, 3))
        return replace(shown, event=event, clicks=clicks)
    if kind == "labels":
        return replace(
            shown, event=event, kind="labels", labels=rng.integers(0, 3, count).astype(np.float64)
        )
    both = rng.integers(0, count, (2, 2))
    return replace(shown, event=event, kind="triplets", preferred=both[0], other=both[1])
