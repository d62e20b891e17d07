"""Calls to Redis: scripts, WAIT for replicas, clocks of servers, and the translation of errors.

At durability `replicated`, an acknowledgement waits until a replica has the write: WAIT on the
connection that wrote. WAIT covers only writes of its connection, and a repeated event writes
nothing. So each acknowledged call also writes a mark key: a replica that has the mark has all
earlier writes. Each mark has a unique name, because a key that exists on both nodes of a Cluster
stops the move of its slot.
"""

import ssl
from asyncio import get_running_loop
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha1
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

from redis import exceptions as foreign

from app.errors import Full, NotReplicated, StoreError, Unavailable

SCRIPTS = Path(__file__).parent / "scripts"
#: Seconds to wait for replicas.
REPLICA_SECONDS = 1.0
#: TTL of a mark in milliseconds; nothing reads a mark.
MARK_MILLISECONDS = 100
#: An answer that took longer, in seconds, shows the clock less exactly than a known one.
QUICK_SECONDS = 0.02
#: Models whose server's clock is known; beyond, the next writes have no deadline.
_MOST_MODELS = 8192

_UNREACHABLE = (
    foreign.ConnectionError,  # and its subclass BusyLoadingError
    foreign.TimeoutError,
    foreign.ReadOnlyError,
    foreign.TryAgainError,  # a slot of a Cluster is moving to another node
    foreign.AskError,  # a slot moves too often (also MovedError)
    foreign.ClusterError,  # a slot has no node (also ClusterDownError)
    foreign.NoScriptError,  # the server restarted between SCRIPT LOAD and EVALSHA
    ConnectionError,
    TimeoutError,
)
_NOT_READY = (
    "LOADING", "MASTERDOWN", "MISCONF", "CLUSTERDOWN", "NOREPLICAS", "BUSY", "UNBLOCKED",
)  # fmt: skip


class ScriptRunner:
    """Runs scripts and writes on the server that holds a key."""

    def __init__(self, client: Any, replicas: int = 0) -> None:
        self._client, self._replicas = client, replicas
        self._marks = map(f"{token_hex(8)}-{{}}".format, count())

    async def script(self, name: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
        """Run a script."""
        return await self._send([name], keys[0], _call(name, keys, values))

    async def durable_script(self, name: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
        """Run a script and wait until the replicas have all that it read or wrote."""
        after = self._wait_for_replicas(keys[0])
        return await self._send([name, "mark"], keys[0], _call(name, keys, values), *after)

    async def durable_command(self, key: str, *command: Any) -> Any:
        """Write and wait until the replicas have it."""
        return await self._send(["mark"], key, command, *self._wait_for_replicas(key))

    async def _send(self, scripts: Sequence[str], key: str, *commands: Sequence[Any]) -> Any:
        """Send all commands on one connection; load the scripts first if the server lacks them."""
        with translated(self._client):
            try:
                if len(commands) == 1:
                    return await self._client.execute_command(*commands[0])
                answers = await self._client.together(key, *commands)
            except foreign.NoScriptError:
                loads = [("SCRIPT LOAD", _source(name)[0]) for name in scripts]
                answers = (await self._client.together(key, *loads, *commands))[len(loads) :]
        return self._first_answer(answers)

    def _wait_for_replicas(self, key: str) -> list[tuple[Any, ...]]:
        if not self._replicas:
            return []
        mark = _call("mark", [_mark(key, next(self._marks))], [MARK_MILLISECONDS])
        return [mark, ("WAIT", self._replicas, int(REPLICA_SECONDS * 1000))]

    def _first_answer(self, answers: list[Any]) -> Any:
        if len(answers) > 1 and answers[-1] < self._replicas:
            raise NotReplicated("written, but not yet on a replica; sending it again is safe")
        return answers[0]


class ServerClocks:
    """The clock of each model's server, compared with the clock of this process."""

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}  # milliseconds of the server's clock at our time 0

    def deadline(self, model: str, seconds: float) -> int:
        """Return the time of the server after `seconds`, in ms since 1970; 0 if unknown."""
        ahead = self._ahead.get(model)
        return 0 if ahead is None else int(ahead + 1000 * (get_running_loop().time() + seconds))

    def note(self, model: str, sent: float, clock: int, *, refused: bool = False) -> None:
        """Note the server's clock in the answer to a call that was sent at `sent`.

        It is late by at most the time of the call. A slow answer is noted if the clock is unknown,
        or if the call was `refused`: the clock may have stepped.
        """
        slow = get_running_loop().time() - sent > QUICK_SECONDS
        if slow and model in self._ahead and not refused:
            return
        if len(self._ahead) >= _MOST_MODELS:
            self._ahead.clear()
        self._ahead[model] = clock + 1 - 1000 * sent


def _call(name: str, keys: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    return ("EVALSHA", _source(name)[1], len(keys), *keys, *values)


def _mark(key: str, name: str) -> str:
    """Name a mark in the slot of a key.

    >>> _mark("solar:{books}:state", "ab-7"), _mark("solar:models", "ab-8")
    ('solar:{books}:mark:ab-7', 'solar:{solar:models}:mark:ab-8')
    """
    tagged = key[key.find("{") + 1 : key.find("}")] if "{" in key else key
    return f"solar:{{{tagged}}}:mark:{name}"


@cache
def _source(name: str) -> tuple[bytes, str]:
    source = (SCRIPTS / f"{name}.lua").read_bytes()
    return source, sha1(source, usedforsecurity=False).hexdigest()


@contextmanager
def translated(client: Any) -> Iterator[None]:
    """Raise errors of Redis as errors of `app.errors`."""
    try:
        yield
    except foreign.OutOfMemoryError as error:
        raise Full("the store is at its memory limit; nothing was written") from error
    except _UNREACHABLE as error:
        unreachable = f"{store_name(client.address)} is unreachable"
        raise Unavailable(f"{unreachable}: {_reason(error)}") from error
    except foreign.ResponseError as error:
        if str(error).startswith("OOM"):
            raise Full("the store is at its memory limit; nothing was written") from error
        if str(error).startswith(_NOT_READY):
            raise Unavailable(f"{store_name(client.address)} is not ready: {error}") from error
        raise StoreError(f"the store refused a command: {server_message(error)}") from error
    except foreign.RedisError as error:
        raise StoreError(f"the store failed: {error}") from error


def store_name(address: str) -> str:
    """Name the store in messages.

    >>> store_name("127.0.0.1:6379"), store_name("")
    ('the store at 127.0.0.1:6379', 'the store')
    """
    return f"the store at {address}" if address else "the store"


def server_message(error: foreign.ResponseError) -> str:
    """Return the server's message without the arguments of an unknown command.

    HELLO is unknown before Redis 6.0 or where it is renamed, and its arguments hold the password.
    """
    return str(error).split(", with args beginning with", maxsplit=1)[0]


def _reason(error: Exception) -> str:
    """Return the cause of a lost connection if an operator can fix it; never the URL."""
    match error.__cause__ or error.__context__:
        case ssl.SSLCertVerificationError() as cause:
            return f"its certificate is not trusted: {cause.verify_message}"
        case ssl.SSLError() as cause:
            return f"TLS failed: {cause.reason}"
        case ConnectionRefusedError():
            return "connection refused"
        case FileNotFoundError() as cause:  # a socket, or a file named in the URL
            return str(cause.strerror)
    return type(error).__name__
