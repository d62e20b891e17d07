"""`solar serve`: store, learner and workers as processes, each started again if it ends.

The supervisor itself serves nothing and learns nothing, so nothing that happens to a request can
end it. Whatever ends it, kill -9 included, ends them all: the children are tied to it.
"""

import logging
import signal
import socket
import threading

from app.config import Settings
from app.observability import multiprocess
from app.runtime.children import LEARNER, PYTHON, WATCH, Child, child_environ, end_all
from app.runtime.wiring import StoreLocator, is_safe
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
        with multiprocess.new_directory() as counted:
            _supervise(settings, locator, listening, counted, stop)
    finally:
        listening.close()
        locator.close()


def _supervise(
    settings: Settings,
    locator: StoreLocator,
    listening: socket.socket,
    counted: str,
    stop: threading.Event,
) -> None:
    number = listening.fileno()
    workers = [
        Child(f"worker {at}", [*PYTHON, "app.runtime.worker", str(number)], (number,))
        for at in range(settings.workers)
    ]
    learners = [Child("learner", list(LEARNER))] if settings.learner else []
    url = locator.url()
    safe = is_safe(settings, url)
    log.info("serving on http://%s:%d", settings.host, listening.getsockname()[1])
    try:
        while not stop.is_set():
            for child in (*workers, *learners):
                child.keep(
                    child_environ(
                        settings, url, PROMETHEUS_MULTIPROC_DIR=counted, SOLAR_LEARNER="no"
                    )
                )
            stop.wait(WATCH)
            safe = safe or is_safe(settings, url)
            if not stop.is_set() and (now := locator.url()) != url:
                url = now
                end_all(workers + learners)
    finally:
        listening.close()  # nobody new; who is in is answered
        end_all(workers)
        end_all(learners)
