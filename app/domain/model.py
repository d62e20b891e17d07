"""A model and its state: what it learnt, the sums of its measures, and the chain of its log."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.domain.model_config import ModelConfig, check_config, has_full_covariance
from app.ranking import covariance
from app.ranking.arrays import Floats, frozen

Positions: TypeAlias = NDArray[np.int64]
Documents: TypeAlias = NDArray[np.float32]

CHAIN = 32
#: Variance that `_order` begins with: after some hundred lists it weighs what clicks say.
PRIOR_VARIANCE = 14.0


@dataclass(frozen=True, slots=True)
class Model:
    """A whole model: its settings and what it learnt.

    `spread` is SOLAR-II's covariance: the packed lower triangle or the diagonal; SOLAR-I has none.
    """

    config: ModelConfig
    weights: Floats
    spread: Floats


#: The sums of a state, by place; new ones come last, as a state may have been kept before them.
#: From `stepped` to `rejected` they are over pairs and records, else over queries that count; those
#: of lists that were explored stand once more, apart.
SUMS = (
    "queries", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg", "map",
    "baseline_ndcg@1", "baseline_ndcg@5", "baseline_ndcg@10", "baseline_ndcg", "baseline_map",
    "stepped", "passive", "refused", "squared_loss", "feedback", "rejected",
    "debiased_weight", "debiased_wins", "baseline_debiased_wins",
    "explored_queries", "explored_ndcg@1", "explored_ndcg@5", "explored_ndcg@10", "explored_ndcg",
    "explored_map",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model after record `seq`, and `chain`, which proves the way there."""

    seq: int
    chain: bytes
    model: Model
    sums: Floats

    def measures(self) -> dict[str, float]:
        """The sums by name."""
        return dict(zip(SUMS, self.sums.tolist(), strict=True))


def initial_state(
    config: ModelConfig, weights: Floats | None = None, seed: bytes = b""
) -> ModelState:
    """The state of a model that has learnt nothing; `seed` makes its chain its own."""
    check_config(config)
    w = _weights(config) if weights is None else np.array(weights, np.float64)
    model = Model(config, frozen(w), frozen(_spread(config)))
    chain = blake2b(seed, digest_size=CHAIN).digest()
    return ModelState(0, chain, model, frozen(np.zeros(len(SUMS))))


def _weights(config: ModelConfig) -> Floats:
    """All 0 (the paper's start), but for the order as submitted."""
    w = np.zeros(config.n)
    if config.prior:
        w[-1] = config.prior
    return w


def _spread(config: ModelConfig) -> Floats:
    if config.algorithm == "solar-i":
        return np.zeros(0)
    spread = covariance.identity(config.n) if has_full_covariance(config) else np.ones(config.n)
    if config.prior:
        spread[-1] = PRIOR_VARIANCE  # the last of the diagonal is the last of the triangle
    return spread
