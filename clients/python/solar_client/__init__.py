"""A client of SOLAR: rank the documents of a query, and report what users click.

>>> from solar_client import Solar
>>> solar = Solar("http://localhost:8000")
>>> solar
Solar('http://localhost:8000')
>>> solar.close().pending
0
"""

from solar_client.async_client import AsyncSolar
from solar_client.client import Solar
from solar_client.delivery import RejectedEvent
from solar_client.duels import Duel, DuelEnd, DuelPoint, DuelResult, Follower, Tournament
from solar_client.errors import (
    AfterFork,
    ClosedClient,
    Conflict,
    InvalidArgument,
    JobFailed,
    NotFound,
    Problem,
    Refused,
    ServiceError,
    SolarError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from solar_client.models import (
    DuelSummary,
    Job,
    Model,
    ModelSummary,
    Quality,
    RankedDocument,
    Ranking,
    Version,
)
from solar_client.queue import Counters, FlushResult

__version__ = "0.1.0"

__all__ = [
    "AfterFork", "AsyncSolar", "ClosedClient", "Conflict", "Counters", "Duel", "DuelEnd",
    "DuelPoint", "DuelResult", "DuelSummary", "FlushResult", "Follower", "InvalidArgument", "Job",
    "JobFailed", "Model", "ModelSummary", "NotFound", "Problem", "Quality", "RankedDocument",
    "Ranking", "Refused", "RejectedEvent", "ServiceError", "Solar", "SolarError", "TimedOut",
    "TooManyRequests", "Tournament", "Unauthorized", "Unavailable", "UnexpectedAnswer",
    "Unreachable", "Version",
]  # fmt: skip
