"""Pairs from labels and triplets. Pure."""

import numpy as np

from app.domain.impressions import as_labels, as_positions
from app.domain.model import Positions
from app.domain.records import Feedback
from app.ranking.pairs import Pairs, from_labels


def judged_pairs(event: Feedback, order: Positions) -> Pairs:
    """Return the pairs of labels or triplets; `order`: `impressions.submitted_order`."""
    count = len(event.documents)
    if event.kind == "triplets":
        preferred, other = as_positions(event.preferred, count), as_positions(event.other, count)
        weights = np.ones(len(preferred)) if event.weights is None else event.weights
        return Pairs(preferred, other, weights)
    if event.kind != "labels":
        raise ValueError(f"kind: expected clicks, labels or triplets, got {event.kind!r}")
    return from_labels(as_labels(event.labels, count), order)
