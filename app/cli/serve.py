"""`solar serve`."""

import argparse
from collections.abc import Callable
from dataclasses import replace

from app import config
from app.api import auth
from app.api.dependencies import default_features
from app.config import Environment
from app.domain import model_config
from app.domain.records import Settings
from app.runtime import supervisor


def serve(parser: argparse.ArgumentParser) -> None:
    """The options of `solar serve`: every knob."""
    parser.set_defaults(run=_serve)
    for variable, (knob, read, meaning) in config.VARIABLES.items():
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
        config.read(), **{name: value for name, value in given.items() if value is not None}
    )
    keys = auth.read_keys(environment.keys)
    auth.check_exposed(environment.host, keys, insecure=environment.insecure)
    if environment.default_features:
        model_config.check(Settings(default_features(environment)))
    supervisor.run(environment)
