"""Many models on one service: pages of the list, the limit, and models that are damaged."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.storage.embedded.server import EmbeddedServer
from app.storage.keys import Keys
from app.storage.store import Store
from tests.api.services import PLAIN, application, serving
from tests.servers import client, server, until, url, with_store
from tests.test_metrics import read, series

__all__ = ["server", "url"]  # fixtures

DOCUMENTS = {"documents": [{"id": "a", "features": [1, 0]}, {"id": "b", "features": [0, 1]}]}


@pytest.fixture
def http(url: str) -> Iterator[TestClient]:
    with application(url, models=7, default_features="2") as started:
        for at in range(5):
            created = started.put(f"/models/m{at}", json={**PLAIN, "features": 2})
            assert created.status_code == 201
        yield started


def damage(url: str, model: str) -> None:
    """Damage the weights of the state and of every version."""
    keys = Keys(model)
    with client(url) as connection:
        for key in (keys.state, keys.snapshot(0)):
            connection.hset(key, "w", b"not a blob")


def metric(http: TestClient, name: str, **labels: str) -> float | None:
    return read(http.get("/metrics").content).get(series(name, **labels))


# ---- a damaged model ----


@pytest.mark.usefixtures("http")
def test_a_damaged_model_answers_503_and_is_counted_while_the_others_are_served(
    url: str,
) -> None:
    damage(url, "m2")
    with application(url) as after:
        assert after.get("/readyz").json() == {"status": "ready", "degraded": False, "down": []}
        assert metric(after, "solar_models_damaged") == 1.0
        ranked = {
            f"m{at}": after.post("/rank", json={**DOCUMENTS, "model": f"m{at}"}) for at in range(5)
        }
        statuses = {name: one.status_code for name, one in ranked.items()}
        assert statuses == {"m0": 200, "m1": 200, "m2": 503, "m3": 200, "m4": 200}
        assert "damaged" in ranked["m2"].json()["detail"]
        listed = {one["name"]: one for one in after.get("/models").json()["models"]}
        assert listed["m2"] == {"name": "m2", "seq": 0, "damaged": True}
        assert listed["m3"] == {
            "name": "m3", "algorithm": "solar-ii", "features": 2, "version": 0, "seq": 0,
        }  # fmt: skip
        assert after.delete("/models/m2").status_code == 204
        until(lambda: metric(after, "solar_models_damaged") == 0.0)


# ---- metrics ----


class LoopSeen:
    """A collector that notes whether it runs on an event loop."""

    def __init__(self) -> None:
        self.on_loop: list[bool] = []

    def collect(self) -> list[Any]:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            self.on_loop.append(True)
            return []
        self.on_loop.append(False)
        return []


def test_metrics_are_rendered_beside_the_event_loop(http: TestClient) -> None:
    seen, app = LoopSeen(), cast("FastAPI", http.app)
    app.state.health.metrics.registry.register(seen)
    seen.on_loop.clear()  # registering collects, too
    assert http.get("/metrics").status_code == 200
    assert seen.on_loop == [False]


# ---- the list ----


def names(answer: dict[str, Any]) -> list[str]:
    return [one["name"] for one in answer["models"]]


def test_the_list_of_models_has_pages(http: TestClient) -> None:
    first = http.get("/models", params={"limit": 2}).json()
    assert (names(first), first["next"]) == (["m0", "m1"], "m1")
    second = http.get("/models", params={"limit": 2, "after": first["next"]}).json()
    assert (names(second), second["next"]) == (["m2", "m3"], "m3")
    last = http.get("/models", params={"limit": 2, "after": second["next"]}).json()
    assert names(last) == ["m4"]
    assert "next" not in last
    assert names(http.get("/models").json()) == [f"m{at}" for at in range(5)]
    assert names(http.get("/models", params={"after": "m2-deleted"}).json()) == ["m3", "m4"]


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 1001}, {"limit": "many"}, {"after": 65 * "a"}]
)
def test_a_wrong_page_is_refused(http: TestClient, wrong: dict[str, Any]) -> None:
    refused = http.get("/models", params=wrong)
    assert refused.status_code == 422
    assert next(iter(wrong)) in refused.json()["detail"]


# ---- many models on few file descriptors ----

#: `solar` with at most 256 open files in each process.
FEW_FILES = ("sh", "-c", 'ulimit -n 256 && exec "$0" -m app "$@"', sys.executable)


@pytest.mark.slow
def test_300_models_are_ranked_and_learnt_with_256_file_descriptors(tmp_path: Path) -> None:
    names = [f"m{at:03d}" for at in range(300)]
    body = {**DOCUMENTS, "event_id": "e", "type": "labels", "labels": {"a": 1}}
    with EmbeddedServer.start(tmp_path) as store:
        with_store(store.url, lambda opened: create(opened, names))
        flags = ("--redis-url", store.url)
        with serving(*flags, solar=FEW_FILES) as running, running.client() as http:
            for name in names:
                ranked = http.post("/rank", json={**DOCUMENTS, "model": name})
                assert ranked.status_code == 200, (name, ranked.text)
            for name in names[::30]:  # the learner does not lead them
                learnt = http.post(
                    "/feedback", json={**body, "model": name}, headers={"Prefer": "wait=20"}
                )
                assert learnt.status_code == 200, (name, learnt.text)
                assert learnt.json()["version"] == 1
            page = http.get("/models", params={"limit": 100, "after": "m149"}).json()
            assert [one["name"] for one in page["models"]] == names[150:250]
            assert page["next"] == "m249"
            found = read(http.get("/metrics").content)
            assert found[series("solar_models")] == 300
            with client(store.url) as connection:
                assert len(connection.client_list()) < 128
            assert http.delete("/models/m000").status_code == 204
            shown = series("solar_version", model="m000")
            until(lambda: shown not in read(http.get("/metrics").content))
            assert "error" not in running.logged()


async def create(store: Store, names: list[str]) -> None:
    state = initial_state(ModelConfig(("f1", "f2")))
    for name in names:
        await store.models.create(name, state)


# ---- the limit ----


def test_at_the_limit_of_models_none_is_created_and_the_existing_ones_work(
    http: TestClient,
) -> None:
    new = {**PLAIN, "features": 2}
    assert http.put("/models/m5", json=new).status_code == 201
    assert http.put("/models/m6", json=new).status_code == 201
    refused = http.put("/models/m7", json=new)
    assert refused.status_code == 409
    assert "SOLAR_MODELS" in refused.json()["detail"]
    for path, body in (
        ("/rank", DOCUMENTS),
        ("/feedback", {**DOCUMENTS, "event_id": "e", "type": "labels", "labels": {"a": 1}}),
    ):
        by_request = http.post(path, json=body)  # it would create the model `default`
        assert by_request.status_code == 409, by_request.text
    assert http.put("/models/m6", json=new).status_code == 200
    assert http.post("/rank", json={**DOCUMENTS, "model": "m6"}).status_code == 200
    assert http.delete("/models/m0").status_code == 204
    assert http.put("/models/m7", json=new).status_code == 201
