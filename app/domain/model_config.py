"""Configuration of a model: fields, validation, defaults."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from app.errors import InvalidInput
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.limits import (
    BOUND_PER_FEATURE,
    FAIR_BOUND_PER_FEATURE,
    LEAST,
    MOST,
    MOST_FEATURES,
    MOST_FEATURES_FULL,
)

Algorithm = Literal["solar-i", "solar-ii"]
Covariance = Literal["full", "diagonal"]

NORMALIZATIONS = ("none", "query-minmax")
#: The additional feature of a model with a prior: always the last one.
ORDER = "_order"
#: Click strategies that learn from randomised rankings only.
EXPLORING = ("debiased", "fair-pairs")
LARGEST_PRIOR = 1e4
#: Initial weight of the submitted order in a new model (`docs/clicks.md` has the experiments).
PRIORS: dict[Algorithm, float] = {"solar-i": 0.03, "solar-ii": 0.2}


@dataclass(frozen=True)
class ModelConfig:
    """Configuration of a model.

    With a `prior` the submitted order is one more feature, `_order`, with this initial weight.
    `explore` switches randomised rankings on or off; None: on if the click strategy needs them.
    `pair_bound` bounds `ω‖x‖²` of a pair (`ranking/bounds.py`); None, as in models created before
    there were bounds: unbounded.
    """

    features: tuple[str, ...]
    algorithm: Algorithm = "solar-ii"
    covariance: Covariance = "full"
    C: float = 1e-5
    gamma: float = 1e4
    clicks: str = "click-skip-above"
    normalization: str = "none"
    prior: float = 0.0
    explore: bool | None = None
    pair_bound: float | None = None

    @property
    def n(self) -> int:
        """Number of features of a document, including `_order`."""
        return len(self.features)

    @cached_property
    def given(self) -> tuple[str, ...]:
        """Features that clients send."""
        return self.features[:-1] if self.prior else self.features

    @cached_property
    def index(self) -> dict[str, int]:
        """Column of each feature that clients send."""
        return {name: column for column, name in enumerate(self.given)}

    @cached_property
    def explores(self) -> bool:
        """Whether rankings are randomised by default; a request may override it."""
        return self.clicks in EXPLORING if self.explore is None else self.explore


def check_config(config: ModelConfig) -> ModelConfig:
    """Return a valid configuration unchanged; InvalidInput otherwise."""
    _one_of("algorithm", config.algorithm, ("solar-i", "solar-ii"))
    _one_of("covariance", config.covariance, ("full", "diagonal"))
    _one_of("clicks", config.clicks, CLICK_STRATEGIES)
    _one_of("normalization", config.normalization, NORMALIZATIONS)
    _check_features(config)
    if not 0.0 <= config.prior <= LARGEST_PRIOR:
        raise InvalidInput(f"prior: expected a number from 0 to {LARGEST_PRIOR:g}")
    bound = MOST if config.pair_bound is None else config.pair_bound
    for name, value in (("C", config.C), ("gamma", config.gamma), ("pair_bound", bound)):
        if not LEAST <= value <= MOST:
            raise InvalidInput(f"{name}: expected a value from {LEAST} to {MOST}")
    return config


def _check_features(config: ModelConfig) -> None:
    most, beside = most_features(config), ""
    if config.prior:
        most, beside = most - 1, " with a prior"
    if not 1 <= len(config.given) <= most:
        raise InvalidInput(f"features: expected 1 to {most}{beside}, got {len(config.given)}")
    if ORDER in config.given or (config.prior and config.features[-1] != ORDER):
        raise InvalidInput(
            f"features: expected names other than {ORDER}, which is reserved for the prior"
        )
    if len(set(config.features)) != config.n:
        raise InvalidInput("features: expected unique names, got a duplicate")
    if "" in config.features:
        raise InvalidInput("features: expected non-empty names, got an empty one")


def new_model_config(
    given: tuple[str, ...],
    *,
    algorithm: Algorithm = "solar-ii",
    clicks: str = "debiased",
    prior: float | None = None,
    pair_bound: float | None = None,
    **others: Any,
) -> ModelConfig:
    """Create a configuration with the defaults for these features; InvalidInput if invalid.

    >>> new_model_config(("bm25", "price")).features
    ('bm25', 'price', '_order')
    >>> new_model_config(("bm25", "price")).pair_bound
    60.0
    """
    config = ModelConfig(given, algorithm, clicks=clicks, **others)
    if prior is None:  # the default, if the limit allows one more feature
        prior = PRIORS[algorithm] if len(given) < most_features(config) else 0.0
    features = (*given, ORDER) if prior else given
    if pair_bound is None:
        each = FAIR_BOUND_PER_FEATURE if clicks == "fair-pairs" else BOUND_PER_FEATURE
        pair_bound = each * len(features)
    return check_config(replace(config, features=features, prior=prior, pair_bound=pair_bound))


def most_features(config: ModelConfig) -> int:
    """Maximum number of features of such a model."""
    return MOST_FEATURES_FULL if has_full_covariance(config) else MOST_FEATURES


def has_full_covariance(config: ModelConfig) -> bool:
    """Check whether the model has a full covariance matrix: SOLAR-II, not diagonal."""
    return config.algorithm == "solar-ii" and config.covariance == "full"


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{name}: expected one of {', '.join(allowed)}")
