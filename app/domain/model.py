"""A model and its state: weights, covariance, sums of the measures, chain of the log."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.domain.duels import DuelState
from app.domain.model_config import ModelConfig, check_config, has_full_covariance
from app.ranking import covariance
from app.ranking.arrays import Floats, frozen
from app.ranking.certainty import UNKNOWN, Certainty
from app.ranking.tally import Tally

Positions: TypeAlias = NDArray[np.int64]
Documents: TypeAlias = NDArray[np.float32]

CHAIN = 32


@dataclass(frozen=True, slots=True)
class Model:
    """A whole model: its settings, weights and covariance.

    `spread` is SOLAR-II's covariance: the packed lower triangle or the diagonal; SOLAR-I has none.
    `certainty` is unknown in a model that has learnt nothing, and after a warm start.
    """

    config: ModelConfig
    weights: Floats
    spread: Floats
    certainty: Certainty = UNKNOWN


#: The sums of a state, in order; append new ones at the end, as stored states may not have them.
#: `stepped` to `rejected` are over pairs and records, the others over measured queries. The
#: `explored_…` sums are over queries with randomised rankings only. `bounded` counts the pairs that
#: got a smaller weight; they are stepped, passive or refused, too. `mean_quality` is the running
#: mean of the NDCG@10 of rankings with clicks, and `drift` the evidence that it has fallen
#: (`ranking/drift.py`). Those from `abandoned` on are for standard errors, and stay 0 in a model
#: whose config has no `counting` (`domain/counting.py`). `largest_gap` is a maximum: R = max‖x‖ of
#: the pairs, for Theorem 1; it stays 0 in a model whose `counting` is below 3. The `duel_…` sums
#: are over the queries of duels, which are in no `explored_…` sum. The last three are of followers
#: (`domain/followers.py`): rankings whose order was compared with the leader's, the sum of their
#: shares of equal pairs, and replacements of the leader that a follower did not take over.
SUMS = (
    "queries", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg", "map",
    "baseline_ndcg@1", "baseline_ndcg@5", "baseline_ndcg@10", "baseline_ndcg", "baseline_map",
    "stepped", "passive", "refused", "squared_loss", "feedback", "rejected",
    "debiased_weight", "debiased_wins", "baseline_debiased_wins",
    "explored_queries", "explored_ndcg@1", "explored_ndcg@5", "explored_ndcg@10", "explored_ndcg",
    "explored_map", "bounded", "mean_quality", "drift",
    "abandoned",
    "square_ndcg@1", "square_ndcg@5", "square_ndcg@10", "square_ndcg", "square_map",
    "square_baseline_ndcg@1", "square_baseline_ndcg@5", "square_baseline_ndcg@10",
    "square_baseline_ndcg", "square_baseline_map",
    "square_lead_ndcg@1", "square_lead_ndcg@5", "square_lead_ndcg@10", "square_lead_ndcg",
    "square_lead_map",
    "square_explored_ndcg@1", "square_explored_ndcg@5", "square_explored_ndcg@10",
    "square_explored_ndcg", "square_explored_map",
    "wins_weight_weight", "wins_model_weight", "wins_submitted_weight", "wins_model_model",
    "wins_submitted_submitted", "wins_model_submitted",
    "largest_gap",
    "duel_queries", "duel_ndcg@1", "duel_ndcg@5", "duel_ndcg@10", "duel_ndcg", "duel_map",
    "compared", "agreeing", "passed_by",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """The first `pairs` learnt pairs of a record: weights and covariance after them, and outcomes.

    `chain` is the hash over all records up to, and with, this record. `scaled` of the pairs have a
    weight that was scaled down to the bound of the model.
    """

    chain: bytes
    pairs: int
    weights: Floats
    spread: Floats
    tally: Tally
    scaled: int = 0

    def equals(self, other: "Part | None") -> bool:
        """Whether another part has the same bits."""
        return other is not None and self._bits() == other._bits()

    def _bits(self) -> tuple[Any, ...]:
        arrays = self.weights.tobytes(), self.spread.tobytes()
        return self.chain, self.pairs, self.tally, self.scaled, *arrays


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model after record `seq`; `chain` is the hash over all records up to it.

    `part` is what was learnt of the next record. It is not served and not measured yet. `duel` is
    the duel that is on, or else the last one.
    """

    seq: int
    chain: bytes
    model: Model
    sums: Floats
    part: Part | None = None
    duel: DuelState | None = None

    def measures(self) -> dict[str, float]:
        """The sums by name."""
        return dict(zip(SUMS, self.sums.tolist(), strict=True))


def initial_state(
    config: ModelConfig, weights: Floats | None = None, seed: bytes = b""
) -> ModelState:
    """Create the state of a new model; `seed` makes its chain unique."""
    check_config(config)
    w = _weights(config) if weights is None else np.array(weights, np.float64)
    model = Model(config, frozen(w), frozen(_spread(config)))
    chain = blake2b(seed, digest_size=CHAIN).digest()
    return ModelState(0, chain, model, frozen(np.zeros(len(SUMS))))


def _weights(config: ModelConfig) -> Floats:
    """All 0, as in the paper, except for the submitted order."""
    w = np.zeros(config.n)
    if config.prior:
        w[-1] = config.prior
    return w


def _spread(config: ModelConfig) -> Floats:
    if config.algorithm == "solar-i":
        return np.zeros(0)
    if not has_full_covariance(config):
        return initial_variances(config)
    spread = np.zeros(covariance.triangle_size(config.n))
    spread[covariance.diagonal(config.n)] = initial_variances(config)
    return spread


def initial_variances(config: ModelConfig) -> Floats:
    """Return the diagonal of Σ of a new model: 1, but more for the submitted order."""
    variances = np.ones(config.n)
    if config.prior:
        variances[-1] = config.prior_variance
    return variances
