"""`/models/NAME/warm-start` and `/jobs`: a batch model takes an online one's place."""

import asyncio
import shutil
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
    JSON,
    TEXT,
    AdminRoute,
    Headers,
    media_type,
    read_body,
)
from app.domain import candidates, codec
from app.domain.model_config import ModelConfig
from app.errors import BadData, InvalidInput, SolarError
from app.storage.jobs import Job
from app.training.job import JobSpec
from app.training.options import UPLOAD, Training, check_training

router = APIRouter(route_class=AdminRoute, tags=["jobs"], dependencies=[requires("admin")])

TEXTS = (TEXT, "application/gzip", "application/x-gzip", "application/octet-stream")
#: Numbers that judged queries in JSON may take; more come as text.
MOST_NUMBERS = 25_000_000
BUSY = "model: a job trains it; wait for the job, or cancel it with DELETE /jobs/{id}"
OTHER_LIFE = "job: its model was deleted and created again; post the data again"
NO_UPLOAD = "job: its data is no longer on this machine; post the data again"
UNKNOWN_JOB = "job: no job of this id"

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
    """Train on judged queries in a job, then put the result in the model's place.

    LETOR/SVMlight text, plain or gzip, with options in the query; or JSON, with options in the
    body. The answer comes once the data was read: bad data is 422.
    """
    config = (await service.store.states.load_weights(known_name(name))).config
    _expect_room(service)
    job = decoding.new_request_id(name)
    directory = await _prepared(service, job)
    try:
        training, blob = await _taken(service, request, options, config, directory / UPLOAD)
    except BaseException:  # there is no job yet
        shutil.rmtree(directory, ignore_errors=True)
        raise
    try:
        return await _begun(service, JobSpec(job, name, training, blob, directory), response)
    except BaseException:
        if not (service.job_runner.trains(job) or await _is_known(service, name, job)):
            shutil.rmtree(directory, ignore_errors=True)
        raise


async def _prepared(service: Service, job: str) -> FilePath:
    try:
        return await service.job_runner.prepare(job)
    except OSError:
        raise uploads.unwritable() from None


async def _is_known(service: Service, model: str, job: str) -> bool:
    """Whether the store has the job: then its data is not ours to remove."""
    try:
        return await service.store.jobs.look(model, job) is not None
    except SolarError:
        return False


def _expect_room(service: Service) -> None:
    if not service.job_runner.has_room():
        raise Problem(503, "as many jobs train here as may (SOLAR_JOBS); try again later",
                      {"retry-after": "10"})  # fmt: skip


async def _taken(
    service: Service, request: Request, options: TrainingQuery, config: ModelConfig, path: FilePath
) -> tuple[Training, bool]:
    """The data goes to a file; how to train, and whether the file is a blob."""
    limits, headers = service.settings, dict(request.scope["headers"])
    if media_type(headers) == JSON:
        if request.scope["query_string"]:
            raise InvalidInput("query: expected none; the options of JSON stand in the body")
        body = await read_body(request.receive, headers, limits)
        training, blob = await asyncio.to_thread(_from_json, body, config)
        try:
            await asyncio.to_thread(path.write_bytes, blob)
        except OSError:
            raise uploads.unwritable() from None
        return training, True
    _expect_text(headers)
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise InvalidInput("query: expected each option once")
    training = check_training(options.training())
    await uploads.save(request.receive, path, limits.upload_bytes, limits.upload_seconds)
    return training, False


def _expect_text(headers: Headers) -> None:
    if media_type(headers) not in TEXTS:
        raise Problem(415, f"content-type: expected {', '.join(TEXTS)} or {JSON}")
    if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b"gzip"):
        raise Problem(415, "content-encoding: expected gzip or none")


def _from_json(body: bytes, config: ModelConfig) -> tuple[Training, bytes]:
    """Judged queries as a blob of rows, by the model's features."""
    training, queries = _decoded(body)
    sizes = [len(query.documents) for query in queries]
    if sum(sizes) * len(config.given) > MOST_NUMBERS:
        raise Problem(413, f"queries: expected at most {MOST_NUMBERS} numbers; post text instead")
    rows = np.zeros((sum(sizes), len(config.given)), np.float32)
    starts = np.cumsum([0, *sizes])
    for at, query in enumerate(queries):
        try:
            features = decoding.feature_rows([one.features for one in query.documents], config)
            documents = candidates.as_documents(features, "none", decoding.LARGEST)
            rows[starts[at] : starts[at + 1]] = documents
        except InvalidInput as error:
            raise InvalidInput(f"queries[{at}].{error}") from None
    labels = np.array([one.label for query in queries for one in query.documents])
    arrays = {"documents": rows, "labels": labels, "starts": starts.astype(np.int64)}
    return training, codec.dump_blob("judged", {}, arrays)


def _decoded(body: bytes) -> tuple[Training, list[schemas.JudgedQuery]]:
    """The options, by pydantic; and the queries, many numbers, by msgspec."""
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


async def _begun(service: Service, work: JobSpec, response: Response) -> dict[str, Any]:
    """Begin, and wait a moment for the data to be read: what is wrong with it is said at once."""
    _expect_room(service)
    reading = await service.job_runner.begin(work)
    if reading is None:
        raise Problem(409, BUSY)
    try:
        async with asyncio.timeout(service.settings.check_seconds):
            await asyncio.shield(reading)
    except TimeoutError:
        pass  # a large upload; if something is wrong with it, the job will say
    except BadData as error:
        raise Problem(422, str(error)) from None
    except asyncio.CancelledError:
        if not reading.cancelled():
            raise
    response.headers["location"] = f"/jobs/{work.job}"
    return await _shown(service, work.model, work.job)


@router.get(
    "/jobs/{id}",
    operation_id="get_job",
    summary="Read a job",
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 404),
)
async def get_job(id: JobId, service: FromState) -> Any:  # noqa: A002  # as the path has it
    """Read how a job goes."""
    return await _shown(service, model_of(id), id)


async def _shown(service: Service, model: str, job: str) -> dict[str, Any]:
    found = await _found(service, model, job)
    return {"id": job, "model": model, **describe_job(found)}


def describe_job(job: Job) -> dict[str, Any]:
    """A job in words and numbers; what it does not have is left out."""
    said = {
        "state": "running" if job.state == "finishing" else job.state,
        "begun": job.about.get("begun"),
        "training": {k: v for k, v in job.about["training"].items() if v is not None},
        "progress": job.progress,
        "result": job.result,
        "error": job.error,
    }
    return {name: value for name, value in said.items() if value not in (None, {}, "")}


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
    """Cancel a job; the model stays as it is."""
    model = model_of(id)
    became = await service.store.jobs.cancel(model, id)
    if became == "unknown":
        raise Problem(404, UNKNOWN_JOB)
    if became == "ended":
        raise Problem(409, "job: has ended already")
    response.headers["location"] = f"/jobs/{id}"
    return await _shown(service, model, id)


@router.post(
    "/jobs/{id}/start",
    operation_id="restart_job",
    summary="Start a failed job again",
    status_code=202,
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 404, 409, 422),
)
async def start(id: JobId, service: FromState, response: Response) -> Any:  # noqa: A002
    """Start a job again that failed, with the same data."""
    model = model_of(id)
    found = await _found(service, model, id)
    if found.state != "failed":
        raise Problem(409, "job: expected one that has failed")
    epoch, *_ = await service.store.states.position(model)
    if epoch != found.epoch:
        raise Problem(409, OTHER_LIFE)
    directory = service.job_runner.directory(id)
    if not await asyncio.to_thread((directory / UPLOAD).exists):
        raise Problem(409, NO_UPLOAD)
    training = msgspec.convert(found.about["training"], Training)
    work = JobSpec(id, model, training, found.about["blob"], directory)
    return await _begun(service, work, response)


async def _found(service: Service, model: str, job: str) -> Job:
    found = await service.store.jobs.look(model, job)
    if found is None:
        raise Problem(404, UNKNOWN_JOB)
    return found


def model_of(job: str) -> str:
    """The model that a job's id names."""
    ours = decoding.read_request_id(job)
    if ours is None:
        raise Problem(404, UNKNOWN_JOB)
    return ours.model
