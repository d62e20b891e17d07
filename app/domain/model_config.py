"""Configuration of a model: fields, validation, defaults."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from app.domain.splines import Ramps, Splines, ramp_count, ramp_names, rounded_splines
from app.errors import InvalidInput
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.limits import (
    BOUND_PER_FEATURE,
    FAIR_BOUND_PER_FEATURE,
    FORMER_KAPPA,
    KAPPA,
    LARGEST_GAIN,
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
#: Initial weight of the submitted order in a new model: one standard error, `√(1/PRIOR_RANKINGS)`
#: (`docs/clicks.md` has the experiments).
PRIOR = 0.045
#: Share of the initial uncertainty that returns with each ranking that taught: half of what a
#: model knows fades in 23,000 rankings.
FORGETTING = 3e-5
MOST_FORGETTING = 0.1
#: Above this, a ranking is as good as random.
MOST_EXPLORATION = 100.0
#: The rule by which new models count queries (`domain/counting.py`): from 2 on abandoned lists are
#: counted apart, from 3 on the largest gap of a pair is kept.
COUNTING = 3
#: All rules but that of the first models, None.
COUNTING_RULES = (2, COUNTING)
#: Gains of clicks by name, in a model without a table of its own.
ACTIONS = {"click": 1.0, "add_to_cart": 2.0, "purchase": 4.0}
MOST_ACTIONS = 50
_ACTION = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
#: How many rankings of clicks the initial weight of the submitted order counts for: its initial
#: variance is γ divided by this.
PRIOR_RANKINGS = 500.0


@dataclass(frozen=True)
class ModelConfig:
    """Configuration of a model.

    With a `prior` the submitted order is one more feature, `_order`, with this initial weight.
    `explore` switches randomised rankings on or off; None: on if the click strategy needs them.
    `pair_bound` bounds `ω‖x‖²` of a pair (`ranking/bounds.py`); None, as in models created before
    there were bounds: unbounded. `exploration` is the amount of randomisation: 0 is none, 1 the
    default; None, as in models from before there was a choice: by the spread of the scores, and
    pairs weigh ten times as much. `forgetting` is the share of the initial covariance that returns
    with each ranking that taught; None: 0. `counting` is the rule by which queries count in the
    measures; None, as in models from before there was a choice: a ranking without a click counts as
    a query with 0, and there are no standard errors. From rule 3 on the largest gap is kept, too.
    `splines` are the knots of features; each knot is one more feature, a ramp, after those that
    clients send (`domain/splines.py`). `actions` are the gains of clicks by name; None: ACTIONS.
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
    exploration: float | None = None
    forgetting: float | None = None
    counting: int | None = None
    splines: Splines | None = None
    actions: Mapping[str, float] | None = None

    @property
    def n(self) -> int:
        """Number of features of a document, including ramps and `_order`."""
        return len(self.features)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Features that follow from what clients send: all but `_order`."""
        return self.features[:-1] if self.prior else self.features

    @cached_property
    def given(self) -> tuple[str, ...]:
        """Features that clients send."""
        return self.columns[: len(self.columns) - ramp_count(self.splines)]

    @cached_property
    def ramps(self) -> Ramps | None:
        """The ramps of the splines; None without splines."""
        return None if self.splines is None else Ramps.of(self.given, self.splines)

    @property
    def gains_of_actions(self) -> Mapping[str, float]:
        """The gains of clicks by the name of what users did."""
        return ACTIONS if self.actions is None else self.actions

    @cached_property
    def index(self) -> dict[str, int]:
        """Column of each feature that clients send."""
        return {name: column for column, name in enumerate(self.given)}

    @cached_property
    def explores(self) -> bool:
        """Whether rankings are randomised by default; a request may override it."""
        if self.exploration == 0.0:
            return False
        return self.clicks in EXPLORING if self.explore is None else self.explore

    @cached_property
    def counts_abandoned(self) -> bool:
        """Whether rankings without a click count separately, not as queries with 0."""
        return self.counting is not None

    @cached_property
    def keeps_largest_gap(self) -> bool:
        """Whether the sums have R, the largest gap of a pair."""
        return self.counting is not None and self.counting >= 3

    @property
    def noise(self) -> float:
        """γ, the noise of a pair of weight 1; SOLAR-I steps like SOLAR-II with Σ = I and this γ."""
        return self.gamma if self.algorithm == "solar-ii" else 1.0 / (2.0 * self.C)

    @property
    def kappa(self) -> float:
        """The weight of a debiased pair whose two orders are equally likely."""
        return FORMER_KAPPA if self.exploration is None else KAPPA

    @property
    def prior_variance(self) -> float:
        """The initial variance of the weight of the submitted order; that of the others is 1."""
        return max(1.0, self.gamma / PRIOR_RANKINGS)


def check_config(config: ModelConfig) -> ModelConfig:
    """Return a valid configuration unchanged; InvalidInput otherwise."""
    _one_of("algorithm", config.algorithm, ("solar-i", "solar-ii"))
    _one_of("covariance", config.covariance, ("full", "diagonal"))
    _one_of("clicks", config.clicks, CLICK_STRATEGIES)
    _one_of("normalization", config.normalization, NORMALIZATIONS)
    _check_features(config)
    _within("prior", config.prior, LARGEST_PRIOR)
    check_amounts(config)
    if config.forgetting and config.algorithm == "solar-i":
        raise InvalidInput("forgetting: expected 0 for solar-i, which has no covariance")
    if config.counting not in (None, *COUNTING_RULES):
        raise InvalidInput(f"counting: expected one of {COUNTING_RULES}, or none")
    if config.actions is not None:
        _check_actions(config.actions)
    bound = MOST if config.pair_bound is None else config.pair_bound
    for name, value in (("C", config.C), ("gamma", config.gamma), ("pair_bound", bound)):
        if not LEAST <= value <= MOST:
            raise InvalidInput(f"{name}: expected a value from {LEAST} to {MOST}")
    return config


def _check_actions(actions: Mapping[str, float]) -> None:
    """Check the table of gains by action."""
    if not 1 <= len(actions) <= MOST_ACTIONS:
        raise InvalidInput(f"actions: expected 1 to {MOST_ACTIONS}, got {len(actions)}")
    if not all(_ACTION.fullmatch(name) for name in actions):
        raise InvalidInput("actions: expected names of 1 to 64 letters, digits or any of _.:-")
    for gain in actions.values():
        _within("actions", gain, LARGEST_GAIN)


def check_amounts(config: ModelConfig) -> None:
    """Check how much a model explores and forgets; InvalidInput, a ValueError."""
    _within("exploration", config.exploration or 0.0, MOST_EXPLORATION)
    _within("forgetting", config.forgetting or 0.0, MOST_FORGETTING)


def _check_features(config: ModelConfig) -> None:
    most = most_features(config) - (1 if config.prior else 0)
    if not 1 <= len(config.given) <= most:
        parts = {"splines": config.splines, "a prior": config.prior}
        beside = " and ".join(name for name, part in parts.items() if part)
        limit = f"1 to {most} with {beside}" if beside else f"1 to {most}"
        raise InvalidInput(f"features: expected {limit}, got {len(config.given)}")
    if ORDER in config.given or (config.prior and config.features[-1] != ORDER):
        raise InvalidInput(
            f"features: expected names other than {ORDER}, which is reserved for the prior"
        )
    if len(set(config.features)) != config.n:
        raise InvalidInput("features: expected unique names, got a duplicate")
    if "" in config.features:
        raise InvalidInput("features: expected non-empty names, got an empty one")
    if config.splines is not None:
        _check_splines(config)


def _check_splines(config: ModelConfig) -> None:
    if config.n > MOST_FEATURES_FULL:
        raise InvalidInput(
            f"splines: expected at most {MOST_FEATURES_FULL} features, ramps and the submitted "
            f"order included, got {config.n}"
        )
    if not has_matching_splines(config):
        raise InvalidInput(
            "features: expected those that clients send, then the ramps of the splines, named "
            "FEATURE>KNOT"
        )


def has_matching_splines(config: ModelConfig) -> bool:
    """Check that the last features, but for `_order`, are the ramps of the splines."""
    try:
        splines = rounded_splines(config.given, config.splines)
    except InvalidInput:
        return False
    found, stated = splines or {}, config.splines or {}
    same = list(found.items()) == list(stated.items())  # in the same order, that of the ramps
    return same and config.columns == (*config.given, *ramp_names(found))


def new_model_config(
    given: tuple[str, ...],
    *,
    algorithm: Algorithm = "solar-ii",
    clicks: str = "debiased",
    prior: float | None = None,
    pair_bound: float | None = None,
    exploration: float | None = None,
    forgetting: float | None = None,
    splines: Mapping[str, Sequence[float]] | None = None,
    **others: Any,
) -> ModelConfig:
    """Create a configuration with the defaults for these features; InvalidInput if invalid.

    >>> new_model_config(("bm25", "price")).features
    ('bm25', 'price', '_order')
    >>> new_model_config(("bm25", "price")).pair_bound
    12.0
    >>> new_model_config(("bm25", "price"), splines={"bm25": [0.5]}).features
    ('bm25', 'price', 'bm25>0.5', '_order')
    """
    knots = rounded_splines(given, splines)
    columns = (*given, *ramp_names(knots)) if knots else given
    config = ModelConfig(columns, algorithm, clicks=clicks, splines=knots, **others)
    if prior is None:  # the default, if the limit allows one more feature
        prior = PRIOR if len(columns) < most_features(config) else 0.0
    features = (*columns, ORDER) if prior else columns
    if pair_bound is None:
        each = FAIR_BOUND_PER_FEATURE if clicks == "fair-pairs" else BOUND_PER_FEATURE
        pair_bound = each * len(features)
    if forgetting is None:
        forgetting = 0.0 if algorithm == "solar-i" else FORGETTING
    return check_config(
        replace(
            config, features=features, prior=prior, pair_bound=pair_bound,
            exploration=1.0 if exploration is None else exploration, forgetting=forgetting,
            counting=COUNTING,
        )
    )  # fmt: skip


def most_features(config: ModelConfig) -> int:
    """Maximum number of features of such a model."""
    few = has_full_covariance(config) or config.splines is not None
    return MOST_FEATURES_FULL if few else MOST_FEATURES


def has_full_covariance(config: ModelConfig) -> bool:
    """Check whether the model has a full covariance matrix: SOLAR-II, not diagonal."""
    return config.algorithm == "solar-ii" and config.covariance == "full"


def _within(name: str, value: float, most: float) -> None:
    if not 0.0 <= value <= most:
        raise InvalidInput(f"{name}: expected a number from 0 to {most:g}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{name}: expected one of {', '.join(allowed)}")
