"""An attacking source: its share of feedback is limited, and a replay removes its records."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from app.domain import codec
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.ranking.serving import uniforms
from app.storage.embedded import server
from app.storage.log import LogEntry
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.servers import until, with_store

SHARE, HONEST, ROUNDS = 0.05, 30, 500
UTILITY = np.array([1.0, -0.5, 0.25])
MODEL = "shop"


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving(environ={"SOLAR_SOURCE_SHARE": f"{SHARE}"}) as running:
        yield running


def rows_of(at: int) -> Any:
    return uniforms(f"rows {at}", 24).reshape(8, 3)


def visit(http: httpx.Client, at: int) -> tuple[str, int]:
    """Rank once and click the best document; every tenth time the attacker clicks the worst."""
    rows, source = rows_of(at), f"honest-{at % HONEST}"
    ids = [str(row) for row in range(8)]
    body = {"model": MODEL, "ids": ids, "features": rows.tolist(), "request_id": f"r{at}"}
    shown = [int(one["id"]) for one in http.post("/rank", json=body).json()["documents"]]
    clicked = max(shown, key=lambda row: float(rows[row] @ UTILITY))
    if at % 10 == 9:
        source, clicked = "attacker", min(shown, key=lambda row: float(rows[row] @ UTILITY))
    event = {
        "event_id": f"e{at}", "type": "clicks", "model": MODEL, "request_id": f"r{at}",
        "clicked": [str(clicked)], "source": source,
    }  # fmt: skip
    return source, http.post("/feedback", json=event).status_code


async def read_log(store: Store) -> list[LogEntry]:
    return await store.log.read(MODEL, 0, 10 * ROUNDS)


def source_of(entry: LogEntry) -> str:
    record = codec.load_record(entry.record)
    return record.source if isinstance(record, Feedback) else ""


@pytest.mark.slow
def test_an_attacking_source_is_limited_to_its_share_and_a_replay_removes_it(
    service: Running,
) -> None:
    url = server.find(service.data)
    assert url is not None
    with service.client() as http:
        assert http.put(f"/models/{MODEL}", json={"features": 3}).status_code == 201
        outcomes = Counter(visit(http, at) for at in range(ROUNDS))
        accepted = outcomes["attacker", 202]
        assert outcomes["attacker", 429] >= 10
        assert accepted <= SHARE * ROUNDS + 1
        assert sum(count for (_, status), count in outcomes.items() if status == 202) > 0.9 * ROUNDS
        assert {status for _, status in outcomes} == {202, 429}
        tail = http.get(f"/models/{MODEL}").json()["seq"]
        until(lambda: http.get(f"/models/{MODEL}").json()["version"] == tail)
        log = with_store(url, read_log)
        ran = subprocess.run(
            [sys.executable, "-m", "app", "replay", "--redis-url", url, MODEL,
             "--without-source", "attacker", "--apply"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert f"left out {accepted} records of source attacker" in ran.stdout
        until(lambda: http.get(f"/models/{MODEL}").json()["version"] == tail + 1)
        found = list(http.get(f"/models/{MODEL}").json()["weights"].values())
    reducer = Reducer(with_store(url, lambda store: store.states.version(MODEL, 0)).state)
    for entry in log:
        if source_of(entry) != "attacker":
            assert reducer.apply(entry.record)
    assert found == reducer.state().model.weights.tolist()
    assert float(np.corrcoef(found[:3], UTILITY)[0, 1]) > 0.9
