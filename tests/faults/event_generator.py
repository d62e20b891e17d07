"""Generated feedback on generated documents, from one seed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.domain.impressions import Impression
from app.domain.model import initial_state
from app.domain.model_config import COUNTING, ModelConfig
from app.domain.records import Feedback
from app.ingest.appender import PendingEvent
from app.ranking.arrays import Floats
from app.storage.log import NewImpression
from app.storage.store import Store

N, SHOWN = 8, 10
SETTINGS = ModelConfig(
    tuple(f"f{at}" for at in range(N)), counting=COUNTING, clicks="debiased", exploration=1.0
)
MODEL = "m"
#: What may come late: numbers, and actions of the model.
WORTH: tuple[float | str, ...] = (0.0, 0.5, 1.0, 10.0, *SETTINGS.gains_of_actions)


class Visits(NamedTuple):
    """What visitors do besides clicks, as shares of the events.

    Of the clicks `graded` have gains, and of the events `examines` say how far the list was read;
    `late` of them are purchases on a list that was clicked before. Lists are `drawn`: clicks on
    them are debiased. They live for `ordinary` seconds, and for `keep` ms from their first click
    on (0: no longer). Beacons are `beacons` of the events, and no list takes more than
    `most_events` of them.
    """

    graded: float = 0.3
    examines: float = 0.3
    late: float = 0.3
    drawn: bool = True
    ordinary: float = 3600.0
    keep: int = 21_600_000
    beacons: float = 0.0
    most_events: int | None = None


#: Visitors of the fault tests, and those who only click.
VISITS = Visits()
ONLY_CLICKS = Visits(0.0, 0.0, 0.0, drawn=False, keep=0)


async def new_model(store: Store, model: str = MODEL, settings: ModelConfig = SETTINGS) -> int:
    """Create an untrained model; return its epoch."""
    return await store.models.create(model, initial_state(settings, seed=model.encode()))


class EventGenerator:
    """A generator of events with unique ids, and of rankings to click on.

    Clients show a ranking after a share of their posts, and keep some to click on. Gains and all
    that `visits` states come from random numbers of their own.
    """

    shows, keeps = 0.1, 5

    def __init__(
        self, seed: int, name: str = "e", n: int = N, tenant: str = "",
        visits: Visits = VISITS,
    ) -> None:  # fmt: skip
        self.tenant, self.visits = tenant, visits
        self.rng = np.random.default_rng([seed, *name.encode()])
        self._more = np.random.default_rng([seed, *name.encode(), 1 << 20])
        self._clicked: dict[str, list[int]] = {}
        self._name, self._n, self._count, self._shown = name, n, 0, 0
        self.rankings: dict[str, Impression] = {}

    def event(self) -> PendingEvent:
        """Return labels or triplets with documents, or a click on a ranking."""
        kind = self.rng.integers(3 if self.rankings else 2)
        if kind == 2:
            return self.click(str(self.rng.choice(list(self.rankings))))
        return self.labels() if kind == 0 else self.triplets()

    def labels(self, count: int = 6) -> PendingEvent:
        labels = self.rng.integers(0, 3, count).astype(np.float64)
        return PendingEvent(Feedback(self._next(), "labels", self._documents(count), labels=labels))

    def triplets(self, count: int = 6) -> PendingEvent:
        preferred, other = self.rng.integers(0, count, (2, 4))
        weights: Floats = self.rng.uniform(0.5, 1.5, 4)
        return PendingEvent(
            Feedback(
                self._next(),
                "triplets",
                self._documents(count),
                preferred=preferred,
                other=other,
                weights=weights,
            )
        )

    def click(
        self, request: str, position: int | None = None, shown: Impression | None = None
    ) -> PendingEvent:
        """Return a click on a ranking (of another generator: `shown`).

        Without a position it is a random one, or there is no click: the ranking is abandoned.
        """
        shown = shown or self.rankings[request]
        at = int(self.rng.integers(-2, len(shown.ids))) if position is None else position
        known = self._clicked.get(request, []) if position is None else []
        if known and self._more.random() < self.visits.late:
            return self._bought(request, shown, known[self._more.integers(len(known))])
        return self.clicks(request, shown, [at] if at >= 0 else [])

    def clicks(self, request: str, shown: Impression, positions: Sequence[int]) -> PendingEvent:
        """Return clicks at these positions of a ranking; some have gains."""
        worth: list[float] = []
        if positions and self._more.random() < self.visits.graded:
            worth = [self._gain(WORTH[self._more.integers(len(WORTH))]) for _ in positions]
        self._clicked.setdefault(request, []).extend(positions)
        return self._on_list(request, shown, positions, worth)

    def _bought(self, request: str, shown: Impression, position: int) -> PendingEvent:
        """Return the late purchase of a document that was clicked before."""
        return self._on_list(request, shown, [position], [self._gain("purchase")])

    def again(self, event: PendingEvent) -> PendingEvent:
        """Return the same feedback as a new event."""
        return replace(event, feedback=replace(event.feedback, event=self._next()))

    def _gain(self, worth: float | str) -> float:
        return SETTINGS.gains_of_actions[worth] if isinstance(worth, str) else worth

    def _on_list(
        self, request: str, shown: Impression, positions: Sequence[int], worth: Sequence[float]
    ) -> PendingEvent:
        gains = np.array(worth, np.float64) if worth else None
        examined = None
        if self._more.random() < self.visits.examines:
            examined = self._more.integers(1, len(shown.ids) + 1, 1)
        feedback = Feedback(
            self._next(), "clicks", shown.documents, shown.submitted,
            clicks=np.array(positions, np.int64), query=request, odds=shown.odds,
            swaps=shown.swaps, duel=shown.duel, gains=gains, examined=examined,
        )  # fmt: skip
        keep = self.visits.keep if len(positions) else 0
        most = self.visits.most_events if self._more.random() < self.visits.beacons else None
        return PendingEvent(
            feedback, on_request=True, counts_abandoned=True, keep=keep, most_events=most
        )

    async def show(self, store: Store, epoch: int, count: int, model: str = MODEL) -> list[str]:
        """Store impressions of new rankings; return their request ids."""
        ids, made = tuple(f"d{at}" for at in range(SHOWN)), {}
        for _ in range(count):
            documents, submitted = self._documents(SHOWN), self.rng.permutation(SHOWN)
            odds = self._more.random(SHOWN + 1) if self.visits.drawn else None
            made[self._next_list()] = Impression(ids, documents, submitted, odds)
        await self._store_lists(store, epoch, made, model)
        return list(made)

    async def _store_lists(
        self, store: Store, epoch: int, made: dict[str, Impression], model: str
    ) -> None:
        """Store impressions; they are ones to click on from then on."""
        shown = [NewImpression(name, one.dump(), self.tenant) for name, one in made.items()]
        await store.log.store_impressions(model, epoch, shown, ttl=self.visits.ordinary)
        self.rankings.update(made)

    def _next_list(self) -> str:
        self._shown += 1
        return f"{self._name}.list{self._shown - 1}"

    def _documents(self, count: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
        return self.rng.standard_normal((count, self._n)).astype(np.float32)

    def _next(self) -> str:
        self._count += 1
        return f"{self._name}{self._count}"
