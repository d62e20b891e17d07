"""Learner leases: one for each model, and the list of running learners.

The server's clock ends a lease. A clock that goes back lengthens it: a lease that was written while
the clock was two hours ahead lasts two hours more. So a lease carries its length. One that expires
later than its length allows is void: the scripts and `is_void` treat it as expired.
"""

import re
from collections.abc import Iterable
from typing import Any

from app.errors import NoSuchModel
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import LEARNERS, keys_of, learner_key

#: Milliseconds of the longest lease: ten digits.
MOST_MILLISECONDS = 10**10 - 1
#: A fencing token and the length of its lease; a name and the length of its lease.
_TOKEN, _NAMED = re.compile(rb"(\d+)(\d{10})"), re.compile(rb".*:(\d+)")
#: Milliseconds of a lease without a length, which version 0.2 wrote.
_LENGTH_OF_0_2 = 60_000
#: Milliseconds by which a lease may exceed its length.
_TOLERANCE = 1_000


def milliseconds(seconds: float) -> int:
    """Return the length of a lease in milliseconds."""
    return max(1, min(int(seconds * 1000), MOST_MILLISECONDS))


def with_length(name: str, seconds: float) -> str:
    """Return the name of a holder with the length of its lease.

    >>> with_length("7f3a", 5.0)
    '7f3a:5000'
    """
    return f"{name}:{milliseconds(seconds)}"


def token_of(lease: bytes) -> int:
    """Return the fencing token in a learner's lease.

    >>> token_of(b"70000005000"), token_of(b"7")
    (7, 7)
    """
    found = _TOKEN.fullmatch(lease)
    return int(found[1] if found else lease)


def is_void(lease: bytes, left: object) -> bool:
    """Whether a lease expires in more milliseconds (`left`) than its length allows, or never.

    An error instead of the milliseconds, from a server that denies PTTL, counts as valid.

    >>> is_void(b"70000005000", 5_400), is_void(b"70000005000", 7_000), is_void(b"a:5000", -1)
    (False, True, True)
    >>> is_void(b"7", 60_000), is_void(b"7", 62_000), is_void(b"7", PermissionError())
    (False, True, False)
    """
    if not isinstance(left, int):
        return False
    token, named = _TOKEN.fullmatch(lease), _NAMED.fullmatch(lease)
    length = int(token[2]) if token else int(named[1]) if named else _LENGTH_OF_0_2
    return left < 0 or left > length + _TOLERANCE


class Leases:
    """The leases of learners."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    async def take(self, model: str, fence: int, ttl: float) -> int:
        """Take or renew the lease; return the fencing token, 0 if another learner holds it."""
        keys = keys_of(model)
        got = await self._calls.script(
            "lease", [keys.state, keys.fence, keys.lease], [fence or "", milliseconds(ttl)]
        )
        if got < 0:
            raise NoSuchModel(f"model {model}: no model of this name")
        return int(got)

    async def release(self, model: str, fence: int) -> None:
        """Release the lease if `fence` holds it."""
        await self._calls.script("release", [keys_of(model).lease], [fence])

    async def present(self, learner: str, seconds: float, led: Iterable[str] = ()) -> int:
        """Register a running learner and the models that it leads; return the number of learners.

        Its name is made by `with_length`. The registration lasts for `seconds`.
        """
        names = [LEARNERS, learner_key(learner)]
        values = [learner, milliseconds(seconds), ",".join(sorted(led))]
        return int(await self._calls.script("present", names, values))

    async def learners(self) -> int:
        """Return the number of running learners."""
        return len(await self._calls.script("learners", [LEARNERS], []))

    async def led_models(self) -> dict[str, list[str] | None]:
        """Return the models that each running learner leads; None for one of an older release."""
        names = [one.decode() for one in await self._calls.script("learners", [LEARNERS], [])]
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for name in names:
                pipeline.get(learner_key(name))
            found = await pipeline.execute() if names else []
        return {
            name: None if led is None else led.decode().split(",") if led else []
            for name, led in zip(names, found, strict=True)
        }

    async def absent(self, learner: str) -> None:
        """Remove a learner from the list."""
        with translated(self._client):
            await self._client.zrem(LEARNERS, learner)
