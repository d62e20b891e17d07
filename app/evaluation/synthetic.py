"""Synthetic judged data: a hidden linear utility decides the labels."""

from dataclasses import dataclass

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery


@dataclass(frozen=True, slots=True)
class SyntheticData:
    """The size and the noise of a synthetic data set.

    A document's utility is `u·φ` plus `noise` times a standard normal. The first `bent` features
    are best in the middle: they count by `-|φ|`, which no linear model can express. Of all
    documents the best tenth has label 2, the next fifth 1, the rest 0.
    """

    features: int = 20
    queries: int = 400
    documents: int = 20
    noise: float = 0.3
    bent: int = 0

    def draw(self, rng: np.random.Generator) -> tuple[Floats, list[LabelledQuery]]:
        """Draw the hidden utility `u`, of norm 1, and judged queries."""
        u = rng.standard_normal(self.features)
        u[: self.bent] = -1.0
        u = unit(u)
        return u, self.judge(u, rng)

    def judge(self, u: Floats, rng: np.random.Generator) -> list[LabelledQuery]:
        """Draw queries judged by the utility `u`."""
        shape = (self.queries, self.documents, self.features)
        documents = rng.standard_normal(shape).astype(np.float32)
        counted = documents.copy()
        counted[..., : self.bent] = np.abs(counted[..., : self.bent])
        seen = (counted * u).sum(axis=2) + self.noise * rng.standard_normal(shape[:2])
        labels = np.digitize(seen, np.quantile(seen, [0.7, 0.9])).astype(np.float64)
        return [LabelledQuery(*query) for query in zip(labels, documents, strict=True)]


def unit(vector: Floats) -> Floats:
    """Scale a vector to norm 1.

    >>> unit(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """
    scaled: Floats = vector / np.sqrt((vector * vector).sum())
    return scaled
