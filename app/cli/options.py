"""Arguments and types of arguments that several commands share."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from app import config
from app.config import Settings


def natural(text: str) -> int:
    """Parse a whole number from 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number from 0, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    if not natural(text):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where the store is."""
    parser.add_argument("--redis-url", metavar="URL", help="the store (SOLAR_REDIS_URL)")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="of the embedded store (SOLAR_DATA_DIR)"
    )
    _add_env_file(parser)


def store_settings(options: argparse.Namespace) -> Settings:
    """The settings in force for a command that has the arguments of the store."""
    flags = flags_of(options, ("redis_url", "data_dir"))
    return config.read_settings(env_file=options.env_file, **flags)


def add_setting_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting."""
    for variable, name in config.VARIABLES.items():
        field = Settings.model_fields[name]
        flag, help_ = f"--{name.replace('_', '-')}", f"{field.description} ({variable})"
        if field.default is True:
            parser.add_argument(
                f"--no-{name}", dest=name, action="store_false", default=None, help=help_
            )
        elif field.default is False:
            parser.add_argument(flag, action="store_true", default=None, help=help_)
        else:
            metavar = "SIZE" if config.is_size(name) else name.upper()
            parser.add_argument(flag, type=_setting(name), metavar=metavar, help=help_)
    _add_env_file(parser)


def flags_of(
    options: argparse.Namespace, names: Iterable[str] = tuple(Settings.model_fields)
) -> dict[str, Any]:
    """The settings that were given as flags."""
    given = {name: getattr(options, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _add_env_file(parser: argparse.ArgumentParser) -> None:
    help_ = f"a file with lines SOLAR_…=VALUE; the environment wins ({config.ENV_FILE})"
    parser.add_argument("--env-file", metavar="FILE", help=help_)


def _setting(name: str) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        try:
            return config.parse_setting(name, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value
