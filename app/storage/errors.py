"""The wall to Redis: where its errors become ours."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as foreign

from app.errors import Full, StoreError, Unavailable

_TRY_AGAIN = (
    foreign.ConnectionError,  # BusyLoadingError is one
    foreign.TimeoutError,
    foreign.ReadOnlyError,
    foreign.TryAgainError,  # a slot of a Cluster is on its way to another node,
    foreign.AskError,  # or keeps moving (MovedError is one),
    foreign.ClusterError,  # or has no node at all (ClusterDownError is one)
    foreign.NoScriptError,  # the server was restarted between loading a script and calling it
    ConnectionError,
    TimeoutError,
)
_NOT_READY = (
    "LOADING", "MASTERDOWN", "MISCONF", "CLUSTERDOWN", "NOREPLICAS", "BUSY", "UNBLOCKED",
)  # fmt: skip


@contextmanager
def translated() -> Iterator[None]:
    """Errors of Redis leave as errors of ours, once, here."""
    try:
        yield
    except foreign.OutOfMemoryError as error:
        raise Full("the store is at its memory limit; nothing was written") from error
    except _TRY_AGAIN as error:
        raise Unavailable(f"the store cannot be reached: {_reason(error)}") from error
    except foreign.ResponseError as error:
        if str(error).startswith("OOM"):
            raise Full("the store is at its memory limit; nothing was written") from error
        if str(error).startswith(_NOT_READY):
            raise Unavailable(f"the store is not ready: {error}") from error
        raise StoreError(f"the store refused a command: {refusal(error)}") from error
    except foreign.RedisError as error:
        raise StoreError(f"the store failed: {error}") from error


def refusal(error: foreign.ResponseError) -> str:
    """What the server said, without the arguments of a command that it does not know.

    To a Redis older than 6.0, and where it is renamed, HELLO is one, and the password is in it.
    """
    return str(error).split(", with args beginning with", maxsplit=1)[0]


def _reason(error: Exception) -> str:
    """What lies beneath a lost connection, where that is for people to mend; never the URL."""
    match error.__cause__ or error.__context__:
        case ssl.SSLCertVerificationError() as beneath:
            return f"its certificate is not trusted: {beneath.verify_message}"
        case ssl.SSLError() as beneath:
            return f"TLS failed: {beneath.reason}"
        case FileNotFoundError() as beneath:  # a socket, or a file that the URL names
            return str(beneath.strerror)
    return type(error).__name__
