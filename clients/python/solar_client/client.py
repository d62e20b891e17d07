"""The client for threads."""

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from solar_client import base, calls, process
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
from solar_client.sender import OnRejected, Sender, log_rejected
from solar_client.session import Target

T = TypeVar("T")


class Solar(SolarBase):
    """A client of a SOLAR service; safe for threads and forks.

    Parameters
    ----------
    url
        address of the service, such as `http://localhost:8000`
    key
        API key; without one, the environment variable `SOLAR_KEY`
    model
        name of the model that calls without a `model` mean
    source
        sender of all events, at most 64 characters
    on_rejected
        called in a thread for each event that the service refuses; by default a warning is logged
    queue_size
        number of events that may wait; a further one drops the oldest
    certificates
        for https: the trusted certificates; by default those of the system
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
        self._sender = Sender(self._target, Limits(queued=queue_size), on_rejected)
        process.register(self)

    def __repr__(self) -> str:
        return f"Solar({str(self._target.base).rstrip('/')!r})"

    def __enter__(self) -> "Solar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def after_fork(self) -> None:
        """Begin the counts of a forked process; its sender forgets the events by itself."""
        self._forget_counts()

    def at_exit(self, seconds: float) -> None:
        """Do nothing: the sender sends what is queued."""

    def close(self, timeout: float = FLUSH_SECONDS) -> FlushResult:
        """Flush and close all connections."""
        return self._sender.close(timeout)

    def flush(self, timeout: float = FLUSH_SECONDS) -> FlushResult:
        """Send all queued events now; wait for the answers, but no longer than `timeout` seconds.

        The result counts what became of all events since the flush before.
        """
        return self._sender.flush(timeout)

    @property
    def counters(self) -> Counters:
        """Counts of events and of degraded rankings."""
        return self._sender.counters(self._ignored, self._degraded)

    def _put(self, event: Event) -> None:
        self._sender.put(event)

    def _ask(self, call: Call[T], timeout: float = CALL_SECONDS) -> T:
        return call.read(self._sender.session.exchange(call, timeout))

    # ---- rank ----

    def rank(
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
        """Rank documents, best first.

        `documents` have `id` and `features`: mappings, dataclasses or other objects. Or they are
        ids, and `features` is a matrix with a row for each: a numpy array is sent as float32.

        If there is no answer within `timeout` seconds, no connection, or an answer 5xx, the result
        is the submitted order with `degraded` set. `fallback=False` raises instead. 4xx raises.
        """
        options = rank_options(request_id, explore, pinned, explain, log, min_seq, version, viewer)
        request = self._rank_request(documents, features, model, query_id, top_k, options)
        try:
            return self._ask(request.call, timeout)
        except Refused:
            raise
        except SolarError as error:
            if not fallback:
                raise
            return self._fall_back(request, error)

    # ---- models ----

    def create_model(self, name: str, features: Sequence[str] | int, **settings: Any) -> Model:
        """Create a model; repeating it is safe, other settings raise Conflict."""
        return self._ask(calls.create_model(name, features, settings))

    def get_model(self, name: str) -> Model:
        """Read a model: its settings, its weights and its measures."""
        return self._ask(calls.get_model(name))

    def list_models(self) -> Iterator[ModelSummary]:
        """List all models in the order of their names."""
        after: str | None = None
        while True:
            page = self._ask(calls.list_models(after))
            yield from page.models
            if (after := page.next) is None:
                return

    def update_model(self, name: str, **settings: Any) -> int:
        """Change hyper-parameters; return the seq of the record that does."""
        return self._ask(calls.update_model(name, settings)).seq

    def delete_model(self, name: str, *, followers: bool = False) -> None:
        """Delete a model with its log, its versions and its measures; or a follower.

        A model with followers raises Conflict, unless `followers` says to delete them, too.
        """
        self._ask(calls.delete_model(name, followers=followers))

    # ---- followers and duels ----

    def create_follower(
        self,
        name: str,
        follows: str,
        *,
        start_at: int | str = "now",
        cold: bool = False,
        **settings: Any,
    ) -> Model:
        """Create a follower: another fold of a model's log, with settings of its own.

        It begins `now`, at the `oldest` version that the log continues, or at such a version by its
        number, with the weights of the leader there; `cold`: with its own initial ones. Repeating
        it is safe.
        """
        return self._ask(calls.create_follower(name, follows, start_at, cold, settings))

    def create_followers(
        self,
        leader: str,
        grid: Mapping[str, Sequence[Any]],
        *,
        start_at: int | str = "now",
        cold: bool = False,
    ) -> list[Follower]:
        """Create a follower for each combination of values, such as `{"gamma": [1e3, 1e4]}`.

        At most 16: all, or none. Repeating it is safe.
        """
        return self._ask(calls.create_followers(leader, grid, start_at, cold))

    def list_followers(self, leader: str) -> list[Follower]:
        """List the followers of a model in the order of their names."""
        return self._ask(calls.list_followers(leader))

    def begin_duel(
        self,
        model: str,
        challenger: str | int,
        *,
        share: float | None = None,
        alpha: float | None = None,
        max_lists: int | None = None,
        promote: bool | None = None,
    ) -> Duel:
        """Begin a duel of a model with a follower, "submitted", or a kept version by its number.

        With the challenger "followers" it is a tournament of all followers, for which `max_lists`
        is required; `promote` puts a winner in place.
        """
        options = duel_options(share, alpha, max_lists, promote)
        return self._ask(calls.begin_duel(model, challenger, options))

    def get_duel(self, model: str) -> Duel:
        """Read the duel of a model that is on, or the last one; NotFound if there was none."""
        return self._ask(calls.get_duel(model))

    def end_duel(self, model: str) -> Duel:
        """End the duel of a model; later clicks on its lists no longer count."""
        return self._ask(calls.end_duel(model))

    def promote(
        self,
        model: str,
        *,
        force: bool = False,
        challenger: str | int | None = None,
        duel: int | None = None,
    ) -> int:
        """Put the winner of a duel in place of the model; return the seq of the record that does.

        Without a verdict for the challenger it raises Conflict, unless you `force` it. It also does
        if the side to be promoted is not this `challenger` (a version by its number), or the duel
        of the model not the one with this `id`: a tournament may go on after you have read it.
        """
        given = calls.promote(model, force=force, challenger=challenger, duel=duel)
        return self._ask(given).seq

    # ---- versions ----

    def list_versions(self, model: str) -> list[Version]:
        """List the kept versions of a model, oldest first."""
        return self._ask(calls.list_versions(model))

    def create_version(self, model: str, name: str) -> Version:
        """Keep the present version of a model under a name."""
        return self._ask(calls.create_version(model, name))

    def delete_version(self, model: str, name: str) -> None:
        """Delete a named version."""
        self._ask(calls.delete_version(model, name))

    def rollback(self, model: str, version: int | str) -> int:
        """Restore a kept version, by number or name; return the seq of the record that does."""
        return self._ask(calls.rollback(model, version)).seq

    # ---- jobs ----

    def warm_start(
        self,
        model: str,
        data: JudgedData,
        *,
        on_progress: Callable[[Job], object] | None = None,
        wait: bool = True,
        timeout: float = UPLOAD_SECONDS,
        **options: Any,
    ) -> Job:
        """Train a model on judged data, and replace it by the result.

        `data` is LETOR text (bytes), a file with it or several (also .gz and .xz), or a list of
        judged queries. `options` are those of the service: `trainer`, `C` and others. `timeout`
        limits the upload. With `wait` the job is waited for: see `wait_for_job`.
        """
        job = self._ask(calls.warm_start(model, data, options), timeout)
        return self.wait_for_job(job.id, on_progress=on_progress) if wait else job

    def wait_for_job(
        self,
        job: str,
        *,
        on_progress: Callable[[Job], object] | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Wait until a job is done; JobFailed if it fails. `on_progress` gets each state."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._look_at(job)
            if on_progress is not None:
                on_progress(found)
            if base.finished(found):
                return found
            if until is not None and time.monotonic() > until:
                raise base.not_finished(found, timeout)
            time.sleep(POLL_SECONDS)

    def _look_at(self, job: str) -> Job:
        """Read a job; an outage of the service is waited for."""
        until = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                return self.get_job(job)
            except SolarError as error:
                if not base.is_outage(error) or time.monotonic() > until:
                    raise
                time.sleep(POLL_SECONDS)

    def get_job(self, job: str) -> Job:
        """Read the state and the progress of a job."""
        return self._ask(calls.get_job(job))

    def list_jobs(self) -> Iterator[Job]:
        """List the jobs of all models, the newest first."""
        after: str | None = None
        while True:
            page = self._ask(calls.list_jobs(after))
            yield from page.jobs
            if (after := page.next) is None:
                return

    def cancel_job(self, job: str) -> Job:
        """Cancel a job; the model is not changed."""
        return self._ask(calls.cancel_job(job))

    def restart_job(self, job: str) -> Job:
        """Restart a failed job with the same data."""
        return self._ask(calls.restart_job(job))
