"""`solar config`: print the effective settings and their sources."""

import argparse
import json
import re
from typing import Any, NamedTuple

from app import config
from app.api.dependencies import check_settings
from app.cli.options import add_setting_arguments, flags_of
from app.config import Settings, setting_text
from app.errors import SolarError

_PASSWORD = re.compile(r"^((?:[^:/@]+://)?[^:/@]*):.*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"([?&]\w*password=)[^&#]*", re.IGNORECASE)


class Row(NamedTuple):
    """One effective setting: field, value without secrets, source."""

    name: str
    value: Any
    source: str


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar config`: those of `solar serve`, and `--json`."""
    add_setting_arguments(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    parser.set_defaults(run=_config)


def _config(options: argparse.Namespace) -> None:
    sources = config.read_sources(env_file=options.env_file, **flags_of(options))
    rows = _rows(sources.given)
    if options.json:
        found = {row.name: {"value": row.value, "from": row.source} for row in rows}
        print(json.dumps(found, indent=2, default=str))
    else:
        print(_table(rows))
    if sources.problems:
        raise SolarError("; ".join(sources.problems))
    check_settings(config.read_settings(env_file=options.env_file, **flags_of(options)))


def _rows(sources: dict[str, dict[str, Any]]) -> list[Row]:
    found = {
        name: Row(name, field.default, "default") for name, field in Settings.model_fields.items()
    }
    for source, values in sources.items():
        for name, value in values.items():
            where = f"{source} SOLAR_{name.upper()}" if source == "environment" else source
            found[name] = Row(name, without_secrets(name, value), where)
    return list(found.values())


def _table(rows: list[Row]) -> str:
    lines = [("SETTING", "VALUE", "FROM")]
    lines += [
        (f"SOLAR_{row.name.upper()}", setting_text(row.name, row.value), row.source) for row in rows
    ]
    first, second = (max(len(line[at]) for line in lines) for at in (0, 1))
    return "\n".join(f"{name:{first}}  {text:{second}}  {source}" for name, text, source in lines)


def without_secrets(name: str, value: Any) -> Any:
    """Replace passwords and key hashes in a value by `***`.

    >>> without_secrets("redis_url", "redis://solar:secret@redis:6379/0")
    'redis://solar:***@redis:6379/0'
    >>> without_secrets("keys", "web:rank+feedback:0123, admin:admin:4567")
    'web:rank+feedback:***,admin:admin:***'
    """
    if name == "redis_url":
        return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", value))
    if name == "keys":
        return ",".join(_without_hash(entry.strip()) for entry in value.split(",") if entry.strip())
    return "***" if name in config.SECRETS else value


def _without_hash(entry: str) -> str:
    parts = entry.split(":")
    return ":".join([*parts[:2], "***"]) if len(parts) == 3 else "***"
