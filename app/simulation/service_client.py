"""solar-client for commands with --url: its errors become errors of the command.

Only commands with `--url` import this module; SOLAR itself does not need solar-client.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import random
from threading import Event
from typing import TypeVar

import solar_client
from solar_client import RejectedEvent, Solar, TooManyRequests, Unavailable, Unreachable
from solar_client.backoff import delay
from solar_client.sender import log_rejected

from app.errors import SolarError

T = TypeVar("T")
REQUEST_SECONDS = 60.0  # timeout of one request with all its retries


@contextmanager
def client_errors() -> Iterator[None]:
    """Translate the errors of the client."""
    try:
        yield
    except solar_client.InvalidArgument as error:
        raise SolarError(_argument(str(error))) from None
    except Unreachable as error:
        raise SolarError(f"the service is unreachable: {error}; check --url") from error
    except solar_client.SolarError as error:
        raise SolarError(str(error)) from error


def _argument(message: str) -> str:
    """Name the option or the variable that an argument of the client comes from."""
    if message.startswith("url:"):
        return f"--{message}"
    return message.replace("key:", "SOLAR_KEY:", 1)


@contextmanager
def service_client(
    url: str, on_rejected: Callable[[RejectedEvent], None] = log_rejected
) -> Iterator[Solar]:
    """Open a client of a service; the API key is `SOLAR_KEY`."""
    with client_errors(), Solar(url, on_rejected=on_rejected) as client:
        yield client


def retrying(call: Callable[[], T], waited: list[str], stopped: Event | None = None) -> T:
    """Repeat a call while the service asks for it or is unreachable; note each reason."""
    until, failures = time.monotonic() + REQUEST_SECONDS, 0
    while True:
        try:
            return call()
        except (Unreachable, Unavailable, TooManyRequests) as error:
            if time.monotonic() > until or (stopped is not None and stopped.is_set()):
                raise
            status, after = (
                ("no connection", 0.0)
                if isinstance(error, Unreachable)
                else (str(error.status), error.retry_after)
            )
            waited.append(status)
        failures += 1
        time.sleep(delay(failures, after, random()))  # noqa: S311  # jitter
