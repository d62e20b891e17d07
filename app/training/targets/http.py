"""`solar train` over HTTP: a service trains, and this watches its job."""

import gzip
import json
import lzma
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tqdm import tqdm

from app.errors import SolarError
from app.simulation.http_client import Endpoint
from app.training.options import Training
from app.training.targets.file import TrainingRequest, new_config, show, summary

CHUNK = 1 << 20
JOB_POLL_SECONDS = 0.2  # seconds between two looks at a job
ANSWER_SECONDS = 600.0  # seconds that a service gets to answer


def over_http(request: TrainingRequest, model: str, url: str) -> str:
    """Let a service train, and watch; what was found."""
    data, training = request.read()  # what is wrong with it is said before anything is sent
    service = _Service(url)
    if service.ask("GET", f"/models/{model}", expect=(200, 404))[0] == 404:
        config = new_config(data.n)
        body = {"features": data.n, "covariance": config.covariance, "prior": 0.0}
        service.ask("PUT", f"/models/{model}", json.dumps(body).encode(), expect=(200, 201))
    files = [*request.files, *([request.validate] if request.validate else [])]
    given = {name: getattr(training, name) for name in Training.__struct_fields__}
    options = urlencode({name: value for name, value in given.items() if value is not None})
    _, job = service.ask(
        "POST", f"/models/{model}/warm-start?{options}", _packed(files), expect=(202,),
        media_type="application/gzip",
    )  # fmt: skip
    job = _watched(service, job, training)
    _, found = service.ask("GET", f"/models/{model}", expect=(200,))
    about = {key: value for key, value in job["result"].items() if key != "seq"}
    features = tuple(found["features"])
    request.write(features, [found["weights"][name] for name in features], about)
    return f"{summary(about)}\nmodel {model}: record {job['result']['seq']} puts it in place"


def _watched(service: "_Service", job: dict[str, Any], training: Training) -> dict[str, Any]:
    """The job once it is done; SolarError if it is not."""
    path = f"/jobs/{job['id']}"
    with tqdm(unit=" iterations", disable=None, leave=False) as bar:
        try:
            while job["state"] == "running":
                time.sleep(JOB_POLL_SECONDS)
                _, job = service.ask("GET", path, expect=(200,))
                show(bar, training, job.get("progress", {}))
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
        self._way = Endpoint.to(url, ANSWER_SECONDS)

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
        connection, prefix, headers = self._way
        if body is not None:
            headers = {"content-type": media_type, **headers}
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused halfway, with an answer
                connection.request(method, prefix + path, body, headers)
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
