"""The picture of a run: curves over time as SVG, with the disturbances as bands."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

Points = Sequence[tuple[float, float]]

#: Colours that colour-blind readers can distinguish (Okabe and Ito), on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444")
WIDTH, HEIGHT, GAP = 760, 130, 46
LEFT, TOP, LEGEND = 64, 40, 190
TICKS = 4
FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="11" role="img"'


class Panel(NamedTuple):
    """Curves by name; x is in seconds."""

    title: str
    curves: Mapping[str, Points]


def svg(title: str, panels: Sequence[Panel], seconds: float, bands: Points) -> str:
    """Draw panels below each other; `bands` are the begins and ends of disturbances.

    >>> svg("run", [Panel("a", {"b": [(0.0, 1.0), (60.0, 2.0)]})], 60.0, []).count("<polyline")
    1
    """
    height = TOP + len(panels) * (HEIGHT + GAP)
    width = LEFT + WIDTH + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for at, panel in enumerate(panels):
        parts += _panel(panel, TOP + at * (HEIGHT + GAP), max(seconds, 1.0), bands)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, top: float, seconds: float, bands: Points) -> list[str]:
    values = [y for points in panel.curves.values() for _, y in points]
    most = _round_up(max(values, default=1.0))
    x, y = WIDTH / seconds, HEIGHT / most
    parts = [_text(LEFT, top - 5, panel.title, 'font-weight="bold"')]
    for begin, end in ((begin, min(end, seconds)) for begin, end in bands if begin < seconds):
        width = max(1.0, (end - begin) * x)
        place = f'x="{LEFT + begin * x:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}"'
        parts.append(f'<rect {place} fill="#eeeeee"/>')
    for tick in range(TICKS + 1):
        share = tick / TICKS
        height, minutes = top + HEIGHT * (1 - share), f"{seconds * share / 60:.3g} min"
        ends = f'x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{height:.1f}" y2="{height:.1f}"'
        parts += [
            f'<line {ends} stroke="#dddddd"/>',
            _text(LEFT - 6, height + 4, f"{most * share:g}", 'text-anchor="end"'),
            _text(LEFT + WIDTH * share, top + HEIGHT + 14, minutes, 'text-anchor="middle"'),
        ]
    for at, (name, points) in enumerate(panel.curves.items()):
        colour = COLOURS[at % len(COLOURS)]
        inside = [(px, py) for px, py in points if px <= seconds]
        drawn = " ".join(f"{LEFT + px * x:.1f},{top + HEIGHT - py * y:.1f}" for px, py in inside)
        parts += [
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
            _text(LEFT + WIDTH + 12, top + 12 + 15 * at, name, f'fill="{colour}"'),
        ]
    return parts


def _text(x: float, y: float, words: str, how: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{escape(words)}</text>'


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 4, 6, 8 times a power of ten.

    >>> _round_up(0.7), _round_up(13.0), _round_up(81.0)
    (0.8, 20.0, 100.0)
    """
    size = 1.0
    while size > value > 0:
        size /= 10
    while size * 10 <= value:
        size *= 10
    return next(size * one for one in (1, 2, 4, 6, 8, 10) if size * one >= value)
