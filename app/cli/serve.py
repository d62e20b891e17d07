"""`solar serve`: serve over HTTP, and learn."""

import argparse

from app import config
from app.api import auth
from app.api.dependencies import default_features
from app.cli.options import add_setting_arguments, flags_of
from app.domain import model_config
from app.domain.model_config import ModelConfig
from app.observability import tracing
from app.runtime import supervisor


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar serve`: one for every setting."""
    parser.set_defaults(run=_serve)
    add_setting_arguments(parser)


def _serve(options: argparse.Namespace) -> None:
    settings = config.read_settings(env_file=options.env_file, **flags_of(options))
    keys = auth.read_keys(settings.keys)
    auth.check_exposed(settings.host, keys, insecure=settings.insecure)
    if settings.default_features:
        model_config.check_config(ModelConfig(default_features(settings)))
    tracing.telemetry_options(settings)  # refuses here, not in every worker
    supervisor.run_supervisor(settings)
