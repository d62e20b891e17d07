"""Which models there are, and how each stands beside its state."""

from collections.abc import Sequence
from typing import Any

from app.domain.facts import ModelStatus
from app.domain.model import ModelState
from app.errors import ModelExists
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import MODELS, check_name, keys_of
from app.storage.states import States, dump_state


class Models:
    """The set of all models."""

    def __init__(self, client: Any, calls: ScriptRunner, states: States) -> None:
        self._client, self._calls, self._states = client, calls, states

    async def create(self, model: str, state: ModelState) -> int:
        """A new model in state 0; returns its epoch."""
        keys = keys_of(check_name(model))
        with translated():
            await self._client.sadd(MODELS, model)  # before and after: we may be cut short, and
        epoch = await self._calls.kept_script(  # somebody may delete the name in between
            "create",
            [keys.epoch, keys.state, keys.seq, keys.snapshots, keys.snapshot(0)],
            [state.chain, *dump_state(state)],
        )
        await self._calls.kept(MODELS, "SADD", MODELS, model)
        if not epoch:
            raise ModelExists(f"model {model}: expected a new name, got one that exists")
        return int(epoch)

    async def delete(self, model: str) -> bool:
        """End a model with all that it has learnt; whether there was one."""
        keys = keys_of(check_name(model))
        with translated():
            epoch, gone = await self._client.hget(keys.state, "epoch"), -1
            while gone < 0:  # a learner may keep one more version meanwhile
                kept = [keys.snapshot(seq) for seq in await self._states.versions(model)]
                names = [keys.state, keys.seq, keys.log, keys.lease, keys.snapshots, *kept]
                gone = int(await self._calls.kept_script("delete", names, [epoch or ""]))
            await self._calls.kept(MODELS, "SREM", MODELS, model)
            if await self._client.exists(keys.state):  # created again meanwhile
                await self._client.sadd(MODELS, model)
        return bool(gone)

    async def names(self) -> list[str]:
        """The names of all models."""
        with translated():
            return sorted(name.decode() for name in await self._client.smembers(MODELS))

    async def relist(self, model: str) -> None:
        """Put a model's name back, if there is one: a Cluster may lose the name alone."""
        with translated():
            if await self._client.exists(keys_of(model).state):
                await self._client.sadd(MODELS, model)
                if not await self._client.exists(keys_of(model).state):  # deleted meanwhile
                    await self._client.srem(MODELS, model)

    async def statuses(self, models: Sequence[str]) -> dict[str, ModelStatus]:
        """How many models stand, as far as they exist: one round trip."""
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for keys in map(keys_of, models):  # one by one: a Cluster's pipeline knows no MGET
                for key in (keys.seq, keys.lease, keys.fence, keys.training):
                    pipeline.get(key)
            found = iter(await pipeline.execute() if models else [])
        each = zip(models, found, found, found, found, strict=True)
        return {
            name: ModelStatus(int(tail), int(lease or 0), int(fence or 0), trains is not None)
            for name, tail, lease, fence, trains in each
            if tail is not None
        }
