"""A drift detector: CUSUM of a model's ranking quality against its own running mean.

Of each ranking with a click or another sign of relevance, y is the NDCG@10 by that feedback. If
users change what they want, they find it further down: y stays below its mean m, and the evidence

    d ← max(0, d + (m - y) - ALLOWANCE)

grows. It is an alarm for people: it starts nothing, and it never compares two models.
"""

#: How far the quality may fall without being noticed: it absorbs noise and slow changes.
ALLOWANCE = 0.03
#: The evidence that counts as drift (`docs/clicks.md` has the experiments).
ALARM = 20.0
#: The share of a new ranking in the running mean, after the first 5,000 rankings.
OF_MEAN = 0.0002


def after(mean: float, evidence: float, quality: float, rankings: float) -> tuple[float, float]:
    """Return mean and evidence after one more ranking; `rankings` counts it, too.

    >>> after(0.0, 0.0, 0.5, 1.0)
    (0.5, 0.0)
    >>> after(0.75, 1.0, 0.25, 2.0)
    (0.5, 1.47)
    """
    if rankings <= 1.0:
        return quality, 0.0
    evidence = max(0.0, evidence + (mean - quality) - ALLOWANCE)
    return mean + (quality - mean) * max(1.0 / rankings, OF_MEAN), evidence
