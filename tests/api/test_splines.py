"""Splines and normalization over HTTP: create, train, rank, learn, ask, verify."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.evaluation.synthetic import SyntheticData
from tests.api.services import Running, serving
from tests.api.trainings import TEXT, as_json, letor, until_long
from tests.commands import Solar
from tests.test_old_data_directory import complaints
from tests.test_train import solar

__all__ = ["solar"]  # a fixture

_, BENT = SyntheticData(2, 80, 10, noise=0.1, bent=1).draw(np.random.default_rng(0))
KNOTS = {"price": [-0.5, 0.5]}
#: The middle of the first feature is best; the second one does not differ.
SHELF = [{"id": f"p{x:g}", "features": [x, 0.0]} for x in (-1.5, -0.8, 0.0, 0.8, 1.5)]
LEARNT = {"prefer": "wait=20"}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def http(running: Running) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("judged") / "bent.txt"
    file.write_bytes(letor(BENT))
    return file


def create(http: httpx.Client, name: str, **settings: Any) -> dict[str, Any]:
    body = {"features": ["price", "age"], "splines": KNOTS, **settings}
    answer = http.put(f"/models/{name}", json=body)
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found


def ranked(http: httpx.Client, model: str, **more: Any) -> list[dict[str, Any]]:
    body = {"model": model, "documents": SHELF, "explore": False, **more}
    answer = http.post("/rank", json=body).raise_for_status().json()
    found: list[dict[str, Any]] = answer["documents"]
    return found


def test_a_trained_model_ranks_by_a_bent_feature_and_learns_on(
    running: Running, http: httpx.Client, judged: Path, solar: Solar, tmp_path: Path
) -> None:
    output = tmp_path / "bent.json"
    code, printed, error = solar(
        judged, "--splines", "auto", "--model", "bent", "--url", running.url, "--output", output
    )
    assert (code, error) == (0, "")
    assert re.search(
        r"held-out ndcg@10: 0\.\d{4} without splines, 0\.\d{4} with 4 segments for each", printed
    )
    model, written = http.get("/models/bent").json(), json.loads(output.read_text())
    assert model["features"] == ["f1", "f2"]
    assert written["splines"] == model["splines"]
    assert len(model["splines"]["f1"]) == 3
    assert written["weights"] == model["weights"]
    assert (written["normalization"], written["training"]["normalization"]) == ("none", "none")
    shown = [one["id"] for one in ranked(http, "bent")]
    assert shown[0] == "p0"
    assert set(shown[-2:]) == {"p-1.5", "p1.5"}
    event = {"event_id": "e1", "type": "labels", "model": "bent", "labels": {"p1.5": 2},
             "documents": SHELF}  # fmt: skip
    assert http.post("/feedback", json=event, headers=LEARNT).status_code == 200
    asked = http.post("/rank", json={"model": "bent", "documents": SHELF}).json()["request_id"]
    event = {"event_id": "e2", "type": "clicks", "request_id": asked, "clicked": ["p1.5"]}
    assert http.post("/feedback", json=event, headers=LEARNT).status_code == 200
    after = http.get("/models/bent").json()
    assert after["weights"] != model["weights"]
    assert (after["rejected"], after["feedback"]) == (0, 2)
    assert complaints(running, "bent") == []


def test_a_model_with_splines_is_created_once_and_shows_them(http: httpx.Client) -> None:
    made = create(http, "shown")
    assert made["splines"] == KNOTS
    columns = ["price", "age", "price>-0.5", "price>0.5", "_order"]
    assert list(made["weights"]) == list(made["stddev"]) == columns
    assert create(http, "shown") == http.get("/models/shown").json()
    other = {"features": ["price", "age"], "splines": {"price": [-0.5, 0.25]}}
    assert http.put("/models/shown", json=other).status_code == 409
    assert "splines" not in create(http, "linear", splines={})


@pytest.mark.parametrize(
    ("splines", "detail"),
    [
        ({"prise": [1]}, 'splines: unknown feature "prise"; did you mean "price"?'),
        ({"price": [2, 1]}, 'splines: expected ascending knots of "price"'),
        ({"price": []}, 'splines: expected ascending knots of "price", at least one'),
        ({"price": [1e300]}, 'splines: expected ascending knots of "price"'),
        ({"price": ["1"]}, "splines[...][0]: expected float, got str"),
        ({"price": 1}, "splines[...]: expected array, got int"),
        ([1], "splines: expected object, got array"),
        (None, "splines: expected object, got null"),
        ({"price": list(range(1998))}, "splines: expected at most 2000 features"),
    ],
)
def test_invalid_splines_are_422(http: httpx.Client, splines: Any, detail: str) -> None:
    body = {"features": ["price", "age"], "prior": 0.5, "splines": splines}
    answer = http.put("/models/refused", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail)
    assert http.get("/models/refused").status_code == 404


def warm_started(http: httpx.Client, name: str, **sent: Any) -> dict[str, float]:
    """Return the weights after a warm start of a new model with splines."""
    create(http, name, normalization="query-minmax")
    answer = http.post(f"/models/{name}/warm-start", **sent)
    assert answer.status_code == 202, answer.text
    job = f"/jobs/{answer.json()['id']}"
    until_long(lambda: http.get(job).json()["state"] == "done")
    result = http.get(job).json()["result"]
    assert result["normalization"] == "query-minmax"
    ranked(http, name, min_seq=result["seq"])
    found: dict[str, float] = http.get(f"/models/{name}").json()["weights"]
    return found


def test_a_warm_start_in_json_and_in_text_gives_the_same_weights(http: httpx.Client) -> None:
    options = {"C": 0.1, "normalization": "query-minmax"}
    weights = warm_started(http, "json", json={"queries": as_json(BENT), **options})
    assert weights == warm_started(http, "text", content=letor(BENT), headers=TEXT, params=options)
    assert len(weights) == 5


def test_questions_and_explanations_name_the_ramps(http: httpx.Client) -> None:
    create(http, "asked")
    event = {"event_id": "e1", "type": "labels", "model": "asked", "labels": {"p0": 1},
             "documents": SHELF}  # fmt: skip
    assert http.post("/feedback", json=event, headers=LEARNT).status_code == 200
    explained = {one["id"]: one["contributions"] for one in ranked(http, "asked", explain=True)}
    assert set(explained["p1.5"]) >= {"price", "price>-0.5", "price>0.5"}
    compared = {"documents": SHELF, "first": "p1.5", "second": "p0"}
    given = http.post("/models/asked/compare", json=compared).raise_for_status().json()
    assert {one["feature"] for one in given["contributions"]} >= {"price>-0.5", "price>0.5"}
    newest = http.get("/models/asked/impressions").json()
    assert newest["features"] == ["price", "age", "price>-0.5", "price>0.5", "_order"]
    shown = newest["impressions"][0]["documents"]
    again = {**compared, "documents": shown, "scored": True}
    scored = http.post("/models/asked/compare", json=again).raise_for_status().json()
    assert scored["gap"] == given["gap"]
    tried = {"documents": SHELF, "clicks": ["p1.5"]}
    assert http.post("/models/asked/what-if", json=tried).raise_for_status().json()["weights"]


# ---- options of a warm start ----


def test_a_warm_start_for_another_normalization_is_422(http: httpx.Client) -> None:
    create(http, "scaled", normalization="query-minmax")
    path, detail = "/models/scaled/warm-start", "normalization: expected query-minmax, which the"
    stated = {"normalization": "none"}
    body = {"queries": as_json(BENT), "C": 0.1, **stated}
    for answer in (http.post(path, content=letor(BENT), headers=TEXT, params=stated),
                   http.post(path, json=body)):  # fmt: skip
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(detail)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--normalization", "none"], "normalization: expected query-minmax, which the model has"),
        (["--splines", "auto"], "splines: expected a new model, as knots are fixed"),
    ],
)
def test_an_existing_model_keeps_its_normalization_and_its_knots(
    running: Running, http: httpx.Client, judged: Path, solar: Solar, options: list[str],
    message: str,
) -> None:  # fmt: skip
    create(http, "kept", normalization="query-minmax")
    over_http = ["--model", "kept", "--url", running.url]
    in_store = ["--model", "kept", "--data-dir", running.data]
    for where in (over_http, in_store):
        code, output, error = solar(judged, *options, *where)
        assert (code, output) == (2, "")
        assert error.startswith(f"solar: {message}")
    assert http.get("/models/kept").json()["seq"] == 0


def test_a_new_model_in_a_store_has_the_stated_normalization_and_splines(
    running: Running, http: httpx.Client, judged: Path, solar: Solar, tmp_path: Path
) -> None:
    arguments = ["--normalization", "query-minmax", "--splines", "4", "--C", "0.1"]
    code, _, error = solar(judged, *arguments, "--model", "stored", "--data-dir", running.data)
    assert (code, error) == (0, "")
    found = http.get("/models/stored").json()
    assert found["normalization"] == "query-minmax"
    output = tmp_path / "model.json"
    assert solar(judged, *arguments, "--output", output)[0] == 0
    written = json.loads(output.read_text())
    assert written["normalization"] == "query-minmax"
    assert written["splines"] == found["splines"]
    assert list(written["weights"]) == list(found["weights"])


def test_a_choice_of_splines_needs_held_out_queries(judged: Path, solar: Solar) -> None:
    code, _, error = solar(judged, "--splines", "auto", "--C", "1", "--output", "unused.json")
    assert code == 2
    assert error.startswith("solar: splines: expected held-out queries to choose on; omit --C")
