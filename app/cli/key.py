"""`solar key`: create an API key, or a key that signs tokens."""

import argparse
from datetime import UTC, datetime

from app.api import auth
from app.api.tokens import new_token_key
from app.errors import SolarError


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar key`."""
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="name of the client; also the default source of its feedback",
    )
    parser.add_argument(
        "--scopes",
        default="rank+feedback",
        metavar="SCOPES",
        help="scopes joined by +, out of rank, feedback, read, admin (default rank+feedback)",
    )
    parser.add_argument(
        "--token",
        action="store_true",
        help="make a key that signs the tokens of impressions; its name has 1 to 8 letters or "
        "digits (default k and the date, such as k261119)",
    )
    parser.set_defaults(run=_key)


def _key(options: argparse.Namespace) -> None:
    if options.token:
        name = options.name or f"k{datetime.now(UTC):%y%m%d}"
        print(f"entry for SOLAR_TOKEN_KEYS of the service: {new_token_key(name)}")
        return
    if options.name is None:
        raise SolarError("key: expected NAME, the name of the client, such as `solar key web`")
    secret, entry = auth.new_key(options.name, options.scopes)
    print(f"key for the client (printed only once): {secret}")
    print(f"entry for SOLAR_KEYS of the service:    {entry}")
