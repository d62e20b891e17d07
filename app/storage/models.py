"""The set of models and the status of each."""

from collections.abc import Sequence
from typing import Any

from app.domain.facts import ModelStatus
from app.domain.model import ModelState
from app.errors import HasFollowers, ModelExists, TooManyModels
from app.storage.calls import ScriptRunner, translated
from app.storage.followers import Followers
from app.storage.keys import HISTORIES, MODELS, check_name, keys_of
from app.storage.leases import is_void, token_of
from app.storage.log import is_number
from app.storage.states import dump_state
from app.storage.versions import Versions


class Models:
    """The set of all models."""

    def __init__(
        self, client: Any, calls: ScriptRunner, versions: Versions, followers: Followers
    ) -> None:
        self._client, self._calls, self._versions = client, calls, versions
        self._followers = followers

    async def create(self, model: str, state: ModelState, most: int = 1 << 62) -> int:
        """Create a model at seq 0; return its epoch. TooManyModels if there are `most` already.

        Creations at the same time may exceed `most` by their number. ModelExists also if a follower
        has this name.
        """
        keys = keys_of(check_name(model))
        with translated(self._client):
            count = int(await self._client.scard(MODELS))
            if count >= most and not await self._client.exists(keys.state):
                raise TooManyModels(
                    f"model {model}: expected at most {most} models (SOLAR_MODELS), got {count}; "
                    "delete a model or raise the limit"
                )
        # Before and after: this call may end early, or a deletion may remove the name.
        await self._followers.register("", [model])
        names = [keys.epoch, keys.state, keys.seq, keys.snapshots, keys.snapshot(0)]
        names += [keys.followers, keys.keeps, *await self._versions.left_keys(model)]
        values, epoch = [state.chain, *dump_state(state)], -1
        while epoch < 0:  # a deletion by an older release left followers behind
            await self._followers.delete_left(model)
            epoch = int(await self._calls.durable_script("create", names, values))
        await self._followers.register("", [model])
        if not epoch:
            raise ModelExists(f"model {model}: expected a new name, got one that exists")
        return epoch

    async def delete(self, model: str) -> bool:
        """Delete a model with its log and versions; return whether it existed.

        HasFollowers if models follow it.
        """
        keys = keys_of(check_name(model))
        with translated(self._client):
            epoch, deleted = await self._client.hget(keys.state, "epoch"), -1
            while deleted == -1:  # a learner may store another version in between
                kept = await self._versions.all_keys(model)
                names = [keys.state, keys.seq, keys.log, keys.lease, keys.snapshots, keys.keeps]
                names += [keys.watched, keys.samples, keys.recent(int(epoch or 0))]
                names += [*keys.history(int(epoch or 0)), keys.followers, *kept]
                deleted = int(await self._calls.durable_script("delete", names, [epoch or ""]))
            if deleted == -2:
                raise HasFollowers(f"model {model}: expected no followers; delete them first")
            await self._calls.durable_command(MODELS, "SREM", MODELS, model)
            await self._client.zrem(HISTORIES, model)
            if await self._client.exists(keys.state):  # created again in between
                await self._client.sadd(MODELS, model)
        return bool(deleted)

    async def names(self) -> list[str]:
        """Return the names of all models."""
        with translated(self._client):
            return sorted(name.decode() for name in await self._client.smembers(MODELS))

    async def relist(self, model: str) -> None:
        """Restore the name of an existing model: a Cluster failover may lose the name alone."""
        with translated(self._client):
            if await self._client.exists(keys_of(model).state):
                await self._client.sadd(MODELS, model)
                if not await self._client.exists(keys_of(model).state):  # deleted in between
                    await self._client.srem(MODELS, model)

    async def backlogs(self, models: Sequence[str]) -> dict[str, int]:
        """Return how many records of each model wait for a learner, in one round trip.

        A model that does not exist or is damaged is missing, and so is one whose server fails.
        """
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for keys in map(keys_of, models):
                pipeline.hmget(keys.state, ["seq"])
                pipeline.get(keys.seq)
            found = iter(await pipeline.execute(raise_on_error=False) if models else [])
        return {
            name: int(tail) - int(state[0])
            for name, state, tail in zip(models, found, found, strict=True)
            if isinstance(state, list) and is_number(state[0]) and is_number(tail)
        }

    async def statuses(self, models: Sequence[str]) -> dict[str, ModelStatus]:
        """Return the status of each existing model, in one round trip; void leases do not count."""
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for keys in map(keys_of, models):  # one by one: a Cluster pipeline has no MGET
                for key in (keys.seq, keys.fence, keys.lease, keys.training):
                    pipeline.get(key)
                pipeline.hmget(keys.state, ["seq", "charged", "worked"])
                for key in (keys.lease, keys.training):
                    pipeline.pttl(key)
            found = await pipeline.execute(raise_on_error=False) if models else []
            each = list(zip(*[iter(found)] * 7, strict=True))
            for error in (part for values in each for part in values[:4]):
                if isinstance(error, Exception):
                    raise error
        return {
            name: _status(*values)
            for name, values in zip(models, each, strict=True)
            if is_number(values[0])
        }


def _status(
    tail: bytes,
    fence: bytes | None,
    lease: bytes | None,
    trains: bytes | None,
    work: Sequence[bytes | None] | Exception,
    *left: object,
) -> ModelStatus:
    """Return a status of stored values and the remaining milliseconds of both leases."""
    leads = lease is not None and not is_void(lease, left[0])
    return ModelStatus(
        int(tail),
        leader=token_of(lease) if lease and leads else 0,
        terms=int(fence or 0),
        trains=trains is not None and not is_void(trains, left[1]),
        waiting_work=0.0 if isinstance(work, Exception) else waiting_work(tail, *work),
    )


def waiting_work(
    tail: bytes, seq: bytes | None, charged: bytes | None, worked: bytes | None
) -> float:
    """Return the work of the records that wait, as the append script computes it; 0: unknown.

    >>> waiting_work(b"7", b"5", b"900", b"5:200"), waiting_work(b"7", b"6", b"900", b"5:200")
    (700.0, 0.0)
    """
    at, _, done = (worked or b"").partition(b":")
    known = is_number(charged) and is_number(done) and seq == at != tail
    return float(charged or 0) - float(done) if known else 0.0
