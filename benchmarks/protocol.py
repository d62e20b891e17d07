"""What the limits of `LimitedProtocol` cost a request: CPU time beside uvicorn's protocol.

Both protocols take the same /rank requests in this process, in turns, on a transport that discards
answers. The application only reads the body: the work of /rank varies more than the difference of
the protocols. The difference is then compared with a complete /rank, which is not logged, because
logging would make the share smaller.
"""

import asyncio
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.config import Settings
from app.main import create_app
from app.runtime.protocol import LimitedProtocol
from app.storage.embedded.server import EmbeddedServer
from benchmarks import load
from benchmarks.report import Goal, at_most, table
from benchmarks.service import DOCUMENTS, TOP, N, as_json, rank_requests

ROUNDS, REQUESTS = 200, 200
NAMES = ("uvicorn's protocol", "with limits")


def run() -> list[Goal]:
    """Print the table, return the goal."""
    with (
        tempfile.TemporaryDirectory(prefix="solar-bench-") as folder,
        EmbeddedServer.start(Path(folder)) as server,
    ):
        plain, limited, rank = load.run(_measure(server.url))
    rows = [
        [NAMES[0], f"{1e6 * plain:.2f} µs"],
        [NAMES[1], f"{1e6 * limited:.2f} µs"],
        ["complete /rank", f"{1e6 * rank:.0f} µs"],
    ]
    title = (
        f"/rank, {DOCUMENTS} documents of {N} features: CPU of the protocol for a request, best of "
        f"{ROUNDS} rounds of {REQUESTS}"
    )
    print(table(title, ["", "CPU each"], rows), "\n")
    share = 100 * (limited - plain) / rank
    return [at_most("limits of the protocol", 1, "% of /rank", share)]


class Discarding(asyncio.Transport):
    """A transport of a loopback connection that discards what is written."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the addresses."""
        return {"sockname": (load.HOST, 80), "peername": (load.HOST, 1)}.get(name, default)

    def write(self, data: object) -> None:
        """Discard bytes."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Do nothing."""


async def _reading(_scope: Any, receive: Any, send: Any) -> None:
    """Read the body and answer."""
    await receive()
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _connected(app: Any, kind: type[HttpToolsProtocol]) -> HttpToolsProtocol:
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, interface="asgi3"
    )
    config.load()
    connection = kind(config, ServerState(), {})
    connection.connection_made(Discarding())
    return connection


async def _measure(url: str) -> tuple[float, float, float]:
    """The CPU seconds of a request: of uvicorn's protocol, with limits, and of all of /rank."""
    app = create_app(Settings(learner=False), url)
    requests = rank_requests("bench", DOCUMENTS, N, TOP, log=False)["objects"]
    async with app.router.lifespan_context(app):
        rank = _connected(app, LimitedProtocol)
        created = load.post("/models/bench", as_json({"features": N})).replace(b"POST", b"PUT", 1)
        await _answer(rank, created)
        both = (_connected(_reading, HttpToolsProtocol), _connected(_reading, LimitedProtocol))
        best = [float("inf")] * 3
        for at in range(ROUNDS):
            for which, connection in enumerate((*both, rank)):
                if connection is rank and at % 10:  # it takes 20 times as long
                    continue
                used = process_time()
                for one in range(REQUESTS):
                    await _answer(connection, requests[one % len(requests)])
                best[which] = min(best[which], (process_time() - used) / REQUESTS)
        for connection in (*both, rank):
            connection.connection_lost(None)
    return best[0], best[1], best[2]


async def _answer(connection: HttpToolsProtocol, request: bytes) -> None:
    connection.data_received(request)
    while not connection.cycle.response_complete:
        await asyncio.sleep(0)
