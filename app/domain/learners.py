"""Learners that continue from a model."""

from app.domain.model import Model
from app.domain.model_config import ModelConfig, check_amounts
from app.ranking.arrays import Floats
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.solar import LinearLearner, SolarI, SolarII, SolarIIDiagonal, between


def _learner(config: ModelConfig, weights: Floats | None, spread: Floats | None) -> LinearLearner:
    if config.clicks not in CLICK_STRATEGIES:
        raise ValueError(f"clicks: expected one of {', '.join(CLICK_STRATEGIES)}")
    if config.pair_bound is not None:
        between(config.pair_bound, "pair_bound")
    check_amounts(config)
    kind = (config.algorithm, config.covariance)
    if kind[0] == "solar-i":
        return SolarI(config.n, config.C, weights=weights)
    if kind == ("solar-ii", "full"):
        return SolarII(config.n, config.gamma, weights=weights, covariance=spread)
    if kind == ("solar-ii", "diagonal"):
        return SolarIIDiagonal(config.n, config.gamma, weights=weights, variances=spread)
    raise ValueError(
        f"algorithm: expected solar-i, or solar-ii with full or diagonal covariance, got {kind}"
    )


def restored(model: Model) -> LinearLearner:
    """Create a learner that continues from a model."""
    return _learner(model.config, model.weights, model.spread)
