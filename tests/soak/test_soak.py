"""A short run, and what it is made of."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from tests.faults.power import COMPILER
from tests.soak import report
from tests.soak.disk import LimitedDisk
from tests.soak.plan import Plan
from tests.soak.run import Run

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler for clocks and disks")

#: `make check-ops` runs one of three minutes with all faults.
SHORT = Plan(
    12.0, seed=1, ranks=20.0, events=15.0, churn=0.5,
    faults=("kill worker 0", "kill learner", "kill store", "clock behind", "full disk"),
)  # fmt: skip


@pytest.mark.slow
def test_a_short_run_breaks_no_invariant(tmp_path: Path) -> None:
    run = Run(SHORT, tmp_path)
    outcome = uvloop.run(run.play())
    assert outcome.problems == []
    assert report.missed(outcome) == []
    assert set(outcome.counts["faults"].values()) == {1}
    assert outcome.counts["traffic"]["events checked in the logs at the end"] > 100
    assert {one.role for one in outcome.samples} >= {
        "supervisor", "worker 0", "worker 1", "learner", "store",
    }  # fmt: skip
    assert {one.what for one in outcome.announced if one.kind == "fault"} == {*SHORT.faults}
    assert "shop: log without gaps" in (run.folder / "verify.txt").read_text()
    assert (run.folder / "report.md").read_text() == report.text(outcome)
    assert (run.folder / "report.svg").read_text().startswith("<svg")


# ---- the disk ----

WRITE = """
import os, sys
kept, other = (os.open(path, os.O_WRONLY | os.O_CREAT) for path in sys.argv[1:])
print(os.write(other, bytes(100)), os.write(kept, bytes(60)), os.write(kept, bytes(60)), flush=True)
print(os.statvfs(os.path.dirname(sys.argv[1])).f_bavail)
try:
    os.write(kept, b"1")
except OSError as error:
    print(error.errno)
"""


def written(disk: LimitedDisk, data: Path, other: Path) -> list[int]:
    command = [sys.executable, "-c", WRITE, str(data / "kept"), str(other / "other")]
    output = subprocess.run(command, env=disk.environ, capture_output=True, check=True).stdout
    return [int(word) for word in output.split()]


def test_a_full_disk_cuts_a_write_short_and_refuses_the_next(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    disk = LimitedDisk(tmp_path, data)
    disk.limit(100)
    assert written(disk, data, tmp_path) == [100, 60, 40, 0, errno.ENOSPC]
    disk.limit(None)
    first, *_, free = written(disk, data, tmp_path)
    assert first == 100
    assert free > 1000
