"""A drift detector: CUSUM of a model's debiased wins against their own running mean.

Of each ranking with clicks, y is the share of the pair weights that the model order ranks
correctly. If users change what they want, y falls below its mean m for long, and the evidence

    d ← max(0, d + (m - y) - ALLOWANCE)

grows. It is an alarm for people: it starts nothing, and it never compares two models.
"""

#: How far the share may fall without being noticed: it absorbs noise and slow changes.
ALLOWANCE = 0.1
#: The evidence that counts as drift (`docs/clicks.md` has the experiments).
ALARM = 20.0
#: The share of a new ranking in the running mean, after the first thousand rankings.
OF_MEAN = 0.001


def after(mean: float, evidence: float, share: float, rankings: float) -> tuple[float, float]:
    """Return mean and evidence after one more ranking; `rankings` counts it, too.

    >>> after(0.0, 0.0, 0.5, 1.0)
    (0.5, 0.0)
    >>> after(0.75, 1.0, 0.25, 1e6)
    (0.7495, 1.4)
    """
    if rankings <= 1.0:
        return share, 0.0
    evidence = max(0.0, evidence + (mean - share) - ALLOWANCE)
    return mean + (share - mean) * max(1.0 / rankings, OF_MEAN), evidence
