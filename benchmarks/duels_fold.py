"""The cost of followers and duels: folds of the same log, and records of lists of duels.

Records are made by simulated users; then they are folded again, side by side. Each fold decodes the
records itself, as in a learner. The last table has the ranking of a request, without the answer.
"""

from collections.abc import Sequence

import numpy as np

from app.domain import candidates, codec, duel_lists
from app.domain.duel_lists import Sides
from app.domain.duels import SUBMITTED, Duel
from app.domain.followers import follower_config, follower_state
from app.domain.model import Documents, ModelState, initial_state
from app.domain.reducer import Reducer
from app.ranking import interleaving
from app.ranking import users as crowd
from app.ranking.arrays import Floats
from app.simulation import runner
from app.simulation.in_process import InProcessModel, feedback
from app.simulation.runner import Scenario
from benchmarks.report import Goal, rate, table
from benchmarks.timing import Prepare, Run, side_by_side, warmed
from benchmarks.worlds import folds, worlds

RECORDS, LASTING = 1_000, 20.0
FOLLOWERS = (0, 1, 3, 6)
USERS = "informational"


def run() -> list[Goal]:
    """Print three tables; they have no goals."""
    print(_folds(), end="\n\n")
    print(_records(), end="\n\n")
    print(_rankings(), end="\n\n")
    return []


def _folds() -> str:
    records, state = recorded(0.0)
    seconds = side_by_side({n: _fold(state, records, n) for n in FOLLOWERS}, LASTING)
    rows = [
        [str(n), rate(len(records), spent), f"{spent / len(records) * 1e6:.0f}",
         f"{spent / seconds[0]:.2f}"]
        for n, spent in seconds.items()
    ]  # fmt: skip
    title = f"Folds of one log, one thread, {folds()[0]}, debiased clicks"
    return table(title, ["followers", "records", "µs a record", "time / none"], rows)


def _fold(state: ModelState, records: Sequence[bytes], followers: int) -> Prepare:
    gammas = (1e2, 1e3, 1e5, 1e6, 3e3, 3e4)[:followers]
    configs = [follower_config(state.model.config, gamma=gamma) for gamma in gammas]

    def prepare() -> Run:
        reducers = [Reducer(state)]
        reducers += [Reducer(follower_state(state, one), follows=True) for one in configs]
        return lambda: [one.apply(blob) for one in reducers for blob in records]

    return warmed(prepare)


def recorded(share: float, clicks: str = "debiased") -> tuple[list[bytes], ModelState]:
    """Return records of clicks, and the state that they follow: of lists of a duel, or of none."""
    judged, scenario = worlds()[folds()[0]].judged, Scenario(clicks=clicks)
    site, _ = runner.sites(scenario, judged, 0)
    model = InProcessModel(runner.model_config(scenario, judged.n), scenario.top_k)
    if share:
        model.append(Duel(SUBMITTED, share, 0.05))
    state, rng, records = model.state(), np.random.default_rng(50), list[bytes]()
    users = runner.visitors(scenario, judged, USERS)
    while len(records) < RECORDS:
        q = int(rng.integers(len(site.ideal)))
        labels = site.labels[site.starts[q] : site.starts[q + 1]]
        answer = model.rank(site.of_query(q), rng.random, rng.random)
        clicked = crowd.clicks(users, labels[answer.ranking.shown], rng.random(21))
        record = feedback(answer, clicked)
        model.append(record)
        if not share or answer.duel:
            records.append(codec.dump_record(record))
    return records, state


def _records() -> str:
    rows = []
    for clicks in ("debiased", "fair-pairs", "click-skip-above"):
        plain, duel = recorded(0.0, clicks), recorded(0.5, clicks)
        both = {"plain": _apply(*plain), "duel": _apply(*duel)}
        seconds = side_by_side(both, LASTING / 3.0)
        sizes = (sum(map(len, one[0])) / RECORDS for one in (plain, duel))
        rows.append([
            clicks, *(f"{one / RECORDS * 1e6:.0f}" for one in seconds.values()),
            f"{seconds['duel'] / seconds['plain']:.2f}", *(f"{one:,.0f}" for one in sizes),
        ])  # fmt: skip
    head = ["clicks", "µs: plain", "duel", "duel / plain", "bytes: plain", "duel"]
    return table("A record of clicks, folded by its leader", head, rows)


def _apply(records: Sequence[bytes], state: ModelState) -> Prepare:
    def prepare() -> Run:
        reducer = Reducer(state)
        return lambda: [reducer.apply(blob) for blob in records]

    return warmed(prepare)


def _rankings() -> str:
    rows = []
    for count in (20, 100, 1000):
        rng = np.random.default_rng(51)
        documents = rng.random((count, 46), dtype=np.float32)
        seconds = side_by_side(_ranked(documents, rng), LASTING / 5.0)
        cells = [f"{one / RECORDS * 1e6:.0f}" for one in seconds.values()]
        rows.append([f"{count:,}", *cells, f"{seconds['duel'] / seconds['sample']:.2f}"])
    head = ["documents", "µs: sample", "duel with submitted", "duel", "duel / sample"]
    return table("The ranking of a request, 46 features, 10 shown", head, rows)


def _ranked(documents: Documents, rng: np.random.Generator) -> dict[str, Prepare]:
    config = runner.model_config(Scenario(), documents.shape[1])
    scale = initial_state(config).model.certainty.scale(config.noise, 1.0)
    explore = candidates.exploring_by(config, rng.random, scale)
    first, second = rng.standard_normal((2, documents.shape[1]))
    coins = 1 + interleaving.most_rounds(10)

    def duel(other: Floats | None) -> Prepare:
        sides = Sides(first, other)
        return warmed(lambda: lambda: [
            duel_lists.interleaved(
                documents, first, sides, 10, lambda _: rng.random(coins), candidates.NO_PINS
            )
            for _ in range(RECORDS)
        ])  # fmt: skip

    def sample() -> Run:
        return lambda: [
            candidates.rank_candidates(documents, first, 10, explore) for _ in range(RECORDS)
        ]

    return {"sample": warmed(sample), "submitted": duel(None), "duel": duel(second)}
