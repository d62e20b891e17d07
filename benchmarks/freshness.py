"""Freshness: the time from an append to the new weights in another process than the learner's."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np

from app.ranking.arrays import Floats
from app.storage.log import NewRecord
from app.storage.store import Store

LIMIT = 1 << 40


def events(name: str, records: Sequence[bytes]) -> list[NewRecord]:
    """Wrap each record in a separate event."""
    return [
        NewRecord(f"{name}-{at}", blake2b(record, digest_size=16).digest(), record)
        for at, record in enumerate(records)
    ]


@contextmanager
def learner(url: str) -> Iterator[None]:
    """Run `solar learn` for all models of a store."""
    command = [sys.executable, "-m", "app", "learn", "--redis-url", url]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def delays(
    store: Store, model: str, epoch: int, log: Sequence[bytes], per_second: float
) -> Floats:
    """Append records at a constant rate; return the milliseconds until each one is visible."""
    tail = await store.log.tail(model)
    appended, seen = dict[int, float](), dict[int, float]()
    watching = asyncio.create_task(watch(store, model, seen, tail + len(log)))
    began = time.perf_counter()
    for at, record in enumerate(log):
        await asyncio.sleep(max(0.0, began + at / per_second - time.perf_counter()))
        post = events(f"v{tail + at}", [record])
        answers = await store.log.append(model, epoch, post, limit=LIMIT, time=0)
        appended[answers[0].seq] = time.perf_counter()
    await watching
    return 1e3 * np.array([when_seen(seen, seq) - when for seq, when in appended.items()])


async def settle(store: Store, model: str, epoch: int, record: bytes) -> None:
    """Let the learner apply one record, so that its process is warm."""
    await store.log.append(model, epoch, events("first", [record]), limit=LIMIT, time=0)
    await until_learnt(store, model, await store.log.tail(model))


async def until_learnt(store: Store, model: str, seq: int) -> None:
    """Wait until a model, or a follower by its address, has learnt a record."""
    while (await store.states.position(model))[1] < seq:
        await asyncio.sleep(0.01)


async def watch(store: Store, model: str, seen: dict[int, float], last: int) -> None:
    """Load the weights at each hint, like a replica; record the time of each version."""
    async for hint in store.hints.changed():
        if hint in (model, ""):
            version = (await store.states.load_weights(model)).seq
            seen.setdefault(version, time.perf_counter())
            if version >= last:
                return


def when_seen(seen: dict[int, float], seq: int) -> float:
    """The time of the first version that includes record `seq`."""
    return min(when for version, when in seen.items() if version >= seq)
