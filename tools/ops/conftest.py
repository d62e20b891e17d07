"""Chromium, and one service for all tests of a file."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.api.services import Running, serving
from tests.console.browser import SEEN, chromium

PLAYWRIGHT_DEFAULT = 5000  #: Milliseconds that an expectation waits.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium."""
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def patient() -> Iterator[None]:
    """Let expectations wait as long as other tests do."""
    expect.set_options(timeout=SEEN)
    yield
    expect.set_options(timeout=PLAYWRIGHT_DEFAULT)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A service."""
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def http(running: Running) -> Iterator[httpx.Client]:
    """A client of the service."""
    with running.client() as client:
        yield client
