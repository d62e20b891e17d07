"""`solar train` into a store: train in this process and append to the model's log."""

import os
from uuid import uuid4

from app.config import Settings
from app.domain import codec
from app.domain.model import initial_state
from app.domain.records import Replace
from app.errors import NoSuchModel
from app.ingest.appender import now
from app.storage.keys import internal_event
from app.storage.log import NewRecord
from app.storage.store import Store
from app.training import trainer
from app.training.splines import SplineChoice, describe_choice
from app.training.targets.file import TrainingRequest, planned, summary, trained


async def into_store(request: TrainingRequest, model: str, store: Store, settings: Settings) -> str:
    """Train and replace the model; return a summary."""
    data, training = request.read()
    try:
        config, tried = SplineChoice((await store.states.load_weights(model)).config)
        request.check_existing(config.normalization)
    except NoSuchModel:
        config, tried = planned(request, data, training, settings.feature_bound)
        state = initial_state(config, seed=os.urandom(16))
        await store.models.create(model, state, settings.models)
    found, about = trained(data, training, config, settings.feature_bound)
    about |= describe_choice(tried)
    record = codec.dump_record(Replace(trainer.online(found, config), "warm start"))
    epoch, *_ = await store.states.position(model)
    (appended,) = await store.log.append(
        model, epoch, [NewRecord(internal_event("train", str(uuid4())), b"", record)],
        limit=settings.backlog, time=now(), wait=True,
    )  # fmt: skip
    weights = dict(zip(config.columns, found.weights.tolist(), strict=True))
    request.write(weights, config.normalization, config.splines, about)
    return f"{summary(about)}\nmodel {model}: record {appended.seq} replaces the model"
