"""Dashboard *Learning pipeline*: from feedback to served weights."""

from ops import overview, recorded
from ops.words import (
    BOTH,
    INSTANCE,
    MODEL,
    Board,
    Panel,
    Query,
    Row,
    active,
    replica_max,
    shown_range,
)

RATE = "$__rate_interval"
BACKLOG = f"{recorded.BACKLOG}{{{MODEL}}}"
VERSION = f"{recorded.VERSION}{{{MODEL}}}"
NONE = "Empty if there were none in the shown time range."


def _counted(metric: str) -> str:
    """How much a counter of a model grew in the shown time range."""
    return f"sum by (model) ({shown_range('increase', f'{metric}{{{BOTH}}}')})"


def _quantile(percent: int, metric: str) -> Query:
    buckets = f"sum by (model, le) (rate({metric}_bucket{{{BOTH}}}[{RATE}]))"
    value = f"histogram_quantile({percent / 100}, {buckets})"
    return Query(active(value, _counted(f"{metric}_count")), f"{{{{model}}}} p{percent}")


def _events(labels: str, legend: str) -> Query:
    rate = f"rate(solar_feedback_events_total{{{labels}}}[{RATE}])"
    return Query(f"sum by (outcome) ({rate})", legend)


def _rate(metric: str) -> Query:
    rate = f"sum by (model) (rate({metric}{{{BOTH}}}[{RATE}]))"
    return Query(active(rate, _counted(metric)), "{{model}}")


def _increase(metric: str, by: str, legend: str, aggregation: str = "sum") -> Query:
    """The count since the previous point; small counts are easier to read than rates."""
    added = f"{aggregation} by ({by}) (increase({metric}{{{BOTH}}}[{RATE}]))"
    return Query(active(added, _counted(metric)), legend)


def _above_0(metric: str) -> Query:
    """A gauge of the models for which it was above 0 in the shown time range."""
    greatest = f"max by (model) ({shown_range('max_over_time', f'{metric}{{{BOTH}}}')})"
    return Query(active(replica_max(metric), greatest), "{{model}}")


LEARNING = Row(
    "From feedback to served weights",
    (
        Panel(
            "Backlog",
            "short",
            "Records of a model that wait to be learnt and served. At SOLAR_BACKLOG (100,000) "
            "feedback is refused. More than 1,000 and growing fires SolarBacklogGrowing. "
            f"{NONE}",
            (Query(active(BACKLOG, shown_range("max_over_time", BACKLOG)), "{{model}}"),),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Time without learning",
            "s",
            "Time for which records of a model have waited while none was learnt. Above 60 s fires "
            "SolarLearningStalled. Empty if no record waited in the shown time range.",
            (_above_0("solar_lag_seconds"),),
            width=6, minimum=0,
        ),
        Panel(
            "Freshness",
            "s",
            "Time from the append of the last record of a version until a process serves that "
            "version. A p95 above 1 s fires SolarFreshnessOverBound.",
            tuple(_quantile(percent, "solar_freshness_seconds") for percent in (50, 95, 99)),
            width=6, minimum=0,
        ),
        Panel(
            "Records applied",
            "cps",
            "Records of any kind per second that learners committed: feedback, replacements and "
            "settings.",
            (_rate("solar_learnt_records_total"),),
            width=6, minimum=0,
        ),
        Panel(
            "Commits",
            "cps",
            "Commits per second. One commit contains up to 256 records.",
            (_rate("solar_commit_seconds_count"),),
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
            (
                Query(
                    active(
                        f"max by (model) (deriv(solar_feedback{{{BOTH}}}[{RATE}]))",
                        shown_range("changes", VERSION),
                    ),
                    "{{model}}",
                ),
            ),
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
            "are damaged, lag, duel, were rolled back, have a failed training job, data of a newer "
            "format or a halved trace of the covariance.",
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
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Lease held",
            "bool_yes_no",
            "Whether a learner holds the model's lease. With more than 16 models, only a model "
            "with records has one. No for 1 minute while records wait fires SolarNoLeader.",
            (Query(replica_max("solar_learner_present"), "{{model}}"),),
            "states", 6,
        ),
        Panel(
            "Fencing token",
            "short",
            "It increases by 1 each time a learner takes the lease: a start or a lease takeover. "
            "Many increases mean that learners cannot keep their lease; with more than 16 models "
            "they are normal. Lines are of models that applied a record in the shown time range.",
            (
                Query(
                    active(
                        replica_max("solar_learner_fencing_token"), shown_range("changes", VERSION)
                    ),
                    "{{model}}",
                ),
            ),
            width=6, decimals=0,
        ),
        Panel(
            "Learner interruptions",
            "short",
            "How often a learner lost its lease or got an error from the store. It then resumes "
            f"from the committed state. {NONE}",
            (_increase("solar_learner_interruptions_total", "model", "{{model}}"),),
            width=6, decimals=0, minimum=0,
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
            "expired request, or invalid body); over-share (the key or source sends too much).",
            (_events(INSTANCE, "{{outcome}}"),),
            "stacked", minimum=0,
        ),
        Panel(
            "Events over the source share",
            "cps",
            "Events per second refused with 429, because their API key (without keys: their "
            "source) had more than SOLAR_SOURCE_SHARE of the work of the last minute's feedback.",
            (_events(f'outcome="over-share",{INSTANCE}', "over the share"),),
            minimum=0,
        ),
        Panel(
            "Rejected records",
            "short",
            "Records in the log that the model could not apply since the last reset of the "
            "measures. The learner counts and skips them. Models without any have no line.",
            (_above_0("solar_rejected_records"),),
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
            "Applied records that replace the whole model: warm starts, rollbacks by a user, "
            f"replays without a source, and promotions of a challenger. {NONE}",
            (_increase("solar_replacements_total", "model, kind", "{{model}} {{kind}}"),),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Store rollbacks",
            "short",
            "How often a process found that the store had lost records, as after a failover "
            f"(SolarVersionBackwards). A rollback by a user does not count. {NONE}",
            (_increase("solar_store_rollbacks_total", "model", "{{model}}", "max"),),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Training jobs ended",
            "short",
            f"Training jobs that ended: done, failed (SolarJobFailed) or cancelled. {NONE}",
            (_increase("solar_jobs_total", "model, outcome", "{{model}} {{outcome}}"),),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Training job running",
            "bool_yes_no",
            "Whether a training job of the model runs. Models without one in the shown time range "
            "are left out.",
            (_above_0("solar_training"),),
            "phases", 6,
        ),
    ),
)  # fmt: skip

BOARD = Board(
    "pipeline",
    "SOLAR: Learning pipeline",
    "From feedback to served weights: backlog, freshness, learners, replacements and jobs.",
    (overview.ROW, LEARNING, ALL_MODELS, LEARNERS, FEEDBACK, REPLACEMENTS),
)
