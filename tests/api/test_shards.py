"""Training jobs that name shards: only below the prefixes of SOLAR_SHARDS, and no scheduler."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.config import Settings
from app.errors import SolarError
from app.main import create_app
from app.training import trainer
from app.training.options import Training
from app.training.process import CLUSTER_FAILED
from tests.api.services import PLAIN, Running, application, serving
from tests.api.trainings import done, ended_job, started_job
from tests.servers import server, until, url
from tests.shards import N, drawn, in_one, write_parquet, written

__all__ = ["server", "url"]  # fixtures

SHARDS = drawn()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("shards")
    written(found, SHARDS)
    return found


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    with serving("--shards", str(folder), "--check-seconds", "600") as running:
        yield running


def post(http: Any, body: dict[str, Any]) -> Any:
    http.put("/models/m", json={"features": N, **PLAIN})
    return http.post("/models/m/warm-start", json=body)


def test_a_job_trains_on_shards(service: Running, folder: Path) -> None:
    with service.client() as http:
        answer = post(http, {"shards": [f"{folder}/*.parquet"], "C": 0.1})
        assert answer.status_code == 202, answer.text
        result = done(http, answer.json()["id"])["result"]
        assert (result["queries"], result["normalization"]) == (36, "none")
        expected = trainer.train_batch(in_one(SHARDS), Training(C=0.1)).weights
        until(lambda: http.get("/models/m").json()["version"] >= result["seq"])
        weights = list(http.get("/models/m").json()["weights"].values())
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)


def test_a_bad_shard_is_refused_without_its_url(service: Running, folder: Path) -> None:
    write_parquet(folder / "bad.parq", SHARDS[0])
    with service.client() as http:
        answer = post(http, {"shards": [f"{folder}/bad.parq"], "C": 0.1})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("shards[0]:1: expected a label")
    assert "parq" not in answer.text


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"shards": ["/etc/passwd"]}, 403, "shards[0]: expected a URL below a prefix"),
        ({"shards": ["file:///srv/a"]}, 422, "shards[0]: expected no file: URL"),
        ({"shards": ["/srv/../etc/a"]}, 422, "shards[0]: expected no . and .."),
        ({"shards": []}, 422, "shards"),
        ({"shards": [1]}, 422, "shards"),
        ({"shards": "/srv/a"}, 422, "shards"),
        ({"shards": ["/srv/a"], "queries": []}, 422, "shards"),
        ({"shards": ["/srv/a"], "loss": "l1"}, 422, "trainer: expected ranksvm"),
        ({"shards": ["/srv/a"], "normalization": "query-minmax"}, 422, "expected none, which"),
        ({"shards": ["/srv/a"], "cluster": "tcp://127.0.0.1:1"}, 422, "cluster"),
    ],
)
def test_other_shards_and_schedulers_are_refused(
    url: str, body: dict[str, Any], status: int, detail: str
) -> None:
    with application(url, shards="/srv,s3://bucket") as http:
        answer = post(http, body)
    assert (answer.status_code, detail in answer.json()["detail"]) == (status, True), answer.text


def test_without_prefixes_shards_are_forbidden(url: str) -> None:
    with application(url) as http:
        answer = post(http, {"shards": ["/srv/a.parquet"]})
    assert answer.status_code == 403
    assert "SOLAR_SHARDS lists no prefixes" in answer.json()["detail"]


@pytest.mark.parametrize(
    "wrong", [{"cluster": "tcp://10.0.0.1:8786"}, {"cluster": "x"}, {"shards": "relative"}]
)
def test_a_service_does_not_start_with_wrong_settings(wrong: dict[str, str], url: str) -> None:
    with pytest.raises(SolarError, match=f"SOLAR_{next(iter(wrong)).upper()}: expected"):
        create_app(Settings(**wrong), url)  # type: ignore[arg-type]


def test_a_failed_cluster_is_reported_without_its_cause(url: str, folder: Path) -> None:
    with application(url, shards=str(folder), cluster="tls://127.0.0.1:9") as client:
        http: Any = client
        answer = post(http, {"shards": [str(folder)], "C": 0.1})
        found = ended_job(http, started_job(answer))
    assert (found["state"], found["error"]) == ("failed", CLUSTER_FAILED)
