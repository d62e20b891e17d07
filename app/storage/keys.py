"""Names of a model's keys; `scripts/README.md` describes each.

A follower is addressed as `LEADER/FOLLOWER`: its keys are in the slot of its leader, and its log is
that of its leader. A model is addressed by its name, so most code needs no difference.

Dedupe entries are fields of hashes by time slice, which Redis keeps in its compact encoding: 16
bytes of the event id's hash, 8 bytes of the body's hash and the seq. The entries of a slice are
spread over 2^bits buckets. The append script opens a slice twice per window, or when the buckets
are full, and its caller declares the buckets of its events in all slices.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from app.errors import InvalidInput

MODELS, LEARNERS, JOB_LIST = "solar:models", "solar:learners", "solar:jobs"
#: The names of followers → their leaders, in the slot of MODELS.
FOLLOWER_NAMES = f"solar:{{{MODELS}}}:followers"
#: What each worker has stored, by API key.
USAGE = "solar:usage"
#: Bytes of clicked lists that are remembered longer, by slice of time.
KEPT_LISTS = "solar:kept"
#: The models that have a history → the time of their last admission.
HISTORIES = "solar:history"
#: Channels of hints, named in the scripts too.
CHANGED_CHANNEL, APPENDED_CHANNEL = "solar:changed", "solar:appended"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_name(model: str) -> bool:
    """Whether a model may have this name: dots separate request ids."""
    return _NAME.fullmatch(model) is not None


def check_name(model: str) -> str:
    """Return a valid model name, or raise InvalidInput."""
    if not is_name(model):
        raise InvalidInput("model: expected 1 to 64 letters, digits, '-' or '_'")
    return model


def follower_address(leader: str, name: str) -> str:
    """Return the address of a follower.

    >>> follower_address("shop", "shop-b")
    'shop/shop-b'
    """
    return f"{leader}/{name}"


def is_follower(address: str) -> bool:
    """Whether an address is that of a follower: a name has no slash."""
    return "/" in address


def leader_of(address: str) -> str:
    """Return the leader of a follower, or the model itself.

    >>> leader_of("shop/shop-b"), leader_of("shop")
    ('shop', 'shop')
    """
    return address.partition("/")[0]


def follower_name(address: str) -> str:
    """Return the name that people see of a follower or a model.

    >>> follower_name("shop/shop-b"), follower_name("shop")
    ('shop-b', 'shop')
    """
    return address.rpartition("/")[2]


def is_address(text: str) -> bool:
    """Whether a text is the name of a model or the address of a follower.

    >>> is_address("shop"), is_address("shop/shop-b"), is_address("shop/b/c"), is_address("/b")
    (True, True, False, False)
    """
    leader, slash, name = text.partition("/")
    return is_name(leader) and (is_name(name) if slash else True)


def learner_key(learner: str) -> str:
    """Return the key of the models that a learner leads, in the slot of LEARNERS."""
    return f"solar:{{{LEARNERS}}}:{learner}"


def internal_event(kind: str, name: str) -> str:
    r"""Return the id of an event of the service; callers cannot send its control character.

    >>> internal_event("job", "books.7")
    '\x01job-books.7'
    """
    return f"\x01{kind}-{name}"


class Keys:
    """All keys of one model or follower, in one slot of a Cluster."""

    def __init__(self, address: str) -> None:
        leader, _, follower = address.partition("/")
        prefix = f"solar:{{{leader}}}:"
        self.log, self.seq = f"{prefix}log", f"{prefix}seq"
        self.followers = f"{prefix}followers"
        prefix = self._prefix = f"{prefix}f:{follower}:" if follower else prefix
        self.epoch, self.state = f"{prefix}epoch", f"{prefix}state"
        self.snapshots, self.keeps = f"{prefix}snaps", f"{prefix}keeps"
        self.lease, self.fence = f"{prefix}lease", f"{prefix}fence"
        self.training, self.trained = f"{prefix}training", f"{prefix}trained"
        self.watched, self.samples = f"{prefix}watched", f"{prefix}samples"

    def job(self, job: str) -> str:
        """Return the key of a training job."""
        return f"{self._prefix}job:{job}"

    def snapshot(self, seq: int) -> str:
        """Return the key of the snapshot after record `seq`."""
        return f"{self._prefix}snap:{seq}"

    def kept(self, member: str) -> str:
        """Return the key of an hourly or named version, by its member of `keeps`."""
        return f"{self._prefix}keep:{member}"

    def hourly(self, epoch: int, seq: int) -> str:
        """Return the key of the hourly version after record `seq`."""
        return self.kept(f"{epoch}-hour-{seq}")

    def named(self, epoch: int, name: str) -> str:
        """Return the key of a named version."""
        return self.kept(f"{epoch}-name-{name}")

    def dueling(self, epoch: int, seq: int) -> str:
        """Return the key of a version that is kept for a duel."""
        return self.kept(f"{epoch}-duel-{seq}")

    def event(self, epoch: int, event: str) -> str:
        """Return the dedupe key of an internal event; in releases up to 0.2, of every event."""
        return f"{self._prefix}d:{epoch}:{event}"

    def events(self, epoch: int, number: int, bucket: int) -> str:
        """Return the key of a bucket of dedupe entries in a time slice."""
        return f"{self._prefix}e:{epoch}:{number}:{bucket}"

    def history(self, epoch: int) -> tuple[str, str, str]:
        """Return the keys of the history: points by 10 seconds, by 10 minutes, weights by hour."""
        start = f"{self._prefix}history:{epoch}:"
        return f"{start}10s", f"{start}10m", f"{start}weights"

    def recent(self, epoch: int) -> str:
        """Return the key of the list of recent requests."""
        return f"{self._prefix}recent:{epoch}"

    def impression(self, epoch: int, request: str) -> str:
        """Return the key of an impression and its accumulated feedback."""
        return f"{self._prefix}imp:{epoch}:{request}"


#: Cached keys of a model; 1.5 kB each.
keys_of = lru_cache(maxsize=8192)(Keys)


#: Bytes of the hash of an event id, and of a body in an entry.
ID_BYTES, BODY_BYTES = 16, 8
#: Seconds that the time of an event may be ahead of the store's clock.
AHEAD_SECONDS = 300.0


class Slices(NamedTuple):
    """The slices of a model: number and bits of each, and whether older processes may append."""

    legacy: bool
    each: tuple[tuple[int, int], ...]


@lru_cache(maxsize=8192)
def read_slices(text: bytes) -> Slices:
    """Read the field `slices` of a state; without one there are no slices yet.

    >>> read_slices(b"0 7:3:1750000000000 8:5:1750001800000")
    Slices(legacy=False, each=((7, 3), (8, 5)))
    """
    until, *words = text.split() or [b"0"]
    each = [word.split(b":") for word in words]
    return Slices(until != b"0", tuple((int(number), int(bits)) for number, bits, _ in each))


def event_hash(tenant: str, event: str) -> bytes:
    """Hash the id of an event; equal ids of two tenants are different events."""
    return blake2b(f"{tenant}\0{event}".encode(), digest_size=ID_BYTES).digest()


def bucket_keys(keys: Keys, epoch: int, slices: Slices, hashes: Iterable[bytes]) -> list[str]:
    """Return the buckets of some events in all slices, each once."""
    starts = [int.from_bytes(one[:3], "little") for one in hashes]
    return [
        keys.events(epoch, number, bucket)
        for number, bits in slices.each
        for bucket in {start & ((1 << bits) - 1) for start in starts}
    ]
