"""`solar serve`: serve over HTTP, and learn."""

import argparse
from collections.abc import Callable
from dataclasses import replace

from app import config
from app.api import auth
from app.api.dependencies import default_features
from app.config import Settings
from app.domain import model_config
from app.domain.model_config import ModelConfig
from app.observability import tracing
from app.runtime import supervisor


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar serve`: one for every setting."""
    parser.set_defaults(run=_serve)
    for variable, (field_name, read, meaning) in config.VARIABLES.items():
        flag, help_ = f"--{field_name.replace('_', '-')}", f"{meaning} ({variable})"
        default = getattr(Settings(), field_name)
        if default is True:
            parser.add_argument(
                f"--no-{field_name}",
                dest=field_name,
                action="store_false",
                default=None,
                help=help_,
            )
        elif default is False:
            parser.add_argument(flag, action="store_true", default=None, help=help_)
        else:
            parser.add_argument(flag, type=_setting(read), metavar=field_name.upper(), help=help_)


def _setting(read: Callable[[str], object]) -> Callable[[str], object]:
    def value(text: str) -> object:
        try:
            return read(text)
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError("expected another value") from None

    return value


def _serve(options: argparse.Namespace) -> None:
    given = {name: value for name, value in vars(options).items() if name != "run"}
    settings = replace(
        config.read_settings(),
        **{name: value for name, value in given.items() if value is not None},
    )
    keys = auth.read_keys(settings.keys)
    auth.check_exposed(settings.host, keys, insecure=settings.insecure)
    if settings.default_features:
        model_config.check_config(ModelConfig(default_features(settings)))
    tracing.telemetry_options(settings)  # refuses here, not in every worker
    supervisor.run_supervisor(settings)
