"""Connections that end between a request and its answer: redis-py then sends again."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import numpy as np

from app.errors import ModelExists
from app.ingest.appender import post
from app.storage.store import Store
from tests.faults import rounds
from tests.faults.checker import check
from tests.faults.invented import MODEL, Invented, new_model
from tests.faults.learners import LearnerProcesses
from tests.faults.posters import Ledger, Posters, at_work, insist
from tests.faults.proxy import Cut, Late, OnAnswer, OnRequest, Proxy, call
from tests.faults.scene import Scene, a_model, opened, play
from tests.faults.server import Server
from tests.faults.waiting import until


def the_first(script: str) -> OnAnswer:
    """Cut the connection on the first answer of a script that has run."""
    cut = False

    async def answered(request: bytes, answer: bytes) -> None:
        nonlocal cut
        if call(script) in request and not answer.startswith(b"-") and not cut:
            cut = True
            raise Cut

    return answered


def now_and_then(rng: np.random.Generator, script: str, chance: float) -> OnAnswer:
    """Cut some connections after the server has done what was asked, before it can say so."""

    async def answered(request: bytes, _: bytes) -> None:
        if call(script) in request and rng.random() < chance:
            raise Cut

    return answered


def delays_and_cuts(rng: np.random.Generator, chance: float) -> OnRequest:
    """Hold requests for a moment; some never arrive."""

    async def asked(_: bytes) -> None:
        if rng.random() < chance:
            await asyncio.sleep(float(rng.uniform(0, 0.02)))
        if rng.random() < chance / 2:
            raise Cut

    return asked


def test_posts_whose_answers_are_lost_are_in_the_log_once(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scene() -> None:
        async with a_model(server, 21) as model, Proxy(server.socket) as proxy:
            proxy.on_answer = now_and_then(model.rng, "append", 0.3)
            proxy.on_request = delays_and_cuts(model.rng, 0.1)
            async with await at_work(proxy.url, model.epoch, model.ledger, 21, 4, 0.003):
                await until(enough(proxy, rounds(120)), "many cuts")
            pool.hire(server.url)
            await check(
                server.url, model.ledger, "answers of appends lost", watch=model.watch,
                cuts=proxy.cuts,
            )  # fmt: skip

    play(scene())


def enough(proxy: Proxy, cuts: int) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return proxy.cuts >= cuts

    return condition


def test_commits_whose_answers_are_lost_count_once(server: Server, pool: LearnerProcesses) -> None:
    async def scene() -> None:
        async with a_model(server, 22) as model, Proxy(server.socket) as proxy:
            proxy.on_answer = now_and_then(model.rng, "commit", 0.5)
            proxy.on_request = delays_and_cuts(model.rng, 0.05)
            async with await at_work(server.url, model.epoch, model.ledger, 22):
                for _ in range(2):
                    pool.hire(proxy.url)
                await until(enough(proxy, rounds(25)), "many cuts")
            title = "answers of commits lost"
            await check(server.url, model.ledger, title, watch=model.watch, cuts=proxy.cuts)

    play(scene())


def test_a_commit_that_is_sent_again_is_the_same_commit(
    server: Server, pool: LearnerProcesses
) -> None:
    """And no reason for its learner to believe that another has taken over."""

    async def scene() -> None:
        async with a_model(server, 28) as model, Proxy(server.socket) as proxy:
            proxy.on_answer = the_first("commit")
            await insist(model.store, model.epoch, [Invented(28).labels()], model.ledger)
            pool.hire(proxy.url)
            await check(server.url, model.ledger, "a commit sent again", watch=model.watch)
            await until(enough(proxy, 1), "the answer is lost")
            await insist(model.store, model.epoch, [Invented(28, "more").labels()], model.ledger)
            await check(server.url, model.ledger, "and the next", watch=model.watch)
            assert (proxy.cuts, await model.fence()) == (1, 1)

    play(scene())


def once(script: str) -> OnRequest:
    """The first call of a script is kept for later; the client believes that it never arrived."""
    kept = False

    async def asked(request: bytes) -> None:
        nonlocal kept
        if call(script) in request and not kept:
            kept = True
            raise Late

    return asked


def test_a_commit_that_arrives_late_changes_nothing(server: Server, pool: LearnerProcesses) -> None:
    async def scene() -> None:
        async with a_model(server, 23) as model, Proxy(server.socket) as proxy:
            async with await at_work(server.url, model.epoch, model.ledger, 23):
                pool.hire(proxy.url)
                for _ in range(rounds(5)):
                    await one_late_commit(model, proxy)
            await check(server.url, model.ledger, "late commits", watch=model.watch)

    async def one_late_commit(model: Scene, proxy: Proxy) -> None:
        """The learner sends it again, goes on, and then the first one arrives."""
        proxy.on_request = once("commit")
        await until(kept(proxy), "a commit on its way")
        for _ in range(2):  # the same commit once more, and another one
            await until(model.beyond(await model.committed()), "the learner goes on")
        assert await proxy.deliver_late() == [b":2\r\n"]

    play(scene())


def kept(proxy: Proxy) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return bool(proxy.late)

    return condition


def test_a_post_that_arrives_late_changes_nothing(server: Server, pool: LearnerProcesses) -> None:
    async def scene() -> None:
        async with (
            a_model(server, 24) as model,
            Proxy(server.socket) as proxy,
            opened(proxy.url) as store,
        ):
            invented = Invented(24)
            await invented.show(model.store, model.epoch, 3)
            await insist(store, model.epoch, [invented.event()], model.ledger)
            for _ in range(rounds(20)):
                proxy.on_request = once("append")
                posted = [invented.event() for _ in range(3)]
                await insist(store, model.epoch, posted, model.ledger)
                before = await model.store.log.tail(MODEL)
                await proxy.deliver_late()
                assert await model.store.log.tail(MODEL) == before
            pool.hire(server.url)
            await check(server.url, model.ledger, "late posts", watch=model.watch)

    play(scene())


def test_posters_that_go_away_leave_whole_answers_to_the_others(
    server: Server, pool: LearnerProcesses
) -> None:
    """A cancelled post must not leave its answer in a connection that another post then uses."""

    async def go_away(model: Scene, store: Store, invented: Invented) -> None:
        posted = [invented.event() for _ in range(2)]
        for one in posted:
            model.ledger.doubts[one.feedback.event] = one
        task = asyncio.create_task(insist(store, model.epoch, posted, model.ledger))
        await model.moment(0.0, 0.004)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if model.rng.random() < 0.5:  # some come back: the same events, posted again
            await insist(store, model.epoch, posted, model.ledger)

    async def scene() -> None:
        async with a_model(server, 25) as model, opened(server.url) as store:
            invented = Invented(25, "gone")
            await invented.show(model.store, model.epoch, 3)
            async with Posters(
                server.url, model.epoch, model.ledger, [Invented(25, "stays")], 0.001
            ):
                for _ in range(rounds(200)):
                    await go_away(model, store, invented)
                    posted = [invented.event()]
                    await insist(store, model.epoch, posted, model.ledger)
            pool.hire(server.url)
            await check(server.url, model.ledger, "cancelled posts", watch=model.watch)

    play(scene())


def test_a_model_whose_creation_was_answered_into_the_void_is_learnt(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scene() -> None:
        async with Proxy(server.socket) as proxy, opened(proxy.url) as store:
            ledger = Ledger()
            proxy.on_answer = the_first("create")
            with contextlib.suppress(ModelExists):  # what the second send may say
                await new_model(store)
            assert proxy.cuts == 1
            assert await store.models.names() == [MODEL]
            epoch, *_ = await store.states.position(MODEL)
            await insist(store, epoch, [Invented(26).event()], ledger)
            pool.hire(server.url)
            await check(server.url, ledger, "creation cut", cuts=proxy.cuts)

    play(scene())


def test_a_refusal_for_backlog_is_never_told_of_an_event_that_was_stored(
    server: Server, pool: LearnerProcesses
) -> None:
    """The first send fills the backlog and its answer is lost; the second must not be refused."""

    async def scene() -> None:
        async with (
            a_model(server, 27) as model,
            Proxy(server.socket) as proxy,
            opened(proxy.url) as store,
        ):
            invented = Invented(27)
            await insist(store, model.epoch, [invented.event()], model.ledger)
            proxy.on_answer = the_first("append")
            posted = [invented.event()]
            answers = await post(store, MODEL, model.epoch, posted, limit=2, time=0)
            model.ledger.note(posted, answers)
            pool.hire(server.url)
            found = await check(server.url, model.ledger, "backlog cut", cuts=proxy.cuts)
            assert len(found.records) == 2

    play(scene())
