"""The row *At a glance*: the first row of every dashboard."""

from ops import recorded
from ops.words import BOTH, INSTANCE, MODEL, Panel, Query, Row

ANSWERS = f'solar_request_seconds_count{{route="/rank",status="200",{INSTANCE}}}'
BUCKETS = f'solar_request_seconds_bucket{{route="/rank",status="200",{INSTANCE}}}'
FRESHNESS = f"solar_freshness_seconds_bucket{{{BOTH}}}"
IMPRESSIONS = f"solar_impressions_total{{{INSTANCE}}}"
DROPPED = f'solar_impressions_total{{outcome="dropped",{INSTANCE}}}'
HEIGHT = 4

_LEAD, _ERROR = f"{recorded.LEAD}{{{MODEL}}}", f"{recorded.LEAD_ERROR}{{{MODEL}}}"
_QUERIES = f"{recorded.HOUR_QUERIES}{{{MODEL}}}"


def _dropped() -> str:
    return f"sum(increase({DROPPED}[$__range]))"


def _of_all(values: str) -> str:
    """The sum over the models, divided by the queries of those that have a lead."""
    return f"{values} / sum({_QUERIES} and {_LEAD})"


def _error_of_lead() -> str:
    """No value if a model with two queries has no standard error: it would be too small."""
    error = _of_all(f"sqrt(sum(({_ERROR} * {_QUERIES}) ^ 2))")
    return f"{error} and count({_ERROR}) == count({_LEAD} and {_QUERIES} >= 2)"


ROW = Row(
    "At a glance",
    (
        Panel(
            "Rankings per second",
            "reqps",
            "Successful /rank answers per second in the last 5 minutes.",
            (Query(f"sum(rate({ANSWERS}[5m]))", "rankings"),),
            "number", 4, HEIGHT, decimals=1,
        ),
        Panel(
            "/rank p99",
            "s",
            "99 % of the successful /rank answers of the last 5 minutes took at most this long, in "
            "the service. The value is interpolated between histogram buckets; above 5 s it shows "
            "as 5 s.",
            (Query(f"histogram_quantile(0.99, sum by (le) (rate({BUCKETS}[5m])))", "p99"),),
            "number", 4, HEIGHT,
        ),
        Panel(
            "Freshness p95",
            "s",
            "95 % of the new versions of models in the last 5 minutes were served at most this "
            "long after their last record was appended.",
            (Query(f"histogram_quantile(0.95, sum by (le) (rate({FRESHNESS}[5m])))", "p95"),),
            "number", 4, HEIGHT,
        ),
        Panel(
            "NDCG@10 lead, last hour",
            "none",
            "NDCG@10 as served minus as submitted: the mean over all queries of the selected "
            "models in the last hour, and its standard error. By clicks it favours the ranking "
            "that was shown. A model from before there were standard errors leaves it without one.",
            (
                Query(_of_all(f"sum({_LEAD} * {_QUERIES})"), "lead"),
                Query(_error_of_lead(), "standard error"),
            ),
            "number", 6, HEIGHT, decimals=4,
        ),
        Panel(
            "Share not remembered",
            "percentunit",
            "Share of the rankings that asked for logging and were not stored, in the shown time "
            "range. Feedback on them is rejected. More than 0.1 % in 10 minutes, for 10 minutes, "
            "fires SolarImpressionsNotRemembered.",
            (
                Query(
                    f"{_dropped()} / (sum(increase({IMPRESSIONS}[$__range])) > 0)",
                    "not remembered",
                ),
            ),
            "number", 3, HEIGHT, decimals=2,
        ),
        Panel(
            "Rankings not remembered",
            "short",
            "Number of rankings that asked for logging and were not stored, in the shown time "
            "range.",
            (Query(_dropped(), "not remembered"),),
            "number", 3, HEIGHT, decimals=0,
        ),
    ),
)  # fmt: skip
