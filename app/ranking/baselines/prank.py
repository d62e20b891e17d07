"""PRank (Crammer & Singer 2001): one document at a time, "Prank (Pointwise)" in Table 2.

Thresholds `b_1 ≤ ... ≤ b_{K-1}` divide the scores `w·φ` into K labels. A document with a wrong
label moves w and the violated thresholds.
"""

from typing import Any

import numpy as np

from app.ranking.arrays import Floats, Integers
from app.ranking.lanes import kernel
from app.ranking.solar import LinearLearner, Rows, as_rows
from app.ranking.sparse import SparseRows


@kernel
def prank(w: Any, b: Any, documents: Any, levels: Any) -> int:
    """Learn document after document; return the number of updates."""
    moved = 0
    for d in range(documents.shape[0]):
        score = 0.0
        for k in range(documents.shape[1]):
            score += w[k] * documents[d, k]
        steps = 0
        for r in range(b.shape[0]):
            side = 1 if levels[d] > r else -1
            if side * (score - b[r]) <= 0.0:
                b[r] -= side
                steps += side
        for k in range(documents.shape[1]):
            w[k] += steps * documents[d, k]
        moved += steps != 0
    return moved


class PRank(LinearLearner):
    """PRank: learns from labels, not pairs; ranks by `w·φ`.

    >>> learner = PRank(n=1, thresholds=np.array([1.0]))
    >>> learner.learn_labels(np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]))
    2
    >>> learner.weights
    array([2.])
    """

    def __init__(self, n: int, thresholds: Floats) -> None:
        super().__init__(n)
        self._between: Floats = thresholds
        self._b = np.zeros(len(thresholds))

    def learn_labels(self, documents: Rows, labels: Floats) -> int:
        """Learn from the labels, row by row; threshold t separates labels < t and ≥ t."""
        rows = as_rows(documents, self.n)
        if isinstance(rows, SparseRows):
            raise ValueError("rows: expected dense rows for PRank, got sparse rows")
        if labels.shape != (len(rows),) or not np.isfinite(rows).all():
            raise ValueError("rows: expected finite features and one label per document")
        levels: Integers = np.searchsorted(self._between, labels, side="right")
        return int(prank(self._w, self._b, rows.astype(np.float64), levels))
