"""`solar serve`."""

import argparse
from collections.abc import Callable
from dataclasses import replace

from app import genesis, settings, supervisor
from app.api import access
from app.api.service import default_features
from app.events import Settings
from app.settings import Environment


def serve(parser: argparse.ArgumentParser) -> None:
    """The options of `solar serve`: every knob."""
    parser.set_defaults(run=_serve)
    for variable, (knob, read, meaning) in settings.VARIABLES.items():
        flag, help_ = f"--{knob.replace('_', '-')}", f"{meaning} ({variable})"
        default = getattr(Environment(), knob)
        if default is True:
            parser.add_argument(
                f"--no-{knob}", dest=knob, action="store_false", default=None, help=help_
            )
        elif default is False:
            parser.add_argument(flag, action="store_true", default=None, help=help_)
        else:
            parser.add_argument(flag, type=_knob(read), metavar=knob.upper(), help=help_)


def _knob(read: Callable[[str], object]) -> Callable[[str], object]:
    def value(text: str) -> object:
        try:
            return read(text)
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError("expected another value") from None

    return value


def _serve(options: argparse.Namespace) -> None:
    given = {name: value for name, value in vars(options).items() if name != "run"}
    environment = replace(
        settings.read(), **{name: value for name, value in given.items() if value is not None}
    )
    keys = access.read_keys(environment.keys)
    access.check_exposed(environment.host, keys, insecure=environment.insecure)
    if environment.default_features:
        genesis.check(Settings(default_features(environment)))
    supervisor.run(environment)
