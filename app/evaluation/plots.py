"""Curves with deviation bands as SVG; matplotlib (extra `plot`) is imported on use."""

import io
from collections.abc import Sequence
from importlib import import_module
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

PANEL_WIDTH, PANEL_HEIGHT = 4.4, 3.6  # inches
#: Names in a row of the legend, for each panel.
NAMES_A_PANEL = 2
#: Colours that colour-blind readers can distinguish (Okabe and Ito), on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
#: Reproducible bytes; text stays text, and `$` in a file name is not parsed as mathematics.
STYLE: Any = {"svg.hashsalt": "solar", "svg.fonttype": "none", "text.parse_math": False}


class Curve(NamedTuple):
    """A line over x, with a band of ± `spread`."""

    name: str
    x: list[float]
    mean: list[float]
    spread: list[float]


class Panel(NamedTuple):
    """Curves on common axes; `xlog` and `ylog` are logarithmic scales."""

    title: str
    curves: Sequence[Curve]
    xlabel: str = "impressions"
    xlog: bool = False
    ylog: bool = False


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        import_module("matplotlib")
    except ImportError:
        return False
    return True


def svg(title: str, panels: Sequence[Panel]) -> str:
    """Draw panels side by side under a title, with one legend.

    >>> drawn = svg("", [Panel("a", [Curve("b", [0.0, 1.0], [0.2, 0.4], [0.0, 0.1])])])
    >>> drawn.count("fill-opacity: 0.15")
    1
    """
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    file = io.StringIO()
    with rc_context(STYLE):
        figure = Figure((PANEL_WIDTH * len(panels), PANEL_HEIGHT), layout="constrained")
        figure.suptitle(title)
        for at, panel in enumerate(panels, start=1):
            _draw(figure.add_subplot(1, len(panels), at), panel)
        lines = figure.axes[0].get_lines()
        columns = min(len(lines), NAMES_A_PANEL * len(panels))
        figure.legend(handles=lines, loc="outside lower center", ncols=columns, frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw(axes: Any, panel: Panel) -> None:
    for curve, colour in zip(panel.curves, cycle(COLOURS), strict=False):
        axes.plot(curve.x, curve.mean, color=colour, label=curve.name)
        if any(curve.spread):
            mean, spread = np.array(curve.mean), np.array(curve.spread)
            band = (mean - spread, mean + spread)
            axes.fill_between(curve.x, *band, color=colour, alpha=0.15, linewidth=0.0)
    axes.set(title=panel.title, xlabel=panel.xlabel)
    if panel.ylog:
        _scale_log(axes.set_yscale, axes.yaxis)
    if panel.xlog:
        _scale_log(axes.set_xscale, axes.xaxis)
    else:
        axes.set_xlim(left=0.0)
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)


def _scale_log(set_scale: Any, axis: Any) -> None:
    """Use a logarithmic scale, labelled at powers of ten without mathematics."""
    set_scale("log")
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter("")
