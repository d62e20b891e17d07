"""Duels as plain fields of blobs (`codec.py`), and back; BadBlob if the fields are impossible."""

import sys
from dataclasses import asdict
from typing import Any

from app.domain.duels import Duel, DuelResult, DuelState, EndDuel, Tournament
from app.errors import BadBlob

_COUNTS = ("id", "lists", "wins", "losses", "won", "lost", "ended")
_LARGEST = sys.float_info.max
_TYPES = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}


def dump_duel(duel: Duel) -> dict[str, Any]:
    """Return a duel's settings as fields, without those that have their default."""
    found = asdict(duel)
    for name, default in (("version", None), ("champion", ""), ("tournament", None)):
        if found[name] == default:
            del found[name]
    if duel.tournament is not None:
        found["tournament"]["followers"] = list(duel.tournament.followers)
    return found


def load_duel(fields: dict[str, Any]) -> Duel:
    """Invert `dump_duel`."""
    left = dict(fields)
    found = Duel(
        _take(left, "challenger", str), _take(left, "share", float), _take(left, "alpha", float),
        _take(left, "version", int) if "version" in left else None,
        _take(left, "champion", str) if "champion" in left else "",
        _load_tournament(left.pop("tournament", None)),
    )  # fmt: skip
    _expect_none(left)
    return found


def _load_tournament(fields: Any) -> Tournament | None:
    if fields is None:
        return None
    left = _object(fields)
    followers = left.pop("followers", None)
    if type(followers) is not list or not all(type(one) is str for one in followers):
        raise BadBlob("followers: expected a list of names")
    found = Tournament(
        _take(left, "id", int), _take(left, "step", int), tuple(followers),
        _take(left, "max_lists", int), _take(left, "alpha", float), _take(left, "promote", bool),
    )  # fmt: skip
    _expect_none(left)
    if not 0 <= found.step < len(followers):
        raise BadBlob("step: expected that of a follower of the tournament")
    return found


def dump_end(record: EndDuel) -> dict[str, Any]:
    """Return the end of a duel as fields."""
    return {"duel": record.duel, "why": record.why}


def load_end(fields: dict[str, Any]) -> EndDuel:
    """Invert `dump_end`."""
    left = dict(fields)
    found = EndDuel(_take(left, "duel", int), _take(left, "why", str))
    _expect_none(left)
    return found


def dump_duel_state(duel: DuelState) -> dict[str, Any]:
    """Return the state of a duel as fields."""
    return {
        **{name: getattr(duel, name) for name in _COUNTS},
        "settings": dump_duel(duel.settings),
        "evidence": duel.evidence,
        "largest": duel.largest,
        "verdict": duel.verdict,
        "why": duel.why,
        "curve": [list(point) for point in duel.curve],
        "results": [list(result) for result in duel.results],
    }


def load_duel_state(fields: Any) -> DuelState:
    """Invert `dump_duel_state`."""
    left = _object(fields)
    counts = {name: _take(left, name, int) for name in _COUNTS}
    found = DuelState(
        **counts,
        settings=load_duel(_object(left.pop("settings", None))),
        evidence=_take(left, "evidence", float),
        largest=_take(left, "largest", float),
        verdict=_take(left, "verdict", int),
        why=_take(left, "why", str),
        curve=tuple(_point(one) for one in _list(left.pop("curve", None))),
        results=tuple(_result(one) for one in _list(left.pop("results", None))),
    )
    _expect_none(left)
    if min(counts.values()) < 0 or found.verdict not in (-1, 0, 1):
        raise BadBlob("duel: expected counts from 0, and a verdict of -1, 0 or 1")
    return found


def _point(found: Any) -> tuple[int, int, int]:
    lists, won, lost = _numbers(found, (int,) * 3)
    return lists, won, lost


def _result(found: Any) -> DuelResult:
    return DuelResult(*_numbers(found, (str, str, *(int,) * 5, float, int)))


def _numbers(found: Any, kinds: tuple[type, ...]) -> list[Any]:
    values = _list(found)
    if len(values) != len(kinds):
        raise BadBlob(f"expected {len(kinds)} values")
    left = {str(at): value for at, value in enumerate(values)}
    return [_take(left, str(at), kind) for at, kind in enumerate(kinds)]


def _take(left: dict[str, Any], name: str, kind: type) -> Any:
    """Remove a field of this type and return it."""
    value = left.pop(name, None)
    if type(value) not in _TYPES[kind] or (kind is float and not abs(value) <= _LARGEST):
        raise BadBlob(f"{name}: expected {kind.__name__}")
    return float(value) if kind is float else value


def _object(found: Any) -> dict[str, Any]:
    if type(found) is not dict:
        raise BadBlob("duel: expected an object")
    return dict(found)


def _list(found: Any) -> list[Any]:
    if type(found) is not list:
        raise BadBlob("duel: expected a list")
    return found


def _expect_none(left: dict[str, Any]) -> None:
    """Refuse unknown fields."""
    if left:
        raise BadBlob(f"expected no field {min(left)[:40]!r}")
