"""`solar serve`: store, learner and workers as processes, each restarted when it ends.

The supervisor serves and learns nothing, so no request can end it. All children end with it, even
after kill -9. It writes into the metrics directory which process is up; workers report that.
"""

import logging
import signal
import socket
import threading

from app.config import Settings
from app.observability import multiprocess
from app.observability.recent_errors import noting_errors
from app.runtime.children import (
    CHILD_CHECK_SECONDS,
    PYTHON,
    Child,
    check_first_start,
    child_environ,
    end_all,
    learners,
)
from app.runtime.wiring import StoreLocator, is_durable
from app.runtime.worker import listening as open_socket

log = logging.getLogger("solar")


def run_supervisor(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stop.set())
    locator = StoreLocator(settings)
    listening = open_socket(settings.host, settings.port)
    try:
        with multiprocess.new_directory() as metrics, noting_errors(metrics, "supervisor"):
            _supervise(settings, locator, listening, metrics, stop)
    finally:
        listening.close()
        locator.close()


def _supervise(
    settings: Settings,
    locator: StoreLocator,
    listening: socket.socket,
    metrics: str,
    stop: threading.Event,
) -> None:
    number = listening.fileno()
    workers = [
        Child(f"worker {at}", [*PYTHON, "app.runtime.worker", str(number)], (number,))
        for at in range(settings.workers)
    ]
    learning = learners(settings)
    url = locator.url(stop.is_set)
    if not url:  # stopped while the store was loading
        return
    durable = is_durable(settings, url)
    environ = child_environ(settings, url, PROMETHEUS_MULTIPROC_DIR=metrics, SOLAR_LEARNER="no")
    status = multiprocess.StatusFile(metrics)
    log.info("serving on http://%s:%d", settings.host, listening.getsockname()[1])
    try:
        while not stop.is_set():
            locator.keep()
            for child in (*workers, *learning):
                child.keep(environ)
            status.write(
                locator.status() | {child.name: child.status() for child in workers + learning}
            )
            check_first_start(workers)
            stop.wait(CHILD_CHECK_SECONDS)
            durable = durable or stop.is_set() or is_durable(settings, url)
    finally:
        listening.close()  # no new connections; requests under way are answered
        end_all(workers)
        end_all(learning)
