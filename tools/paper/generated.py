"""Generated lists in which every document has a label of its own, as in MQ2007-list (k = l)."""

import numpy as np

from app.evaluation.synthetic import unit
from app.ranking.batch.judgements import Judgements
from tools.paper.inputs import Effort, Split

FEATURES = 46
NOISE = 0.5


def generated_split(effort: Effort) -> Split:
    """Draw training, validation and test lists of one utility; validation and test are half."""
    rng = np.random.default_rng(0)
    u = unit(rng.standard_normal(FEATURES))
    half = max(1, effort.lists // 2)

    def lists(count: int) -> Judgements:
        X = rng.random((count * effort.length, FEATURES))
        seen = (X @ u + NOISE * rng.standard_normal(len(X))).reshape(count, effort.length)
        labels = seen.argsort(axis=1).argsort(axis=1).ravel().astype(np.float64)
        return Judgements(X, labels, np.arange(count + 1) * effort.length)

    return Split("generated lists", lists(effort.lists), lists(half), lists(half))


def adjacent_pairs(judged: Judgements) -> Judgements:
    """Return the pairs of neighbouring labels, each as a query of two documents (section 5)."""
    found = []
    for q in judged.queries:
        order = q.start + np.argsort(judged.labels[q])
        found.append(np.column_stack([order[:-1], order[1:]]).ravel())
    rows = np.concatenate(found)
    return Judgements(
        judged.X[rows], np.tile([0.0, 1.0], len(rows) // 2), np.arange(len(rows) // 2 + 1) * 2
    )
