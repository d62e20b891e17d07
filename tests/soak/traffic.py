"""Paced traffic: rankings, feedback with retries, beacons and reads. Every answer is checked."""

import asyncio
import json
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from itertools import count
from time import monotonic
from typing import Any

from tests.soak.announcements import Announcements
from tests.soak.calls import Answer, Calls
from tests.soak.ledger import Problems
from tests.soak.plan import Plan
from tests.soak.users import ShownList, Target, click, judgement, purchase, ranking, shown_list

#: Requests at once; above it a pacer skips a request, and the report says how many.
MOST_AT_ONCE = 400
#: Lists to click on, and clicked lists to buy from: those of some ten minutes.
FRESH_LISTS, CLICKED_LISTS = 500, 8_000
#: Lists that were answered with `logged: false` to look up, and the seconds until then.
FORGOTTEN_LISTS, FORGOTTEN_SECONDS = 50, 2.0
#: Seconds until a post without an answer is given up.
GIVE_UP_SECONDS = 120.0
AFTER_A_WRITE = "/rank after a write"
READS = (
    "/models", "/models/shop", "/models/shop/history", "/models/shop/versions", "/metrics",
    "/models/shop/impressions", "/status", "/readyz", "/console/",
)  # fmt: skip


class Traffic:
    """The clients of a run; `targets` are the models that get traffic now."""

    def __init__(
        self, plan: Plan, calls: Calls, announcements: Announcements, targets: dict[str, Target],
        name: str,
    ) -> None:  # fmt: skip
        self._plan, self._calls, self._announcements = plan, calls, announcements
        self.targets, self._name = targets, name
        self._rng, self._count = random.Random(plan.seed), count()  # noqa: S311
        self._fresh, self._clicked = deque[ShownList](), deque[ShownList](maxlen=CLICKED_LISTS)
        self._forgotten = deque[tuple[float, ShownList]](maxlen=FORGOTTEN_LISTS)
        self._posted = deque[tuple[Target, dict[str, Any]]](maxlen=2000)
        self._tasks, self._done = set[asyncio.Task[None]](), False
        self.counts = Counter[str]()
        self.late: list[float] = []

    @property
    def problems(self) -> Problems:
        """What must not happen and did."""
        return self._calls.problems

    async def run(self) -> None:
        """Send requests until `stop`, then wait for all answers."""
        plan = self._plan
        pacers = ((plan.ranks, self._rank), (plan.events, self._feedback),
                  (plan.beacons, self._beacon), (plan.reads, self._read))  # fmt: skip
        await asyncio.gather(*(self._pace(rate, act) for rate, act in pacers))
        while self._tasks:
            await asyncio.wait(self._tasks)

    def stop(self) -> None:
        """Send no new request; posts that wait for an answer go on."""
        self._done = True

    async def _pace(self, rate: float, act: Callable[[], Awaitable[None]]) -> None:
        due = monotonic()
        while not self._done:
            due += self._rng.expovariate(rate)
            await asyncio.sleep(max(0.0, due - monotonic()))
            if len(self._tasks) >= MOST_AT_ONCE:
                self.counts["requests skipped: too many wait"] += 1
                continue
            self.late.append(monotonic() - due)
            task = asyncio.create_task(self._guarded(act))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except Exception as error:  # noqa: BLE001  # a bug of the tool, or an odd answer
            self.problems.add(f"{act.__name__}: {type(error).__name__}: {error}")

    def _target(self) -> Target:
        found = [one for one in self.targets.values() if one.open]
        return self._rng.choices(found, [one.share for one in found])[0]

    def _event(self) -> str:
        return f"{self._name}-{next(self._count)}"

    # ---- rankings ----

    async def _rank(self) -> None:
        target = self._target()
        rows, body, headers = ranking(target, self._rng)
        at = self._announcements.now()
        answer = await self._calls.call("POST", "/rank", body, timed="/rank", headers=headers)
        if answer.status == 200:
            quiet = self._announcements.is_quiet_since(at)
            self.counts["rankings" + ("" if quiet else ", in faults")] += 1
            shown = shown_list(target, rows, answer.body)
            self.note_list(shown, logged=answer.body["logged"], quiet=quiet)
        elif answer.status not in (0, 503) and not self._is_gone(target, answer):
            self.problems.add(f"/rank of {target.name}: {answer.status} {answer.body}")

    def note_list(self, shown: ShownList, *, logged: bool, quiet: bool) -> None:
        """Keep a list to click on, or one that was answered with `logged: false` to look it up."""
        if not logged:
            self.counts["lists not remembered" + ("" if quiet else ", in faults")] += 1
            if quiet:  # in faults the answer of the store may be lost
                self._forgotten.append((monotonic() + FORGOTTEN_SECONDS, shown))
            return
        self._fresh.append(shown)
        if len(self._fresh) > FRESH_LISTS:
            self._fresh.popleft()

    # ---- feedback ----

    async def _feedback(self) -> None:
        if await self.look_up_forgotten():
            return
        drawn = self._rng.random()
        if drawn < 0.6 and self._fresh:
            at = self._rng.randrange(len(self._fresh))
            shown = self._fresh[at]
            del self._fresh[at]
            if await self._post(shown.target, click(shown, self._event(), self._rng)):
                self._clicked.append(shown)
        elif drawn < 0.75 and self._clicked:
            shown = self._rng.choice(self._clicked)
            await self._post(shown.target, purchase(shown, self._event(), self._rng))
        elif drawn < 0.8 and self._posted:
            await self._post(*self._rng.choice(self._posted))
        elif drawn < 0.84:
            target = self._target()
            events = [judgement(target, self._event(), self._rng) for _ in range(3)]
            await self._post(target, {"model": target.name, "events": events})
        else:
            target, event = self._target(), self._event()
            if await self._post(target, judgement(target, event, self._rng)):
                await self._rank_after(target, event)

    async def look_up_forgotten(self, later: float = 0.0) -> bool:
        """Click on a list that was answered with `logged: false`: it must not be in the store.

        Return whether there was one that is due, or is in `later` seconds.
        """
        if not self._forgotten or self._forgotten[0][0] > monotonic() + later:
            return False
        _, shown = self._forgotten.popleft()
        body = click(shown, self._event(), self._rng)
        answer = await self._calls.call("POST", "/feedback", body)
        self.counts["lists not remembered, looked up"] += 1
        if 200 <= answer.status < 300:
            self.problems.add(f"{shown.target.name}: `logged: false`, but a click got {answer}")
        elif answer.status not in (0, 404, 503):
            self.problems.add(f"/feedback on a list not remembered: {answer}")
        return True

    async def _rank_after(self, target: Target, event: str) -> None:
        """Rank by weights that have learnt an event, once in ten times (I19)."""
        if self._rng.random() > 0.1:
            return
        least = target.book.acknowledged[event]
        columns = {
            "ids": [f"d{at}" for at in range(len(target.rows[0]))],
            "features": target.rows[0],
        }
        body = {"model": target.name, **columns, "min_seq": least, "log": False}
        answer = await self._calls.call("POST", "/rank", body, timed=AFTER_A_WRITE)
        self.counts[f"{AFTER_A_WRITE}: {answer.status}"] += 1
        if answer.status == 200 and answer.body["version"] < least and target.open:
            self.problems.add(f"/rank of {target.name} with min_seq {least}: {answer.body}")

    async def _post(self, target: Target, body: dict[str, Any]) -> bool:
        """Post until there is an answer; whether the event is in the log."""
        target.posts += 1
        try:
            return await self._tried(target, body)
        finally:
            target.posts -= 1

    async def _tried(self, target: Target, body: dict[str, Any]) -> bool:
        data, deadline, tries = json.dumps(body).encode(), monotonic() + GIVE_UP_SECONDS, 0
        while target.open and monotonic() < deadline:
            timed = "/feedback" if not tries else "/feedback again"
            answer = await self._calls.call("POST", "/feedback", data, timed=timed)
            if answer.status in (200, 202):
                return self._acknowledged(target, body, answer.body)
            if answer.status not in (0, 429, 503):
                if not self._is_gone(target, answer):
                    self.problems.add(f"/feedback to {target.name}: {answer.status} {answer.body}")
                return False
            tries += 1
            await asyncio.sleep(min(0.1 * 2**tries, 2.0))
        self.counts["posts given up"] += target.open
        return False

    def _acknowledged(self, target: Target, body: dict[str, Any], answer: dict[str, Any]) -> bool:
        events = body.get("events", [body])
        if answer["rejected"]:
            if not self._is_gone(target, Answer(404)):
                self.problems.add(f"/feedback to {target.name}: {answer}")
            return False
        for event in events:
            seq = answer["seq"] if len(events) == 1 else 0
            target.book.acknowledge(event["event_id"], seq)
        self.counts["events acknowledged"] += answer["accepted"]
        self.counts["events repeated"] += answer["duplicates"]
        self._posted.append((target, body))
        return True

    def _is_gone(self, target: Target, answer: Answer) -> bool:
        """Whether a refusal is that of a model that was deleted."""
        return answer.status in (404, 409, 410) and not target.open

    # ---- beacons and reads ----

    async def _beacon(self) -> None:
        lists = [one for one in list(self._fresh)[-50:] if one.token and one.target.open]
        if not lists:
            return
        shown = self._rng.choice(lists)
        event = {"token": shown.token, "clicked": shown.ids(self._rng.randrange(5))}
        answer = await self._calls.call("POST", "/beacon", {"events": [event]}, timed="/beacon")
        self.counts["beacons"] += 1
        if answer.status not in (0, 204, 503):
            self.problems.add(f"/beacon: {answer.status} {answer.body}")

    async def _read(self) -> None:
        path = self._rng.choice(READS)
        answer = await self._calls.call("GET", path, timed="reads")
        if answer.status not in (0, 200, 503):
            self.problems.add(f"GET {path}: {answer.status} {answer.body}")
