"""`POST /rank`: a query's documents in the order of the model, remembered for feedback."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import UNSET, DecodeError, Struct, UnsetType

from app.api import decoding, schemas
from app.api.calls import JSON, MSGPACK, Answer, Call
from app.api.dependencies import Service
from app.api.errors import Problem, undecodable
from app.api.schemas import BinaryRankBody, RankBody
from app.domain import candidates
from app.domain.candidates import Candidates, Exploration, Ranking
from app.domain.exploration import uniforms
from app.domain.impressions import Impression
from app.domain.model import Positions
from app.errors import StoreError
from app.serving.weight_cache import ServedModel

#: Above this share of the server's memory nothing is remembered, so that feedback goes on.
MEMORY_SHARE = 0.8
#: How long an explanation waits for the covariance.
STORE_SECONDS = 1.0


class Placed(Struct):
    """A document in the answer."""

    id: str
    rank: int
    score: float
    contributions: dict[str, float] | UnsetType = UNSET
    stddev: float | UnsetType = UNSET


class Ranked(Struct):
    """The answer to /rank."""

    request_id: str
    query_id: str
    model: str
    version: int
    explored: bool
    logged: bool
    degraded: bool
    documents: list[Placed]


async def rank(service: Service, call: Call) -> Answer:
    """Read, score, remember, answer."""
    body = _decoded(call)
    serving = await _serving(service, body)
    request = _request_id(service, body)
    slate = decoding.slate(body, serving, service.settings)
    pinned = _pinned(body.pinned, slate)
    _let_go(body)
    serving = await service.made(serving)
    explore = _exploration(serving, request, body.explore)
    ranking = candidates.rank(slate.documents, serving.weights, body.top_k, explore, pinned)
    placed = _placed(slate, ranking)
    if body.explain:
        await _explain(service, serving, slate, ranking, placed)
    logged = body.log and await _remember(service, serving, request, slate, ranking)
    if body.log:
        service.metrics.impression("remembered" if logged else "dropped")
    degraded = not service.weight_cache.reachable
    if degraded:
        service.metrics.degraded(body.model)
    answer = Ranked(
        request, body.query_id, body.model, serving.version, ranking.explored, logged, degraded,
        placed,
    )  # fmt: skip
    return Answer(200, schemas.encode(answer))


def _decoded(call: Call) -> RankBody | BinaryRankBody:
    try:
        if call.media_type == JSON:
            return schemas.decode_rank(call.body)
        if call.media_type == MSGPACK:
            return schemas.decode_binary_rank(call.body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error) from None
    raise Problem(415, f"content-type: expected {JSON} or {MSGPACK}")


def _let_go(body: RankBody | BinaryRankBody) -> None:
    """Thousands of numbers need not live through the wait for the store: it costs a tenth."""
    if isinstance(body, RankBody):
        body.documents = body.features = UNSET


async def _serving(service: Service, body: RankBody | BinaryRankBody) -> ServedModel:
    serving = await service.serving(body.model)
    if body.min_seq is not None and serving.version < body.min_seq:
        found = await service.weight_cache.reach(
            body.model, body.min_seq, service.settings.wait_seconds
        )
        if found is None:
            raise Problem(503, "min_seq: this version is not served yet")
        serving = found
    return serving


def _request_id(service: Service, body: RankBody | BinaryRankBody) -> str:
    if body.request_id is None:
        decoding.check_texts("query_id", [body.query_id], service.settings)
        return decoding.new_request_id(body.model)
    decoding.check_texts("request_id, query_id", [body.request_id, body.query_id], service.settings)
    return body.request_id


def _pinned(ids: Sequence[str], slate: Candidates) -> Positions:
    """Where the documents were submitted that are to stay there, from the top."""
    if not ids:
        return candidates.NOBODY
    places = {name: place for place, name in enumerate(slate.ids)}
    unknown = [at for at, name in enumerate(ids) if name not in places]
    if unknown:
        raise ValueError(f"pinned[{unknown[0]}]: expected the id of one of the documents")
    return np.unique([places[name] for name in ids])


def _exploration(serving: ServedModel, request: str, asked: bool | None) -> Exploration | None:
    """How the list is varied; the same for the same request to the same model."""
    if not (serving.config.explores if asked is None else asked):
        return None
    draw = partial(uniforms, f"{serving.name}:{serving.epoch}:{request}")
    return Exploration("swapped" if serving.config.clicks == "fair-pairs" else "drawn", draw)


def _placed(slate: Candidates, ranking: Ranking) -> list[Placed]:
    scores = ranking.scores[ranking.shown].tolist()
    return [
        Placed(slate.ids[at], place, score)
        for place, (at, score) in enumerate(
            zip(ranking.shown.tolist(), scores, strict=True), start=1
        )
    ]


async def _explain(
    service: Service,
    serving: ServedModel,
    slate: Candidates,
    ranking: Ranking,
    placed: list[Placed],
) -> None:
    """Say what made each score; for SOLAR-II also how sure it is, from the state as committed."""
    spread: Any = None
    if serving.config.algorithm == "solar-ii":
        spread = await _spread(service, serving)
    names, rows = serving.config.features, slate.documents[ranking.shown]
    for one, row in zip(placed, rows, strict=True):
        one.contributions = candidates.contributions(row, serving.weights, names)
    if spread is not None:
        for one, deviation in zip(
            placed, candidates.deviations(rows, spread).tolist(), strict=True
        ):
            one.stddev = deviation


async def _spread(service: Service, serving: ServedModel) -> Any:
    if not service.weight_cache.reachable:
        return None
    try:
        async with asyncio.timeout(STORE_SECONDS):
            stored = await service.store.states.load(serving.name)
    except (StoreError, TimeoutError):  # the contributions do without
        return None
    return stored.state.model.spread if stored.epoch == serving.epoch else None


async def _remember(
    service: Service, serving: ServedModel, request: str, slate: Candidates, ranking: Ranking
) -> bool:
    """Whether what is shown was written down in time."""
    if not service.weight_cache.reachable or service.weight_cache.memory_share > MEMORY_SHARE:
        return False
    ids = tuple(slate.ids[at] for at in ranking.shown.tolist())
    documents = slate.documents[ranking.shown]
    shown = Impression(ids, documents, ranking.shown, ranking.odds, ranking.swaps)
    return await service.impression_writer.remember(
        serving.name, serving.epoch, request, shown.dump()
    )
