"""`/models/NAME/warm-start` and `/jobs`: training jobs that replace a model by a batch model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from app.api import decoding, memory, uploads
from app.api.admin_routing import AdminRoute
from app.api.admin_schemas import JobDetails, JobList, TrainingQuery
from app.api.auth import requires
from app.api.dependencies import FromState, Service
from app.api.errors import Problem
from app.api.examples import WARM_START_BODIES
from app.api.judged_queries import judged_blob, read_warm_start, shards_blob
from app.api.openapi import BODY_PROBLEMS, COMMON_PROBLEMS, problems
from app.api.routers.models import ModelName, known_name
from app.api.routing import (
    HELD,
    JSON,
    TEXT,
    Headers,
    media_type,
    read_body,
)
from app.config import Settings
from app.domain.model_config import ModelConfig
from app.errors import BadData, Forbidden, InvalidInput, NoSlot
from app.storage.jobs import Job
from app.training.job import JobSpec
from app.training.job_runner import Claim
from app.training.options import UPLOAD, Training
from app.training.shards.urls import below_prefix, prefixes_of

router = APIRouter(route_class=AdminRoute, tags=["jobs"])

TEXTS = (
    TEXT, "application/gzip", "application/x-gzip", "application/x-xz", "application/xz",
    "application/octet-stream",
)  # fmt: skip
ENCODINGS = (b"identity", b"gzip", b"xz")
#: The most jobs in one answer.
LARGEST_PAGE = 100
NO_SLOT = "the limit of training jobs is reached (SOLAR_JOBS); retry after 10 seconds"
BUSY = "model: a training job is running; wait for it, or cancel it with DELETE /jobs/{id}"
OTHER_EPOCH = "job: the model was deleted and created again; post the data again"
NO_UPLOAD = "job: the data is no longer on this machine; post the data again"
UNKNOWN_JOB = "job: no job has this id"

_UUID7 = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
JOB_PATTERN = f"^[A-Za-z0-9_-]{{1,64}}[.]{_UUID7}$"
JobId = Annotated[str, Path(json_schema_extra={"pattern": JOB_PATTERN})]


@router.post(
    "/models/{name}/warm-start",
    operation_id="warm_start",
    summary="Train a model on judged data",
    dependencies=[requires("admin")],
    status_code=202,
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*BODY_PROBLEMS, 404, 409, 507),
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

    Send LETOR/SVMlight text, plain, gzip or xz, with options in the query; or JSON, with options
    in the body. The answer is sent after the data was read: invalid data is 422. A JSON body may
    name shards instead of queries, below the prefixes of SOLAR_SHARDS only: others are 403.
    """
    config = (await service.weight_cache.find(known_name(name))).config
    job = decoding.new_request_id(name)
    async with _claim(service.job_runner.new(job)) as claim:
        directory = claim.files.directory
        training, blob = await _save_data(service, request, options, config, directory / UPLOAD)
        work = JobSpec(job, name, training, blob, directory)
        return await _begin(service, work, claim, response)


@asynccontextmanager
async def _claim(claims: AbstractAsyncContextManager[Claim]) -> AsyncIterator[Claim]:
    """Claim a slot and a directory: 503 if no slot is free, or if the disk refuses."""
    async with AsyncExitStack() as stack:
        try:
            claim = await stack.enter_async_context(claims)
        except NoSlot:
            raise Problem(503, NO_SLOT, {"retry-after": "10"}) from None
        except OSError as error:
            raise uploads.unwritable(error) from None
        yield claim


async def _save_data(
    service: Service, request: Request, options: TrainingQuery, config: ModelConfig, path: FilePath
) -> tuple[Training, bool]:
    """Write the data to a file; return the training options, and whether the file is a blob."""
    limits, headers = service.settings, dict(request.scope["headers"])
    if media_type(headers) == JSON:
        if request.scope["query_string"]:
            raise InvalidInput("query: expected no parameters; put the options in the JSON body")
        await uploads.check_space(path.parent, limits, uploads.declared_bytes(headers))
        held = request.scope[HELD]
        body = await read_body(request.receive, headers, limits, held)
        memory.hold_decoded(body, held, share=1.0)
        training, queries, shards = await asyncio.to_thread(read_warm_start, body, config)
        if shards:
            _check_shards(shards, limits)
            await uploads.save_blob(shards_blob(shards), path, limits)
            return training, True
        documents = sum(len(query.documents) for query in queries)
        await memory.hold_rows(documents * len(config.given), limits, held)
        blob = await asyncio.to_thread(judged_blob, queries, config)
        await uploads.save_blob(blob, path, limits)
        return training, True
    _expect_text(headers)
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise InvalidInput("query: expected each option at most once")
    training = options.training(config)
    await uploads.save(request.receive, path, headers, limits)
    return training, False


def _check_shards(urls: list[str], settings: Settings) -> None:
    """Raise 403 for shards that jobs may not name, InvalidInput for other URLs."""
    try:
        below_prefix(urls, prefixes_of(settings.shards))
    except Forbidden as error:
        raise Problem(403, str(error)) from None


def _expect_text(headers: Headers) -> None:
    if media_type(headers) not in TEXTS:
        raise Problem(415, f"content-type: expected {', '.join(TEXTS)} or {JSON}")
    if headers.get(b"content-encoding", b"identity").lower() not in ENCODINGS:
        raise Problem(415, "content-encoding: expected gzip, xz or none")


async def _begin(
    service: Service, work: JobSpec, claim: Claim, response: Response
) -> dict[str, Any]:
    """Start a job and wait until its data was read, so that invalid data is refused at once."""
    reading = await service.job_runner.begin(work, claim)
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
    "/jobs",
    operation_id="list_jobs",
    summary="List jobs",
    dependencies=[requires("read")],
    response_model=JobList,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 422),
)
async def list_jobs(
    service: FromState,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 20,
    after: Annotated[str | None, Query(json_schema_extra={"pattern": JOB_PATTERN})] = None,
) -> Any:
    """List the jobs of all models and workers, the newest first, with the share that is done."""
    if after is not None and decoding.read_request_id(after) is None:
        raise InvalidInput("after: expected the id of a job, as in `next` of the previous page")
    page = await service.store.jobs.page(limit, after or "")
    jobs = [job_summary(id_, job) for id_, job in page.jobs.items()]
    return {"jobs": jobs, **({"next": jobs[-1]["id"]} if page.more else {})}


@router.get(
    "/jobs/{id}",
    operation_id="get_job",
    summary="Read a job",
    dependencies=[requires("read")],
    response_model=JobDetails,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 404),
)
async def get_job(id: JobId, service: FromState) -> Any:  # noqa: A002  # as the path has it
    """Read the state and the progress of a job."""
    return await _describe(service, model_of(id), id)


async def _describe(service: Service, model: str, job: str) -> dict[str, Any]:
    found = await _find(service, model, job)
    fields = {
        "begun": found.about.get("begun"),
        "training": {k: v for k, v in found.about["training"].items() if v is not None},
        "progress": {k: v for k, v in found.progress.items() if k != "share_done"},
        "result": found.result,
        "error": found.error,
    }
    given = {name: value for name, value in fields.items() if value not in (None, {}, "")}
    return {**job_summary(job, found), **given}


def job_summary(id_: str, job: Job) -> dict[str, Any]:
    """Return the fields of a job in the list of jobs."""
    created = decoding.read_request_id(id_)
    if created is None:
        raise Problem(404, UNKNOWN_JOB)
    share = 1.0 if job.state == "done" else job.progress.get("share_done", 0.0)
    return {
        "id": id_, "model": created.model, "state": job.state, "created": created.time,
        "share_done": share,
    }  # fmt: skip


@router.delete(
    "/jobs/{id}",
    operation_id="cancel_job",
    summary="Cancel a job",
    dependencies=[requires("admin")],
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
    found = await _describe(service, model, id)
    if found["state"] == "cancelled":
        await service.job_runner.discard(id)
    return found


@router.post(
    "/jobs/{id}/start",
    operation_id="restart_job",
    summary="Restart a failed job",
    dependencies=[requires("admin")],
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
    async with _claim(service.job_runner.again(id)) as claim:
        return await _begin(service, work, claim, response)


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
