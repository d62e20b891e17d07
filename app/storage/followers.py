"""The followers of models: other folds of a model's log, with settings of their own.

The keys of a follower are in the slot of its leader, so one script compares its commit with the log
and the state of the leader, and a failover takes both back to the same moment. `LEADER/FOLLOWER` is
the address of a follower (`keys.py`); other parts of the store take it like a model's name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.domain.model import ModelState
from app.errors import BadBlob, Changed, ModelExists, NoSuchModel, RolledBack, SolarError, Stalled
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import (
    FOLLOWER_NAMES,
    MODELS,
    check_name,
    follower_address,
    follower_name,
    keys_of,
    leader_of,
)
from app.storage.log import LogEntry
from app.storage.states import (
    DAMAGED,
    POSITION_FIELDS,
    LogPosition,
    check_committed,
    dump_state,
    learnt_values,
    read_position,
)

_STALLED = b"stalled"


class LeaderProgress(NamedTuple):
    """The committed position of a leader, and the seqs of the versions that its log continues."""

    position: LogPosition
    versions: list[int]

    @property
    def seq(self) -> int:
        """The committed seq: no follower passes it."""
        return self.position[1]


class Followers:
    """The followers of all models."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    # ---- names ----

    async def leaders(self) -> dict[str, str]:
        """Return the leader of each follower, by the follower's name."""
        with translated(self._client):
            found = await self._client.hgetall(FOLLOWER_NAMES)
        return {name.decode(): found[name].decode() for name in sorted(found)}

    async def addresses(self) -> list[str]:
        """Return the addresses of all followers."""
        return [follower_address(leader, name) for name, leader in (await self.leaders()).items()]

    async def address(self, name: str) -> str | None:
        """Return the address of a follower by its name; None if no follower has it."""
        with translated(self._client):
            leader = await self._client.hget(FOLLOWER_NAMES, name)
        return None if leader is None else follower_address(leader.decode(), name)

    async def register(self, leader: str, names: Sequence[str]) -> None:
        """Register names of followers, or of models if `leader` is empty: all, or ModelExists."""
        taken = await self._calls.durable_script(
            "register", [MODELS, FOLLOWER_NAMES], [leader, *names]
        )
        if taken:
            name = taken[0].decode()
            raise ModelExists(f"model {name}: expected a new name, got one that exists")

    async def relist(self, address: str) -> None:
        """Restore the name of an existing follower: a Cluster failover may lose the name alone."""
        leader, names = leader_of(address), [follower_name(address)]
        if await self._exists(address):
            await self.register(leader, names)
            await self._forget_missing(leader, names)  # deleted in between

    async def _forget_missing(self, leader: str, names: Sequence[str]) -> None:
        """Remove the names of followers that do not exist."""
        with translated(self._client):
            for name in names:
                if not await self._exists(follower_address(leader, name)):
                    await self._client.hdel(FOLLOWER_NAMES, name)

    async def _exists(self, address: str) -> bool:
        with translated(self._client):
            return bool(await self._client.exists(keys_of(address).state))

    # ---- creation and deletion ----

    async def create(
        self, leader: str, epoch: int, states: Mapping[str, ModelState]
    ) -> dict[str, int]:
        """Create followers with their first states, all or none; return their epochs.

        Each state has the leader's chain at its seq. That is the seq of the leader's committed
        state, or of a version that the log continues. ModelExists if a name is taken, NoSuchModel
        without a leader of this epoch, Changed if the log is no longer whole from a start.
        """
        for name in states:
            if await self._exists(check_name(name)):  # also if the name is not listed
                raise ModelExists(f"model {name}: expected a new name, got one that exists")
        # Before and after: this call may end early, or a deletion may remove the names.
        await self.register(leader, list(states))
        found = await self._calls.durable_script("follow", *_creation(leader, epoch, states))
        if found[0] <= 0:
            await self._forget_missing(leader, list(states))
            raise _refused(found[0], leader)
        await self.register(leader, list(states))
        return dict(zip(states, map(int, found), strict=True))

    async def delete(self, address: str) -> bool:
        """Delete a follower; return whether it existed."""
        keys, name, deleted = keys_of(address), follower_name(address), -1
        with translated(self._client):
            epoch = await self._client.hget(keys.state, "epoch")
            while deleted < 0:  # a learner may store another version in between
                seqs = await self._client.zrange(keys.snapshots, 0, -1)
                names = [keys.followers, keys.state, keys.lease, keys.snapshots]
                names += [keys.snapshot(int(seq)) for seq in seqs]
                values = [name, epoch or ""]
                deleted = int(await self._calls.durable_script("unfollow", names, values))
            await self._calls.durable_command(FOLLOWER_NAMES, "HDEL", FOLLOWER_NAMES, name)
            await self.relist(address)  # if it was created again in between
        return bool(deleted)

    async def delete_all(self, leader: str) -> None:
        """Delete all followers of a model."""
        for name in await self.of(leader):
            await self.delete(follower_address(leader, name))

    async def delete_left(self, leader: str) -> None:
        """Delete the followers of a model that does not exist: an older release deleted it."""
        if not await self._exists(leader):
            await self.delete_all(leader)

    # ---- the leader and its log ----

    async def of(self, leader: str) -> dict[str, bool]:
        """Return the followers of a model by name, and whether each is stalled."""
        with translated(self._client):
            found = await self._client.hgetall(keys_of(leader).followers)
        return {name.decode(): found[name] == _STALLED for name in sorted(found)}

    async def is_stalled(self, address: str) -> bool:
        """Whether a follower is stalled: the log does not wait for it any more."""
        with translated(self._client):
            found = await self._client.hget(keys_of(address).followers, follower_name(address))
        return bool(found == _STALLED)

    async def progress(self, leader: str) -> LeaderProgress:
        """Return the progress of a leader; NoSuchModel without one, BadBlob if it is damaged.

        The versions are read after the position, so none up to its seq is missing.
        """
        keys = keys_of(leader)
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.hmget(keys.state, POSITION_FIELDS)
            pipeline.zrange(keys.snapshots, 0, -1)
            fields, versions = await pipeline.execute()
        if fields[0] is None:
            raise NoSuchModel(f"model {leader}: no model of this name")
        position = read_position(fields)
        if position == DAMAGED:
            raise BadBlob("expected a complete state, got one without its position in the log")
        return LeaderProgress(position, [int(seq) for seq in versions])

    async def shorten(self, address: str, seq: int, leader: LogPosition) -> bool:
        """Let a follower drop its versions before `seq`; return whether it is stalled now.

        It is stalled if its newest version is one of them. Nothing changes if its leader has
        committed another state than that at `leader`.
        """
        keys = keys_of(address)
        with translated(self._client):
            found = [int(one) for one in await self._client.zrange(keys.snapshots, 0, -1)]
        names = [*_keys_of_shorten(address), *(keys.snapshot(one) for one in found if one < seq)]
        values = [follower_name(address), seq, *leader]
        return bool(await self._calls.script("shorten", names, values))

    async def stall(self, address: str) -> None:
        """Mark a follower as stalled, whatever its versions are."""
        values = [follower_name(address), ""]
        await self._calls.script("shorten", _keys_of_shorten(address), values)

    async def commit(
        self,
        address: str,
        base: LogPosition,
        fence: int,
        state: ModelState,
        *,
        fields: Sequence[bytes] | None = None,
        reason: str = "",
        drop: Sequence[int] = (),
        again: bool = False,
        learnt: Sequence[LogEntry] = (),
    ) -> None:
        """Replace the committed state `base` of a follower by `state`, or raise Fenced.

        With a `reason` the state is also kept as a version. RolledBack if the log or the leader has
        other records, Stalled if the follower is. The other values are those of `States.commit`.
        """
        keys, (epoch, seq, chain) = keys_of(address), base
        leader = keys_of(leader_of(address))
        names = [keys.state, keys.fence, keys.log, keys.followers, leader.state, keys.snapshots]
        names += [keys.snapshot(state.seq) if reason else keys.state, *map(keys.snapshot, drop)]
        values = [epoch, fence, seq, chain, state.seq, state.chain]
        values += dump_state(state) if fields is None else fields
        values += [reason, int(again), follower_name(address), *learnt_values(learnt)]
        code = await self._calls.script("commit_follower", names, values)
        if code == 4:
            raise RolledBack(f"model {address}: its leader has other records up to {state.seq}")
        if code == 5:
            raise Stalled(f"model {address}: it is stalled; delete it and create it again")
        check_committed(code, address, state.seq)


def _keys_of_shorten(address: str) -> list[str]:
    own = keys_of(address)
    return [own.followers, own.snapshots, keys_of(leader_of(address)).state]


def _creation(
    leader: str, epoch: int, states: Mapping[str, ModelState]
) -> tuple[list[str], list[Any]]:
    """Return the keys and the values of new followers for the script."""
    keys, values = keys_of(leader), list[Any]([epoch])
    names = [keys.state, keys.snapshots, keys.followers]
    for name, state in states.items():
        own = keys_of(follower_address(leader, name))
        names += [own.epoch, own.state, own.snapshots, own.snapshot(state.seq)]
        values += [name, state.seq, state.chain, *dump_state(state)]
    return names, values


def _refused(code: int, leader: str) -> SolarError:
    """Return the error of a creation that was refused."""
    if code == 0:
        return ModelExists(f"model {leader}: expected new names of followers, got one that exists")
    if code == -1:
        return NoSuchModel(f"model {leader}: no model of this name")
    return Changed(f"model {leader}: the log is not whole from the start of a follower; try again")
