"""Descriptions of schema fields in the OpenAPI document, by schema and field or by field alone.

A field can have its description in its schema instead; `tests/api/test_openapi_document.py` fails
for a field without one.
"""

from typing import Any

FIELDS = {
    # requests
    "query_id": "your id of the query",
    "request_id": "the request_id of the ranking, in the answer of /rank or your own",
    "documents": "the documents with their features",
    "features": "values in the model's order, or an object by name; an absent name is 0",
    "RankBody.documents": "documents as objects; instead of `ids` and `features`",
    "RankBody.ids": "document ids; with `features`, instead of `documents`",
    "RankBody.features": "a list of values for each id, in the model's order",
    "BinaryRankBody.ids": "document ids, one for each row of `features`",
    "BinaryRankBody.features": "rows of little-endian float32, one for each id",
    "ClicksEvent.type": "kind of event",
    "LabelsEvent.type": "kind of event",
    "TripletsEvent.type": "kind of event",
    "clicked": "ids of the clicked documents, in click order; empty: the user left without a click",
    "labels": "relevance by document id",
    "triplets": "preferences by document id",
    "LabelsEvent.documents": "documents to label, instead of a `request_id`",
    "TripletsEvent.documents": "documents to compare, instead of a `request_id`",
    "EventBatch.events": "events of one model",
    "label": "relevance of the document",
    "queries": "queries in the measures",
    "WarmStartBody.queries": "the judged queries",
    "JudgedDocument.id": "your id of the document; not used",
    # settings and state of a model
    "algorithm": "learning algorithm: first order (solar-i) or second order (solar-ii)",
    "covariance": "confidence that SOLAR-II keeps: a full matrix, or a variance per feature",
    "C": "step size of SOLAR-I; a larger value learns faster and follows noise more",
    "gamma": "regularisation of SOLAR-II; a smaller value learns faster and follows noise more",
    "normalization": "scaling of features within a request",
    "clicks": "how pairs are derived from clicks",
    "explore": "whether rankings are randomised",
    "prior": "initial weight of the submitted order",
    "pair_bound": "largest `weight·‖x‖²` of a pair; a larger weight is scaled down",
    "version": "seq of the last record in the weights",
    "seq": "seq of the last record in the log",
    "ModelDetails.features": "feature names, in order",
    "ModelSummary.features": "number of features",
    "weights": "weight of each feature",
    "ModelDetails.stddev": "standard deviation of each weight; SOLAR-II only",
    "feedback": "feedback records that were applied",
    "ModelDetails.rejected": "records that could not be applied",
    "pairs": "pairs by effect: stepped, passive, refused; of these bounded: with a smaller weight",
    "map": "mean average precision",
    "baseline": "measures of the submitted order",
    "explored": "measures of the randomised rankings",
    "debiased_wins": "weighted share of click pairs ranked correctly, by order: model, submitted",
    "name": "name of the model",
    "model": "name of the model",
    "models": "models in the order of their names",
    "query.limit": "most entries in the answer",
    "query.after": "list the entries after this one: `next` of the previous answer",
    "versions": "kept versions, oldest first",
    "KeptVersion.version": "seq of the last record in this version",
    "RollbackBody.version": "a kept version",
    "AppendedRecord.seq": "seq of the record in the log",
    # training jobs
    "path.id": "id of the job",
    "query.C": "regularisation of ranksvm; absent: chosen on held-out queries",
    "query.penalty": "regularisation of domination; absent: chosen on held-out queries",
    "trainer": "training method",
    "loss": "loss of ranksvm: squared hinge (l2) or hinge (l1)",
    "TrainingOptions.C": "regularisation of ranksvm; null: chosen on held-out queries",
    "ShardsBody.C": "regularisation of ranksvm; null: chosen on held-out queries",
    "WarmStartBody.C": "regularisation of ranksvm; null: chosen on held-out queries",
    "penalty": "regularisation of domination; null: chosen on held-out queries",
    "JobDetails.id": "id of the job",
    "JobSummary.id": "id of the job",
    "state": "state of the job",
    "jobs": "jobs, the newest first",
    "training": "options of the training",
    "progress": "progress so far",
    "result": "result of a job that is done",
    "error": "why the job failed",
    # answers
    "id": "id of the document",
    "rank": "position in the ranking, from 1",
    "score": "score by the model; with exploration the order can differ",
    "contributions": "contribution of each feature to the score; with `explain`",
    "RankedDocument.stddev": "standard deviation of the score; with `explain`, SOLAR-II only",
    "RankAnswer.documents": "the ranking, best first",
    "accepted": "events that were appended to the log",
    "duplicates": "events that were in the log already",
    "rejected": "events that were refused",
    "ProblemBody.seq": "highest seq of the repeated events; for a batch only",
    "errors": "refused events; for a batch only",
    "index": "position of the event in the batch, from 0",
    "type": "URI of the problem type",
    "title": "standard phrase of the status",
    "status": "HTTP status",
    "detail": "the field, what was expected, and the remedy",
    "Alive.status": "always `alive`",
    "Ready.status": "always `ready`",
    "degraded": "whether the store is unreachable, so that /rank serves from memory",
    "down": (
        "processes of this service that are down or starting: a worker, the learner or the "
        "embedded store; the service restarts them"
    ),
}


def describe(name: str, schema: dict[str, Any]) -> None:
    """Add a description to each field of a schema that has none."""
    for field, about in schema.get("properties", {}).items():
        found = FIELDS.get(f"{name}.{field}") or FIELDS.get(field)
        if found and "description" not in about:
            about["description"] = found


def describe_parameter(parameter: dict[str, Any]) -> None:
    """Add a description to a parameter that has none."""
    name = parameter["name"]
    if "description" not in parameter:
        parameter["description"] = FIELDS.get(f"{parameter['in']}.{name}") or FIELDS[name]
