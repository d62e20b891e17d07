"""Training process of a service: `python -m app.training.process DESCRIPTOR DIRECTORY`.

It needs no store. It reports to the given file descriptor, one JSON object per line, and writes the
record that replaces the model to the directory.
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
from app.errors import ClusterFailed, SolarError
from app.evaluation import letor
from app.evaluation.letor import JudgedData
from app.observability.logging import configure_logging
from app.ranking.batch.judgements import Judgements
from app.ranking.online import LabelledQuery
from app.training import trainer
from app.training.options import REPLACEMENT, TASK, UPLOAD, TrainingTask

log = logging.getLogger("solar.jobs")

Report = Callable[[str, Any], None]
CLUSTER_FAILED = (
    "the cluster of SOLAR_CLUSTER failed; the log of the service has the cause; nothing was "
    "changed; start the job again to continue"
)
#: Bytes of an upload that show its kind.
KIND_BYTES = 64
#: The share of a job that is done once the data is read, and once the model is trained. The rest
#: is the covariance, and the wait for the log. Measured on 83 MB, reading takes 4 to 34 % of the
#: time, training 20 to 95 %.
READ, TRAINED = 0.2, 0.9


def main(arguments: Sequence[str]) -> None:
    """Run the task in a directory; report progress to a file descriptor."""
    descriptor, directory = arguments
    os.chdir(directory)
    task = msgspec.json.decode(Path(TASK).read_bytes(), type=TrainingTask)
    _limit_resources(task.memory)
    with os.fdopen(int(descriptor), "wb", buffering=0) as output:

        def report(event: str, value: Any) -> None:
            output.write(msgspec.json.encode({event: value}) + b"\n")

        try:
            work(task, report)
        except ClusterFailed as error:
            log.warning("cluster failed: %s", error)  # names addresses
            report("failed", CLUSTER_FAILED)
        except (SolarError, ValueError) as error:
            report("refused", without_input(error))
        except MemoryError:
            report(
                "refused",
                f"expected data that fits into {task.memory} bytes of memory "
                "(SOLAR_TRAINING_MEMORY); send less data or raise the limit",
            )
        except Exception:
            log.exception("training process failed")
            raise SystemExit(1) from None


def work(task: TrainingTask, report: Report) -> None:
    """Read the data, train, and write the record."""
    if task.blob and codec.kind_is(_first_bytes(Path(UPLOAD)), "shards"):
        from app.training import shards_job  # noqa: PLC0415  # an extra

        shards_job.train_job(task, report)
        return
    judged = trainer.checked_judgements(read_judgements(task, report), task.training)
    report("read", {"queries": len(judged.starts) - 1, "documents": len(judged.labels)})
    report("share", READ)

    def progress(it: trainer.Progressed) -> None:
        report("progress", it.described())
        report("share", READ + (TRAINED - READ) * it.share)

    began = monotonic()
    found = trainer.train_batch(judged, task.training, progress)
    report("share", TRAINED)
    record = Replace(trainer.online(found, task.config), "warm start")
    Path(REPLACEMENT).write_bytes(codec.dump_record(record))
    seconds = round(monotonic() - began, 3)
    about = trainer.describe_training(found, task.training, task.config.normalization)
    report("done", {**about, "seconds": seconds})


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(KIND_BYTES)


def read_judgements(task: TrainingTask, report: Report = lambda *_: None) -> Judgements:
    """Read the uploaded data; report the share of it that was read."""
    if not task.blob:
        size, done = Path(UPLOAD).stat().st_size, 0

        def progress(read: int) -> None:
            nonlocal done
            done += read
            report("share", READ * done / size)

        return trainer.judgements(
            letor.read_letor([Path(UPLOAD)], progress), task.config, task.bound
        )
    arrays = codec.load_blob(Path(UPLOAD).read_bytes(), "judged").arrays
    X, labels = arrays["documents"], arrays["labels"]
    queries = [LabelledQuery(labels[a:b], X[a:b]) for a, b in pairwise(arrays["starts"].tolist())]
    return trainer.judgements(JudgedData(X.shape[1], queries), task.config, task.bound)


def without_input(error: Exception) -> str:
    """Message of an error without the received value: answers never repeat the input.

    >>> without_input(ValueError("upload:2: expected qid:ID after the label, got 'x'"))
    'upload:2: expected qid:ID after the label'
    """
    return str(error).partition(", got ")[0]


def _limit_resources(memory: int) -> None:
    """Limit the memory, and be the first choice of the OOM killer."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    configure_logging()
    main(sys.argv[1:])
