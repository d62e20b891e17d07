"""`solar train --cluster`: train on shards, into a file and a store."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from app.config import Settings
from app.domain.model import Model
from app.domain.model_config import ModelConfig
from app.storage.store import Store
from app.training.options import Training, check_normalization
from app.training.shards import training as sharded
from app.training.shards.engines import Engine, opened_engine
from app.training.shards.files import located
from app.training.shards.training import ShardedModel
from app.training.targets.file import TrainingRequest, new_config, show, summary
from app.training.targets.store import append_model, create_model, read_config
from app.training.trainer import Progressed

#: Runs a function with the store, and closes it.
WithStore = Callable[[Callable[[Store], Awaitable[Any]]], Any]


@dataclass(frozen=True, slots=True)
class ShardsRequest:
    """Shards, options and targets."""

    shards: tuple[str, ...]
    validate: str | None
    training: Training
    output: Path | None
    model: str | None
    cluster: str
    patience: float
    normalization: str | None = None  # None: that of the model; a new one has none

    @property
    def checkpoint(self) -> Path:
        """The file of the weights while the training runs: beside the output."""
        beside = self.output or Path(f"{self.model}.json")
        return beside.with_name(f"{beside.name}.checkpoint")


def train_on_cluster(request: ShardsRequest, settings: Settings, with_store: WithStore) -> str:
    """Train and write the targets; return a summary. The store is open only before and after."""
    name = request.model
    config = None if name is None else with_store(lambda store: read_config(store, name))
    if config is not None:
        check_normalization(request.normalization, config.normalization)
    with opened_engine(request.cluster, request.patience, "--cluster") as engine:
        found, config, trained = _trained(request, engine, config, settings.feature_bound)
    about = sharded.describe_sharded(found, request.training, config.normalization)
    weights = dict(zip(config.columns, found.minimum.w.tolist(), strict=True))
    written = TrainingRequest((), None, request.training, request.output)
    written.write(weights, config.normalization, config.splines, about)
    lines = [f"continued from {request.checkpoint}"] * found.resumed + [summary(about)]
    if name is not None and trained is not None:
        seq = with_store(lambda store: _replace(store, name, trained, settings))
        lines.append(f"model {name}: record {seq} replaces the model")
    request.checkpoint.unlink(missing_ok=True)
    return "\n".join(lines)


async def _replace(store: Store, name: str, trained: Model, settings: Settings) -> int:
    """Replace a model, which is created if it does not exist."""
    if await read_config(store, name) is None:
        await create_model(store, name, trained.config, settings)
    return await append_model(store, name, trained, settings)


def _trained(
    request: ShardsRequest, engine: Engine, config: ModelConfig | None, bound: float
) -> tuple[ShardedModel, ModelConfig, Model | None]:
    """Train; also return the online model if there is a model to replace."""
    shards = sharded.find_shards(engine, located(request.shards))
    held = sharded.find_shards(engine, located([request.validate])) if request.validate else []
    columns = sharded.read_columns(engine, [*shards, *held])
    if config is None:
        config = new_config(columns.n, request.normalization, columns.names)
    checked = sharded.check_shards(engine, [*shards, *held], columns, config, bound, len(held))
    with tqdm(unit=" iterations", disable=None, leave=False) as bar:

        def report(progress: Progressed) -> None:
            show(bar, request.training, progress.described())

        watched = None if bar.disable else report  # there is no terminal
        found = sharded.train_shards(engine, checked, request.training, watched, request.checkpoint)
    return found, config, None if request.model is None else sharded.online_sharded(found, config)
