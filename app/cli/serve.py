"""`solar serve`: run the HTTP service and a learner."""

import argparse

from app import config
from app.api import auth
from app.api.dependencies import check_settings
from app.cli.options import add_setting_arguments, flags_of
from app.observability import tracing
from app.runtime import supervisor


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar serve`: one per setting."""
    parser.set_defaults(run=_serve)
    add_setting_arguments(parser)


def _serve(options: argparse.Namespace) -> None:
    settings = config.read_settings(env_file=options.env_file, **flags_of(options))
    check_settings(settings)
    auth.check_exposed(settings.host, auth.read_keys(settings.keys), insecure=settings.insecure)
    tracing.telemetry_options(settings)  # fail here, not in every worker
    supervisor.run_supervisor(settings)
