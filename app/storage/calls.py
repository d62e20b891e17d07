"""How the store is called: scripts, acknowledgements of replicas, and errors translated once.

With replicas to wait for, an answer that acknowledges something comes only once so many of them
have it: WAIT on the connection that wrote. A repeated event writes nothing, and WAIT knows only of
the writes of its own connection: so each such call also writes a mark, even if it finds everything
done already. What replicas have of the mark they have of all that was written before it. Each mark
has a name of its own: a key that is on both nodes of a Cluster while its slot moves stops the move.
"""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha1
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

from redis import exceptions as foreign

from app.errors import Full, StoreError, Unavailable

SCRIPTS = Path(__file__).parent / "scripts"
#: Seconds that an answer waits for replicas.
REPLICA_SECONDS = 1.0
#: Milliseconds that a mark is kept; nothing reads it.
MARKED = 100

_TRY_AGAIN = (
    foreign.ConnectionError,  # BusyLoadingError is one
    foreign.TimeoutError,
    foreign.ReadOnlyError,
    foreign.TryAgainError,  # a slot of a Cluster is on its way to another node,
    foreign.AskError,  # or keeps moving (MovedError is one),
    foreign.ClusterError,  # or has no node at all (ClusterDownError is one)
    foreign.NoScriptError,  # the server was restarted between loading a script and calling it
    ConnectionError,
    TimeoutError,
)
_NOT_READY = (
    "LOADING", "MASTERDOWN", "MISCONF", "CLUSTERDOWN", "NOREPLICAS", "BUSY", "UNBLOCKED",
)  # fmt: skip


class ScriptRunner:
    """Runs scripts and writes on the server that has a key."""

    def __init__(self, client: Any, replicas: int = 0) -> None:
        self._client, self._replicas = client, replicas
        self._marks = map(f"{token_hex(8)}-{{}}".format, count())

    async def script(self, name: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
        """Run a script."""
        return await self._send([name], keys[0], _call(name, keys, values))

    async def kept_script(self, name: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
        """Run a script, and answer once the replicas have what it found or wrote."""
        after = self._until_kept(keys[0])
        return await self._send([name, "mark"], keys[0], _call(name, keys, values), *after)

    async def kept(self, key: str, *command: Any) -> Any:
        """Write, and answer once the replicas have it."""
        return await self._send(["mark"], key, command, *self._until_kept(key))

    async def _send(self, scripts: Sequence[str], key: str, *commands: Sequence[Any]) -> Any:
        """All on one connection; once more with the scripts, if the server does not know them."""
        with translated():
            try:
                if len(commands) == 1:
                    return await self._client.execute_command(*commands[0])
                answers = await self._client.together(key, *commands)
            except foreign.NoScriptError:
                loads = [("SCRIPT LOAD", _source(name)[0]) for name in scripts]
                answers = (await self._client.together(key, *loads, *commands))[len(loads) :]
        return self._first(answers)

    def _until_kept(self, key: str) -> list[tuple[Any, ...]]:
        if not self._replicas:
            return []
        mark = _call("mark", [_mark(key, next(self._marks))], [MARKED])
        return [mark, ("WAIT", self._replicas, int(REPLICA_SECONDS * 1000))]

    def _first(self, answers: list[Any]) -> Any:
        if len(answers) > 1 and answers[-1] < self._replicas:
            raise Unavailable("written, but no replica has it yet: asking again is safe")
        return answers[0]


def _call(name: str, keys: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    return ("EVALSHA", _source(name)[1], len(keys), *keys, *values)


def _mark(key: str, name: str) -> str:
    """A key in the slot of another.

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
def translated() -> Iterator[None]:
    """Errors of Redis leave as errors of ours, once, here."""
    try:
        yield
    except foreign.OutOfMemoryError as error:
        raise Full("the store is at its memory limit; nothing was written") from error
    except _TRY_AGAIN as error:
        raise Unavailable(f"the store cannot be reached: {_reason(error)}") from error
    except foreign.ResponseError as error:
        if str(error).startswith("OOM"):
            raise Full("the store is at its memory limit; nothing was written") from error
        if str(error).startswith(_NOT_READY):
            raise Unavailable(f"the store is not ready: {error}") from error
        raise StoreError(f"the store refused a command: {server_message(error)}") from error
    except foreign.RedisError as error:
        raise StoreError(f"the store failed: {error}") from error


def server_message(error: foreign.ResponseError) -> str:
    """What the server said, without the arguments of a command that it does not know.

    To a Redis older than 6.0, and where it is renamed, HELLO is one, and the password is in it.
    """
    return str(error).split(", with args beginning with", maxsplit=1)[0]


def _reason(error: Exception) -> str:
    """What lies beneath a lost connection, where that is for people to mend; never the URL."""
    match error.__cause__ or error.__context__:
        case ssl.SSLCertVerificationError() as beneath:
            return f"its certificate is not trusted: {beneath.verify_message}"
        case ssl.SSLError() as beneath:
            return f"TLS failed: {beneath.reason}"
        case FileNotFoundError() as beneath:  # a socket, or a file that the URL names
            return str(beneath.strerror)
    return type(error).__name__
