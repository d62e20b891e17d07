"""Every path, who may take it, and what the documentation says of it."""

from app.api.routers import jobs, models
from app.api.routers.feedback import post_feedback
from app.api.routers.rank import post_rank
from app.api.routing import JSON, MSGPACK, TEXT, Route

_DOCUMENTS = [
    {"id": "d1", "features": {"bm25": 7.1, "price": 12.5}},
    {"id": "d7", "features": [9.8, 3.0]},
]
_REQUEST = "books.01970000-0000-7000-8000-000000000000"
_RANKED = {
    "request_id": _REQUEST, "query_id": "q-123", "model": "books", "version": 812,
    "explored": False, "logged": True, "degraded": False,
    "documents": [{"id": "d7", "rank": 1, "score": 1.92}, {"id": "d1", "rank": 2, "score": 0.3}],
}  # fmt: skip
_RECEIVED = {"accepted": 1, "duplicates": 0, "rejected": 0, "seq": 815, "errors": []}
_MODEL = {
    "algorithm": "solar-ii", "features": ["bm25", "price"], "gamma": 1e4,
    "normalization": "query-minmax",
}  # fmt: skip
_JUDGED = {
    "queries": [{"documents": [{"label": 2, "features": {"bm25": 9.8, "price": 3.0}},
                               {"label": 0, "features": [7.1, 12.5]}]}],
    "C": 0.01,
}  # fmt: skip
_JOB = {
    "id": "books.01970000-0000-7000-8000-000000000000", "model": "books", "state": "running",
    "begun": 1735689600.0,
    "training": {"trainer": "ranksvm", "loss": "l2", "C": 0.01, "by": "ndcg@10"},
    "progress": {"queries": 471, "documents": 9630},
}  # fmt: skip
_DONE = _JOB | {
    "state": "done",
    "progress": {"parameter": 0.01, "iteration": 4, "objective": 311.2, "distance": 0.4,
                 "ndcg@10": 0.51},
    "result": {"C": 0.01, "iterations": 5, "converged": True, "zeros": 0.0, "ndcg@10": 0.51,
               "seconds": 0.2, "seq": 818},
}  # fmt: skip


_COMMON = (401, 403, 503)
_BODY = (400, 408, 413, 415, 422, *_COMMON)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST", "/rank", "rank", post_rank,
        "Documents in the order of the model. `features` by name or as a list; `ids` and "
        "`features` as columns; in msgpack as raw little-endian float32 rows.",
        (200, 404, *_BODY), {JSON: ("RankBody",), MSGPACK: ("BinaryRankBody",)},
        {"model": "books", "query_id": "q-123", "documents": _DOCUMENTS, "top_k": 10}, _RANKED,
    ),
    Route(
        "POST", "/feedback", "feedback", post_feedback,
        "What users did: one event, or many of one model. Repeating an event_id is safe. "
        "`Prefer: wait=5` answers 200 once it is learnt.",
        (200, 202, 404, 410, 429, *_BODY),
        {JSON: ("Clicks", "Triplets", "Labels", "Events")},
        {"event_id": "e1", "type": "clicks", "request_id": _REQUEST, "clicked": ["d7"]}, _RECEIVED,
    ),
    Route("GET", "/models", "admin", models.list_models, "All models.", (200, *_COMMON),
          answer={"models": [{"name": "books", "algorithm": "solar-ii", "features": 2,
                              "version": 812, "seq": 815}]}),
    Route(
        "PUT", "/models/{name}", "admin", models.create,
        "Create a model. The same settings once more are fine (200).",
        (200, 201, 409, *_BODY), {JSON: ("NewModel",)}, _MODEL,
        {"name": "books", "version": 0, "seq": 0, "weights": {"bm25": 0.0, "price": 0.0}},
    ),
    Route("GET", "/models/{name}", "admin", models.get_model, "A model with what it learnt.",
          (200, 404, *_COMMON)),
    Route(
        "PATCH", "/models/{name}", "admin", models.tune, "Other hyper-parameters: a record.",
        (202, 404, *_BODY), {JSON: ("Tuning",)}, {"gamma": 1e3}, {"seq": 816},
    ),
    Route("DELETE", "/models/{name}", "admin", models.delete, "End a model.",
          (204, 404, *_COMMON)),
    Route("GET", "/models/{name}/versions", "admin", models.versions, "The versions kept.",
          (200, 404, *_COMMON), answer={"versions": [{"version": 0}, {"version": 10000}]}),
    Route(
        "POST", "/models/{name}/rollback", "admin", models.rollback,
        "Back to a kept version: a record.", (202, 404, *_BODY), {JSON: ("Rollback",)},
        {"version": 10000}, {"seq": 817},
    ),
    Route(
        "POST", "/models/{name}/warm-start", "admin", jobs.warm_start,
        "Train on judged queries and go on from there: a job. LETOR/SVMlight text, plain or gzip, "
        "with options as ?loss=l2&C=0.01 or ?validation=0.2; or JSON.",
        (202, 404, 409, *_BODY), {JSON: ("WarmStart",), TEXT: ()}, _JUDGED, _JOB, uploads=True,
    ),
    Route("GET", "/jobs/{id}", "admin", jobs.get_job, "How a job goes.", (200, 404, *_COMMON),
          answer=_DONE),
    Route("DELETE", "/jobs/{id}", "admin", jobs.cancel, "Stop a job.", (202, 404, 409, *_COMMON),
          answer=_JOB),
    Route("POST", "/jobs/{id}/start", "admin", jobs.start,
          "Begin a job again that failed, with the same data.",
          (202, 404, 409, 413, 408, 415, 422, *_COMMON), answer=_JOB),
)  # fmt: skip
