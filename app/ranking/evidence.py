"""An anytime-valid verdict on which of two sides wins more lists (Robbins 1970).

W wins and L losses, n = W + L, a mixture over the win share p ~ Beta(a, a):

    M(p) = B(W+a, L+a) / (B(a, a)·p^W·(1-p)^L),    E = M(½)

If both sides are equal, E is a martingale: P(E ever reaches 1/α) ≤ α (Ville), however often
somebody looks. The p-value is 1/max E, and {p: M(p) < 1/α} is a confidence sequence. A list
multiplies E by one factor (`factor`), so no logarithm is needed to keep it. All else here is
computed when somebody asks for it.
"""

from math import inf, lgamma, log

#: `a`: tuned for win shares near ½.
SPREAD = 100.0
#: E stays below the largest float.
MOST_EVIDENCE = 1e300
#: `lists_to_go` looks no further.
MOST_TO_GO = 10_000_000
_HALVINGS = 60


def factor(same: int, decided: int) -> float:
    """Return the factor of E for one more list; `same` of the `decided` ones ended like it.

    >>> factor(0, 0), factor(1, 1) == 2.0 * 101.0 / 201.0
    (1.0, True)
    """
    return 2.0 * (same + SPREAD) / (decided + 2.0 * SPREAD)


def log_evidence(wins: float, losses: float, share: float = 0.5) -> float:
    """Return `log M(share)` after these numbers of wins and losses.

    >>> round(log_evidence(60, 40), 6) == round(log_evidence(40, 60), 6)
    True
    """
    mixture = _log_beta(wins + SPREAD, losses + SPREAD) - _log_beta(SPREAD, SPREAD)
    return mixture - _power(wins, share) - _power(losses, 1.0 - share)


def _power(count: float, share: float) -> float:
    """Return `count·log(share)`; 0 for no count, whatever the share."""
    if not count:
        return 0.0
    return count * log(share) if share > 0.0 else -inf


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def interval(wins: int, losses: int, alpha: float) -> tuple[float, float]:
    """Return the confidence sequence of the win share, after these wins and losses.

    >>> low, high = interval(60, 40, 0.05)
    >>> low < 0.5 < 0.6 < high
    True
    """
    decided = wins + losses
    if not decided:
        return 0.0, 1.0
    best = wins / decided  # M is smallest here, and below 1
    return _bound(wins, losses, alpha, best, 0.0), _bound(wins, losses, alpha, best, 1.0)


def _bound(wins: int, losses: int, alpha: float, inside: float, end: float) -> float:
    """Return the share between `inside` and `end` where M reaches 1/α; `end` if it does not."""
    least = -log(alpha)
    if log_evidence(wins, losses, end) < least:
        return end
    outside = end
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2.0
        if log_evidence(wins, losses, middle) < least:
            inside = middle
        else:
            outside = middle
    return outside


def lists_to_go(wins: int, losses: int, alpha: float) -> int | None:
    """Return how many more decided lists a verdict needs if the win share stays as it is.

    None if it has no answer: no decided list yet, a share of about ½, or too many lists.

    >>> lists_to_go(0, 0, 0.05), lists_to_go(50, 50, 0.05), lists_to_go(500, 100, 0.05)
    (None, None, 0)
    """
    decided, least = wins + losses, -log(alpha)
    if not decided:
        return None
    share = wins / decided
    few, many = 0, MOST_TO_GO
    if log_evidence(wins + many * share, losses + many * (1.0 - share)) < least:
        return None
    while few < many:
        middle = (few + many) // 2
        if log_evidence(wins + middle * share, losses + middle * (1.0 - share)) < least:
            few = middle + 1
        else:
            many = middle
    return few
