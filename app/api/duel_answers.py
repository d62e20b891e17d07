"""Duels as plain fields for JSON. Curves take up to 50 ms: compute them in a thread."""

from math import exp
from typing import Any

from app.domain.duels import VERSION, Duel, DuelResult, DuelState, results
from app.domain.model_config import EXPLORING, ModelConfig
from app.ranking import evidence
from app.ranking.interleaving import FIRST, SECOND

_VERDICTS = {FIRST: "champion", SECOND: "challenger", 0: "undecided"}
#: The exponent of the largest evidence in an answer.
_MOST = 690.0


def describe_duel(model: str, duel: DuelState, *, ready: bool) -> dict[str, Any]:
    """Return a duel of a model as fields; `ready` says whether lists show both sides."""
    settings = duel.settings
    won = _decided(duel.won, duel.lost, settings.alpha)
    return {
        "id": duel.id,
        "champion": settings.champion or model,
        "challenger": challenger_of(settings),
        "share": settings.share,
        "alpha": settings.alpha,
        "ended": {"seq": duel.ended, "why": duel.why} if duel.ended else None,
        "ready": ready and duel.is_on,
        "lists": duel.lists,
        "wins": duel.wins,
        "losses": duel.losses,
        "ties": duel.lists - duel.wins - duel.losses,
        **won,
        "evidence": duel.evidence,
        "p_value": 1.0 / duel.largest,
        "verdict": verdict_of(duel),
        "lists_to_go": _lists_to_go(duel),
        "curve": [_point(*point, settings.alpha) for point in _curve(duel)],
        "tournament": _tournament(model, duel),
    }


def summarize_duel(model: str, duel: DuelState) -> dict[str, Any]:
    """Return the fields of a duel in the description of its model."""
    return {
        "champion": duel.settings.champion or model,
        "challenger": challenger_of(duel.settings),
        "decided": duel.decided,
        "win_share": duel.won / duel.decided if duel.decided else None,
        "verdict": verdict_of(duel),
        "ended": not duel.is_on,
    }


def promotion_warning(config: ModelConfig) -> str | None:
    """Return what to change if a promoted model learns from randomised rankings, and has none.

    A promotion leaves rankings as randomised as they were.
    """
    if config.clicks not in EXPLORING or config.explores:
        return None
    wanted = {"explore": "true"} if config.explore is False else {}
    if config.exploration == 0.0:
        wanted["exploration"] = "1"
    fields = ", ".join(f'"{name}": {value}' for name, value in wanted.items())
    return (
        f"{config.clicks} learns from randomised rankings only, and the model's are not: "
        f"PATCH /models/{{name}} {{{fields}}} randomises them"
    )


def verdict_of(duel: DuelState) -> str:
    """Return which side is better, in words."""
    return _VERDICTS[duel.verdict]


def challenger_of(settings: Duel) -> Any:
    """Return the challenger as a request names it."""
    return {"version": settings.version} if settings.challenger == VERSION else settings.challenger


def _decided(won: int, lost: int, alpha: float) -> dict[str, Any]:
    """Return what decided lists say of the champion's share of them."""
    decided = won + lost
    return {
        "decided": decided,
        "win_share": won / decided if decided else None,
        "interval": evidence.interval(won, lost, alpha),
    }


def _lists_to_go(duel: DuelState) -> int | None:
    if duel.verdict:
        return 0
    return evidence.lists_to_go(duel.won, duel.lost, duel.settings.alpha)


def _curve(duel: DuelState) -> tuple[tuple[int, int, int], ...]:
    """Return the points of a duel, with the present one if a list was decided since the last."""
    now = duel.lists, duel.won, duel.lost
    behind = duel.decided > 0 and duel.curve[-1:] != (now,)
    return (*duel.curve, now) if behind else duel.curve


def _point(lists: int, won: int, lost: int, alpha: float) -> dict[str, Any]:
    found = exp(min(_MOST, evidence.log_evidence(won, lost)))
    return {"lists": lists, "evidence": found, **_decided(won, lost, alpha)}


def _tournament(model: str, duel: DuelState) -> dict[str, Any] | None:
    tournament = duel.tournament()
    if tournament is None:
        return None
    settings = duel.settings
    ahead = settings.challenger if duel.verdict == SECOND else settings.champion
    return {
        "id": tournament.id,
        "step": tournament.step,
        "followers": list(tournament.followers),
        "max_lists": tournament.max_lists,
        "alpha": tournament.alpha,
        "promote": tournament.promote,
        "ahead": ahead or model,
        "table": [_row(model, one, settings.alpha) for one in results(duel)],
    }


def _row(model: str, result: DuelResult, alpha: float) -> dict[str, Any]:
    return {
        "champion": result.champion or model,
        "challenger": result.challenger,
        "lists": result.lists,
        **_decided(result.won, result.lost, alpha),
        "p_value": 1.0 / result.largest,
        "verdict": _VERDICTS[result.verdict],
    }
