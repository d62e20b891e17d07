"""A model as it is served: an immutable value that is replaced as a whole."""

from dataclasses import dataclass

from app.domain.duels import DuelState
from app.domain.model_config import ModelConfig
from app.ranking.arrays import Floats
from app.storage.states import LogPosition, StoredWeights


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model for serving; `version` is the seq of the last record in these weights.

    `scale` is the factor of the scores in the sampling of rankings (`ranking/certainty.py`). `duel`
    is the one that is on, or the last one. A follower has its address as its name.
    """

    name: str
    epoch: int
    version: int
    config: ModelConfig
    weights: Floats
    sums: Floats
    trace: float
    chain: bytes = b""
    term: str = ""
    scale: float = 0.0
    duel: DuelState | None = None

    @classmethod
    def of(cls, name: str, found: StoredWeights) -> "ServedModel":
        """Create from stored weights."""
        config = found.config
        scale = found.certainty.scale(config.noise, config.exploration or 0.0)
        return cls(
            name, found.epoch, found.seq, config, found.weights, found.sums,
            found.info.trace, found.chain, found.info.term, scale, found.duel,
        )  # fmt: skip

    @property
    def position(self) -> LogPosition:
        """Position in the log: epoch, version and chain."""
        return self.epoch, self.version, self.chain
