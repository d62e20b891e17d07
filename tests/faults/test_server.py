"""A server that is killed and restarted, is full, or has damaged data."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from app.domain import codec
from app.errors import BadBlob, Full, SolarError
from app.ingest.appender import post
from app.learning import replay
from app.storage.keys import Keys
from app.storage.log import NewRecord
from app.storage.store import Store
from tests.faults import rounds
from tests.faults.checker import check, learnt, read_stored
from tests.faults.event_generator import MODEL, EventGenerator
from tests.faults.feedback_clients import NO_LIMIT, new_clients, post_until_answered
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import ObservedModel, observed_model, run_scenario
from tests.faults.replacing import replace_now
from tests.faults.server import Server
from tests.faults.waiting import until

KEYS = Keys(MODEL)


def test_a_server_killed_under_load_has_every_acknowledged_event(
    server: Server, pool: LearnerProcesses
) -> None:
    async def one_kill(model: ObservedModel) -> None:
        await until(model.committed_beyond(await model.committed()), "progress")
        await model.random_pause(0.0, 0.3)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    async def scenario() -> None:
        async with observed_model(server, 11) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 11, pause=0.003):
                for _ in range(2):
                    pool.start(server.url)
                for _ in range(rounds(4)):
                    await one_kill(model)
            title = "server killed"
            await check(server.url, model.ledger, title, watch=model.watch, restarts=server.kills)

    run_scenario(scenario())


@pytest.mark.slow
def test_server_and_learner_killed_together_recover(server: Server, pool: LearnerProcesses) -> None:
    async def one_kill(model: ObservedModel) -> None:
        learner = pool.start(server.url)
        await until(model.committed_beyond(await model.committed()), "progress")
        await model.random_pause(0.0, 0.1)
        pool.kill(learner)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    async def scenario() -> None:
        async with observed_model(server, 12) as model:
            async with await new_clients(server.url, model.epoch, model.ledger, 12):
                for _ in range(rounds(1)):
                    await one_kill(model)
            pool.start(server.url)
            await check(
                server.url, model.ledger, "server and learner killed", watch=model.watch,
                restarts=server.kills, kills=pool.kills,
            )  # fmt: skip

    run_scenario(scenario())


@asynccontextmanager
async def model_with_history(
    server: Server, seed: int
) -> AsyncIterator[tuple[ObservedModel, Any, EventGenerator]]:
    """Provide a model with records and a replacement, and a plain client to damage it."""
    async with observed_model(server, seed) as model:
        generator = EventGenerator(seed)
        client: Any = Redis.from_url(server.url)
        await post_until_answered(
            model.store, model.epoch, [generator.event() for _ in range(30)], model.ledger
        )
        await replace_now(model.store, model.epoch, "r1")
        await post_until_answered(
            model.store, model.epoch, [generator.event() for _ in range(30)], model.ledger
        )
        try:
            yield model, client, generator
        finally:
            await client.aclose()


async def damage(client: Any, key: str, field: str) -> None:
    """Flip one bit."""
    blob = bytearray(await client.hget(key, field))
    blob[len(blob) // 2] ^= 4
    await client.hset(key, field, bytes(blob))


@pytest.mark.parametrize("field", ["spread", "meta"])
def test_a_damaged_state_is_refused_and_repaired_without_new_feedback(
    server: Server, pool: LearnerProcesses, field: str
) -> None:
    async def scenario() -> None:
        async with model_with_history(server, 13) as (model, client, generator):
            learner = pool.start(server.url)
            await learnt(server.url)
            pool.kill(learner)
            await damage(client, KEYS.state, field)
            with pytest.raises(BadBlob, match="damaged"):
                await model.store.states.load(MODEL)
            pool.start(server.url)
            await until(is_readable(model.store), "the state is repaired")
            await post_until_answered(model.store, model.epoch, [generator.event()], model.ledger)
            await check(server.url, model.ledger, f"damaged {field}", watch=model.watch)

    run_scenario(scenario())


def is_readable(store: Store) -> Callable[[], Awaitable[bool]]:
    """Whether the committed state can be read."""

    async def condition() -> bool:
        try:
            await store.states.load(MODEL)
        except BadBlob:
            return False
        return True

    return condition


@pytest.mark.slow
def test_a_damaged_version_is_skipped_for_an_older_one(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with model_with_history(server, 14) as (model, client, _):
            learner = pool.start(server.url)
            await learnt(server.url)
            pool.kill(learner)
            versions = await model.store.states.versions(MODEL)
            assert len(versions) == 2
            await damage(client, KEYS.snapshot(versions[-1]), "spread")
            await damage(client, KEYS.state, "w")
            pool.start(server.url)
            await until(is_readable(model.store), "the state is repaired")
            await learnt(server.url)
            (problem,) = await replay.verify(model.store, MODEL)
            assert problem.startswith(f"version {versions[-1]}: expected the checksum")
            await client.zrem(KEYS.snapshots, versions[-1])
            await check(server.url, model.ledger, "damaged version", watch=model.watch)

    run_scenario(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("field", ["seq", "chain"])
def test_a_state_with_a_wrong_seq_or_chain_is_noticed(
    server: Server, pool: LearnerProcesses, field: str
) -> None:
    """I3: seq and chain are checked when a state is loaded, too."""

    async def scenario() -> None:
        async with model_with_history(server, 15) as (model, client, generator):
            learner = pool.start(server.url)
            await learnt(server.url)
            pool.kill(learner)
            if field == "seq":
                await client.hset(KEYS.state, "seq", await model.committed() - 7)
            else:
                await damage(client, KEYS.state, "chain")
            with pytest.raises(BadBlob):
                await model.store.states.load(MODEL)
            pool.start(server.url)
            await post_until_answered(model.store, model.epoch, [generator.event()], model.ledger)
            await check(server.url, model.ledger, f"damaged {field}")

    run_scenario(scenario())


def test_invalid_records_are_counted_and_do_not_stop_the_learner(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 16) as model:
            generator, narrow = EventGenerator(16), EventGenerator(16, "narrow", n=3)
            good = codec.dump_record(generator.labels().feedback)
            poison = [b"", b"SLR", good[:-1], good[:40], bytes(300), model.rng.bytes(500)]
            poison.append(codec.dump_record(narrow.labels().feedback))
            poison.append(codec.dump_blob("feedback", {}, {}))
            poison.append(codec.dump_blob("another kind", {}, {}))
            events = [NewRecord(f"x{at}", b"", blob) for at, blob in enumerate(poison)]
            await model.store.log.append(MODEL, model.epoch, events, limit=NO_LIMIT, time=0)
            await post_until_answered(model.store, model.epoch, [generator.labels()], model.ledger)
            pool.start(server.url)
            await learnt(server.url)
            assert await replay.verify(model.store, MODEL) == []
            measures = (await model.store.states.load(MODEL)).state.measures()
            assert (measures["rejected"], measures["feedback"]) == (len(poison), 1)

    run_scenario(scenario())


def test_a_full_server_refuses_posts_but_learns_its_log(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with observed_model(server, 17) as model:
            generator = EventGenerator(17)
            posted = [generator.event() for _ in range(50)]
            await post_until_answered(model.store, model.epoch, posted, model.ledger)
            await model.store._client.config_set("maxmemory", "1mb")
            refused = generator.labels()
            with pytest.raises(Full):
                await post(model.store, MODEL, model.epoch, [refused], limit=NO_LIMIT, time=0)
            seen = KEYS.event(model.epoch, refused.feedback.event)
            assert not await model.store._client.exists(seen)
            pool.start(server.url)
            await learnt(server.url, seconds=10)
            await check(server.url, model.ledger, "a full server")
            assert await model.store.models.delete(MODEL), (
                "expected a deletion on a full server to succeed"
            )

    run_scenario(scenario())


def test_verify_reports_a_damaged_record_of_the_log(server: Server, pool: LearnerProcesses) -> None:
    """A damaged record breaks the chain."""

    async def scenario() -> None:
        async with model_with_history(server, 18) as (model, client, _):
            pool.start(server.url)
            await learnt(server.url)
            found = await read_stored(server.url)
            await rewrite(client, found.records, 20)
            complaints = await complaints_of(model.store)
            assert any("chain" in complaint for complaint in complaints)

    run_scenario(scenario())


async def complaints_of(store: Store) -> list[str]:
    try:
        return await replay.verify(store, MODEL)
    except SolarError as error:
        return [str(error)]


async def rewrite(client: Any, records: dict[int, bytes], damaged: int) -> None:
    """Rewrite the log with one other record."""
    await client.delete(KEYS.log)
    for seq, record in records.items():
        blob = records[damaged + 1] if seq == damaged else record
        await client.xadd(KEYS.log, {"r": blob, "t": 0}, id=f"{seq}-0")
