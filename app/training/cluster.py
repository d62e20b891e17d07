"""The engine of a Dask cluster: `app/training/shards` computes, this module sends and waits.

Each task is a pure function, so a task of a worker that died is sent to another one, and the first
answer of two copies counts. No other module imports dask. A scheduler runs any code that it gets,
so who can reach it is trusted: see docs/scale.md.
"""

import logging
import os
import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock
from time import monotonic, sleep
from typing import Any

import distributed
from dask.system import CPU_COUNT
from distributed import Client, Future, LocalCluster, Security, get_worker
from distributed.comm.core import FatalCommClosedError
from distributed.system import MEMORY_LIMIT

from app.errors import ClusterFailed, ReadFailed, SolarError
from app.training.shards import memory, versions
from app.training.shards.cache import Cache
from app.training.shards.dispatch import Dispatch, TooManyLosses
from app.training.shards.engines import PATIENCE, Task
from app.training.shards.heartbeats import ClusterWorkers, Heartbeats

#: Seconds between two looks at the workers, and for one answer of the scheduler.
TICK_SECONDS, ANSWER_SECONDS = 0.25, 10.0
#: A worker without a limit gets the cache of one with 4 GB.
UNLIMITED = 4_000_000_000
GONE = (OSError, TimeoutError, distributed.CancelledError)
TLS_NAMES = "DASK_DISTRIBUTED__COMM__TLS__"
NO_TLS = f"cluster: expected certificates of one CA here and at the scheduler ({TLS_NAMES}…)"
_CREATION = Lock()
UNENCRYPTED = "cluster: expected tls://, as Dask's setting require-encryption says"


class ClusterEngine:
    """Computes parts on the workers of a scheduler, in their present number."""

    def __init__(self, address: str, patience: float = PATIENCE) -> None:
        self._address, self._patience = address, patience
        self._client: Client | None = None
        self._homes: dict[Any, str] = {}
        self._usual: dict[str, float] = {}
        self._stuck: set[str] = set()
        self._heartbeats = Heartbeats()
        self._seen = monotonic()

    def map(self, task: Task, calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield `task(cache, *call)` for each call, in their order."""
        names = [getattr(call[0], "shard", call[0]) for call in calls]
        dispatch = Dispatch(names, self._homes, self._usual.get(task.__name__, 0.0), self._stuck)
        one = _Pass(self, dispatch, task, calls)
        try:
            for at in range(len(calls)):
                yield one.result(at)
        finally:
            one.cancel()
        self._usual[task.__name__] = dispatch.usual

    def connected(self) -> Client:
        """Return the client; wait for the scheduler within the patience."""
        while self._client is None:
            try:
                self._client = Client(
                    self._address, timeout=min(ANSWER_SECONDS, self._patience),
                    set_as_default=False, name="solar",
                )  # fmt: skip
                self._check_scheduler(self._client)
            except GONE as error:
                self.disconnect()
                refuse_certificates(error)
                self.wait(f"the scheduler does not answer: {type(_cause(error)).__name__}")
        return self._client

    def disconnect(self) -> None:
        """Forget the connection; the next call makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(*GONE):
                client.close(timeout=TICK_SECONDS)

    def workers(self, computing: Collection[str] = ()) -> ClusterWorkers:
        """Return the workers; wait while there is none, and a moment if none goes on."""
        while True:
            found: dict[str, Any] = {}
            with suppress(*GONE):
                client = self.connected()
                asked = client.sync(client.scheduler.identity, callback_timeout=ANSWER_SECONDS)
                found = asked["workers"]
            workers = self._heartbeats.look(found, monotonic(), computing)
            if workers.why:
                self.wait(workers.why)
            else:
                self._seen = monotonic()
            if found:
                return workers

    def answered(self) -> None:
        """Note that a worker has answered."""
        self._seen = monotonic()

    def wait(self, why: str) -> None:
        """Wait a moment; ClusterFailed once the patience is over."""
        if monotonic() - self._seen > self._patience:
            raise ClusterFailed(
                f"cluster: {why} for {self._patience:g} s (--patience); nothing was changed; "
                "start the training again to continue"
            )
        sleep(TICK_SECONDS)

    def _check_scheduler(self, client: Client) -> None:
        found = client.sync(client.scheduler.versions, callback_timeout=ANSWER_SECONDS)
        there = {"python": found["host"]["python"], **found["packages"]}
        versions.refuse_others("scheduler", versions.of_scheduler(), there, minor=("python",))


class _Pass:
    """One task for all parts."""

    def __init__(
        self, engine: ClusterEngine, dispatch: Dispatch, task: Task, calls: Sequence[Any]
    ) -> None:
        self._engine, self._dispatch, self._task, self._calls = engine, dispatch, task, calls
        self._futures: dict[tuple[int, str], Future[Any]] = {}
        self._results: dict[int, Any] = {}
        self._workers = ClusterWorkers({}, set(), set(), "")
        self._looked = -TICK_SECONDS

    def result(self, at: int) -> Any:
        """Wait for the result of a part."""
        while at not in self._results:
            try:
                self._start()
                self._collect()
            except GONE:
                self._reconnect()
            except TooManyLosses as error:
                raise ClusterFailed(self._died(error.args[0])) from None
        return self._results.pop(at)

    def cancel(self) -> None:
        """Cancel what is not needed any more."""
        for future in self._futures.values():
            with suppress(*GONE):
                future.cancel()
        self._futures.clear()

    def _start(self) -> None:
        """Look who is there, and send parts to the threads that are free."""
        if monotonic() - self._looked > TICK_SECONDS:
            running = self._dispatch.running()
            self._workers = self._engine.workers({worker for _, worker in running})
            self._looked = monotonic()
            for key in running:
                if key[1] not in self._workers.present:
                    self._lose(*key)
        client, there = self._engine.connected(), self._workers
        for at, worker in self._dispatch.assign(there.ready, monotonic(), there.silent):
            self._futures[at, worker] = client.submit(
                run_task, versions.of_worker(), self._task, self._calls[at],
                workers=[worker], pure=False, key=f"solar-{os.urandom(8).hex()}",
            )  # fmt: skip

    def _collect(self) -> None:
        """Wait for an answer, TICK_SECONDS at most, and take all that are there."""
        if not self._futures:
            sleep(TICK_SECONDS)
            return
        with suppress(TimeoutError), self._engine.connected().as_current():
            distributed.wait(
                list(self._futures.values()), timeout=TICK_SECONDS, return_when="FIRST_COMPLETED"
            )
        for (at, worker), future in list(self._futures.items()):
            if future.status == "finished":
                self._finish(at, worker, future)
            elif future.status == "error":
                self._fail(at, worker, future.exception(timeout=ANSWER_SECONDS))
            elif future.status != "pending":
                self._lose(at, worker)

    def _finish(self, at: int, worker: str, future: "Future[Any]") -> None:
        """Take a result; its worker may have died since."""
        try:
            result = future.result(timeout=ANSWER_SECONDS)
        except GONE:
            self._lose(at, worker)
            return
        self._engine.answered()
        self._futures.pop((at, worker)).release()
        if self._dispatch.finish(at, worker, monotonic()):
            self._results[at] = result

    def _fail(self, at: int, worker: str, error: BaseException) -> None:
        """Raise the error of a task; what one worker could not read, another one tries."""
        if isinstance(error, distributed.KilledWorker):
            self._lose(at, worker)
            return
        self._futures.pop((at, worker)).release()
        if isinstance(error, ReadFailed) and self._dispatch.fail(at, worker):
            return
        if isinstance(error, SolarError):
            raise error
        raise ClusterFailed(
            f"worker {worker}: expected a result, got {type(error).__name__}: {str(error)[:200]}"
        )

    def _lose(self, at: int, worker: str) -> None:
        future = self._futures.pop((at, worker), None)
        if future is not None:
            with suppress(*GONE):
                future.cancel()
        self._dispatch.lose(at, worker)

    def _reconnect(self) -> None:
        """Start all parts again that have no result: the scheduler is gone, or a new one."""
        self._futures.clear()
        self._dispatch.lose_all()
        self._engine.disconnect()
        self._looked = -TICK_SECONDS

    def _died(self, at: int) -> str:
        named = self._calls[at][0]
        name = getattr(getattr(named, "shard", named), "name", "a shard")
        return (
            f"{name}: expected a result, but its workers died one after the other; give them more "
            "memory, or write smaller shards"
        )


def run_task(expected: dict[str, str], task: Task, call: tuple[Any, ...]) -> Any:
    """Run a task on a worker, with the cache of that worker."""
    worker = get_worker()
    versions.refuse_others(f"worker {worker.address}", expected, versions.of_worker())
    with _CREATION:
        if not hasattr(worker, "solar_cache"):
            limit = worker.memory_manager.memory_limit or UNLIMITED
            worker.solar_cache = Cache(memory.cache_bytes(limit, worker.state.nthreads))
    return task(worker.solar_cache, *call)


def check_certificates(address: str) -> None:
    """Raise ClusterFailed if the certificates for `tls://` are not there, or needed for `tcp://`."""
    if not address.startswith("tls:"):
        if Security().require_encryption:
            raise ClusterFailed(UNENCRYPTED)
        return
    expected = "CA_FILE, CLIENT__CERT and CLIENT__KEY"
    try:
        context = Security().get_connection_args("client")["ssl_context"]
    except OSError as error:  # of files, or of what is in them
        raise ClusterFailed(
            f"cluster: expected PEM files in {TLS_NAMES}{expected}, got {error}"
        ) from None
    if context is None:
        raise ClusterFailed(f"cluster: expected certificates for tls:// in {TLS_NAMES}{expected}")


def refuse_certificates(error: BaseException) -> None:
    """Raise ClusterFailed if one side refused the certificate of the other: waiting is no use."""
    cause = _cause(error)
    alert = isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or "")
    if alert or isinstance(error, FatalCommClosedError):
        got = str(cause).rpartition(">: ")[2]  # without the addresses
        raise ClusterFailed(f"{NO_TLS}, got {got}") from None


def _cause(error: BaseException) -> BaseException:
    """Return the first error of a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def cluster_engine(address: str, patience: float = PATIENCE) -> Iterator[ClusterEngine]:
    """Return an engine for `tcp://…`, `tls://…`, or `local[:N]`, which starts N processes."""
    with _quiet(), ExitStack() as stack:
        if address.startswith("local"):
            address = stack.enter_context(_local(address.partition(":")[2])).scheduler_address
        check_certificates(address)
        engine = ClusterEngine(address, patience)
        stack.callback(engine.disconnect)
        yield engine


def _local(count: str) -> LocalCluster:
    """Start a scheduler and workers on this machine, each worker with one thread."""
    n = int(count) if count else memory.local_workers(CPU_COUNT)
    limit = memory.local_memory(n, CPU_COUNT, MEMORY_LIMIT)
    return LocalCluster(
        n_workers=n, threads_per_worker=1, processes=True, memory_limit=limit,
        host="127.0.0.1", dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
        silence_logs=logging.CRITICAL,
    )  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Log only errors of Dask meanwhile; the engine reports what matters."""
    log = logging.getLogger("distributed")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
