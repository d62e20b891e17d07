"""`/models/{name}/compare` and `/what-if`: questions to a model; nothing is stored."""

import asyncio
from math import sqrt
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from app.api import schemas
from app.api.admin_routing import AdminRoute
from app.api.auth import requires
from app.api.decoding import FeedbackDecoder
from app.api.dependencies import FromState, Service
from app.api.examples import COMPARE_BODIES, WHAT_IF_BODIES
from app.api.openapi import BODY_PROBLEMS, fast_answers
from app.api.question_schemas import (
    COMPARE_FIELDS,
    WHAT_IF_FIELDS,
    CompareAnswer,
    GapContribution,
    GapRest,
    ScoredDocument,
    TriedPair,
    WeightChange,
    WhatIfAnswer,
    decode_compare,
    decode_what_if,
)
from app.api.questions import (
    AskedModel,
    asked_model,
    position_of,
    question_candidates,
    read_question,
)
from app.api.routers.models import ModelName, known_name
from app.api.routing import HELD, JSON
from app.domain import candidates, codec, comparison
from app.domain.candidates import Candidates
from app.domain.impressions import Impression, PriorFeedback, on_request
from app.domain.model import Documents
from app.domain.records import Feedback, Replace
from app.domain.work import pair_work, record_work
from app.errors import InvalidInput
from app.ranking import covariance, serving
from app.ranking.arrays import Floats

router = APIRouter(route_class=AdminRoute, tags=["models"])

#: The most features in one answer.
MOST_FEATURES_LISTED = 200
#: The most work of a trial: a second of a core (`app/domain/work.py`).
MOST_TRIAL_WORK = 10_000_000_000
#: Outcomes of pairs by their number (`app/ranking/kernels.py`).
OUTCOMES = ("passive", "stepped", "refused")
#: A uniform for which `serving.sampled` adds nothing to a score.
_UNMOVED = float(np.exp(-1.0))


def _answered(answer: Any) -> Response:
    return Response(schemas.encode(answer), media_type=JSON)


@router.post(
    "/models/{name}/compare",
    operation_id="compare_documents",
    summary="Compare two documents",
    dependencies=[requires("read")],
    response_model=None,
    responses=fast_answers(200, "CompareAnswer", *BODY_PROBLEMS, 404),
    openapi_extra={"requestBody": COMPARE_BODIES},
)
async def compare_documents(name: ModelName, service: FromState, request: Request) -> Response:
    """Explain the gap of the scores of two documents: the contribution of each feature.

    Send the whole list, as for /rank: normalisation and the submitted order depend on all
    documents. Nothing is stored.
    """
    body = await read_question(service, request, decode_compare, COMPARE_FIELDS)
    if body.first == body.second:
        raise InvalidInput("second: expected the id of another document than first")
    async with asked_model(service, known_name(name)) as asked:
        given = await question_candidates(
            service, asked.served, body.documents, body.scored, request.scope[HELD]
        )
        first = position_of("first", body.first, given.ids)
        second = position_of("second", body.second, given.ids)
        return _answered(await asyncio.to_thread(_compared, asked, given, first, second))


def _compared(asked: AskedModel, given: Candidates, first: int, second: int) -> CompareAnswer:
    """Compute the answer in a thread: x·Σx takes 5 ms at n = 2,000."""
    served, weights = asked.served, asked.model.weights
    scores = candidates.scores(given.documents, weights)
    gap = comparison.gap_between(given.documents, first, second)
    deviation = None
    if served.config.algorithm == "solar-ii":
        deviation = comparison.gap_deviation(gap, asked.model.spread)
    parts = comparison.gap_parts(gap, weights, MOST_FEATURES_LISTED)
    return CompareAnswer(
        served.name,
        served.version,
        ScoredDocument(given.ids[first], float(scores[first])),
        ScoredDocument(given.ids[second], float(scores[second])),
        float(scores[first]) - float(scores[second]),
        deviation,
        None if deviation is None else deviation / sqrt(served.config.gamma),
        comparison.exchange_probability(served.config, scores, first, second, served.scale),
        _contributions(asked, given.documents, parts, first, second),
        GapRest(parts.rest, parts.rest_sum),
    )


def _contributions(
    asked: AskedModel, documents: Documents, parts: comparison.GapParts, first: int, second: int
) -> list[GapContribution]:
    names, weights = asked.served.config.features, asked.model.weights
    each = zip(parts.columns.tolist(), parts.values.tolist(), strict=True)
    return [
        GapContribution(
            names[k],
            float(weights[k]),
            float(documents[first, k]),
            float(documents[second, k]),
            one,
        )
        for k, one in each
    ]


@router.post(
    "/models/{name}/what-if",
    operation_id="what_if",
    summary="Try feedback on a copy",
    dependencies=[requires("read")],
    response_model=None,
    responses=fast_answers(200, "WhatIfAnswer", *BODY_PROBLEMS, 404),
    openapi_extra={"requestBody": WHAT_IF_BODIES},
)
async def what_if(name: ModelName, service: FromState, request: Request) -> Response:
    """Show what the model would learn from clicks: its pairs, and its weights before and after.

    The documents count as shown in the order of their scores. A model that explores learns from
    them as if its draw had left this order unchanged. A copy of the model learns; nothing is
    stored.
    """
    body = await read_question(service, request, decode_what_if, WHAT_IF_FIELDS)
    async with asked_model(service, known_name(name)) as asked:
        given = await question_candidates(
            service, asked.served, body.documents, body.scored, request.scope[HELD]
        )
        event = await asyncio.to_thread(_feedback, service, asked, given, body.clicks)
        blobs = await asyncio.to_thread(_dumped, asked, event)
        found = await service.trial_runner.run(*blobs)
        return _answered(await asyncio.to_thread(_tried, asked, given, event, found))


def _feedback(
    service: Service, asked: AskedModel, given: Candidates, clicks: list[str]
) -> Feedback:
    """Build the record that /feedback stores for clicks on this ranking."""
    config, explore = asked.served.config, None
    if config.explores:
        explore = candidates.exploring_by(config, _unmoved(config.clicks), asked.served.scale)
    ranking = candidates.rank_candidates(given.documents, asked.model.weights, None, explore)
    shown = ranking.shown
    ids = tuple(given.ids[at] for at in shown.tolist())
    impression = Impression(ids, given.documents[shown], shown, ranking.odds, ranking.swaps)
    event = schemas.ClicksEvent(event_id="what-if", request_id="what-if", clicked=clicks)
    decoder = FeedbackDecoder(asked.served, service.settings)
    built = decoder.on_impression(event, impression, "")
    record, _ = on_request(built, PriorFeedback.load(b""), config.counts_abandoned)
    if record_work(record, pair_work(config)) > MOST_TRIAL_WORK:
        raise InvalidInput("clicks: expected feedback that takes up to 1 s to learn; send fewer")
    return record


def _unmoved(strategy: str) -> Any:
    """Return uniforms that leave a ranking in the order of its scores."""
    if strategy == "fair-pairs":  # pairs start at position 0, and none is swapped
        return lambda count: np.append(0.0, np.ones(count - 1))
    return lambda count: np.full(count, _UNMOVED)


def _dumped(asked: AskedModel, event: Feedback) -> tuple[bytes, bytes]:
    return codec.dump_record(Replace(asked.model, "what-if")), codec.dump_record(event)


def _tried(asked: AskedModel, given: Candidates, event: Feedback, found: bytes) -> WhatIfAnswer:
    _, fields, arrays = codec.load_blob(found, "trial")
    assert event.submitted is not None  # noqa: S101  # mypy; the event is on a ranking
    shown = [given.ids[at] for at in event.submitted.tolist()]
    names = ("preferred", "other", "weights", "margins", "outcomes")
    each = zip(*(arrays[name].tolist() for name in names), strict=True)
    pairs = [TriedPair(shown[p], shown[o], w, m, OUTCOMES[one]) for p, o, w, m, one in each]
    changed, more = _changed(asked, arrays)
    before, after = (
        [given.ids[at] for at in serving.order(candidates.scores(given.documents, w)).tolist()]
        for w in (asked.model.weights, arrays["after"])
    )
    return WhatIfAnswer(
        asked.served.name, asked.served.version, shown, pairs, fields["total"] - len(pairs),
        changed, more, before, after,
    )  # fmt: skip


def _changed(asked: AskedModel, arrays: dict[str, Any]) -> tuple[list[WeightChange], int]:
    """Return the weights that change most, and how many others change."""
    config, before, after = asked.served.config, asked.model.weights, arrays["after"]
    change = np.abs(after - before)
    columns = np.flatnonzero(change)
    columns = columns[np.argsort(-change[columns], kind="stable")]
    stddev = _deviations(covariance.variances(asked.model.spread, config.n), columns)
    later = _deviations(arrays["variances"], columns)
    listed = [
        WeightChange(config.features[k], float(before[k]), float(after[k]), stddev[at], later[at])
        for at, k in enumerate(columns[:MOST_FEATURES_LISTED].tolist())
    ]
    return listed, len(columns) - len(listed)


def _deviations(variances: Floats, columns: Any) -> list[float] | list[None]:
    """Return the standard deviations of some weights; None for each of SOLAR-I."""
    if not variances.size:
        return [None] * len(columns)
    found: list[float] = np.sqrt(variances[columns]).tolist()
    return found
