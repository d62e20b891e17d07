"""`solar train` over HTTP: start a training job in a service and wait for it."""

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
JOB_POLL_SECONDS = 0.2  # seconds between two requests for the job
ANSWER_SECONDS = 600.0  # timeout of an answer, in seconds
LEARNT_SECONDS = 60.0  # timeout until the learner has applied the trained model, in seconds


def over_http(request: TrainingRequest, model: str, url: str) -> str:
    """Train in a service and wait; return a summary."""
    data, training = request.read()  # reports invalid data before the upload
    with connect_service(url, ANSWER_SECONDS) as service:
        job, found = _train_remotely(service, request, model, data.n, training)
    about = {key: value for key, value in job["result"].items() if key != "seq"}
    features = tuple(found["features"])
    request.write(features, [found["weights"][name] for name in features], about)
    return f"{summary(about)}\nmodel {model}: record {job['result']['seq']} replaces the model"


def _train_remotely(
    service: httpx.Client, request: TrainingRequest, model: str, n: int, training: Training
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a job; create the model if needed. Return the finished job and the model."""
    if _ask(service, "GET", f"/models/{model}", (200, 404))[0] == 404:
        new = {"features": n, "covariance": new_config(n).covariance, "prior": 0.0}
        _ask(service, "PUT", f"/models/{model}", (200, 201), json=new)
    files = [*request.files, *([request.validate] if request.validate else [])]
    given = {name: getattr(training, name) for name in Training.__struct_fields__}
    _, job = _ask(
        service, "POST", f"/models/{model}/warm-start", (202,), content=_compressed(files),
        headers={"content-type": "application/gzip"},
        params={name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    job = _finished_job(service, job, training)
    return job, _replaced_model(service, model, job["result"]["seq"])


def _replaced_model(service: httpx.Client, model: str, seq: int) -> dict[str, Any]:
    """Wait until record `seq`, which replaces the model, is served; return the model."""
    ends = time.monotonic() + LEARNT_SECONDS
    while (found := _ask(service, "GET", f"/models/{model}", (200,))[1])["version"] < seq:
        if time.monotonic() > ends:
            raise SolarError(
                f"model {model}: record {seq} has the trained model, but is not learnt after "
                f"{LEARNT_SECONDS:g} s; check that a learner runs (GET /readyz, `solar learn`)"
            )
        time.sleep(JOB_POLL_SECONDS)
    return found


def _finished_job(service: httpx.Client, job: dict[str, Any], training: Training) -> dict[str, Any]:
    """Wait for a job; SolarError if it fails or is cancelled."""
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
        raise SolarError(
            f"job {job['id']}: {job['state']}: {job.get('error', 'stopped on request')}"
        )
    return job


def _compressed(files: list[Path]) -> Iterator[bytes]:
    """Compress all files into one gzip stream."""
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
    """Send a request; return status and answer, also if an upload is refused halfway."""
    try:
        response = service.request(method, path, **parts)
    except (OSError, httpx.RequestError) as error:
        raise SolarError(f"the service is unreachable: {error}; check --url") from error
    answer = read_json(response)
    if response.status_code not in expect:
        raise SolarError(f"the service answered {response.status_code}: {answer.get('detail', '')}")
    return response.status_code, answer
