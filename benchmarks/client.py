"""solar-client: the cost of `rank` beside a bare httpx call, and `click` at 5,000 a second."""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from solar_client import FlushResult, Ranking, Solar
from solar_client.encoding import rank_body

from benchmarks import load
from benchmarks.report import Goal, at_most, table
from benchmarks.service import DOCUMENTS, TOP, N, solar
from benchmarks.timing import again, side_by_side

LASTING, CALLS = 20.0, 20  # seconds of the comparison, and calls of a round
RATE, SECONDS = 5_000, 10.0  # clicks a second, and for how long
RANKINGS = 5_000  # that the clicks are about
PATIENCE = 60.0


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    with (
        tempfile.TemporaryDirectory(prefix="solar-bench-") as folder,
        solar(Path(folder)) as service,
        Solar(f"http://{load.HOST}:{service.port}", model="bench") as client,
    ):
        client.create_model("bench", N)
        return [*rank_cost(client, service.port), *click_cost(client)]


# ---- rank ----


def rank_cost(client: Solar, port: int) -> list[Goal]:
    """Compare CPU time: documents as dicts and as a matrix, and httpx with the same bytes."""
    rows = np.random.default_rng(0).random((DOCUMENTS, N))
    ids = [f"d{at}" for at in range(DOCUMENTS)]
    documents = [
        {"id": name, "features": row} for name, row in zip(ids, rows.tolist(), strict=True)
    ]
    fields = {"model": "bench", "top_k": TOP}
    with httpx.Client(base_url=f"http://{load.HOST}:{port}", trust_env=False) as http:

        def bare(kind: str, body: bytes) -> None:
            for _ in range(CALLS):
                http.post("/rank", content=body, headers={"content-type": kind}).raise_for_status()

        def dicts() -> None:
            for _ in range(CALLS):
                client.rank(documents, top_k=TOP, timeout=PATIENCE, fallback=False)

        def matrix() -> None:
            for _ in range(CALLS):
                client.rank(ids, rows, top_k=TOP, timeout=PATIENCE, fallback=False)

        json, packed = rank_body(documents, None, fields)[:2], rank_body(ids, rows, fields)[:2]
        took = side_by_side(
            {
                "httpx, JSON": again(lambda: bare(*json)), "rank, dicts": again(dicts),
                "httpx, msgpack": again(lambda: bare(*packed)), "rank, matrix": again(matrix),
            },
            LASTING,
        )  # fmt: skip
    title = f"/rank, {DOCUMENTS} documents of {N} features: CPU of the client for a call, best"
    shown = [[name, f"{1e6 * seconds / CALLS:.0f} µs"] for name, seconds in took.items()]
    print(table(title, ["", "CPU each"], shown), "\n")
    return [
        at_most("rank, dicts", 1.2, "× httpx", took["rank, dicts"] / took["httpx, JSON"]),
        at_most("rank, matrix", 1.2, "× httpx", took["rank, matrix"] / took["httpx, msgpack"]),
    ]


# ---- click ----


@dataclass(frozen=True, slots=True)
class Clicked:
    """Seconds of each click, until all were acknowledged, and what became of them."""

    each: list[float]
    acknowledged: float
    result: FlushResult


def click_cost(client: Solar) -> list[Goal]:
    """Click at a steady rate, then wait until all are acknowledged."""
    rows = np.random.default_rng(1).random((TOP, N))
    ids = [str(at) for at in range(TOP)]

    def rank(_at: int) -> Ranking:
        return client.rank(ids, rows, timeout=PATIENCE, fallback=False)

    with ThreadPoolExecutor(4) as pool:
        rankings = list(pool.map(rank, range(RANKINGS)))
    found = clicked(client, rankings)
    p50, p99 = 1e6 * np.quantile(found.each, (0.5, 0.99))
    rows_shown = [
        ["click, median", f"{p50:.1f} µs"], ["click, 99 %", f"{p99:.1f} µs"],
        ["all acknowledged after", f"{found.acknowledged:.1f} s"],
        ["retries", str(client.counters.retries or "none")],
    ]  # fmt: skip
    title = f"click: {RATE:,} a second for {SECONDS:g} s"
    print(table(title, ["", "measured"], rows_shown), "\n")
    lost = len(found.each) - found.result.acknowledged
    return [
        at_most("click, 99 %", 100, "µs", float(p99)),
        at_most("all clicks acknowledged", 20, "s", found.acknowledged),
        at_most("clicks dropped or refused", 0, "events", lost),
    ]


def clicked(client: Solar, rankings: list[Ranking]) -> Clicked:
    """Click on one ranking after the other."""
    client.flush(PATIENCE)
    each, began = [], time.perf_counter()
    for at in range(int(RATE * SECONDS)):
        early = began + at / RATE - time.perf_counter()
        if early > 0.0:
            time.sleep(early)
        ranking = rankings[at % len(rankings)]
        started = time.perf_counter()
        client.click(ranking, "3")
        each.append(time.perf_counter() - started)
    result = client.flush(PATIENCE)
    return Clicked(each, time.perf_counter() - began, result)
