"""Batch training on shards: the same steps as `app/training/trainer.py`, over sums of parts."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain.model import Model
from app.domain.model_config import ModelConfig
from app.errors import BadData
from app.ranking.arrays import Floats, Integers
from app.ranking.batch import path, warmstart
from app.ranking.batch.newton import Minimum
from app.ranking.batch.partial_sums import SummedTrainer
from app.ranking.batch.trainers import Trainer
from app.training import trainer
from app.training.options import Training, check_sharded_training
from app.training.shards import parts
from app.training.shards.checkpoint import Checkpoint, CheckpointedTrainer
from app.training.shards.engines import Engine, EngineSums
from app.training.shards.files import Location, Shard
from app.training.shards.parts import FeatureColumns, Reading, ShardPart, Survey
from app.training.trainer import Fits, Progressed, ReportProgress

#: Measuring the current model takes at most this share of the time.
MEASURING = 0.1

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CheckedShards:
    """Shards that can be trained on; the last `validating` of them are held out."""

    reading: Reading
    shards: tuple[Shard, ...]
    surveys: tuple[Survey, ...]
    validating: int = 0

    @property
    def ordering(self) -> Mask:
        """A mask of the queries with two different labels."""
        return np.concatenate([one.ordering for one in self.surveys])

    @property
    def sizes(self) -> Integers:
        """The number of documents of each query."""
        return np.concatenate([one.sizes for one in self.surveys])

    def parts(self, kept: Mask | None = None) -> list[ShardPart]:
        """Return the parts with these queries, or all."""
        if kept is None:
            return [ShardPart(shard, self.reading) for shard in self.shards]
        ends = np.cumsum([len(one.ordering) for one in self.surveys])
        masks = np.split(kept, ends[:-1])
        return [
            ShardPart(shard, self.reading, b"" if mask.all() else np.packbits(mask).tobytes())
            for shard, mask in zip(self.shards, masks, strict=True)
            if mask.any()
        ]


@dataclass(frozen=True, slots=True)
class ShardedModel:
    """A model trained on shards; `tried` has (parameter, quality on held-out queries).

    `resumed`: the training continued from a checkpoint.
    """

    minimum: Minimum
    parameter: float
    tried: tuple[tuple[float, float], ...]
    sums: EngineSums
    queries: int
    documents: int
    ndcg: float
    resumed: bool = False


# ---- the shards ----


def find_shards(engine: Engine, locations: Sequence[Location]) -> list[Shard]:
    """Find the files of all URLs; BadData if one is named twice."""
    found = [
        one for some in engine.map(parts.find_files, [(at,) for at in locations]) for one in some
    ]
    for url, times in Counter(one.url for one in found).items():
        if times > 1:
            name = next(one.name for one in found if one.url == url)
            raise BadData(f"{name}: expected each shard once, got it {times} times")
    return found


def read_columns(engine: Engine, shards: Sequence[Shard]) -> FeatureColumns:
    """Return the common features of all shards; BadData if they differ."""
    found = list(engine.map(parts.columns, [(shard,) for shard in shards]))
    exact = [(shard, one) for shard, one in zip(shards, found, strict=True) if shard.is_parquet]
    n = max(one.n for one in found)
    for shard, one in exact:
        if one.n != n:
            raise BadData(f"{shard.name}: expected {n} features, as another shard has, got {one.n}")
    names = next((one.names for one in found if one.names), ())
    for shard, one in zip(shards, found, strict=True):
        if bool(one.names) != bool(names) or set(one.names) != set(names):
            raise BadData(f"{shard.name}: expected the columns of the first shard, got others")
    if not n:
        raise BadData(f"{shards[0].name}: expected features, got none in any line")
    return FeatureColumns(n, names)


def check_shards(
    engine: Engine,
    shards: Sequence[Shard],
    columns: FeatureColumns,
    config: ModelConfig,
    bound: float,
    validating: int = 0,
) -> CheckedShards:
    """Read all rows once; BadData if they do not fit the model, or a query is in two shards."""
    if columns.n != len(config.given):
        raise BadData(f"features: expected {len(config.given)}, as the model has, got {columns.n}")
    if columns.names and set(columns.names) != set(config.given):
        missing = next(name for name in config.given if name not in columns.names)
        raise BadData(f"{shards[0].name}: expected the column {missing}, a feature of the model")
    names = config.given if columns.names else ()
    reading = Reading("", columns.n, names, config.normalization, bound, _ramps(config))
    reading = replace(reading, training=_digest(repr((shards, reading))))
    given = [ShardPart(shard, reading) for shard in shards]
    surveys = tuple(engine.map(parts.survey, [(part,) for part in given]))
    _refuse_shared_queries(engine, given, surveys)
    return CheckedShards(reading, tuple(shards), surveys, validating)


def _ramps(config: ModelConfig) -> tuple[tuple[int, float], ...]:
    if config.ramps is None:
        return ()
    return tuple(zip(config.ramps.columns.tolist(), config.ramps.knots.tolist(), strict=True))


def _refuse_shared_queries(
    engine: Engine, given: Sequence[ShardPart], surveys: Sequence[Survey]
) -> None:
    """Raise BadData if two shards have rows of the same query."""
    repeated = parts.duplicated(np.concatenate([one.hashes for one in surveys]))
    if not len(repeated):
        return
    first: dict[str, ShardPart] = {}
    found = engine.map(parts.query_names, [(part, repeated) for part in given])
    for part, names in zip(given, found, strict=True):
        for name in names:
            other = first.setdefault(name, part)
            if other is not part:
                raise BadData(
                    f"{part.shard.name}: expected all rows of a query in one shard; "
                    f"{other.shard.name} has rows of the same query, got {name[:64]!r}"
                )


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


# ---- training ----


def train_shards(
    engine: Engine,
    checked: CheckedShards,
    training: Training,
    report: ReportProgress | None = None,
    keep: Path | None = None,
) -> ShardedModel:
    """Train as `train_batch` does; the weights of each iteration are kept in the file `keep`."""
    training = check_sharded_training(training)
    checkpoint = Checkpoint(keep, _digest(repr((checked.reading, checked.validating, training))))
    ordering, resumed = checked.ordering, checkpoint.resumed
    if not ordering.any():
        raise BadData("labels: expected two documents of one query with different labels, got none")
    run = _Run(engine, checked, checkpoint, report)
    if training.given is not None:
        return replace(run.final(training.given, None, Fits(1)), resumed=resumed)
    share = _share(checked, training)
    held = trainer.held_out(ordering, share)
    rest, validation = run.sums(~held), run.sums(held)
    fits = Fits(len(SummedTrainer.grid) + 1)
    found = path.follow(
        run.trainer(rest, validation, fits),
        lambda w: validation.quality(w, training.by),
        grid=SummedTrainer.grid,
    )
    tried, best = tuple((one.parameter, one.quality) for one in found.tried), found.best
    if share >= 1.0:
        model = run.model(best.minimum, best.parameter, ~held)
    else:
        fits.skip_to_last()
        model = run.final(best.parameter, best.minimum.w, fits)
    return replace(model, tried=tried, resumed=resumed)


def _share(checked: CheckedShards, training: Training) -> float:
    if checked.validating:
        return float(sum(len(one.ordering) for one in checked.surveys[-checked.validating :]))
    return trainer.HELD_OUT if training.validation is None else training.validation


class _Run:
    """One training: what its fits have in common."""

    def __init__(
        self,
        engine: Engine,
        checked: CheckedShards,
        checkpoint: Checkpoint,
        report: ReportProgress | None,
    ) -> None:
        self._engine, self._checked, self._checkpoint = engine, checked, checkpoint
        self._report = report

    def sums(self, kept: Mask | None) -> EngineSums:
        return EngineSums(self._engine, self._checked.parts(kept))

    def trainer(self, sums: EngineSums, measured: EngineSums, fits: Fits) -> Trainer:
        kept = CheckpointedTrainer(SummedTrainer(sums), self._checkpoint)
        return _ReportingTrainer(kept, measured, self._report, fits)

    def final(self, parameter: float, start: Floats | None, fits: Fits) -> ShardedModel:
        """Train on all queries."""
        sums = self.sums(None)
        return self.model(self.trainer(sums, sums, fits).fit(parameter, start), parameter, None)

    def model(self, minimum: Minimum, parameter: float, kept: Mask | None) -> ShardedModel:
        sums, sizes = self.sums(kept), self._checked.sizes
        counted = sizes if kept is None else sizes[kept]
        ndcg = sums.quality(minimum.w, "ndcg@10")
        total = int(counted.sum())
        return ShardedModel(minimum, parameter, (), sums, len(counted), total, ndcg)


class _ReportingTrainer:
    """A trainer that reports each iteration; it measures the model now and then."""

    def __init__(
        self, inner: Trainer, measured: EngineSums, report: ReportProgress | None, fits: Fits
    ) -> None:
        self.n, self.grid = inner.n, inner.grid
        self._inner, self._measured, self._report, self._fits = inner, measured, report, fits
        self._ndcg, self._measure_at, self._before = 0.0, 0.0, 0

    def fit(self, parameter: float, start: Floats | None = None, _: Any = None) -> Minimum:
        """Fit with the wrapped trainer."""

        def progress(iteration: int, objective: float, distance: float, w: Floats) -> None:
            share = self._fits.share(distance)
            if self._report is not None:
                at, ndcg = self._before + iteration, self._quality(w)
                self._report(Progressed(parameter, at, objective, distance, ndcg, share))

        minimum = self._inner.fit(parameter, start, progress)
        self._before += minimum.iterations
        self._fits.ended()
        return minimum

    def _quality(self, w: Floats) -> float:
        began = monotonic()
        if began >= self._measure_at:
            self._ndcg = self._measured.quality(w, "ndcg@10")
            self._measure_at = monotonic() + (monotonic() - began) / MEASURING
        return self._ndcg


# ---- the model ----


def online_sharded(found: ShardedModel, config: ModelConfig) -> Model:
    """Convert to an online model: the same w, and for SOLAR-II the matching Σ."""
    w = found.minimum.w
    spread: dict[str, Callable[[], Floats]] = {
        "full": lambda: warmstart.covariance_of(found.sums.scatter(w), config.gamma),
        "diagonal": lambda: warmstart.variances_of(found.sums.spreads(w), config.gamma),
    }
    return trainer.online_model(w, config, spread[config.covariance])


def describe_sharded(found: ShardedModel, training: Training, normalization: str) -> dict[str, Any]:
    """Describe a model as the result of a job."""
    return trainer.describe_result(
        found.minimum, training, normalization, found.parameter, found.tried,
        queries=found.queries, documents=found.documents, ndcg=found.ndcg,
    )  # fmt: skip
