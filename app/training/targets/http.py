"""`solar train` over HTTP: start a training job in a service and wait for it."""

import time
from contextlib import suppress
from typing import Any

from solar_client import Conflict, Job, Model, NotFound, Solar
from tqdm import tqdm

from app.domain.model_config import ORDER
from app.errors import SolarError
from app.evaluation.letor import JudgedData
from app.ranking.limits import LARGEST_VALUE
from app.simulation.service_client import service_client
from app.training.options import Training
from app.training.splines import TriedSegments, describe_choice
from app.training.targets.file import TrainingRequest, planned, show, summary

JOB_POLL_SECONDS = 0.2  # seconds between two requests for the model
LEARNT_SECONDS = 60.0  # timeout until the learner has applied the trained model, in seconds


def over_http(request: TrainingRequest, model: str, url: str) -> str:
    """Train in a service and wait; return a summary."""
    with service_client(url) as client:
        data, training = request.read()  # reports invalid data before the upload
        tried = _find_or_create(client, request, model, data, training)
        result, found = _train_remotely(client, request, model, training)
    about = {key: value for key, value in result.items() if key != "seq"} | describe_choice(tried)
    weights = {name: weight for name, weight in found.weights.items() if name != ORDER}
    request.write(weights, found.normalization, found.splines, about)
    return f"{summary(about)}\nmodel {model}: record {result['seq']} replaces the model"


def _find_or_create(
    client: Solar, request: TrainingRequest, model: str, data: JudgedData, training: Training
) -> TriedSegments:
    """Create the model if needed, with splines that are chosen here; return what was tried."""
    try:
        request.check_existing(client.get_model(model).normalization)
    except NotFound:
        config, tried = planned(request, data, training, LARGEST_VALUE)
        settings = {"covariance": config.covariance, "normalization": config.normalization}
        splines = {"splines": config.splines} if config.splines else {}
        client.create_model(model, data.n, prior=0.0, **settings, **splines)
        return tried
    return ()


def _train_remotely(
    client: Solar, request: TrainingRequest, model: str, training: Training
) -> tuple[dict[str, Any], Model]:
    """Run a job; return its result and the model."""
    files = [*request.files, *([request.validate] if request.validate else [])]
    given = {name: getattr(training, name) for name in Training.__struct_fields__}
    job = client.warm_start(model, files, wait=False, **given)
    result = _finished_job(client, job, training).result or {}
    return result, _replaced_model(client, model, result["seq"])


def _replaced_model(client: Solar, model: str, seq: int) -> Model:
    """Wait until record `seq`, which replaces the model, is served; return the model."""
    ends = time.monotonic() + LEARNT_SECONDS
    while (found := client.get_model(model)).version < seq:
        if time.monotonic() > ends:
            raise SolarError(
                f"model {model}: record {seq} has the trained model, but is not learnt after "
                f"{LEARNT_SECONDS:g} s; check that a learner runs (GET /readyz, `solar learn`)"
            )
        time.sleep(JOB_POLL_SECONDS)
    return found


def _finished_job(client: Solar, job: Job, training: Training) -> Job:
    """Wait for a job with a progress bar; Ctrl-C cancels it."""
    with tqdm(unit=" iterations", disable=None, leave=False) as bar:

        def progressed(found: Job) -> None:
            show(bar, training, found.progress or {})

        try:
            return client.wait_for_job(job.id, on_progress=progressed)
        except KeyboardInterrupt:
            with suppress(Conflict):  # the job has ended
                client.cancel_job(job.id)
            raise
