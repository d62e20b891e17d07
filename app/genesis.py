"""What a model may be, and a model that has learnt nothing yet. No kernels: the API needs this."""

from hashlib import blake2b

import numpy as np

from app.events import SUMS, Floats, Model, Settings, State, freeze
from app.ranking import covariance
from app.ranking.clicks import STRATEGIES
from app.ranking.limits import (
    LEAST,
    MOST,
    MOST_FEATURES,
    MOST_FEATURES_FULL,
)

CHAIN = 32
NORMALIZATIONS = ("none", "query-minmax")


def check(settings: Settings) -> Settings:
    """Settings as they are, or ValueError: no model can have these."""
    _one_of("algorithm", settings.algorithm, ("solar-i", "solar-ii"))
    _one_of("covariance", settings.covariance, ("full", "diagonal"))
    _one_of("clicks", settings.clicks, tuple(STRATEGIES))
    _one_of("normalization", settings.normalization, NORMALIZATIONS)
    most = MOST_FEATURES_FULL if _full(settings) else MOST_FEATURES
    if not 1 <= settings.n <= most:
        raise ValueError(f"features: expected 1 to {most}, got {settings.n}")
    if len(set(settings.features)) != settings.n:
        raise ValueError("features: expected names that differ")
    if "" in settings.features:
        raise ValueError("features: expected names, got an empty one")
    for name, value in (("C", settings.C), ("gamma", settings.gamma)):
        if not LEAST <= value <= MOST:
            raise ValueError(f"{name}: expected a value from {LEAST} to {MOST}")
    return settings


def genesis(settings: Settings, weights: Floats | None = None, seed: bytes = b"") -> State:
    """The state of a model that has learnt nothing; `seed` makes its chain its own."""
    check(settings)
    w = np.zeros(settings.n) if weights is None else np.array(weights, np.float64)
    spread, sums = _spread(settings), np.zeros(len(SUMS))
    freeze(w, spread, sums)
    chain = blake2b(seed, digest_size=CHAIN).digest()
    return State(0, chain, Model(settings, w, spread), sums)


def _spread(settings: Settings) -> Floats:
    if settings.algorithm == "solar-i":
        return np.zeros(0)
    return covariance.identity(settings.n) if _full(settings) else np.ones(settings.n)


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
