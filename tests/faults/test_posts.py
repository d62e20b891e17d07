"""Events that are posted twice, concurrently, with another body, or at the backlog limit."""

import asyncio
import contextlib

import numpy as np

from app.domain import codec
from app.domain.model import initial_state
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.errors import Backlog
from app.ingest.appender import PendingEvent, post
from app.storage.keys import Keys
from app.storage.log import APPENDED, OTHER_BODY, REPEATED
from tests.faults import rounds
from tests.faults.checker import check, read_stored
from tests.faults.event_generator import MODEL, SETTINGS, SHOWN, EventGenerator
from tests.faults.feedback_clients import NO_LIMIT, Ledger, post_until_answered
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import ObservedModel, observed_model, opened, run_scenario
from tests.faults.proxy import Proxy, call
from tests.faults.server import Server

CLIENTS = 20


async def post_concurrently(
    url: str, model: ObservedModel, posts: list[list[PendingEvent]]
) -> None:
    """Send all posts at the same time, each from another client."""

    async def by_one_client(events: list[PendingEvent]) -> None:
        async with opened(url) as store:
            await post_until_answered(store, model.epoch, events, model.ledger)

    await asyncio.gather(*map(by_one_client, posts))


def test_an_event_posted_by_many_clients_has_one_record_and_one_seq(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 31) as model:
            generator = EventGenerator(31)
            await generator.show(model.store, model.epoch, 5)
            for _ in range(rounds(10)):
                events = [generator.event() for _ in range(3)]
                await post_concurrently(server.url, model, [events] * CLIENTS)
            pool.start(server.url)
            found = await check(server.url, model.ledger, "same event at once", watch=model.watch)
            assert len(found.records) == len(model.ledger.acknowledged)
            assert model.ledger.repeats == (CLIENTS - 1) * len(found.records)

    run_scenario(scenario())


def test_an_event_twice_in_one_post_has_one_record(server: Server, pool: LearnerProcesses) -> None:
    async def scenario() -> None:
        async with observed_model(server, 32) as model:
            generator = EventGenerator(32)
            await generator.show(model.store, model.epoch, 1)
            for event in [
                generator.click("e.list0"),
                generator.labels(),
                generator.click("e.list0"),
            ]:
                await post_until_answered(model.store, model.epoch, [event, event], model.ledger)
            pool.start(server.url)
            found = await check(server.url, model.ledger, "twice in one post", watch=model.watch)
            assert len(found.records) == 3

    run_scenario(scenario())


def test_one_of_two_bodies_with_the_same_id_is_stored(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 33) as model:
            one, other = EventGenerator(33), EventGenerator(34)
            for _ in range(rounds(10)):
                await both_at_once(model, one.labels(), other.labels())
            pool.start(server.url)
            await check(server.url, model.ledger, "same id, other body", watch=model.watch)

    async def both_at_once(model: ObservedModel, *bodies: PendingEvent) -> None:
        posts = [
            post(model.store, MODEL, model.epoch, [body], limit=NO_LIMIT, time=0)
            for body in (*bodies, *bodies)
        ]
        answers = [answer for [answer] in await asyncio.gather(*posts)]
        outcomes = sorted(answer.outcome for answer in answers)
        assert outcomes == [APPENDED, REPEATED, OTHER_BODY, OTHER_BODY]
        for body, answer in zip((*bodies, *bodies), answers, strict=True):
            if answer.outcome != OTHER_BODY:
                model.ledger.note([body], [answer])

    run_scenario(scenario())


def test_a_refused_post_stores_nothing_and_the_backlog_stays_in_its_limit(
    server: Server, pool: LearnerProcesses
) -> None:
    limit = 20

    async def one_post(model: ObservedModel, events: list[PendingEvent]) -> bool:
        try:
            answers = await post(model.store, MODEL, model.epoch, events, limit=limit, time=0)
        except Backlog:
            return False
        model.ledger.note(events, answers)
        return True

    async def scenario() -> None:
        async with observed_model(server, 35) as model:
            generator = EventGenerator(35)
            posts = [[generator.event() for _ in range(3)] for _ in range(CLIENTS)]
            done = await asyncio.gather(*(one_post(model, events) for events in posts))
            assert limit - 3 < 3 * sum(done) <= limit
            assert await model.store.log.tail(MODEL) == 3 * sum(done)
            refused = [events for events, ok in zip(posts, done, strict=True) if not ok]
            names = [event.feedback.event for events in refused for event in events]
            keys = [Keys(MODEL).event(model.epoch, name) for name in names]
            assert await model.store._client.exists(*keys) == 0
            pool.start(server.url)
            for events in refused:
                await post_until_answered(
                    model.store, model.epoch, events, model.ledger, limit=limit
                )
            await check(server.url, model.ledger, "backlog", watch=model.watch)

    run_scenario(scenario())


def test_a_repeated_event_is_answered_even_at_the_backlog_limit(server: Server) -> None:
    async def scenario() -> None:
        async with observed_model(server, 36) as model:
            posted = [EventGenerator(36).labels()]
            for _ in range(2):
                answers = await post(model.store, MODEL, model.epoch, posted, limit=1, time=0)
                model.ledger.note(posted, answers)
            assert model.ledger.repeats == 1

    run_scenario(scenario())


def test_a_post_with_one_outdated_event_is_not_stored_in_part(server: Server) -> None:
    """Another click on the same request makes one of two events outdated."""
    limit = 3

    async def scenario() -> None:
        async with (
            observed_model(server, 37) as model,
            Proxy(server.socket) as proxy,
            opened(proxy.url) as store,
        ):
            generator, others = EventGenerator(37), EventGenerator(37, "other")
            [request] = await generator.show(model.store, model.epoch, 1)
            others.rankings = generator.rankings

            async def interfere(asked: bytes) -> None:
                if call("append") in asked and await model.store.log.tail(MODEL) < limit:
                    await post_until_answered(
                        model.store, model.epoch, [others.click(request)], Ledger()
                    )

            proxy.on_request = interfere
            events = [generator.labels(), generator.click(request)]
            with contextlib.suppress(Backlog):
                answers = await post(store, MODEL, model.epoch, events, limit=limit, time=0)
                model.ledger.note(events, answers)
            names = {one.event for one in (await read_stored(server.url)).feedback().values()}
            stored = [event.feedback.event in names for event in events]
            assert stored == [bool(model.ledger.acknowledged)] * 2

    run_scenario(scenario())


def test_concurrent_clicks_on_one_ranking_are_learnt_once_and_the_query_counts_once(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 38) as model:
            generator = EventGenerator(38)
            learner = pool.start(server.url)
            for request in await generator.show(model.store, model.epoch, rounds(4)):
                positions = [*range(SHOWN), *range(SHOWN)]
                posts = [[generator.click(request, at)] for at in positions]
                await post_concurrently(server.url, model, posts + posts)
            found = await check(server.url, model.ledger, "clicks at once", watch=model.watch)
            assert learner.runs()
            assert len(found.records) == 2 * SHOWN * rounds(4)
            check_same_measures_as_one_record(list(found.feedback().values()))
            assert (await model.store.states.load(MODEL)).state.measures()["queries"] == rounds(4)

    run_scenario(scenario())


def check_same_measures_as_one_record(records: list[Feedback]) -> None:
    """Check the sums against one record with all clicks of a request."""
    one_by_one, in_one_go = Reducer(initial_state(SETTINGS)), Reducer(initial_state(SETTINGS))
    clicks: dict[str, list[int]] = {}
    gains: dict[str, list[float]] = {}
    for record in records:
        one_by_one.apply(codec.dump_record(record))
        assert record.clicks is not None
        clicks.setdefault(record.query, []).extend(record.clicks.tolist())
        given = np.ones(len(record.clicks)) if record.gains is None else record.gains
        gains.setdefault(record.query, []).extend(given.tolist())
    last = {record.query: record for record in records}
    for query, all_of_them in clicks.items():
        found, depths = last[query], [one.examined for one in records if one.query == query]
        whole = Feedback(
            "all", "clicks", found.documents, found.submitted, odds=found.odds,
            clicks=np.array(all_of_them), gains=np.array(gains[query]),
            examined=max(one for one in depths if one is not None),
        )  # fmt: skip
        in_one_go.apply(codec.dump_record(whole))
    measured = slice(0, 11)
    np.testing.assert_allclose(
        one_by_one.state().sums[measured], in_one_go.state().sums[measured], rtol=1e-12
    )
    assert len(clicks) == one_by_one.state().sums[0]
