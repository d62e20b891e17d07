"""Versions that the client, the scheduler and the workers of a cluster must have in common."""

import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version

from app import __version__
from app.errors import ClusterFailed

SCHEDULER_PACKAGES = ("dask", "distributed", "msgpack", "cloudpickle")
WORKER_PACKAGES = ("dask", "distributed", "numba", "numpy", "pyarrow")


def refuse_others(
    who: str, here: dict[str, str], there: dict[str, str], minor: Sequence[str] = ()
) -> None:
    """Raise ClusterFailed if a version differs; those of `minor` may in their last number.

    >>> refuse_others("scheduler", {"dask": "2026.8.0"}, {"dask": "2026.7.0"})
    Traceback (most recent call last):
    app.errors.ClusterFailed: scheduler: expected dask 2026.8.0, as here, got 2026.7.0
    """
    for name, expected in here.items():
        got = str(there.get(name) or "none")
        parts = 2 if name in minor else len(expected.split("."))
        if got.split(".")[:parts] != expected.split(".")[:parts]:
            raise ClusterFailed(f"{who}: expected {name} {expected}, as here, got {got}")


def of_scheduler() -> dict[str, str]:
    """Return the versions here that a scheduler must have."""
    return {"python": platform.python_version(), **_installed(SCHEDULER_PACKAGES)}


@cache
def of_worker() -> dict[str, str]:
    """Return the versions here that a worker must have."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"solar": __version__, "python": python, **_installed(WORKER_PACKAGES)}


def _installed(packages: Sequence[str]) -> dict[str, str]:
    return {name: version(name) for name in packages}
