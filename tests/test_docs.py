"""The documents are true: commands run, examples parse, paths and metrics are listed."""

import doctest
import json
import re
from pathlib import Path

import pytest

from tests.api.operations import GUARDED, OPEN
from tests.api.services import serving, uvicorn_ready
from tests.documents import PAGES, README, ROOT, blocks, commands, has_curl, name_of, run_script
from tests.servers import until

REFERENCE = ROOT / "docs" / "reference"
METRICS = (REFERENCE / "metrics.md").read_text()
WITH_COMMANDS = [page for page in PAGES if commands(page)]
REAL_CURL = has_curl()


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    with serving(data=tmp_path / "data") as service:
        ran = run_script(commands(page), tmp_path, service.url, real_curl=REAL_CURL)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def test_the_tour_of_the_readme_ends_with_a_better_ranking(tmp_path: Path) -> None:
    lines = [line for line in commands(README).splitlines() if "localhost:8000" in line]
    tour = [line for line in lines if "/rank" in line or "/feedback" in line or "/models/" in line]
    with uvicorn_ready(data=tmp_path / "data") as service:
        ran = [run_script(line, tmp_path, service.url, real_curl=False) for line in tour]
    assert [one.returncode for one in ran] == [0] * len(ran), ran[-1].stderr
    answers = [json.loads(one.stdout) for one in ran if one.stdout.startswith("{")]
    rankings = [
        [one["id"] for one in found["documents"]] for found in answers if "documents" in found
    ]
    learnt = [found for found in answers if "accepted" in found]
    assert rankings == [["a", "b"], ["b", "a"]]
    assert learnt[0]["version"] == learnt[0]["seq"] == 1


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_examples_of_a_page_parse(page: Path) -> None:
    for text in blocks(page, "json"):
        json.loads(text)
    for text in blocks(page, "python"):
        if ">>>" not in text:
            compile(text, name_of(page), "exec")


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=name_of)
def test_the_python_of_a_page_prints_what_the_page_shows(page: Path) -> None:
    failed, tried = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried
    assert failed == 0


def test_some_page_has_python_that_runs() -> None:
    assert sum(page.read_text().count(">>>") for page in PAGES) >= 8


def test_every_path_is_documented() -> None:
    text = (REFERENCE / "api.md").read_text()
    for one in (*GUARDED, *OPEN):
        if one.path not in ("/docs", "/openapi.json"):
            assert f"### {one.method} {one.path}\n" in text, one.path


def test_every_metric_of_a_running_service_is_documented() -> None:
    with serving() as service, service.client() as client:
        made = client.put("/models/default", json={"features": 2})
        assert made.status_code == 201
        until(lambda: "solar_version{" in client.get("/metrics").text)
        page = client.get("/metrics").text
    names = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    assert len(names) > 15
    for name in names:
        assert f"| `{name}` |" in METRICS, name


def test_every_make_verb_of_the_documents_exists() -> None:
    text = README.read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"run", "test", "check", "bench", "up", "docs"} <= named <= targets


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150


def test_the_architecture_page_lists_every_package_and_invariant_test() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    entries = [path for path in (ROOT / "app").iterdir() if not path.name.startswith("_")]
    names = {f"app/{path.name}" for path in entries} - {"app/py.typed"}
    assert 10 < len(names) <= 16
    for name in names:
        assert f"`{name}`" in text, name
    for path in re.findall(r"`((?:app|tests|docs|tools)/[\w/.*-]+)`", text):
        assert (ROOT / path).exists() or list(ROOT.glob(path)), path


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), ROOT / "k8s" / "README.md"], ids=name_of
)
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    """`make docs` checks those of the site, with their anchors."""
    for link in re.findall(r"\]\(([^)#:]+)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_requirement_files_are_hashed_and_name_no_host() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert [path.stem for path in files] == ["bench", "build", "dev", "docs", "ops", "run"]
    for path in files:
        text = path.read_text()
        assert "://" not in text
        assert "--index" not in text
        pins = re.findall(r"^[a-zA-Z0-9_.-]+==", text, re.MULTILINE)
        assert 0 < len(pins) <= text.count("--hash=sha256:")
