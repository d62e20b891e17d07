"""A request visits few files, so a reader can follow it."""

import asyncio
import re
from pathlib import Path

import pytest

from app.storage.keys import check_name
from tools import trace_request
from tools.trace_request import CLICK, COMMIT, RANK, files_of, profiling

APP = Path(trace_request.APP)
MAX_FILES = {RANK: 14, CLICK: 15, COMMIT: 30}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return trace_request.trace()


@pytest.mark.parametrize("walk", MAX_FILES, ids=["rank", "click", "commit"])
def test_a_request_visits_at_most_its_limit_of_files(
    found: dict[str, list[str]], walk: str
) -> None:
    files = found[walk]
    assert len(files) <= MAX_FILES[walk], "\n".join(files)


def test_the_files_of_a_request_exist_and_lead_from_its_start_to_the_store(
    found: dict[str, list[str]],
) -> None:
    for walk, package in ((RANK, "api"), (CLICK, "api"), (COMMIT, "learning")):
        files = found[walk]
        assert all((APP / file).is_file() for file in files)
        assert len(files) == len(set(files))
        assert files[0].split("/")[0] == package
        assert any(file.startswith("storage/") for file in files)
    assert "ranking/solar.py" in found[COMMIT]  # records are applied in a thread


@pytest.mark.parametrize(
    ("walk", "start", "end"),
    [
        (RANK, "## A `/rank` request", "## A click"),
        (CLICK, "## A click", "From the record to new weights"),
        (COMMIT, "From the record to new weights", "A request that duels"),
    ],
    ids=["rank", "click", "commit"],
)
def test_the_architecture_page_lists_the_files_of_a_walk(
    found: dict[str, list[str]], walk: str, start: str, end: str
) -> None:
    text = (APP.parent / "docs" / "architecture.md").read_text()
    section = text[text.index(start) : text.index(end)]
    assert set(re.findall(r"`app/(\S+\.py)`", section)) == set(found[walk])


def test_the_table_lists_every_request_and_every_file() -> None:
    text = trace_request.table({RANK: ["api/one.py", "two.py"], COMMIT: ["two.py"]})
    assert [line.split() for line in text.splitlines()] == [
        ["POST", "/rank", "2", "files"],
        ["1", "app/api/one.py"],
        ["2", "app/two.py"],
        ["record", "→", "committed", "1", "files"],
        ["1", "app/two.py"],
    ]


def visited(*, background: bool) -> list[str]:
    """Return the files of an idle walk, or of one that starts tasks, beside another walk."""

    async def call() -> None:
        await asyncio.sleep(0.01)
        check_name("model")

    async def nothing() -> None:
        await asyncio.sleep(0.03)

    async def start_others() -> None:
        await asyncio.gather(asyncio.create_task(nothing()), asyncio.to_thread(check_name, "model"))

    async def run() -> list[str]:
        beside = asyncio.create_task(call())
        files = await files_of(nothing() if background else start_others())
        await beside
        return files

    with profiling():
        return asyncio.run(run())


def test_tasks_started_by_a_request_count_and_concurrent_tasks_do_not() -> None:
    assert visited(background=True) == []
    assert visited(background=False) == ["storage/keys.py"]
