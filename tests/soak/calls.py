"""The HTTP client of a run: statuses and latencies of all calls."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from time import perf_counter
from typing import Any, NamedTuple

import aiohttp

from tests.soak.announcements import Announcements
from tests.soak.ledger import Problems

JSON = {"content-type": "application/json"}
#: Connections at once; fewer than needed would delay calls, more would only be open.
CONNECTIONS = 32
CALL_SECONDS = 15.0


class Answer(NamedTuple):
    """An answer; status 0 without one."""

    status: int
    body: Any = None


def _read(content: bytes, kind: str) -> Any:
    """Return JSON, text, or None."""
    if not content or kind not in ("application/json", "application/problem+json", "text/plain"):
        return None
    return content.decode(errors="replace") if kind == "text/plain" else json.loads(content)


class Calls:
    """Calls of the service. No call may be answered with 500, nor with 503 while all is quiet."""

    def __init__(self, url: str, announcements: Announcements, problems: Problems) -> None:
        self._url, self._announcements, self.problems = url, announcements, problems
        self.statuses = Counter[tuple[str, int, bool]]()  # by path, status, and whether quiet
        self.latencies = defaultdict[str, list[tuple[float, float]]](list)  # quiet ones: at, took
        self.refused = Counter[str]()

    async def __aenter__(self) -> "Calls":
        # A connection that was open before a kill must not be taken for one of the new process.
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60)
        timeout = aiohttp.ClientTimeout(CALL_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timed: str = "",
        headers: Mapping[str, str] = JSON,
    ) -> Answer:
        """Send a request; `timed` is the name by which its latency counts."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        at, began = self._announcements.now(), perf_counter()
        try:
            async with self._session.request(
                method, self._url + path, data=data, headers=dict(headers) if data else None
            ) as response:
                content = await response.read()
                status, kind = response.status, response.content_type
        except (aiohttp.ClientError, OSError, TimeoutError):
            status, content, kind = 0, b"", ""
        took = perf_counter() - began
        route = timed or f"{method} {path.partition('?')[0]}"
        quiet = self._announcements.is_quiet_since(at)
        self.statuses[timed or method, status, quiet] += 1
        if timed and quiet and 200 <= status < 300:
            self.latencies[timed].append((at, took))
        self._judge(route, status, content, quiet=quiet)
        return Answer(status, _read(content, kind))

    def _judge(self, route: str, status: int, content: bytes, *, quiet: bool) -> None:
        if status >= 500 and status not in (503, 507):
            self.problems.add(f"{route}: {status} {content[:200]!r}")
        waits = route.endswith("after a write")  # 503 if the write is not learnt in a second
        if quiet and status in (0, 503, 507) and not waits:
            self.refused[f"{route}: {status} {content[:120].decode(errors='replace')}"] += 1
