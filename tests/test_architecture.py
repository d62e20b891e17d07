"""The import contracts of `pyproject.toml` hold, and planted violations are found."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RANKING = ROOT / "app" / "ranking"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
    ]
    return subprocess.run(
        [*command, "--config", "pyproject.toml", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "app", folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_import_contract_holds(copy: Path) -> None:
    ran = lint(copy)
    assert ran.returncode == 0, ran.stdout
    assert ", 0 broken." in ran.stdout


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("ranking/solar.py", "import time", "no IO"),
        ("ranking/kernels.py", "from app.evaluation.letor import read", "below it"),
        ("domain/reducer.py", "from app.storage.store import Store", "below it"),
        ("domain/codec.py", "import asyncio", "no IO"),
        ("storage/keys.py", "from app.learning.learner import Learner", "below it"),
        ("serving/weight_cache.py", "from app.ingest import appender", "below it"),
        ("api/schemas.py", "import redis", "Redis"),
        ("learning/learner.py", "import prometheus_client", "Prometheus"),
        ("api/decoding.py", "from app.ranking import solar", "compiler"),
        ("errors.py", "from app.config import DATA", "below it"),
        ("runtime/worker.py", "import solar_client", "client"),
        ("evaluation/letor.py", "import httpx", "client"),
        ("extra.py", "", "below it"),
        ("ranking/measures.py", "from datetime import datetime", "no IO"),
        ("errors.py", "import numpy", "Errors"),
        ("simulation/runner.py", "from app.storage.store import Store", "no store"),
        ("training/process.py", "from app.storage.jobs import Job", "no store"),
    ],
)
def test_a_planted_violation_is_found(copy: Path, module: str, line: str, rule: str) -> None:
    path = copy / "app" / module
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n")
    try:
        ran = lint(copy)
    finally:
        path.unlink() if before is None else path.write_text(before)
    assert ran.returncode == 1, ran.stdout
    broken = [found for found in ran.stdout.splitlines() if " BROKEN" in found]
    assert any(rule in found for found in broken), broken


#: Names that several modules define with the same meaning: loggers, entry points, type variables,
#: FastAPI routers, and the shared interfaces of `debiased` and `fair`, and `bundle` and `newton`.
SHARED = {"T", "log", "main", "minimise", "pairs", "model_positions", "router"}


def public_names(path: Path) -> set[str]:
    """Return the top-level names of a module without a leading underscore."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target)]
            found |= {part.id for part in parts if isinstance(part, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def test_a_public_name_has_one_meaning() -> None:
    modules: dict[str, list[str]] = {}
    for path in (ROOT / "app").rglob("*.py"):
        for name in public_names(path):
            modules.setdefault(name, []).append(str(path.relative_to(ROOT)))
    several = {name: where for name, where in modules.items() if len(where) > 1}
    assert set(several) == SHARED, several


def test_the_top_of_the_package_has_at_most_16_entries() -> None:
    besides = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    assert len({path.name for path in (ROOT / "app").iterdir()} - besides) <= 16


def test_the_ranking_package_uses_no_global_randomness_and_no_files() -> None:
    for path in RANKING.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert "random" not in str(node.module), f"{path}:{node.lineno}"
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(".random"):
                assert node.attr == "Generator", f"{path}:{node.lineno}"
            if isinstance(node, ast.Name):
                assert node.id not in {"open", "print", "input"}, f"{path}:{node.lineno}"
