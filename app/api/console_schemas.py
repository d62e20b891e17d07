"""Response schemas of the paths that the console reads: the history of a model, and the status."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

_Points = list[list[float]]


class HourlyWeights(BaseModel):
    """The weights with the largest effect at a time."""

    time: Annotated[int, Field(description="ms since 1970")]
    seq: Annotated[int, Field(description="seq of the last record in these weights")]
    weights: Annotated[
        dict[str, float], Field(description="at most 200 weights by feature, as float32")
    ]


class ModelHistory(BaseModel):
    """The history of a model. The sums of a point are cumulative, since the measures began.

    A mean over a time is the difference of two sums divided by the difference of `queries`.
    """

    name: str
    version: Annotated[int, Field(description="seq of the last record in the served weights")]
    with_errors: Annotated[
        bool, Field(description="whether the sums of squares count, for standard errors")
    ]
    columns: Annotated[
        list[str], Field(description="names of the sums in a point, after its time and its seq")
    ]
    hour: Annotated[
        _Points,
        Field(description="points by 10 seconds, oldest first: time in ms since 1970, seq, sums"),
    ]
    day: Annotated[_Points, Field(description="points by 10 minutes, oldest first")]
    now: Annotated[list[float], Field(description="the served state, as one more point")]
    weights: Annotated[
        list[HourlyWeights],
        Field(description="weights with the largest effect by the hour, oldest first"),
    ]


class AofStatus(BaseModel):
    """The append-only file of the store; of several servers, of all together."""

    enabled: Annotated[bool, Field(description="whether the store writes one")]
    last_write_ok: Annotated[bool, Field(description="whether the last write to it succeeded")]
    fsync: Annotated[
        str | None, Field(description="setting `appendfsync`; null: hidden by the store")
    ]


class StoreStatus(BaseModel):
    """The store as this worker sees it; null is what it hides, or unreachable."""

    reachable: Annotated[bool, Field(description="whether it has answered")]
    memory_share: Annotated[
        float, Field(description="used share of its memory limit, as last seen; 0 without a limit")
    ]
    memory_used: Annotated[int | None, Field(description="used bytes of the fullest server")]
    memory_limit: Annotated[int | None, Field(description="its limit in bytes; 0: none")]
    version: Annotated[str | None, Field(description="version of the server; the oldest of all")]
    durability: Annotated[
        Literal["", "local", "fsync", "replicated"],
        Field(description="setting SOLAR_DURABILITY; empty: not set, so not checked"),
    ]
    aof: Annotated[AofStatus | None, Field(description="its append-only file")]


class WorkerStatus(BaseModel):
    """A process of this service: a worker, the learner or the embedded store."""

    name: Annotated[str, Field(description="name of the process")]
    up: Annotated[bool, Field(description="false: it is down or starting")]
    restarts: Annotated[int, Field(description="how often it has ended")]


class LearnerStatus(BaseModel):
    """A learner that runs on this store, also one of another service."""

    id: Annotated[str, Field(description="random id of the process")]
    models: Annotated[
        int | None, Field(description="models that it leads now; null: an older release")
    ]
    leads: Annotated[list[str], Field(description="their names, at most 100")]


class LargestBacklog(BaseModel):
    """The model with most records that wait."""

    model: str
    records: Annotated[int, Field(description="records that it does not serve yet")]


class BacklogStatus(BaseModel):
    """Records that wait to be learnt and served, of all models, as last seen."""

    records: Annotated[int, Field(description="number of records")]
    largest: Annotated[
        LargestBacklog | None, Field(description="model with most of them; null: none waits")
    ]


class ErrorLine(BaseModel):
    """A line of the log at level warning or above."""

    time: Annotated[float, Field(description="seconds since 1970")]
    level: Annotated[str, Field(description="warning, error or critical")]
    process: Annotated[str, Field(description="name of the process that logged it")]
    logger: Annotated[str, Field(description="source of the line")]
    message: Annotated[str, Field(description="text, at most 400 characters")]


class ServiceStatus(BaseModel):
    """The status of a service, as the worker that answers sees it."""

    version: Annotated[str, Field(description="release of the service")]
    store: Annotated[StoreStatus, Field(description="the store")]
    workers: Annotated[list[WorkerStatus], Field(description="processes of this service")]
    learners: Annotated[
        list[LearnerStatus] | None,
        Field(description="learners that run on the store; null: unknown"),
    ]
    models: Annotated[int, Field(description="number of models")]
    damaged: Annotated[
        list[str], Field(description="models whose stored state is damaged, at most 100")
    ]
    backlog: Annotated[BacklogStatus, Field(description="records that wait")]
    lag_seconds: Annotated[
        float,
        Field(description="longest time for which records of a model wait while none is learnt"),
    ]
    down: Annotated[list[str], Field(description="processes that are down or starting")]
    errors: Annotated[list[ErrorLine], Field(description="last lines, at most 20, newest first")]
