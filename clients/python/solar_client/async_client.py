"""The client for asyncio."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from solar_client import base, calls
from solar_client.async_sender import AsyncSender
from solar_client.base import (
    CALL_SECONDS,
    FLUSH_SECONDS,
    OUTAGE_SECONDS,
    POLL_SECONDS,
    RANK_SECONDS,
    UPLOAD_SECONDS,
    SolarBase,
    duel_options,
    rank_options,
)
from solar_client.calls import Call
from solar_client.duels import Duel, Follower
from solar_client.encoding import Document, JudgedData, SupportsArray
from solar_client.errors import Refused, SolarError
from solar_client.events import Event
from solar_client.models import Job, Model, ModelSummary, Ranking, Version
from solar_client.queue import QUEUE_SIZE, Counters, FlushResult, Limits
from solar_client.sender import OnRejected, log_rejected
from solar_client.session import Target

T = TypeVar("T")


class AsyncSolar(SolarBase):
    """A client of a SOLAR service for one event loop; the parameters are those of `Solar`.

    `click`, `label` and `prefer` only queue, so they are not awaited. In a forked process every
    call raises AfterFork.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        model: str = "default",
        source: str | None = None,
        on_rejected: OnRejected = log_rejected,
        queue_size: int = QUEUE_SIZE,
        certificates: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(model, source)
        self._target = Target.of(url, key, certificates)
        self._sender = AsyncSender(self._target, Limits(queued=queue_size), on_rejected)

    def __repr__(self) -> str:
        return f"AsyncSolar({str(self._target.base).rstrip('/')!r})"

    async def __aenter__(self) -> "AsyncSolar":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self, timeout: float = FLUSH_SECONDS) -> FlushResult:
        """Flush and close all connections."""
        return await self._sender.close(timeout)

    async def flush(self, timeout: float = FLUSH_SECONDS) -> FlushResult:
        """Send all queued events now; wait for the answers, but no longer than `timeout` seconds.

        The result counts what became of all events since the flush before.
        """
        return await self._sender.flush(timeout)

    @property
    def counters(self) -> Counters:
        """Counts of events and of degraded rankings."""
        return self._sender.counters(self._ignored, self._degraded)

    def _put(self, event: Event) -> None:
        self._sender.put(event)

    async def _ask(self, call: Call[T], timeout: float = CALL_SECONDS) -> T:
        return call.read(await self._sender.session().exchange(call, timeout))

    # ---- rank ----

    async def rank(
        self,
        documents: Sequence[Document] | Sequence[str],
        features: SupportsArray | Sequence[Sequence[float]] | None = None,
        *,
        model: str | None = None,
        query_id: str = "",
        request_id: str | None = None,
        top_k: int | None = None,
        explore: bool | None = None,
        pinned: Sequence[str] = (),
        explain: bool = False,
        log: bool = True,
        min_seq: int | None = None,
        version: int | str | None = None,
        viewer: str = "",
        timeout: float = RANK_SECONDS,
        fallback: bool = True,
    ) -> Ranking:
        """Rank documents, best first: see `Solar.rank`."""
        options = rank_options(request_id, explore, pinned, explain, log, min_seq, version, viewer)
        request = self._rank_request(documents, features, model, query_id, top_k, options)
        self._sender.session()  # raises in a forked process, whatever `fallback` says
        try:
            return await self._ask(request.call, timeout)
        except Refused:
            raise
        except SolarError as error:
            if not fallback:
                raise
            return self._fall_back(request, error)

    # ---- models ----

    async def create_model(
        self, name: str, features: Sequence[str] | int, **settings: Any
    ) -> Model:
        """Create a model; repeating it is safe, other settings raise Conflict."""
        return await self._ask(calls.create_model(name, features, settings))

    async def get_model(self, name: str) -> Model:
        """Read a model: its settings, its weights and its measures."""
        return await self._ask(calls.get_model(name))

    async def list_models(self) -> AsyncIterator[ModelSummary]:
        """List all models in the order of their names."""
        after: str | None = None
        while True:
            page = await self._ask(calls.list_models(after))
            for one in page.models:
                yield one
            if (after := page.next) is None:
                return

    async def update_model(self, name: str, **settings: Any) -> int:
        """Change hyper-parameters; return the seq of the record that does."""
        return (await self._ask(calls.update_model(name, settings))).seq

    async def delete_model(self, name: str, *, followers: bool = False) -> None:
        """Delete a model with its log, its versions and its measures; or a follower.

        A model with followers raises Conflict, unless `followers` says to delete them, too.
        """
        await self._ask(calls.delete_model(name, followers=followers))

    # ---- followers and duels ----

    async def create_follower(
        self,
        name: str,
        follows: str,
        *,
        start_at: int | str = "now",
        cold: bool = False,
        **settings: Any,
    ) -> Model:
        """Create a follower: see `Solar.create_follower`."""
        return await self._ask(calls.create_follower(name, follows, start_at, cold, settings))

    async def create_followers(
        self,
        leader: str,
        grid: Mapping[str, Sequence[Any]],
        *,
        start_at: int | str = "now",
        cold: bool = False,
    ) -> list[Follower]:
        """Create a follower for each combination of values: see `Solar.create_followers`."""
        return await self._ask(calls.create_followers(leader, grid, start_at, cold))

    async def list_followers(self, leader: str) -> list[Follower]:
        """List the followers of a model in the order of their names."""
        return await self._ask(calls.list_followers(leader))

    async def begin_duel(
        self,
        model: str,
        challenger: str | int,
        *,
        share: float | None = None,
        alpha: float | None = None,
        max_lists: int | None = None,
        promote: bool | None = None,
    ) -> Duel:
        """Begin a duel or a tournament: see `Solar.begin_duel`."""
        options = duel_options(share, alpha, max_lists, promote)
        return await self._ask(calls.begin_duel(model, challenger, options))

    async def get_duel(self, model: str) -> Duel:
        """Read the duel of a model that is on, or the last one; NotFound if there was none."""
        return await self._ask(calls.get_duel(model))

    async def end_duel(self, model: str) -> Duel:
        """End the duel of a model; later clicks on its lists no longer count."""
        return await self._ask(calls.end_duel(model))

    async def promote(
        self,
        model: str,
        *,
        force: bool = False,
        challenger: str | int | None = None,
        duel: int | None = None,
    ) -> int:
        """Put the winner of a duel in place of the model: see `Solar.promote`."""
        given = calls.promote(model, force=force, challenger=challenger, duel=duel)
        return (await self._ask(given)).seq

    # ---- versions ----

    async def list_versions(self, model: str) -> list[Version]:
        """List the kept versions of a model, oldest first."""
        return await self._ask(calls.list_versions(model))

    async def create_version(self, model: str, name: str) -> Version:
        """Keep the present version of a model under a name."""
        return await self._ask(calls.create_version(model, name))

    async def delete_version(self, model: str, name: str) -> None:
        """Delete a named version."""
        await self._ask(calls.delete_version(model, name))

    async def rollback(self, model: str, version: int | str) -> int:
        """Restore a kept version, by number or name; return the seq of the record that does."""
        return (await self._ask(calls.rollback(model, version))).seq

    # ---- jobs ----

    async def warm_start(
        self,
        model: str,
        data: JudgedData,
        *,
        on_progress: Callable[[Job], object] | None = None,
        wait: bool = True,
        timeout: float = UPLOAD_SECONDS,
        **options: Any,
    ) -> Job:
        """Train a model on judged data, and replace it by the result: see `Solar.warm_start`."""
        job = await self._ask(calls.warm_start(model, data, options), timeout)
        return await self.wait_for_job(job.id, on_progress=on_progress) if wait else job

    async def wait_for_job(
        self,
        job: str,
        *,
        on_progress: Callable[[Job], object] | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Wait until a job is done; JobFailed if it fails. `on_progress` gets each state."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            found = await self._look_at(job)
            if on_progress is not None:
                on_progress(found)
            if base.finished(found):
                return found
            if until is not None and time.monotonic() > until:
                raise base.not_finished(found, timeout)
            await asyncio.sleep(POLL_SECONDS)

    async def _look_at(self, job: str) -> Job:
        """Read a job; an outage of the service is waited for."""
        until = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                return await self.get_job(job)
            except SolarError as error:
                if not base.is_outage(error) or time.monotonic() > until:
                    raise
                await asyncio.sleep(POLL_SECONDS)

    async def get_job(self, job: str) -> Job:
        """Read the state and the progress of a job."""
        return await self._ask(calls.get_job(job))

    async def list_jobs(self) -> AsyncIterator[Job]:
        """List the jobs of all models, the newest first."""
        after: str | None = None
        while True:
            page = await self._ask(calls.list_jobs(after))
            for one in page.jobs:
                yield one
            if (after := page.next) is None:
                return

    async def cancel_job(self, job: str) -> Job:
        """Cancel a job; the model is not changed."""
        return await self._ask(calls.cancel_job(job))

    async def restart_job(self, job: str) -> Job:
        """Restart a failed job with the same data."""
        return await self._ask(calls.restart_job(job))
