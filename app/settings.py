"""Every knob that a process reads from its environment: `SOLAR_…`, with unit and default."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from app.errors import SolarError

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Environment:
    """What a process is told from outside."""

    redis_url: str = ""
    data_dir: Path = Path("data")
    memory: int = GIB
    lease: float = 5.0


def _bytes(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < inf:
        raise ValueError(text)
    return value


#: Variable → field, how it is read, and what it means.
VARIABLES: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "SOLAR_REDIS_URL": ("redis_url", str, "the store; empty: an embedded server is started"),
    "SOLAR_DATA_DIR": ("data_dir", Path, "where the embedded server keeps its data"),
    "SOLAR_MEMORY": ("memory", _bytes, "the embedded server's memory limit, in bytes"),
    "SOLAR_LEASE": ("lease", _seconds, "how long a learner that died keeps its models, in seconds"),
}


def read(environ: Mapping[str, str] = os.environ) -> Environment:
    """The environment of this process; SolarError names a variable that cannot be."""
    values = {}
    for name, (field, parse, meaning) in VARIABLES.items():
        if name in environ:
            try:
                values[field] = parse(environ[name])
            except ValueError:
                raise SolarError(f"{name}: expected {meaning}, got something else") from None
    return Environment(**values)
