"""The help text of every metric; docs/reference/metrics.md is made from them.

A text is one or more full sentences that name the unit, explain each label, and say how the metric
differs from those with similar names.
"""

from app.observability.duel_help import DUEL_HELP
from app.observability.model_table import LOSS_EVERY
from app.observability.quality_help import QUALITY_HELP
from app.ranking.drift import ALARM

_SINCE = "Counted since the last reset of the measures."
_ABSENT = "Absent while the store is unreachable."
#: For the metrics that prometheus-client defines for a process.
PROCESS_LABEL = "The label process names the worker or the learner. Linux only."

HELP = {
    "solar_request_seconds": (
        "Duration of HTTP requests in seconds, by route (the path template) and status (the HTTP "
        "status code). A stream counts when it ends, with the time until its first byte."
    ),
    "solar_freshness_seconds": (
        "Time in seconds from the append of the last record of a version until a process serves "
        "that version, by model. Each process counts each version that it serves once."
    ),
    "solar_commit_seconds": "Duration of the learner's commits in seconds, by model.",
    "solar_store_rollbacks": (
        "Number of times a process found that the store had lost records of a model, by model. "
        "The usual cause is a failover. A rollback that a user requests does not count."
    ),
    "solar_impressions": (
        "Number of /rank answers that asked for logging, over all models, by outcome. The "
        "impression was stored (remembered) or not (dropped): feedback on it is then rejected."
    ),
    "solar_streams": (
        "Number of open streams of GET /models/{name}/stream, over all models and workers. Each "
        "worker has at most 50."
    ),
    "solar_feedback_events": (
        "Number of events that arrived at /feedback since the start of the service, over all "
        "models and before any is learnt, by outcome: accepted, duplicates (stored before), "
        "rejected, or over-share (the API key, or without keys the source, exceeded "
        "SOLAR_SOURCE_SHARE). For what a model has applied see solar_feedback."
    ),
    "solar_clicked_lists": (
        "Number of lists with a first click since the start of the service, over all models, by "
        "outcome: remembered for SOLAR_CONVERSION_SECONDS (kept), or only as long as other lists, "
        "because clicked lists use a quarter of the store's memory (dropped)."
    ),
    "solar_beacon_events": (
        "Number of events that arrived at /beacon since the start of the service, by outcome: "
        "accepted, duplicate (stored before), expired (the token), forged (no key of the service "
        "made the token for this viewer), invalid, over-limit (20 events on one list), over-rate "
        "(SOLAR_BEACON_RATE), over-share (SOLAR_SOURCE_SHARE), refused (the store was away or "
        "full, or the backlog limit was reached; tokens may be unverified), too-large (a post, "
        "counted as one event), or unknown (the list is not remembered)."
    ),
    "solar_learnt_records": (
        "Number of log records of any kind that learners committed since the start of the "
        "service, by model: feedback, also rejected records, and replacements and settings of the "
        "model. For feedback alone see solar_feedback."
    ),
    "solar_learner_interruptions": (
        "Number of times a learner lost its lease or got an error from the store, by model. The "
        "learner then resumes from the committed state."
    ),
    "solar_newer_format": (
        "Number of times a process found data of a model that a newer release wrote, by model. A "
        "worker counts each state once, a learner each attempt. The data is left unchanged."
    ),
    "solar_trace_halved": (
        "Number of times the trace of the covariance fell by half within 100 records, by model. "
        "Pairs with large weights or features are the usual cause."
    ),
    "solar_history_points_dropped": (
        "Number of points of the history that learners did not store, by model: all histories "
        "together may use 5 % of the store's memory, and no point is stored above 80 % of it. "
        "Learning does not depend on the history."
    ),
    "solar_jobs": (
        "Number of training jobs that ended, by model and outcome: done, failed or cancelled."
    ),
    "solar_degraded_answers": (
        "Number of /rank answers computed from weights in memory because the store was "
        "unreachable, by model."
    ),
    "solar_replacements": (
        "Number of applied records that replace the whole model, by model and kind: warm-start, "
        "rollback (by a user; solar_store_rollbacks_total counts losses of the store), replay, "
        "promotion or other."
    ),
    "solar_build_info": "Always 1. The labels are the running version of SOLAR and of python.",
    "solar_process_up": (
        "1 if a process of the service is up, 0 if it is down or starting, by process: a worker, "
        "the learner or the embedded store."
    ),
    "solar_process_restarts": (
        "Number of times a process of the service ended or could not be started, by process. The "
        "service starts it again."
    ),
    "solar_store_up": "1 if the process that answers reaches the store, 0 if it does not.",
    "solar_store_memory_share": (
        "Used share of the store's memory limit, from 0 to 1. It is 0 without a limit. With "
        "several servers it is the share of the fullest one."
    ),
    "solar_models": "Number of models in the store, also of those without metrics of their own.",
    "solar_models_damaged": (
        "Number of models whose stored state is damaged. Requests for them get 503."
    ),
    "solar_backlog_records": (
        "Number of log records that wait to be learnt and served: the sum of solar_lag_records "
        "over all models, also over those without metrics of their own. With many models the value "
        "can be some seconds old."
    ),
    "solar_backlog_records_max": (
        "Number of log records that wait to be learnt and served, of the one model with most of "
        "them: the largest solar_lag_records, also among models without metrics of their own."
    ),
    "solar_backlog_work": (
        "Computing work of the log records that wait for the learner, not their number, by model, "
        "in units of about 0.1 ns. Above SOLAR_BACKLOG_WORK feedback is refused. For the number "
        f"see solar_lag_records. {_ABSENT}"
    ),
    "solar_lag_seconds_max": (
        "Longest time in seconds for which records of any one model have waited while none was "
        "learnt: the largest solar_lag_seconds, also among models without metrics of their own."
    ),
    "solar_learners": f"Number of learner processes that run on this store. {_ABSENT}",
    "solar_version": "Sequence number of the last record in the served weights, by model.",
    "solar_lag_records": (
        "Number of log records that the served weights of one model do not include yet, by model. "
        "It is 0 while the store is unreachable. For all models together see "
        "solar_backlog_records."
    ),
    "solar_lag_seconds": (
        "Time in seconds for which records have waited while none was learnt and served, by model. "
        "It is 0 if no record waits, and it stands still while the store is unreachable."
    ),
    "solar_queries": (
        "Number of queries in the means of NDCG and MAP, by model. A query counts once, however "
        "many feedback records it has (solar_feedback counts these), and only from its first click "
        f"or label on (until then see solar_abandoned_lists). {_SINCE}"
    ),
    "solar_explored_queries": (
        f"Number of those queries in solar_queries whose ranking was randomised, by model. {_SINCE}"
    ),
    "solar_explored_share": (
        "Share of solar_queries whose ranking was randomised, from 0 to 1, by model. "
        f"Absent before the first query. {_SINCE}"
    ),
    "solar_exploration": (
        "Setting exploration of the model, by model. It is the amount of randomisation: 0 is none, "
        "1 the default. Absent for models from before there was this setting."
    ),
    "solar_exploration_loss": (
        "Sum of the expected losses of NDCG@10 by randomisation, by model, each a share from 0 to "
        "1 of the NDCG@10 of the model order. The estimate takes the scores as true gains. It is "
        f"computed for every {LOSS_EVERY}th randomised /rank answer of a worker. For the mean, "
        "divide its rate by that of solar_exploration_loss_rankings_total."
    ),
    "solar_exploration_loss_rankings": (
        "Number of randomised /rank answers in solar_exploration_loss_total, by model."
    ),
    "solar_drift": (
        "Evidence that the NDCG@10 of rankings with clicks has fallen below its running mean, by "
        f"model. It starts at 0 and has no upper limit; above {ALARM:g} it counts as drift. "
        f"Absent for models without the setting exploration. {_SINCE}"
    ),
    "solar_feedback": (
        "Number of feedback records that the model has applied, by model. Several records of one "
        "query all count (solar_queries counts queries), and every replica reports the same number "
        "(solar_feedback_events_total counts what arrived at one service). Rejected records are in "
        f"solar_rejected_records. {_SINCE}"
    ),
    "solar_rejected_records": (
        f"Number of log records that the model could not apply, by model. {_SINCE}"
    ),
    "solar_squared_hinge_loss": (
        f"Sum of the squared hinge losses of all pairs before the step on each, by model. {_SINCE}"
    ),
    "solar_weight_norm": "Euclidean norm of the served weights, by model.",
    "solar_covariance_trace": (
        "Trace of SOLAR-II's covariance matrix, by model. It falls as the model becomes more "
        "certain. It is 0 for SOLAR-I."
    ),
    "solar_updates": (
        "Number of pairs processed, by model and kind. Stepped pairs changed the weights. Passive "
        "pairs were already correct by the margin. Refused pairs exceeded the numeric limits and "
        f"changed nothing. {_SINCE}"
    ),
    "solar_bounded_pairs": (
        "Number of pairs whose weight was scaled down to the pair_bound of the model, by model. "
        f"They are in solar_updates, too. {_SINCE}"
    ),
    "solar_learner_present": (
        "1 if a learner holds the model's lease, 0 if not, by model. With more than 16 models a "
        f"learner holds it only while the model has records. {_ABSENT}"
    ),
    "solar_learner_fencing_token": (
        "Latest fencing token of the model's lease, by model. It increases by 1 each time a "
        f"learner takes the lease. {_ABSENT}"
    ),
    "solar_training": f"1 while a training job of the model runs, 0 otherwise, by model. {_ABSENT}",
    **QUALITY_HELP,
    **DUEL_HELP,
}
