"""Scripts and writes on their way to a server, and how safe they are when they are answered.

With replicas to wait for, an answer that acknowledges something comes only once so many of them
have it: WAIT on the connection that wrote. A repeated event writes nothing, and WAIT knows only of
the writes of its own connection: so each such call also writes a mark, even if it finds everything
done already. What replicas have of the mark they have of all that was written before it. Each mark
has a name of its own: a key that is on both nodes of a Cluster while its slot moves stops the move.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

from redis import exceptions as foreign

from app.errors import Unavailable

SCRIPTS = Path(__file__).parent / "scripts"
#: Seconds that an answer waits for replicas.
PATIENCE = 1.0
#: Milliseconds that a mark is kept; nobody reads it.
MARKED = 100


class ScriptRunner:
    """What is sent to the server that has a key, in one go."""

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
        """All in one go; once more with the scripts, if the server does not know them."""
        try:
            answers = await self._client.together(key, *commands)
        except foreign.NoScriptError:
            loads = [("SCRIPT LOAD", _source(name)[0]) for name in scripts]
            answers = (await self._client.together(key, *loads, *commands))[len(loads) :]
        return self._first(answers)

    def _until_kept(self, key: str) -> list[tuple[Any, ...]]:
        if not self._replicas:
            return []
        mark = _call("mark", [_mark(key, next(self._marks))], [MARKED])
        return [mark, ("WAIT", self._replicas, int(PATIENCE * 1000))]

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
