"""The history of a model over HTTP: points of its sums, weights by the hour, the scope of a key."""

import time
from collections.abc import Iterator
from itertools import count
from statistics import median
from typing import Any

import httpx
import numpy as np
import pytest

from app.api import auth
from app.domain.model import SUMS, Model, initial_state
from app.domain.model_config import ModelConfig
from app.storage.history import POINT_SUMS, pack_point, pack_weights
from app.storage.keys import Keys
from tests.api.services import PLAIN, Running, application, serving
from tests.api.test_models import learn, url
from tests.servers import client as connection_to
from tests.servers import server, until

__all__ = ["server"]  # a fixture

NAMES = count()
NEEDED = {
    "queries", "ndcg@1", "ndcg@5", "ndcg@10", "map", "baseline_ndcg@10", "baseline_map",
    "square_ndcg@10", "square_baseline_ndcg@10", "square_lead_ndcg@10", "square_lead_map",
    "feedback", "rejected", "abandoned", "stepped", "passive", "refused", "bounded", "squared_loss",
}  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture
def model(http: httpx.Client) -> str:
    """A new model of two features."""
    name = f"noted-{next(NAMES)}"
    settings = {**PLAIN, "features": ["bm25", "price"], "gamma": 10.0}
    assert http.put(f"/models/{name}", json=settings).status_code == 201
    return name


def history(http: httpx.Client, model: str, **query: Any) -> dict[str, Any]:
    answered = http.get(f"/models/{model}/history", params=query)
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


def learn_until_a_point(http: httpx.Client, model: str) -> dict[str, Any]:
    def has_point() -> bool:
        learn(http, model)
        return bool(history(http, model)["hour"])

    until(has_point)
    return history(http, model)


def fill(service: Running, model: str, features: int = 2) -> int:
    """Write full rings up to now; return the time of the last row."""
    rng, now = np.random.default_rng(3), int(time.time() * 1000)
    config = ModelConfig(tuple(f"f{k}" for k in range(features)), algorithm="solar-i")
    drawn = initial_state(config, rng.standard_normal(features)).model
    with connection_to(url(service)) as connection:
        hour, day, weights = Keys(model).history(1)
        for key, interval, number in ((hour, 10_000, 360), (day, 600_000, 144)):
            connection.rpush(key, *_points(rng, now, interval, number))
        connection.rpush(weights, *_hours(drawn, now))
    return now


def _points(rng: np.random.Generator, now: int, interval: int, number: int) -> list[bytes]:
    sums = np.cumsum(rng.random((number, len(SUMS))), axis=0)
    times = [now - interval * at for at in reversed(range(number))]
    return [
        f"{one:013}".encode() + pack_point(at, sums[at]) for at, one in enumerate(times)
    ]  # fmt: skip


def _hours(model: Model, now: int) -> list[bytes]:
    times = [now - 3_600_000 * at for at in reversed(range(25))]
    return [f"{one:013}".encode() + pack_weights(at, model) for at, one in enumerate(times)]


def test_a_new_model_has_no_points_but_one_of_now(http: httpx.Client, model: str) -> None:
    found = history(http, model)
    assert (found["hour"], found["day"], found["weights"]) == ([], [], [])
    assert (found["name"], found["version"], found["with_errors"]) == (model, 0, True)
    assert set(found["columns"]) >= NEEDED
    assert found["now"][1:] == [0] * (1 + len(found["columns"]))
    assert abs(found["now"][0] / 1000 - time.time()) < 60.0


def test_learnt_feedback_becomes_a_point(http: httpx.Client, model: str) -> None:
    found = learn_until_a_point(http, model)
    (at, seq, *sums) = found["hour"][0]
    named = dict(zip(found["columns"], sums, strict=True))
    assert abs(at / 1000 - time.time()) < 60.0
    assert named["queries"] == named["feedback"] == seq >= 1
    assert found["day"][0] == found["hour"][0]
    assert found["weights"][0]["seq"] == seq
    assert list(found["weights"][0]["weights"]) == ["bm25", "price"]
    assert found["now"][1] == found["version"] >= seq
    shown = http.get(f"/models/{model}").json()
    queries, ndcg = (found["now"][2 + POINT_SUMS.index(one)] for one in ("queries", "ndcg@10"))
    assert ndcg / queries == shown["ndcg"]["10"]


def test_a_model_created_again_has_none_of_the_old_points(http: httpx.Client, model: str) -> None:
    assert learn_until_a_point(http, model)["hour"]
    assert http.delete(f"/models/{model}").status_code == 204
    assert http.put(f"/models/{model}", json={"features": 2}).status_code == 201
    found = history(http, model)
    assert (found["hour"], found["day"], found["weights"], found["version"]) == ([], [], [], 0)


def test_points_after_a_time_are_answered_alone(
    service: Running, http: httpx.Client, model: str
) -> None:
    now = fill(service, model)
    whole = history(http, model)
    lengths = [len(whole[name]) for name in ("hour", "day", "weights")]
    assert lengths == [360, 144, 25]
    assert [one[0] for one in whole["hour"]] == sorted(one[0] for one in whole["hour"])
    recent = history(http, model, after=now - 20_000)
    assert recent["hour"] == whole["hour"][-2:]
    assert recent["day"] == whole["day"][-1:]
    assert recent["weights"] == whole["weights"][-1:]
    assert history(http, model, after=now)["hour"] == []


def test_a_full_history_is_answered_quickly(
    service: Running, http: httpx.Client, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now, taken = fill(service, model, 200), dict[int, float]()
    for after in (0, now - 10_000):
        seconds = []
        for _ in range(20):
            started = time.perf_counter()
            answered = http.get(f"/models/{model}/history", params={"after": after})
            seconds.append(time.perf_counter() - started)
        taken[after] = median(seconds)
        size = len(answered.content)
        with capsys.disabled():
            print(f"\nhistory: {size} bytes in {1000 * taken[after]:.1f} ms")  # noqa: T201
        assert size < 600_000
    assert taken[0] < 0.25  # a loaded machine; see the printed time


def test_a_damaged_row_is_skipped(service: Running, http: httpx.Client, model: str) -> None:
    with connection_to(url(service)) as connection:
        for key in Keys(model).history(1):
            connection.rpush(key, b"", b"x" * 254, b"0" * 300)
    found = history(http, model)
    assert (found["hour"], found["day"], found["weights"]) == ([], [], [])


@pytest.mark.parametrize("after", ["-1", "1e3", "x", "10000000000000", "1.5"])
def test_an_invalid_time_is_refused(http: httpx.Client, model: str, after: str) -> None:
    answered = http.get(f"/models/{model}/history", params={"after": after})
    assert (answered.status_code, "after" in answered.json()["detail"]) == (422, True)


@pytest.mark.parametrize("name", ["missing", "a.b"])
def test_an_unknown_model_is_404(http: httpx.Client, name: str) -> None:
    assert http.get(f"/models/{name}/history").status_code == 404


def test_the_history_needs_the_scope_read(server: Any) -> None:
    keys = {scope: auth.new_key(scope, scope) for scope in auth.SCOPES}
    entries = ",".join(entry for _, entry in keys.values())
    with application(server.url, keys=entries) as client:
        statuses = {
            scope: client.get(
                "/models/missing/history", headers={"authorization": f"Bearer {secret}"}
            ).status_code
            for scope, (secret, _) in keys.items()
        }
    assert statuses == {"rank": 403, "feedback": 403, "read": 404, "admin": 404}
