"""solar-client in gunicorn with --preload: one client, made before two forks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from solar_client import Solar

from app.storage.embedded import server
from tests.api.services import PLAIN, serving
from tests.api.test_processes import free_port
from tests.faults.checker import read_stored
from tests.faults.observed_model import run_scenario
from tests.servers import TIMEOUT, until

BEFORE = 30
#: The events before the forks are in the queue, and the thread that sends them runs, at the forks.
SHOP = f"""
import os
from solar_client import Solar

DOCUMENTS = [{{"id": "a", "features": [1.0, 0.0]}}, {{"id": "b", "features": [0.0, 1.0]}}]
solar = Solar(os.environ["RANKER"], model="m")
for at in range({BEFORE}):
    solar.label(None, {{"a": 1}}, documents=DOCUMENTS, event_id=f"before-{{at}}")


def app(environ, start_response):
    ranking = solar.rank(DOCUMENTS, timeout=20.0)
    event = solar.click(ranking, "a")
    start_response("200 OK", [("content-type", "text/plain")])
    return [f"{{os.getpid()}} {{event}}".encode()]
"""


@contextmanager
def gunicorn(folder: Path, ranker: str) -> Iterator[str]:
    """Serve the shop; stop it with SIGTERM at once after the block."""
    (folder / "shop.py").write_text(SHOP)
    address = f"127.0.0.1:{free_port()}"
    options = ["--preload", "--workers", "2", "--bind", address, "--no-control-socket"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "shop:app"], cwd=folder,
        env={**os.environ, "RANKER": ranker}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: process.poll() is not None or answers(address))
        yield f"http://{address}/"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    host, port = address.split(":")
    try:
        httpx.get(f"http://{host}:{port}/", trust_env=False, timeout=TIMEOUT)
    except httpx.TransportError:
        return False
    return True


@pytest.mark.slow
def test_gunicorn_with_preload_and_two_forks_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with serving(data=tmp_path / "data") as service, Solar(service.url) as solar:
        solar.create_model("m", 2, **PLAIN)
        with gunicorn(tmp_path, service.url) as url, ThreadPoolExecutor(8) as pool:

            def visit(_at: int) -> list[str]:
                return httpx.get(url, trust_env=False, timeout=TIMEOUT).text.split()

            visits = list(pool.map(visit, range(300)))
        store = server.find(tmp_path / "data")
        assert store is not None
        run_scenario(check(store, visits), TIMEOUT)


async def check(store: str, visits: list[list[str]]) -> None:
    found = await read_stored(store, "m")
    stored = [record.event for record in found.feedback().values()]
    workers, events = {pid for pid, _ in visits}, {event for _, event in visits}
    assert len(workers) == 2
    assert len(events) == 300
    assert len(stored) == len(set(stored))
    assert events | {f"before-{at}" for at in range(BEFORE)} <= set(stored)
