"""The documents tell the truth: their snippets run, and what there is stands in them."""

import argparse
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import config
from app.__main__ import build_parser
from app.config import Settings, setting_text
from tests.api.operations import GUARDED, OPEN
from tests.api.services import serving, uvicorn_ready
from tests.servers import until

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SERVICE = (ROOT / "docs" / "service.md").read_text()
STORE = (ROOT / "docs" / "store.md").read_text()
TRAINING = (ROOT / "docs" / "training.md").read_text()
CLICKS = (ROOT / "docs" / "clicks.md").read_text()
EVALUATION = (ROOT / "docs" / "evaluation.md").read_text()


def shell_lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_python_of_the_readme_does_what_it_says() -> None:
    options = doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(
        str(ROOT / "README.md"), module_relative=False, optionflags=options
    )
    assert tried >= 8
    assert failed == 0


def test_the_shell_lines_of_the_readme_run(tmp_path: Path) -> None:
    ours = [line for line in shell_lines() if not line.startswith(("make ", "curl "))]
    assert len(ours) >= 3
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    solar = tmp_path / ".venv" / "bin" / "solar"
    solar.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m app "$@"\n')
    solar.chmod(0o755)
    for line in ours:
        ran = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, (line, ran.stderr)
        assert ran.stdout or ">" in line


def has_curl() -> bool:
    """Whether there is a curl that knows --json (7.82)."""
    try:
        said = subprocess.run(
            ["curl", "--version"],  # noqa: S607  # found on PATH, as a reader would
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    major, minor = said.stdout.split()[1].split(".")[:2]
    return (int(major), int(minor)) >= (7, 82)


CURL = has_curl()


def curl(words: list[str]) -> Any:
    ran = subprocess.run(
        [*words, "-sS", "--fail-with-body"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
    return json.loads(ran.stdout)


def as_curl_would(words: list[str]) -> Any:
    """The same line on a machine without curl."""
    parser = argparse.ArgumentParser()
    for flag in ("-X", "--json", "-H"):
        parser.add_argument(flag)
    parser.add_argument("url")
    given = parser.parse_args(words[1:])
    headers = {"content-type": "application/json"}
    if given.H:
        name, value = given.H.split(": ")
        headers[name] = value
    answer = httpx.request(
        given.X or "POST", given.url, content=given.json, headers=headers, timeout=30
    )
    return answer.raise_for_status().json()


@pytest.mark.parametrize("by", ["solar serve", "uvicorn"])
def test_the_curl_lines_of_the_readme_lead_to_a_ranking_that_improves(
    by: str, tmp_path: Path
) -> None:
    lines = [line for line in shell_lines() if line.startswith("curl ")]
    assert len(lines) == 4
    answers = []
    with serving() if by == "solar serve" else uvicorn_ready(data=tmp_path) as service:
        for line in lines:
            words = shlex.split(line.replace("localhost:8000", service.url))
            answers.append(curl(words) if CURL else as_curl_would(words))
    _, before, learnt, after = answers
    assert [one["id"] for one in before["documents"]] == ["a", "b"]
    assert learnt["version"] == learnt["seq"] == 1
    assert [one["id"] for one in after["documents"]] == ["b", "a"]


def test_every_path_and_metric_is_documented() -> None:
    for one in GUARDED:
        path = one.path.replace("{name}", "NAME").replace("{id}", "ID")
        assert f"{one.method} {path}" in SERVICE, path
    for one in OPEN:
        assert f"`{one.path}`" in SERVICE, one.path
    with serving() as service, service.client() as client:
        made = client.put("/models/default", json={"features": 2})
        assert made.status_code == 201
        until(lambda: "solar_version{" in client.get("/metrics").text)
        names = set(re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, re.MULTILINE))
    assert len(names) > 15
    for name in names:
        assert re.search(rf"`{name}(_total)?[`{{]", SERVICE), name


def test_every_make_verb_of_the_documents_exists_and_is_explained() -> None:
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert {"run", "test", "check", "bench", "up"} <= named <= make_targets()


def test_every_option_is_documented() -> None:
    commands = next(
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    pages = {
        "evaluate": EVALUATION,
        "serve": SERVICE,
        "config": SERVICE,
        "key": SERVICE,
        "simulate": CLICKS,
        "train": TRAINING,
    }
    assert set(commands.choices) == {*pages, "learn", "log", "replay", "verify"}
    for command, parser in commands.choices.items():
        text = pages.get(command, STORE)
        assert f"`solar {command}" in text
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction):
                name = (action.option_strings or [str(action.metavar)])[0]
                assert re.search(rf"[`\[ ]{name}\b", text), (command, name)
            for choice in action.choices or ():
                assert f"`{choice}`" in text, choice


def test_every_variable_is_documented() -> None:
    for variable, name in config.VARIABLES.items():
        field = Settings.model_fields[name]
        flag = f"--no-{name}" if field.default is True else f"--{name.replace('_', '-')}"
        default = setting_text(name, field.default)
        shown = f"`{default}`" if default else ""
        assert f"| `{variable}` | `{flag}` | {field.description} | {shown} |" in SERVICE


def test_the_map_shows_every_package() -> None:
    entries = [path for path in (ROOT / "app").iterdir() if not path.name.startswith("_")]
    names = {f"{path.name}/" if path.is_dir() else path.name for path in entries} - {"py.typed"}
    assert 10 < len(names) <= 16
    for name in names:
        assert f" {name} " in README, name


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")))
def test_links_within_the_project_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link


def test_the_requirement_files_are_hashed_and_name_no_host() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert [path.stem for path in files] == ["bench", "build", "dev", "ops", "run"]
    for path in files:
        text = path.read_text()
        assert "://" not in text
        assert "--index" not in text
        pins = re.findall(r"^[a-zA-Z0-9_.-]+==", text, re.MULTILINE)
        assert 0 < len(pins) <= text.count("--hash=sha256:")
