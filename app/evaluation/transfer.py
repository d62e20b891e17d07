"""`solar evaluate --transfer`: the start of an online learner after users changed their intent.

A synthetic world has two utilities with a known cosine. RankSVM trains on queries judged by the
first. The stream is judged by the second, and these starts play it online (Algorithm 1):

    solar-ii-cold           SOLAR-II starts from zero weights
    solar-ii-warm           SOLAR-II starts from RankSVM, with the covariance of a warm start
    ranksvm-frozen          RankSVM, which does not learn
    solar-ii-warm-weights   SOLAR-II starts from RankSVM's weights, as uncertain as a cold start
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from app.evaluation import warm_vs_cold
from app.evaluation.fold_systems import train_ranksvm
from app.evaluation.folds import Fold
from app.evaluation.plots import Curve, Panel
from app.evaluation.synthetic import SyntheticData, unit
from app.ranking import online
from app.ranking.arrays import Floats, Integers
from app.ranking.measures import Discount
from app.ranking.online import Contestant, Pairwise
from app.ranking.solar import DEFAULT_GAMMA, SolarII

TRANSFER_STARTS = ("solar-ii-cold", "solar-ii-warm", "ranksvm-frozen", "solar-ii-warm-weights")
#: Judged queries of the first utility that choose RankSVM's C; `SyntheticData.queries` train it.
VALIDATION_QUERIES = 100
#: Points of a curve for each power of ten.
POINTS = 6


@dataclass(frozen=True, slots=True)
class Transfer:
    """The settings of the experiment; `cosine` is that of the two utilities."""

    lists: int = 20_000
    seeds: int = 10
    cosine: float = 0.5
    gamma: float = DEFAULT_GAMMA
    discount: Discount = "standard"
    seed: int = 0
    data: SyntheticData = field(default_factory=SyntheticData)


class Mean(NamedTuple):
    """A mean over seeds and its standard error."""

    mean: float
    error: float


@dataclass(frozen=True, slots=True)
class TransferRow:
    """NDCG@10 of every list of one start and of the cold start, seeds x lists."""

    start: str
    ndcg: Floats
    cold: Floats

    def over(self, lists: slice) -> Mean:
        """Return the mean over these lists."""
        return _mean(self.ndcg[:, lists].mean(axis=1))

    def against_cold(self, lists: slice) -> Mean:
        """Return the mean over these lists minus that of the cold start, seed by seed."""
        return _mean((self.ndcg - self.cold)[:, lists].mean(axis=1))

    def as_json(self) -> str:
        """Return one JSON object on one line."""
        seeds, lists = self.ndcg.shape
        parts = {
            f"online-ndcg@10-{name}": {
                **self.over(part)._asdict(),
                "against_cold": self.against_cold(part)._asdict(),
            }
            for name, part in parts_of(lists).items()
        }
        return json.dumps({"start": self.start, "lists": lists, "seeds": seeds, **parts})


def run_transfer(experiment: Transfer, *, progress: bool = True) -> list[TransferRow]:
    """Play all starts in the world of every seed; show a progress bar on a terminal."""
    SolarII(experiment.data.features, experiment.gamma)  # reports a bad parameter before the work
    played = np.empty((len(TRANSFER_STARTS), experiment.seeds, experiment.lists))
    total = len(TRANSFER_STARTS) * experiment.seeds
    with tqdm(total=total, unit="run", disable=None if progress else True, leave=False) as bar:
        for at in range(experiment.seeds):
            makers = transfer_contestants(world := draw_world(experiment, at), experiment)
            for index, start in enumerate(TRANSFER_STARTS):
                bar.set_description(start)
                rng = np.random.default_rng([experiment.seed, at, 1])
                qualities = online.play_online(
                    makers[start](), world.test, rng, experiment.discount
                )
                played[index, at] = [quality.ndcg_10 for quality in qualities]
                bar.update()
    return [
        TransferRow(start, ndcg, played[0])
        for start, ndcg in zip(TRANSFER_STARTS, played, strict=True)
    ]


def draw_world(experiment: Transfer, at: int) -> Fold:
    """Draw training and validation queries of one utility, and test lists of the other."""
    rng, data = np.random.default_rng([experiment.seed, at]), experiment.data
    first = unit(rng.standard_normal(data.features))
    second = at_cosine(first, experiment.cosine, rng)
    train, validation, stream = (
        replace(data, queries=queries).judge(utility, rng)
        for utility, queries in (
            (first, data.queries), (first, VALIDATION_QUERIES), (second, experiment.lists),
        )
    )  # fmt: skip
    return Fold(data.features, train, validation, stream)


def at_cosine(u: Floats, cosine: float, rng: np.random.Generator) -> Floats:
    """Draw a vector of norm 1 with this cosine to `u`, which has norm 1.

    >>> v = at_cosine(np.array([1.0, 0.0]), 0.5, np.random.default_rng(0))
    >>> abs(v).round(3)
    array([0.5  , 0.866])
    """
    other = rng.standard_normal(len(u))
    for _ in range(2):  # the second time removes what rounding left
        other = unit(other - (other * u).sum() * u)
    turned: Floats = cosine * u + (1.0 - cosine * cosine) ** 0.5 * other
    return turned


def transfer_contestants(
    world: Fold, experiment: Transfer
) -> Mapping[str, Callable[[], Contestant]]:
    """Return constructors of the starts in a world."""
    n, gamma = world.n, experiment.gamma
    weights = train_ranksvm(world, experiment.discount).weights
    return {
        **warm_vs_cold.contestants(world, weights, gamma),
        "solar-ii-warm-weights": lambda: Pairwise(SolarII(n, gamma, weights=weights)),
    }


def parts_of(lists: int) -> dict[str, slice]:
    """Return the parts of the stream that the table shows, by name.

    >>> list(parts_of(20_000))
    ['first-10', 'first-100', 'first-1000', 'last-1000', 'all']
    >>> list(parts_of(300))
    ['first-10', 'first-100', 'all']
    """
    parts = {f"first-{first}": slice(first) for first in (10, 100, 1000) if first < lists}
    last = {"last-1000": slice(-1000, None)} if lists > 1000 else {}
    return {**parts, **last, "all": slice(None)}


def transfer_table(rows: Sequence[TransferRow]) -> str:
    """Format the starts as text: means, then the differences to the cold start."""
    parts = parts_of(rows[0].ndcg.shape[1])
    names = [name.upper().replace("-", " ") for name in parts]
    means = [f"{'online NDCG@10':<24}" + "".join(f"{name:<18}" for name in names)]
    means += [
        f"{row.start:<24}"
        + "".join("{:.4f} ± {:.4f}   ".format(*row.over(p)) for p in parts.values())
        for row in rows
    ]
    leads = [f"{'minus cold':<24}"]
    leads += [
        f"{row.start:<24}"
        + "".join("{:+.4f} ± {:.4f}  ".format(*row.against_cold(p)) for p in parts.values())
        for row in rows[1:]
    ]
    return "\n".join(line.rstrip() for line in (*means, "", *leads))


def transfer_panels(rows: Sequence[TransferRow]) -> list[Panel]:
    """Return two panels over the number of lists: NDCG@10 at that point, and so far."""
    ends = curve_ends(rows[0].ndcg.shape[1])
    curves = [(_recent(row, ends), _cumulative(row, ends)) for row in rows]
    return [
        Panel(
            "NDCG@10 since the previous point", [recent for recent, _ in curves], "lists", xlog=True
        ),
        Panel("NDCG@10 of all lists so far", [every for _, every in curves], "lists", xlog=True),
    ]


def curve_ends(lists: int) -> Integers:
    """Return the ends of the parts of a curve, evenly spaced on a logarithmic scale.

    >>> curve_ends(30)
    array([10, 15, 22, 30])
    """
    ends = 10.0 ** np.arange(1.0, np.log10(lists), 1.0 / POINTS)
    return np.unique(np.append(ends.round(), lists).astype(np.int64))


def _recent(row: TransferRow, ends: Integers) -> Curve:
    starts = np.append(0, ends[:-1])
    found = [row.over(slice(low, high)) for low, high in zip(starts, ends, strict=True)]
    return _curve(row.start, ends, found)


def _cumulative(row: TransferRow, ends: Integers) -> Curve:
    return _curve(row.start, ends, [row.over(slice(end)) for end in ends])


def _curve(name: str, ends: Integers, found: Sequence[Mean]) -> Curve:
    means, errors = zip(*found, strict=True)
    return Curve(name, ends.tolist(), list(means), list(errors))


def _mean(values: Floats) -> Mean:
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Mean(float(values.mean()), float(error))
