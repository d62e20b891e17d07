"""The documents, their code blocks, and a shell that runs their commands against a service."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("**/*.md"))]
SECONDS = 300  # for all commands of a page
#: A comment `<!-- varies -->` before a block says that its numbers differ from run to run.
_BLOCK = re.compile(r"(^<!-- varies -->\n)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^ *```", re.MULTILINE)
#: What differs from run to run: ids, times, measured rates.
_VARIABLE = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+"
    r"|\b\d{1,3}(,\d{3})+\b|\b\d+\.\d+\b"
)
_VARIABLE_FIELDS = {"created", "begun", "seconds", "down"}


class Block(NamedTuple):
    """A code block of a page, without its indentation."""

    language: str
    text: str
    varies: bool = False


class Step(NamedTuple):
    """Commands of a page, and the output that the page shows for them, if any."""

    commands: str
    shown: Block | None


def name_of(page: Path) -> str:
    """Name a page by its path in the project."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Read all code blocks of a page."""
    text = page.read_text()
    found = _BLOCK.findall(text)
    assert 2 * len(found) == len(_FENCE.findall(text)), f"{name_of(page)}: a fence is not closed"
    return [
        Block(language, re.sub(rf"^{indent}", "", body, flags=re.MULTILINE), bool(varies))
        for varies, indent, language, body in found
    ]


def steps(page: Path) -> list[Step]:
    """Read the `sh` blocks of a page; a `json` or `text` block right after one is its output."""
    found = []
    for block, after in pairwise([*blocks(page), Block("", "")]):
        if block.language == "sh":
            lines = [line for line in block.text.splitlines() if not line.startswith("make ")]
            shown = after if after.language in ("json", "text") else None
            found.append(Step("\n".join(lines), shown))
    return [step for step in found if step.commands]


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


def run_commands(commands: list[str], folder: Path, url: str, *, real_curl: bool) -> list[str]:
    """Run commands in one shell, as a reader would; return what each prints. An error ends them."""
    _make_programs(folder / ".venv" / "bin", real_curl=real_curl)
    mark = "@@@@ next step"
    script = f"\necho; echo '{mark}'\n".join(commands)
    own = {name: text for name, text in os.environ.items() if not name.startswith("SOLAR_")}
    path = f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", _with_port(script, url)],
        cwd=folder,
        env={**own, "PYTHONPATH": str(ROOT), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout.split(f"{mark}\n")


def _with_port(script: str, url: str) -> str:
    return re.sub(r"(localhost|127\.0\.0\.1):8000", url.removeprefix("http://"), script)


def _make_programs(folder: Path, *, real_curl: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    python = shlex.quote(sys.executable)
    curl = f"{_curl()} -sS" if real_curl else f"{python} -m tests.curl_stand_in"
    programs = {
        "solar": f'exec {python} -m app "$@"',
        "python": f'exec {python} "$@"',
        "curl": f'{curl} "$@" && echo',  # a terminal shows the answer on a line of its own
    }
    for name, command in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{command}\n")
        (folder / name).chmod(0o755)


def _curl() -> str:
    where = os.environ["PATH"].split(":")
    return next(str(Path(one) / "curl") for one in where if (Path(one) / "curl").exists())


def json_values(output: str) -> Iterator[Any]:
    """Find the JSON objects in an output."""
    decoder, at = json.JSONDecoder(), output.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(output, at)
            yield value
        except ValueError:
            end = at + 1
        at = output.find("{", end)


def is_shown(block: Block, output: str) -> bool:
    """Whether an output contains what a page shows, apart from ids, times and rates."""
    if block.language == "json":
        shown = json.loads(block.text)
        return any(_matches(shown, value, block.varies) for value in json_values(output))
    lines = [_VARIABLE.sub("#", line).split() for line in output.splitlines()]
    return all(any(_line_matches(one, line) for line in lines) for one in block.text.splitlines())


def _line_matches(shown: str, words: list[str]) -> bool:
    pattern = ".*".join(
        r"\s+".join(map(re.escape, _VARIABLE.sub("#", part).split())) for part in shown.split("…")
    )
    return re.fullmatch(pattern, " ".join(words)) is not None


def _matches(shown: Any, value: Any, varies: bool) -> bool:
    """Compare with a part of a value: a page may leave out fields."""
    if isinstance(shown, dict):
        return isinstance(value, dict) and all(
            name in value and (name in _VARIABLE_FIELDS or _matches(one, value[name], varies))
            for name, one in shown.items()
        )
    if isinstance(shown, list):
        same = isinstance(value, list) and len(shown) == len(value)
        return same and all(_matches(*pair, varies) for pair in zip(shown, value, strict=True))
    if isinstance(shown, str):
        return isinstance(value, str) and _line_matches(shown, _VARIABLE.sub("#", value).split())
    if isinstance(shown, float) or varies:
        is_number = isinstance(value, int | float)
        return is_number and (varies or math.isclose(shown, value, rel_tol=1e-9))
    return bool(shown == value)
