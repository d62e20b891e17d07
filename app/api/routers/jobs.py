"""`/models/NAME/warm-start` and `/jobs`: a batch model takes an online one's place."""

import asyncio
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import numpy as np

from app.api import decoding, schemas, uploads
from app.api.dependencies import Service
from app.api.errors import Problem, undecodable
from app.api.routers.models import model_name
from app.api.routing import JSON, TEXT, Answer, Call, read_body
from app.domain import candidates, codec
from app.domain.model_config import ModelConfig
from app.errors import BadData, SolarError
from app.storage.jobs import Job
from app.training.job import JobSpec
from app.training.options import UPLOAD, Training, check_training

TEXTS = (TEXT, "application/gzip", "application/x-gzip", "application/octet-stream")
#: Numbers that judged queries in JSON may take; more come as text.
MOST_NUMBERS = 25_000_000
BUSY = "expected a model that is not being trained; this one has a job"
OTHER_LIFE = "job: expected one of the model as it is; it was made anew since"
NO_UPLOAD = "expected a job whose data is still here; post the data again"


async def warm_start(service: Service, call: Call) -> Answer:
    """Judged data comes in; 202 with a job once it was read, 422 if it is not what it should be."""
    name = model_name(call)
    config = (await service.store.states.load_weights(name)).config
    _expect_room(service)
    job = decoding.new_request_id(name)
    directory = await service.job_runner.prepare(job)
    try:
        training, blob = await _taken(service, call, config, directory / UPLOAD)
        work = JobSpec(job, name, training, blob, directory)
        return await _begun(service, work)
    except BaseException:
        if service.job_runner.trains(job) or await _is_known(service, name, job):
            raise
        shutil.rmtree(directory, ignore_errors=True)
        raise


async def _is_known(service: Service, model: str, job: str) -> bool:
    """Whether the store has the job: then its data is not ours to remove."""
    try:
        return await service.store.jobs.look(model, job) is not None
    except SolarError:
        return False


def _expect_room(service: Service) -> None:
    if not service.job_runner.has_room():
        raise Problem(503, "other jobs are being done here", {"retry-after": "10"})


async def _taken(
    service: Service, call: Call, config: ModelConfig, path: Path
) -> tuple[Training, bool]:
    """The data goes to a file; how to train, and whether the file is a blob."""
    limits = service.settings
    if call.media_type == JSON:
        if call.query:
            raise Problem(422, "query: expected none, as the options of JSON stand in the body")
        body = await read_body(call.receive, call.headers, limits.body_bytes, limits.body_seconds)
        training, blob = await asyncio.to_thread(_from_json, body, config)
        await asyncio.to_thread(path.write_bytes, blob)
        return training, True
    if call.media_type not in TEXTS:
        raise Problem(415, f"content-type: expected {', '.join(TEXTS)} or {JSON}")
    if call.headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b"gzip"):
        raise Problem(415, "content-encoding: expected gzip or none")
    training = _from_query(call.query)
    await uploads.save(call.receive, path, limits.upload_bytes, limits.upload_seconds)
    return training, False


def _from_query(query: bytes) -> Training:
    try:
        given = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query),
            max_num_fields=10, errors="strict",
        )  # fmt: skip
        if len(dict(given)) < len(given):
            raise Problem(422, "query: expected each option once")
        training = msgspec.convert(dict(given), Training, strict=False)
    except msgspec.ValidationError as error:
        raise undecodable(error) from None
    except ValueError:
        raise Problem(422, "query: expected name=value with & between") from None
    return check_training(training)


def _from_json(body: bytes, config: ModelConfig) -> tuple[Training, bytes]:
    """Judged queries as a blob of rows, by the model's features."""
    try:
        found = schemas.decode_warm_start(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error) from None
    training = Training(*(getattr(found, name) for name in Training.__struct_fields__))
    check_training(training)
    sizes = [len(query.documents) for query in found.queries]
    if sum(sizes) * len(config.given) > MOST_NUMBERS:
        raise Problem(413, f"queries: expected at most {MOST_NUMBERS} numbers; post text instead")
    rows = np.zeros((sum(sizes), len(config.given)), np.float32)
    starts = np.cumsum([0, *sizes])
    for at, query in enumerate(found.queries):
        try:
            features = decoding.feature_rows([one.features for one in query.documents], config)
            documents = candidates.as_documents(features, "none", decoding.LARGEST)
            rows[starts[at] : starts[at + 1]] = documents
        except ValueError as error:
            raise Problem(422, f"queries[{at}].{error}") from None
    labels = np.array([one.label for query in found.queries for one in query.documents])
    arrays = {"documents": rows, "labels": labels, "starts": starts.astype(np.int64)}
    return training, codec.dump_blob("judged", {}, arrays)


async def _begun(service: Service, work: JobSpec) -> Answer:
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
    return await _shown(service, work.model, work.job, 202)


async def get_job(service: Service, call: Call) -> Answer:
    """How a job goes."""
    model, job = _identity(call)
    return await _shown(service, model, job, 200)


async def _shown(service: Service, model: str, job: str, status: int) -> Answer:
    found = await _found(service, model, job)
    body = schemas.encode({"id": job, "model": model, **describe_job(found)})
    return Answer(status, body, headers={"location": f"/jobs/{job}"} if status == 202 else {})


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


async def cancel(service: Service, call: Call) -> Answer:
    """Stop a job; what it was to replace stays."""
    model, job = _identity(call)
    became = await service.store.jobs.cancel(model, job)
    if became == "unknown":
        raise Problem(404, "job: expected one that is known")
    if became == "ended":
        raise Problem(409, "job: expected one that has not ended")
    return await _shown(service, model, job, 202)


async def start(service: Service, call: Call) -> Answer:
    """Begin a job again that failed, with the same data."""
    model, job = _identity(call)
    found = await _found(service, model, job)
    if found.state != "failed":
        raise Problem(409, "job: expected one that has failed")
    epoch, *_ = await service.store.states.position(model)
    if epoch != found.epoch:
        raise Problem(409, OTHER_LIFE)
    directory = service.job_runner.directory(job)
    if not await asyncio.to_thread((directory / UPLOAD).exists):
        raise Problem(409, NO_UPLOAD)
    training = msgspec.convert(found.about["training"], Training)
    return await _begun(service, JobSpec(job, model, training, found.about["blob"], directory))


async def _found(service: Service, model: str, job: str) -> Job:
    found = await service.store.jobs.look(model, job)
    if found is None:
        raise Problem(404, "job: expected one that is known")
    return found


def _identity(call: Call) -> tuple[str, str]:
    """A job's model and its id, which names it."""
    ours = decoding.read_request_id(call.path["id"])
    if ours is None:
        raise Problem(404, "job: expected one that is known")
    return ours.model, call.path["id"]
