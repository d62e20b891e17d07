"""A data directory of an earlier version opens: its models have the same bits and keep learning.

A golden file holds a data directory after a clean stop, and the last answers of `GET /models/…`.
Keys with a TTL have expired: impressions, dedupe keys, jobs. Each format has the directory of the
oldest service that wrote it: commit 2b5dfff for format 1, without warm starts and fair pairs, the
commit that added `pair_bound` for format 2, the one that added `exploration` for format 3, the one
that added named versions for format 4, the one that added the largest gap, after `splines`, for
format 5, the one that added followers and duels over HTTP for format 6, and the one that added this
file for format 7. The other file is of commit 8009a6c. To write a file, run
`python -m tests.test_old_data_directory CHECKOUT FILE`, with `--oldest` for commit 2b5dfff,
`--splines` for format 5, `--duels` for format 6 and `--gains` for format 7; CHECKOUT is a
`git worktree` of the commit.
"""

import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.domain.codec import newest_format
from app.learning.replay import verify
from app.storage.embedded.data_directory import LOCK, LOG
from app.storage.embedded.server import find
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.servers import TIMEOUT, until, with_store

GOLDEN = Path(__file__).parent / "golden"
DIRECTORIES = (
    "data-directory-format-1.tar.xz", "data-directory-0.1.tar.xz", "data-directory-format-2.tar.xz",
    "data-directory-format-3.tar.xz", "data-directory-format-4.tar.xz",
    "data-directory-format-5.tar.xz", "data-directory-format-6.tar.xz",
    "data-directory-format-7.tar.xz",
)  # fmt: skip
EXPECTED = "said.json"  # beside the data: the service's answers for each model
FILES = (LOCK, LOG, "appendonlydir")
BASE, MANIFEST = "appendonlydir/appendonly.aof.1.base.rdb", "appendonlydir/appendonly.aof.manifest"

#: One of every algorithm, and of every way to vary a list.
MODELS: dict[str, dict[str, Any]] = {
    "books": {"features": ["bm25", "price", "age"]},
    "fair": {"features": 3, "covariance": "diagonal", "clicks": "fair-pairs"},
    "plain": {"features": 3, "algorithm": "solar-i", "C": 0.01, "clicks": "last-click-skip-above",
              "normalization": "query-minmax"},
}  # fmt: skip
#: The same models as the oldest service knows them.
OLDEST_MODELS = {**MODELS, "fair": {"features": 3, "covariance": "diagonal"}}
#: The same models, one with splines.
BENT_MODELS = {**MODELS, "books": {**MODELS["books"], "splines": {"price": [0.25, 0.5]}}}
#: Duels of the models: one is on, of a model with its follower, and one has ended.
DUELS = {"books": "books-b", "fair": "submitted"}
FOLLOWER = {"follows": "books", "gamma": 100.0, "covariance": "diagonal"}
LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}


BuildModels = Callable[[httpx.Client], dict[str, Any]]


class ModelHistory:
    """Every kind of change to a model, over HTTP."""

    def __init__(self, http: httpx.Client, model: str, name: str, seed: int = 7) -> None:
        self._http, self._model, self._name = http, model, name
        self._random, self._events = np.random.default_rng(seed), 0

    def documents(self) -> list[dict[str, Any]]:
        rows = self._random.random((5, 3), np.float32).tolist()
        return [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)]

    def rank(self) -> tuple[str, list[str]]:
        """Return the request id and the documents as ranked."""
        body = {"model": self._model, "documents": self.documents()}
        answer = self._http.post("/rank", json=body).raise_for_status().json()
        assert answer["logged"]
        return answer["request_id"], [one["id"] for one in answer["documents"]]

    def post(self, **event: Any) -> None:
        self._events += 1
        event |= {"model": self._model, "event_id": f"{self._name}-{self._events}", "source": "web"}
        answer = self._http.post("/feedback", json=event, headers=LEARNT).raise_for_status().json()
        assert answer["accepted"] == 1
        assert answer["version"] == answer["seq"]

    def feedback(self) -> None:
        """Post every kind of event: two on one ranking, others with documents sent along."""
        for _ in range(4):
            request, shown = self.rank()
            self.post(type="clicks", request_id=request, clicked=[shown[3]])
            self.post(type="clicks", request_id=request, clicked=[shown[1], shown[3]])
        self.post(type="labels", request_id=self.rank()[0], labels={"d1": 2, "d4": 1})
        self.post(type="labels", documents=self.documents(), labels={"d0": 1})
        triplets = [["d2", "d0"], ["d1", "d3", 0.5]]
        self.post(type="triplets", documents=self.documents(), triplets=triplets)

    def bought(self) -> None:
        """Post clicks with gains, by number and by name, and examined positions."""
        for _ in range(4):
            request, shown = self.rank()
            self.post(type="clicks", request_id=request, clicked=[shown[1], shown[2]])
            gains = {shown[2]: "purchase", shown[3]: 0.5}
            self.post(type="clicks", request_id=request, clicked=[shown[3], shown[2]], gains=gains)
            self.post(type="clicks", request_id=request, clicked=[], examined=5)
        body = {"actions": {"click": 1, "purchase": 8}}
        answer = self._http.patch(f"/models/{self._model}", json=body).raise_for_status()
        self.until_learnt(answer.json())
        request, shown = self.rank()
        gains = {shown[4]: "purchase"}
        self.post(type="clicks", request_id=request, clicked=[shown[4]], gains=gains, examined=5)

    def duel(self, challenger: str) -> None:
        """Begin a duel, and click until some of its lists have a winner."""
        body = {"challenger": challenger, "share": 0.5}
        self._http.put(f"/models/{self._model}/duel", json=body).raise_for_status()
        while self.read()["duel"]["decided"] < 3:
            request, shown = self.rank()
            self.post(type="clicks", request_id=request, clicked=[shown[2]])

    def until_learnt(self, answer: dict[str, Any]) -> None:
        """Wait until a record that is no event is learnt."""
        until(lambda: self.read()["version"] == answer["seq"])

    def retune(self) -> None:
        path = f"/models/{self._model}"
        name = "C" if self._model == "plain" else "gamma"
        bound = {"pair_bound": 0.5} if "pair_bound" in self.read() else {}  # from format 2 on
        patch = {name: 0.5, **bound}
        self.until_learnt(self._http.patch(path, json=patch).raise_for_status().json())

    def roll_back(self) -> None:
        path = f"/models/{self._model}"
        first = self._http.get(f"{path}/versions").json()["versions"][0]
        body = {"version": first["version"]}
        answer = self._http.post(f"{path}/rollback", json=body).raise_for_status()
        self.until_learnt(answer.json())

    def warm_start(self) -> None:
        judged = [
            {"label": at % 3, "features": one["features"]}
            for at, one in enumerate(self.documents())
        ]
        body = {"queries": [{"documents": judged}], "C": 0.1}
        job = self._http.post(f"/models/{self._model}/warm-start", json=body).json()["id"]
        until(lambda: self._http.get(f"/jobs/{job}").json()["state"] == "done")
        self.until_learnt(self._http.get(f"/jobs/{job}").json()["result"])

    def read(self) -> dict[str, Any]:
        """Return the service's answers for the model and its versions."""
        path = f"/models/{self._model}"
        said: dict[str, Any] = self._http.get(path).raise_for_status().json()
        kept = self._http.get(f"{path}/versions").raise_for_status().json()["versions"]
        # The first learner of this release keeps one more, and sizes depend on allocations.
        said["versions"] = [one for one in kept if one.get("reason") != "hour"]
        for one in kept:
            one.pop("size", None)
        duel = self._http.get(f"{path}/duel")
        if duel.is_success:  # from format 6 on
            said["duel"] = duel.json()
        return said

    def follower(self) -> dict[str, Any]:
        """Return the answer for the follower, once it has learnt what its leader has."""
        version = self.read()["version"]
        path = f"/models/{DUELS[self._model]}"
        until(lambda: self._http.get(path).raise_for_status().json()["version"] == version)
        said: dict[str, Any] = self._http.get(path).json()
        return {name: said[name] for name in ("seq", "version", "weights", "squared_loss")}


def build_models(http: httpx.Client, models: dict[str, Any] = MODELS) -> dict[str, Any]:
    """Create models with every kind of change; return the final answers for them."""
    said = {}
    for model, settings in models.items():
        for _ in range(2):  # the second model of this name stays
            http.delete(f"/models/{model}")
            http.put(f"/models/{model}", json=settings).raise_for_status()
        history = ModelHistory(http, model, "old")
        history.feedback()
        history.retune()
        history.feedback()
        history.roll_back()
        history.feedback()
        history.warm_start()
        history.feedback()
        history.rank()  # an impression without clicks
        said[model] = history.read()
    return said


def build_oldest_models(http: httpx.Client) -> dict[str, Any]:
    """Create models with every kind of change that the oldest service has."""
    said = {}
    for model, settings in OLDEST_MODELS.items():
        http.put(f"/models/{model}", json=settings).raise_for_status()
        history = ModelHistory(http, model, "old")
        history.retune()
        history.feedback()
        history.roll_back()
        said[model] = history.read()
    return said


def build_bent_models(http: httpx.Client) -> dict[str, Any]:
    """Create models with every kind of change, one with splines."""
    return build_models(http, BENT_MODELS)


def build_buying_models(http: httpx.Client) -> dict[str, Any]:
    """Create models with every kind of change; their users buy."""
    build_models(http)
    said = {}
    for model in MODELS:
        history = ModelHistory(http, model, "bought", 8)
        history.bought()
        said[model] = history.read()
    return said


def build_duelling_models(http: httpx.Client) -> dict[str, Any]:
    """Create models with every kind of change, one with a follower, and two with duels."""
    build_models(http)
    http.put("/models/books-b", json=FOLLOWER).raise_for_status()
    histories = {model: ModelHistory(http, model, "duel", 8) for model in MODELS}
    for model, challenger in DUELS.items():
        histories[model].duel(challenger)
    http.delete("/models/fair/duel").raise_for_status()
    until(lambda: histories["fair"].read()["duel"]["ended"] is not None)
    said = {model: history.read() for model, history in histories.items()}
    said["books"]["follower"] = histories["books"].follower()
    return said


def write(checkout: Path, golden: Path, build: BuildModels) -> None:
    """Write a data directory with the code in `checkout`."""
    with tempfile.TemporaryDirectory(prefix="solar-test-") as folder:
        data = Path(folder)
        with serving(data=data, folder=checkout) as running:
            with running.client() as http:
                said = json.dumps(build(http)).encode()
            assert running.stop() == 0
        with tarfile.open(golden, "w:xz") as packed:
            for name in FILES:
                packed.add(data / name, name)
            entry = tarfile.TarInfo(EXPECTED)
            entry.size = len(said)
            packed.addfile(entry, io.BytesIO(said))


#: Python 3.11.2, which Debian has, knows no filter; 3.12 warns without one.
SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def unpack(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Unpack an old data directory; return the expected answers for its models."""
    with tarfile.open(GOLDEN / name) as packed:
        packed.extractall(folder, **SAFE)  # noqa: S202  # files of this repository
    if "SOLAR_DEV_TEST_SERVER" in os.environ:  # other servers cannot read Valkey 9's empty RDB
        (folder / BASE).unlink()
        lines = (folder / MANIFEST).read_text().splitlines(keepends=True)
        (folder / MANIFEST).write_text("".join(one for one in lines if " type b" not in one))
    said: dict[str, dict[str, Any]] = json.loads((folder / EXPECTED).read_text())
    return said


def known_before(then: Any, now: Any) -> Any:
    """Return the part of an answer that an earlier release gave; it had 0 for no number."""
    if isinstance(then, dict):
        return {name: known_before(value, now[name]) for name, value in then.items()}
    if isinstance(then, list):
        return [known_before(*both) for both in zip(then, now, strict=True)]
    return then if then == 0.0 and now is None else now


def complaints(running: Running, model: str) -> list[str]:
    """Return the output of `solar verify` for a model."""
    url = find(running.data)
    assert url is not None

    async def check(store: Store) -> list[str]:
        return await verify(store, model)

    return with_store(url, check)


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in DIRECTORIES[:-1]),
        DIRECTORIES[-1],
    ],
)
def test_an_old_data_directory_opens_with_the_same_bits_and_its_models_keep_learning(
    name: str, tmp_path: Path
) -> None:
    said = unpack(name, tmp_path)
    assert set(said) == set(MODELS)
    with serving(data=tmp_path) as running, running.client() as http:
        for model, then in said.items():
            assert complaints(running, model) == []
            history = ModelHistory(http, model, "new")
            now = history.read()
            if "follower" in then:
                now["follower"] = history.follower()
                assert complaints(running, f"{model}/{DUELS[model]}") == []
            then["pairs"].setdefault("bounded", 0)
            assert known_before(then, now) == then  # floats in JSON lose no bit
            if "abandoned_lists" not in then:  # a model of the former rule
                assert now["abandoned_lists"] is None
                assert {one["time"] for one in now["versions"]} == {None}
            history.feedback()
            after = history.read()
            assert after["seq"] > now["seq"]
            assert after["weights"] != now["weights"]
            assert complaints(running, model) == []
            if "follower" in then:
                assert history.follower()["weights"] != now["follower"]["weights"]
                assert complaints(running, f"{model}/{DUELS[model]}") == []
                assert after["duel"]["lists"] >= now["duel"]["lists"] > 3
        assert running.stop() == 0


def test_every_format_has_the_data_directory_of_its_oldest_service() -> None:
    names = {f"data-directory-format-{one}.tar.xz" for one in range(1, newest_format() + 1)}
    assert names <= set(DIRECTORIES)


if __name__ == "__main__":
    builds = {"--oldest": build_oldest_models, "--splines": build_bent_models,
              "--duels": build_duelling_models, "--gains": build_buying_models}  # fmt: skip
    build = builds.get(sys.argv[-1], build_models)
    write(Path(sys.argv[1]), Path(sys.argv[2]), build)
