"""Operators: models made and deleted, warm starts, rollbacks, settings, followers, duels."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.soak.announcements import Announcements
from tests.soak.audit import DOWN, Auditor
from tests.soak.calls import Answer, Calls
from tests.soak.ledger import Book, Problems
from tests.soak.plan import Plan
from tests.soak.users import CHURNING, LASTING, Target, judged_text, new_target

#: Names of models that come and go; a name is used again.
NAMES = ("churn-a", "churn-b", "churn-c")
#: Answers that an operator expects who does not know what others did.
EXPECTED = (0, 200, 201, 202, 204, 404, 409, 503, 507)
#: Why a job of an operator may fail: another one has changed the settings of its model.
RETUNED = "settings changed during the training"


class Churn:
    """Changes models in a random order, like several operators at once."""

    def __init__(
        self, plan: Plan, calls: Calls, announcements: Announcements, auditor: Auditor,
        targets: dict[str, Target],
    ) -> None:  # fmt: skip
        self._plan, self._calls, self._announcements = plan, calls, announcements
        self._auditor, self._targets = auditor, targets
        self._rng = random.Random(plan.seed + 1)  # noqa: S311
        self._jobs, self._duels = dict[str, float](), set[str]()  # the jobs with their begin
        self._done = asyncio.Event()
        self.counts = Counter[str]()
        self._acts: tuple[tuple[Callable[[], Awaitable[Answer | None]], float], ...] = (
            (self.make_model, 2), (self.delete_model, 2), (self.warm_start, 1),
            (self.roll_back, 2), (self.keep_version, 1), (self.delete_version, 1),
            (self.retune, 2), (self.follow, 2), (self.unfollow, 1), (self.begin_duel, 2),
            (self.end_duel, 1), (self.promote, 1), (self.look_at_jobs, 2),
        )  # fmt: skip

    @property
    def problems(self) -> Problems:
        """What must not happen and did."""
        return self._calls.problems

    async def run(self) -> None:
        """Act until `stop`."""
        acts, weights = zip(*self._acts, strict=True)
        while not self._done.is_set():
            act = self._rng.choices(acts, weights)[0]
            try:
                answer = await act()
            except Exception as error:  # noqa: BLE001  # a bug of the tool, or an odd answer
                self.problems.add(f"{act.__name__}: {type(error).__name__}: {error}")
                answer = None
            if answer is not None:
                self._note(act.__name__, answer)
            pause = self._rng.expovariate(1 / self._plan.churn)
            try:
                await asyncio.wait_for(self._done.wait(), pause)
            except TimeoutError:
                continue

    def stop(self) -> None:
        """Act no more."""
        self._done.set()

    def _note(self, what: str, answer: Answer) -> None:
        done = 200 <= answer.status < 300
        name = what.replace("_", " ")
        self.counts[name if done else f"{name}: {answer.status}"] += 1
        self._announcements.note("churn", f"{name}: {answer.status}")
        if answer.status not in EXPECTED:
            self.problems.add(f"{name}: {answer.status} {answer.body}")

    def _lasting(self) -> str:
        return self._rng.choice([*LASTING])

    # ---- models ----

    async def begin(self) -> None:
        """Make the models that a run keeps, unless they exist; read their logs from here on."""
        for name, (settings, share) in LASTING.items():
            answer = await self._calls.call("PUT", f"/models/{name}", settings)
            assert answer.status in (200, 201, 409), answer  # 409: tuned by the run before
            answer = await self._learnt(name)
            learnt = answer.body["feedback"] + answer.body["rejected"]
            book = Book(name, self.problems, before=learnt)
            target = new_target(name, book, settings, share, self._plan.seed)
            await self._without_followers(name)
            await self._auditor.begin(target)
            self._targets[name] = target
        for name in NAMES:
            await self._calls.call("DELETE", f"/models/{name}?followers=delete")

    async def _learnt(self, model: str) -> Answer:
        """Return a model once it has learnt all that a run before has left."""
        while True:
            answer = await self._calls.call("GET", f"/models/{model}")
            if answer.status == 200 and answer.body["version"] >= answer.body["seq"]:
                return answer
            await asyncio.sleep(0.1)

    async def _without_followers(self, leader: str) -> None:
        """Remove what the run before left, so that runs are comparable."""
        await self._calls.call("DELETE", f"/models/{leader}/duel")
        listed = await self._calls.call("GET", f"/models/{leader}/followers")
        for one in listed.body["followers"]:
            await self._calls.call("DELETE", f"/models/{one['name']}")

    async def make_model(self) -> Answer | None:
        """Make a model, also under the name of one that was deleted."""
        free = [name for name in NAMES if name not in self._targets]
        if not free:
            return None
        name, (settings, share) = self._rng.choice(free), CHURNING
        async with self._auditor.lock:
            answer = await self._calls.call("PUT", f"/models/{name}", settings)
            if answer.status == 200:  # it exists, with records: a deletion had no effect
                await self._calls.call("DELETE", f"/models/{name}?followers=delete")
            elif answer.status == 201:
                target = new_target(
                    name, Book(name, self.problems), settings, share, self._plan.seed
                )
                with suppress(*DOWN):  # made again later, without traffic until then
                    await self._auditor.begin(target)
                    self._targets[name] = target
        return answer

    async def delete_model(self) -> Answer | None:
        """Delete a model under traffic; half of the time its log is checked before."""
        names = [name for name in NAMES if name in self._targets]
        if not names:
            return None
        target = self._targets[self._rng.choice(names)]
        target.open = False
        async with self._auditor.lock:
            if self._rng.random() < 0.5 and await self._auditor.read(target):
                self.counts["deleted models that were checked"] += 1
            path = f"/models/{target.name}?followers=delete"
            answer = await self._calls.call("DELETE", path)
            del self._targets[target.name]  # without an answer it may exist, and is found later
        return answer

    async def retune(self) -> Answer:
        """Change a hyper-parameter."""
        body = self._rng.choice([{"gamma": self._rng.choice([1e3, 1e4, 1e5])},
                                 {"exploration": self._rng.choice([0.5, 1.0, 1.5])}])  # fmt: skip
        return await self._calls.call(
            "PATCH", f"/models/{self._rng.choice(['shop', 'books'])}", body
        )

    # ---- versions ----

    async def _versions(self, model: str) -> list[dict[str, Any]]:
        answer = await self._calls.call("GET", f"/models/{model}/versions")
        return answer.body["versions"] if answer.status == 200 else []

    async def roll_back(self) -> Answer | None:
        """Restore a kept version."""
        model = self._lasting()
        kept = await self._versions(model)
        if not kept:
            return None
        body = {"version": self._rng.choice(kept)["version"]}
        return await self._calls.call("POST", f"/models/{model}/rollback", body)

    async def keep_version(self) -> Answer:
        """Keep the present version under a name."""
        body = {"name": f"kept-{self._rng.randrange(4)}"}
        return await self._calls.call("POST", f"/models/{self._lasting()}/versions", body)

    async def delete_version(self) -> Answer:
        """Delete a named version, if it exists."""
        path = f"/models/{self._lasting()}/versions/kept-{self._rng.randrange(4)}"
        return await self._calls.call("DELETE", path)

    # ---- warm starts ----

    async def warm_start(self) -> Answer | None:
        """Train on judged data, and replace the model by the result; one job at a time."""
        await self.look_at_jobs()
        if self._jobs:
            return None
        began = self._announcements.now()
        answer = await self._calls.call(
            "POST", "/models/shop/warm-start?C=0.01", judged_text(self._targets["shop"]),
            headers={"content-type": "text/plain"},
        )  # fmt: skip
        if answer.status == 202:
            self._jobs[answer.body["id"]] = began
        return answer

    async def look_at_jobs(self) -> None:
        """Read the jobs that run; count how they end."""
        for job, began in list(self._jobs.items()):
            answer = await self._calls.call("GET", f"/jobs/{job}")
            if answer.status == 200 and answer.body["state"] != "running":
                del self._jobs[job]
                self.counts[f"warm starts {answer.body['state']}"] += 1
                quiet = self._announcements.is_quiet_since(began)
                error = str(answer.body.get("error"))
                if answer.body["state"] == "failed" and quiet and RETUNED not in error:
                    self.problems.add(f"job {job}: {error}")

    # ---- followers and duels ----

    async def follow(self) -> Answer:
        """Make a follower; one in four times a bank of two."""
        if self._rng.random() < 0.25:
            grid = {"grid": {"gamma": [1e3, 1e5]}}
            return await self._calls.call("POST", "/models/shop/followers", grid)
        leader = self._lasting()
        body = {"follows": leader, **({} if leader == "lite" else {"gamma": 2e3})}
        return await self._calls.call("PUT", f"/models/{leader}-b", body)

    async def unfollow(self) -> Answer:
        """Delete a follower, unless it is in a duel."""
        name = self._rng.choice([*(f"{one}-b" for one in LASTING), "shop-gamma1000"])
        return await self._calls.call("DELETE", f"/models/{name}")

    async def begin_duel(self) -> Answer | None:
        """Begin a duel or a tournament."""
        model = self._lasting()
        listed = await self._calls.call("GET", f"/models/{model}/followers")
        if model in self._duels or listed.status != 200:
            return None
        followers = [one["name"] for one in listed.body["followers"] if one["may_duel"]]
        bodies: list[dict[str, Any]] = [{"challenger": "submitted", "share": 0.3}]
        bodies += [{"challenger": name, "share": 0.5} for name in followers]
        if followers:
            bodies.append({"challenger": "followers", "max_lists": 5000, "promote": True})
        answer = await self._calls.call("PUT", f"/models/{model}/duel", self._rng.choice(bodies))
        if answer.status in (201, 409):
            self._duels.add(model)
        return answer

    async def end_duel(self) -> Answer | None:
        """End a duel, if one is on."""
        return await self._over("DELETE", "/duel")

    async def promote(self) -> Answer | None:
        """Put the challenger of a duel in place, with or without a verdict."""
        return await self._over("POST", "/duel/promote", {"force": self._rng.random() < 0.7})

    async def _over(self, method: str, path: str, body: Any = None) -> Answer | None:
        if not self._duels:
            return None
        model = self._rng.choice(sorted(self._duels))
        answer = await self._calls.call(method, f"/models/{model}{path}", body)
        if answer.status in (200, 202, 404):
            self._duels.discard(model)
        return Answer(409) if answer.status == 422 else answer  # the submitted order has no weights
