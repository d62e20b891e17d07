"""Command line: `solar serve`, `solar evaluate`, `solar simulate` and all other commands.

Only the module of the called command is imported: some modules take a second to import numba.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from app import __version__
from app.errors import SolarError
from app.observability.logging import configure_logging


class Command(NamedTuple):
    """Help texts of a command; the module `app.cli.NAME` has its arguments and its code."""

    help: str
    description: str


COMMANDS = {
    "serve": Command(
        "run the HTTP service and a learner",
        "Run the HTTP service and a learner until SIGTERM or SIGINT. Every option is also an "
        "environment variable, shown in parentheses; an option wins over the variable. A SIZE is "
        "in bytes, or has a unit: 512MB, 1GiB.",
    ),
    "learn": Command(
        "run a learner without the HTTP service",
        "Run a learner for every model of a store until SIGTERM or SIGINT. Use it with services "
        "that run with SOLAR_LEARNER=no.",
    ),
    "train": Command(
        "train a batch model on judged data",
        "Train a batch model on judged data. Write it to a file (--output), or warm-start an "
        "online model (--model) in a store or, with --url, in a running service. SOLAR_KEY is the "
        "API key for that service.",
    ),
    "evaluate": Command(
        "run the paper's experiments on judged data",
        "Run Algorithm 1 on judged data: rank each query, measure the served ranking, learn its "
        "pairs. Print online cumulative NDCG and MAP: mean ± standard deviation over random "
        "permutations of the queries.",
    ),
    "simulate": Command(
        "simulate users who click, on judged data",
        "Simulate live traffic on judged data: simulated users see rankings and click, and the "
        "model learns from the clicks. Run in this process or, with --url, against a running "
        "service. SOLAR_KEY is the API key for that service.",
    ),
    "config": Command(
        "print the effective settings",
        "Print every effective setting and its source: a flag, the environment, an env file or "
        "the default. Passwords and key hashes are masked.",
    ),
    "key": Command(
        "create an API key",
        "Create an API key. Print the key for the client, and the entry for SOLAR_KEYS, which "
        "contains only a hash of the key.",
    ),
    "log": Command(
        "print the log records of a model",
        "Print the log records of a model, one per line: sequence number, time (UTC), content.",
    ),
    "replay": Command(
        "apply a model's log again and compare",
        "Apply a model's log again from the oldest stored version, and compare the result with "
        "the committed state, bit by bit. With --without-source, compute the model without the "
        "records of one source.",
    ),
    "verify": Command(
        "check models against their logs",
        "Check that each model equals the replay of its log, and that the log has no gap. Exit "
        "code 2 if a model fails.",
    ),
}


class ShortErrorParser(argparse.ArgumentParser):
    """A parser that prints an error and the command for help, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the error and where to find help; exit with code 2."""
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; report unknown arguments here, so that the message names the command."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown arguments: {' '.join(unknown)}")
        return options, unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error is one line on standard error, without a stack trace."""
    given = sys.argv[1:] if arguments is None else arguments
    options = build_parser(given[:1]).parse_args(given)
    configure_logging()
    try:
        options.run(options)
        sys.stdout.flush()
    except (SolarError, ValueError) as error:
        with suppress(BrokenPipeError):  # what was printed comes first, also in one pipe
            sys.stdout.flush()
        print(f"solar: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("solar: not enough memory; use less data or more memory", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    gc.freeze()  # skips a last collection, which takes 0.3 s after numba is imported
    return 0


def build_parser(names: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Build the parser of all commands; only `names` get their arguments and are imported."""
    parser = ShortErrorParser(
        prog="solar",
        description="Streaming online learning to rank. `solar COMMAND --help` explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"solar {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        added = commands.add_parser(name, help=command.help, description=command.description)
        if name in names:
            getattr(import_module(f"app.cli.{name}"), f"add_{name}_arguments")(added)
    return parser


if __name__ == "__main__":
    sys.exit(main())
