"""The walls of the house: which room may import what."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import app

HOUSE = Path(app.__file__).parent

#: What pure mathematics may take from the standard library: nothing with IO, clocks or chance.
PURE = {
    "collections", "dataclasses", "decimal", "functools", "itertools", "math", "operator", "sys",
    "typing",
}  # fmt: skip
STANDARD = set(sys.stdlib_module_names)

#: Room → what it may import, by prefix. A room is a module or a package of `app`.
ROOMS: dict[str, set[str]] = {
    "app": {"app.kernel_cache"},
    "app.kernel_cache": STANDARD,
    "app.errors": STANDARD,
    "app.ranking": {"app.ranking", "llvmlite", "numba", "numpy", "scipy", *PURE},
    "app.events": {"numpy", *STANDARD},
    "app.settings": {"app.errors", *STANDARD},
    "app.store": {
        "app.errors",
        "app.events",
        "app.ranking",
        "app.store",
        "msgspec",
        "numpy",
        "redis",
        *STANDARD,
    },
    "app.impressions": {"app.events", "app.store.codec", "numpy", *STANDARD},
    "app.genesis": {"app.events", "app.ranking", "numpy", *STANDARD},
    "app.clicked": {"app.events", "app.impressions", "app.ranking", "numpy", *STANDARD},
    "app.fold": {
        "app.clicked",
        "app.errors",
        "app.events",
        "app.genesis",
        "app.impressions",
        "app.ranking",
        "app.store.codec",
        "numpy",
        *STANDARD,
    },
    "app.sharing": {"app.errors", "app.store", *STANDARD},
    "app.history": {"app.genesis", "app.store", *STANDARD},
    "app.grouping": STANDARD,
    "app.posting": {
        "app.errors",
        "app.events",
        "app.grouping",
        "app.impressions",
        "app.store",
        *STANDARD,
    },
    "app.learner": {
        "app.errors",
        "app.events",
        "app.fold",
        "app.genesis",
        "app.history",
        "app.sharing",
        "app.store",
        "app.tasks",
        "numpy",
        *STANDARD,
    },
    "app.audit": {
        "app.errors",
        "app.events",
        "app.fold",
        "app.impressions",
        "app.store",
        *STANDARD,
    },
    "app.training": {"app.events", "app.ranking.limits", *STANDARD},
    "app.trainer": {
        "app.errors",
        "app.events",
        "app.letor",
        "app.ranking",
        "app.slates",
        "app.training",
        "numpy",
        "scipy",
        *STANDARD,
    },
    "app.apprentice": {
        "app.errors",
        "app.events",
        "app.letor",
        "app.logs",
        "app.ranking",
        "app.store.codec",
        "app.trainer",
        "app.training",
        "msgspec",
        *STANDARD,
    },
    "app.warming": {
        "app.apprentice",
        "app.events",
        "app.fold",
        "app.genesis",
        "app.learner",
        "app.ranking.limits",
        "app.simulation",
        "app.store.codec",
        "app.training",
        "app.world",
        "numba",
        "numpy",
        *STANDARD,
    },
    "app.workshop": {
        "app.events",
        "app.job",
        "app.settings",
        "app.store",
        "app.tasks",
        *STANDARD,
    },
    "app.job": {
        "app.errors",
        "app.events",
        "app.posting",
        "app.settings",
        "app.store",
        "app.tasks",
        "app.training",
        "msgspec",
        *STANDARD,
    },
    "app.train": {
        "app.errors",
        "app.events",
        "app.genesis",
        "app.letor",
        "app.ranking.limits",
        "app.trainer",
        "app.training",
        "tqdm",
        *STANDARD,
    },
    "app.train_store": {
        "app.errors",
        "app.events",
        "app.genesis",
        "app.posting",
        "app.settings",
        "app.store",
        "app.train",
        "app.trainer",
        *STANDARD,
    },
    "app.train_http": {
        "app.errors",
        "app.http_line",
        "app.train",
        "app.training",
        "tqdm",
        *STANDARD,
    },
    "app.slates": {"app.events", "app.ranking", "numpy", *STANDARD},
    "app.chance": {"app.events", "numpy", *STANDARD},
    "app.ranker": {"app.errors", "app.events", "app.history", "app.store", "app.tasks", *STANDARD},
    "app.tasks": STANDARD,
    "app.remembering": {"app.errors", "app.store", *STANDARD},
    "app.telemetry": {"app.events", "app.ranker", "numpy", "prometheus_client", *STANDARD},
    "app.logs": STANDARD,
    "app.api": {
        "app.api",
        "app.chance",
        "app.errors",
        "app.events",
        "app.genesis",
        "app.impressions",
        "app.job",
        "app.posting",
        "app.ranker",
        "app.ranking.clicks",
        "app.ranking.covariance",
        "app.ranking.limits",
        "app.remembering",
        "app.settings",
        "app.slates",
        "app.store",
        "app.telemetry",
        "app.training",
        "app.workshop",
        "msgspec",
        "numpy",
        *STANDARD,
    },
    "app.worker": {
        "app.api",
        "app.errors",
        "app.logs",
        "app.settings",
        "app.wiring",
        "uvicorn",
        "uvloop",
        *STANDARD,
    },
    "app.supervisor": {
        "app.errors",
        "app.settings",
        "app.store",
        "app.wiring",
        "app.worker",
        *STANDARD,
    },
    "app.commands": {
        "app.api",
        "app.audit",
        "app.ranker",
        "app.settings",
        "app.telemetry",
        "app.worker",
        "app.errors",
        "app.events",
        "app.learner",
        "app.store",
        *STANDARD,
    },
    "app.wiring": {"app", *STANDARD},
    "app.letor": {"app.errors", "app.ranking", "numpy", *STANDARD},
    "app.world": {"app.ranking", "numpy", *STANDARD},
    "app.evaluation": {"app.errors", "app.letor", "app.ranking", "numpy", "tqdm", *STANDARD},
    "app.folds": {"app.errors", "app.letor", "app.ranking", *STANDARD},
    "app.comparison": {
        "app.evaluation",
        "app.folds",
        "app.ranking",
        "app.starts",
        "numpy",
        "tqdm",
        *STANDARD,
    },
    "app.starts": {"app.evaluation", "app.folds", "app.ranking", "numpy", *STANDARD},
    "app.curves": STANDARD,
    "app.traces": {"app.curves", "app.ranking", "numpy", *STANDARD},
    "app.simulation": {
        "app.errors",
        "app.events",
        "app.fold",
        "app.genesis",
        "app.letor",
        "app.ranking",
        "app.slates",
        "app.traces",
        "numpy",
        "tqdm",
        *STANDARD,
    },
    "app.http_line": {"app.errors", *STANDARD},
    "app.simulate_http": {
        "app.errors",
        "app.http_line",
        "app.ranking",
        "app.simulation",
        "app.traces",
        "numpy",
        "tqdm",
        *STANDARD,
    },
    "app.doors": {"app", "numpy", *STANDARD},
    "app.__main__": {"app.errors", "app.logs", *STANDARD},
}


def module_of(path: Path) -> str:
    parts = path.relative_to(HOUSE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "rooms are named in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def breaches(module: str, source: str) -> list[str]:
    room = max((room for room in ROOMS if within(module, room)), key=len)
    allowed = ROOMS[room]
    return [name for name in imports(source) if not any(within(name, one) for one in allowed)]


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("path", sorted(HOUSE.rglob("*.py")), ids=module_of)
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    assert breaches(module_of(path), path.read_text()) == []


def test_every_room_has_its_rule() -> None:
    assert {
        module_of(path) for path in HOUSE.iterdir() if path.suffix == ".py" and path.stem[0] != "_"
    } <= set(ROOMS)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("app.ranking.solar", "import time"),
        ("app.ranking.solar", "from app.letor import read"),
        ("app.ranking.baselines.pamir", "from pathlib import Path"),
        ("app.ranking.kernels", "def f():\n    import random"),
        ("app.errors", "import numpy"),
        ("app.letor", "from app import evaluation"),
        ("app.store.codec", "from app.learner import Learner"),
        ("app.fold", "from app.store.store import Store"),
    ],
)
def test_a_planted_breach_is_found(module: str, source: str) -> None:
    assert len(breaches(module, source)) == 1


def test_the_core_draws_no_global_randomness_and_opens_nothing() -> None:
    for path in (HOUSE / "ranking").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(".random"):
                assert node.attr == "Generator", f"{path}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                assert "random" not in node.module, f"{path}:{node.lineno}"
            if isinstance(node, ast.Name):
                assert node.id not in {"open", "print", "input"}, f"{path}:{node.lineno}"
