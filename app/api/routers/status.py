"""`/status`: workers, learners, store, backlog and the last errors, for people.

It is answered from memory where the store need not be asked, and while the store is unreachable.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from fastapi import APIRouter, Request

from app.api.admin_routing import AdminRoute
from app.api.auth import requires
from app.api.console_schemas import ServiceStatus
from app.api.dependencies import FromState
from app.api.openapi import COMMON_PROBLEMS, problems
from app.api.routers.health import FromHealth
from app.errors import SolarError
from app.serving.weight_cache import WeightCache
from app.storage.health import ServerStatus
from app.storage.store import Store

router = APIRouter(route_class=AdminRoute, tags=["operations"], dependencies=[requires("read")])

#: Timeout for the questions to the store.
STATUS_SECONDS = 0.7
#: Names in a list of the answer.
NAMES_SHOWN = 100


class _Asked(NamedTuple):
    """What the store has answered."""

    reachable: bool = False
    server: ServerStatus = ServerStatus()
    led: Mapping[str, list[str] | None] | None = None


@router.get(
    "/status",
    operation_id="get_status",
    summary="Status of the service",
    response_model=ServiceStatus,
    responses=problems(*COMMON_PROBLEMS),
)
async def get_status(request: Request, service: FromState, health: FromHealth) -> Any:
    """Report on the processes, the store, the models that wait, and the last errors.

    It answers within a second, also while the store is unreachable, then with the values last seen.
    """
    cache = service.weight_cache
    asked = await _ask(service.store) if cache.reachable else _Asked()
    processes, errors = await asyncio.to_thread(lambda: (health.processes(), health.errors()))
    return {
        "version": request.app.version,
        "store": _store(asked, cache.memory_share, service.settings.durability),
        "workers": [
            {"name": name, "up": one.up, "restarts": one.restarts}
            for name, one in sorted(processes.items())
        ],
        "learners": None if asked.led is None else [_learner(*one) for one in asked.led.items()],
        **_models(cache),
        "down": [name for name, one in sorted(processes.items()) if not one.up],
        "errors": [one._asdict() for one in errors],
    }


async def _ask(store: Store) -> _Asked:
    """Ask the store; an unreachable one has not answered."""
    with suppress(SolarError, TimeoutError):
        async with asyncio.timeout(STATUS_SECONDS):
            return _Asked(True, await store.servers.status(), await store.leases.led_models())
    return _Asked()


def _store(asked: _Asked, share: float, durability: str) -> dict[str, Any]:
    memory, aof = asked.server.memory, asked.server.aof
    return {
        "reachable": asked.reachable,
        "memory_share": memory.share if memory else share,
        "memory_used": memory.used if memory else None,
        "memory_limit": memory.limit if memory else None,
        "version": asked.server.version,
        "durability": durability,
        "aof": aof._asdict() if aof else None,
    }


def _learner(name: str, led: list[str] | None) -> dict[str, Any]:
    identity, models = name.partition(":")[0], None if led is None else len(led)
    return {"id": identity, "models": models, "leads": (led or [])[:NAMES_SHOWN]}


def _models(cache: WeightCache) -> dict[str, Any]:
    """Return what this worker knows of all models, without a question to the store."""
    lags = cache.lags()
    largest = max(lags, key=lambda name: (lags[name], name), default=None)
    return {
        "models": len(cache.names | cache.serving.keys()),
        "damaged": sorted(cache.damaged)[:NAMES_SHOWN],
        "backlog": {
            "records": sum(lags.values()),
            "largest": {"model": largest, "records": lags[largest]} if largest else None,
        },
        "lag_seconds": max(cache.lag_seconds().values(), default=0.0),
    }
