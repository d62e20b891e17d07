"""*Learning pipeline*: from feedback to weights that are served, and what stands in the way."""

from ops import rules
from ops.words import BOTH, INSTANCE, MODEL, Board, Panel, Query, Row, shared

RATE = "$__rate_interval"


def _quantile(percent: int, metric: str) -> Query:
    buckets = f"sum by (model, le) (rate({metric}_bucket{{{BOTH}}}[{RATE}]))"
    return Query(f"histogram_quantile({percent / 100}, {buckets})", f"{{{{model}}}} p{percent}")


def _rate(metric: str, by: str, labels: str, legend: str) -> Query:
    return Query(f"sum by ({by}) (rate({metric}{{{labels}}}[{RATE}]))", legend)


def _risen(metric: str, by: str, legend: str) -> Query:
    """How often since the last point; small numbers are easier to read than their rates."""
    return Query(f"sum by ({by}) (increase({metric}{{{BOTH}}}[{RATE}]))", legend)


LEARNT = Row(
    "From feedback to weights",
    (
        Panel(
            "Backlog",
            "short",
            "Records that wait to be learnt. At SOLAR_BACKLOG (100,000) feedback is refused; over "
            "1,000 and growing it alerts: SolarBacklogGrowing.",
            (Query(f"{rules.BACKLOG}{{{MODEL}}}", "{{model}}"),),
            decimals=0, least=0,
        ),
        Panel(
            "Freshness",
            "s",
            "From a record's append to its weights being served, by every process that serves. p95 "
            "over 1 s alerts: SolarFreshnessOverBound.",
            tuple(_quantile(percent, "solar_freshness_seconds") for percent in (50, 95, 99)),
            least=0,
        ),
        Panel(
            "Records learnt",
            "cps",
            "Records a second that learners have learnt and committed.",
            (_rate("solar_learnt_records_total", "model", BOTH, "{{model}}"),),
            least=0,
        ),
        Panel(
            "Commits",
            "cps",
            "Commits a second. One carries up to 256 records, so under load there are far fewer.",
            (_rate("solar_commit_seconds_count", "model", BOTH, "{{model}}"),),
            least=0,
        ),
        Panel(
            "Time of a commit",
            "s",
            "How long commits take: the model's size and the store's fsync.",
            tuple(_quantile(percent, "solar_commit_seconds") for percent in (50, 95, 99)),
            least=0,
        ),
        Panel(
            "Feedback learnt",
            "cps",
            "Feedback records a second that entered the model's state, as all replicas report it.",
            (Query(f"max by (model) (deriv(solar_feedback{{{BOTH}}}[{RATE}]))", "{{model}}"),),
            least=0,
        ),
    ),
)  # fmt: skip

LED = Row(
    "Who learns",
    (
        Panel(
            "Lease held",
            "bool_yes_no",
            "Whether a learner holds the model's lease. No for a minute alerts: SolarNoLeader.",
            (Query(shared("solar_learner_present"), "{{model}}"),),
            "states",
        ),
        Panel(
            "Take-overs",
            "short",
            "The fence: how many learners a model has had. A step is a restart or a take-over; "
            "many steps are learners that cannot keep their lease.",
            (Query(shared("solar_learner_fence"), "{{model}}"),),
            decimals=0,
        ),
        Panel(
            "Stumbles",
            "short",
            "How often learners lost their lease or the store and began anew.",
            (_risen("solar_learner_stumbles_total", "model", "{{model}}"),),
            decimals=0, least=0,
        ),
    ),
)  # fmt: skip

SENT = Row(
    "What is sent",
    (
        Panel(
            "Events of /feedback",
            "cps",
            "Events a second: accepted, duplicates (posted again: harmless), rejected (a request "
            "that is unknown or too old, or a body that does not fit), over-share.",
            (_rate("solar_feedback_events_total", "outcome", INSTANCE, "{{outcome}}"),),
            "stacked", least=0,
        ),
        Panel(
            "Refused: a source over its share",
            "cps",
            "Events a second of sources that sent more than SOLAR_SOURCE_SHARE of a minute's "
            "feedback. The logs say 429; which source it is only the caller is told.",
            (
                _rate(
                    "solar_feedback_events_total", "outcome",
                    f'outcome="over-share",{INSTANCE}', "over its share",
                ),
            ),
            least=0,
        ),
        Panel(
            "Records that did not fit",
            "short",
            "Records in the log that the model could not learn, since the measures were last "
            "reset; they are counted and passed over.",
            (Query(shared("solar_rejected_records"), "{{model}}"),),
            decimals=0, least=0,
        ),
    ),
)  # fmt: skip

REPLACED = Row(
    "What replaces a model",
    (
        Panel(
            "Rollbacks and other replacements",
            "short",
            "Replacements learnt, by kind: warm starts, rollbacks, replays without a source.",
            (_risen("solar_replacements_total", "model, kind", "{{model}} {{kind}}"),),
            width=6, decimals=0, least=0,
        ),
        Panel(
            "Versions that went back",
            "short",
            "How often a process saw the store go back to an earlier version, as after a failover "
            "(SolarVersionBackwards). A rollback does not count: it is one more record.",
            (
                Query(
                    f"max by (model) (increase(solar_version_backwards_total{{{BOTH}}}[{RATE}]))",
                    "{{model}}",
                ),
            ),
            width=6, decimals=0, least=0,
        ),
        Panel(
            "Jobs that ended",
            "short",
            "Trainings that ended: done, failed (SolarJobFailed), cancelled.",
            (_risen("solar_jobs_total", "model, outcome", "{{model}} {{outcome}}"),),
            width=6, decimals=0, least=0,
        ),
        Panel(
            "Training now",
            "bool_yes_no",
            "Whether a job trains the model.",
            (Query(shared("solar_training"), "{{model}}"),),
            "phases", 6,
        ),
    ),
)  # fmt: skip

BOARD = Board(
    "pipeline",
    "SOLAR: Learning pipeline",
    "From feedback to weights: backlog, freshness, learners, replacements and jobs.",
    (LEARNT, LED, SENT, REPLACED),
)
