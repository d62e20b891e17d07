"""Impressions, earlier feedback, and the records of posts on one request."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.impressions import Impression, PriorFeedback, measured_labels, on_request
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, ResetMeasures
from app.domain.reducer import Reducer
from app.errors import BadBlob, NoSuchModel
from app.ingest.appender import PendingEvent, post
from app.learning.replay import SourceFilter
from app.storage.log import APPENDED, NO_IMPRESSION, OTHER_BODY, REPEATED, NewImpression
from app.storage.store import Store
from tests import test_reducer
from tests.servers import server, url, with_store
from tests.test_codec import bits
from tests.test_reducer import Post, applied, posts_on, rankings, start

__all__ = ["server", "url"]  # fixtures

DOCUMENTS = np.eye(4, 3, dtype=np.float32)
SHOWN = Impression(("a", "b", "c", "d"), DOCUMENTS, np.array([2, 0, 3, 1]))
NOTHING = PriorFeedback.load(b"")


def clicks(*positions: int, event: str = "e", query: str = "r") -> Feedback:
    return Feedback(
        event,
        "clicks",
        DOCUMENTS,
        SHOWN.submitted,
        clicks=np.array(positions, np.int64),
        query=query,
    )


# ---- values ----


def test_ids_map_to_their_positions() -> None:
    assert SHOWN.positions(["c", "a", "c"]).tolist() == [2, 0, 2]
    assert SHOWN.positions([]).dtype == np.int64


def test_an_id_that_was_not_shown_is_refused_by_its_index_and_not_echoed() -> None:
    with pytest.raises(
        ValueError, match="document 1: expected the id of a document that was shown"
    ) as caught:
        SHOWN.positions(["a", "secret"])
    assert "secret" not in str(caught.value)


def test_an_impression_survives_encoding() -> None:
    assert bits(Impression.load(SHOWN.dump())) == bits(SHOWN)


@pytest.mark.parametrize("blob", [b"junk", NOTHING.dump(), codec.dump_record(ResetMeasures())])
def test_other_bytes_are_not_an_impression(blob: bytes) -> None:
    with pytest.raises(BadBlob):
        Impression.load(blob)


def test_no_bytes_mean_a_request_without_feedback() -> None:
    assert NOTHING.clicks.tolist() == []
    assert NOTHING.counted is None


def test_clicks_add_up_and_the_record_contains_the_earlier_ones() -> None:
    one, after_one = on_request(clicks(2), NOTHING)
    two, after_two = on_request(clicks(0, 2), PriorFeedback.load(after_one.dump()))
    assert one.clicked_before is None or not len(one.clicked_before)
    assert one.counted is None
    assert two.clicked_before is not None
    assert two.counted is not None
    assert two.clicked_before.tolist() == [2]
    assert two.counted.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert after_two.clicks.tolist() == [2, 0, 2]
    assert measured_labels(two).tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("positions", [[4], [-1]])
def test_a_click_beyond_the_ranking_gives_no_record(positions: list[int]) -> None:
    with pytest.raises(ValueError, match="expected numbers from 0 to 3"):
        on_request(clicks(*positions), NOTHING)


# ---- posting ----


async def begin(store: Store) -> int:
    epoch = await store.models.create("books", initial_state(ModelConfig(("x", "y", "z"))))
    await store.log.store_impressions(
        "books", epoch, [NewImpression("r", SHOWN.dump()), NewImpression("s", SHOWN.dump())], 60.0
    )
    return epoch


async def send(store: Store, epoch: int, *events: Feedback) -> list[Any]:
    posted = [PendingEvent(event, on_request=event.submitted is not None) for event in events]
    return await post(store, "books", epoch, posted, limit=10_000, time=1)


async def log(store: Store) -> list[Any]:
    return [codec.load_record(entry.record) for entry in await store.log.read("books", 0, 1000)]


def test_events_of_one_post_build_on_each_other(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await begin(store)
        events = [clicks(2, event="1"), clicks(0, event="2"), clicks(3, event="3", query="s")]
        assert await send(store, epoch, *events) == [(APPENDED, 1), (APPENDED, 2), (APPENDED, 3)]
        records = await log(store)
        assert records[1].clicked_before.tolist() == [2]
        assert records[1].counted.tolist() == [0.0, 0.0, 1.0, 0.0]
        assert records[2].counted is None
        found = await store.log.load_impressions("books", epoch, ["r"])
        assert found[0] is not None
        assert PriorFeedback.load(found[0].accumulated).clicks.tolist() == [2, 0]

    with_store(url, act)


def test_a_repeated_post_gets_the_same_answer_and_its_new_events_are_built_correctly(
    url: str,
) -> None:
    async def act(store: Store) -> None:
        epoch = await begin(store)
        await send(store, epoch, clicks(2, event="1"))
        answers = await send(
            store, epoch, clicks(2, event="1"), clicks(0, event="2"), clicks(1, event="1")
        )
        assert answers == [(REPEATED, 1), (APPENDED, 2), (OTHER_BODY, 1)]
        records = await log(store)
        assert len(records) == 2
        assert records[1].clicked_before.tolist() == [2]

    with_store(url, act)


def test_concurrent_clicks_on_one_request_count_once_each(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await begin(store)
        events = [clicks(at % 4, event=str(at)) for at in range(24)]
        answers = await asyncio.gather(*(send(store, epoch, event) for event in events))
        assert {answer[0].outcome for answer in answers} == {APPENDED}
        reducer = Reducer(initial_state(ModelConfig(("x", "y", "z"))))
        seen: list[int] = []
        for entry in await store.log.read("books", 0, 100):
            record = codec.load_record(entry.record)
            assert isinstance(record, Feedback)
            before = [] if record.clicked_before is None else record.clicked_before.tolist()
            assert before == seen
            assert record.clicks is not None
            seen += record.clicks.tolist()
            assert reducer.apply(entry.record)
        assert len(seen) == 24
        assert reducer.state().measures()["queries"] == 1.0

    with_store(url, act)


def test_an_event_on_an_expired_request_is_refused_and_the_others_are_appended(url: str) -> None:
    async def act(store: Store) -> None:
        epoch = await begin(store)
        own = replace(clicks(1, event="own"), submitted=None, query="")
        gone = [clicks(1, event="1", query="gone"), clicks(2, event="2", query="gone")]
        answers = await send(store, epoch, *gone, own)
        assert answers == [(NO_IMPRESSION, 0), (NO_IMPRESSION, 0), (APPENDED, 1)]
        with pytest.raises(NoSuchModel):
            await send(store, epoch + 1, own)

    with_store(url, act)


# ---- without a source (I22), record by record ----


@st.composite
def sourced(draw: st.DrawFn) -> list[tuple[Post, str]]:
    """Posts of two sources on few requests, so that they share requests."""
    requests = [draw(rankings(2, f"r{at}")) for at in range(draw(st.integers(1, 2)))]
    return [
        (draw(posts_on(draw(st.sampled_from(requests)))), draw(st.sampled_from(["good", "bad"])))
        for _ in range(draw(st.integers(1, 10)))
    ]


def as_log(posts: list[tuple[Post, str]]) -> list[bytes]:
    so_far: dict[str, PriorFeedback] = {}
    blobs = []
    for at, (posted, source) in enumerate(posts):
        feedback = replace(posted.feedback(f"{source}-{at}"), source=source)
        if feedback.submitted is not None:
            before = so_far.get(feedback.query, NOTHING)
            feedback, so_far[feedback.query] = on_request(feedback, before)
        blobs.append(codec.dump_record(feedback))
    return blobs


LISTED = test_reducer.Impression("r", np.eye(4, 2, dtype=np.float32), np.arange(4))


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(sourced())
@example(
    [
        (Post(LISTED, "clicks", [2]), "good"),
        (Post(LISTED, "labels", [0.0, 3.0, 0.0, 0.0]), "bad"),
        (Post(LISTED, "clicks", [1]), "good"),
    ]
)
def test_a_replay_without_a_source_equals_a_log_without_it(
    posts: list[tuple[Post, str]],
) -> None:
    numbered = as_log(posts)
    without = SourceFilter("bad")
    kept = [blob for blob in map(without.keep, numbered) if blob is not None]
    never = as_log([(posted, source) for posted, source in posts if source == "good"])
    begin = start(2, gamma=10.0)
    found, expected = applied(begin, kept), applied(begin, never)
    assert found.seq == expected.seq
    assert bits(found.model) == bits(expected.model)
    assert found.sums.tobytes() == expected.sums.tobytes()


def test_a_request_id_reused_after_expiry_is_a_new_request() -> None:
    """Without the source, the second request with this id is unchanged."""
    bad, good = replace(clicks(2), source="bad"), replace(clicks(1), source="good")
    earlier = [good, bad]
    so_far, log_ = NOTHING, []
    for event in earlier:
        record, so_far = on_request(event, so_far)
        log_.append(codec.dump_record(record))
    again = codec.dump_record(on_request(good, NOTHING)[0])  # a new impression with the same id
    without = SourceFilter("bad")
    assert [without.keep(blob) for blob in [*log_, again]] == [log_[0], None, again]


def test_a_source_filter_keeps_records_of_other_sources_byte_for_byte() -> None:
    without = SourceFilter("bad")
    for blob in (b"junk", codec.dump_record(ResetMeasures()), *as_log([(OWN, "good")])):
        assert without.keep(blob) == blob
    assert without.keep(as_log([(OWN, "bad")])[0]) is None


OWN = Post(test_reducer.OWN, "clicks", [1])
