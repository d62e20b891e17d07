"""Final against shown NDCG@10 for several amounts of exploration, next to PDGD.

More exploration shows worse rankings and teaches more. `SOLAR_DEV_FIGURES=FOLDER` writes the
figure `clicks-frontier.svg`.
"""

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.evaluation import plots
from benchmarks.clicks_runs import BASELINE, DEBIASED, RATES, USERS, Result, Run, results, seeds
from benchmarks.clicks_runs import error as standard_error
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

EXPLORATIONS = ("exploration 0.25", "exploration 0.5", DEBIASED, "exploration 2", "exploration 4")
FIGURE = "clicks-frontier.svg"
WIDTH, HEIGHT = 4.6, 4.0  # inches of a panel


class Point(NamedTuple):
    """The difference of a contender to PDGD: means and standard errors."""

    contender: str
    shown: float
    final: float
    shown_error: float
    final_error: float


def run() -> list[Goal]:
    """Print the frontier, and draw it if SOLAR_DEV_FIGURES is set; there is no goal."""
    chosen = [name for name in (folds()[0], "MSLR-sample") if name in worlds()]
    found = {data: frontier(data) for data in chosen}
    for data, points in found.items():
        rows = [
            [
                _named(one.contender),
                f"{one.final:+.4f} ± {one.final_error:.4f}",
                f"{one.shown:+.4f} ± {one.shown_error:.4f}",
            ]
            for one in points
        ]
        title = f"Frontier, {data}: difference to {BASELINE}, mean of {', '.join(USERS)} users"
        print(table(title, ["contender", "final", "shown"], rows), end="\n\n")
    if folder := os.environ.get("SOLAR_DEV_FIGURES"):
        _write(Path(folder), found)
    return []


def frontier(data: str) -> list[Point]:
    """Return a point for each contender; the baseline is 0, 0."""
    results([Run(data, users, one, seeds()) for one in (*EXPLORATIONS, *RATES) for users in USERS])
    return [_point(data, one) for one in (*EXPLORATIONS, *RATES)]


def _point(data: str, contender: str) -> Point:
    """Average over the users, then over the seeds."""
    pairs = [[Run(data, users, one, seeds()) for one in (contender, BASELINE)] for users in USERS]
    found = results([run for pair in pairs for run in pair])
    leads = [found[one].minus(found[other]) for one, other in pairs]
    mean = Result(*np.mean(leads, axis=0))
    errors = standard_error(mean.shown), standard_error(mean.test)
    return Point(contender, float(mean.shown.mean()), float(mean.test.mean()), *errors)


def _named(contender: str) -> str:
    return "exploration 1 (default)" if contender == DEBIASED else contender


def _write(folder: Path, found: dict[str, list[Point]]) -> None:
    if not plots.can_draw():
        print("matplotlib is not installed: the figure is skipped")
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FIGURE).write_text(svg(found), encoding="utf-8")
    print(f"figure written: {folder / FIGURE}")


def svg(found: dict[str, list[Point]]) -> str:
    """Draw a panel for each data set."""
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    file = io.StringIO()
    with rc_context(plots.STYLE):
        figure = Figure((WIDTH * len(found), HEIGHT), layout="constrained")
        for at, (data, points) in enumerate(found.items(), start=1):
            _draw(figure.add_subplot(1, len(found), at), data, points)
        lines = figure.axes[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw(axes: Any, data: str, points: list[Point]) -> None:
    for names, label, colour in zip(
        (EXPLORATIONS, tuple(RATES)), ("SOLAR, by exploration", "PDGD, by rate"), plots.COLOURS,
        strict=False,
    ):  # fmt: skip
        some = [one for one in points if one.contender in names]
        axes.errorbar(
            [one.shown for one in some], [one.final for one in some],
            [one.final_error for one in some], [one.shown_error for one in some],
            color=colour, marker="o", markersize=4.0, linewidth=1.0, elinewidth=0.6, label=label,
        )  # fmt: skip
        for one in some:
            name = _named(one.contender).split()[1]
            at = one.shown, one.final
            axes.annotate(name, at, (4.0, 4.0), textcoords="offset points", fontsize=8)
    axes.set(title=data, xlabel="shown NDCG@10 − PDGD 0.1", ylabel="final NDCG@10 − PDGD 0.1")
    axes.locator_params(axis="x", nbins=6)
    axes.grid(color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)
