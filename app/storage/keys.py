"""The names of a model's keys; `scripts/README.md` says what stands behind each."""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

MODELS, LEARNERS = "solar:models", "solar:learners"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_name(model: str) -> str:
    """A model's name as it is, or ValueError: no dots (request ids have them), no braces."""
    if not _NAME.fullmatch(model):
        raise ValueError("model: expected 1 to 64 letters, digits, '-' or '_'")
    return model


@dataclass(frozen=True)
class Keys:
    """All keys of one model; `keys_of` makes each once."""

    model: str

    def _key(self, name: str) -> str:
        return f"solar:{{{self.model}}}:{name}"

    @cached_property
    def epoch(self) -> str:
        """Counts the lives of the name."""
        return self._key("epoch")

    @cached_property
    def state(self) -> str:
        """The committed state."""
        return self._key("state")

    @cached_property
    def seq(self) -> str:
        """The tail of the log."""
        return self._key("seq")

    @cached_property
    def log(self) -> str:
        """The log."""
        return self._key("log")

    @cached_property
    def fence(self) -> str:
        """Counts the learners."""
        return self._key("fence")

    @cached_property
    def lease(self) -> str:
        """The learner at work."""
        return self._key("lease")

    @cached_property
    def snapshots(self) -> str:
        """Which snapshots there are."""
        return self._key("snaps")

    @cached_property
    def channel(self) -> str:
        """Where commits are announced."""
        return self._key("ch")

    @cached_property
    def training(self) -> str:
        """Who trains the model."""
        return self._key("training")

    @cached_property
    def trained(self) -> str:
        """Who began to train it last."""
        return self._key("trained")

    def job(self, job: str) -> str:
        """A job that trains, or trained, the model."""
        return self._key(f"job:{job}")

    def snapshot(self, seq: int) -> str:
        """One snapshot."""
        return self._key(f"snap:{seq}")

    def event(self, epoch: int, event: str) -> str:
        """What was answered to an event."""
        return self._key(f"d:{epoch}:{event}")

    def impression(self, epoch: int, request: str) -> str:
        """What was shown, and what has come of it."""
        return self._key(f"imp:{epoch}:{request}")


keys_of = lru_cache(maxsize=1024)(Keys)
