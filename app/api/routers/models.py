"""`/models`: create, read, tune, roll back, delete. Every change of a model is a record."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
from msgspec import UNSET, DecodeError

from app.api import decoding, schemas
from app.api.dependencies import Service, numbered
from app.api.errors import Problem, undecodable
from app.api.routing import Answer, Call
from app.domain import codec
from app.domain.model import ModelState
from app.domain.model_config import check_config, new_model_config
from app.domain.records import Record, Replace, Retune
from app.errors import ModelExists, NoSuchModel
from app.ingest.appender import now
from app.ranking import covariance
from app.ranking.limits import LEAST
from app.storage.keys import check_name
from app.storage.log import NewRecord


def _decoded(decode: Any, call: Call) -> Any:
    call.expect_json()
    try:
        return decode(call.body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error) from None


def model_name(call: Call) -> str:
    """The model that a path names; 404 if none can have that name."""
    try:
        return check_name(call.path["name"])
    except ValueError:
        raise Problem(404, "model: expected one that exists") from None


async def create(service: Service, call: Call) -> Answer:
    """A new model (201); the same one once more is fine (200), another one is not (409)."""
    body = _decoded(schemas.decode_new_model, call)
    name = check_name(call.path["name"])
    features = numbered(body.features) if isinstance(body.features, int) else tuple(body.features)
    decoding.check_texts("features", features, service.settings)
    config = new_model_config(
        features, algorithm=body.algorithm, covariance=body.covariance, C=body.C, gamma=body.gamma,
        clicks=body.clicks, normalization=body.normalization, prior=body.prior,
        explore=body.explore,
    )  # fmt: skip
    try:
        await service.create(name, config)
    except ModelExists:
        if (await service.store.states.load_weights(name)).config != config:
            raise
        return await _read(service, name, 200)
    return await _read(service, name, 201)


async def get_model(service: Service, call: Call) -> Answer:
    """A model with what it learnt."""
    return await _read(service, model_name(call), 200)


async def _read(service: Service, name: str, status: int) -> Answer:
    stored = await service.store.states.load(name)
    seq = await service.store.log.tail(name)
    return Answer(status, schemas.encode(describe_model(name, stored.state, seq)))


_CONFIG_FIELDS = ("algorithm", "covariance", "C", "gamma", "normalization", "clicks")


def describe_model(name: str, state: ModelState, seq: int) -> dict[str, Any]:
    """A model in words and numbers: its config, its weights, how well it ranks."""
    config, sums = state.model.config, state.measures()
    said: dict[str, Any] = {
        "name": name,
        **{field: getattr(config, field) for field in _CONFIG_FIELDS},
        "explore": config.explores,
        "prior": config.prior,
        "version": state.seq,
        "seq": seq,
        "features": list(config.given),
        "weights": dict(zip(config.features, state.model.weights.tolist(), strict=True)),
    }
    if config.algorithm == "solar-ii":
        deviations = np.sqrt(covariance.variances(state.model.spread, config.n))
        said["stddev"] = dict(zip(config.features, deviations.tolist(), strict=True))
    return {
        **said,
        "queries": int(sums["queries"]),
        "feedback": int(sums["feedback"]),
        "rejected": int(sums["rejected"]),
        "pairs": {kind: int(sums[kind]) for kind in ("stepped", "passive", "refused")},
        **_means(sums, ""),
        "baseline": _means(sums, "baseline_"),
        "explored": {
            "queries": int(sums["explored_queries"]),
            **_means(sums, "explored_", "explored_queries"),
        },
        "debiased_wins": {
            order: sums[f"{prefix}debiased_wins"] / max(sums["debiased_weight"], LEAST)
            for order, prefix in (("model", ""), ("submitted", "baseline_"))
        },
    }


def _means(sums: dict[str, float], prefix: str, count: str = "queries") -> dict[str, Any]:
    """The measures over all queries, or over some; 0 before the first."""
    queries = max(1.0, sums[count])
    ndcg = {k: sums[f"{prefix}ndcg@{k}"] / queries for k in ("1", "5", "10")}
    ndcg["all"] = sums[f"{prefix}ndcg"] / queries
    return {"ndcg": ndcg, "map": sums[f"{prefix}map"] / queries}


async def list_models(service: Service, _: Call) -> Answer:
    """All models, briefly."""
    models = []
    for name in await service.store.models.names():
        try:
            found = await service.store.states.load_weights(name)
        except NoSuchModel:  # deleted meanwhile
            continue
        config, seq = found.config, await service.store.log.tail(name)
        models.append({
            "name": name, "algorithm": config.algorithm, "features": len(config.given),
            "version": found.seq, "seq": seq,
        })  # fmt: skip
    return Answer(200, schemas.encode({"models": models}))


async def delete(service: Service, call: Call) -> Answer:
    """End a model with all that it learnt."""
    if not await service.store.models.delete(model_name(call)):
        raise Problem(404, "model: expected one that exists")
    service.weight_cache.forget(model_name(call))
    return Answer(204, b"")


async def tune(service: Service, call: Call) -> Answer:
    """Other hyper-parameters from the next record on."""
    body = _decoded(schemas.decode_tuning, call)
    name = model_name(call)
    given = {
        field: value
        for field in ("C", "gamma", "clicks", "explore")
        if (value := getattr(body, field)) is not UNSET
    }
    if not given:
        raise Problem(422, "expected C, gamma, clicks or explore")
    config = (await service.store.states.load_weights(name)).config
    check_config(replace(config, **given))
    return await _append(service, name, Retune(**given))


async def versions(service: Service, call: Call) -> Answer:
    """The versions that are kept, oldest first: a rollback can go to each."""
    name = model_name(call)
    await service.store.states.position(name)
    kept = await service.store.states.versions(name)
    return Answer(200, schemas.encode({"versions": [{"version": seq} for seq in kept]}))


async def rollback(service: Service, call: Call) -> Answer:
    """Back to a kept version; what came after it stays in the log, the measures go on."""
    body = _decoded(schemas.decode_rollback, call)
    name = model_name(call)
    await service.store.states.position(name)
    try:
        model = (await service.store.states.version(name, body.version)).state.model
    except NoSuchModel:
        raise Problem(404, "version: expected one that is kept") from None
    return await _append(service, name, Replace(model, f"rollback to version {body.version}"))


async def _append(service: Service, name: str, record: Record) -> Answer:
    epoch, *_ = await service.store.states.position(name)
    event = NewRecord(f"admin-{uuid4()}", b"", codec.dump_record(record))
    appended = await service.store.log.append(
        name, epoch, [event], limit=service.settings.backlog, time=now(), wait=True
    )
    return Answer(202, schemas.encode({"seq": appended[0].seq}))
