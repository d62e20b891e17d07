"""Generated feedback on generated documents, from one seed."""

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
SETTINGS = ModelConfig(tuple(f"f{at}" for at in range(N)), counting=COUNTING)
MODEL = "m"


async def new_model(store: Store, model: str = MODEL, settings: ModelConfig = SETTINGS) -> int:
    """Create an untrained model; return its epoch."""
    return await store.models.create(model, initial_state(settings, seed=model.encode()))


class EventGenerator:
    """A generator of events with unique ids, and of rankings to click on."""

    def __init__(self, seed: int, name: str = "e", n: int = N, tenant: str = "") -> None:
        self.tenant = tenant
        self.rng = np.random.default_rng([seed, *name.encode()])
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
        at = int(self.rng.integers(-2, SHOWN)) if position is None else position
        feedback = Feedback(
            self._next(),
            "clicks",
            shown.documents,
            shown.submitted,
            clicks=np.arange(at, at + 1) if at >= 0 else np.zeros(0, np.int64),
            query=request,
        )
        return PendingEvent(feedback, on_request=True, counts_abandoned=True)

    async def show(self, store: Store, epoch: int, count: int, model: str = MODEL) -> list[str]:
        """Store impressions of new rankings; return their request ids."""
        ids, made = tuple(f"d{at}" for at in range(SHOWN)), {}
        for _ in range(count):
            name, self._shown = f"{self._name}.list{self._shown}", self._shown + 1
            made[name] = Impression(ids, self._documents(SHOWN), self.rng.permutation(SHOWN))
        shown = [NewImpression(name, one.dump(), self.tenant) for name, one in made.items()]
        await store.log.store_impressions(model, epoch, shown, ttl=3600)
        self.rankings.update(made)
        return list(made)

    def _documents(self, count: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
        return self.rng.standard_normal((count, self._n)).astype(np.float32)

    def _next(self) -> str:
        self._count += 1
        return f"{self._name}{self._count}"
