"""What `solar learn`, `log`, `replay` and `verify` do, once there is a store."""

import asyncio
import contextlib
import json
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

from app import config
from app.api.routers.health import HealthEndpoints
from app.api.routing import HttpApplication
from app.domain import codec
from app.domain.records import Feedback, Record, Replace, Retune
from app.errors import Fenced, SolarError, Unavailable
from app.learning import replay as audit
from app.learning.learner import warm_up
from app.learning.pool import learn_all
from app.learning.replay import ROUNDS, Folding
from app.learning.session import LearnerOptions
from app.observability.metrics import Metrics
from app.runtime.worker import listen, listening
from app.serving.weight_cache import WeightCache
from app.storage.log import NewRecord
from app.storage.store import Store

Print = Callable[[str], None]
log = logging.getLogger("solar")
LOOK = 0.5  # seconds between two looks at an embedded server


async def learn(
    store: Store,
    pace: LearnerOptions,
    host: str = "127.0.0.1",
    port: int | None = None,
    lives: Callable[[], bool] | None = None,
) -> None:
    """Learn every model until SIGTERM or SIGINT; then commit and release.

    With `lives` only while that says that the server does: an embedded one does not come back.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop.set)
    metrics, warm = Metrics(), asyncio.create_task(asyncio.to_thread(warm_up))
    async with contextlib.AsyncExitStack() as stack:
        if port is not None:
            watched = _watched(store, metrics, host, port, stop, warm.done)
            await stack.enter_async_context(watched)  # first: it lives, store or not
        for complaint in await _complaints(store, stop):
            log.warning("%s", complaint)
        await warm
        gone = asyncio.create_task(_gone(lives, stop))
        await learn_all(store, stop, pace, metrics.learnt)
        if await gone:
            raise SolarError("the embedded server is gone, and with it whoever started it")


async def _complaints(store: Store, stop: asyncio.Event) -> list[str]:
    """What is wrong with the server, once it is there."""
    while not stop.is_set():
        try:
            return await store.servers.complaints()
        except Unavailable as error:
            log.warning("%s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK)
    return []


async def _gone(lives: Callable[[], bool] | None, stop: asyncio.Event) -> bool:
    """Stop once the server is gone; whether it is."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK)
        if lives is not None and not stop.is_set() and not await asyncio.to_thread(lives):
            stop.set()
            return True
    return False


@contextlib.asynccontextmanager
async def _watched(
    store: Store,
    metrics: Metrics,
    host: str,
    port: int,
    stop: asyncio.Event,
    ready: Callable[[], bool],
) -> AsyncIterator[None]:
    """Beside the work, answer who asks how it goes."""
    weight_cache = WeightCache(store, metrics.served)
    await weight_cache.start()
    paths = HealthEndpoints(store, weight_cache, metrics, ready).paths
    front = HttpApplication(config.read_settings(), metrics, paths)
    serving = asyncio.create_task(listen(front, listening(host, port), stop))
    try:
        yield
    finally:
        stop.set()
        await serving
        await weight_cache.close()


async def show_log(store: Store, model: str, after: int, count: int, show: Print) -> None:
    """Print records of the log, one a line, readably."""
    tail = await store.log.tail(model)
    start = max(after, min(await store.states.versions(model), default=0))
    until = min(tail, start + count)
    async for entry in audit.entries(store, model, start, until):
        show(f"{entry.seq:>8}  {_when(entry.time)}  {_described(entry.record)}")


def _described(blob: bytes) -> str:
    try:
        record = codec.load_record(blob)
    except SolarError as error:
        return f"unreadable: {error}"
    return json.dumps(_fields(record), ensure_ascii=False)


def _fields(record: Record) -> dict[str, Any]:
    if isinstance(record, Feedback):
        said = {
            "clicks": record.clicks,
            "before": record.clicked_before,
            "labels": record.labels,
            "preferred": record.preferred,
            "other": record.other,
        }
        return {
            "feedback": record.kind,
            "event": record.event,
            "query": record.query,
            "source": record.source,
            "documents": len(record.documents),
            **{name: array.tolist() for name, array in said.items() if array is not None},
        }
    if isinstance(record, Replace):
        its = record.model.config
        return {"replace": record.reason, "algorithm": its.algorithm, "n": its.n}
    if isinstance(record, Retune):
        return {"retune": {"C": record.C, "gamma": record.gamma, "clicks": record.clicks}}
    return {"reset": "measures"}


def _when(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds / 1000))


async def replay(store: Store, model: str, without: str | None, apply: bool, show: Print) -> None:
    """Fold the log again, say whether it matches, and put the result in place if asked to."""
    found = await audit.replay(store, model, without)
    records = found.end - found.start
    show(f"{model}: folded {records} records from version {found.start}")
    if without is None:
        differences = found.differences()
        if differences:
            raise SolarError(f"{model}: the replay differs in {', '.join(differences)}")
        show(f"{model}: the same bits as the committed state at {found.committed.seq}")
        return
    show(f"{model}: left out {found.skipped} records of source {without}")
    if apply:
        seq = await _put(store, model, found.folding, f"without source {without}")
        show(f"{model}: record {seq} puts the result in place")


async def _put(store: Store, model: str, folding: Folding, reason: str) -> int:
    """Enter the result right after what it was made of; what comes meanwhile is folded too."""
    epoch, *_ = await store.states.position(model)
    for _ in range(ROUNDS):
        record = codec.dump_record(Replace(folding.fold.state().model, reason))
        event = NewRecord(f"replay-{uuid4()}", b"", record)
        try:
            appended = await store.log.append(
                model, epoch, [event],
                limit=1 << 40, time=int(time.time() * 1000), tail=folding.at,
            )  # fmt: skip
        except Fenced:
            await folding.go_on(store, model, await store.log.tail(model))
        else:
            return appended[0].seq
    raise Fenced(f"model {model}: feedback comes faster than it can be folded")


async def verify(store: Store, models: list[str], show: Print) -> None:
    """Check the invariants of models on a live store; SolarError if one does not hold."""
    wrong = 0
    for model in models or await store.models.names():
        complaints = await audit.verify(store, model)
        wrong += bool(complaints)
        for complaint in complaints:
            show(f"{model}: {complaint}")
        if not complaints:
            show(f"{model}: log dense, chain and state equal to the replay, weights sound")
    if wrong:
        raise SolarError(f"{wrong} of the models are not what their logs say")
