"""`solar learn`: run a learner for every model of a store, until stopped."""

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable

from app import __version__
from app.api.application import new_application
from app.api.routers import health
from app.api.routers.health import ProcessHealth
from app.api.routing import Guard
from app.cli.options import add_store_arguments, natural, store_settings
from app.cli.with_store import with_store
from app.config import Settings
from app.domain.addresses import is_loopback
from app.errors import SolarError, Unavailable
from app.learning.learner import warm_up
from app.learning.options import LearnerOptions
from app.learning.pool import learn_all
from app.observability.logging import limited_server_lines
from app.observability.metrics import Metrics
from app.observability.multiprocess import report_ready
from app.observability.recent_errors import noting_errors
from app.runtime.protocol import raise_file_limit
from app.runtime.worker import listen, listening
from app.serving.weight_cache import WeightCache
from app.storage.batching import MemoryBudget
from app.storage.embedded import server
from app.storage.store import Store

log = logging.getLogger("solar")
CHECK_SECONDS = 0.5  # between two checks of the server


def add_learn_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar learn`."""
    add_store_arguments(parser)
    parser.add_argument(
        "--port", type=natural, metavar="PORT",
        help="TCP port for /healthz, /readyz and /metrics (default: none, they are not served)",
    )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST",
        help="address for --port (default 127.0.0.1)",
    )  # fmt: skip
    parser.set_defaults(run=lambda options: with_store(options, _learn, wait=True))


async def _learn(options: argparse.Namespace, store: Store) -> None:
    settings = store_settings(options)
    raise_file_limit()

    def alive() -> bool:
        return bool(settings.redis_url) or server.is_kept(settings.data_dir)

    learner = LearnerOptions(lease=settings.lease)
    await learn_until_stopped(store, learner, settings, options.host, options.port, alive)


async def learn_until_stopped(
    store: Store,
    options: LearnerOptions,
    settings: Settings,
    host: str = "127.0.0.1",
    port: int | None = None,
    alive: Callable[[], bool] = lambda: True,
) -> None:
    """Learn every model until SIGTERM or SIGINT; then commit and release the leases.

    SolarError when `alive` returns False: an embedded server has ended with its service.
    """
    stop, metrics = _stop_on_signals(), Metrics("learner")
    warm = asyncio.create_task(_warm_up())
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(noting_errors(role="learner"))
        if port is not None:  # first: /healthz must answer before the store does
            health = _health_server(store, settings, metrics, host, port, stop, warm.done)
            await stack.enter_async_context(health)
        for problem in await _server_problems(store, stop):
            log.warning("%s", problem)
        await warm
        log.info("learning the models of %s", store.name)
        ended = asyncio.create_task(_stop_without_server(alive, stop))
        await learn_all(store, stop, options, metrics.learnt)
        if await ended:
            raise SolarError(
                "the embedded server has stopped, with the process that started it; "
                "start `solar serve` and then `solar learn`"
            )


async def _warm_up() -> None:
    """Compile the kernels; then the learner counts as up, even if the store is unreachable."""
    await asyncio.to_thread(warm_up)
    report_ready()


def _stop_on_signals() -> asyncio.Event:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop.set)
    return stop


async def _server_problems(store: Store, stop: asyncio.Event) -> list[str]:
    """Wait for the server; list the problems of its settings."""
    while not stop.is_set():
        try:
            found = await store.servers.complaints()
        except Unavailable as error:
            store.outages.failed("settings check", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), CHECK_SECONDS)
        else:
            store.outages.succeeded("settings check")
            return found
    return []


async def _stop_without_server(alive: Callable[[], bool], stop: asyncio.Event) -> bool:
    """Set `stop` when the server has ended; return whether it has."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), CHECK_SECONDS)
        if not stop.is_set() and not await asyncio.to_thread(alive):
            stop.set()
            return True
    return False


@contextlib.asynccontextmanager
async def _health_server(
    store: Store,
    settings: Settings,
    metrics: Metrics,
    host: str,
    port: int,
    stop: asyncio.Event,
    ready: Callable[[], bool],
) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics beside the learner."""
    weight_cache = WeightCache(store, metrics.served, poll=0.5)  # for metrics only
    await weight_cache.start()
    application = new_application(__version__, (), (health.router,))
    exposed = settings.insecure or not is_loopback(host)  # these paths need no key
    application.state.guard = Guard(
        settings.model_copy(update={"insecure": exposed}),
        metrics,
        MemoryBudget(settings.inflight_bytes),
    )
    application.state.health = ProcessHealth(store, weight_cache, metrics, ready)
    serving = asyncio.create_task(listen(application, listening(host, port), stop))
    try:
        with limited_server_lines():
            yield
    finally:
        stop.set()
        await serving
        await weight_cache.close()
