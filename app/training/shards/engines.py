"""Who computes the parts, and the sums over all parts.

An engine calls a function for each list of arguments and yields the results in the order of the
arguments. `SerialEngine` does so in this process; `app/training/cluster.py` on a cluster.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from app.config import GIB
from app.ranking.arrays import Floats
from app.ranking.batch import partial_sums
from app.ranking.batch.partial_sums import LossSum
from app.ranking.batch.path import Measure
from app.ranking.limits import MOST_FEATURES_FULL
from app.training.shards import parts
from app.training.shards.cache import Cache
from app.training.shards.extra import extra_needed
from app.training.shards.parts import ShardPart
from app.training.shards.urls import check_cluster

#: Seconds without a worker after which a training fails.
PATIENCE = 60.0
#: A function of `parts.py` or `files.py`; the first argument is the cache of who computes it.
Task = Callable[..., Any]


class Engine(Protocol):
    """Calls pure functions, here or elsewhere."""

    def map(self, task: Task, calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield `task(cache, *call)` for each call, in their order."""


class SerialEngine:
    """Computes one part after the other in this process."""

    def __init__(self, cache_bytes: int = GIB) -> None:
        self._cache = Cache(cache_bytes)

    def map(self, task: Task, calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield `task(cache, *call)` for each call, in their order."""
        return (task(self._cache, *call) for call in calls)


class EngineSums:
    """Sums over all parts, computed by an engine and added in the order of the parts."""

    def __init__(self, engine: Engine, given: Sequence[ShardPart]) -> None:
        self._engine, self._parts, self.n = engine, tuple(given), given[0].reading.width
        text = not any(part.shard.is_parquet for part in given)
        self._sparse = text and self.n > MOST_FEATURES_FULL

    def loss(self, w: Floats) -> LossSum:
        """Value and gradient of the loss at w."""
        return partial_sums.added_losses(self._map(parts.part_loss, w), self.n)

    def product(self, w: Floats, v: Floats) -> Floats:
        """Product of the Hessian of the loss at w with v."""
        return partial_sums.added(self._map(parts.part_product, w, v), self.n)

    def diagonal(self, w: Floats) -> Floats | None:
        """About the diagonal of the Hessian of the loss at w; None for dense rows."""
        if not self._sparse:
            return None
        return partial_sums.added(self._map(parts.part_diagonal, w), self.n)

    def quality(self, w: Floats, by: Measure) -> float:
        """Quality of w."""
        return partial_sums.mean_share(
            partial_sums.added_shares(self._map(parts.part_quality, w, by))
        )

    def scatter(self, w: Floats) -> Floats:
        """Scatter of the pairs inside at w."""
        return partial_sums.added(self._map(parts.part_scatter, w), self.n, self.n)

    def spreads(self, w: Floats) -> Floats:
        """Diagonal of the scatter."""
        return partial_sums.added(self._map(parts.part_spreads, w), self.n)

    def _map(self, task: Task, *more: Any) -> Iterator[Any]:
        return self._engine.map(task, [(part, *more) for part in self._parts])


@contextmanager
def opened_engine(address: str, patience: float, name: str) -> Iterator[Engine]:
    """Connect to a cluster; SolarError if the extra is not installed. `name` is the option's."""
    check_cluster(address, name)
    with extra_needed():
        from app.training.cluster import cluster_engine  # noqa: PLC0415
    with cluster_engine(address, patience) as engine:
        yield engine
