"""Dependencies of all routes: the service, and the settings' checks."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import Depends, Request

from app.api.auth import read_keys
from app.api.beacon_limits import BeaconLimits
from app.api.browsers import read_hosts
from app.api.quotas import SourceQuota, StoreQuota
from app.api.routing import Call
from app.api.tokens import SENDER, TokenKeys, read_token_keys
from app.config import Settings
from app.domain.model import ModelState, initial_state
from app.domain.model_config import (
    ModelConfig,
    check_config,
    has_full_covariance,
    new_model_config,
)
from app.errors import InvalidInput, ModelExists, NoSuchModel, SolarError, Unavailable
from app.ingest.appender import Appender
from app.ingest.clicked_lists import ClickedLists
from app.observability.metrics import Metrics
from app.ranking.limits import MOST_FEATURES_SERVED
from app.serving.impression_writer import ImpressionWriter
from app.serving.live import LiveFeeds
from app.serving.served_model import ServedModel
from app.serving.trial_runner import TrialRunner
from app.serving.weight_cache import WeightCache
from app.storage.batching import Held, MemoryBudget
from app.storage.connection import check_url
from app.storage.states import LogPosition
from app.storage.store import Store
from app.training.job_runner import JobRunner
from app.training.shards.urls import check_cluster, prefixes_of

DEFAULT = "default"
#: Copies of a state in memory while it is read or written: the arrays, the blob, the command.
STATE_COPIES = 3
T = TypeVar("T")


@dataclass(slots=True)
class Service:
    """The store, the weights in memory, the settings, and the writers."""

    store: Store
    weight_cache: WeightCache
    impression_writer: ImpressionWriter
    settings: Settings
    source_quota: SourceQuota | None
    store_quota: StoreQuota | None
    metrics: Metrics
    appender: Appender
    job_runner: JobRunner
    memory: MemoryBudget
    live: LiveFeeds
    trial_runner: TrialRunner
    clicked_lists: ClickedLists
    tokens: TokenKeys | None
    beacon_limits: BeaconLimits

    async def resolve(
        self, model: str, decode: Callable[[ServedModel], Awaitable[T]]
    ) -> tuple[ServedModel, T]:
        """Find a served model, and decode a request by its features.

        A `default` model that does not exist yet has epoch 0. It is created once a request for it
        decodes to something.
        """
        served = self.weight_cache.serving.get(model) or await self._find(model)
        decoded = await decode(served)
        if decoded and not served.epoch:
            with suppress(ModelExists):
                await self.create(DEFAULT, served.config)
            created = await self.weight_cache.load(DEFAULT)
            if created.config != served.config:
                raise Unavailable(f"model {model}: another request created it with other features")
            served = created
        return served, decoded

    async def position(self, model: str) -> LogPosition:
        """Return the position of a model's committed state; IsFollower for a follower."""
        try:
            return await self.store.states.position(model)
        except NoSuchModel:
            await self.weight_cache.refuse_follower(model)
            raise

    async def _find(self, model: str) -> ServedModel:
        try:
            return await self.weight_cache.find(model)
        except NoSuchModel:
            if model != DEFAULT or not self.settings.default_features:
                raise
        config = new_model_config(default_features(self.settings))
        weights = np.zeros(config.n)
        return ServedModel(DEFAULT, 0, 0, config, weights, weights, 0.0)

    async def create(self, model: str, config: ModelConfig) -> ModelState:
        """Create a model and return its first state; ModelExists, or TooManyModels."""
        if len(config.given) > MOST_FEATURES_SERVED:
            raise InvalidInput(f"features: expected at most {MOST_FEATURES_SERVED}")
        async with self.holding(check_config(config)):
            state = initial_state(config, seed=os.urandom(16))
            most = self.settings.models - len(await self.store.followers.leaders())
            await self.store.models.create(model, state, most)
        return state

    @asynccontextmanager
    async def holding(self, config: ModelConfig) -> AsyncIterator[Held]:
        """Hold the memory of a model's state while it is read or written."""
        held = Held(self.memory)
        try:
            held.keep(state_bytes(config))
            await self.memory.turn(held.size)
            yield held
        finally:
            held.keep(0)


def state_bytes(config: ModelConfig) -> int:
    """Return the memory of a model's state while it is read or written: numbers and names."""
    n = config.n
    spread = n * (n + 1) // 2 if has_full_covariance(config) else n
    names = sum(map(len, config.features)) + 32 * n
    return STATE_COPIES * (8 * (n + spread) + names)


async def _of_state(request: Request) -> Any:
    return request.app.state.service


async def _of_route() -> None:
    """Do nothing: FastAPI reads the signature, `FastRoute.work` calls `endpoint(service, call)`."""


#: Parameters of an endpoint: the service, and for a FastRoute the call too.
FromState = Annotated[Service, Depends(_of_state)]
FromRoute = Annotated[Call, Depends(_of_route)]


def check_settings(settings: Settings) -> None:
    """Raise SolarError if the service cannot start with these settings."""
    names = {key.name for key in read_keys(settings.keys)}
    if read_token_keys(settings.token_keys, settings.token_seconds) and SENDER in names:
        raise SolarError(
            f"SOLAR_KEYS: expected no key of the name {SENDER}, which is the source of beacons; a "
            "new name keeps the secret valid"
        )
    read_hosts(settings.hosts)
    check_url(settings.redis_url)
    prefixes_of(settings.shards)
    if settings.cluster:
        check_cluster(settings.cluster, "SOLAR_CLUSTER")
    if settings.default_features:
        check_config(ModelConfig(default_features(settings)))


def default_features(settings: Settings) -> tuple[str, ...]:
    """Return the feature names of the default model, given as names or as a count."""
    text = settings.default_features.strip()
    if text.isdigit():
        return numbered(int(text))
    return tuple(name.strip() for name in text.split(","))


def numbered(count: int) -> tuple[str, ...]:
    """Return the names `f1` … `fn` for unnamed features.

    >>> numbered(3)
    ('f1', 'f2', 'f3')
    """
    return tuple(f"f{k}" for k in range(1, count + 1))
