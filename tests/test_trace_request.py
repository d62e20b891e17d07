"""A request crosses few files: whoever follows it must not read half of the package."""

import asyncio
from pathlib import Path

import pytest

from app.storage.keys import check_name
from tools import trace_request
from tools.trace_request import CLICK, COMMIT, RANK, files_of, profiling

APP = Path(trace_request.APP)
MOST = {RANK: 14, CLICK: 12, COMMIT: 15}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return trace_request.trace()


@pytest.mark.parametrize("walk", MOST, ids=["rank", "click", "commit"])
def test_a_walk_crosses_no_more_files_than_it_may(found: dict[str, list[str]], walk: str) -> None:
    files = found[walk]
    assert len(files) <= MOST[walk], "\n".join(files)


def test_the_files_of_a_walk_are_real_and_reach_from_its_start_to_the_store(
    found: dict[str, list[str]],
) -> None:
    for walk, package in ((RANK, "api"), (CLICK, "api"), (COMMIT, "learning")):
        files = found[walk]
        assert all((APP / file).is_file() for file in files)
        assert len(files) == len(set(files))
        assert files[0].split("/")[0] == package
        assert any(file.startswith("storage/") for file in files)
    assert "ranking/solar.py" in found[COMMIT]  # it learns in a thread


def test_the_table_names_every_walk_and_every_file() -> None:
    text = trace_request.table({RANK: ["api/one.py", "two.py"], COMMIT: ["two.py"]})
    assert [line.split() for line in text.splitlines()] == [
        ["POST", "/rank", "2", "files"],
        ["1", "app/api/one.py"],
        ["2", "app/two.py"],
        ["record", "→", "committed", "1", "files"],
        ["1", "app/two.py"],
    ]


def crossed(*, background: bool) -> list[str]:
    """The files of a walk that does nothing, or starts tasks, beside one that calls our code."""

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


def test_what_a_walk_starts_counts_and_what_runs_beside_it_does_not() -> None:
    assert crossed(background=True) == []
    assert crossed(background=False) == ["storage/keys.py"]
