"""Who learns what: a lease on each model, and the list of learners at work."""

from typing import Any

from app.errors import NoSuchModel
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import LEARNERS, keys_of


class Leases:
    """The leases of learners."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    async def take(self, model: str, fence: int, ttl: float) -> int:
        """Take or keep the lease; our fencing token, or 0 if another learner holds it."""
        keys = keys_of(model)
        got = await self._calls.script(
            "lease", [keys.state, keys.fence, keys.lease], [fence or "", int(ttl * 1000)]
        )
        if got < 0:
            raise NoSuchModel(f"model {model}: there is none of this name")
        return int(got)

    async def release(self, model: str, fence: int) -> None:
        """Give the lease back, if it is ours."""
        await self._calls.script("release", [keys_of(model).lease], [fence])

    async def present(self, learner: str, seconds: float) -> int:
        """Say that a learner is at work, for so long at least; how many there are."""
        values = [learner, max(1, int(seconds * 1000))]
        return int(await self._calls.script("present", [LEARNERS], values))

    async def absent(self, learner: str) -> None:
        """Say that a learner is no more."""
        with translated():
            await self._client.zrem(LEARNERS, learner)
