"""`/models/{name}/duel`: which of two sides ranks better, by interleaved lists."""

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body

from app.api.admin_routing import AdminRoute
from app.api.auth import requires
from app.api.dependencies import FromState, Service
from app.api.duel_answers import describe_duel, promotion_warning, verdict_of
from app.api.duel_bodies import DuelVersion, NewDuel, NewPromotion
from app.api.duel_schemas import DuelDetails, PromotionRecord
from app.api.errors import Problem
from app.api.examples import NEW_DUELS, PROMOTIONS
from app.api.openapi import BODY_PROBLEMS, COMMON_PROBLEMS, problems
from app.api.routers.models import ModelName, append_record, known_name
from app.domain.duels import FOLLOWERS, SUBMITTED, VERSION, Duel, DuelState, EndDuel, Tournament
from app.domain.names import unknown_name
from app.errors import Changed, Fenced, InvalidInput, NoSuchVersion
from app.learning.promotion import fold_in_process, promote
from app.ranking.interleaving import SECOND
from app.serving.served_model import ServedModel

router = APIRouter(route_class=AdminRoute, tags=["duels"])

#: Seconds until a record must be learnt; after them the answer is 503.
FOLDED_SECONDS = 10.0
#: Attempts to end a tournament whose steps come first.
_ATTEMPTS = 5
STEP_FIRST = "duel: the tournament went a step further at the same time; retry after 1 second"
NO_DUEL = "duel: the model has had none; PUT /models/{name}/duel begins one"
NOT_ON = "duel: none is on; GET /models/{name}/duel describes the last one"
#: Ends of a duel after which its verdict still holds.
JUDGED_ENDS = ("ended", "finished")
BEHIND = "the challenger has not caught up with the log within 10 s; retry after 1 second"
READ_AGAIN = "GET /models/{name}/duel describes it, then promote again"
DUEL_CHANGED = f"duel: the model or its duel has changed since; {READ_AGAIN}"
IS_ON = "duel: another one is on; end it with DELETE /models/{name}/duel"


@router.put(
    "/models/{name}/duel",
    operation_id="begin_duel",
    summary="Begin a duel",
    dependencies=[requires("admin")],
    status_code=201,
    response_model=DuelDetails,
    responses=problems(*BODY_PROBLEMS, 404, 409),
)
async def begin_duel(
    name: ModelName,
    body: Annotated[NewDuel, Body(openapi_examples=NEW_DUELS)],
    service: FromState,
) -> Any:
    """Begin a duel of a model with a follower, a kept version or the submitted order.

    A share of the requests gets both orders interleaved, and clicks tell which side is better. The
    verdict holds however often you look. With the challenger `followers` it is a tournament of all
    followers.
    """
    served = await service.weight_cache.newest(known_name(name))
    if served.duel is not None and served.duel.is_on:
        raise Problem(409, IS_ON)
    record = await _duel(service, served, body)
    seq = (await append_record(service, name, record, served.epoch))["seq"]
    now = await _learnt(service, name, seq)
    if now.duel is None or _begun_at(now.duel) != seq:
        raise Problem(409, IS_ON)
    return await _described(service, now, now.duel)


async def _duel(service: Service, served: ServedModel, body: NewDuel) -> Duel:
    """Return the record of a duel; InvalidInput or 409 if it is impossible."""
    challenger = body.challenger
    if challenger == FOLLOWERS:
        return await _tournament(service, served, body)
    for field in ("max_lists", "promote"):
        if field in body.model_fields_set:
            raise InvalidInput(f"{field}: expected none, unless the challenger is {FOLLOWERS}")
    if isinstance(challenger, DuelVersion):
        await _keep(service, served, challenger.version)
        return Duel(VERSION, body.share, body.alpha, challenger.version)
    if challenger != SUBMITTED:
        await _check_follower(service, served.name, challenger)
    return Duel(challenger, body.share, body.alpha)


async def _keep(service: Service, served: ServedModel, version: int) -> None:
    """Keep a version as long as its duel is on."""
    try:
        await service.store.versions.keep_for_duel(served.name, served.epoch, version)
    except NoSuchVersion:
        raise InvalidInput(
            f"challenger.version: expected a kept version, got {version}; "
            "GET /models/{name}/versions lists them"
        ) from None


async def _check_follower(service: Service, leader: str, name: str) -> None:
    """Raise InvalidInput unless this is a follower of the model; 409 if it is stalled."""
    followers = await service.store.followers.of(leader)
    if name not in followers:
        known = [SUBMITTED, FOLLOWERS, *followers]
        raise InvalidInput(f"challenger: {unknown_name('follower', name, known)}")
    if followers[name]:
        raise Problem(
            409, f"challenger: {name} is stalled; delete it and create it again, then it may duel"
        )


async def _tournament(service: Service, served: ServedModel, body: NewDuel) -> Duel:
    """Return the record of the first duel of a tournament of all followers."""
    followers = await service.store.followers.of(served.name)
    names = tuple(name for name, stalled in followers.items() if not stalled)
    if not names:
        raise InvalidInput("challenger: expected followers, got a model without any that may duel")
    if body.max_lists is None or body.max_lists < len(names):
        got = "none" if body.max_lists is None else str(body.max_lists)
        raise InvalidInput(
            f"max_lists: expected at least {len(names)}, one for each follower, got {got}"
        )
    found = Tournament(0, 0, names, body.max_lists, body.alpha, bool(body.promote))
    return Duel(names[0], body.share, found.alpha_each, tournament=found)


async def _learnt(service: Service, name: str, seq: int) -> ServedModel:
    """Return the model once it has learnt a record; 503 if that takes too long."""
    found = await service.weight_cache.reach(name, seq, FOLDED_SECONDS)
    if found is None:
        raise Problem(
            503, "the learner is behind: the change comes later; GET /models/{name}/duel shows it"
        )
    return found


def _begun_at(duel: DuelState) -> int:
    """Return the seq of the record by which a request has begun a duel or a tournament."""
    tournament = duel.tournament()
    return duel.id if tournament is None else tournament.id


async def _described(service: Service, served: ServedModel, duel: DuelState) -> dict[str, Any]:
    ready = service.weight_cache.sides(served) is not None
    return await asyncio.to_thread(describe_duel, served.name, duel, ready=ready)


@router.get(
    "/models/{name}/duel",
    operation_id="get_duel",
    summary="Read a duel",
    dependencies=[requires("read")],
    response_model=DuelDetails,
    responses=problems(*COMMON_PROBLEMS, 404, 409),
)
async def get_duel(name: ModelName, service: FromState) -> Any:
    """Read the duel of a model that is on, or the last one; 404 if there was none."""
    served = await service.weight_cache.newest(known_name(name))
    if served.duel is None:
        raise Problem(404, NO_DUEL)
    return await _described(service, served, served.duel)


@router.delete(
    "/models/{name}/duel",
    operation_id="end_duel",
    summary="End a duel",
    dependencies=[requires("admin")],
    response_model=DuelDetails,
    responses=problems(*COMMON_PROBLEMS, 404, 409),
)
async def end_duel(name: ModelName, service: FromState) -> Any:
    """End the duel that is on; later clicks on its lists no longer count."""
    served = await service.weight_cache.newest(known_name(name))
    if served.duel is None or not served.duel.is_on:
        raise Problem(404, NO_DUEL if served.duel is None else NOT_ON)
    found, begun = served.duel, _begun_at(served.duel)
    for _ in range(_ATTEMPTS):
        seq = (await append_record(service, name, EndDuel(found.id), served.epoch))["seq"]
        now = await _learnt(service, name, seq)
        found = now.duel or found
        if not found.is_on or _begun_at(found) != begun:
            return await _described(service, now, found)
    raise Problem(503, STEP_FIRST)


@router.post(
    "/models/{name}/duel/promote",
    operation_id="promote_challenger",
    summary="Promote the challenger",
    dependencies=[requires("admin")],
    status_code=202,
    response_model=PromotionRecord,
    responses=problems(*BODY_PROBLEMS, 404, 409),
)
async def promote_challenger(
    name: ModelName,
    body: Annotated[NewPromotion, Body(openapi_examples=PROMOTIONS)],
    service: FromState,
) -> Any:
    """Put the challenger that has won in place of the model, which ends the duel.

    It brings its algorithm, its hyper-parameters and its weights, after all records so far; the
    followers stay. Without a verdict for it the answer is 409, unless you `force` it. Send the
    `challenger` and the `duel` that you have read, so that a step of a tournament changes nothing.
    """
    served = await service.weight_cache.newest(known_name(name))
    if served.duel is None:
        raise Problem(404, NO_DUEL)
    winner = _confirmed(served.duel, body)
    if isinstance(winner, str):
        await _check_follower(service, name, winner)
    begin = partial(fold_in_process, service.trial_runner.exchanges)
    try:
        async with service.holding(served.config):
            seq = await promote(service.store, name, winner, begin, judged=served.duel)
    except Fenced:
        raise Problem(503, BEHIND) from None
    except Changed:
        raise Problem(409, DUEL_CHANGED) from None
    now = await service.weight_cache.reach(name, seq, FOLDED_SECONDS)  # in the log, served or not
    return {"seq": seq, "warning": now and promotion_warning(now.config)}


def _confirmed(duel: DuelState, body: NewPromotion) -> str | int:
    """Return the follower or the version to promote; 409 if the request expects another one.

    A tournament may go a step further after a client has read it.
    """
    if body.duel not in (None, duel.id):
        raise Problem(409, f"duel: the model's duel is {duel.id}; {READ_AGAIN}")
    winner = _winner(duel, force=body.force)
    given = body.challenger
    expected = given.version if isinstance(given, DuelVersion) else given
    if expected not in (None, winner):
        side = f"version {winner}" if isinstance(winner, int) else winner
        raise Problem(409, f"challenger: {side} would be promoted; {READ_AGAIN}")
    return winner


def _winner(duel: DuelState, *, force: bool) -> str | int:
    """Return the follower or the version to promote; 409 if there is none."""
    settings = duel.settings
    if settings.challenger == SUBMITTED:
        raise InvalidInput("challenger: the submitted order cannot be promoted; it has no weights")
    if duel.why not in ("", *JUDGED_ENDS):
        raise Problem(409, f"duel: it has ended by a {duel.why}; begin another one")
    if settings.tournament is not None:
        return _winner_of_tournament(duel, force=force)
    if duel.verdict != SECOND and not force:
        verdict = verdict_of(duel)
        raise Problem(409, f'verdict: expected challenger, got {verdict}; or send "force": true')
    return settings.challenger if settings.version is None else settings.version


def _winner_of_tournament(duel: DuelState, *, force: bool) -> str:
    """Return the follower that is ahead; only with `force` before the end of the tournament."""
    settings = duel.settings
    ahead = settings.challenger if duel.verdict == SECOND else settings.champion
    if not force and (duel.is_on or not ahead):
        why = "the tournament goes on" if duel.is_on else "the model itself is ahead"
        raise Problem(409, f'verdict: expected a winner, but {why}; or send "force": true')
    return ahead or settings.challenger
