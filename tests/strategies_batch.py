"""Hypothesis strategies for the batch trainers: judged queries with many ties."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.ranking.batch.judgements import Judgements


def halves(size: int) -> st.SearchStrategy[float]:
    """Multiples of ½: sums and differences are exact, and hit a margin of 1 exactly."""
    return st.integers(-2 * size, 2 * size).map(lambda twice: twice / 2)


@st.composite
def labels_and_starts(draw: st.DrawFn, most: int = 12) -> tuple[Any, Any]:
    """Draw up to 4 queries, possibly empty, with one label, a few, or all different labels."""
    sizes = draw(st.lists(st.integers(0, most), max_size=4))
    kinds = [st.just(1.0), st.integers(0, 1), st.integers(0, 4), st.integers(0, 1000)]
    labels: list[float] = []
    for size in sizes:
        label = draw(st.sampled_from(kinds))
        labels += draw(st.lists(label, min_size=size, max_size=size))
    return np.array(labels, np.float64), np.cumsum([0, *sizes])


@st.composite
def judged(draw: st.DrawFn, most: int = 8, n: int = 4) -> Judgements:
    """Draw judged queries with repeated feature values."""
    labels, starts = draw(labels_and_starts(most))
    shape = (len(labels), draw(st.integers(1, n)))
    elements = st.one_of(halves(1), st.floats(-3, 3, width=16))
    return Judgements(draw(arrays.arrays(np.float64, shape, elements=elements)), labels, starts)
