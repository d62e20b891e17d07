"""`solar train` over HTTP: a service trains, and this watches its job."""

import gzip
import lzma
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm

from app.errors import SolarError
from app.simulation.http_client import connect_service, read_json
from app.training.options import Training
from app.training.targets.file import TrainingRequest, new_config, show, summary

CHUNK = 1 << 20
JOB_POLL_SECONDS = 0.2  # seconds between two looks at a job
ANSWER_SECONDS = 600.0  # seconds that a service gets to answer


def over_http(request: TrainingRequest, model: str, url: str) -> str:
    """Let a service train, and watch; what was found."""
    data, training = request.read()  # what is wrong with it is said before anything is sent
    with connect_service(url, ANSWER_SECONDS) as service:
        job, found = _trained_there(service, request, model, data.n, training)
    about = {key: value for key, value in job["result"].items() if key != "seq"}
    features = tuple(found["features"])
    request.write(features, [found["weights"][name] for name in features], about)
    return f"{summary(about)}\nmodel {model}: record {job['result']['seq']} replaces the model"


def _trained_there(
    service: httpx.Client, request: TrainingRequest, model: str, n: int, training: Training
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job that is done, and the model as it is then; a model that is not there is made."""
    if _ask(service, "GET", f"/models/{model}", (200, 404))[0] == 404:
        new = {"features": n, "covariance": new_config(n).covariance, "prior": 0.0}
        _ask(service, "PUT", f"/models/{model}", (200, 201), json=new)
    files = [*request.files, *([request.validate] if request.validate else [])]
    given = {name: getattr(training, name) for name in Training.__struct_fields__}
    _, job = _ask(
        service, "POST", f"/models/{model}/warm-start", (202,), content=_packed(files),
        headers={"content-type": "application/gzip"},
        params={name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    job = _watched(service, job, training)
    return job, _ask(service, "GET", f"/models/{model}", (200,))[1]


def _watched(service: httpx.Client, job: dict[str, Any], training: Training) -> dict[str, Any]:
    """The job once it is done; SolarError if it is not."""
    path = f"/jobs/{job['id']}"
    with tqdm(unit=" iterations", disable=None, leave=False) as bar:
        try:
            while job["state"] == "running":
                time.sleep(JOB_POLL_SECONDS)
                _, job = _ask(service, "GET", path, (200,))
                show(bar, training, job.get("progress", {}))
        except KeyboardInterrupt:
            _ask(service, "DELETE", path, (202, 409))
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


def _ask(
    service: httpx.Client, method: str, path: str, expect: tuple[int, ...], **parts: Any
) -> tuple[int, dict[str, Any]]:
    """The status and the answer, also to an upload that was refused halfway; or SolarError."""
    try:
        response = service.request(method, path, **parts)
    except (OSError, httpx.RequestError) as error:
        raise SolarError(f"the service cannot be reached: {error}") from error
    said = read_json(response)
    if response.status_code not in expect:
        raise SolarError(f"the service says {response.status_code}: {said.get('detail', '')}")
    return response.status_code, said
