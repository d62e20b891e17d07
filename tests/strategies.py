"""Hypothesis strategies: streams of feature differences, rankings with pairs, labels."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.ranking.pairs import Pairs


class Stream(NamedTuple):
    """Feature differences of pairs in order, each with its weight."""

    gaps: Any
    weights: Any

    @property
    def n(self) -> int:
        return int(self.gaps.shape[1])


def values(size: float = 10.0) -> st.SearchStrategy[float]:
    """Draw small feature values, often 0, 1 or -1, which make ties and zero differences."""
    plain = st.floats(-size, size, width=32, allow_subnormal=False)
    return st.one_of(st.sampled_from([0.0, 1.0, -1.0]), plain)


@st.composite
def streams(draw: st.DrawFn, most: int = 30, weighted: bool = True) -> Stream:
    """Draw up to `most` differences of 1 to 20 features."""
    shape = (draw(st.integers(0, most)), draw(st.integers(1, 20)))
    gaps = draw(arrays.arrays(np.float64, shape, elements=values()))
    omega = st.floats(0.01, 100.0) if weighted else st.just(1.0)
    return Stream(gaps, draw(arrays.arrays(np.float64, shape[0], elements=omega)))


@st.composite
def rankings(draw: st.DrawFn) -> tuple[Any, Pairs]:
    """Draw float32 documents, and weighted pairs of them."""
    shape = (draw(st.integers(1, 8)), draw(st.integers(1, 40)))
    documents = draw(arrays.arrays(np.float32, shape, elements=values()))
    row = st.integers(0, shape[0] - 1)
    drawn = draw(st.lists(st.tuples(row, row, st.floats(0.01, 100.0)), max_size=20))
    table = np.array(drawn, dtype=np.float64).reshape(-1, 3)
    return documents, Pairs(
        table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2].copy()
    )


def labels(most: int = 30) -> st.SearchStrategy[Any]:
    """Draw the labels of a ranking, integers or fractions."""
    label = st.one_of(st.sampled_from([0.0, 0.0, 1.0, 2.0]), st.floats(2.0**-10, 30.0))
    return arrays.arrays(np.float64, st.integers(1, most), elements=label)
