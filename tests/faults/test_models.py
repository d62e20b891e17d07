"""Models that are replaced, deleted and created again under load."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from app.domain import codec
from app.domain.records import Replace
from app.errors import NoSuchModel, Unavailable
from app.ingest.appender import post
from app.storage.keys import Keys
from app.storage.store import Store
from tests.faults import rounds
from tests.faults.checker import check
from tests.faults.event_generator import MODEL, EventGenerator, new_model
from tests.faults.feedback_clients import NO_LIMIT, Ledger, new_clients, post_until_answered
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import observed_model, opened, run_scenario
from tests.faults.proxy import Proxy, call
from tests.faults.replacing import replace_now
from tests.faults.server import Server
from tests.faults.waiting import until

REPLACEMENTS = 6


@pytest.mark.slow
def test_a_model_replaced_under_load_continues_from_the_replacement(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 41) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 41):
                learners = [pool.start(server.url) for _ in range(2)]
                await until(model.committed_beyond(0), "the first commit")
                for at in range(rounds(REPLACEMENTS)):
                    await replace_now(model.store, model.epoch, f"r{at}")
                    await model.random_pause(0.0, 0.3)
                    if at % 3 == 2:
                        pool.kill(learners.pop(0))
                        learners.append(pool.start(server.url))
            title = "replaced under load"
            found = await check(
                server.url, model.ledger, title, watch=model.watch, kills=pool.kills,
                replaced=rounds(REPLACEMENTS),
            )  # fmt: skip
            replaced = [seq for seq, record in found.records.items() if is_replacement(record)]
            versions = set(await model.store.states.versions(MODEL))
            assert replaced
            assert {seq - 1 for seq in replaced if seq > found.start.seq} <= versions

    run_scenario(scenario())


def is_replacement(record: bytes) -> bool:
    return isinstance(codec.load_record(record), Replace)


def test_two_consecutive_replacements_keep_a_version_each(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 42) as model:
            generator = EventGenerator(42)
            replaced = []
            for at in range(3):
                await post_until_answered(
                    model.store, model.epoch, [generator.labels()], model.ledger
                )
                replaced.append(await replace_now(model.store, model.epoch, f"a{at}"))
                replaced.append(await replace_now(model.store, model.epoch, f"b{at}"))
            pool.start(server.url)
            await check(server.url, model.ledger, "replaced in a row", watch=model.watch)
            assert {seq - 1 for seq in replaced} <= set(await model.store.states.versions(MODEL))

    run_scenario(scenario())


async def post_until_deleted(store: Store, epoch: int, ledger: Ledger, name: str) -> None:
    """Post the same ids in every epoch of the model."""
    generator = EventGenerator(43, name)
    with contextlib.suppress(NoSuchModel):
        while True:
            await post_until_answered(store, epoch, [generator.event() for _ in range(3)], ledger)


@pytest.mark.slow
def test_a_model_created_again_has_no_data_of_its_earlier_epoch(
    server: Server, pool: LearnerProcesses
) -> None:
    async def one_epoch(store: Store) -> None:
        epoch, ledger = await new_model(store), Ledger()
        names = [f"p{at}-" for at in range(3)]
        clients = [
            asyncio.create_task(post_until_deleted(store, epoch, ledger, name)) for name in names
        ]
        await until(has_learnt(store), "something is learnt in this life")
        assert await store.models.delete(MODEL)
        await asyncio.gather(*clients)
        assert await new_model(store) == epoch + 1
        stale = [EventGenerator(43, "stale").labels()]
        with pytest.raises(NoSuchModel):
            await post(store, MODEL, epoch, stale, limit=NO_LIMIT, time=0)
        assert await store.log.tail(MODEL) == 0
        await store.models.delete(MODEL)

    async def scenario() -> None:
        async with opened(server.url) as store:
            ledger = Ledger()
            pool.start(server.url)
            pool.start(server.url)
            for _ in range(rounds(2)):
                await one_epoch(store)
            epoch, generator = await new_model(store), EventGenerator(43, "p0-")
            for _ in range(10):
                await post_until_answered(
                    store, epoch, [generator.event() for _ in range(3)], ledger
                )
            found = await check(server.url, ledger, "deleted and created", lives=epoch)
            assert len(found.records) == 30
            assert ledger.repeats == 0
            await no_version_is_left(store, server.url)

    run_scenario(scenario())


def has_learnt(store: Store) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        try:
            return (await store.states.position(MODEL))[1] > 30
        except Unavailable:
            return False

    return condition


async def no_version_is_left(store: Store, url: str) -> None:
    """Check that no version of an earlier epoch is left."""
    client: Any = Redis.from_url(url)
    kept = [Keys(MODEL).snapshot(seq).encode() for seq in await store.states.versions(MODEL)]
    found = [key async for key in client.scan_iter(f"solar:{{{MODEL}}}:snap:*")]
    await client.aclose()
    assert sorted(found) == sorted(kept)


def test_a_version_stored_during_a_deletion_is_deleted(
    server: Server, pool: LearnerProcesses
) -> None:
    """A version is committed between the list of versions and their deletion."""

    async def scenario() -> None:
        async with (
            observed_model(server, 44) as model,
            Proxy(server.socket) as proxy,
            opened(proxy.url) as other,
        ):
            await post_until_answered(
                model.store, model.epoch, [EventGenerator(44).labels()], model.ledger
            )

            async def keep_another(request: bytes) -> None:
                if call("delete") in request and await model.committed() == 0:
                    await replace_now(model.store, model.epoch, "r")
                    pool.start(server.url)
                    await until(model.committed_beyond(1), "the replacement is learnt")

            proxy.on_request = keep_another
            await other.models.delete(MODEL)
            assert await other.models.names() == []
            epoch = await new_model(model.store)
            assert epoch == model.epoch + 1
            await no_version_is_left(model.store, server.url)

    run_scenario(scenario())
