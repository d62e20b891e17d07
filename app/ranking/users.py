"""Simulated users: how likely each grade of a document is clicked, and ends a visit.

A user goes down the list. Whoever looks at place i (chance `examine_i`) clicks on a document of
grade g with chance `click_g`, and goes away with chance `stop_g`: after a click, or at every place.
The tables are those of the literature (Guo et al. 2009; Hofmann et al. 2013), `pbm` is the
position-based model: who looks where is fixed (Craswell et al. 2008), and nobody stops.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from app.ranking.arrays import Bytes, Floats, Integers, owned
from app.ranking.lanes import kernel

Table = tuple[tuple[float, ...], tuple[float, ...]]

#: (click; stop) by grade, of labels up to 2 and up to 4. The literature has no almost random users
#: of five grades: their clicks rise from .4 to .6 in even steps.
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
#: Who looks at which place, of `pbm`; nobody looks further down.
EXAMINATION = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


class Users(NamedTuple):
    """Chances by grade and by place; whether a stop is drawn at every place; who attacks.

    The share of `attackers` clicks on the last document shown, whatever it is.
    """

    click: Floats
    stop: Floats
    examine: Floats
    every: bool = False
    attackers: float = 0.0


def users(
    name: str, grades: int, places: int, stop: str = "click", attackers: float = 0.0
) -> Users:
    """Users by name, for lists of at most so many places.

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
    examine = np.ones(places)
    if name == "pbm":
        examine[:] = 0.0
        examine[: len(EXAMINATION)] = EXAMINATION[:places]
    return Users(np.array(click), np.array(stops), examine, stop == "every", attackers)


def grades(labels: Floats) -> int:
    """Which tables fit the labels: 3 grades up to 2, 5 up to 4; else ValueError.

    >>> grades(np.array([0.0, 2.0])), grades(np.array([3.0, 1.0]))
    (3, 5)
    """
    if not (np.isin(labels, (0.0, 1.0, 2.0, 3.0, 4.0))).all():
        raise ValueError(
            "labels: expected 0, 1 and 2, or 0 to 4, as click models are known for three and for "
            f"five grades, got {labels[~np.isin(labels, (0.0, 1.0, 2.0, 3.0, 4.0))][0]:g}"
        )
    return 3 if labels.max() <= 2.0 else 5


def clicks(found: Users, labels: Floats, uniforms: Floats) -> Integers:
    """The places that a user clicks on, from the top, of a list with these labels.

    `uniforms` are `1 + 2·places` numbers in (0, 1): one says who comes, then each place takes one
    for the click and one for the stop.

    >>> clicks(users("perfect", 3, 3), np.array([0.0, 2.0, 1.0]), np.full(7, 0.4))
    array([1, 2])
    """
    clicked = np.zeros(len(labels), np.uint8)
    visit_list(owned(labels, np.float64), *found, owned(uniforms, np.float64), clicked)
    return np.flatnonzero(clicked)


@kernel
def visit_list(
    labels: Any,
    click: Any,
    stop: Any,
    examine: Any,
    every: bool,
    attackers: float,
    uniforms: Any,
    clicked: Bytes,
) -> Any:
    """Mark what a user clicks on among zeros; the last place clicked, -1 if there is none."""
    places = labels.shape[0]
    if uniforms[0] < attackers:
        clicked[places - 1] = 1
        return places - 1
    last = -1
    for i in range(places):
        grade = int(labels[i])
        if uniforms[1 + 2 * i] < examine[i] * click[grade]:
            clicked[i] = 1
            last = i
        if (every or last == i) and uniforms[2 + 2 * i] < stop[grade]:
            break
    return last
