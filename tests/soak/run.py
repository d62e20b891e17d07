"""One run: start, traffic, churn, faults, checks, report."""

import asyncio
import gc
import json
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from app.api.tokens import new_token_key
from tests.faults.clock import SteppedClock
from tests.soak import report
from tests.soak.announcements import Announcements
from tests.soak.audit import Auditor, verified
from tests.soak.calls import Calls
from tests.soak.churn import Churn
from tests.soak.disk import LimitedDisk
from tests.soak.faults import Faults
from tests.soak.ledger import Problems
from tests.soak.logs import check_log
from tests.soak.plan import Plan
from tests.soak.report import Outcome
from tests.soak.samples import client_sockets, directory_bytes, read_sample
from tests.soak.service import SoakService
from tests.soak.traffic import Traffic
from tests.soak.users import Target, judged_text

START_SECONDS = 120.0
#: Seconds between two checks of the books, and between two freezes of what they hold.
CHECK_SECONDS = 60.0
#: Seconds between two looks at whether the service runs.
WATCH_SECONDS = 0.5
#: Memory and descriptors of a run before its first fault.
WARM = "warm.json"


def _warm_values(folder: Path, number: int, plan: Plan) -> dict[str, dict[str, float]]:
    """Return those of an earlier run, if it was as long."""
    file = folder / f"run-{number}" / WARM
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return dict(found["roles"]) if found.get("seconds") == plan.seconds else {}


class Run:
    """A run on a directory that has `data` of the store, and a folder of each run."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self._data = plan, folder / "data"
        number = 1 + max((int(one.name[4:]) for one in folder.glob("run-*")), default=0)
        self.folder = folder / f"run-{number}"
        self.folder.mkdir(parents=True)
        self.outcome = Outcome(plan, number, before=_warm_values(folder, number - 1, plan))
        self._data.mkdir(exist_ok=True)
        self._clock = SteppedClock(self.folder)
        self._disk = LimitedDisk(self.folder, self._data)
        self.problems = Problems()
        self._name = f"run{number}"
        self._targets: dict[str, Target] = {}
        libraries = [one.environ["LD_PRELOAD"] for one in (self._clock, self._disk)]
        environ = {
            **self._clock.environ, **self._disk.environ, "LD_PRELOAD": " ".join(libraries),
            "SOLAR_TOKEN_KEYS": new_token_key("soak"), "SOLAR_BEACON_RATE": "1000",
            "SOLAR_FREE_BYTES": "1000000", "SOLAR_MEMORY": "2GiB",
        }  # fmt: skip
        self._log = self.folder / "service.log"
        self._log.touch()
        self.service = SoakService(self._data, self._log, plan.workers, environ)
        self._announcements = Announcements(self.folder / "actions.jsonl")
        self._calls = Calls(self.service.url, self._announcements, self.problems)
        self._make_parts()

    def _make_parts(self) -> None:
        self._auditor = Auditor(self._data, self._targets, self._announcements, self.problems)
        self._churn = Churn(
            self.plan, self._calls, self._announcements, self._auditor, self._targets
        )
        self._traffic = Traffic(
            self.plan, self._calls, self._announcements, self._targets, self._name
        )
        self._faults = Faults(
            self.plan, self.service, self._calls, self._announcements, self._clock, self._disk,
            self._name, lambda: judged_text(self._targets["books"]),
        )  # fmt: skip

    async def play(self) -> Outcome:
        """Do all of it; the report is in the folder of the run, also if the run breaks off."""
        try:
            self.service.start()
            async with self._calls:
                await self._play()
        except Exception as error:  # noqa: BLE001  # of the tool or of the service: in the report
            self.problems.add(f"the run broke off: {type(error).__name__}: {error}")
        finally:
            await self._end()
        return self.outcome

    async def _end(self) -> None:
        try:
            await asyncio.to_thread(self.service.kill)
        except AssertionError as error:
            self.problems.add(f"the last SIGKILL: {error}")
        self._write()

    async def _play(self) -> None:
        with self._announcements.disturbance("start", "start"):
            await self._until_ready()
            await self._churn.begin()
        self._announcements.restart()
        async with AsyncExitStack() as stack:
            await self._use(stack)
        await self._check()

    async def _until_ready(self) -> None:
        deadline = monotonic() + START_SECONDS
        while (
            not self.service.is_complete()
            or (await self._calls.call("GET", "/readyz")).status != 200
        ):
            if self.service.ended() is not None or monotonic() > deadline:
                raise RuntimeError(f"the service did not start: {self._log.read_text()[-2000:]}")
            await asyncio.sleep(0.1)

    async def _use(self, stack: AsyncExitStack) -> None:
        """Run traffic, churn and faults side by side for as long as planned."""
        work = (self._traffic.run(), self._churn.run(), self._auditor.run())
        tasks = [asyncio.create_task(one) for one in work]
        aside = [
            asyncio.create_task(one)
            for one in (self._faults.run(), self._sample(), self._check_books(), self._watch())
        ]
        stack.push_async_callback(_cancelled, *aside)
        ended = asyncio.create_task(asyncio.sleep(self.plan.seconds))
        stack.push_async_callback(_cancelled, ended)
        await asyncio.wait([ended, *tasks, *aside[1:]], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([aside[0]])  # a fault is not left half way
        self._churn.stop()
        self._traffic.stop()
        await asyncio.gather(*tasks[:2])
        await self._auditor.stop()
        await tasks[2]
        for one in aside:
            if one.done():
                one.result()

    async def _sample(self) -> None:
        while True:
            at = self._announcements.now()
            clients = client_sockets(self.service.port)
            for pid, role in self.service.processes().items():
                sample = read_sample(at, role, pid, clients)
                if sample is not None:
                    self.outcome.samples.append(sample)
            self.outcome.directory.append((at, directory_bytes(self._data)))
            await asyncio.sleep(self.plan.sampling)

    async def _watch(self) -> None:
        while True:
            await self.revive()
            await asyncio.sleep(WATCH_SECONDS)

    async def revive(self) -> None:
        """Note that the service ended outside of faults, and start it again."""
        code = self.service.ended()
        if code is None or not self._announcements.is_quiet:
            return
        self.problems.add(f"the service ended by itself with exit code {code}")
        with self._announcements.disturbance("end", "the service ended by itself"):
            self.service.start()
            await self._faults.recover("the service ended by itself")

    async def _check_books(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for target in list(self._targets.values()):
                target.book.check()
            await self._faults.rollbacks.look("the last fault")
            gc.freeze()  # the books grow: a collection must not go through them

    async def _check(self) -> None:
        """Check everything once all has an answer; then stop the service."""
        with self._announcements.disturbance("check", "final checks"):
            await self._faults.recover("end")
            await self._faults.rollbacks.look("the last fault")
            await self._auditor.check_models()
            await self._auditor.check_keys()
            verification = await verified(self._data, self.problems)
            await self._check_counters()
            await self._auditor.stop()
            code = await asyncio.to_thread(self.service.stop)
            if code != 0:
                self.problems.add(f"the last SIGTERM: expected exit code 0, got {code}")
        (self.folder / "verify.txt").write_text(verification + "\n")

    async def _check_counters(self) -> None:
        """Compare the counters of the models with the records that were read."""
        for target in self._targets.values():
            answer = await self._calls.call("GET", f"/models/{target.name}")
            if answer.status != 200:
                self.problems.add(f"the counters of {target.name}: {answer}")
                continue
            counted = answer.body["feedback"] + answer.body["rejected"] - target.book.before
            if counted != target.book.feedback:
                self.problems.add(
                    f"{target.name}: {counted} events counted, {target.book.feedback} in the log"
                )

    def _write(self) -> None:
        found = self.outcome
        found.announced, found.problems = self._announcements.all, self.problems
        found.keys = self._auditor.keys
        found.latencies, found.statuses = self._calls.latencies, self._calls.statuses
        found.refused, found.late = self._calls.refused, self._traffic.late
        found.store_bytes, found.slowest = self._auditor.store_bytes, self._faults.slowest
        audited = sum(len(one.book.acknowledged) for one in self._targets.values())
        self._traffic.counts["events checked in the logs at the end"] = audited
        self._traffic.counts["records read"] = self._auditor.records
        found.counts = {
            "traffic": self._traffic.counts, "churn": self._churn.counts,
            "faults": self._faults.counts,
        }  # fmt: skip
        found.warnings = check_log(self._log, self.problems)
        found.more, found.broken = self.problems.more(), self.problems.total()
        (self.folder / "report.md").write_text(report.text(found))
        (self.folder / "report.svg").write_text(report.picture(found))
        warm = {"seconds": self.plan.seconds, "roles": found.warm_values()}
        (self.folder / WARM).write_text(json.dumps(warm))
        for name in ("clock", "disk"):
            for end in ("c", "so"):
                with suppress(OSError):
                    (self.folder / f"{name}.{end}").unlink()


async def _cancelled(*tasks: "asyncio.Task[None]") -> None:
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
