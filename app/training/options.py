"""What a training is to be, for those who ask for one and for those who train. No kernels here."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from app.domain.model_config import ModelConfig
from app.errors import InvalidInput
from app.ranking.limits import LEAST, MOST

#: In the directory of a job: what is to be done, the data, and what will take the model's place.
TASK, UPLOAD, REPLACEMENT = "order", "upload", "replacement"


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a batch model is trained.

    `C` (`penalty` for domination) is given, or chosen `by` a measure on held-out queries:
    `validation` is their share, or from 1 on how many of the last ones they are.
    """

    trainer: Literal["ranksvm", "domination"] = "ranksvm"
    loss: Literal["l2", "l1"] = "l2"
    C: float | None = None
    penalty: float | None = None
    validation: float | None = None
    by: Literal["ndcg@10", "pairwise"] = "ndcg@10"

    @property
    def parameter(self) -> str:
        """What regularises it."""
        return "penalty" if self.trainer == "domination" else "C"

    @property
    def given(self) -> float | None:
        """Its value, None if it is to be chosen."""
        return self.penalty if self.trainer == "domination" else self.C


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """What a process is to do with an upload of LETOR text, or of a blob of ours."""

    config: ModelConfig
    training: Training
    bound: float
    blob: bool
    memory: int


def check_training(training: Training) -> Training:
    """A training as it is, or InvalidInput: nobody can train like this."""
    wrong = "C" if training.parameter == "penalty" else "penalty"
    if getattr(training, wrong) is not None:
        raise InvalidInput(
            f"{wrong}: expected none, as {training.trainer} has {training.parameter}"
        )
    if training.given is not None and not LEAST <= training.given <= MOST:
        raise InvalidInput(f"{training.parameter}: expected a value from {LEAST} to {MOST}")
    share = training.validation
    if share is None:
        return training
    if training.given is not None:
        raise InvalidInput(f"validation: expected none beside {training.parameter}")
    if not (0.0 < share < 1.0 or (1.0 <= share < 1e15 and share == int(share))):
        raise InvalidInput("validation: expected a share between 0 and 1, or how many last queries")
    return training
