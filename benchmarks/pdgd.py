"""PDGD (Oosterhuis & de Rijke 2018), a strong linear baseline: `w ← w + η·∇`.

Rankings are Plackett-Luce samples of the unscaled scores. For each clicked document d_k and each
examined, unclicked d_l, the gradient increases `P(d_k > d_l) = σ(w·x)`. The weight is
`ρ = P(R*) / (P(R) + P(R*))`, where R is the shown ranking and R* is R with both swapped:

    ∇ = Σ ρ·σ(w·x)·(1 - σ(w·x))·x,    x = φ(d_k) - φ(d_l)
"""

import numpy as np

from app.ranking.arrays import Dense, Floats
from app.ranking.limits import KAPPA
from app.ranking.solar import GapBatch, LinearLearner, StepColumns
from app.ranking.traffic import SAMPLED, Show, Visit


class Pdgd(LinearLearner):
    """PDGD on pairs of weight `ω = κ·2ρ`, as in `debiased`; the rate η decays."""

    def __init__(self, n: int, rate: float = 0.1, decay: float = 0.9999977) -> None:
        super().__init__(n)
        self._rate, self._decay = rate, decay

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> None:
        rows = batch.preferred.reshape(-1, self.n).astype(np.float64)
        x = rows[batch.p] - rows[batch.o]
        rho = batch.omega / (2.0 * KAPPA)
        slope = 0.25 * (1.0 - np.tanh((x @ self._w[: self.n]) / 2.0) ** 2)  # σ·(1 - σ)
        self._w[: self.n] += self._rate * ((rho * slope) @ x)
        self._rate *= self._decay
        columns[0][:], columns[1][:] = 0.0, 1


class PdgdRanker:
    """Rankings by PDGD, which learns from each visit."""

    def __init__(self, n: int, rate: float, top_k: int) -> None:
        self.learner: LinearLearner = Pdgd(n, rate)
        self.show = Show(SAMPLED, top_k, scale=1.0)

    def score(self, documents: Dense) -> Floats:
        """Return the score of each document."""
        return self.learner.score(documents)

    def learn(self, documents: Dense, visit: Visit) -> None:
        """Learn the clicks of a visit."""
        if len(visit.pairs):
            self.learner.learn_pairs(documents, visit.pairs)
