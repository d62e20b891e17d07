"""`POST /rank`: rank a query's documents by the model, and log the impression for feedback."""

import asyncio
from collections.abc import Sequence
from functools import partial
from time import time
from typing import Any

import numpy as np
from fastapi import APIRouter
from msgspec import UNSET, DecodeError, Raw

from app.api import decoding, memory, schemas
from app.api.auth import Key, requires
from app.api.dependencies import FromRoute, FromState, Service, state_bytes
from app.api.errors import Problem, undecodable
from app.api.examples import RANK_BODIES
from app.api.openapi import BODY_PROBLEMS, fast_answers
from app.api.routing import JSON, MSGPACK, Answer, Call, FastRoute, media_type
from app.api.schemas import AnyRankBody, RankAnswer, RankBody, RankedDocument
from app.domain import candidates, duel_lists
from app.domain.candidates import Candidates, Exploration, Ranking
from app.domain.impressions import Impression
from app.domain.model import Documents, Positions
from app.domain.model_config import ModelConfig, has_full_covariance
from app.errors import InvalidInput, StoreError, Unreadable
from app.ranking.serving import uniforms
from app.serving.served_model import ServedModel
from app.storage.batching import SMALL, Held

router = APIRouter(route_class=FastRoute, tags=["ranking"])

#: Above this share of the store's memory no impression is logged, to leave room for feedback.
MEMORY_SHARE = 0.8
#: Timeout for loading the covariance of an explanation.
EXPLAIN_SECONDS = 1.0
#: Bytes of each weight of a kept version while it is read: the blob and the names of the features.
WEIGHT_BYTES = 64
#: Size of a body, in bytes, up to which its length bounds the memory of its values.
UNCOUNTED = 524_288
#: Values of an explanation that are computed before other requests get a turn: about 10 ms.
YIELD_VALUES = 16_384
#: An explanation has at most one contribution for this many of the allowed feature values.
EXPLAINED_SHARE = 4


@router.post(
    "/rank",
    operation_id="rank",
    summary="Rank documents",
    dependencies=[requires("rank")],
    response_model=None,
    responses=fast_answers(200, "RankAnswer", *BODY_PROBLEMS, 404, 409),
    openapi_extra={"requestBody": RANK_BODIES},
)
async def post_rank(service: FromState, call: FromRoute) -> Answer:
    """Rank a query's documents by the model, best first, and log the impression for feedback.

    Send documents with `features` by name or as a list; or `ids` and `features` as columns; or, in
    msgpack, rows of little-endian float32. If an object repeats a key, the last one counts.
    """
    body = _decode(call)
    call.body = b""
    if body.version is not None:
        return await _rank_by_version(service, body, body.version, call)
    if body.min_seq:
        await _wait_for_version(service, body.model, body.min_seq)
    served, given = await service.resolve(body.model, partial(_resolve, service, body, call.held))
    request, submitted, pinned = given
    _free_features(body)
    if call.held.size:
        call.held.keep(memory.ROW_BYTES * submitted.documents.size)
    ranking = _rank(service, served, body, call.key, request, submitted.documents, pinned)
    ranked = _ranked_documents(submitted, ranking)
    if body.explain:
        await _explain(service, served, submitted, ranking, ranked, call.held)
    logged = body.log and await _log_impression(
        service, served, request, submitted, ranking, call.key
    )
    service.metrics.used(body.model)
    if ranking.explored and ranking.teams is None:
        service.metrics.explored(body.model, ranking, pinned)
    if body.log:
        service.metrics.impression("remembered" if logged else "dropped")
    degraded = not service.weight_cache.reachable
    if degraded:
        service.metrics.degraded(body.model)
    answer = RankAnswer(
        request, body.query_id, body.model, served.version, ranking.explored, logged, degraded,
        ranked,
    )  # fmt: skip
    if ranking.teams is not None:
        answer.duel = True
    if logged and service.tokens is not None:
        answer.token = service.tokens.sign(body.model, request, body.viewer, time())
    return Answer(200, schemas.encode(answer))


async def _rank_by_version(
    service: Service, body: AnyRankBody, version: int | str, call: Call
) -> Answer:
    """Rank by a kept version, in the plain order; the impression is not logged."""
    if "admin" not in call.key.scopes:
        raise Problem(403, "version: expected an API key with the scope admin")
    if body.explore or body.min_seq:
        raise InvalidInput("version: expected no explore and no min_seq with it")
    call.held.add(WEIGHT_BYTES * (await service.weight_cache.find(body.model)).config.n)
    stored = await service.store.versions.load_weights(body.model, version)
    served = ServedModel.of(body.model, stored)
    request, submitted, pinned = await _resolve(service, body, call.held, served)
    ranking = candidates.rank_candidates(
        submitted.documents, served.weights, body.top_k, None, pinned
    )
    ranked = _ranked_documents(submitted, ranking)
    if body.explain:
        await _explain(service, served, submitted, ranking, ranked, call.held, version)
    answer = RankAnswer(
        request, body.query_id, body.model, served.version, explored=False, logged=False,
        degraded=False, documents=ranked,
    )  # fmt: skip
    return Answer(200, schemas.encode(answer))


def _decode(call: Call) -> AnyRankBody:
    kind, fields = media_type(call.headers), schemas.RANK_FIELDS
    try:
        if kind == JSON:
            if len(call.body) > SMALL:
                memory.hold_decoded(call.body, call.held, uncounted=UNCOUNTED)
            return schemas.decode_rank(call.body)
        if kind == MSGPACK:
            fields = schemas.BINARY_RANK_FIELDS
            if len(call.body) > SMALL:
                memory.hold_binary(call.body, call.held)
            return schemas.decode_binary_rank(call.body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error, fields) from None
    raise Problem(415, f"content-type: expected {JSON} or {MSGPACK}")


def _free_features(body: AnyRankBody) -> None:
    """Free the decoded features before awaiting Redis; keeping them costs about 10 % throughput."""
    if isinstance(body, RankBody):
        body.documents = body.features = UNSET


async def _wait_for_version(service: Service, model: str, min_seq: int) -> None:
    cache, wait = service.weight_cache, service.settings.wait_seconds
    served = await cache.find(model)
    if served.version < min_seq and await cache.reach(model, min_seq, wait) is None:
        raise Problem(503, "min_seq: this version is not served yet; retry after 1 second")


async def _resolve(
    service: Service, body: AnyRankBody, held: Held, served: ServedModel
) -> tuple[str, Candidates, Positions]:
    """Resolve the request's id, its candidates, and the positions of its pinned documents."""
    request, limits = _request_id(service, body), service.settings
    numbers = decoding.submitted_values(body, served.config, limits)
    if numbers > memory.SMALL_ROWS:
        await memory.hold_rows(numbers, limits, held)
    submitted = decoding.candidates_of(body, served, limits)
    return request, submitted, _pinned(body.pinned, submitted)


def _request_id(service: Service, body: AnyRankBody) -> str:
    if body.request_id is None:
        decoding.check_texts("query_id", [body.query_id], service.settings)
        return decoding.new_request_id(body.model)
    decoding.check_texts("request_id, query_id", [body.request_id, body.query_id], service.settings)
    generated = decoding.read_request_id(body.request_id)
    if generated is not None and generated.model != body.model:
        raise InvalidInput("request_id: has the form of another model's id; choose a different id")
    return body.request_id


def _pinned(ids: Sequence[str], submitted: Candidates) -> Positions:
    """Return the submitted positions of the pinned documents, from the top."""
    if not ids:
        return candidates.NO_PINS
    positions = {name: position for position, name in enumerate(submitted.ids)}
    unknown = [at for at, name in enumerate(ids) if name not in positions]
    if unknown:
        raise InvalidInput(f"pinned[{unknown[0]}]: expected the id of a submitted document")
    return np.unique([positions[name] for name in ids])


def _rank(
    service: Service,
    served: ServedModel,
    body: AnyRankBody,
    key: Key,
    request: str,
    documents: Documents,
    pinned: Positions,
) -> Ranking:
    """Rank by the model; or interleave it with its challenger, if the request duels."""
    duel, weights = served.duel, served.weights
    if duel is not None and duel.is_on and _may_duel(body):
        draw = partial(uniforms, f"duel:{served.name}:{served.epoch}:{request}")
        duels = duel_lists.duels(draw, duel.settings.share) and _may_log(service, key)
        sides = service.weight_cache.sides(served) if duels else None
        if sides is not None:
            return duel_lists.interleaved(documents, weights, sides, body.top_k, draw, pinned)
    explore = _exploration(served, request, body.explore)
    return candidates.rank_candidates(documents, weights, body.top_k, explore, pinned)


def _may_duel(body: AnyRankBody) -> bool:
    """Whether a request asks for a list that may be varied and is to be remembered."""
    return body.log and body.explore is not False


def _may_log(service: Service, key: Key) -> bool:
    """Whether an impression may be logged now: the store answers and has room for it."""
    cache, quota = service.weight_cache, service.store_quota
    if not cache.reachable:
        return False
    if quota is None:
        return cache.memory_share <= MEMORY_SHARE
    return quota.admits_impression(key.name, cache.memory_share)


def _exploration(served: ServedModel, request: str, asked: bool | None) -> Exploration | None:
    """Return how to randomise the ranking; the same for the same request to the same model."""
    config = served.config
    if config.exploration == 0.0 or not (config.explores if asked is None else asked):
        return None
    draw = partial(uniforms, f"{served.name}:{served.epoch}:{request}")
    return candidates.exploring_by(config, draw, served.scale)


def _ranked_documents(submitted: Candidates, ranking: Ranking) -> list[RankedDocument]:
    scored = zip(ranking.shown.tolist(), ranking.scores[ranking.shown].tolist(), strict=True)
    return [
        RankedDocument(submitted.ids[at], rank, score)
        for rank, (at, score) in enumerate(scored, start=1)
    ]


async def _explain(
    service: Service,
    served: ServedModel,
    submitted: Candidates,
    ranking: Ranking,
    ranked: list[RankedDocument],
    held: Held,
    version: int | str | None = None,
) -> None:
    """Add contributions to each document; for SOLAR-II also the score's standard deviation."""
    names, rows = served.config.features, submitted.documents[ranking.shown]
    _hold_explanation(rows, served.config, service.settings.numbers // EXPLAINED_SHARE, held)
    spread: Any = None
    if served.config.algorithm == "solar-ii":
        spread = await _spread(service, served, version)
    for at, (one, row) in enumerate(zip(ranked, rows, strict=True)):
        found = candidates.contributions(row, served.weights, names)
        one.contributions = Raw(schemas.encode(found))  # type: ignore[assignment]  # less memory
        if at % max(1, YIELD_VALUES // row.size) == 0:
            await asyncio.sleep(0)  # a large explanation takes half a second
    if spread is not None:
        found = candidates.deviations(rows, spread).tolist()
        for one, deviation in zip(ranked, found, strict=True):
            one.stddev = deviation


def _hold_explanation(rows: Documents, config: ModelConfig, most: int, held: Held) -> None:
    """Hold the memory of an explanation: its text, the rows in float64 and the covariance."""
    count = int(np.count_nonzero(rows))
    if count > most:
        raise Problem(
            413,
            f"explain: expected at most {most} contributions, got {count}; lower top_k or send "
            "fewer documents",
        )
    covariance = 24 * config.n**2 if has_full_covariance(config) else state_bytes(config)
    held.add(80 * count + 16 * rows.size + covariance)


async def _spread(service: Service, served: ServedModel, version: int | str | None) -> Any:
    if not service.weight_cache.reachable:
        return None
    try:
        async with asyncio.timeout(EXPLAIN_SECONDS):
            if version is None:
                stored = await service.store.states.load(served.name, with_part=False)
            else:
                stored = await service.store.versions.load(served.name, version)
    except (StoreError, Unreadable, TimeoutError):  # the answer then has contributions only
        return None
    return stored.state.model.spread if stored.epoch == served.epoch else None


async def _log_impression(
    service: Service,
    served: ServedModel,
    request: str,
    submitted: Candidates,
    ranking: Ranking,
    key: Key,
) -> bool:
    """Log the impression; return whether it was written in time."""
    if not _may_log(service, key):
        return False
    ids = tuple(submitted.ids[at] for at in ranking.shown.tolist())
    documents = submitted.documents[ranking.shown]
    duel = None
    if ranking.teams is not None and served.duel is not None:
        duel = duel_lists.with_id(served.duel.id, ranking.teams)
    about = ranking.odds, ranking.swaps, duel
    shown = Impression(ids, documents, ranking.shown, *about).dump()
    if service.store_quota is not None:
        service.store_quota.add(key.name, len(shown))
    model = (served.name, served.epoch)
    return await service.impression_writer.store_impression(*model, request, shown, key.tenant)
