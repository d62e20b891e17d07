"""Simulated users: click and stop probabilities by the grade of a document.

A user reads a ranking from the top. The user examines position i with probability `examine_i`,
clicks on an examined document of grade g with probability `click_g`, and stops with probability
`stop_g`: after a click, or at every position. The tables are from the literature (Guo et al. 2009;
Hofmann et al. 2013). `pbm` is the position-based model (Craswell et al. 2008): the examination
depends on the position alone, and users never stop.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from app.ranking.arrays import Bytes, Floats, Integers, owned
from app.ranking.lanes import kernel

Table = tuple[tuple[float, ...], tuple[float, ...]]

#: (click; stop) by grade, for labels up to 2 and up to 4. The literature has no `random` users for
#: five grades: their click probabilities rise from .4 to .6 in even steps.
TABLES: Mapping[int, Mapping[str, Table]] = {
    3: {
        "perfect": ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
        "navigational": ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
        "informational": ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
        "random": ((0.4, 0.5, 0.6), (0.5, 0.5, 0.5)),
        "pbm": ((0.4, 0.7, 0.9), (0.0, 0.0, 0.0)),
    },
    5: {
        "perfect": ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
        "navigational": ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
        "informational": ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
        "random": ((0.4, 0.45, 0.5, 0.55, 0.6), (0.5, 0.5, 0.5, 0.5, 0.5)),
        "pbm": ((0.4, 0.6, 0.7, 0.8, 0.9), (0.0, 0.0, 0.0, 0.0, 0.0)),
    },
}
USER_NAMES = tuple(TABLES[3])
STOPS = ("click", "every")
#: Examination probabilities of `pbm` by position; 0 further down.
EXAMINATION = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


class Users(NamedTuple):
    """Probabilities by grade and position; `every` draws a stop at every position.

    The share `attackers` of the users clicks on the last document shown.
    """

    click: Floats
    stop: Floats
    examine: Floats
    every: bool = False
    attackers: float = 0.0


def users(
    name: str, grades: int, length: int, stop: str = "click", attackers: float = 0.0
) -> Users:
    """Return the users of this name, for rankings of at most `length` documents.

    >>> users("navigational", 3, 10).click
    array([0.05, 0.5 , 0.95])
    """
    if name not in USER_NAMES:
        raise ValueError(f"users: expected one of {', '.join(USER_NAMES)}, got {name!r}")
    if stop not in STOPS:
        raise ValueError(f"stop: expected one of {', '.join(STOPS)}, got {stop!r}")
    if not 0.0 <= attackers <= 1.0:
        raise ValueError(f"attackers: expected a share from 0 to 1, got {attackers}")
    if grades not in TABLES:
        raise ValueError(f"grades: expected 3 or 5, got {grades}")
    click, stops = TABLES[grades][name]
    examine = np.ones(length)
    if name == "pbm":
        examine[:] = 0.0
        examine[: len(EXAMINATION)] = EXAMINATION[:length]
    return Users(np.array(click), np.array(stops), examine, stop == "every", attackers)


def grades(labels: Floats) -> int:
    """Return the grades of the tables that fit the labels: 3 up to 2, 5 up to 4; else ValueError.

    >>> grades(np.array([0.0, 2.0])), grades(np.array([3.0, 1.0]))
    (3, 5)
    """
    if not (np.isin(labels, (0.0, 1.0, 2.0, 3.0, 4.0))).all():
        raise ValueError(
            "labels: expected whole numbers from 0 to 2 or to 4, the grades of the click models, "
            f"got {labels[~np.isin(labels, (0.0, 1.0, 2.0, 3.0, 4.0))][0]:g}"
        )
    return 3 if labels.max() <= 2.0 else 5


def clicks(found: Users, labels: Floats, uniforms: Floats) -> Integers:
    """Return the clicked positions, from the top, of a ranking with these labels.

    `uniforms` are `1 + 2·length` numbers in (0, 1): one for the kind of user, then one for the
    click and one for the stop at each position.

    >>> clicks(users("perfect", 3, 3), np.array([0.0, 2.0, 1.0]), np.full(7, 0.4))
    array([1, 2])
    """
    clicked = np.zeros(len(labels), np.uint8)
    visit_ranking(owned(labels, np.float64), *found, owned(uniforms, np.float64), clicked)
    return np.flatnonzero(clicked)


@kernel
def visit_ranking(
    labels: Any,
    click: Any,
    stop: Any,
    examine: Any,
    every: bool,
    attackers: float,
    uniforms: Any,
    clicked: Bytes,
) -> Any:
    """Mark the clicked positions in `clicked`; return the lowest one, -1 without a click."""
    length = labels.shape[0]
    if uniforms[0] < attackers:
        clicked[length - 1] = 1
        return length - 1
    last = -1
    for i in range(length):
        grade = int(labels[i])
        if uniforms[1 + 2 * i] < examine[i] * click[grade]:
            clicked[i] = 1
            last = i
        if (every or last == i) and uniforms[2 + 2 * i] < stop[grade]:
            break
    return last
