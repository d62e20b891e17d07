"""Requests and rewards of Azure Personalizer, as bodies of /rank and events of /feedback.

Written from the documentation of Personalizer 1.0 and 1.1; not run against the service. Both APIs
name an action; here it is a document.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Features = Iterable[Mapping[str, Any]]
#: The gain of a reward of 1: that of a purchase.
MOST_GAIN = 4.0


def rank_body(
    request: Mapping[str, Any], model: str, names: Sequence[str], top_k: int
) -> dict[str, Any]:
    """Return the body of /rank for a rank request.

    `names` are the features of the model (`feature_names`); others are left out. Excluded actions
    are not sent. `top_k` is the number of actions that the user sees.
    """
    excluded = set(request.get("excludedActions", ()))
    actions = [one for one in request["actions"] if one["id"] not in excluded]
    documents = [_document(one, request, names) for one in actions]
    body = {"model": model, "top_k": top_k, "documents": documents}
    return body | ({"request_id": request["eventId"]} if request.get("eventId") else {})


def _document(
    action: Mapping[str, Any], request: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    found = features_of(action.get("features", ()), request.get("contextFeatures", ()))
    return {"id": action["id"], "features": {name: found[name] for name in names if name in found}}


def feature_names(requests: Iterable[Mapping[str, Any]], most: int = 2_000) -> list[str]:
    """Return the features of a model for these requests, in alphabetical order.

    Give it the requests of some days. ValueError if there are more than `most`.
    """
    found = {
        name
        for request in requests
        for action in request["actions"]
        for name in features_of(action.get("features", ()), request.get("contextFeatures", ()))
    }
    if len(found) > most:
        raise ValueError(f"features: expected at most {most}, got {len(found)}")
    return sorted(found)


def features_of(action: Features, context: Features) -> dict[str, float]:
    """Return the features of an action in a context as numbers.

    The context is the same for all actions of a request, so alone it changes no order. It counts
    by its products with the features of the action.

    >>> features_of([{"topic": "news", "minutes": 3}], [{"phone": True}])
    {'topic=news': 1.0, 'minutes': 3.0, 'topic=news*phone': 1.0, 'minutes*phone': 3.0}
    """
    own, shared = dict(_numbers(action)), dict(_numbers(context))
    crossed = {
        f"{name}*{other}": value * factor
        for name, value in own.items()
        for other, factor in shared.items()
    }
    return own | crossed


def _numbers(features: Features) -> Iterator[tuple[str, float]]:
    for group in features:
        for name, value in group.items():
            yield from _number(name, value)


def _number(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield numbers as they are, a text or each of a list as 1, and what is nested by its path."""
    if isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _number(f"{name}.{inner}", one)
    elif isinstance(value, str):
        yield f"{name}={value}", 1.0
    elif isinstance(value, int | float):
        yield name, float(value)
    elif value is not None:
        for one in value:
            yield f"{name}={one}", 1.0


def rank_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of /rank in the form of Personalizer, without probabilities."""
    shown = [{"id": one["id"]} for one in answer["documents"]]
    return {"eventId": answer["request_id"], "ranking": shown, "rewardActionId": shown[0]["id"]}


def reward_event(model: str, event_id: str, action: str, value: float) -> dict[str, Any]:
    """Return the event of /feedback for a reward of an action that was shown.

    A reward of 0 or less is a list without a click. The id of the event names the reward, so a
    repeated one counts once. Of several rewards the largest counts: send the sum so far.
    """
    event = {"type": "clicks", "model": model, "request_id": event_id}
    identity = f"reward:{event_id}:{action}:{value}"
    if value <= 0:
        return {**event, "event_id": identity, "clicked": []}
    gain = min(value, 1.0) * MOST_GAIN
    return {**event, "event_id": identity, "clicked": [action], "gains": {action: gain}}
