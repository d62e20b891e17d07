"""The classical readings of a click: which document it prefers to which."""

from collections.abc import Callable, Sequence


def click_skip_above(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """Each clicked document, top down, over each unclicked one above it, top down."""
    clicked = set(clicks)
    return [(c, u) for c in sorted(clicked) for u in range(c) if u not in clicked]


def last_click_skip_above(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """The document clicked last in time over each unclicked one above it, top down."""
    clicked = set(clicks)
    return [(c, u) for c in clicks[-1:] for u in range(c) if u not in clicked]


def click_skip_previous(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """Each clicked document, top down, over the one right above it if that was not clicked."""
    clicked = set(clicks)
    return [(c, c - 1) for c in sorted(clicked) if c > 0 and c - 1 not in clicked]


def click_no_click_next(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """Each clicked document, top down, over the one right below it if that was not clicked."""
    clicked = set(clicks)
    return [(c, c + 1) for c in sorted(clicked) if c + 1 < shown and c + 1 not in clicked]


Strategy = Callable[[Sequence[int], int], list[tuple[int, int]]]

#: The classical readings of a click (Joachims 2002; Joachims et al. 2005), by name.
STRATEGIES: dict[str, Strategy] = {
    "click-skip-above": click_skip_above,
    "last-click-skip-above": last_click_skip_above,
    "click-skip-previous": click_skip_previous,
    "click-no-click-next": click_no_click_next,
}
#: All readings of a click by name: these, and those of `debiased.py` and `fair.py`.
READINGS = (*STRATEGIES, "debiased", "fair-pairs")
