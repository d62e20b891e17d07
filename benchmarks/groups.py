"""Many small models: `solar train --group-by` on one core, from start to end."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Floats
from benchmarks.report import Goal, at_least, table
from benchmarks.training import timed

WANTED = 50.0
#: Models, documents and features of the goal; a run with FEW models measures the start.
GROUPS, FEW, DOCUMENTS, FEATURES = 300, 2, 1_000, 20


class Shape(NamedTuple):
    """Queries of a group, labels, and the noise of the labels."""

    name: str
    queries: int
    labels: int
    noise: float


SHAPES = (
    Shape("50 queries, 3 labels", 50, 3, 0.7),
    Shape("100 queries, 5 labels", 100, 5, 0.7),
    Shape("50 queries, 3 labels, little noise", 50, 3, 0.05),
)


SOURCES = ("LETOR text into a file", "JSON lines into a file", "LETOR text into a store")


def run() -> list[Goal]:
    """Print the table, return the goals."""
    rows, reached = [], []
    with tempfile.TemporaryDirectory(prefix="solar-bench-") as folder:
        directory = Path(folder)
        for shape in SHAPES:
            all_, few = (written(shape, directory, groups) for groups in (GROUPS, FEW))
            for name in SOURCES:
                start = cpu_seconds(name, few, directory)
                rate = (GROUPS - FEW) / (cpu_seconds(name, all_, directory) - start)
                rows.append([shape.name, name, f"{rate:.0f}", f"{start:.1f} s"])
                reached.append(rate)
    title = (
        f"`solar train --group-by`, {GROUPS} models of {DOCUMENTS:,} documents × {FEATURES} "
        "features, C chosen, one process"
    )
    print(table(title, ["group", "", "models per CPU second", "start"], rows, words=2), end="\n\n")
    return [at_least("many models, the slowest case", WANTED, "models/s", min(reached))]


def cpu_seconds(name: str, files: tuple[Path, Path], directory: Path) -> float:
    """CPU time of a whole command, all its processes included; the best of two."""
    text, lines = files
    arguments = [str(text), "--group-by", "qid-prefix"]
    if name.startswith("JSON"):
        arguments = [str(lines), "--group-by", "shop"]
    if name.endswith("store"):
        arguments += ["--model", "{group}", "--data-dir", str(directory / "data")]
    else:
        arguments += ["--output", str(directory / "models.jsonl")]
    return min(timed([*arguments, "--processes", "1"])[1] for _ in range(2))


def written(shape: Shape, directory: Path, groups: int) -> tuple[Path, Path]:
    """Write groups as LETOR text and as JSON lines."""
    text, lines = directory / f"{groups}.txt", directory / f"{groups}.jsonl"
    with text.open("w") as letor, lines.open("w") as jsonl:
        for at in range(groups):
            for query, label, row in drawn(shape, at):
                features = " ".join(f"{k}:{value:g}" for k, value in enumerate(row, start=1))
                letor.write(f"{label} qid:shop{at}:{query} {features}\n")
                document = {"shop": f"shop{at}", "qid": query, "label": label, "features": row}
                jsonl.write(json.dumps(document) + "\n")
    return text, lines


def drawn(shape: Shape, seed: int) -> Iterator[tuple[int, int, list[float]]]:
    """Draw the documents of a group: query, label from a noisy linear utility, features."""
    rng = np.random.default_rng(seed)
    X: Floats = rng.random((DOCUMENTS, FEATURES)).round(4)
    worth = X @ rng.standard_normal(FEATURES) + shape.noise * rng.standard_normal(DOCUMENTS)
    cuts = np.quantile(worth, 1.0 - 0.5 ** np.arange(1, shape.labels))
    labels = np.digitize(worth, cuts)
    size = DOCUMENTS // shape.queries
    for at, (label, row) in enumerate(zip(labels.tolist(), X.tolist(), strict=True)):
        yield at // size, label, row
