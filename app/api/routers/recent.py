"""`/models/{name}/impressions` and the difference of two versions, with recent lists."""

import asyncio
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import UNSET

from app.api import schemas
from app.api.admin_routing import AdminRoute
from app.api.auth import requires
from app.api.decoding import read_request_id
from app.api.dependencies import FromState, Service
from app.api.openapi import COMMON_PROBLEMS, fast_answers
from app.api.question_schemas import (
    ComparedVersion,
    DifferenceRest,
    RecentImpression,
    RecentImpressions,
    ReorderedList,
    ShownDocument,
    VersionDiff,
    WeightDifference,
)
from app.api.recent_lists import RecentList, recent_lists
from app.api.routers.models import ModelName, known_name
from app.api.routing import HELD, JSON, KEY
from app.domain import candidates
from app.domain.impressions import Impression
from app.errors import NoSuchVersion
from app.ranking import serving
from app.ranking.arrays import Floats
from app.serving.served_model import ServedModel
from app.storage.states import StoredWeights

router = APIRouter(route_class=AdminRoute, tags=["models"])

#: The most recent lists in one answer, and the default.
MOST_LISTS, DEFAULT_LISTS = 100, 20
#: The most documents of a list in an answer.
MOST_DOCUMENTS = 50
#: The most feature values in an answer, about 5 MB of JSON.
MOST_VALUES = 250_000
#: Lists that the difference of two versions compares, and ids of each in the answer.
COMPARED_LISTS, COMPARED_IDS = 20, 10
#: The most weights in the difference of two versions.
WEIGHTS_LISTED = 200
#: The committed state, as a version in a path.
CURRENT = "current"
#: Bytes of each weight of a version while it is read: the blob and the names of the features.
VERSION_WEIGHT_BYTES = 64

AnyVersion = Annotated[
    str,
    Path(
        json_schema_extra={"pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"},
        description="number or name of a kept version, or `current`",
        examples=[CURRENT],
    ),
]


@router.get(
    "/models/{name}/impressions",
    operation_id="list_impressions",
    summary="List recent impressions",
    dependencies=[requires("admin")],
    response_model=None,
    responses=fast_answers(200, "RecentImpressions", *COMMON_PROBLEMS, 404, 422),
)
async def list_impressions(
    name: ModelName,
    service: FromState,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTS)] = DEFAULT_LISTS,
) -> Response:
    """List recent lists that are still remembered, newest first, as they were scored and shown.

    Each worker notes at most one request a second. Lists of other tenants, and lists of more than
    4 MB, are left out.
    """
    served, scope = await service.weight_cache.find(known_name(name)), request.scope
    found = await recent_lists(service, served, scope[KEY].tenant, limit, scope[HELD])
    return await asyncio.to_thread(_described, served, found)


def _described(served: ServedModel, found: list[RecentList]) -> Response:
    """Describe lists in a thread: 250,000 values take 0.1 s."""
    n = served.config.n
    documents, values = min(MOST_DOCUMENTS, max(1, MOST_VALUES // n)), 0
    listed: list[RecentImpression] = []
    for one in found:
        values += n * min(documents, len(one.shown.ids))
        if values > MOST_VALUES and listed:
            break
        listed.append(_impression(one, documents))
    answer = RecentImpressions(list(served.config.features), listed)
    return Response(schemas.encode(answer), media_type=JSON)


def _impression(one: RecentList, most: int) -> RecentImpression:
    shown, generated = one.shown, read_request_id(one.request)
    rows = shown.documents[:most].astype(np.float64).tolist()
    return RecentImpression(
        request=one.request,
        time=None if generated is None else round(generated.time * 1000),
        documents=[ShownDocument(*both) for both in zip(shown.ids, rows, strict=False)],
        documents_shown=len(shown.ids),
        submitted=shown.submitted[:most].tolist(),
        clicked=one.clicks.tolist(),
        explored=_explored(shown),
        duel=UNSET if shown.duel is None else True,
    )


def _explored(shown: Impression) -> bool:
    if shown.duel is not None:
        return True
    return shown.swaps.size > 0 if shown.swaps is not None else shown.odds is not None


@router.get(
    "/models/{name}/versions/{a}/diff/{b}",
    operation_id="diff_versions",
    summary="Compare two versions",
    dependencies=[requires("read")],
    response_model=None,
    responses=fast_answers(200, "VersionDiff", *COMMON_PROBLEMS, 404),
)
async def diff_versions(
    name: ModelName, a: AnyVersion, b: AnyVersion, service: FromState, request: Request
) -> Response:
    """Compare the weights of two versions; with the scope `admin` also how recent lists change."""
    served, scope = await service.weight_cache.find(known_name(name)), request.scope
    scope[HELD].add(2 * VERSION_WEIGHT_BYTES * served.config.n)
    versions = [await _version(service, name, version) for version in (a, b)]
    if {one.epoch for one in versions} != {served.epoch}:  # created again meanwhile
        raise NoSuchVersion
    found = None
    if "admin" in scope[KEY].scopes:
        tenant, held = scope[KEY].tenant, scope[HELD]
        found = await recent_lists(service, served, tenant, COMPARED_LISTS, held)
    return await asyncio.to_thread(_difference, (a, b), versions, found)


async def _version(service: Service, model: str, version: str) -> StoredWeights:
    if version == CURRENT:
        return await service.store.states.load_weights(model)
    number = version.isascii() and version.isdigit()
    try:
        return await service.store.versions.load_weights(model, int(version) if number else version)
    except ValueError:  # no name of a version
        raise NoSuchVersion from None


def _difference(
    asked: tuple[str, str], versions: list[StoredWeights], lists: list[RecentList] | None
) -> Response:
    a, b = (one.weights for one in versions)
    change = b - a
    columns = np.flatnonzero(change)
    columns = columns[np.argsort(-np.abs(change[columns]), kind="stable")]
    names, listed = versions[0].config.features, columns[:WEIGHTS_LISTED].tolist()
    rest = np.abs(change[columns[WEIGHTS_LISTED:]])
    answer = VersionDiff(
        ComparedVersion(versions[0].seq, _name(asked[0])),
        ComparedVersion(versions[1].seq, _name(asked[1])),
        [WeightDifference(names[k], float(a[k]), float(b[k]), float(change[k])) for k in listed],
        DifferenceRest(len(rest), float(rest.max(initial=0.0))),
        None if lists is None else [_reordered(one, a, b) for one in lists],
    )
    return Response(schemas.encode(answer), media_type=JSON)


def _name(version: str) -> str | None:
    return None if version == CURRENT or version.isdigit() else version


def _reordered(one: RecentList, a: Floats, b: Floats) -> ReorderedList:
    """Order the documents shown by two versions; ties keep the submitted order."""
    shown = one.shown
    submitted = np.argsort(shown.submitted, kind="stable")
    rows, ids = shown.documents[submitted], [shown.ids[at] for at in submitted.tolist()]
    first, second = (serving.order(candidates.scores(rows, weights)) for weights in (a, b))
    return ReorderedList(
        one.request,
        len(ids),
        int((first != second).sum()),
        *([ids[at] for at in order[:COMPARED_IDS].tolist()] for order in (first, second)),
    )
