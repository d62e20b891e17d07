"""Calls that share a round trip: each gets its own answer, or its own error."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.domain.records import Feedback
from app.domain.work import RECORD_WORK
from app.errors import Backlog, WorkBacklog
from app.ingest.appender import Appender, PendingEvent, Post
from app.learning.options import LearnerOptions
from app.learning.pool import learn_all
from app.learning.replay import verify
from app.storage.batching import LARGE, MemoryBudget, MicroBatcher
from app.storage.log import APPENDED, REPEATED, NewImpression
from app.storage.store import Store
from tests.faults.event_generator import MODEL, EventGenerator, new_model
from tests.servers import eventually, server, url, with_store

__all__ = ["server", "url"]  # fixtures


def test_items_that_arrive_during_a_call_share_the_next_call() -> None:
    calls: list[list[int]] = []

    async def scenario() -> list[int]:
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def double(_: str, items: list[int]) -> list[int | Exception]:
            calls.append(items)
            under_way.set()
            await go_on.wait()
            return [2 * item for item in items]

        grouped = MicroBatcher(double)
        first = grouped("key", 1)
        await under_way.wait()
        others = [grouped("key", item) for item in (2, 3, 4)]
        go_on.set()
        return [*await asyncio.gather(*others), await first]

    assert asyncio.run(scenario()) == [4, 6, 8, 2]
    assert calls == [[1], [2, 3, 4]]


def test_an_error_affects_only_its_items_and_the_next_group_runs() -> None:
    async def picky(_: str, items: list[int]) -> list[int | Exception]:
        if 13 in items:
            raise Backlog("not now")
        return [ValueError(str(item)) if item < 0 else item for item in items]

    async def scenario() -> list[Any]:
        grouped = MicroBatcher(picky)
        some = await asyncio.gather(*(grouped("k", one) for one in (1, -2)), return_exceptions=True)
        more = await asyncio.gather(*(grouped("k", one) for one in (13, 5)), return_exceptions=True)
        return [*some, *more, await grouped("k", 7)]

    found = asyncio.run(scenario())
    assert found[0] == 1
    assert isinstance(found[1], ValueError)
    assert isinstance(found[2], Backlog)
    assert isinstance(found[3], Backlog)
    assert found[4] == 7


def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async def scenario() -> int:
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_: str, items: list[int]) -> list[int | Exception]:
            under_way.set()
            await go_on.wait()
            return list(items)

        grouped = MicroBatcher(slow)
        leaving, staying = (grouped("k", item) for item in (1, 2))
        await under_way.wait()
        leaving.cancel()
        go_on.set()
        return await staying

    assert asyncio.run(scenario()) == 2


def test_an_item_cancelled_before_the_call_is_left_out_and_closing_waits_for_the_rest() -> None:
    calls: list[list[int]] = []

    async def scenario() -> int:
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_: str, items: list[int]) -> list[int | Exception]:
            calls.append(items)
            under_way.set()
            await go_on.wait()
            return list(items)

        grouped = MicroBatcher(slow)
        first, leaving, staying = (grouped("k", item) for item in (1, 2, 3))
        leaving.cancel()
        await under_way.wait()
        gone = grouped("k", 4)
        gone.set_result(0)
        go_on.set()
        await grouped.close()
        assert first.done()
        return await staying

    assert asyncio.run(scenario()) == 3
    assert calls == [[1, 3]]


def test_concurrent_posts_are_each_in_the_log_once_also_on_one_request(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, generator, stop = await new_model(store), EventGenerator(8), asyncio.Event()
        requests = await generator.show(store, epoch, 3)
        appender = Appender(store, 1 << 40, 60.0)
        learning = asyncio.create_task(learn_all(store, stop, LearnerOptions(idle=0.05)))

        async def one(posted: PendingEvent) -> tuple[int, int]:
            key = (MODEL, epoch)
            asked = [posted.feedback.query] if posted.on_request else []
            impressions = (await appender.load_impressions(key, asked)).impressions
            (became,) = await appender.post(key, Post([posted], impressions))
            return became

        events = [generator.labels() for _ in range(20)]
        events += [generator.click(request) for request in requests for _ in range(7)]
        answers = await asyncio.gather(*(one(event) for event in [*events, *events[:5]]))
        assert [outcome for outcome, _ in answers] == [APPENDED] * 41 + [REPEATED] * 5
        assert sorted(seq for _, seq in answers[:41]) == list(range(1, 42))
        assert answers[41:] == [(REPEATED, seq) for _, seq in answers[:5]]
        await eventually(lambda: store.states.position(MODEL), lambda found: found[1] == 41)
        state = (await store.states.load(MODEL)).state
        assert state.measures()["rejected"] == 0
        assert state.measures()["queries"] == 20 + len(requests)
        stop.set()
        await learning
        assert await verify(store, MODEL) == []

    with_store(url, act)


def test_a_post_that_cannot_be_built_is_refused_alone(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, generator = await new_model(store), EventGenerator(9)
        (request,) = await generator.show(store, epoch, 1)
        appender, shown = Appender(store, 1 << 40, 60.0), generator.rankings[request]
        beyond = Feedback(
            "bad", "clicks", shown.documents, shown.submitted,
            clicks=np.array([99]), query=request,
        )  # fmt: skip
        impressions = (await appender.load_impressions((MODEL, epoch), [request])).impressions
        posts = [
            Post([generator.labels()], {}),
            Post([PendingEvent(beyond, on_request=True)], impressions),
            Post([generator.labels()], {}),
        ]
        first = appender.post((MODEL, epoch), Post([generator.labels()], {}))
        await asyncio.sleep(0)
        became = await asyncio.gather(
            *(appender.post((MODEL, epoch), one) for one in posts), return_exceptions=True
        )
        await first
        assert isinstance(became[1], ValueError)
        assert await store.log.tail(MODEL) == 3

    with_store(url, act)


def test_at_the_backlog_limit_all_posts_of_a_group_are_refused(url: str) -> None:
    async def act(store: Store) -> None:
        epoch, generator = await new_model(store), EventGenerator(10)
        appender = Appender(store, 2, 60.0)
        posts = [appender.post((MODEL, epoch), Post([generator.labels()], {})) for _ in range(5)]
        became = await asyncio.gather(*posts, return_exceptions=True)
        assert any(isinstance(one, Backlog) for one in became)
        assert await store.log.tail(MODEL) <= 2
        with pytest.raises(Backlog):
            await appender.post(
                (MODEL, epoch),
                Post([generator.labels(), generator.labels(), generator.labels()], {}),
            )

    with_store(url, act)


@pytest.mark.parametrize("pair_work", [2 * RECORD_WORK, 3 * RECORD_WORK])
def test_a_post_of_little_work_is_accepted_beside_a_post_over_the_limit_of_work(
    url: str, pair_work: int
) -> None:
    """The group exceeds the limit together with what waits, or alone."""

    async def act(store: Store) -> None:
        epoch, generator = await new_model(store), EventGenerator(11)
        appender = Appender(store, 1000, 60.0, work_limit=12 * RECORD_WORK)
        heavy = replace(generator.triplets(), pair_work=pair_work)  # of 4 pairs
        posts = [Post([one], {}) for one in (generator.labels(), heavy, generator.labels())]
        first = appender.post((MODEL, epoch), Post([generator.labels(), generator.labels()], {}))
        await asyncio.sleep(0)
        became = await asyncio.gather(
            *(appender.post((MODEL, epoch), one) for one in posts), return_exceptions=True
        )
        await first
        assert [isinstance(one, WorkBacklog) for one in became] == [False, True, False]
        assert await store.log.tail(MODEL) == 4

    with_store(url, act)


def test_a_post_loads_impressions_within_its_own_limit_beside_other_posts(url: str) -> None:
    """Each post reserved memory for its limit; the first one must not take that of all."""

    async def act(store: Store) -> None:
        epoch, names = await new_model(store), [f"r{at}" for at in range(9)]
        for name in names:
            await store.log.store_impressions(
                MODEL, epoch, [NewImpression(name, bytes(1000))], 60.0
            )
        appender, key = Appender(store, 1 << 40, 60.0), (MODEL, epoch)
        loads = [appender.load_impressions(key, names[at::3], 2600) for at in range(3)]
        assert [(await one).count for one in loads] == [2, 2, 2]
        assert (await appender.load_impressions(key, names, 999)).count == 1
        small = appender.load_small_impressions(key, [*names[:3], "unknown"], 2999)
        *first, third, unknown = (await small).sizes
        assert ((await small).count, first, unknown) == (2, [1000, 1000], 0)
        assert 1000 <= third <= 1500  # the memory of the store
        assert (await appender.load_small_impressions(key, ["unknown"], 0)).count == 1

    with_store(url, act)


def test_a_decoded_request_does_not_wait_behind_bodies_that_are_not_decoded() -> None:
    """Else every body of a group is decoded before the first one frees its values."""

    async def scenario() -> int:
        memory, decoded, most = MemoryBudget(1 << 40), 0, 0

        async def request() -> None:
            nonlocal decoded, most
            await memory.turn(LARGE + 1, body=True)
            decoded += 1
            most = max(most, decoded)
            await memory.turn(LARGE + 1)
            decoded -= 1

        await asyncio.gather(*(request() for _ in range(20)))
        return most

    assert asyncio.run(scenario()) <= 3
