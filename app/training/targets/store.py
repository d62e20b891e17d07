"""`solar train` into a store: train in this process and append to the model's log."""

import os
from uuid import uuid4

from app.config import Settings
from app.domain import codec
from app.domain.model import Model, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Replace
from app.errors import NoSuchModel
from app.evaluation.letor import JudgedData
from app.ingest.appender import now
from app.storage.keys import internal_event
from app.storage.log import NewRecord
from app.storage.store import Store
from app.training import trainer
from app.training.options import Training
from app.training.splines import SplineChoice, describe_choice
from app.training.targets.file import TrainingRequest, planned, summary, trained


async def into_store(request: TrainingRequest, model: str, store: Store, settings: Settings) -> str:
    """Train and replace the model; return a summary."""
    data, training = request.read()
    config, tried = await _model_settings(request, model, data, training, store, settings)
    found, about = trained(data, training, config, settings.feature_bound)
    about |= describe_choice(tried)
    seq = await append_model(store, model, trainer.online(found, config), settings)
    weights = dict(zip(config.columns, found.weights.tolist(), strict=True))
    request.write(weights, config.normalization, config.splines, about)
    return f"{summary(about)}\nmodel {model}: record {seq} replaces the model"


async def _model_settings(
    request: TrainingRequest,
    model: str,
    data: JudgedData,
    training: Training,
    store: Store,
    settings: Settings,
) -> SplineChoice:
    """Read the settings of a model; it is created if it does not exist."""
    config = await read_config(store, model)
    if config is not None:
        request.check_existing(config.normalization)
        return SplineChoice(config)
    choice = planned(request, data, training, settings.feature_bound)
    await create_model(store, model, choice.config, settings)
    return choice


async def read_config(store: Store, model: str) -> ModelConfig | None:
    """Read the settings of a model; None if it does not exist."""
    try:
        return (await store.states.load_weights(model)).config
    except NoSuchModel:
        return None


async def create_model(store: Store, model: str, config: ModelConfig, settings: Settings) -> None:
    """Create a model."""
    state = initial_state(config, seed=os.urandom(16))
    await store.models.create(model, state, settings.models)


async def append_model(store: Store, model: str, trained: Model, settings: Settings) -> int:
    """Append the record that replaces a model to its log; return its number."""
    record = codec.dump_record(Replace(trained, "warm start"))
    return await append_replacement(store, model, record, settings)


async def append_replacement(store: Store, model: str, record: bytes, settings: Settings) -> int:
    """Append an encoded record that replaces a model; return its number."""
    epoch, *_ = await store.states.position(model)
    (appended,) = await store.log.append(
        model, epoch, [NewRecord(internal_event("train", str(uuid4())), b"", record)],
        limit=settings.backlog, time=now(), wait=True,
    )  # fmt: skip
    return appended.seq
