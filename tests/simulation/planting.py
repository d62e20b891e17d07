"""How a bug is planted for one block."""

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation import scripts, server


class Mutant(NamedTuple):
    """A planted bug, the invariants that find it, and the fault and level that trigger it.

    With `duels` only worlds with followers and duels are tried, from seed `start` on: those before
    it do not find it.
    """

    plant: Callable[[], Any]
    numbers: tuple[str, ...]
    only: str = ""
    level: server.Level | None = None
    duels: bool = False
    start: int = 0


def script(name: str, mutant: scripts.Script) -> Callable[[], Any]:
    """Plant another script."""
    return lambda: patch.dict(scripts.ALL, {name: mutant})


def member(owner: Any, name: str, mutant: Any) -> Callable[[], Any]:
    """Plant another attribute of a module or a class."""
    return lambda: patch.object(owner, name, mutant)
