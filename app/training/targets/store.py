"""`solar train` into a store: trains here, and appends what it found to the model's log."""

import os
from uuid import uuid4

from app.config import Environment
from app.domain import codec
from app.domain.model_config import genesis
from app.domain.records import Replace
from app.errors import NoSuchModel
from app.ingest.appender import now
from app.storage.store import Event, Store
from app.training import trainer
from app.training.targets.file import Lesson, new_settings, summary, trained


async def into_store(lesson: Lesson, model: str, store: Store, environment: Environment) -> str:
    """Train, and put the model in place; what was found."""
    data, training = lesson.read()
    try:
        settings = (await store.load_weights(model)).settings
    except NoSuchModel:
        settings = new_settings(data.n)
        await store.create(model, genesis(settings, seed=os.urandom(16)))
    found, about = trained(data, training, settings, environment.feature_bound)
    record = codec.dump_record(Replace(trainer.online(found, settings), "warm start"))
    epoch, *_ = await store.position(model)
    (appended,) = await store.append(
        model, epoch, [Event(f"train-{uuid4()}", b"", record)],
        limit=environment.backlog, time=now(), wait=True,
    )  # fmt: skip
    lesson.write(settings.given, found.weights.tolist(), about)
    return f"{summary(about)}\nmodel {model}: record {appended.seq} puts it in place"
