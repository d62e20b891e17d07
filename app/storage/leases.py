"""Learner leases: one for each model, and the list of running learners."""

from typing import Any

from app.errors import NoSuchModel
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import LEARNERS, keys_of


class Leases:
    """The leases of learners."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    async def take(self, model: str, fence: int, ttl: float) -> int:
        """Take or renew the lease; return the fencing token, 0 if another learner holds it."""
        keys = keys_of(model)
        got = await self._calls.script(
            "lease", [keys.state, keys.fence, keys.lease], [fence or "", int(ttl * 1000)]
        )
        if got < 0:
            raise NoSuchModel(f"model {model}: no model of this name")
        return int(got)

    async def release(self, model: str, fence: int) -> None:
        """Release the lease if `fence` holds it."""
        await self._calls.script("release", [keys_of(model).lease], [fence])

    async def present(self, learner: str, seconds: float) -> int:
        """Register a running learner for `seconds`; return the number of learners."""
        values = [learner, max(1, int(seconds * 1000))]
        return int(await self._calls.script("present", [LEARNERS], values))

    async def learners(self) -> int:
        """Return the number of running learners."""
        return int(await self._calls.script("learners", [LEARNERS], []))

    async def absent(self, learner: str) -> None:
        """Remove a learner from the list."""
        with translated(self._client):
            await self._client.zrem(LEARNERS, learner)
