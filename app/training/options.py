"""Options of a training job. This module imports no kernels."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from app.domain.model_config import ModelConfig
from app.errors import InvalidInput
from app.ranking.limits import LEAST, MOST

#: Files in the directory of a job: task, data, the record that replaces the model, and the lock.
TASK, UPLOAD, REPLACEMENT, JOB_LOCK = "order", "upload", "replacement", "lock"
#: The weights of a job on shards that is interrupted.
CHECKPOINT = "checkpoint"


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a batch training.

    `C` (`penalty` for domination) is given, or chosen `by` a measure on held-out queries.
    `validation` is their share, or, from 1 on, the number of last queries to hold out.
    """

    trainer: Literal["ranksvm", "domination"] = "ranksvm"
    loss: Literal["l2", "l1"] = "l2"
    C: float | None = None
    penalty: float | None = None
    validation: float | None = None
    by: Literal["ndcg@10", "pairwise"] = "ndcg@10"

    @property
    def parameter(self) -> str:
        """Name of the regularization parameter."""
        return "penalty" if self.trainer == "domination" else "C"

    @property
    def given(self) -> float | None:
        """Value of the regularization parameter; None if it is to be chosen."""
        return self.penalty if self.trainer == "domination" else self.C


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Task of a training process; the upload is LETOR text or a binary blob.

    A blob has judged queries, or the URLs of shards below the prefixes `shards`, which the
    `cluster` reads.
    """

    config: ModelConfig
    training: Training
    bound: float
    blob: bool
    memory: int
    shards: str = ""
    cluster: str = ""


def check_normalization(stated: str | None, of_model: str) -> None:
    """Check that the stated normalization is the model's; InvalidInput otherwise."""
    if stated not in (None, of_model):
        raise InvalidInput(
            f"normalization: expected {of_model}, which the model has since its creation; omit the "
            "option, or create another model"
        )


def check_training(training: Training) -> Training:
    """Return valid options unchanged; InvalidInput otherwise."""
    wrong = "C" if training.parameter == "penalty" else "penalty"
    if getattr(training, wrong) is not None:
        raise InvalidInput(
            f"{wrong}: not an option of {training.trainer}; use {training.parameter} instead"
        )
    if training.given is not None and not LEAST <= training.given <= MOST:
        raise InvalidInput(f"{training.parameter}: expected a value from {LEAST} to {MOST}")
    share = training.validation
    if share is None:
        return training
    if training.given is not None:
        raise InvalidInput(
            f"validation: expected without {training.parameter}; remove one of the two"
        )
    if not (0.0 < share < 1.0 or (1.0 <= share < 1e15 and share == int(share))):
        raise InvalidInput(
            "validation: expected a share between 0 and 1, or a number of last queries"
        )
    return training


def check_sharded_training(training: Training) -> Training:
    """Return options that shards can be trained with; InvalidInput otherwise."""
    if training.trainer != "ranksvm" or training.loss != "l2":
        raise InvalidInput(
            "trainer: expected ranksvm with the loss l2 for shards; other losses need one machine"
        )
    return check_training(training)
