"""Beacons: the cost of forged and repeated events, and of a token in the answer of /rank."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time_ns
from typing import Any, NamedTuple

import httpx
import psutil
from fastapi import FastAPI
from starlette.types import Message, Scope

from app.api.dependencies import numbered
from app.api.tokens import new_token_key
from app.config import Settings
from app.domain.model_config import ModelConfig
from app.main import create_app
from app.storage.embedded.server import EmbeddedServer
from benchmarks.report import Goal, at_most, table
from tests.api.services import Running, serving
from tests.servers import until

EACH, LISTS = 100, 100
#: Posts of a round, and rounds: 35,000 events of each of three kinds.
POSTS, ROUNDS = 50, 7
#: Posts of a round of events that the worker has not seen.
COLD = 4
#: Rankings of a block with or without tokens, how many at a time, blocks of each, and rounds.
RANKINGS, CONCURRENT, BLOCKS, TOKEN_ROUNDS = 64, 16, 60, 3
DOCUMENTS = [{"id": f"d{at}", "features": [at / 20] * 46} for at in range(20)]
BODY = {"model": "books", "documents": DOCUMENTS, "top_k": 10}
CONTENT = json.dumps(BODY).encode()
SCOPE: Scope = {
    "type": "http", "method": "POST", "path": "/rank", "raw_path": b"/rank", "query_string": b"",
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(CONTENT))],
    "http_version": "1.1", "scheme": "http", "root_path": "", "client": ("testclient", 1),
    "server": ("testserver", 80),
}  # fmt: skip
TEXT = {"content-type": "text/plain"}
Event = dict[str, Any]


def run() -> list[Goal]:
    """Print the costs, return the goals."""
    return [*refused_events(), *events_of_many_lists(), cost_of_a_token()]


class Kind(NamedTuple):
    """Events of a post, and the outcomes that they must have."""

    name: str
    events: Sequence[Event]
    outcomes: dict[str, int]


def refused_events() -> list[Goal]:
    """Post forged and repeated events: each is counted as such, and the model stays as it is."""
    rows, goals = [], list[Goal]()
    with ExitStack() as stack:
        service, client = _started(stack)
        real = [_click(client) for _ in range(LISTS)]
        _post(client, real)
        until(lambda: _model(client)["version"] == LISTS)
        before = _model(client)
        for kind in _kinds(real):
            cost, as_expected = _cost(service, client, kind)
            rows.append([kind.name, f"{cost:.1f}"])
            goals.append(
                at_most(f"beacon: worker's CPU of an event, {kind.name}", 50.0, "µs", cost)
            )
            goals.append(_expected(f"beacon: outcomes, {kind.name}", as_expected))
        same = _model(client) == before
    events = len(rows) * ROUNDS * POSTS * EACH
    title = f"{events:,} events in posts of {EACH}, best of {ROUNDS} rounds"
    print(table(title, ["events", "µs each"], rows), end="\n\n")
    return [*goals, _expected("beacon: seq and weights after refused events", same)]


def events_of_many_lists() -> list[Goal]:
    """Post events that the worker has not seen: copies after a restart, and invalid ones.

    Each round has its own lists, so that none of its events is known to the worker.
    """
    key = new_token_key("k1")
    costs: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        with ExitStack() as stack:
            service, client = _started(stack, key, Path(folder))
            rounds = [[_click(client) for _ in range(COLD * EACH)] for _ in range(ROUNDS)]
            costs["accepted"] = [_cold_cost(service, client, one, "accepted") for one in rounds]
            until(lambda: _model(client)["version"] == ROUNDS * COLD * EACH)
            service.stop()
        with ExitStack() as stack:
            service, client = _started(stack, key, Path(folder))
            before = _model(client)
            costs["repeated, worker has not seen them"] = [
                _cold_cost(service, client, one, "duplicate") for one in rounds
            ]
            for events in rounds:
                events[:] = [{**one, "clicked": ["unknown"]} for one in events]
            costs["invalid, 100 lists"] = [
                _cold_cost(service, client, one, "invalid") for one in rounds
            ]
            same = _model(client) == before
    rows = [[name, f"{min(each):.1f}", f"{max(each):.1f}"] for name, each in costs.items()]
    title = f"{COLD * EACH:,} events on as many lists in posts of {EACH}, {ROUNDS} rounds"
    print(table(title, ["events", "µs each, best", "worst"], rows), end="\n\n")
    name = "repeated, worker has not seen them"
    cost = at_most(f"beacon: worker's CPU of an event, {name}", 50.0, "µs", min(costs[name]))
    return [cost, _expected("beacon: seq and weights after copies and invalid events", same)]


def _cold_cost(
    service: Running, client: httpx.Client, events: Sequence[Event], outcome: str
) -> float:
    """Return the µs of the worker's CPU for an event, all of which must have one outcome."""
    start, before = _outcomes(client), _worker_cpu(service)
    for at in range(0, len(events), EACH):
        _post(client, events[at : at + EACH])
    cost, end = _worker_cpu(service) - before, _outcomes(client)
    added = {name: end[name] - start[name] for name in end if end[name] != start[name]}
    assert added == {outcome: len(events)}, added  # noqa: S101  # a benchmark of others is none
    return 1e6 * cost / len(events)


def _kinds(real: Sequence[Event]) -> list[Kind]:
    """Return posts of events that are forged, repeated, or half of each."""
    forged = [{**event, "token": event["token"][:-3] + "AAA"} for event in real]
    return [
        Kind("forged", forged, {"forged": EACH}),
        Kind("repeated", real, {"duplicate": EACH}),
        Kind("both", [*forged[::2], *real[::2]], {"forged": EACH // 2, "duplicate": EACH // 2}),
    ]


def _cost(service: Running, client: httpx.Client, kind: Kind) -> tuple[float, bool]:
    """Return the µs of the worker's CPU for an event, and whether all had their outcomes."""
    start, rounds = _outcomes(client), []
    for _ in range(ROUNDS):
        before = _worker_cpu(service)
        for _ in range(POSTS):
            _post(client, kind.events)
        rounds.append(_worker_cpu(service) - before)
    end = _outcomes(client)
    added = {name: end[name] - start[name] for name in end if end[name] != start[name]}
    expected = {name: count * POSTS * ROUNDS for name, count in kind.outcomes.items()}
    return 1e6 * min(rounds) / (POSTS * EACH), added == expected


def _expected(name: str, met: bool) -> Goal:
    return Goal(name, "as expected", "as expected" if met else "others", met)


def _started(
    stack: ExitStack, key: str = "", data: Path | None = None
) -> tuple[Running, httpx.Client]:
    environ = {"SOLAR_TOKEN_KEYS": key or new_token_key("k1"), "SOLAR_BEACON_RATE": "1e6"}
    service = stack.enter_context(serving(environ=environ, data=data))
    client = stack.enter_context(service.client())
    client.put("/models/books", json={"features": 46}).raise_for_status()
    return service, client


def _rank(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.post("/rank", json=BODY).raise_for_status().json()
    return found


def _click(client: httpx.Client) -> Event:
    """Return a click on a document that a new list shows."""
    found = _rank(client)
    return {"token": found["token"], "clicked": [found["documents"][0]["id"]]}


def _model(client: httpx.Client) -> dict[str, Any]:
    """Return what events could change in the model."""
    found = client.get("/models/books").raise_for_status().json()
    return {name: found[name] for name in ("seq", "version", "weights")}


def _outcomes(client: httpx.Client) -> dict[str, int]:
    """Return the events by outcome."""
    start = 'solar_beacon_events_total{outcome="'
    lines = client.get("/metrics").raise_for_status().text.splitlines()
    found = [line.removeprefix(start).split('"} ') for line in lines if line.startswith(start)]
    return {name: int(float(count)) for name, count in found}


def _post(client: httpx.Client, events: Sequence[Event]) -> None:
    content = json.dumps({"events": events})
    client.post("/beacon", content=content, headers=TEXT).raise_for_status()


def _worker_cpu(service: Running) -> float:
    """Return the CPU seconds of the worker, to the nanosecond: a tick of cpu_times has 10 ms."""
    children = psutil.Process(service.process.pid).children(recursive=True)
    [worker] = [one for one in children if "app.runtime.worker" in one.cmdline()]
    threads = Path(f"/proc/{worker.pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def cost_of_a_token() -> Goal:
    """Compare the CPU of /rank with and without a token.

    One process serves both in turn: the CPU of two processes differs by up to 8 %. Blocks are
    short, so that what else the machine does meets both; the blocks' medians are compared.
    """
    with TemporaryDirectory() as folder, EmbeddedServer.start(Path(folder)) as store:
        ratios = [asyncio.run(_ratio(store.url)) for _ in range(TOKEN_ROUNDS)]
    rows = [[str(at + 1), *(f"{one:.1f}" for one in pair)] for at, pair in enumerate(ratios)]
    title = f"CPU of /rank in one process, medians of {BLOCKS} blocks of {RANKINGS}"
    print(table(title, ["round", "µs without", "µs with a token"], rows), end="\n\n")
    ratio = median(with_token / without for without, with_token in ratios)
    return at_most("/rank with a token", 1.03, "x", ratio)


async def _ratio(url: str) -> tuple[float, float]:
    """Return the µs of /rank without and with a token."""
    app = create_app(Settings(learner=False, token_keys=new_token_key("k1")), url)
    async with app.router.lifespan_context(app):
        service = app.state.service
        await service.create("books", ModelConfig(numbered(46)))
        keys, blocks = service.tokens, (list[float](), list[float]())
        await _block(app)
        for at in range(BLOCKS):
            for has_token in (at % 2, 1 - at % 2):
                service.tokens = keys if has_token else None
                blocks[has_token].append(await _block(app))
        await service.store.models.delete("books")
    return median(blocks[0]), median(blocks[1])


async def _block(app: FastAPI) -> float:
    """Return the µs of CPU of a ranking, mean of a block of concurrent ones."""
    before = process_time_ns()
    for _ in range(RANKINGS // CONCURRENT):
        await asyncio.gather(*(app({**SCOPE}, _receive, _send) for _ in range(CONCURRENT)))
    return (process_time_ns() - before) / 1e3 / RANKINGS


async def _receive() -> Message:
    return {"type": "http.request", "body": CONTENT, "more_body": False}


async def _send(message: Message) -> None:
    assert message.get("status", 200) == 200, message  # noqa: S101  # a benchmark of errors is none
