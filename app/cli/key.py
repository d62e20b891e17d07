"""`solar key`: make an API key."""

import argparse

from app.api import auth


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar key`."""
    parser.add_argument("name", metavar="NAME", help="whose key it is; the source of its feedback")
    parser.add_argument(
        "--scopes", default="rank+feedback", help="of rank, feedback, admin, with + between"
    )
    parser.set_defaults(run=_key)


def _key(options: argparse.Namespace) -> None:
    secret, entry = auth.new_key(options.name, options.scopes)
    print(f"key (shown once, for the caller): {secret}")
    print(f"for SOLAR_KEYS of the service:    {entry}")
