"""What a test leaves behind is noticed and named."""

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
def logging_as_in_a_command() -> Iterator[None]:
    with logging_put_back():
        configure_logging()
        yield


@contextmanager
def a_frozen_heap() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def a_variable() -> Iterator[None]:
    os.environ["SOLAR_DEV_LEFT_BEHIND"] = "1"
    yield
    del os.environ["SOLAR_DEV_LEFT_BEHIND"]


@contextmanager
def another_import_path() -> Iterator[None]:
    sys.path.append("/")
    yield
    sys.path.remove("/")


@contextmanager
def a_signal_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGUSR1, before)


@contextmanager
def a_running_thread() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (logging_as_in_a_command, "logging"),
        (a_frozen_heap, "garbage collector"),
        (a_variable, "environment"),
        (partial(chdir, "/"), "working directory"),
        (another_import_path, "import path"),
        (a_signal_ignored, "signal handlers"),
        (a_running_thread, "threads"),
    ],
)
def test_what_is_left_behind_is_named(
    change: Callable[[], AbstractContextManager[None]], name: str
) -> None:
    before = global_state()
    with change():
        [found] = changes(before, global_state())
    assert found.startswith(f"{name}: expected ")
    assert changes(before, global_state()) == []


def test_a_command_in_this_process_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = global_state()
    assert solar("key", "web") == 0
    assert capsys.readouterr().out
    assert changes(before, global_state()) == []
