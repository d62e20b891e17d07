"""Every call of both clients against a real service."""

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from solar_client import (
    AsyncSolar,
    Conflict,
    InvalidArgument,
    Job,
    JobFailed,
    NotFound,
    Refused,
    RejectedEvent,
    Solar,
    Unauthorized,
)

from app.api.auth import new_key
from tests.api.services import PLAIN, Running, serving
from tests.api.trainings import JOB_TIMEOUT, as_json, judged_queries, letor
from tests.servers import TIMEOUT, until

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "a", "features": {"bm25": 7.1, "price": 12.0}},
    {"id": "b", "features": [9.8, 3.0]},
]
FEATURES = ["bm25", "price"]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture
def solar(service: Running) -> Iterator[Solar]:
    with Solar(service.url) as client:
        yield client


def test_a_ranking_is_clicked_and_learnt(solar: Solar) -> None:
    made = solar.create_model("books", FEATURES, normalization="query-minmax", prior=0)
    assert (made.features, made.version, made.queries) == (FEATURES, 0, 0)
    ranking = solar.rank(DOCUMENTS, model="books", query_id="q", timeout=TIMEOUT)
    assert (sorted(ranking.ids), ranking.degraded, ranking.logged) == (["a", "b"], False, True)
    assert solar.click(ranking, "b")
    assert solar.label(ranking.request_id, {"b": 1})
    assert solar.prefer(None, [("b", "a"), ("b", "a", 0.5)], documents=DOCUMENTS, model="books")
    result = solar.flush(TIMEOUT)
    assert (result.acknowledged, result.pending, result.rejected) == (3, 0, 0)
    until(lambda: solar.get_model("books").version == 3)
    rows = np.array([[7.1, 12.0], [9.8, 3.0]])
    after = solar.rank(["a", "b"], rows, model="books", explore=False, timeout=TIMEOUT, min_seq=3)
    assert (after.ids, after.version) == (["b", "a"], 3)
    explained = solar.rank(
        DOCUMENTS, model="books", explain=True, log=False, pinned=["a"], timeout=TIMEOUT
    )
    assert explained.ids[0] == "a"
    assert explained.documents[0].contributions is not None
    assert explained.request_id is None


def test_models_are_listed_changed_rolled_back_and_deleted(solar: Solar) -> None:
    solar.create_model("tuned", 3, **PLAIN)
    with pytest.raises(Conflict):
        solar.create_model("tuned", 4, **PLAIN)
    assert "tuned" in [one.name for one in solar.list_models()]
    assert solar.update_model("tuned", gamma=7.0) == 1
    until(lambda: solar.get_model("tuned").gamma == 7.0)
    assert [one.version for one in solar.list_versions("tuned")] == [0]
    assert solar.rollback("tuned", 0) == 2
    with pytest.raises(Refused):
        solar.rollback("tuned", 77)
    solar.delete_model("tuned")
    with pytest.raises(NotFound):
        solar.get_model("tuned")
    with pytest.raises(InvalidArgument):
        solar.get_model("../jobs")


def test_models_are_listed_page_by_page(service: Running) -> None:
    with service.client() as http:
        for at in range(3):
            assert http.put(f"/models/page{at}", json={"features": 1}).status_code == 201
        first = http.get("/models", params={"limit": 1}).json()
    assert first["next"]
    with Solar(service.url) as solar:
        assert {"page0", "page1", "page2"} <= {one.name for one in solar.list_models()}


@pytest.mark.parametrize("kind", ["bytes", "gzip", "file", "files", "queries"])
def test_a_warm_start_reports_its_progress_and_replaces_the_model(
    solar: Solar, kind: str, tmp_path: Path
) -> None:
    queries = judged_queries()
    one, two = tmp_path / "one.txt", tmp_path / "two.txt.gz"
    one.write_bytes(letor(queries[:6]))
    with gzip.open(two, "wb") as file:
        file.write(letor(queries[6:]).replace(b"qid:q", b"qid:r"))
    data = {
        "bytes": letor(queries), "gzip": gzip.compress(letor(queries)), "file": one,
        "files": [one, two], "queries": as_json(queries),
    }  # fmt: skip
    solar.create_model(f"warm-{kind}", 3)
    seen: list[Job] = []
    job = solar.warm_start(f"warm-{kind}", data[kind], C=0.1, on_progress=seen.append)  # type: ignore[arg-type]
    assert (job.state, seen[-1], job.share_done) == ("done", job, 1.0)
    assert job.result is not None
    assert job.result["queries"] == (6 if kind == "file" else 12)
    until(lambda: any(solar.get_model(f"warm-{kind}").weights.values()))
    assert job.id in [one.id for one in solar.list_jobs()]
    with pytest.raises(Conflict):
        solar.cancel_job(job.id)
    with pytest.raises(Conflict):
        solar.restart_job(job.id)


def test_a_cancelled_job_is_an_error_for_those_who_wait(solar: Solar) -> None:
    solar.create_model("cancelled", 3)
    data = letor(judged_queries(queries=600, documents=40))
    job = solar.warm_start("cancelled", data, wait=False)
    solar.cancel_job(job.id)
    with pytest.raises(JobFailed, match="cancelled"):
        solar.wait_for_job(job.id, timeout=JOB_TIMEOUT)


def test_more_refused_events_than_an_answer_lists_are_all_reported(service: Running) -> None:
    """An answer lists errors of 2 kB at most; the accepted events are then sent twice."""
    refused: list[RejectedEvent] = []
    with Solar(service.url, model="mixed", on_rejected=refused.append) as solar:
        solar.create_model("mixed", FEATURES)
        ranking = solar.rank(DOCUMENTS, timeout=TIMEOUT)
        unknown = [f"unknown-{at}" for at in range(60)]
        wrong = {solar.click(request, "a") for request in unknown}
        right = [solar.click(ranking, "a", event_id=f"right-{at}") for at in range(20)]
        result = solar.flush(TIMEOUT)
        until(lambda: len(refused) == 60)
        assert (result.acknowledged, result.rejected, result.pending) == (20, 60, 0)
        assert {one.event_id for one in refused} == wrong
        assert {one.status for one in refused} == {404}
        assert solar.get_model("mixed").seq == len(right)


def test_keys_are_sent_and_a_wrong_one_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    key, entry = new_key("web", "rank+feedback+admin")
    with serving(environ={"SOLAR_KEYS": entry}) as running:
        with Solar(running.url, key) as solar:
            solar.create_model("default", FEATURES)
            solar.click(solar.rank(DOCUMENTS, timeout=TIMEOUT), "a")
            assert solar.flush(TIMEOUT).acknowledged == 1
        wrong = key[:-4] + "0000"
        with Solar(running.url, wrong) as solar:
            with pytest.raises(Unauthorized) as raised:
                solar.rank(DOCUMENTS, timeout=TIMEOUT)
            solar.click("page-1", "a")
            assert solar.flush(TIMEOUT).rejected == 1
            until(lambda: "was refused: 401" in caplog.text)
        assert wrong not in f"{raised.value!r} {caplog.text}"


def test_the_asynchronous_client_has_the_same_calls(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "judged.txt"
    path.write_bytes(letor(judged_queries(n=2)))

    async def act() -> None:
        async with AsyncSolar(service.url, model="later") as solar:
            await solar.create_model("later", FEATURES, prior=0)
            rankings = await asyncio.gather(
                *(solar.rank(DOCUMENTS, timeout=TIMEOUT) for _ in range(20))
            )
            for ranking in rankings:
                assert solar.click(ranking, "b")
            assert (await solar.flush(TIMEOUT)).acknowledged == 20
            assert (await solar.get_model("later")).seq == 20
            assert "later" in [one.name async for one in solar.list_models()]
            assert [one.version for one in await solar.list_versions("later")] == [0]
            assert await solar.rollback("later", 0) == 21
            assert await solar.update_model("later", gamma=8.0) == 22
            seen: list[Job] = []
            job = await solar.warm_start("later", path, C=0.1, on_progress=seen.append)
            assert (job.state, await solar.get_job(job.id)) == ("done", job)
            assert job.id in [one.id async for one in solar.list_jobs()]
            with pytest.raises(Conflict):
                await solar.cancel_job(job.id)
            with pytest.raises(Conflict):
                await solar.restart_job(job.id)
            await solar.delete_model("later")

    asyncio.run(act())
