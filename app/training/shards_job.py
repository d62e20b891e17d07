"""A training job on shards: the part of `process.py` that reads them by a cluster or here."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

from app.domain import codec
from app.domain.records import Replace
from app.training import trainer
from app.training.options import CHECKPOINT, REPLACEMENT, UPLOAD, TrainingTask
from app.training.shards import training as sharded
from app.training.shards.engines import PATIENCE, Engine, SerialEngine, opened_engine
from app.training.shards.files import Location
from app.training.shards.training import CheckedShards
from app.training.shards.urls import below_prefix, prefixes_of

ReportEvent = Callable[[str, Any], None]
#: The share of a job that is done once the shards are checked, and once the model is trained.
SHARDS_READ, SHARDS_TRAINED = 0.2, 0.9
#: The share of the memory of a job for decoded rows.
CACHE_SHARE = 0.25


def train_job(task: TrainingTask, report: ReportEvent) -> None:
    """Check the shards, train, and write the record."""
    with ExitStack() as stack:
        engine: Engine = SerialEngine(int(CACHE_SHARE * task.memory))
        if task.cluster:
            engine = stack.enter_context(opened_engine(task.cluster, PATIENCE, "SOLAR_CLUSTER"))
        checked = read_shards(engine, task)
        documents = int(checked.sizes.sum())
        report("read", {"queries": len(checked.ordering), "documents": documents})

        def progress(it: trainer.Progressed) -> None:
            report("progress", it.described())
            report("share", SHARDS_READ + (SHARDS_TRAINED - SHARDS_READ) * it.share)

        began = monotonic()
        found = sharded.train_shards(engine, checked, task.training, progress, Path(CHECKPOINT))
        report("share", SHARDS_TRAINED)
        record = Replace(sharded.online_sharded(found, task.config), "warm start")
    Path(REPLACEMENT).write_bytes(codec.dump_record(record))
    seconds = round(monotonic() - began, 3)
    about = sharded.describe_sharded(found, task.training, task.config.normalization)
    report("done", {**about, "seconds": seconds})


def read_shards(engine: Engine, task: TrainingTask) -> CheckedShards:
    """Check the shards of a job; their prefixes again, as the settings may have changed."""
    urls = codec.load_blob(Path(UPLOAD).read_bytes(), "shards").fields["shards"]
    prefixes = below_prefix(urls, prefixes_of(task.shards))
    locations = [
        Location(url, f"shards[{at}]", prefix)
        for at, (url, prefix) in enumerate(zip(urls, prefixes, strict=True))
    ]
    shards = sharded.find_shards(engine, locations)
    columns = sharded.read_columns(engine, shards)
    return sharded.check_shards(engine, shards, columns, task.config, task.bound)
