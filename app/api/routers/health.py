"""`/healthz`, `/readyz` and `/metrics`: open without a key, the same for every process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from app.api.admin_routing import AdminRoute
from app.api.admin_schemas import Alive, Ready
from app.api.errors import Problem
from app.api.openapi import OPEN_PROBLEMS, problems
from app.domain.facts import ModelStatus
from app.errors import SolarError
from app.observability.follower_metrics import chosen_followers
from app.observability.metrics import METRICS_MEDIA_TYPE, Metrics
from app.observability.model_metrics import ModelTotals, StoreHealth
from app.observability.multiprocess import ProcessStatus
from app.observability.recent_errors import LoggedError
from app.serving.weight_cache import WeightCache
from app.storage.store import Store

router = APIRouter(route_class=AdminRoute, tags=["operations"])

#: Timeout for reading the models' status from the store.
STORE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """What the health paths report on: store, weights, metrics, readiness, processes, errors."""

    store: Store
    weight_cache: WeightCache
    metrics: Metrics
    ready: Callable[[], bool] = lambda: True
    down: Callable[[], list[str]] = list
    processes: Callable[[], dict[str, ProcessStatus]] = dict
    errors: Callable[[], list[LoggedError]] = list


async def _of_state(request: Request) -> Any:
    return request.app.state.health


FromHealth = Annotated[ProcessHealth, Depends(_of_state)]


@router.get(
    "/healthz",
    operation_id="healthz",
    summary="Liveness",
    response_model=Alive,
    responses=problems(*OPEN_PROBLEMS),
)
@router.head("/healthz", include_in_schema=False)
async def healthz() -> Any:
    """Report that the process is running."""
    return Alive(status="alive")


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Readiness",
    response_model=Ready,
    responses=problems(*OPEN_PROBLEMS, 503),
)
@router.head("/readyz", include_in_schema=False)
async def readyz(health: FromHealth) -> Any:
    """Report whether the process is ready: all models were loaded from the store.

    It stays ready while its learner, its embedded store or another worker is down, and with models
    that are damaged or of a newer format: their requests get 503, and the others are served.
    """
    cache = health.weight_cache
    if not cache.started:
        raise Problem(503, "the models are not loaded yet; check SOLAR_REDIS_URL and the log")
    if not health.ready():
        raise Problem(503, "the kernels are still compiling; retry after 1 second")
    return Ready(status="ready", degraded=not cache.reachable, down=health.down())


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics"},
        **problems(*OPEN_PROBLEMS),
    },
)
@router.head("/metrics", include_in_schema=False)
async def metrics(health: FromHealth) -> Response:
    """Return all metrics; if the store is unreachable, the last known values.

    Of many models, 200 with most requests have metrics of their own, and those in trouble or in a
    duel. Of many followers, those that have stalled or lag most have.
    """
    cache = health.weight_cache
    known, damaged, lags = cache.names | cache.serving.keys(), set(cache.damaged), cache.lags()
    duels = [name for name, one in cache.serving.items() if one.duel and one.duel.is_on]
    counts = await asyncio.to_thread(health.metrics.choose, known, damaged, lags, duels)
    models = [one for name in counts if (one := cache.serving.get(name))]
    statuses, learners = dict[str, ModelStatus](), None
    if cache.reachable:
        with suppress(SolarError, TimeoutError):
            async with asyncio.timeout(STORE_SECONDS):
                statuses = await health.store.models.statuses([*counts])
                learners = await health.store.leases.learners()
    totals = ModelTotals(
        len(known), len(damaged), sum(lags.values()), max(lags.values(), default=0), learners,
        cache.lag_seconds(),
    )  # fmt: skip
    server = StoreHealth(cache.reachable, cache.memory_share)
    followers = chosen_followers(cache.serving, cache.tails, cache.followers, cache.stalled)
    page = await asyncio.to_thread(
        health.metrics.page, models, statuses, server, totals, counts, followers
    )
    return Response(page, headers={"content-type": METRICS_MEDIA_TYPE})
