"""What a model may be, and a model that has learnt nothing yet. No kernels: the API needs this."""

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from app.domain.records import ORDER, SUMS, Algorithm, Floats, Model, Settings, State, freeze
from app.ranking import covariance
from app.ranking.clicks import READINGS
from app.ranking.limits import (
    LEAST,
    MOST,
    MOST_FEATURES,
    MOST_FEATURES_FULL,
)

CHAIN = 32
NORMALIZATIONS = ("none", "query-minmax")
#: Variance that `_order` begins with: after some hundred lists it weighs what clicks say.
PRIOR_VARIANCE = 14.0
LARGEST_PRIOR = 1e4
#: What the order as submitted weighs in a new model (`docs/clicks.md` says how it was found).
PRIORS: dict[Algorithm, float] = {"solar-i": 0.03, "solar-ii": 0.2}


def check(settings: Settings) -> Settings:
    """Settings as they are, or ValueError: no model can have these."""
    _one_of("algorithm", settings.algorithm, ("solar-i", "solar-ii"))
    _one_of("covariance", settings.covariance, ("full", "diagonal"))
    _one_of("clicks", settings.clicks, READINGS)
    _one_of("normalization", settings.normalization, NORMALIZATIONS)
    _check_features(settings)
    if not 0.0 <= settings.prior <= LARGEST_PRIOR:
        raise ValueError(f"prior: expected a weight from 0 to {LARGEST_PRIOR:g}")
    for name, value in (("C", settings.C), ("gamma", settings.gamma)):
        if not LEAST <= value <= MOST:
            raise ValueError(f"{name}: expected a value from {LEAST} to {MOST}")
    return settings


def _check_features(settings: Settings) -> None:
    most, beside = _most(settings), ""
    if settings.prior:
        most, beside = most - 1, " beside a prior"
    if not 1 <= len(settings.given) <= most:
        raise ValueError(f"features: expected 1 to {most}{beside}, got {len(settings.given)}")
    if ORDER in settings.given or (settings.prior and settings.features[-1] != ORDER):
        raise ValueError(f"features: expected names other than {ORDER}, which is that of the prior")
    if len(set(settings.features)) != settings.n:
        raise ValueError("features: expected names that differ")
    if "" in settings.features:
        raise ValueError("features: expected names, got an empty one")


def new_model(
    given: tuple[str, ...],
    *,
    algorithm: Algorithm = "solar-ii",
    clicks: str = "debiased",
    prior: float | None = None,
    **others: Any,
) -> Settings:
    """What a model for these features is, where nothing else is said; ValueError if it cannot be.

    >>> new_model(("bm25", "price")).features
    ('bm25', 'price', '_order')
    """
    settings = Settings(given, algorithm, clicks=clicks, **others)
    if prior is None:  # if there is room for it
        prior = PRIORS[algorithm] if len(given) < _most(settings) else 0.0
    features = (*given, ORDER) if prior else given
    return check(replace(settings, features=features, prior=prior))


def genesis(settings: Settings, weights: Floats | None = None, seed: bytes = b"") -> State:
    """The state of a model that has learnt nothing; `seed` makes its chain its own."""
    check(settings)
    w = _weights(settings) if weights is None else np.array(weights, np.float64)
    spread, sums = _spread(settings), np.zeros(len(SUMS))
    freeze(w, spread, sums)
    chain = blake2b(seed, digest_size=CHAIN).digest()
    return State(0, chain, Model(settings, w, spread), sums)


def _weights(settings: Settings) -> Floats:
    """All 0 (the paper's start), but for the order as submitted."""
    w = np.zeros(settings.n)
    if settings.prior:
        w[-1] = settings.prior
    return w


def _spread(settings: Settings) -> Floats:
    if settings.algorithm == "solar-i":
        return np.zeros(0)
    spread = covariance.identity(settings.n) if _full(settings) else np.ones(settings.n)
    if settings.prior:
        spread[-1] = PRIOR_VARIANCE  # the last of the diagonal is the last of the triangle
    return spread


def _most(settings: Settings) -> int:
    return MOST_FEATURES_FULL if _full(settings) else MOST_FEATURES


def _full(settings: Settings) -> bool:
    return settings.algorithm == "solar-ii" and settings.covariance == "full"


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(allowed)}")


def link(chain: bytes, record: bytes) -> bytes:
    """The chain after a record."""
    linked = blake2b(chain, digest_size=CHAIN)
    linked.update(record)
    return linked.digest()
