"""`solar key`: create an API key."""

import argparse

from app.api import auth


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar key`."""
    parser.add_argument(
        "name", metavar="NAME", help="name of the client; also the default source of its feedback"
    )
    parser.add_argument(
        "--scopes",
        default="rank+feedback",
        metavar="SCOPES",
        help="scopes joined by +, out of rank, feedback, read, admin (default rank+feedback)",
    )
    parser.set_defaults(run=_key)


def _key(options: argparse.Namespace) -> None:
    secret, entry = auth.new_key(options.name, options.scopes)
    print(f"key for the client (printed only once): {secret}")
    print(f"entry for SOLAR_KEYS of the service:    {entry}")
