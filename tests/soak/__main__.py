"""`make soak HOURS=1`: a run on `DIR`, whose data are kept; exit code 1 if a goal is missed."""

import argparse
import asyncio
import sys
from pathlib import Path

import uvloop

from tests.soak import report
from tests.soak.plan import Plan
from tests.soak.run import Run


def main() -> int:
    """Run; print the report, and where it is."""
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--dir", type=Path, default=Path("build/soak"), help="data and reports")
    parser.add_argument("--seed", type=int, default=0, help="of all choices")
    parser.add_argument("--shared", action="store_true", help="judge no drift of p99")
    given = parser.parse_args()
    run = Run(Plan(3600 * given.hours, given.seed, shared=given.shared), given.dir)
    print(
        f"{3600 * given.hours:g} s on {given.dir}; the log is {run.folder}/service.log", flush=True
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(run.play())
    print(report.text(outcome))
    print(f"{run.folder}/report.md, report.svg")
    return 1 if report.missed(outcome) else 0


if __name__ == "__main__":
    sys.exit(main())
