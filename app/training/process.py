"""The process that trains for a service: `python -m app.training.process PIPE DIRECTORY`.

It needs no store and talks to nobody but the pipe that it is given, one JSON object a line. What it
finds it leaves in its directory, as the record that will take the model's place.
"""

import logging
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from app.domain import codec
from app.domain.records import Replace
from app.errors import SolarError
from app.evaluation import letor
from app.evaluation.letor import JudgedData
from app.observability.logging import configure_logging
from app.ranking.batch.judgements import Judgements
from app.ranking.online import LabelledQuery
from app.training import trainer
from app.training.options import REPLACEMENT, TASK, UPLOAD, TrainingTask

log = logging.getLogger("solar.jobs")

Say = Callable[[str, Any], None]


def main(arguments: Sequence[str]) -> None:
    """Work in a directory, say to a pipe how it goes."""
    pipe, directory = arguments
    os.chdir(directory)
    task = msgspec.json.decode(Path(TASK).read_bytes(), type=TrainingTask)
    _behave(task.memory)
    with os.fdopen(int(pipe), "wb", buffering=0) as output:

        def say(what: str, value: Any) -> None:
            output.write(msgspec.json.encode({what: value}) + b"\n")

        try:
            work(task, say)
        except (SolarError, ValueError) as error:
            say("refused", without_input(error))
        except MemoryError:
            say("refused", f"expected data that {task.memory} bytes of memory can hold")
        except Exception:
            log.exception("a training failed")
            raise SystemExit(1) from None


def work(task: TrainingTask, say: Say) -> None:
    """Read, train, leave the record."""
    judged = trainer.checked_judgements(read_judgements(task), task.training)
    say("read", {"queries": len(judged.starts) - 1, "documents": len(judged.labels)})
    began = monotonic()
    found = trainer.train_batch(judged, task.training, lambda it: say("progress", it.described()))
    record = Replace(trainer.online(found, task.config), "warm start")
    Path(REPLACEMENT).write_bytes(codec.dump_record(record))
    seconds = round(monotonic() - began, 3)
    say("done", {**trainer.describe_training(found, task.training), "seconds": seconds})


def read_judgements(task: TrainingTask) -> Judgements:
    """The data that was sent."""
    if not task.blob:
        return trainer.judgements(letor.read_letor([Path(UPLOAD)]), task.config, task.bound)
    arrays = codec.load_blob(Path(UPLOAD).read_bytes(), "judged").arrays
    X, labels = arrays["documents"], arrays["labels"]
    queries = [LabelledQuery(labels[a:b], X[a:b]) for a, b in pairwise(arrays["starts"].tolist())]
    return trainer.judgements(JudgedData(X.shape[1], queries), task.config, task.bound)


def without_input(error: Exception) -> str:
    """What was expected and where, without what came: an answer repeats nothing that was sent.

    >>> without_input(ValueError("upload:2: expected qid:ID after the label, got 'x'"))
    'upload:2: expected qid:ID after the label'
    """
    return str(error).partition(", got ")[0]


def _behave(memory: int) -> None:
    """Others come first: at the processor, and where memory runs out."""
    os.nice(10)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    configure_logging()
    main(sys.argv[1:])
