"""What a model is apart from what it learnt: its configuration, the rules for it, its defaults."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from app.errors import InvalidInput
from app.ranking.clicks import READINGS
from app.ranking.limits import LEAST, MOST, MOST_FEATURES, MOST_FEATURES_FULL

Algorithm = Literal["solar-i", "solar-ii"]
Covariance = Literal["full", "diagonal"]

NORMALIZATIONS = ("none", "query-minmax")
#: The feature that a model with a prior has beside those it is given: always the last.
ORDER = "_order"
#: Readings of clicks that learn from lists that were explored, and from no others.
EXPLORING = ("debiased", "fair-pairs")
LARGEST_PRIOR = 1e4
#: What the order as submitted weighs in a new model (`docs/clicks.md` says how it was found).
PRIORS: dict[Algorithm, float] = {"solar-i": 0.03, "solar-ii": 0.2}


@dataclass(frozen=True)
class ModelConfig:
    """What a model is, apart from what it learnt.

    With a `prior` the order as submitted is one more feature, `_order`, starting at this weight.
    `explore` says whether lists are varied; None: if the reading of clicks learns from that.
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

    @property
    def n(self) -> int:
        """How many features a document has, as it is learnt."""
        return len(self.features)

    @cached_property
    def given(self) -> tuple[str, ...]:
        """The features that a document comes with."""
        return self.features[:-1] if self.prior else self.features

    @cached_property
    def index(self) -> dict[str, int]:
        """Feature that a document comes with → column."""
        return {name: column for column, name in enumerate(self.given)}

    @cached_property
    def explores(self) -> bool:
        """Whether lists are varied, unless a request says otherwise."""
        return self.clicks in EXPLORING if self.explore is None else self.explore


def check_config(config: ModelConfig) -> ModelConfig:
    """A configuration as it is, or InvalidInput: no model can have it."""
    _one_of("algorithm", config.algorithm, ("solar-i", "solar-ii"))
    _one_of("covariance", config.covariance, ("full", "diagonal"))
    _one_of("clicks", config.clicks, READINGS)
    _one_of("normalization", config.normalization, NORMALIZATIONS)
    _check_features(config)
    if not 0.0 <= config.prior <= LARGEST_PRIOR:
        raise InvalidInput(f"prior: expected a weight from 0 to {LARGEST_PRIOR:g}")
    for name, value in (("C", config.C), ("gamma", config.gamma)):
        if not LEAST <= value <= MOST:
            raise InvalidInput(f"{name}: expected a value from {LEAST} to {MOST}")
    return config


def _check_features(config: ModelConfig) -> None:
    most, beside = most_features(config), ""
    if config.prior:
        most, beside = most - 1, " beside a prior"
    if not 1 <= len(config.given) <= most:
        raise InvalidInput(f"features: expected 1 to {most}{beside}, got {len(config.given)}")
    if ORDER in config.given or (config.prior and config.features[-1] != ORDER):
        raise InvalidInput(
            f"features: expected names other than {ORDER}, which is that of the prior"
        )
    if len(set(config.features)) != config.n:
        raise InvalidInput("features: expected names that differ")
    if "" in config.features:
        raise InvalidInput("features: expected names, got an empty one")


def new_model_config(
    given: tuple[str, ...],
    *,
    algorithm: Algorithm = "solar-ii",
    clicks: str = "debiased",
    prior: float | None = None,
    **others: Any,
) -> ModelConfig:
    """What a model for these features is, where nothing else is said; InvalidInput if it cannot be.

    >>> new_model_config(("bm25", "price")).features
    ('bm25', 'price', '_order')
    """
    config = ModelConfig(given, algorithm, clicks=clicks, **others)
    if prior is None:  # if there is room for it
        prior = PRIORS[algorithm] if len(given) < most_features(config) else 0.0
    features = (*given, ORDER) if prior else given
    return check_config(replace(config, features=features, prior=prior))


def most_features(config: ModelConfig) -> int:
    """How many features such a model may have."""
    return MOST_FEATURES_FULL if has_full_covariance(config) else MOST_FEATURES


def has_full_covariance(config: ModelConfig) -> bool:
    """Whether the model keeps a whole matrix: SOLAR-II, and not its diagonal form."""
    return config.algorithm == "solar-ii" and config.covariance == "full"


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{name}: expected one of {', '.join(allowed)}")
