"""PDGD (Oosterhuis & de Rijke 2018), the field's strong linear baseline: `w ← w + η·∇`.

Lists are a Plackett-Luce sample of the scores themselves. Of each clicked document d_k and each
unclicked d_l seen, the gradient pushes `P(d_k > d_l) = σ(w·x)` up, weighted by ρ, the chance of
the list with both exchanged against that of the list shown:

    ∇ = Σ ρ·σ(w·x)·(1 - σ(w·x))·x,    x = φ(d_k) - φ(d_l)
"""

import numpy as np

from app.ranking.debiased import KAPPA
from app.ranking.solar import GapBatch, LinearLearner, Steps
from app.ranking.traffic import DRAWN, Show

#: How its lists are drawn: from raw scores.
SHOW = Show(DRAWN, 10, sharpness=0.0)


class Pdgd(LinearLearner):
    """Learns from pairs of weight `ω = κ·2ρ`, as `debiased` has them; the rate η decays."""

    def __init__(self, n: int, rate: float = 0.1, decay: float = 0.9999977) -> None:
        super().__init__(n)
        self._rate, self._decay = rate, decay

    def _learn_dense(self, batch: GapBatch, steps: Steps) -> None:
        rows = batch.preferred.reshape(-1, self.n).astype(np.float64)
        x = rows[batch.p] - rows[batch.o]
        rho = batch.omega / (2.0 * KAPPA)
        chance = 1.0 / (1.0 + np.exp(-(x @ self._w[: self.n])))
        self._w[: self.n] += self._rate * ((rho * chance * (1.0 - chance)) @ x)
        self._rate *= self._decay
        steps.loss[:], steps.outcome[:] = 0.0, 1
