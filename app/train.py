"""`solar train`: judged files → a batch model, put in place and written to a file.

Into a store it trains here, and appends what it found to the model's log; over HTTP a service
trains, and this watches its job.
"""

import gzip
import json
import lzma
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from tqdm import tqdm

from app import letor, trainer
from app.errors import NoSuchModel, SolarError
from app.events import Replace, Settings
from app.genesis import check, genesis
from app.letor import JudgedData
from app.posting import now
from app.ranking.limits import MOST_FEATURES_FULL
from app.settings import Environment
from app.store import codec
from app.store.store import Event, Store
from app.trainer import BatchModel, Progressed
from app.training import Training

CHUNK = 1 << 20
LOOK = 0.2  # seconds between two looks at a job
PATIENCE = 600.0  # seconds that a service gets to answer


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to learn from, how, and where the model goes beside."""

    files: tuple[Path, ...]
    validate: Path | None
    training: Training
    output: Path | None

    def read(self) -> tuple[JudgedData, Training]:
        """All judged data; queries to validate on stand last."""
        if self.validate is None:
            return letor.read(self.files), self.training
        *parts, last = letor.read_parts([*self.files, self.validate])
        queries = [query for part in (*parts, last) for query in part.queries]
        training = replace(self.training, validation=float(len(last.queries)))
        return JudgedData(last.n, queries), training

    def write(self, features: tuple[str, ...], weights: list[float], about: Any) -> None:
        """The model as a file, if one is wanted."""
        if self.output is None:
            return
        named = dict(zip(features, weights, strict=True))
        text = json.dumps({"weights": named, "training": about}, indent=1) + "\n"
        try:
            self.output.write_text(text)
        except OSError as error:
            raise SolarError(f"{self.output}: {error.strerror}") from error


def new_settings(n: int) -> Settings:
    """The settings of a model that is made for n features."""
    features = tuple(f"f{at}" for at in range(1, n + 1))
    return check(Settings(features, covariance="full" if n <= MOST_FEATURES_FULL else "diagonal"))


def trained(
    data: JudgedData, training: Training, settings: Settings, bound: float
) -> tuple[BatchModel, dict[str, Any]]:
    """Train here, with a progress bar on a terminal."""
    with tqdm(unit=" iterations", disable=None, leave=False) as bar:

        def watch(one: Progressed) -> None:
            _show(bar, training, one.described())

        found = trainer.train(trainer.judgements(data, settings, bound), training, watch)
    return found, trainer.described(found, training)


def _show(bar: "tqdm[Any]", training: Training, said: dict[str, Any]) -> None:
    if "iteration" not in said:
        return
    bar.set_description(f"{training.trainer}, {training.parameter} = {said['parameter']:.3g}")
    shown = {name: f"{said[name]:.4g}" for name in ("objective", "distance", "ndcg@10")}
    bar.set_postfix(shown, refresh=False)
    bar.n = said["iteration"]
    bar.refresh()


def into_file(lesson: Lesson, bound: float) -> str:
    """Train, and write the model; what was found."""
    data, training = lesson.read()
    settings = new_settings(data.n)
    found, about = trained(data, training, settings, bound)
    lesson.write(settings.features, found.weights.tolist(), about)
    return summary(about)


async def into_store(lesson: Lesson, model: str, store: Store, environment: Environment) -> str:
    """Train, and put the model in place; what was found."""
    data, training = lesson.read()
    try:
        settings = (await store.load_weights(model)).settings
    except NoSuchModel:
        settings = new_settings(data.n)
        await store.create(model, genesis(settings, seed=os.urandom(16)))
    found, about = trained(data, training, settings, environment.feature_bound)
    record = codec.dump_record(Replace(trainer.online(found, settings), "warm start"))
    epoch, *_ = await store.position(model)
    (appended,) = await store.append(
        model, epoch, [Event(f"train-{uuid4()}", b"", record)],
        limit=environment.backlog, time=now(), wait=True,
    )  # fmt: skip
    lesson.write(settings.features, found.weights.tolist(), about)
    return f"{summary(about)}\nmodel {model}: record {appended.seq} puts it in place"


def summary(about: dict[str, Any]) -> str:
    """What a training found, in a line or two."""
    named = "penalty" if "penalty" in about else "C"
    size = f"{about['queries']} queries, {about['documents']} documents"
    quality = f"NDCG@10 {about['ndcg@10']:.4f} on them"
    zeros = f"{about['zeros']:.0%} of the weights are 0"
    lines = [f"{size}; {named} = {about[named]:.4g}, {quality}, {zeros}"]
    if "tried" in about:
        best = max(one["quality"] for one in about["tried"])
        lines.append(f"best of {len(about['tried'])} on held-out queries: {about['by']} {best:.4f}")
    if not about["converged"]:
        lines.append("it stopped before it had converged")
    return "\n".join(lines)


# ---- over HTTP ----


def over_http(lesson: Lesson, model: str, url: str) -> str:
    """Let a service train, and watch; what was found."""
    data, training = lesson.read()  # what is wrong with it is said before anything is sent
    service = _Service(url)
    if service.ask("GET", f"/models/{model}", expect=(200, 404))[0] == 404:
        settings = new_settings(data.n)
        body = {"features": data.n, "covariance": settings.covariance}
        service.ask("PUT", f"/models/{model}", json.dumps(body).encode(), expect=(200, 201))
    files = [*lesson.files, *([lesson.validate] if lesson.validate else [])]
    given = {name: getattr(training, name) for name in Training.__slots__}
    options = urlencode({name: value for name, value in given.items() if value is not None})
    _, job = service.ask(
        "POST", f"/models/{model}/warm-start?{options}", _packed(files), expect=(202,),
        media_type="application/gzip",
    )  # fmt: skip
    job = _watched(service, job, training)
    _, found = service.ask("GET", f"/models/{model}", expect=(200,))
    about = {key: value for key, value in job["result"].items() if key != "seq"}
    lesson.write(tuple(found["features"]), list(found["weights"].values()), about)
    return f"{summary(about)}\nmodel {model}: record {job['result']['seq']} puts it in place"


def _watched(service: "_Service", job: dict[str, Any], training: Training) -> dict[str, Any]:
    """The job once it is done; SolarError if it is not."""
    path = f"/jobs/{job['id']}"
    with tqdm(unit=" iterations", disable=None, leave=False) as bar:
        try:
            while job["state"] == "running":
                time.sleep(LOOK)
                _, job = service.ask("GET", path, expect=(200,))
                _show(bar, training, job.get("progress", {}))
        except KeyboardInterrupt:
            service.ask("DELETE", path, expect=(202, 409))
            raise
    if job["state"] != "done":
        raise SolarError(f"job {job['id']}: {job['state']}: {job.get('error', 'it was stopped')}")
    return job


def _packed(files: list[Path]) -> Iterator[bytes]:
    """All files one after the other, as gzip."""
    packer = zlib.compressobj(wbits=31)
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    for path in files:
        with openers.get(path.suffix, open)(path, "rb") as lines:
            while chunk := lines.read(CHUNK):
                yield packer.compress(chunk)
        yield packer.compress(b"\n")
    yield packer.flush()


class _Service:
    """A service somewhere; its key is `SOLAR_KEY`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SolarError("--url: expected http://HOST:PORT or https://HOST:PORT")
        self._parts, self._key = parts, os.environ.get("SOLAR_KEY", "")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        expect: tuple[int, ...],
        media_type: str = "application/json",
    ) -> tuple[int, Any]:
        """One request; the status and the answer, or SolarError with what the service says."""
        headers = {"content-type": media_type} if body is not None else {}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=PATIENCE)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused halfway, with an answer
                connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            return self._answer(connection.getresponse(), expect)
        except (OSError, HTTPException) as error:
            raise SolarError(f"the service cannot be reached: {error}") from error
        finally:
            connection.close()

    @staticmethod
    def _answer(response: HTTPResponse, expect: tuple[int, ...]) -> tuple[int, Any]:
        try:
            said = json.loads(response.read() or b"{}")
        except ValueError:
            raise SolarError(f"expected an answer of a service, got {response.status}") from None
        if response.status not in expect:
            raise SolarError(f"the service says {response.status}: {said.get('detail', '')}")
        return response.status, said
