"""I24: a follower equals a replay of its leader's log from its first version, and never passes it.

The log is not trimmed past what a follower needs, unless it is stalled.
"""

from app.domain.model import ModelState
from app.storage.keys import Keys, follower_address, leader_of
from tests.simulation.expected import (
    FollowerEpoch,
    ModelEpoch,
    Replays,
    address_of,
    bits,
    bits_of,
    decoded,
    hold,
)
from tests.simulation.keyspace import Keyspace
from tests.simulation.scripts import EACH_OF_FOLLOW, KEYS_OF_FOLLOW
from tests.simulation.server import Step


class FollowerChecks:
    """All followers, as computed from the steps of the server."""

    def __init__(self, replays: Replays, fences: dict[str, int]) -> None:
        self._replays, self._fences = replays, fences
        self.all: dict[tuple[str, int], FollowerEpoch] = {}
        self._weights: set[tuple[str, bytes]] = set()  # committed, also if they were lost

    def epoch_of(self, address: str, epoch: int) -> FollowerEpoch:
        """Return an epoch of a follower."""
        hold((address, epoch) in self.all, f"I24: {address} does not exist in epoch {epoch}")
        return self.all[address, epoch]

    def existing(self, leader: str) -> dict[str, FollowerEpoch]:
        """Return the followers of a model by address."""
        return {
            address: one
            for (address, _), one in self.all.items()
            if leader_of(address) == leader and not one.ended
        }

    def able(self, leader: str) -> list[str]:
        """Return the addresses of those followers of a model that are not stalled."""
        return [address for address, one in self.existing(leader).items() if not one.stalled]

    def has_committed(self, address: str, weights: bytes) -> bool:
        """Whether a follower of this address has ever committed these weights."""
        return (address, weights) in self._weights

    # ---- steps ----

    def note(self, step: Step, leader: ModelEpoch) -> list[bytes]:
        """Note a step of a follower of a model; return the chains that are committed by it."""
        if step.call.name == "follow":
            return self._created(step, leader)
        if step.call.name == "commit_follower":
            return [self._committed(step)]
        notes = {"unfollow": self._deleted, "shorten": self._shortened}
        notes[step.call.name](step)
        return []

    def _created(self, step: Step, leader: ModelEpoch) -> list[bytes]:
        """Note new followers; each starts at a version of the leader, or at its committed state."""
        keys, args = step.call.given
        for at, epoch in enumerate(step.answer):
            state = keys[3 + KEYS_OF_FOLLOW * at + 1]
            values = args[1 + EACH_OF_FOLLOW * at :][:EACH_OF_FOLLOW]
            fields = step.writes[state]
            assert fields is not None
            start, address = decoded(fields.value), address_of(state)
            hold((address, epoch) not in self.all, f"I24: an epoch of {address} is used again")
            hold(
                start.seq == values[1] <= leader.state.seq, f"I24: {address} begins at {start.seq}"
            )
            hold(start.chain == leader.chains[start.seq], f"I24: {address} has other records")
            name = b"%s:%d:%s" % (address.encode(), epoch, repr(bits(start)).encode())
            self.all[address, epoch] = FollowerEpoch(start, leader, start, name)
            self._weights.add((address, start.model.weights.tobytes()))
        return [one.start.chain for one in self.all.values()]

    def _deleted(self, step: Step) -> None:
        """Note a deletion."""
        keys, args = step.call.given
        if step.answer == 1:
            deleted = self.epoch_of(address_of(keys[1]), int(args[1]))
            deleted.ended, deleted.ended_after = True, len(deleted.records)

    def _committed(self, step: Step) -> bytes:
        """Check the base, the fence and the place of a commit."""
        keys, args = step.call.given
        address, (epoch, fence, seq, chain, new, new_chain) = address_of(keys[0]), args[:6]
        current = self.epoch_of(address, int(epoch))
        now, leads = current.state, current.leader.state.seq
        hold((seq, chain) == (now.seq, now.chain), f"I9: {new} builds on {seq}, not on {now.seq}")
        hold(fence == self._fences[address], f"I10: {fence}, but {self._fences[address]} leads")
        if new < now.seq:  # the records that it was learning were lost
            hold(not args[10] and args[11], f"I24: {address} goes back from {now.seq} to {new}")
            current.state = current.start
        hold(new <= leads, f"I24: {address} is at {new}, its leader at {leads}")
        hold(new_chain == current.chains[new], f"I24: the chain of {address} at {new}")
        hold(not current.stalled, f"I24: {address} is stalled, but commits")
        versions = current.leader.versions | {current.start.seq}
        hold(not args[10] or new in versions, f"I24: a version at {new}, but not of its leader")
        current.state = self._replays.to(current, new)
        self._weights.add((address, current.state.model.weights.tobytes()))
        return current.state.chain

    def _shortened(self, step: Step) -> None:
        """Note a follower for which the log does not wait any more."""
        keys, args = step.call.given
        address = follower_address(address_of(keys[0]), str(args[0]))
        current = self.existing(leader_of(address)).get(address)
        if step.answer and current is not None:
            current.stalled = True

    # ---- data in the server ----

    def look(self, db: Keyspace, leader: str, current: ModelEpoch, trimmed: int) -> None:
        """Check all followers of a model; its log begins after record `trimmed`."""
        marks = db.hgetall(Keys(leader).followers)
        existing = self.existing(leader)
        names = {address.partition("/")[2].encode(): one for address, one in existing.items()}
        hold(marks.keys() == names.keys(), f"I24: {marks.keys()}, but {names.keys()} exist")
        for name, one in names.items():
            hold(one.leader is current, f"I24: {name!r} follows a model that was deleted")
            stalled = marks[name] == b"stalled"
            hold(stalled == one.stalled, f"I24: {name!r} is stalled: {marks[name]!r}")
            self._look_at(db, follower_address(leader, name.decode()), one, trimmed)

    def _look_at(self, db: Keyspace, address: str, current: FollowerEpoch, trimmed: int) -> None:
        keys = Keys(address)
        state = decoded(db.hgetall(keys.state))
        hold(bits(state) == bits(current.state), f"I24: {address} at {state.seq}: not the replay")
        versions = [int(one) for one in db.zrange(keys.snapshots)]
        hold(versions and versions[-1] <= state.seq, f"I24: {address} has versions {versions}")
        hold(all(db.exists(keys.snapshot(one)) for one in versions), "I24: a version is missing")
        if current.stalled:
            leaders = [int(one) for one in db.zrange(Keys(leader_of(address)).snapshots)]
            behind = versions[-1] < leaders[-1]
            hold(behind, f"I24: {address} is stalled, but its leader has no later version")
        else:
            hold(trimmed <= versions[0], f"I24: trimmed to {trimmed}, but {address}: {versions}")

    # ---- at the end ----

    def check_all(self, leader: str, tail: int) -> None:
        """Fold each follower's records again in one go, from its first version."""
        for address, one in self.existing(leader).items():
            if one.stalled:
                continue
            hold(one.state.seq == tail, f"I15: {address} stands at {one.state.seq}, not {tail}")
            first = FollowerEpoch(one.start, one.leader, one.start, b"")
            whole = Replays().to(first, tail)
            hold(bits(whole) == bits(one.state), f"I24: {address}: another replay")
            hold(whole.model.config == one.start.model.config, "I24: a follower's own settings")


def same_model(one: ModelState, other: ModelState) -> bool:
    """Whether two states have the same weights and covariance."""
    return bits_of(one.model)[1:] == bits_of(other.model)[1:]
