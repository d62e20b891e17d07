"""An invented world with a known answer: documents whose worth is a hidden linear utility."""

from dataclasses import dataclass

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery


@dataclass(frozen=True, slots=True)
class World:
    """How large the world is, and how well its judges see.

    A document's utility is `u·φ` plus `noise` times a standard normal; over the whole world the
    best tenth of the documents is labelled 2, the next fifth 1, the rest 0.
    """

    features: int = 20
    queries: int = 400
    documents: int = 20
    noise: float = 0.3

    def draw(self, rng: np.random.Generator) -> tuple[Floats, list[LabelledQuery]]:
        """The hidden utility `u`, of norm 1, and judged queries."""
        u = rng.standard_normal(self.features)
        u /= np.sqrt((u * u).sum())
        shape = (self.queries, self.documents, self.features)
        documents = rng.standard_normal(shape).astype(np.float32)
        seen = (documents * u).sum(axis=2) + self.noise * rng.standard_normal(shape[:2])
        labels = np.digitize(seen, np.quantile(seen, [0.7, 0.9])).astype(np.float64)
        return u, [LabelledQuery(*query) for query in zip(labels, documents, strict=True)]
