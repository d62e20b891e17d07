"""A worker process: `python -m app.runtime.worker FD`, started by `solar serve`.

It imports no kernels: it scores with numpy, and another process learns.
"""

import asyncio
import ctypes
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.errors import SolarError
from app.observability.logging import configure_logging
from app.observability.multiprocess import report_ready
from app.runtime.protocol import LimitedProtocol, raise_file_limit

#: Seconds from SIGTERM until open requests are cancelled.
REQUEST_DRAIN_SECONDS = 10
#: The application of a worker, the same as `uvicorn app.main:app`.
APPLICATION = "app.main:app"
#: The parameter of mallopt(3).
M_MMAP_THRESHOLD = -3


class UvicornServer(uvicorn.Server):
    """A uvicorn server without signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then exclude all present objects from garbage collection."""
        await super().startup(sockets)
        if self.started:
            report_ready()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000)  # of 700: saves a request about 3 % of its CPU time


async def listen(front: FastAPI | str, socket_: socket.socket, stop: asyncio.Event) -> None:
    """Serve on a socket until `stop` is set, then drain."""
    config = uvicorn.Config(
        front, http=LimitedProtocol, lifespan="on", log_config=None, access_log=False,
        server_header=False, timeout_keep_alive=75,
        timeout_graceful_shutdown=REQUEST_DRAIN_SECONDS, ws="none",
    )  # fmt: skip
    server = UvicornServer(config)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    ending = asyncio.create_task(end())
    try:
        await server.serve(sockets=[socket_])  # SystemExit if the application did not start
    finally:
        ending.cancel()


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket that children inherit; SolarError if the address is not free."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        remedy = f"{os.strerror(errno.EADDRINUSE)}; choose another with --port or SOLAR_PORT"
        reason = remedy if taken else getattr(error, "strerror", None) or error
        raise SolarError(f"cannot serve on {host}:{port}: {reason}") from None
    found.set_inheritable(True)
    return found


def until_signalled(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run until SIGTERM or SIGINT, on uvloop if it is installed."""

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, stop.set)
        await work(stop)

    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(run())


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415  # not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def return_large_blocks() -> None:
    """Return freed blocks above 1 MB to the kernel at once (glibc).

    By default glibc keeps up to 32 MB blocks; under large bodies a worker then grows by 50 MB more.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)


def main() -> None:
    """Serve on the socket of the given file descriptor."""
    configure_logging()
    return_large_blocks()
    raise_file_limit()
    inherited = socket.socket(fileno=int(sys.argv[1]))
    until_signalled(lambda stop: listen(APPLICATION, inherited, stop))


if __name__ == "__main__":
    main()
