"""The documents, their code blocks, and a shell that runs their commands against a service."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("**/*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """Name a page by its path in the project."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """All code blocks of a page in a language, without their indentation."""
    found = _BLOCK.findall(page.read_text())
    return [
        re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        for indent, kind, text in found
        if kind == language
    ]


def commands(page: Path) -> str:
    """All `sh` blocks of a page as one script; a running service replaces `make run`."""
    lines = "".join(blocks(page, "sh")).splitlines()
    return "\n".join(line for line in lines if not line.startswith("make "))


def has_curl() -> bool:
    """Whether there is a curl that has --json (7.82)."""
    try:
        version = subprocess.run(
            ["curl", "--version"],  # noqa: S607  # found on PATH, as a reader would
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[1]
    except (OSError, subprocess.CalledProcessError):
        return False
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (7, 82)


def run_script(
    script: str, folder: Path, url: str, *, real_curl: bool
) -> "subprocess.CompletedProcess[str]":
    """Run commands of a page in a folder as a reader would; the first error ends them."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    _program(programs / "solar", f'{shlex.quote(sys.executable)} -m app "$@"')
    _program(programs / "python", f'{shlex.quote(sys.executable)} "$@"')
    if real_curl:
        _program(programs / "curl", f'{_curl()} -sS --fail-with-body "$@"')
    else:
        _program(programs / "curl", f'{shlex.quote(sys.executable)} -m tests.curl_stand_in "$@"')
    own = {name: text for name, text in os.environ.items() if not name.startswith("SOLAR_")}
    return subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", _with_port(script, url)],
        cwd=folder,
        env={**own, "PYTHONPATH": str(ROOT), "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def _with_port(script: str, url: str) -> str:
    return re.sub(r"(localhost|127\.0\.0\.1):8000", url.removeprefix("http://"), script)


def _program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\nexec {line}\n")
    path.chmod(0o755)


def _curl() -> str:
    where = os.environ["PATH"].split(":")
    return next(str(Path(one) / "curl") for one in where if (Path(one) / "curl").exists())
