"""Followers: other folds of a model's log, with hyper-parameters of their own. Pure.

A follower learns from every record of feedback of its leader, and keeps its own settings whatever
the leader's log says. It takes over a warm start, its covariance in a form of its own, and
follows a reset of the measures. Other replacements, changes of settings and duels pass it by.

How rankings are randomised is the leader's choice, and so are the odds of each pair. They are
right for a follower too. `P(R)·ρ(R)` is symmetric in the order of the pair, where P is the
probability with which the ranking was drawn; the weights that learn from it play no part
(`ranking/debiased.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import product
from typing import Any

import numpy as np

from app.domain.model import SUMS, Model, ModelState, initial_state
from app.domain.model_config import (
    FORGETTING,
    ModelConfig,
    check_config,
    has_full_covariance,
)
from app.errors import InvalidInput
from app.ranking import covariance
from app.ranking.arrays import Floats, frozen
from app.ranking.certainty import UNKNOWN

#: The settings that a follower may have of its own; the others are the leader's.
OWN_SETTINGS = ("algorithm", "covariance", "gamma", "C", "clicks", "forgetting", "prior")
#: A follower whose order misses more records of its leader is in no lists.
MOST_BEHIND = 1_000
_LONGEST_NAME = 64


def may_duel(behind: int, *, stalled: bool) -> bool:
    """Whether lists may show the order of a follower that is `behind` records late."""
    return not stalled and behind <= MOST_BEHIND


def follower_config(leader: ModelConfig, **changes: Any) -> ModelConfig:
    """Return the configuration of a follower with these settings; InvalidInput if impossible.

    >>> leader = ModelConfig(("bm25", "price"), clicks="debiased", forgetting=3e-5)
    >>> follower_config(leader, gamma=100.0).gamma, follower_config(leader).forgetting
    (100.0, 3e-05)
    """
    config = replace(leader, **changes)
    if "forgetting" not in changes:
        config = replace(config, forgetting=_forgetting(leader, config))
    drawn = leader.clicks != "fair-pairs"
    same, other = ("debiased", "fair-pairs") if drawn else ("fair-pairs", "debiased")
    if config.clicks == other:
        raise InvalidInput(
            f"clicks: expected another strategy: the rankings of the leader are varied for {same}, "
            f"so {other} would learn the same"
        )
    if bool(config.prior) != bool(leader.prior):
        expected = "a weight above 0" if leader.prior else "none, as the leader has no _order"
        raise InvalidInput(f"prior: expected {expected}")
    return check_config(config)


def _forgetting(leader: ModelConfig, config: ModelConfig) -> float | None:
    """Return the default: the leader's, if the algorithm allows it."""
    if config.algorithm == leader.algorithm:
        return leader.forgetting
    forgets = config.algorithm == "solar-ii" and leader.exploration is not None
    return FORGETTING if forgets else 0.0


def follower_state(leader: ModelState, config: ModelConfig, *, cold: bool = False) -> ModelState:
    """Return the first state of a follower, at the leader's position in the log.

    It has the leader's weights, or with `cold` those of a new model. Its chain is the leader's,
    also after later records, because both apply the same log.
    """
    model = initial_state(config).model if cold else taken_over(config, leader.model)
    return ModelState(leader.seq, leader.chain, model, frozen(np.zeros(len(SUMS))))


def taken_over(config: ModelConfig, model: Model) -> Model:
    """Return a model with these settings and another model's weights and, if possible, covariance.

    ValueError if it has other features.
    """
    if config.features != model.config.features:
        raise ValueError("features: expected those of the model that takes them over")
    same = (config.algorithm, config.covariance) == (
        model.config.algorithm, model.config.covariance,
    )  # fmt: skip
    if same or config.algorithm == "solar-i":
        spread = model.spread if same else frozen(np.zeros(0))
    elif model.config.algorithm == "solar-i":
        spread = initial_state(config).model.spread
    else:
        spread = _as_form(config, covariance.variances(model.spread, config.n))
    return Model(config, model.weights, spread, model.certainty if same else UNKNOWN)


def _as_form(config: ModelConfig, variances: Floats) -> Floats:
    """Return a covariance with this diagonal, in the form of the configuration."""
    if not has_full_covariance(config):
        return frozen(np.array(variances))
    spread = np.zeros(covariance.triangle_size(config.n))
    spread[covariance.diagonal(config.n)] = variances
    return frozen(spread)


def promoted_config(leader: ModelConfig, follower: ModelConfig) -> ModelConfig:
    """Return the configuration of a leader that takes over a follower's model.

    Its rankings are randomised by default if those of the leader were, whatever the click strategy
    needs. Swaps become samples if that strategy is not fair-pairs.
    """
    own = {name: getattr(follower, name) for name in OWN_SETTINGS}
    config = replace(leader, **own)
    same = config.explores == leader.explores
    return config if same else replace(config, explore=leader.explores)


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the settings of each follower of a grid, the last setting changing fastest.

    >>> combinations({"gamma": [1.0, 2.0], "clicks": ["debiased"]})
    [{'gamma': 1.0, 'clicks': 'debiased'}, {'gamma': 2.0, 'clicks': 'debiased'}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def generated_name(leader: str, settings: Mapping[str, Any]) -> str:
    """Return the name of a follower with these settings; the same for the same settings.

    >>> generated_name("shop", {"gamma": 100.0, "clicks": "fair-pairs"})
    'shop-gamma100-fair-pairs'
    >>> generated_name("shop", {"forgetting": 3e-5, "C": 0.25})
    'shop-forgetting3e-05-C0_25'
    """
    parts = [
        value if isinstance(value, str) else f"{name}{_number(value)}"
        for name, value in settings.items()
    ]
    name = "-".join([leader, *parts])
    if len(name) <= _LONGEST_NAME:
        return name
    end = blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{name[: _LONGEST_NAME - len(end) - 1]}-{end}"


def _number(value: float) -> str:
    """Return a number in the letters that a name may have; other numbers have other texts."""
    return repr(float(value)).removesuffix(".0").replace(".", "_").replace("+", "")
