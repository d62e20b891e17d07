"""Arguments and argument types that several commands share."""

import argparse
import sys
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from typing import Any

from app import config
from app.config import Settings
from app.errors import SolarError


def natural(text: str) -> int:
    """Parse a whole number of at least 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, got {text!r}")
    return int(text)


def number(text: str) -> float:
    """Parse a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def seconds(text: str) -> float:
    """Parse a time above 0."""
    found = number(text)
    if not 0 < found < inf:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return found


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not natural(text):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def require_client() -> None:
    """Raise SolarError if solar-client is not installed; commands with --url need it.

    An unrelated package on PyPI has the same name, so its import alone is not enough.
    """
    try:
        from solar_client import Solar  # noqa: F401, PLC0415
    except ImportError:
        raise SolarError(
            "--url: expected solar-client, which is not installed; install it from the source of "
            "SOLAR: pip install ./clients/python"
        ) from None


def plot_path(plot: Path | None) -> Path | None:
    """Check `--plot` before the long run; None if there is nothing to draw or no matplotlib."""
    from app.evaluation import plots  # noqa: PLC0415  # only experiments load numpy

    if plot is not None and plot.suffix != ".svg":
        raise SolarError(f"--plot: expected a file name that ends in .svg, got {plot.name}")
    if plot is None or plots.can_draw():
        return plot
    print(
        "--plot: matplotlib is not installed, no plot: pip install 'solar-ranking[plot]'",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    return None


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that locate the store."""
    parser.add_argument(
        "--redis-url", metavar="URL",
        help="URL of the Redis or Valkey store; empty: the embedded store (SOLAR_REDIS_URL)",
    )  # fmt: skip
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR",
        help=f"directory of the embedded store (SOLAR_DATA_DIR, default {config.DATA})",
    )  # fmt: skip
    _add_env_file(parser)


def store_settings(options: argparse.Namespace) -> Settings:
    """Read the effective settings for a command that has the store arguments."""
    flags = flags_of(options, ("redis_url", "data_dir"))
    return config.read_settings(env_file=options.env_file, **flags)


def add_setting_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting."""
    for variable, name in config.VARIABLES.items():
        field = Settings.model_fields[name]
        flag, default = f"--{name.replace('_', '-')}", config.setting_text(name, field.default)
        help_ = f"{field.description} ({variable}, default {default or 'empty'})"
        if field.default is True:
            parser.add_argument(
                f"--no-{name}", dest=name, action="store_false", default=None,
                help=f"switch off: {help_}",
            )  # fmt: skip
        elif field.default is False:
            parser.add_argument(flag, action="store_true", default=None, help=f"switch on: {help_}")
        else:
            metavar = "SIZE" if config.is_size(name) else name.upper()
            parser.add_argument(flag, type=_setting(name), metavar=metavar, help=help_)
    _add_env_file(parser)


def flags_of(
    options: argparse.Namespace, names: Iterable[str] = tuple(Settings.model_fields)
) -> dict[str, Any]:
    """Collect the settings that were given as flags."""
    given = {name: getattr(options, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _add_env_file(parser: argparse.ArgumentParser) -> None:
    help_ = f"file with lines SOLAR_…=VALUE; the environment wins over it ({config.ENV_FILE})"
    parser.add_argument("--env-file", metavar="FILE", help=help_)


def _setting(name: str) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        try:
            return config.parse_setting(name, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value
