"""Every setting, with unit and default: a `SOLAR_…` variable, and a flag of `solar serve`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any

from app.errors import SolarError

GIB = 1 << 30
DAY = 86_400.0
DATA = Path("data")


def _text(text: str) -> str:
    return text


def _whole(least: int, most: int = 1 << 62) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return read


def _number(least: float, most: float = inf) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not least <= value <= most or value == inf:
            raise ValueError(text)
        return value

    return read


def _yes(text: str) -> bool:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[
        text.lower()
    ]


def _level(text: str) -> str:
    if text not in ("", "local", "fsync", "replicated"):
        raise ValueError(text)
    return text


def _env(default: Any, read: Callable[[str], Any], meaning: str) -> Any:
    return field(default=default, metadata={"read": read, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process is told from outside."""

    host: str = _env("127.0.0.1", _text, "the address to serve on")
    port: int = _env(8000, _whole(0, 65_535), "the port to serve on; 0: any that is free")
    workers: int = _env(1, _whole(1, 256), "processes that serve")
    learner: bool = _env(True, _yes, "whether `solar serve` learns too, in a process of its own")
    keys: str = _env("", _text, "API keys, as `solar key` prints them, with commas between")
    insecure: bool = _env(False, _yes, "whether to serve beyond loopback without keys")
    cors: str = _env("", _text, "origins that browsers may call from, with commas between")
    redis_url: str = _env("", _text, "the store; empty: an embedded server is started")
    durability: str = _env(
        "", _level, "what is acknowledged survives: `local`, `fsync`, `replicated`; see operations"
    )
    data_dir: Path = _env(DATA, Path, "where the embedded server keeps its data")  # noqa: RUF009
    memory: int = _env(GIB, _whole(1), "the embedded server's memory limit, in bytes")
    lease: float = _env(5.0, _number(0.001), "seconds that a dead learner keeps its models")
    default_features: str = _env(
        "", _text, "the features of the model `default`, made at its first use: names or a count"
    )
    impression_seconds: float = _env(
        1800.0, _number(5.0, 2 * DAY), "how long an answer can get feedback, in seconds"
    )
    remember_seconds: float = _env(
        0.05, _number(0.001, 60.0), "how long `/rank` waits for its answer to be remembered, in s"
    )
    wait_seconds: float = _env(1.0, _number(0.0, 60.0), "how long `min_seq` may wait, in seconds")
    body_bytes: int = _env(10_000_000, _whole(1), "the largest body, in bytes")
    body_seconds: float = _env(10.0, _number(0.01), "how long a body may take to come, in seconds")
    documents: int = _env(1000, _whole(1, 100_000), "documents in one request, at most")
    pairs: int = _env(100_000, _whole(1), "pairs that one event may give, at most")
    events: int = _env(1000, _whole(1, 2000), "events in one post, at most")
    id_length: int = _env(128, _whole(1, 1024), "characters of an id, at most")
    feature_bound: float = _env(
        1e4, _number(0.0, 1e38), "the largest feature, up or down, of a model without normalization"
    )
    backlog: int = _env(100_000, _whole(1), "records that may wait to be learnt, at most")
    source_share: float = _env(1.0, _number(0.0, 1.0), "a source's share of a minute's feedback")
    jobs: int = _env(1, _whole(1, 64), "trainings at once in one worker")
    training_memory: int = _env(4 * GIB, _whole(1), "what one training may use, in bytes")
    upload_bytes: int = _env(GIB, _whole(1), "the largest judged text, unpacked, in bytes")
    upload_seconds: float = _env(
        600.0, _number(0.01), "how long an upload may take to come, in seconds"
    )
    upload_dir: str = _env("", _text, "where uploads are kept; empty: in the data directory")
    check_seconds: float = _env(
        10.0, _number(0.0, 600.0), "how long an upload's answer waits until it was read, in seconds"
    )
    access_log: bool = _env(False, _yes, "whether every request is logged, not only refused ones")
    otel: bool = _env(False, _yes, "whether requests are traced by OpenTelemetry; see operations")

    @property
    def uploads(self) -> Path:
        """Where uploads are kept."""
        return Path(self.upload_dir) if self.upload_dir else self.data_dir / "uploads"


#: Variable → field, how it is read, and what it means.
VARIABLES: dict[str, tuple[str, Callable[[str], Any], str]] = {
    f"SOLAR_{one.name.upper()}": (one.name, one.metadata["read"], one.metadata["meaning"])
    for one in fields(Settings)
}


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """The environment of this process; SolarError names a variable that cannot be."""
    values = {}
    for name, (field_name, parse, meaning) in VARIABLES.items():
        if name in environ:
            try:
                values[field_name] = parse(environ[name])
            except (ValueError, KeyError):
                raise SolarError(f"{name}: expected {meaning}, got something else") from None
    return Settings(**values)
