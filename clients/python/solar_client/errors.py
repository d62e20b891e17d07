"""The errors of the client. None of them contains the API key.

SolarError
├── InvalidArgument     an argument is wrong; nothing was sent (also a ValueError)
├── ClosedClient        the client was closed
├── AfterFork           an AsyncSolar was used in a forked process
├── Unreachable         no answer: no connection, or it was lost
│   └── TimedOut        no answer in time
├── UnexpectedAnswer    an answer that is not one of SOLAR
├── JobFailed           a training job failed or was cancelled
└── ServiceError        the service answered with an error: `status`, `title`, `detail`
    ├── Refused         4xx
    │   ├── Unauthorized        401, 403: no valid key, or a key without the scope
    │   ├── NotFound            404, 410: unknown or expired
    │   ├── Conflict            409
    │   └── TooManyRequests     429
    └── Unavailable     5xx
"""

from dataclasses import dataclass


class SolarError(Exception):
    """The base of all errors of this package."""


class InvalidArgument(SolarError, ValueError):
    """An argument is wrong; nothing was sent."""


class ClosedClient(SolarError):
    """The client was closed."""


class AfterFork(SolarError):
    """An AsyncSolar was used in a forked process; create one in each process."""


class Unreachable(SolarError):
    """No answer: no connection, or it was lost."""


class TimedOut(Unreachable):
    """No answer in time."""


class UnexpectedAnswer(SolarError):
    """An answer that is not one of SOLAR, for example the page of a proxy."""


class JobFailed(SolarError):
    """A training job failed or was cancelled."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The details of an error answer (RFC 9457)."""

    status: int
    title: str = ""
    detail: str = ""
    instance: str = ""

    def __str__(self) -> str:
        text = self.detail or self.title
        return f"the service answered {self.status}{f': {text}' if text else ''}"


class ServiceError(SolarError):
    """The service answered with an error."""

    def __init__(self, problem: Problem, retry_after: float = 0.0) -> None:
        super().__init__(problem, retry_after)
        self.problem = problem
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.problem)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

    @property
    def title(self) -> str:
        """The standard phrase of the status."""
        return self.problem.title

    @property
    def detail(self) -> str:
        """The field, what was expected, and the remedy."""
        return self.problem.detail


class Refused(ServiceError):
    """4xx: the request is wrong; a repetition is refused too."""


class Unauthorized(Refused):
    """401 or 403: no valid API key, or a key without the scope."""


class NotFound(Refused):
    """404 or 410: unknown, or expired."""


class Conflict(Refused):
    """409: conflict with the current state."""


class TooManyRequests(Refused):
    """429: the key is over its share; `retry_after` has the seconds to wait."""


class Unavailable(ServiceError):
    """5xx: the service or its store is unavailable; `retry_after` has the seconds to wait."""


_BY_STATUS = {
    401: Unauthorized, 403: Unauthorized, 404: NotFound, 409: Conflict, 410: NotFound,
    429: TooManyRequests,
}  # fmt: skip


def service_error(problem: Problem, retry_after: float = 0.0) -> ServiceError:
    """Return the error of an answer's status.

    >>> service_error(Problem(404, "Not Found", "model: unknown"))
    NotFound(Problem(status=404, title='Not Found', detail='model: unknown', instance=''), 0.0)
    """
    kind = Unavailable if problem.status >= 500 else _BY_STATUS.get(problem.status, Refused)
    return kind(problem, retry_after)
