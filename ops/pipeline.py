"""Dashboard *Learning pipeline*: from feedback to served weights."""

from ops import rules
from ops.words import BOTH, INSTANCE, MODEL, Board, Panel, Query, Row, replica_max

RATE = "$__rate_interval"


def _quantile(percent: int, metric: str) -> Query:
    buckets = f"sum by (model, le) (rate({metric}_bucket{{{BOTH}}}[{RATE}]))"
    return Query(f"histogram_quantile({percent / 100}, {buckets})", f"{{{{model}}}} p{percent}")


def _rate(metric: str, by: str, labels: str, legend: str) -> Query:
    return Query(f"sum by ({by}) (rate({metric}{{{labels}}}[{RATE}]))", legend)


def _increase(metric: str, by: str, legend: str) -> Query:
    """The count since the previous point; small counts are easier to read than rates."""
    return Query(f"sum by ({by}) (increase({metric}{{{BOTH}}}[{RATE}]))", legend)


LEARNING = Row(
    "From feedback to served weights",
    (
        Panel(
            "Backlog",
            "short",
            "Records that wait to be applied. At SOLAR_BACKLOG (100,000) feedback is refused. More "
            "than 1,000 and growing fires SolarBacklogGrowing.",
            (Query(f"{rules.BACKLOG}{{{MODEL}}}", "{{model}}"),),
            decimals=0, minimum=0,
        ),
        Panel(
            "Time without learning",
            "s",
            "Time for which records of a model have waited while none was learnt. Above 60 s fires "
            "SolarLearningStalled.",
            (Query(replica_max("solar_lag_seconds"), "{{model}}"),),
            minimum=0,
        ),
        Panel(
            "Freshness",
            "s",
            "Time from the append of a record until a process serves weights that include it. A "
            "p95 above 1 s fires SolarFreshnessOverBound.",
            tuple(_quantile(percent, "solar_freshness_seconds") for percent in (50, 95, 99)),
            minimum=0,
        ),
        Panel(
            "Records applied",
            "cps",
            "Records per second that learners applied and committed.",
            (_rate("solar_learnt_records_total", "model", BOTH, "{{model}}"),),
            minimum=0,
        ),
        Panel(
            "Commits",
            "cps",
            "Commits per second. One commit contains up to 256 records.",
            (_rate("solar_commit_seconds_count", "model", BOTH, "{{model}}"),),
            minimum=0,
        ),
        Panel(
            "Commit duration",
            "s",
            "Duration of the learner's commits. It depends on the model's size and on the store's "
            "fsync.",
            tuple(_quantile(percent, "solar_commit_seconds") for percent in (50, 95, 99)),
            minimum=0,
        ),
        Panel(
            "Feedback applied",
            "cps",
            "Feedback records per second that entered the model's committed state, as every "
            "replica reports it.",
            (Query(f"max by (model) (deriv(solar_feedback{{{BOTH}}}[{RATE}]))", "{{model}}"),),
            minimum=0,
        ),
    ),
)  # fmt: skip

ALL_MODELS = Row(
    "All models",
    (
        Panel(
            "Models",
            "short",
            "Models in the store. Metrics by model show the 200 with most requests, and those that "
            "are damaged, lag, were rolled back, have a failed training job or data of a newer "
            "format.",
            (Query(f"max(solar_models{{{INSTANCE}}})", "models"),),
            decimals=0, minimum=0,
        ),
        Panel(
            "Damaged models",
            "short",
            "Models whose stored state is damaged. More than 0 for 2 minutes fires "
            "SolarModelDamaged.",
            (Query(f"max(solar_models_damaged{{{INSTANCE}}})", "damaged"),),
            decimals=0, minimum=0,
        ),
        Panel(
            "Backlog of all models",
            "short",
            "Records that wait to be applied, over all models and of the model with most of them. "
            "More than 10,000 and growing fires SolarTotalBacklogGrowing.",
            (
                Query(f"max(solar_backlog_records{{{INSTANCE}}})", "all models"),
                Query(f"max(solar_backlog_records_max{{{INSTANCE}}})", "largest"),
            ),
            decimals=0, minimum=0,
        ),
    ),
)  # fmt: skip

LEARNERS = Row(
    "Learners",
    (
        Panel(
            "Learner processes",
            "short",
            "Learner processes that are registered in the store. None for 1 minute fires "
            "SolarNoLearner.",
            (Query(f"max(solar_learners{{{INSTANCE}}})", "learners"),),
            decimals=0, minimum=0,
        ),
        Panel(
            "Lease held",
            "bool_yes_no",
            "Whether a learner holds the model's lease. With more than 16 models, only a model "
            "with records has one. No for 1 minute while records wait fires SolarNoLeader.",
            (Query(replica_max("solar_learner_present"), "{{model}}"),),
            "states",
        ),
        Panel(
            "Fencing token",
            "short",
            "It increases by 1 each time a learner takes the lease: a start or a lease takeover. "
            "Many increases mean that learners cannot keep their lease.",
            (Query(replica_max("solar_learner_fencing_token"), "{{model}}"),),
            decimals=0,
        ),
        Panel(
            "Learner interruptions",
            "short",
            "How often a learner lost its lease or got an error from the store. It then resumes "
            "from the committed state.",
            (_increase("solar_learner_interruptions_total", "model", "{{model}}"),),
            decimals=0, minimum=0,
        ),
    ),
)  # fmt: skip

FEEDBACK = Row(
    "Incoming feedback",
    (
        Panel(
            "Feedback events by outcome",
            "cps",
            "Events per second. Accepted; duplicates (sent again, harmless); rejected (unknown or "
            "expired request, or invalid body); over-share (the source sends too much).",
            (_rate("solar_feedback_events_total", "outcome", INSTANCE, "{{outcome}}"),),
            "stacked", minimum=0,
        ),
        Panel(
            "Events over the source share",
            "cps",
            "Events per second refused with 429, because their source sent more than "
            "SOLAR_SOURCE_SHARE of a minute's feedback. Only the response to the client names the "
            "source.",
            (
                _rate(
                    "solar_feedback_events_total", "outcome",
                    f'outcome="over-share",{INSTANCE}', "over the share",
                ),
            ),
            minimum=0,
        ),
        Panel(
            "Rejected records",
            "short",
            "Records in the log that the model could not apply since the last reset of the "
            "measures. The learner counts and skips them.",
            (Query(replica_max("solar_rejected_records"), "{{model}}"),),
            decimals=0, minimum=0,
        ),
    ),
)  # fmt: skip

REPLACEMENTS = Row(
    "Replacements and training jobs",
    (
        Panel(
            "Model replacements",
            "short",
            "Applied records that replace the whole model: warm starts, rollbacks by a user, and "
            "replays without a source.",
            (_increase("solar_replacements_total", "model, kind", "{{model}} {{kind}}"),),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Store rollbacks",
            "short",
            "How often a process found that the store had lost records, as after a failover "
            "(SolarVersionBackwards). A rollback by a user does not count.",
            (
                Query(
                    f"max by (model) (increase(solar_store_rollbacks_total{{{BOTH}}}[{RATE}]))",
                    "{{model}}",
                ),
            ),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Training jobs ended",
            "short",
            "Training jobs that ended: done, failed (SolarJobFailed) or cancelled.",
            (_increase("solar_jobs_total", "model, outcome", "{{model}} {{outcome}}"),),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Training job running",
            "bool_yes_no",
            "Whether a training job of the model runs.",
            (Query(replica_max("solar_training"), "{{model}}"),),
            "phases", 6,
        ),
    ),
)  # fmt: skip

BOARD = Board(
    "pipeline",
    "SOLAR: Learning pipeline",
    "From feedback to served weights: backlog, freshness, learners, replacements and jobs.",
    (LEARNING, ALL_MODELS, LEARNERS, FEEDBACK, REPLACEMENTS),
)
