"""The documents are true: commands run, examples parse, paths and metrics are listed."""

import doctest
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from app.api.routers.beacon_script import integrity
from app.api.tokens import new_token_key
from app.observability.metrics import DEPRECATED_NAMES
from tests.api.operations import GUARDED, OPEN
from tests.api.services import serving, uvicorn_ready
from tests.documents import (
    PAGES,
    README,
    ROOT,
    Block,
    blocks,
    has_curl,
    is_shown,
    json_values,
    name_of,
    run_commands,
    steps,
)
from tests.servers import until

REFERENCE = ROOT / "docs" / "reference"
METRICS = (REFERENCE / "metrics.md").read_text()
REAL_CURL = has_curl()
#: Pages whose commands `make test` runs; `make test-slow` runs those of all others.
FIRST_PAGES = (README, ROOT / "docs" / "quickstart.md")


def environ_of(page: Path) -> dict[str, str]:
    """Return the settings of the service that a page starts."""
    makes_tokens = "export SOLAR_TOKEN_KEYS=" in page.read_text()
    return {"SOLAR_TOKEN_KEYS": new_token_key("k1")} if makes_tokens else {}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[] if page in FIRST_PAGES else pytest.mark.slow)
        for page in PAGES
        if steps(page)
    ],
)
def test_the_commands_of_a_page_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    wanted = steps(page)
    with serving(data=tmp_path / "data", environ=environ_of(page)) as service:
        commands = [step.commands for step in wanted]
        outputs = run_commands(commands, tmp_path, service.url, real_curl=REAL_CURL)
    for step, output in zip(wanted, outputs, strict=True):
        shown = step.shown or Block("text", "")
        assert is_shown(shown, output), f"{step.commands}\n\n{output}\n\n{shown.text}"
        problems = [one for one in json_values(output) if {"title", "status"} <= one.keys()]
        assert not problems or '"title"' in shown.text, problems


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        (Block("json", '{"a": 1}'), '{"a": 2, "b": 1}'),
        (Block("json", '{"a": [1, 2]}'), '{"a": [1]}'),
        (Block("json", '{"detail": "model: …"}'), '{"detail": "no"}'),
        (Block("text", "version 7"), "version 8"),
        (Block("text", "a\nb"), "a"),
    ],
)
def test_an_output_that_a_page_does_not_show_is_found(shown: Block, output: str) -> None:
    assert not is_shown(shown, output)


def test_ids_times_and_rates_may_differ_from_the_page() -> None:
    shown = '{"id": "m.01a1ea0c-5a60-7a05-8ced-ee8d69dffba5", "begun": 1.5, "x": 0.1}'
    output = 'done {"id": "m.01a1ea0c-0000-7a05-8ced-ee8d69dffba5", "begun": 2.5, "x": 0.1, "y": 1}'
    assert is_shown(Block("json", shown), output)
    assert is_shown(Block("text", "62,859 rankings … 7"), "64,950   rankings or so 7")


def test_the_tour_of_the_readme_ends_with_a_better_ranking(tmp_path: Path) -> None:
    commands = [step.commands for step in steps(README)]
    with uvicorn_ready(data=tmp_path / "data") as service:
        outputs = run_commands(commands, tmp_path, service.url, real_curl=False)
    answers = [value for output in outputs for value in json_values(output)]
    rankings = [
        [one["id"] for one in found["documents"]] for found in answers if "documents" in found
    ]
    learnt = [found for found in answers if "accepted" in found]
    assert rankings == [["a", "b"], ["b", "a"]]
    assert learnt[0]["version"] == learnt[0]["seq"] == 1


def test_each_model_name_is_created_on_one_page() -> None:
    """So a reader can follow several pages on one service."""
    created = [
        (name, name_of(page))
        for page in PAGES
        for step in steps(page)
        for name in set(re.findall(r"-X PUT\b.*?/models/([\w-]+)", step.commands))
    ]
    assert len(created) > 5
    assert [
        name for name, count in Counter(name for name, _ in set(created)).items() if count > 1
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_examples_of_a_page_parse(page: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            json.loads(block.text)
        if block.language == "python" and ">>>" not in block.text:
            compile(block.text, name_of(page), "exec")


def test_the_python_clients_of_the_integration_page_work(tmp_path: Path) -> None:
    page = ROOT / "docs" / "integrate.md"
    first = next(one.commands for one in steps(page) if "/models/articles" in one.commands)
    python = [block.text for block in blocks(page) if block.language == "python"]
    binary, client = (text for text in python if "import httpx" in text)
    session = (
        'request, shown = rank("shoes", [{"id": "a", "features": [7, 3]}])\n'
        "assert request and shown == ['a']\n"
        'lost = click_event("articles.01970000-0000-7000-8000-000000000000", [])\n'
        "assert send([click_event(request, shown), lost]) == []\n"
    )
    with serving(data=tmp_path / "data") as service:
        for name, text in {"binary.py": binary, "client.py": f"{client}\n{session}"}.items():
            (tmp_path / name).write_text(text.replace("http://localhost:8000", service.url))
        commands = [first, "python binary.py", "python client.py"]
        outputs = run_commands(commands, tmp_path, service.url, real_curl=REAL_CURL)
    assert "'documents'" in outputs[1]
    assert "refused:" in outputs[2]


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=name_of)
def test_the_python_of_a_page_prints_what_the_page_shows(page: Path) -> None:
    failed, tried = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried
    assert failed == 0


def test_the_pages_have_the_hash_of_the_script_for_web_pages() -> None:
    pages = [*PAGES, *(ROOT / "clients").glob("*/README.md"), *(ROOT / "examples").glob("**/*.md")]
    found = [
        hash_
        for page in pages
        for hash_ in re.findall(r"sha384-[A-Za-z0-9+/=]{64}", page.read_text())
    ]
    assert len(found) >= 2
    assert set(found) == {integrity()}


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
    text = "".join(page.read_text() for page in (*PAGES, ROOT / "CONTRIBUTING.md"))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"run", "test", "check", "bench", "up", "docs"} <= named <= targets


def test_no_page_uses_a_deprecated_metric() -> None:
    for page in PAGES:
        if page.name != "metrics.md":
            text = page.read_text()
            named = [
                old for old in DEPRECATED_NAMES.values() if re.search(rf"\b{old}(_total)?\b", text)
            ]
            assert named == [], name_of(page)


def test_the_pytest_commands_of_the_documents_select_tests() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    named = re.findall(r"pytest -s (tests/\S+\.py)(?: -k (\w+))?`", text)
    assert len(named) >= 3
    for path, word in named:
        tests = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE)
        assert [test for test in tests if word in test], (path, word)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150


def test_the_architecture_page_lists_every_package_and_invariant_test() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    entries = [path for path in (ROOT / "app").iterdir() if not path.name.startswith("_")]
    names = {f"app/{path.name}" for path in entries} - {"app/py.typed"}
    assert 10 < len(names) <= 16
    assert [int(row) for row in re.findall(r"^\| I(\d+) \|", text, re.MULTILINE)] == [*range(1, 27)]
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
    layers = ["bench", "build", "cluster", "dev", "docs", "ops", "run"]
    assert [path.stem for path in files] == layers
    for path in files:
        text = path.read_text()
        assert "://" not in text
        assert "--index" not in text
        pins = re.findall(r"^[a-zA-Z0-9_.-]+==", text, re.MULTILINE)
        assert 0 < len(pins) <= text.count("--hash=sha256:")
