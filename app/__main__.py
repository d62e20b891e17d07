"""The front door: `solar serve`, `solar evaluate`, `solar simulate` and all other commands.

Only the door of the command that is called is opened: each takes what it needs to load.
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
    """Where a command's options are added, and what it does."""

    room: str
    help: str
    description: str | None = None


DOORS = {
    "serve": Command("app.cli.serve", "serve over HTTP, and learn"),
    "learn": Command("app.cli.store", "learn every model of a store, until stopped"),
    "train": Command(
        "app.cli.train",
        "a batch model from judged data, put in an online model's place",
        "Train on judged data and let a model go on from there: in a store, or over HTTP in a "
        "service (whose key is SOLAR_KEY).",
    ),
    "evaluate": Command(
        "app.cli.evaluate",
        "the paper's experiments on judged data",
        "Play Algorithm 1 on judged data: rank each query, measure the ranking as served, learn "
        "its pairs. Prints online cumulative NDCG and MAP, mean ± standard deviation over random "
        "permutations.",
    ),
    "simulate": Command(
        "app.cli.simulate",
        "judged data as live traffic, with simulated users",
        "Replay judged data as live traffic: simulated users see lists and click, the model learns "
        "from that. In process, or against a running service (whose key is SOLAR_KEY).",
    ),
    "key": Command("app.cli.key", "make an API key"),
    "log": Command("app.cli.store", "show the records of a model's log"),
    "replay": Command("app.cli.store", "fold a model's log again and compare"),
    "verify": Command("app.cli.store", "check that models are what their logs say"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors come in one line, without a stack trace."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(given[:1]).parse_args(given)
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
    except BrokenPipeError:  # `| head`: whoever read us has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    gc.freeze()  # there is nothing left to collect, and looking takes 0.3 s where numba is loaded
    return 0


def parser(opened: Iterable[str] = tuple(DOORS)) -> argparse.ArgumentParser:
    """All commands, with the options of those whose doors are opened."""
    whole = argparse.ArgumentParser(prog="solar", description="Online learning to rank.")
    whole.add_argument("--version", action="version", version=f"solar {__version__}")
    added = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, door in DOORS.items():
        command = added.add_parser(name, help=door.help, description=door.description)
        if name in opened:
            getattr(import_module(door.room), name)(command)
    return whole


if __name__ == "__main__":
    sys.exit(main())
