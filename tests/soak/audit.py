"""Reads the logs while they grow, so that no record is trimmed unread; compares with replays."""

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from app.domain import codec
from app.domain.codec import next_chain
from app.domain.records import Feedback
from app.errors import SolarError
from app.storage.embedded import server
from app.storage.store import Store
from tests.api.services import ROOT
from tests.faults.checker import check_state, learnt, read_stored
from tests.soak import keyspace
from tests.soak.announcements import Announcements
from tests.soak.ledger import Problems
from tests.soak.users import Target

AUDIT_SECONDS = 1.0
BATCH = 200
VERIFY_SECONDS = 600.0


class StoreDown(Exception):
    """There is no store in the data directory now."""


DOWN = (SolarError, RedisError, OSError, StoreDown)


@dataclass
class _Place:
    """How far the log of a model was read."""

    epoch: int
    chain: bytes


class Auditor:
    """Reads the log of every target into its book."""

    def __init__(
        self, data: Path, targets: dict[str, Target], announcements: Announcements,
        problems: Problems,
    ) -> None:  # fmt: skip
        self._data, self._targets, self.problems = data, targets, problems
        self._announcements = announcements
        self._places: dict[str, _Place] = {}
        self._store: Store | None = None
        self.lock = asyncio.Lock()  # held while a model is made or deleted
        self.records = 0
        self.store_bytes: list[tuple[float, int]] = []
        self.keys = Counter[str]()
        self._done = asyncio.Event()

    async def run(self) -> None:
        """Read until `stop`."""
        while not self._done.is_set():
            await self.read_all()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._done.wait(), AUDIT_SECONDS)

    async def stop(self) -> None:
        """Stop, and close the store."""
        self._done.set()
        await self._drop_store()

    async def begin(self, target: Target) -> None:
        """Read the log of a target from its committed state on."""
        epoch, seq, chain = await self._opened().states.position(target.name)
        self._places[target.name] = _Place(epoch, chain)
        target.book.last = seq

    async def read_all(self) -> None:
        """Read all new records; nothing while the store is down."""
        async with self.lock:
            try:
                for target in list(self._targets.values()):
                    await self._read(target)
                info: Any = await self._opened()._client.info("memory")
                self.store_bytes.append((self._announcements.now(), int(info["used_memory"])))
            except DOWN:
                await self._drop_store()

    async def read(self, target: Target) -> bool:
        """Read the log of a target to its end, and check its events; False if the store is down.

        Wait for posts first: their answers may acknowledge records after the end that is read.
        """
        await target.posted()
        try:
            tail = await self._opened().log.tail(target.name)
            while target.book.last < tail:
                await self._read(target)
        except DOWN:
            await self._drop_store()
            return False
        target.book.check(whole=True)
        return True

    async def _read(self, target: Target) -> None:
        place, store = self._places[target.name], self._opened()
        while entries := await store.log.read(target.name, target.book.last, BATCH):
            for entry in entries:
                record = codec.load_record(entry.record)
                event = record.event if isinstance(record, Feedback) else ""
                target.book.record(entry.seq, event)
                place.chain = next_chain(place.chain, entry.record)
                self.records += 1
            await asyncio.sleep(0)
            if len(entries) < BATCH:
                return

    def _opened(self) -> Store:
        if self._store is None:
            url = server.find(self._data)
            if url is None:
                raise StoreDown
            self._store = Store.open(url)
        return self._store

    async def _drop_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with suppress(*DOWN):
                await store.close()

    # ---- at the end ----

    async def check_models(self) -> None:
        """Check every target once all is learnt: I1 to I6, and the state, bit for bit."""
        url = server.find(self._data)
        if url is None:
            self.problems.add("the store is down at the end")
            return
        for target in self._targets.values():
            try:
                await learnt(url, target.name)
                if not await self.read(target):
                    self.problems.add(f"{target.name}: the store is down at the end")
                await self._check_chain(target)
                check_state(await read_stored(url, target.name))
            except (AssertionError, *DOWN) as error:
                self.problems.add(f"{target.name}: {type(error).__name__}: {str(error)[:300]}")

    async def check_keys(self) -> None:
        """Check that all keys belong to what exists, or expire."""
        try:
            self.keys = await keyspace.check_keys(self._opened()._client, self.problems)
        except DOWN as error:
            self.problems.add(f"the keys: {type(error).__name__}: {error}")

    async def _check_chain(self, target: Target) -> None:
        place = self._places[target.name]
        epoch, seq, chain = await self._opened().states.position(target.name)
        if (epoch, seq, chain) != (place.epoch, target.book.last, place.chain):
            self.problems.add(
                f"{target.name}: the state is at {epoch}/{seq}, the log that was read at "
                f"{place.epoch}/{target.book.last}, or their chains differ"
            )


async def verified(data: Path, problems: Problems) -> str:
    """Run `solar verify` on a live service; return its last lines."""
    process = await asyncio.create_subprocess_exec(
        "nice", sys.executable, "-m", "app", "verify", "--data-dir", str(data), cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), VERIFY_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        problems.add(f"solar verify: no end after {VERIFY_SECONDS:g} s")
        return ""
    text = output.decode(errors="replace").strip()
    if process.returncode != 0:
        problems.add(f"solar verify: exit code {process.returncode}: {text[-600:]}")
    return text
