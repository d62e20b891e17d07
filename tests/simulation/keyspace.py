"""The data of a Redis in plain Python, and the commands that the store sends.

Values are never changed in place, so a shallow copy is a full copy. `begin` starts a record of all
writes, so that a replica and a disk can follow.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from redis import exceptions as foreign


class Entry(NamedTuple):
    """A value and its expiry time."""

    value: Any
    ends: float | None = None


Writes: TypeAlias = dict[str, Entry | None]


def text(value: Any) -> bytes:
    """Encode a value like the Redis protocol."""
    return value if isinstance(value, bytes) else str(value).encode()


class Keyspace:
    """Keys and values: bytes, dict (a hash, or a sorted set's scores), tuple (a list), set."""

    def __init__(self, clock: Callable[[], float], data: Mapping[str, Entry] | None = None) -> None:
        self.clock, self.data = clock, dict(data or {})
        self.writes: Writes = {}
        self.blocked = 0  # clients blocked in XREAD
        self.messages: list[tuple[str, str]] = []  # to publish

    def begin(self) -> Writes:
        """Start a new record of writes."""
        self.writes = {}
        return self.writes

    def apply(self, writes: Writes) -> None:
        """Apply the writes of another keyspace."""
        for key, kept in writes.items():
            if kept is None:
                self.data.pop(key, None)
            else:
                self.data[key] = kept

    def find(self, key: str, otherwise: Any = None) -> Any:
        kept = self.data.get(key)
        if kept is None or (kept.ends is not None and kept.ends <= self.clock()):
            return otherwise
        return kept.value

    def put(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Store a value; keep its TTL like HSET; delete an empty value."""
        if not value:
            self.drop(key)
            return
        before = self.data.get(key)
        ends = before.ends if before and self.find(key) is not None else None
        self._write(key, Entry(value, ends if ttl is None else self.clock() + ttl))

    def keep(self, key: str, value: Any, ttl: float | None = None) -> None:
        self._write(key, Entry(text(value), None if ttl is None else self.clock() + ttl))

    def drop(self, *keys: str) -> int:
        there = [key for key in keys if key in self.data]
        for key in there:
            self._write(key, None)
        return len(there)

    def _write(self, key: str, kept: Entry | None) -> None:
        self.writes[key] = kept
        self.apply({key: kept})

    # ---- commands of the scripts and the store ----

    def publish(self, channel: str, message: str) -> None:
        self.messages.append((channel, message))

    def get(self, key: str) -> bytes | None:
        found: bytes | None = self.find(key)
        return found

    def mget(self, keys: list[str]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def incr(self, key: str) -> int:
        value = int(self.get(key) or 0) + 1
        self.keep(key, value)
        return value

    def exists(self, key: str) -> int:
        return int(self.find(key) is not None)

    def pexpire(self, key: str, milliseconds: Any) -> None:
        self.put(key, self.find(key), int(milliseconds) / 1000)

    def pttl(self, key: str) -> int:
        if not self.exists(key):
            return -2
        ends = self.data[key].ends
        return -1 if ends is None else int((ends - self.clock()) * 1000)

    def keys(self, _: str = "*") -> list[bytes]:
        return [key.encode() for key in self.data if self.exists(key)]

    def hget(self, key: str, field: str) -> bytes | None:
        return self.hmget(key, [field])[0]

    def hmget(self, key: str, fields: list[str]) -> list[bytes | None]:
        found = self.find(key, {})
        return [found.get(field.encode()) for field in fields]

    def hgetall(self, key: str) -> dict[bytes, bytes]:
        return dict(self.find(key, {}))

    def hexists(self, key: str, field: str) -> bool:
        return field.encode() in self.find(key, {})

    def hset(self, key: str, *fields: Any) -> None:
        new = {text(name): text(value) for name, value in zip(*[iter(fields)] * 2, strict=True)}
        self.put(key, {**self.find(key, {}), **new})

    def hdel(self, key: str, field: str) -> None:
        self.put(key, {k: v for k, v in self.find(key, {}).items() if k != field.encode()})

    def sadd(self, key: str, member: str) -> None:
        self.put(key, self.find(key, frozenset()) | {member.encode()})

    def srem(self, key: str, member: str) -> None:
        self.put(key, self.find(key, frozenset()) - {member.encode()})

    def smembers(self, key: str) -> frozenset[bytes]:
        return frozenset(self.find(key, ()))

    def scard(self, key: str) -> int:
        return len(self.find(key, ()))

    def zadd(self, key: str, score: float, member: Any) -> None:
        self.put(key, {**self.find(key, {}), text(member): score})

    def zrem(self, key: str, member: Any) -> None:
        self.put(key, {k: v for k, v in self.find(key, {}).items() if k != text(member)})

    def zremrangebyscore(self, key: str, least: float, most: float) -> None:
        found = self.find(key, {})
        self.put(key, {k: v for k, v in found.items() if not least <= v <= most})

    def zcard(self, key: str) -> int:
        return len(self.find(key, ()))

    def zrange(self, key: str, *rest: int) -> list[Any]:
        found: dict[bytes, float] = self.find(key, {})
        members = sorted(found, key=lambda member: (found[member], member))
        return [(one, found[one]) for one in members] if True in rest[2:] else members

    def llen(self, key: str) -> int:
        return len(self.find(key, ()))

    def lrange(self, key: str, first: int, last: int) -> list[bytes]:
        found = list(self.find(key, ()))
        return found[first : last + 1 if last >= 0 else len(found) + last + 1]

    def xadd(self, key: str, seq: int, fields: dict[bytes, bytes]) -> None:
        entries = self.find(key, ())
        if entries and entries[-1][0] >= seq:
            raise foreign.ResponseError("ERR The ID specified in XADD is equal or smaller")
        self.put(key, (*entries, (seq, fields)))

    def xtrim(self, key: str, least: int) -> None:
        self.put(key, tuple(entry for entry in self.find(key, ()) if entry[0] >= least))

    def xlen(self, key: str) -> int:
        return len(self.find(key, ()))

    def xread(self, streams: dict[str, str], count: int) -> list[Any]:
        [(key, start)] = streams.items()
        after = int(start.split("-")[0])
        found = [entry for entry in self.find(key, ()) if entry[0] > after][:count]
        return [[key, [(b"%d-0" % seq, fields) for seq, fields in found]]] if found else []

    def memory_usage(self, key: str) -> int:
        found = self.find(key, ())
        if isinstance(found, dict):
            return sum(len(name) + len(value) for name, value in found.items())
        return sum(len(fields[b"r"]) + 50 for _, fields in found)

    def info(self, _: str) -> dict[str, Any]:
        return {
            "redis_version": "7.2.4",
            "maxmemory": 0,
            "used_memory": 0,
            "blocked_clients": self.blocked,
        }

    def config_get(self, *_: str) -> dict[str, str]:
        return {
            "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction",
        }  # fmt: skip
