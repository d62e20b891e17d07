"""The help text of every metric; docs/reference/metrics.md is made from them.

A text is one or more full sentences that name the unit and explain each label.
"""

from app.observability.model_table import LOSS_EVERY
from app.ranking.drift import ALARM

_SINCE = "Counted since the last reset of the measures."
_ABSENT = "Absent while the store is unreachable."
_ORDERS = "by model and order: model (without exploration) or submitted"
_PAIRS = "click pairs from randomised rankings"
#: For the metrics that prometheus-client defines for a process.
PROCESS_LABEL = "The label process names the worker or the learner. Linux only."

HELP = {
    "solar_request_seconds": (
        "Duration of HTTP requests in seconds, by route (the path template) and status (the HTTP "
        "status code)."
    ),
    "solar_freshness_seconds": (
        "Time in seconds from the append of a record until a process serves weights that include "
        "it, by model."
    ),
    "solar_commit_seconds": "Duration of the learner's commits in seconds, by model.",
    "solar_store_rollbacks": (
        "Number of times a process found that the store had lost records of a model, by model. "
        "The usual cause is a failover. A rollback that a user requests does not count."
    ),
    "solar_impressions": (
        "Number of /rank answers that asked for logging, by outcome. The impression was stored "
        "(remembered) or not (dropped)."
    ),
    "solar_feedback_events": (
        "Number of events sent to /feedback, by outcome: accepted, duplicates (stored before), "
        "rejected, or over-share (the source exceeded SOLAR_SOURCE_SHARE)."
    ),
    "solar_learnt_records": "Number of log records that learners applied and committed, by model.",
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
    "solar_jobs": (
        "Number of training jobs that ended, by model and outcome: done, failed or cancelled."
    ),
    "solar_degraded_answers": (
        "Number of /rank answers computed from weights in memory because the store was "
        "unreachable, by model."
    ),
    "solar_replacements": (
        "Number of applied records that replace the whole model, by model and kind: warm-start, "
        "rollback, replay or other."
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
        "Number of log records that wait to be learnt and served, over all models. With many "
        "models the value can be some seconds old."
    ),
    "solar_backlog_records_max": (
        "Number of log records that wait to be learnt and served, of the model with most of them."
    ),
    "solar_backlog_work": (
        "Work of the log records that wait for the learner, by model, in units of about 0.1 ns. "
        f"Above SOLAR_BACKLOG_WORK feedback is refused. {_ABSENT}"
    ),
    "solar_lag_seconds_max": (
        "Longest time in seconds for which records of a model have waited while none was learnt, "
        "over all models."
    ),
    "solar_learners": f"Number of learner processes that run on this store. {_ABSENT}",
    "solar_version": "Sequence number of the last record in the served weights, by model.",
    "solar_lag_records": (
        "Number of log records that the served weights do not include yet, by model. It is 0 while "
        "the store is unreachable."
    ),
    "solar_lag_seconds": (
        "Time in seconds for which records have waited while none was learnt and served, by model. "
        "It is 0 if no record waits, and it stands still while the store is unreachable."
    ),
    "solar_queries": f"Number of queries with feedback, each counted once, by model. {_SINCE}",
    "solar_explored_queries": (
        "Number of queries with feedback whose ranking was randomised, each counted once, by "
        f"model. {_SINCE}"
    ),
    "solar_explored_share": (
        "Share of the queries with feedback whose ranking was randomised, from 0 to 1, by model. "
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
    "solar_feedback": f"Number of feedback records applied, by model. {_SINCE}",
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
    "solar_debiased_wins": (
        f"Weighted share of {_PAIRS} that an order ranks correctly, from 0 to 1, {_ORDERS}. "
        f"Absent before the first such pair. {_SINCE}"
    ),
    "solar_debiased_wins_sum": (
        f"Sum of the weights of {_PAIRS} that an order ranks correctly, {_ORDERS}. {_SINCE}"
    ),
    "solar_debiased_weight_sum": (
        f"Sum of the weights of all {_PAIRS}, by model. A pair whose two orders were equally "
        f"likely weighs 1. {_SINCE}"
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
}
for _side, _rankings, _count in (
    ("online", "served rankings", "solar_queries"),
    ("baseline", "submitted orders", "solar_queries"),
    ("explored", "served rankings that were randomised", "solar_explored_queries"),
):
    _cutoff = "by model and cut-off k: 1, 5, 10 or all"
    _window = f"For the mean in a time window, divide its change by that of {_count}."
    HELP |= {
        f"solar_{_side}_ndcg": f"Mean NDCG of the {_rankings}, from 0 to 1, {_cutoff}. {_SINCE}",
        f"solar_{_side}_ndcg_sum": f"Sum of the NDCG of the {_rankings}, {_cutoff}. {_window}",
        f"solar_{_side}_map": (
            f"Mean average precision (MAP) of the {_rankings}, from 0 to 1, by model. {_SINCE}"
        ),
        f"solar_{_side}_map_sum": (
            f"Sum of the average precision of the {_rankings}, by model. {_window}"
        ),
    }
