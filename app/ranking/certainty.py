"""How certain a model is of its scores: it decides how much a ranking is randomised.

Of the pairs that a model learns, `x·Σx` is the variance of the score gap in units of the noise
`γ`. So `√(x·Σx/γ)` is the standard error of a gap, and `score/√(x·Σx/γ)` counts standard errors,
whatever the scale of the features. SOLAR-I has Σ = I and γ = 1/(2C). A running mean over rankings
is enough: a replica needs one number, not Σ.
"""

from math import sqrt
from typing import NamedTuple, Protocol

from app.ranking.arrays import Floats
from app.ranking.tally import Tally

#: Sampling input `s` per standard error of a score gap, for an `exploration` of 1.
SHARPNESS = 5.0
#: The least share of a new ranking in the running mean: it follows about the last 100 rankings.
RECENT = 0.01
#: Forgetting is applied once after this many rankings: a pass over Σ takes as long as a step.
FORGET_EVERY = 16


class Certainty(NamedTuple):
    """The running mean of `x·Σx` of learnt pairs, and the number of rankings that taught.

    >>> Certainty().after(Tally(0, 2, 0, 1.0, variance=6.0))
    Certainty(variance=3.0, rankings=1)
    """

    variance: float = 0.0
    rankings: int = 0

    def after(self, tally: Tally) -> "Certainty":
        """Return the certainty after the pairs of one more ranking; unchanged if none stepped."""
        if not tally.stepped:
            return self
        rankings = self.rankings + 1
        share = max(1.0 / rankings, RECENT)
        mean = tally.variance / tally.stepped
        return Certainty(self.variance + (mean - self.variance) * share, rankings)

    def scale(self, noise: float, exploration: float) -> float:
        """Return the factor of the scores in `s = scale·scores`; 0: unknown.

        >>> Certainty(variance=4.0, rankings=1).scale(noise=100.0, exploration=1.0)
        25.0
        """
        if not (self.rankings and self.variance > 0.0 and exploration > 0.0):
            return 0.0
        return SHARPNESS / exploration * sqrt(noise / self.variance)


UNKNOWN = Certainty()


class Forgetful(Protocol):
    """A learner that can forget (`solar.py`)."""

    def forget(self, kept: float, initial: Floats) -> None:
        """`Σ ← kept·Σ + (1 - kept)·diag(min(Σ₀, 2Σ))`; `initial` is the diagonal of Σ₀."""


def after_ranking(
    certainty: Certainty, tally: Tally, learner: Forgetful, forgetting: float, initial: Floats
) -> Certainty:
    """Return the certainty after the pairs of a ranking; let the learner forget when it is due.

    `initial` is the diagonal of the initial Σ, to which Σ returns with the share `forgetting`.
    """
    found = certainty.after(tally)
    if forgets(certainty, found, forgetting):
        learner.forget(kept_share(forgetting), initial)
    return found


def forgets(before: Certainty, after: Certainty, forgetting: float) -> bool:
    """Whether a learner forgets between these two: after every 16th ranking that taught."""
    return after is not before and forgetting > 0.0 and after.rankings % FORGET_EVERY == 0


def kept_share(forgetting: float) -> float:
    """Return the share of Σ that remains after FORGET_EVERY rankings: `(1 - q)^16`.

    >>> kept_share(0.5) == 0.5**16
    True
    """
    kept = 1.0
    for _ in range(FORGET_EVERY):  # a power may have other bits on another CPU
        kept *= 1.0 - forgetting
    return kept
