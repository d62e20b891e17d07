"""Faults: killed, stopped and paused processes, clock steps, a full disk; each took effect."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, time

from redis.exceptions import RedisError

from app.storage.connection import connect
from app.storage.embedded import server
from tests.faults.clock import CLOCK_TOLERANCE, SteppedClock
from tests.soak.announcements import Announcements
from tests.soak.calls import Calls
from tests.soak.disk import LimitedDisk
from tests.soak.ledger import Problems
from tests.soak.plan import Plan
from tests.soak.rollbacks import Rollbacks
from tests.soak.service import SoakService
from tests.soak.users import documents

#: Seconds from the end of a fault until everything works again.
MOST_RECOVERY = 45.0
#: Seconds that requests sent before the end of a recovery may take.
SETTLE_SECONDS = 2.0
PAUSE_SECONDS = 6.0
CLOCK_STEPS = (60.0, 300.0)
#: Bytes until the disk is full, and for how long it is.
LAST_BYTES, FULL_SECONDS = 100_000, 5.0
#: Seconds until a training process runs, and until the store has noticed a step of its clock.
TRAINING_SECONDS, NOTICE_SECONDS = 30.0, 10.0
PROBE = {
    "model": "lite", "type": "labels", "labels": {"d0": 1, "d1": 0},
    "documents": documents([[0.5] * 8, [0.4] * 8]),
}  # fmt: skip
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}


class Faults:
    """Causes the faults of a plan one after the other; after each the service must recover."""

    def __init__(
        self, plan: Plan, service: SoakService, calls: Calls, announcements: Announcements,
        clock: SteppedClock, disk: LimitedDisk, name: str, judged_data: Callable[[], bytes],
    ) -> None:  # fmt: skip
        self._plan, self._service, self._calls = plan, service, calls
        self._judged_data = judged_data
        self.rollbacks = Rollbacks(calls, announcements)
        self._announcements, self._clock, self._disk = announcements, clock, disk
        self._name, self._probes = name, 0
        self.problems: Problems = calls.problems
        self._rng = random.Random(plan.seed + 2)  # noqa: S311
        self.counts = Counter[str]()
        self.slowest: tuple[float, str] = (0.0, "none")

    async def run(self) -> None:
        """Cause faults until the plan ends them; each at least once."""
        begin, end = self._plan.window, self._plan.faults_until
        await asyncio.sleep(max(0.0, begin - self._announcements.now()))
        for at, what in enumerate(self._drawn()):
            if self._announcements.now() >= end and at >= len(self._plan.faults):
                return
            with self._announcements.disturbance("fault", what):
                done = await self.cause(what)
                await self.recover(what)
                await self.rollbacks.look(what)
                await asyncio.sleep(SETTLE_SECONDS)
            self.counts[what if done else f"{what}, without effect"] += 1
            await asyncio.sleep(self._plan.fault_pause)

    def _drawn(self) -> Iterator[str]:
        while self._plan.faults:
            yield from self._rng.sample(self._plan.faults, len(self._plan.faults))

    async def cause(self, what: str) -> bool:
        """Cause a fault; whether it took effect, else there is a problem."""
        known = self.problems.total()
        await self._cause(what)
        return self.problems.total() == known

    async def _cause(self, what: str) -> None:
        kind, _, about = what.partition(" ")
        if what == "kill supervisor":
            await asyncio.to_thread(self._service.kill)
            self._service.start()
        elif what == "restart service":
            code = await asyncio.to_thread(self._service.stop)
            if code != 0:
                self.problems.add(f"SIGTERM: expected exit code 0, got {code}")
            self._service.start()
        elif what == "kill training":
            await self._kill_training()
        elif kind in SIGNALS:
            await self._signal(about, SIGNALS[kind])
        elif kind == "pause":
            await self._pause(about)
        elif kind == "clock":
            await self._step(self._rng.choice(CLOCK_STEPS) * (1 if about == "ahead" else -1))
        else:
            self._disk.limit(LAST_BYTES)
            await asyncio.sleep(FULL_SECONDS)
            self._disk.limit(None)

    async def _signal(self, role: str, number: signal.Signals) -> None:
        pid = self._service.pid_of(role)
        if pid is None:
            self.problems.add(f"{role}: expected one process, got {self._service.processes()}")
            return
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = monotonic() + MOST_RECOVERY
        while pid in self._service.processes():
            if monotonic() > deadline:
                self.problems.add(f"{role}: {number.name} did not end it in {MOST_RECOVERY:g} s")
                return
            await asyncio.sleep(0.02)

    async def _kill_training(self) -> None:
        """Kill a training process, of a job that is started for it if none runs."""
        deadline = monotonic() + TRAINING_SECONDS
        while not (found := self._service.pids_of("training")):
            if monotonic() > deadline:
                self.problems.add(f"kill training: no process in {TRAINING_SECONDS:g} s")
                return
            await self._calls.call(
                "POST", "/models/books/warm-start?C=0.01", self._judged_data(),
                headers={"content-type": "text/plain"},
            )  # fmt: skip
            await asyncio.sleep(0.02)
        with suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGKILL)

    async def _pause(self, role: str) -> None:
        pid = self._service.pid_of(role)
        if pid is None:
            self.problems.add(f"{role}: expected one process, got {self._service.processes()}")
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(PAUSE_SECONDS)
            os.kill(pid, signal.SIGCONT)

    async def _step(self, ahead: float) -> None:
        """Step the clock for some seconds, once the store has noticed."""
        for shift, seconds in ((ahead, self._plan.step_seconds), (0.0, 0.0)):
            self._clock.step(shift)
            if not await self._notices(shift):
                self.problems.add(f"clock: the store does not see a step of {shift:+g} s")
            await asyncio.sleep(seconds)

    async def _notices(self, ahead: float) -> bool:
        """Whether the clock of the store differs by `ahead` from this one."""
        deadline = monotonic() + NOTICE_SECONDS
        while monotonic() < deadline:
            with suppress(RedisError, OSError):
                if abs(await self._store_time() - time() - ahead) < CLOCK_TOLERANCE:
                    return True
            await asyncio.sleep(0.1)
        return False

    async def _store_time(self) -> float:
        url = server.find(self._service.data)
        if url is None:
            raise OSError("the store is down")
        client = connect(url)
        try:
            return float((await client.time())[0])
        finally:
            await client.aclose()

    async def recover(self, what: str) -> None:
        """Wait until all processes run, all is ready, and new feedback is learnt."""
        began = monotonic()
        while not await self._works():
            if self._service.ended() is not None:
                self.problems.add(f"{what}: the service ended with {self._service.ended()}")
                self._service.start()
            if monotonic() > began + MOST_RECOVERY:
                self.problems.add(f"{what}: not ready after {MOST_RECOVERY:g} s")
                return
            await asyncio.sleep(0.1)
        self.slowest = max(self.slowest, (monotonic() - began, what))

    async def _works(self) -> bool:
        if not self._service.is_complete():
            return False
        ready = await self._calls.call("GET", "/readyz")
        if ready.status != 200 or ready.body["degraded"] or ready.body["down"]:
            return False
        self._probes += 1
        event = {"event_id": f"{self._name}-probe-{self._probes}", **PROBE}
        answer = await self._calls.call(
            "POST", "/feedback", event,
            headers={"content-type": "application/json", "prefer": "wait=5"},
        )  # fmt: skip
        return answer.status == 200
