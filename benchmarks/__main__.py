"""The benchmark report: `python -m benchmarks [SECTION ...]`; all sections by default.

The summary lists missed goals. They do not change the exit code, because timings are noisy.
"""

import argparse
import time

from benchmarks import (
    batch,
    beacons,
    clicks,
    client,
    cluster,
    console,
    cross_check,
    duels,
    duels_service,
    fairness,
    figure3,
    fleets,
    groups,
    kernels,
    models,
    newton,
    peers,
    protocol,
    report,
    service,
    sparse,
    splines,
    start,
    store,
    training,
)

SECTIONS = {
    "kernels": kernels.run,
    "peers": peers.run,
    "batch": batch.run,
    "newton": newton.run,
    "sparse": sparse.run,
    "figure3": figure3.run,
    "start": start.run,
    "store": store.run,
    "fairness": fairness.run,
    "fleets": fleets.run,
    "service": service.run,
    "cross-check": cross_check.run,
    "protocol": protocol.run,
    "client": client.run,
    "beacons": beacons.run,
    "console": console.run,
    "models": models.run,
    "training": training.run,
    "splines": splines.run,
    "groups": groups.run,
    "cluster": cluster.run,
    "clicks": clicks.run,
    "duels": duels.run,
    "duels_service": duels_service.run,
}


def main() -> None:
    """Run the sections named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"one of {', '.join(SECTIONS)}")
    names = parser.parse_args().section or list(SECTIONS)
    for name in names:
        if name not in SECTIONS:
            parser.error(f"section: expected one of {', '.join(SECTIONS)}, got {name!r}")
    began = time.perf_counter()
    goals = [goal for name in names for goal in SECTIONS[name]()]
    if goals:
        print(report.summary(goals))
    print(f"\ntotal: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
