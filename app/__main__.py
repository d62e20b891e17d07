"""The command line: `solar serve`, `solar evaluate`, `solar simulate` and all other commands.

Only the module of the command that is called is imported: some need a second for a compiler.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import NamedTuple

from app import __version__
from app.errors import SolarError
from app.observability.logging import configure_logging


class Command(NamedTuple):
    """What `--help` says of a command. The module `app.cli.NAME` has its arguments and its work."""

    help: str
    description: str | None = None


COMMANDS = {
    "serve": Command("serve over HTTP, and learn"),
    "learn": Command("learn every model of a store, until stopped"),
    "train": Command(
        "a batch model from judged data, put in an online model's place",
        "Train on judged data and let a model go on from there: in a store, or over HTTP in a "
        "service (whose key is SOLAR_KEY).",
    ),
    "evaluate": Command(
        "the paper's experiments on judged data",
        "Play Algorithm 1 on judged data: rank each query, measure the ranking as served, learn "
        "its pairs. Prints online cumulative NDCG and MAP, mean ± standard deviation over random "
        "permutations.",
    ),
    "simulate": Command(
        "judged data as live traffic, with simulated users",
        "Replay judged data as live traffic: simulated users see lists and click, the model learns "
        "from that. In process, or against a running service (whose key is SOLAR_KEY).",
    ),
    "config": Command(
        "show the settings in force",
        "Print every setting in force and where it comes from: a flag, the environment, an env "
        "file or the default. Passwords and hashes of keys are masked.",
    ),
    "key": Command("make an API key"),
    "log": Command("show the records of a model's log"),
    "replay": Command("fold a model's log again and compare"),
    "verify": Command("check that models are what their logs say"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error is one line on standard error, without a stack trace."""
    given = sys.argv[1:] if arguments is None else arguments
    options = build_parser(given[:1]).parse_args(given)
    configure_logging()
    try:
        options.run(options)
        sys.stdout.flush()
    except (SolarError, ValueError) as error:
        print(f"solar: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("solar: this takes more memory than there is", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    gc.freeze()  # skips a last collection, which takes 0.3 s where numba is loaded
    return 0


def build_parser(names: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """All commands; only those named get their arguments, as that imports their modules."""
    parser = argparse.ArgumentParser(prog="solar", description="Online learning to rank.")
    parser.add_argument("--version", action="version", version=f"solar {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        added = commands.add_parser(name, help=command.help, description=command.description)
        if name in names:
            getattr(import_module(f"app.cli.{name}"), f"add_{name}_arguments")(added)
    return parser


if __name__ == "__main__":
    sys.exit(main())
