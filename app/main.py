"""The service as a FastAPI application: `uvicorn app.main:app`, or `create_app()` in a test.

Importing this module only reads the settings. The lifespan opens the store. Unless the settings
say otherwise, it also starts an embedded store and a learner.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import __version__, config
from app.api.application import new_application
from app.api.browsers import OPEN_PATHS, read_origins
from app.api.dependencies import check_settings
from app.api.routers import (
    beacon,
    beacon_script,
    console,
    docs,
    duels,
    feedback,
    followers,
    health,
    history,
    jobs,
    models,
    questions,
    rank,
    recent,
    status,
    stream,
    versions,
)
from app.api.routers.health import ProcessHealth
from app.api.routing import Guard
from app.config import Settings
from app.errors import SolarError
from app.observability.logging import application_logging
from app.observability.multiprocess import DIRECTORY, all_processes, processes_down
from app.observability.tracebacks import format_traceback
from app.observability.tracing import exporting_spans, telemetry_options
from app.runtime.companions import store_and_learner
from app.runtime.wiring import open_service

#: The exit code of a failed startup; the same as uvicorn's.
STARTUP_FAILURE = 3


def create_app(settings: Settings | None = None, store_url: str | None = None) -> FastAPI:
    """Create the application; without `settings`, read them from the environment."""
    settings = config.read_settings() if settings is None else settings
    if store_url is not None:
        settings = settings.model_copy(update={"redis_url": store_url})
    check_settings(settings)
    telemetry = telemetry_options(settings)
    app = new_application(
        __version__,
        fast=(rank.router, feedback.router, beacon.router),
        routers=_routers(settings),
        lifespan=_lifespan,
        telemetry=telemetry,
    )
    app.state.settings, app.state.telemetry = settings, telemetry
    if settings.cors:
        _allow_origins(app, settings.cors)
    app.router.lifespan = _with_short_errors(app.router.lifespan)  # type: ignore[method-assign]
    return app


def _routers(settings: Settings) -> Iterator[APIRouter]:
    """All routers besides those of /rank and /feedback."""
    yield from (models.router, versions.router, history.router, stream.router)
    yield from (followers.router, duels.router)
    yield from (questions.router, recent.router, jobs.router)
    yield from (health.router, status.router, docs.router, beacon_script.router)
    if settings.console:
        yield console.router


class _Origins(CORSMiddleware):
    """CORS for the origins of the settings; paths for all origins answer by themselves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        own = scope["type"] == "http" and scope["path"] in OPEN_PATHS
        await (self.app if own else super().__call__)(scope, receive, send)


def _allow_origins(app: FastAPI, origins: str) -> None:
    app.add_middleware(
        _Origins,
        allow_origins=read_origins(origins),
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["authorization", "content-type", "last-event-id", "prefer"],
        expose_headers=["x-request-id", "location", "preference-applied", "retry-after"],
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings = app.state.settings
    async with (
        application_logging() as errors,
        exporting_spans(app.state.telemetry),
        store_and_learner(settings) as (url, learner_metrics),
        open_service(settings.model_copy(update={"redis_url": url}), learner_metrics) as service,
    ):
        app.state.service = service
        app.state.guard = Guard(service.settings, service.metrics, service.memory)
        app.state.health = ProcessHealth(
            service.store,
            service.weight_cache,
            service.metrics,
            down=partial(processes_down, learner_metrics),
            processes=partial(all_processes, learner_metrics),
            errors=partial(errors.read, os.environ.get(DIRECTORY, ""), learner_metrics),
        )
        yield


def _with_short_errors(lifespan: ASGIApp) -> Callable[..., Coroutine[Any, Any, None]]:
    """Wrap a lifespan: report a failure in one line, or as a traceback without values.

    Starlette sends `traceback.format_exc()` inside its `except` clause, so `sys.exc_info()` has
    the error.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_short(message: Message) -> None:
            error = sys.exc_info()[1]
            if message["type"].endswith(".failed") and error is not None:
                known = isinstance(error, SolarError)
                message["message"] = f"solar: {error}" if known else format_traceback(error)
            await send(message)

        await lifespan(scope, receive, send_short)

    return wrapped


def _application() -> Any:
    try:
        return create_app()
    except SolarError as error:
        print(f"solar: {error}", file=sys.stderr)  # noqa: T201  # logging is not configured yet
        sys.exit(STARTUP_FAILURE)


app = _application()
