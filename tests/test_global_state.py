"""The check of global state names each change that a test leaves behind."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, contextmanager
from functools import partial

import pytest

from app.observability.logging import configure_logging
from tests.commands import logging_put_back, solar
from tests.global_state import changes, global_state


@contextmanager
def configured_logging() -> Iterator[None]:
    with logging_put_back():
        configure_logging()
        yield


@contextmanager
def frozen_heap() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def environment_variable() -> Iterator[None]:
    os.environ["SOLAR_DEV_LEFT_BEHIND"] = "1"
    yield
    del os.environ["SOLAR_DEV_LEFT_BEHIND"]


@contextmanager
def longer_import_path() -> Iterator[None]:
    sys.path.append("/")
    yield
    sys.path.remove("/")


@contextmanager
def ignored_signal() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGUSR1, before)


@contextmanager
def running_thread() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (configured_logging, "logging"),
        (frozen_heap, "garbage collector"),
        (environment_variable, "environment"),
        (partial(chdir, "/"), "working directory"),
        (longer_import_path, "import path"),
        (ignored_signal, "signal handlers"),
        (running_thread, "threads"),
    ],
)
def test_each_change_of_global_state_is_named(
    change: Callable[[], AbstractContextManager[None]], name: str
) -> None:
    before = global_state()
    with change():
        [found] = changes(before, global_state())
    assert found.startswith(f"{name}: expected ")
    assert changes(before, global_state()) == []


def test_a_command_run_in_this_process_restores_the_global_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = global_state()
    assert solar("key", "web") == 0
    assert capsys.readouterr().out
    assert changes(before, global_state()) == []
