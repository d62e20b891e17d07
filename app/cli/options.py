"""Arguments and types of arguments that several commands share."""

import argparse
from pathlib import Path


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
