"""Classical click strategies: which document a click prefers to which."""

from collections.abc import Callable, Sequence


def click_skip_above(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """Prefer each clicked document, top down, to each unclicked one above it, top down."""
    clicked = set(clicks)
    return [(c, u) for c in sorted(clicked) for u in range(c) if u not in clicked]


def last_click_skip_above(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """Prefer the document clicked last in time to each unclicked one above it, top down."""
    clicked = set(clicks)
    return [(c, u) for c in clicks[-1:] for u in range(c) if u not in clicked]


def click_skip_previous(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """Prefer each clicked document, top down, to the one right above it if unclicked."""
    clicked = set(clicks)
    return [(c, c - 1) for c in sorted(clicked) if c > 0 and c - 1 not in clicked]


def click_no_click_next(clicks: Sequence[int], shown: int) -> list[tuple[int, int]]:
    """Prefer each clicked document, top down, to the one right below it if unclicked."""
    clicked = set(clicks)
    return [(c, c + 1) for c in sorted(clicked) if c + 1 < shown and c + 1 not in clicked]


Strategy = Callable[[Sequence[int], int], list[tuple[int, int]]]

#: The classical strategies by name (Joachims 2002; Joachims et al. 2005).
CLASSICAL_STRATEGIES: dict[str, Strategy] = {
    "click-skip-above": click_skip_above,
    "last-click-skip-above": last_click_skip_above,
    "click-skip-previous": click_skip_previous,
    "click-no-click-next": click_no_click_next,
}
#: All values of the setting `clicks`: the strategies, and those of `debiased.py` and `fair.py`.
CLICK_STRATEGIES = (*CLASSICAL_STRATEGIES, "debiased", "fair-pairs")
