"""Names of a model's keys; `scripts/README.md` describes each."""

import re
from functools import lru_cache

from app.errors import InvalidInput

MODELS, LEARNERS, JOB_LIST = "solar:models", "solar:learners", "solar:jobs"
#: Channels of hints, named in the scripts too.
CHANGED_CHANNEL, APPENDED_CHANNEL = "solar:changed", "solar:appended"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_name(model: str) -> bool:
    """Whether a model may have this name: dots separate request ids."""
    return _NAME.fullmatch(model) is not None


def check_name(model: str) -> str:
    """Return a valid model name, or raise InvalidInput."""
    if not is_name(model):
        raise InvalidInput("model: expected 1 to 64 letters, digits, '-' or '_'")
    return model


class Keys:
    """All keys of one model, in one slot of a Cluster."""

    def __init__(self, model: str) -> None:
        prefix = self._prefix = f"solar:{{{model}}}:"
        self.epoch, self.state, self.snapshots = (
            f"{prefix}epoch",
            f"{prefix}state",
            f"{prefix}snaps",
        )
        self.log, self.seq = f"{prefix}log", f"{prefix}seq"
        self.lease, self.fence = f"{prefix}lease", f"{prefix}fence"
        self.training, self.trained = f"{prefix}training", f"{prefix}trained"

    def job(self, job: str) -> str:
        """Return the key of a training job."""
        return f"{self._prefix}job:{job}"

    def snapshot(self, seq: int) -> str:
        """Return the key of the snapshot after record `seq`."""
        return f"{self._prefix}snap:{seq}"

    def event(self, epoch: int, event: str) -> str:
        """Return the dedupe key of an event."""
        return f"{self._prefix}d:{epoch}:{event}"

    def impression(self, epoch: int, request: str) -> str:
        """Return the key of an impression and its accumulated feedback."""
        return f"{self._prefix}imp:{epoch}:{request}"


#: Cached keys of a model; 1.5 kB each.
keys_of = lru_cache(maxsize=8192)(Keys)
