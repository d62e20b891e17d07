"""Connections that end between a request and its answer: redis-py resends."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from app.errors import ModelExists
from app.ingest.appender import post
from app.storage.store import Store
from tests.faults import rounds
from tests.faults.checker import check
from tests.faults.event_generator import MODEL, EventGenerator, new_model
from tests.faults.feedback_clients import FeedbackClients, Ledger, new_clients, post_until_answered
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import ObservedModel, observed_model, opened, run_scenario
from tests.faults.proxy import Cut, Late, OnAnswer, OnRequest, Proxy, call
from tests.faults.server import Server
from tests.faults.waiting import until


def cut_first_answer(script: str) -> OnAnswer:
    """Cut the connection at the first answer of a script."""
    cut = False

    async def answered(request: bytes, answer: bytes) -> None:
        nonlocal cut
        if call(script) in request and not answer.startswith(b"-") and not cut:
            cut = True
            raise Cut

    return answered


def cut_some_answers(rng: np.random.Generator, script: str, chance: float) -> OnAnswer:
    """Cut some connections after the server has executed a request, before its answer."""

    async def answered(request: bytes, _: bytes) -> None:
        if call(script) in request and rng.random() < chance:
            raise Cut

    return answered


def delays_and_cuts(rng: np.random.Generator, chance: float) -> OnRequest:
    """Delay requests; drop some."""

    async def asked(_: bytes) -> None:
        if rng.random() < chance:
            await asyncio.sleep(float(rng.uniform(0, 0.02)))
        if rng.random() < chance / 2:
            raise Cut

    return asked


def test_posts_whose_answers_are_lost_are_in_the_log_once(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 21) as model, Proxy(server.socket) as proxy:
            proxy.on_answer = cut_some_answers(model.rng, "append", 0.3)
            proxy.on_request = delays_and_cuts(model.rng, 0.1)
            async with await new_clients(proxy.url, model.epoch, model.ledger, 21, 4, 0.003):
                await until(has_cut(proxy, rounds(120)), "many cuts")
            pool.start(server.url)
            await check(
                server.url, model.ledger, "answers of appends lost", watch=model.watch,
                cuts=proxy.cuts,
            )  # fmt: skip

    run_scenario(scenario())


def has_cut(proxy: Proxy, cuts: int) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return proxy.cuts >= cuts

    return condition


def test_commits_whose_answers_are_lost_are_made_once(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 22) as model, Proxy(server.socket) as proxy:
            proxy.on_answer = cut_some_answers(model.rng, "commit", 0.5)
            proxy.on_request = delays_and_cuts(model.rng, 0.05)
            async with await new_clients(server.url, model.epoch, model.ledger, 22):
                for _ in range(2):
                    pool.start(proxy.url)
                await until(has_cut(proxy, rounds(25)), "many cuts")
            title = "answers of commits lost"
            await check(server.url, model.ledger, title, watch=model.watch, cuts=proxy.cuts)

    run_scenario(scenario())


def test_a_resent_commit_does_not_cause_a_takeover(server: Server, pool: LearnerProcesses) -> None:
    """Its learner must not take it for a commit of another learner."""

    async def scenario() -> None:
        async with observed_model(server, 28) as model, Proxy(server.socket) as proxy:
            proxy.on_answer = cut_first_answer("commit")
            await post_until_answered(
                model.store, model.epoch, [EventGenerator(28).labels()], model.ledger
            )
            pool.start(proxy.url)
            await check(server.url, model.ledger, "a commit sent again", watch=model.watch)
            await until(has_cut(proxy, 1), "the answer is lost")
            await post_until_answered(
                model.store, model.epoch, [EventGenerator(28, "more").labels()], model.ledger
            )
            await check(server.url, model.ledger, "and the next", watch=model.watch)
            assert (proxy.cuts, await model.fence()) == (1, 1)

    run_scenario(scenario())


def keep_first_call(script: str) -> OnRequest:
    """Hold the first call of a script for later; the client gets no answer."""
    holds_request = False

    async def asked(request: bytes) -> None:
        nonlocal holds_request
        if call(script) in request and not holds_request:
            holds_request = True
            raise Late

    return asked


def test_a_commit_that_arrives_late_changes_nothing(server: Server, pool: LearnerProcesses) -> None:
    async def scenario() -> None:
        async with observed_model(server, 23) as model, Proxy(server.socket) as proxy:
            async with await new_clients(server.url, model.epoch, model.ledger, 23):
                pool.start(proxy.url)
                for _ in range(rounds(5)):
                    await one_late_commit(model, proxy)
            await check(server.url, model.ledger, "late commits", watch=model.watch)

    async def one_late_commit(model: ObservedModel, proxy: Proxy) -> None:
        """The learner resends it and continues; then the first one arrives."""
        proxy.on_request = keep_first_call("commit")
        await until(holds_request(proxy), "a commit on its way")
        for _ in range(2):  # the resent commit and another one
            await until(model.committed_beyond(await model.committed()), "the learner goes on")
        assert await proxy.deliver_late() == [b":2\r\n"]

    run_scenario(scenario())


def holds_request(proxy: Proxy) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return bool(proxy.late)

    return condition


def test_a_post_that_arrives_late_changes_nothing(server: Server, pool: LearnerProcesses) -> None:
    async def scenario() -> None:
        async with (
            observed_model(server, 24) as model,
            Proxy(server.socket) as proxy,
            opened(proxy.url) as store,
        ):
            generator = EventGenerator(24)
            await generator.show(model.store, model.epoch, 3)
            await post_until_answered(store, model.epoch, [generator.event()], model.ledger)
            for _ in range(rounds(20)):
                proxy.on_request = keep_first_call("append")
                posted = [generator.event() for _ in range(3)]
                await post_until_answered(store, model.epoch, posted, model.ledger)
                before = await model.store.log.tail(MODEL)
                await proxy.deliver_late()
                assert await model.store.log.tail(MODEL) == before
            pool.start(server.url)
            await check(server.url, model.ledger, "late posts", watch=model.watch)

    run_scenario(scenario())


@pytest.mark.slow
def test_cancelled_posts_do_not_mix_up_the_answers_of_others(
    server: Server, pool: LearnerProcesses
) -> None:
    """A cancelled post must not leave its answer in a connection that another post uses."""

    async def go_away(model: ObservedModel, store: Store, generator: EventGenerator) -> None:
        posted = [generator.event() for _ in range(2)]
        for one in posted:
            model.ledger.unanswered[one.feedback.event] = one
        task = asyncio.create_task(post_until_answered(store, model.epoch, posted, model.ledger))
        await model.random_pause(0.0, 0.004)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if model.rng.random() < 0.5:  # some clients post the same events again
            await post_until_answered(store, model.epoch, posted, model.ledger)

    async def scenario() -> None:
        async with observed_model(server, 25) as model, opened(server.url) as store:
            generator = EventGenerator(25, "gone")
            await generator.show(model.store, model.epoch, 3)
            async with FeedbackClients(
                server.url, model.epoch, model.ledger, [EventGenerator(25, "stays")], 0.001
            ):
                for _ in range(rounds(200)):
                    await go_away(model, store, generator)
                    posted = [generator.event()]
                    await post_until_answered(store, model.epoch, posted, model.ledger)
            pool.start(server.url)
            await check(server.url, model.ledger, "cancelled posts", watch=model.watch)

    run_scenario(scenario())


def test_a_model_whose_creation_got_no_answer_is_learnt(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with Proxy(server.socket) as proxy, opened(proxy.url) as store:
            ledger = Ledger()
            proxy.on_answer = cut_first_answer("create")
            with contextlib.suppress(ModelExists):  # the answer to the resent creation
                await new_model(store)
            assert proxy.cuts == 1
            assert await store.models.names() == [MODEL]
            epoch, *_ = await store.states.position(MODEL)
            await post_until_answered(store, epoch, [EventGenerator(26).event()], ledger)
            pool.start(server.url)
            await check(server.url, ledger, "creation cut", cuts=proxy.cuts)

    run_scenario(scenario())


def test_a_stored_event_is_never_refused_for_the_backlog_limit(
    server: Server, pool: LearnerProcesses
) -> None:
    """The first send fills the backlog and its answer is lost; the resend must be accepted."""

    async def scenario() -> None:
        async with (
            observed_model(server, 27) as model,
            Proxy(server.socket) as proxy,
            opened(proxy.url) as store,
        ):
            generator = EventGenerator(27)
            await post_until_answered(store, model.epoch, [generator.event()], model.ledger)
            proxy.on_answer = cut_first_answer("append")
            posted = [generator.event()]
            answers = await post(store, MODEL, model.epoch, posted, limit=2, time=0)
            model.ledger.note(posted, answers)
            pool.start(server.url)
            found = await check(server.url, model.ledger, "backlog cut", cuts=proxy.cuts)
            assert len(found.records) == 2

    run_scenario(scenario())
