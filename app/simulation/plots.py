"""Curves with bands as an SVG, by hand: a few lines of text that every browser draws."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

PANEL_WIDTH, PANEL_HEIGHT = 420.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 28.0, 34.0, 44.0
#: Told apart by everybody (Okabe and Ito), on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
STYLE = "font:12px sans-serif;background:#fff"


class Curve(NamedTuple):
    """A line over x, and how far its band reaches to both sides."""

    name: str
    x: list[float]
    mean: list[float]
    spread: list[float]


class Panel(NamedTuple):
    """Curves that share their axes."""

    title: str
    curves: Sequence[Curve]


class Scale(NamedTuple):
    """Numbers from `low` to `high` as places from `start` to `end`, and the steps between marks."""

    low: float
    high: float
    start: float
    end: float
    step: float

    @classmethod
    def over(cls, low: float, high: float, start: float, end: float) -> "Scale":
        """Round ends around the numbers, about five marks between."""
        rough = max(high - low, 1e-9) / 5.0
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * many for many in (1, 2, 5, 10) if size * many >= rough)
        ends = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        return cls(*ends, start, end, step)

    def place(self, value: float) -> float:
        """Where a number stands.

        >>> Scale.over(0.0, 10.0, 100.0, 200.0).place(5.0)
        150.0
        """
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def marks(self) -> list[float]:
        """The numbers to write at the axis."""
        count = round((self.high - self.low) / self.step)
        return [self.low + at * self.step for at in range(count + 1)]


def svg(title: str, panels: Sequence[Panel]) -> str:
    """Panels side by side under a title, with one legend.

    >>> drawn = svg("", [Panel("a", [Curve("b", [0.0, 1.0], [0.2, 0.4], [0.0, 0.1])])])
    >>> drawn.count("<polyline"), drawn.count("<polygon")
    (1, 1)
    """
    width, height = PANEL_WIDTH * len(panels), PANEL_HEIGHT + 48.0
    size = f"{width:g} {height:g}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" style="{STYLE}">',
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        _text(width / 2.0, 18.0, title, size=14),
    ]
    for at, panel in enumerate(panels):
        lines += [f'<g transform="translate({at * PANEL_WIDTH:g} 22)">', *_panel(panel), "</g>"]
    names = [curve.name for curve in panels[0].curves]
    return "\n".join([*lines, *_legend(names, width, height - 10.0), "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    every = [place for curve in panel.curves for place in curve.x]
    lows = [m - s for c in panel.curves for m, s in zip(c.mean, c.spread, strict=True)]
    highs = [m + s for c in panel.curves for m, s in zip(c.mean, c.spread, strict=True)]
    across = Scale.over(0.0, max(every), LEFT, PANEL_WIDTH - RIGHT)
    up = Scale.over(min(lows), max(highs), PANEL_HEIGHT - BOTTOM, TOP)
    yield _text((LEFT + PANEL_WIDTH - RIGHT) / 2.0, TOP - 10.0, panel.title)
    yield _text((LEFT + PANEL_WIDTH - RIGHT) / 2.0, PANEL_HEIGHT - 8.0, "impressions")
    yield from _axes(across, up)
    for at, curve in enumerate(panel.curves):
        yield from _drawn(curve, across, up, COLOURS[at % len(COLOURS)])


def _axes(across: Scale, up: Scale) -> Iterator[str]:
    for value in up.marks():
        y = up.place(value)
        yield f'<path d="M{across.start:g} {y:.1f}H{across.end:g}" stroke="#ddd"/>'
        yield _text(across.start - 6.0, y + 4.0, f"{value:.{_digits(up.step)}f}", anchor="end")
    for value in across.marks():
        yield _text(across.place(value), up.start + 16.0, f"{value:,.{_digits(across.step)}f}")
    frame = f"M{across.start:g} {up.end:g}V{up.start:g}H{across.end:g}"
    yield f'<path d="{frame}" fill="none" stroke="#333"/>'


def _digits(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _drawn(curve: Curve, across: Scale, up: Scale, colour: str) -> Iterator[str]:
    x = [across.place(value) for value in curve.x]
    line = list(zip(x, map(up.place, curve.mean), strict=True))
    if any(curve.spread):
        both = list(zip(curve.mean, curve.spread, strict=True))
        above = zip(x, [up.place(m + s) for m, s in both], strict=True)
        below = zip(x, [up.place(m - s) for m, s in both], strict=True)
        edge = _points([*above, *reversed(list(below))])
        yield f'<polygon points="{edge}" fill="{colour}" fill-opacity="0.15"/>'
    yield f'<polyline points="{_points(line)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _legend(names: Sequence[str], width: float, y: float) -> Iterator[str]:
    room = 130.0
    for at, name in enumerate(names):
        x = width / 2.0 + (at - len(names) / 2.0) * room
        colour = COLOURS[at % len(COLOURS)]
        yield f'<path d="M{x:g} {y - 4:g}h22" stroke="{colour}" stroke-width="3"/>'
        yield _text(x + 28.0, y, name, anchor="start")


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(text)}</text>"
