"""What hypothesis draws: streams of gaps, lists of documents, clicks."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.ranking.pairs import Pairs


class Stream(NamedTuple):
    """Gaps in order, each with its weight."""

    gaps: Any
    weights: Any

    @property
    def n(self) -> int:
        return int(self.gaps.shape[1])


def values(size: float = 10.0) -> st.SearchStrategy[float]:
    """Feature values that are small numbers, or zero, or alike: what makes ties and zero gaps."""
    plain = st.floats(-size, size, width=32, allow_subnormal=False)
    return st.one_of(st.sampled_from([0.0, 1.0, -1.0]), plain)


@st.composite
def streams(draw: st.DrawFn, most: int = 30, weighted: bool = True) -> Stream:
    """Up to `most` gaps of 1 to 20 features."""
    shape = (draw(st.integers(0, most)), draw(st.integers(1, 20)))
    gaps = draw(arrays.arrays(np.float64, shape, elements=values()))
    omega = st.floats(0.01, 100.0) if weighted else st.just(1.0)
    return Stream(gaps, draw(arrays.arrays(np.float64, shape[0], elements=omega)))


@st.composite
def lists(draw: st.DrawFn) -> tuple[Any, Pairs]:
    """Documents in float32, half of their values zero, and pairs of them with weights."""
    shape = (draw(st.integers(1, 8)), draw(st.integers(1, 40)))
    documents = draw(arrays.arrays(np.float32, shape, elements=values()))
    row = st.integers(0, shape[0] - 1)
    drawn = draw(st.lists(st.tuples(row, row, st.floats(0.01, 100.0)), max_size=20))
    table = np.array(drawn, dtype=np.float64).reshape(-1, 3)
    return documents, Pairs(
        table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2].copy()
    )


def labels(most: int = 30) -> st.SearchStrategy[Any]:
    """Labels of a list, whole or not."""
    label = st.one_of(st.sampled_from([0.0, 0.0, 1.0, 2.0]), st.floats(2.0**-10, 30.0))
    return arrays.arrays(np.float64, st.integers(1, most), elements=label)
