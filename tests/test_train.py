"""`solar train` into a file, a store and a service."""

import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.api import auth
from app.domain.model_config import ModelConfig
from app.evaluation import letor
from app.evaluation.synthetic import SyntheticData
from app.storage.embedded import server as embedded
from app.storage.embedded.server import EmbeddedServer
from app.storage.states import StoredState
from app.storage.store import Store
from app.training import trainer
from app.training.options import Training
from app.training.targets import http
from tests.api.services import Running, serving, uvicorn_ready
from tests.commands import Solar
from tests.servers import until, with_store

BOUND = 1e4


@pytest.fixture
def solar(capsys: pytest.CaptureFixture[str]) -> Solar:
    return Solar(capsys, "train")


def text(seed: int, queries: int = 12) -> str:
    lines = []
    for at, query in enumerate(SyntheticData(3, queries, 6).draw(np.random.default_rng(seed))[1]):
        for label, row in zip(query.labels, np.asarray(query.documents), strict=True):
            features = " ".join(f"{k}:{value:.6f}" for k, value in enumerate(row, start=1))
            lines.append(f"{label:g} qid:{seed}-{at} {features}")
    return "\n".join(lines)  # no newline at the end, as in many files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("judged")
    plain, packed, more = folder / "a.txt", folder / "b.txt.gz", folder / "c.txt.xz"
    plain.write_text(text(1))
    with gzip.open(packed, "wt") as file:
        file.write(text(2))
    with lzma.open(more, "wt") as file:
        file.write(text(3))
    return [plain, packed, more]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


def expected(files: list[Path], training: Training, settings: ModelConfig | None = None) -> Any:
    settings = settings or ModelConfig(("f1", "f2", "f3"))
    found = trainer.train_batch(
        trainer.judgements(letor.read_letor(files), settings, BOUND), training
    )
    return trainer.online(found, settings)


def test_a_model_is_written_to_a_file(solar: Solar, files: list[Path], tmp_path: Path) -> None:
    code, output, _ = solar(*files, "--output", tmp_path / "model.json", "--C", "0.1")
    assert code == 0
    assert "36 queries, 216 documents; C = 0.1, NDCG@10 0." in output
    written = json.loads((tmp_path / "model.json").read_text())
    weights = expected(files, Training(C=0.1)).weights
    assert written["weights"] == dict(zip(("f1", "f2", "f3"), weights.tolist(), strict=True))
    assert written["training"]["converged"] is True


def test_c_is_chosen_on_the_validation_file(
    solar: Solar, files: list[Path], tmp_path: Path
) -> None:
    code, output, _ = solar(
        files[0], files[1], "--validate", files[2], "--output", tmp_path / "model.json"
    )
    assert code == 0
    assert "24 queries" in output
    assert "on held-out queries: ndcg@10 0." in output
    written = json.loads((tmp_path / "model.json").read_text())
    weights = expected(files, Training(validation=12.0)).weights
    assert list(written["weights"].values()) == weights.tolist()


def test_a_new_model_in_a_store_starts_from_the_trained_weights(
    solar: Solar, files: list[Path], tmp_path: Path
) -> None:
    code, output, error = solar(*files, "--model", "books", "--data-dir", tmp_path, "--C", "0.1")
    assert (code, error) == (0, "")
    assert "model books: record 1 replaces the model" in output
    with serving(data=tmp_path) as running, running.client() as client:
        until(lambda: client.get("/models/books").json()["version"] == 1)
        stored = state(running, "books")
    model = expected(files, Training(C=0.1))
    assert (stored.state.model.weights == model.weights).all()
    assert (stored.state.model.spread == model.spread).all()


def state(running: Running, model: str) -> StoredState:
    async def load(store: Store) -> StoredState:
        return await store.states.load(model)

    url = embedded.find(running.data)
    assert url is not None
    return with_store(url, load)


def test_a_service_trains_and_the_weights_are_written_too(
    solar: Solar, files: list[Path], service: Running, tmp_path: Path
) -> None:
    with service.client() as client:
        settings = {"features": ["a", "b", "c"], "algorithm": "solar-i"}
        assert client.put("/models/shop", json=settings).status_code == 201
        code, output, error = solar(
            *files, "--model", "shop", "--url", service.url, "--loss", "l1", "--C", "0.1",
            "--output", tmp_path / "model.json",
        )  # fmt: skip
        assert (code, error) == (0, "")
        assert "model shop: record 1 replaces the model" in output
        found = client.get("/models/shop").json()
    model = expected(files, Training(loss="l1", C=0.1), ModelConfig(("a", "b", "c"), "solar-i"))
    assert found["weights"].pop("_order") == 0.0
    assert list(found["weights"].values()) == model.weights.tolist()
    assert json.loads((tmp_path / "model.json").read_text())["weights"] == found["weights"]


def test_a_service_creates_the_model_and_validates_on_the_last_file(
    solar: Solar, files: list[Path], service: Running
) -> None:
    code, output, error = solar(
        files[0], files[1], "--validate", files[2], "--model", "new", "--url", service.url
    )
    assert (code, error) == (0, "")
    assert "best of " in output
    model = expected(files, Training(validation=12.0))
    assert (state(service, "new").state.model.weights == model.weights).all()


def test_a_training_that_no_learner_applies_is_reported(
    solar: Solar, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LEARNT_SECONDS", 0.01)
    output = tmp_path / "model.json"
    with uvicorn_ready(data=tmp_path / "data", SOLAR_LEARNER="no") as running:
        code, _, error = solar(
            *files, "--model", "m", "--url", running.url, "--C", "1", "--output", output
        )
    assert code == 2
    assert "model m: record 1 has the trained model, but is not learnt" in error
    assert not output.exists()


def test_the_api_key_comes_from_the_environment(
    solar: Solar, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, entry = auth.new_key("ops", "admin")
    with serving(environ={"SOLAR_KEYS": entry}) as running:
        arguments = ["--model", "m", "--url", running.url, "--C", "1"]
        code, _, error = solar(*files, *arguments)
        assert code == 2
        assert "the service answered 401" in error
        monkeypatch.setenv("SOLAR_KEY", secret)
        code, _, error = solar(*files, *arguments)
        assert (code, error) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "m", "--patience", "5"], "--patience: expected with --cluster only"),
        (["--C", "1"], "expected --model NAME, --output FILE or both, got neither"),
        (["--model", "m", "--C", "0"], "C: expected a value from"),
        (["--model", "m", "--penalty", "1"], "penalty: not an option of ranksvm; use C instead"),
        (["--model", "a.b"], "model: expected 1 to 64 letters"),
        (["--model", "m", "--url", "books"], "--url: expected http://HOST:PORT"),
        (["--model", "m", "--url", "http://127.0.0.1:9"], "the service is unreachable"),
        (["--output", "no/such/folder/m.json", "--C", "1"], "no/such/folder/m.json: No such"),
    ],
)
def test_an_error_of_solar_train_is_printed_in_one_line(
    solar: Solar, files: list[Path], tmp_path: Path, arguments: list[str], message: str
) -> None:
    where = [] if "--url" in arguments else ["--data-dir", str(tmp_path)]
    code, output, error = solar(files[0], *arguments, *where)
    assert (code, output) == (2, "")
    assert error.startswith(f"solar: {message}"), error
    assert error.count("\n") == 1


def test_bad_data_is_reported_with_its_line_and_changes_nothing(
    solar: Solar, files: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("1 qid:1 1:1\n0 qid:1 1:x\n")
    code, _, error = solar(files[0], bad, "--model", "m", "--data-dir", tmp_path / "data")
    assert code == 2
    assert error == (f"solar: {bad}:2: expected a finite float32 as value of feature 1, got 'x'\n")

    async def models(store: Store) -> list[str]:
        return await store.models.names()

    with EmbeddedServer.start(tmp_path / "data") as server:
        assert with_store(server.url, models) == []


def test_data_with_another_number_of_features_does_not_change_the_model(
    solar: Solar, files: list[Path], service: Running
) -> None:
    with service.client() as client:
        client.put("/models/wide", json={"features": 4})
        code, _, error = solar(*files, "--model", "wide", "--url", service.url)
        assert code == 2
        assert "the service answered 422: features: expected 4, as the model has" in error
        assert client.get("/models/wide").json()["seq"] == 0
