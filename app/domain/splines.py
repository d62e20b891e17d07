"""Splines: ramps `max(0, x - knot)` of features, as additional columns of a model. Pure.

A linear model of a feature and its ramps is a continuous, piecewise linear function of the feature:
its slope changes at each knot. Knots are float32 numbers in their shortest decimals, so 0.1 stays
0.1. The difference of two float32 numbers has one correctly rounded value, so a ramp has the same
bits on any CPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.domain.names import quoted, unknown_name
from app.errors import InvalidInput
from app.ranking.limits import MOST_FEATURES_FULL

#: Ascending knots by feature, in the order of the features.
Splines: TypeAlias = dict[str, tuple[float, ...]]

#: The largest absolute value of a knot: a ramp of any float32 number does not overflow.
LARGEST_KNOT = 1e12
#: Ramps that are computed at once: a larger array is computed in parts.
RAMPS_AT_ONCE = 65_536


class Ramps(NamedTuple):
    """The ramps of a model: `max(0, documents[:, columns[r]] - knots[r])` for each ramp r."""

    columns: NDArray[np.int64]
    knots: NDArray[np.float32]

    @classmethod
    def of(cls, given: Sequence[str], splines: Splines) -> "Ramps":
        """Return the ramps of splines, in the order of `ramp_names`."""
        index = {name: column for column, name in enumerate(given)}
        columns = [index[name] for name, _ in _each(splines)]
        knots = [knot for _, knot in _each(splines)]
        return cls(np.array(columns, np.int64), np.array(knots, np.float32))


def with_ramps(documents: NDArray[np.float32], ramps: Ramps) -> NDArray[np.float32]:
    """Add a column for each ramp.

    >>> with_ramps(np.array([[1], [3]], np.float32), Ramps.of(["a"], {"a": (0.5, 2.0)}))
    array([[1. , 0.5, 0. ],
           [3. , 2.5, 1. ]], dtype=float32)
    """
    columns, knots = ramps
    count, n = documents.shape
    wider = np.empty((count, n + len(knots)), np.float32)
    wider[:, :n] = documents
    step = max(1, RAMPS_AT_ONCE // len(knots))
    for start in range(0, count, step):
        x = documents[start : start + step, columns]
        wider[start : start + step, n:] = np.where(x > knots, x - knots, np.float32(0.0))
    return wider


def ramp_names(splines: Splines) -> tuple[str, ...]:
    """Name the columns of the ramps.

    >>> ramp_names({"bm25": (0.31, 7.0, 20.0)})
    ('bm25>0.31', 'bm25>7', 'bm25>20')
    """
    return tuple(f"{name}>{_shortest(knot)}" for name, knot in _each(splines))


def ramp_count(splines: Mapping[str, Sequence[float]] | None) -> int:
    """Count the ramps."""
    return sum(map(len, splines.values())) if splines else 0


def rounded_splines(
    given: Sequence[str], splines: Mapping[str, Sequence[float]] | None
) -> Splines | None:
    """Round knots to float32, in the order of the features; InvalidInput if they are invalid.

    >>> rounded_splines(["bm25", "price"], {"price": [0.1, 0.25000000001]})
    {'price': (0.1, 0.25)}
    """
    if not splines:
        return None
    if ramp_count(splines) > MOST_FEATURES_FULL:  # before they are rounded, 20 µs each
        raise InvalidInput(
            f"splines: expected at most {MOST_FEATURES_FULL} knots, got {ramp_count(splines)}"
        )
    known = set(given)
    for name in splines:
        if name not in known:
            raise InvalidInput(f"splines: {unknown_name('feature', name, given)}")
    return {name: _rounded(name, splines[name]) for name in given if name in splines}


def rounded_knot(knot: float) -> float:
    """Round a number to float32, as the number with the shortest decimals.

    >>> rounded_knot(0.10000000149011612), rounded_knot(-0.0)
    (0.1, 0.0)
    """
    return float(_shortest(knot))


def _rounded(name: str, knots: Sequence[float]) -> tuple[float, ...]:
    found = tuple(rounded_knot(one) for one in knots if abs(one) <= LARGEST_KNOT)  # not NaN
    ascending = all(a < b for a, b in pairwise(found))
    if not found or len(found) < len(knots) or not ascending:
        raise InvalidInput(
            f"splines: expected ascending knots of {quoted(name)}, at least one, within "
            f"±{LARGEST_KNOT:g} and different in float32"
        )
    return found


def _each(splines: Splines) -> Iterator[tuple[str, float]]:
    return ((name, knot) for name, knots in splines.items() for knot in knots)


@lru_cache(maxsize=65_536)
def _shortest(knot: float) -> str:
    """Return the shortest decimals that round to the same float32; nine digits always do.

    Models are loaded after each commit: without a cache, 138 knots take 2.6 ms each time.
    """
    single = np.float32(knot) + np.float32(0.0)  # 0 has no sign
    texts = (f"{single:.{digits}g}" for digits in range(1, 10))
    found = next(value for value in map(float, texts) if np.float32(value) == single)
    return repr(found).removesuffix(".0")  # 20, not 2e+01
