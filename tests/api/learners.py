"""Learners of single models in threads, for services without one of their own."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue

from app.learning.learner import Learner
from app.learning.options import LearnerOptions
from tests.servers import opened

PACE = LearnerOptions(commit=0.005, follow=0.01)
#: Versions and a log so short that a follower that learns nothing soon holds it back.
SHORT_LOG = replace(PACE, version=20, versions=3, log_bytes=20_000)


@contextlib.contextmanager
def learning(url: str, model: str, options: LearnerOptions = PACE) -> Iterator[None]:
    """Run a learner of one model, or of the follower with this address."""
    stop, loops = asyncio.Event(), SimpleQueue[asyncio.AbstractEventLoop]()

    async def learn() -> None:
        loops.put(asyncio.get_running_loop())
        async with opened(url) as store:
            await Learner(store, model, options).run(stop)

    thread = threading.Thread(target=lambda: asyncio.run(learn()))
    thread.start()
    try:
        yield
    finally:
        loops.get().call_soon_threadsafe(stop.set)
        thread.join()
