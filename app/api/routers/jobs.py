"""`/models/NAME/warm-start` and `/jobs`: training jobs that replace a model by a batch model."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any

import msgspec
import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError

from app.api import decoding, schemas, uploads
from app.api.admin_schemas import JobDetails, TrainingOptions, TrainingQuery
from app.api.auth import requires
from app.api.dependencies import FromState, Service
from app.api.errors import Problem, invalid, undecodable
from app.api.examples import WARM_START_BODIES
from app.api.openapi import BODY_PROBLEMS, COMMON_PROBLEMS, problems
from app.api.routers.models import ModelName, known_name
from app.api.routing import (
    HELD,
    JSON,
    TEXT,
    AdminRoute,
    Headers,
    media_type,
    read_body,
)
from app.domain import codec
from app.domain.model_config import ModelConfig
from app.errors import BadData, InvalidInput, SolarError
from app.storage.jobs import Job
from app.training.job import JobSpec
from app.training.options import UPLOAD, Training, check_training

router = APIRouter(route_class=AdminRoute, tags=["jobs"], dependencies=[requires("admin")])

TEXTS = (TEXT, "application/gzip", "application/x-gzip", "application/octet-stream")
BUSY = "model: a training job is running; wait for it, or cancel it with DELETE /jobs/{id}"
OTHER_EPOCH = "job: the model was deleted and created again; post the data again"
NO_UPLOAD = "job: the data is no longer on this machine; post the data again"
UNKNOWN_JOB = "job: no job has this id"

_OPTIONS = (*TrainingOptions.model_fields, "queries")
_FIELDS = {"": _OPTIONS}
_decode_warm_start = schemas.object_decoder(_OPTIONS, raw=("queries",))

_UUID7 = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
JobId = Annotated[str, Path(json_schema_extra={"pattern": f"^[A-Za-z0-9_-]{{1,64}}[.]{_UUID7}$"})]


@router.post(
    "/models/{name}/warm-start",
    operation_id="warm_start",
    summary="Train a model on judged data",
    status_code=202,
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*BODY_PROBLEMS, 404, 409),
    openapi_extra={"requestBody": WARM_START_BODIES},
)
async def warm_start(
    name: ModelName,
    options: Annotated[TrainingQuery, Query()],
    service: FromState,
    request: Request,
    response: Response,
) -> Any:
    """Train on judged queries in a job, then replace the model by the result.

    Send LETOR/SVMlight text, plain or gzip, with options in the query; or JSON, with options in
    the body. The answer is sent after the data was read: invalid data is 422.
    """
    config = (await service.store.states.load_weights(known_name(name))).config
    _check_job_limit(service)
    job = decoding.new_request_id(name)
    directory = await _make_directory(service, job)
    try:
        training, blob = await _save_data(service, request, options, config, directory / UPLOAD)
    except BaseException:  # no job exists yet
        shutil.rmtree(directory, ignore_errors=True)
        raise
    try:
        return await _begin(service, JobSpec(job, name, training, blob, directory), response)
    except BaseException:
        if not (service.job_runner.trains(job) or await _is_known(service, name, job)):
            shutil.rmtree(directory, ignore_errors=True)
        raise


async def _make_directory(service: Service, job: str) -> FilePath:
    try:
        return await service.job_runner.prepare(job)
    except OSError:
        raise uploads.unwritable() from None


async def _is_known(service: Service, model: str, job: str) -> bool:
    """Whether the store has the job; its data must then be kept."""
    try:
        return await service.store.jobs.read(model, job) is not None
    except SolarError:
        return False


def _check_job_limit(service: Service) -> None:
    if not service.job_runner.has_room():
        raise Problem(
            503,
            "the limit of training jobs is reached (SOLAR_JOBS); retry after 10 seconds",
            {"retry-after": "10"},
        )


async def _save_data(
    service: Service, request: Request, options: TrainingQuery, config: ModelConfig, path: FilePath
) -> tuple[Training, bool]:
    """Write the data to a file; return the training options, and whether the file is a blob."""
    limits, headers = service.settings, dict(request.scope["headers"])
    if media_type(headers) == JSON:
        if request.scope["query_string"]:
            raise InvalidInput("query: expected no parameters; put the options in the JSON body")
        held = request.scope[HELD]
        body = await read_body(request.receive, headers, limits, held)
        decoding.hold_decoded(body, held)
        training, queries = await asyncio.to_thread(_decode, body)
        documents = sum(len(query.documents) for query in queries)
        await decoding.hold_rows(documents * len(config.given), limits, held)
        blob = await asyncio.to_thread(_rows_blob, queries, config)
        try:
            await asyncio.to_thread(path.write_bytes, blob)
        except OSError:
            raise uploads.unwritable() from None
        return training, True
    _expect_text(headers)
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise InvalidInput("query: expected each option at most once")
    training = check_training(options.training())
    await uploads.save(request.receive, path, limits.upload_bytes, limits.upload_seconds)
    return training, False


def _expect_text(headers: Headers) -> None:
    if media_type(headers) not in TEXTS:
        raise Problem(415, f"content-type: expected {', '.join(TEXTS)} or {JSON}")
    if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b"gzip"):
        raise Problem(415, "content-encoding: expected gzip or none")


def _rows_blob(queries: Sequence[schemas.JudgedQuery], config: ModelConfig) -> bytes:
    """Convert judged queries to a blob of rows, one column for each feature of the model."""
    sizes = [len(query.documents) for query in queries]
    rows = np.zeros((sum(sizes), len(config.given)), np.float32)
    starts = np.cumsum([0, *sizes])
    for at, query in enumerate(queries):
        try:
            features = [one.features for one in query.documents]
            found = decoding.feature_rows(features, config, decoding.MAX_FLOAT32)
            rows[starts[at] : starts[at + 1]] = found
        except InvalidInput as error:
            raise InvalidInput(f"queries[{at}].{error}") from None
    labels = np.array([one.label for query in queries for one in query.documents])
    arrays = {"documents": rows, "labels": labels, "starts": starts.astype(np.int64)}
    return codec.dump_blob("judged", {}, arrays)


def _decode(body: bytes) -> tuple[Training, list[schemas.JudgedQuery]]:
    """Decode the options with pydantic, and the queries, which are large, with msgspec."""
    try:
        within = ""
        given = _decode_warm_start(body)
        queries = given.pop("queries", None)
        options = TrainingOptions.model_validate(given)
        if queries is None:
            raise InvalidInput("queries: required")
        within = "queries"
        judged = schemas.decode_judged(queries)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False), ()) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error, schemas.JUDGED_FIELDS if within else _FIELDS, within) from None
    return check_training(options.training()), judged


async def _begin(service: Service, work: JobSpec, response: Response) -> dict[str, Any]:
    """Start a job and wait until its data was read, so that invalid data is refused at once."""
    _check_job_limit(service)
    reading = await service.job_runner.begin(work)
    if reading is None:
        raise Problem(409, BUSY)
    try:
        async with asyncio.timeout(service.settings.check_seconds):
            await asyncio.shield(reading)
    except TimeoutError:
        pass  # a large upload; the job itself reports invalid data
    except BadData as error:
        raise Problem(422, str(error)) from None
    except asyncio.CancelledError:
        if not reading.cancelled():
            raise
    response.headers["location"] = f"/jobs/{work.job}"
    return await _describe(service, work.model, work.job)


@router.get(
    "/jobs/{id}",
    operation_id="get_job",
    summary="Read a job",
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 404),
)
async def get_job(id: JobId, service: FromState) -> Any:  # noqa: A002  # as the path has it
    """Read the state and the progress of a job."""
    return await _describe(service, model_of(id), id)


async def _describe(service: Service, model: str, job: str) -> dict[str, Any]:
    found = await _find(service, model, job)
    return {"id": job, "model": model, **describe_job(found)}


def describe_job(job: Job) -> dict[str, Any]:
    """Return the fields of a job for JSON, without empty ones."""
    fields = {
        "state": "running" if job.state == "finishing" else job.state,
        "begun": job.about.get("begun"),
        "training": {k: v for k, v in job.about["training"].items() if v is not None},
        "progress": job.progress,
        "result": job.result,
        "error": job.error,
    }
    return {name: value for name, value in fields.items() if value not in (None, {}, "")}


@router.delete(
    "/jobs/{id}",
    operation_id="cancel_job",
    summary="Cancel a job",
    status_code=202,
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 404, 409),
)
async def cancel(id: JobId, service: FromState, response: Response) -> Any:  # noqa: A002
    """Cancel a job; the model is not changed."""
    model = model_of(id)
    outcome = await service.store.jobs.cancel(model, id)
    if outcome == "unknown":
        raise Problem(404, UNKNOWN_JOB)
    if outcome == "ended":
        raise Problem(409, "job: the job has already ended")
    response.headers["location"] = f"/jobs/{id}"
    return await _describe(service, model, id)


@router.post(
    "/jobs/{id}/start",
    operation_id="restart_job",
    summary="Restart a failed job",
    status_code=202,
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 404, 409, 422),
)
async def start(id: JobId, service: FromState, response: Response) -> Any:  # noqa: A002
    """Restart a failed job with the same data."""
    model = model_of(id)
    found = await _find(service, model, id)
    if found.state != "failed":
        raise Problem(409, "job: expected a failed job; only failed jobs can be restarted")
    epoch, *_ = await service.store.states.position(model)
    if epoch != found.epoch:
        raise Problem(409, OTHER_EPOCH)
    directory = service.job_runner.directory(id)
    if not await asyncio.to_thread((directory / UPLOAD).exists):
        raise Problem(409, NO_UPLOAD)
    training = msgspec.convert(found.about["training"], Training)
    work = JobSpec(id, model, training, found.about["blob"], directory)
    return await _begin(service, work, response)


async def _find(service: Service, model: str, job: str) -> Job:
    found = await service.store.jobs.read(model, job)
    if found is None:
        raise Problem(404, UNKNOWN_JOB)
    return found


def model_of(job: str) -> str:
    """Return the model that a job's id names."""
    generated = decoding.read_request_id(job)
    if generated is None:
        raise Problem(404, UNKNOWN_JOB)
    return generated.model
