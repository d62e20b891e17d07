"""Examples of request bodies for `/docs`."""

from typing import Any

from app.api.routing import JSON, MSGPACK, TEXT

_REFERENCE = "#/components/schemas/"
_DOCUMENTS = [
    {"id": "d1", "features": {"bm25": 7.1, "price": 12.5}},
    {"id": "d7", "features": [9.8, 3.0]},
]
_REQUEST = "books.01970000-0000-7000-8000-000000000000"


def _body(schemas: tuple[str, ...], examples: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    references = [{"$ref": f"{_REFERENCE}{name}"} for name in schemas]
    return {
        "schema": references[0] if len(references) == 1 else {"anyOf": references},
        "examples": {
            name: {"summary": summary, "value": value}
            for name, (summary, value) in examples.items()
        },
    }


RANK_BODIES = {
    "required": True,
    "content": {
        JSON: _body(("RankBody",), {
            "objects": ("Documents as objects", {
                "model": "books", "query_id": "q-123", "documents": _DOCUMENTS, "top_k": 10,
            }),
            "columns": ("Ids and features as columns", {
                "model": "books", "ids": ["d1", "d7"], "features": [[7.1, 12.5], [9.8, 3.0]],
            }),
            "own_request_id": ("Documents with your own request_id", {
                "model": "books", "request_id": "page-1", "documents": _DOCUMENTS,
            }),
        }),
        MSGPACK: {"schema": {"$ref": f"{_REFERENCE}BinaryRankBody"}},
    },
}  # fmt: skip

_CLICKS = {"event_id": "e1", "type": "clicks", "request_id": _REQUEST, "clicked": ["d7"]}
_LABELS = {
    "event_id": "e2", "type": "labels", "model": "books", "labels": {"d7": 2, "d1": 0},
    "documents": _DOCUMENTS,
}  # fmt: skip
_TRIPLETS = {
    "event_id": "e3", "type": "triplets", "model": "books", "triplets": [["d7", "d1"]],
    "documents": _DOCUMENTS,
}  # fmt: skip
FEEDBACK_BODIES = {
    "required": True,
    "content": {
        JSON: _body(("ClicksEvent", "TripletsEvent", "LabelsEvent", "EventBatch"), {
            "clicks": ("Clicks on a ranking: insert the request_id of a /rank answer", _CLICKS),
            "own_request_id": ("Clicks with your own request_id: the model is required", {
                "event_id": "e4", "type": "clicks", "model": "books", "request_id": "page-1",
                "clicked": ["d7"],
            }),
            "labels": ("Labels, with the documents in the event", _LABELS),
            "triplets": ("Preferences, with the documents in the event", _TRIPLETS),
            "batch": ("A batch of events of one model", {
                "model": "books", "events": [
                    {"event_id": "e5", "type": "clicks", "request_id": "page-1",
                     "clicked": ["d7"]},
                    {"event_id": "e6", "type": "labels", "labels": {"d7": 2},
                     "documents": _DOCUMENTS},
                ],
            }),
        }),
    },
}  # fmt: skip

BEACON_BODIES = {
    "required": True,
    "content": {
        kind: _body(("Beacons",), {
            "click": ("A click on the list of a token", {
                "events": [{"token": "1.k1.t3kz9c.Ym9va3MAcGFnZS0x.q0nY0kA6cX2mJ9cYb1Q2Zw",
                            "clicked": ["d7"]}],
            }),
        })
        for kind in (JSON, TEXT)
    },
}  # fmt: skip

PREFER = {
    "name": "Prefer", "in": "header", "schema": {"type": "string"}, "example": "wait=5",
    "description": "`wait=5`: answer 200 once the feedback is learnt, or 202 after 5 seconds",
}  # fmt: skip

NEW_MODELS: dict[str, Any] = {
    "named": {"summary": "Features by name", "value": {
        "algorithm": "solar-ii", "features": ["bm25", "price"], "gamma": 1e4,
        "normalization": "query-minmax",
    }},
    "counted": {"summary": "46 features, f1 to f46, diagonal covariance", "value": {
        "features": 46, "covariance": "diagonal",
    }},
    "follower": {"summary": "A follower of books that learns faster", "value": {
        "follows": "books", "gamma": 1e3,
    }},
}  # fmt: skip
FOLLOWER_BANKS: dict[str, Any] = {
    "grid": {"summary": "Four followers: two values of gamma, two readings of clicks", "value": {
        "grid": {"gamma": [1e3, 1e4], "clicks": ["debiased", "click-skip-above"]},
    }},
}  # fmt: skip
NEW_DUELS: dict[str, Any] = {
    "submitted": {"summary": "Against the submitted order", "value": {
        "challenger": "submitted", "share": 0.2,
    }},
    "follower": {"summary": "Against a follower", "value": {"challenger": "books-b"}},
    "version": {"summary": "Against a kept version", "value": {"challenger": {"version": 0}}},
    "tournament": {"summary": "A tournament of all followers", "value": {
        "challenger": "followers", "max_lists": 50_000, "promote": True,
    }},
}  # fmt: skip
PROMOTIONS: dict[str, Any] = {
    "verdict": {"summary": "If the challenger has won", "value": {"challenger": "books-b"}},
    "force": {"summary": "Without a verdict", "value": {"force": True}},
    "duel": {"summary": "If the duel is still the one that was read", "value": {"duel": 815}},
}
PATCHES: dict[str, Any] = {
    "gamma": {"summary": "Larger steps from now on", "value": {"gamma": 1e3}},
    "explore": {"summary": "No exploration: rank by score alone", "value": {"explore": False}},
    "exploration": {"summary": "Half as much exploration", "value": {"exploration": 0.5}},
    "pair_bound": {"summary": "A bound of pairs for a model of 46 features without one",
                   "value": {"pair_bound": 920}},
}  # fmt: skip
ROLLBACKS: dict[str, Any] = {
    "first": {"summary": "The first version", "value": {"version": 0}},
    "named": {"summary": "A named version", "value": {"version": "before-sale"}},
}
NEW_VERSIONS: dict[str, Any] = {
    "named": {"summary": "The present state", "value": {"name": "before-sale"}}
}
_JUDGED = {
    "queries": [{"documents": [{"label": 2, "features": {"bm25": 9.8, "price": 3.0}},
                               {"label": 0, "features": [7.1, 12.5]}]}],
    "C": 0.01,
}  # fmt: skip
COMPARE_BODIES = {
    "required": True,
    "content": {
        JSON: _body(("CompareBody",), {
            "two": ("Why d7 and d1 have different scores", {
                "documents": _DOCUMENTS, "first": "d7", "second": "d1",
            }),
        }),
    },
}  # fmt: skip
WHAT_IF_BODIES = {
    "required": True,
    "content": {
        JSON: _body(("WhatIfBody",), {
            "click": ("A click on d7", {"documents": _DOCUMENTS, "clicks": ["d7"]}),
        }),
    },
}  # fmt: skip
_BINARY = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
WARM_START_BODIES = {
    "required": True,
    "content": {
        JSON: _body(("WarmStartBody", "ShardsBody"), {
            "judged": ("Judged queries", _JUDGED),
        }),
        "text/plain": {
            "schema": {"type": "string", "minLength": 1},
            "examples": {
                "letor": {"summary": "LETOR text", "value": "2 qid:1 1:9.8 2:3\n0 qid:1 1:7.1\n"},
            },
        },
        "application/gzip": _BINARY,
        "application/x-xz": _BINARY,
    },
}  # fmt: skip
