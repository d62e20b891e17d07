"""Feature vectors that the LTR plugins of Elasticsearch and OpenSearch log, as documents of /rank.

Written from the documentation of the plugins; not run against an engine.
"""

from collections.abc import Iterable, Mapping
from typing import Any

#: Our names of the `sltr` query and of the log entry.
QUERY, ENTRY = "solar_features", "solar"


def search_body(
    query: Mapping[str, Any], featureset: str, params: Mapping[str, Any], size: int = 100
) -> dict[str, Any]:
    """Return a search that also logs the features of each hit.

    A filter does not change the scores, and the query of the feature set matches every document.
    """
    features = {"_name": QUERY, "featureset": featureset, "params": params}
    log = {"name": ENTRY, "named_query": QUERY, "missing_as_zero": True}
    return {
        "size": size,
        "query": {"bool": {"must": [query], "filter": [{"sltr": features}]}},
        "ext": {"ltr_log": {"log_specs": log}},
    }


def documents(answer: Mapping[str, Any], entry: str = ENTRY) -> list[dict[str, Any]]:
    """Return the hits of an answer in the order of the engine, with their logged features.

    A feature without a value did not match; it is left out, and SOLAR takes 0.

    >>> logged = [{"name": "title", "value": 9.5}, {"name": "age"}]
    >>> hit = {"_id": "1370", "fields": {"_ltrlog": [{"solar": logged}]}}
    >>> documents({"hits": {"hits": [hit]}})
    [{'id': '1370', 'features': {'title': 9.5}}]
    """
    return [
        {"id": hit["_id"], "features": _values(_entries(hit).get(entry, ()))}
        for hit in answer["hits"]["hits"]
    ]


def _entries(hit: Mapping[str, Any]) -> dict[str, Any]:
    """Return all log entries of a hit, by name."""
    logs = hit.get("fields", {}).get("_ltrlog", ())
    return {name: values for one in logs for name, values in one.items()}


def _values(logged: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    return {one["name"]: one["value"] for one in logged if one.get("value") is not None}
