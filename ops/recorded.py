"""Recording rules: sums that all replicas share, and what the alerts compare.

Gauges of a committed state are the same on every replica, so they are recorded with `max`.
"""

from ops.windows import added_wins, share_error, window_error, window_mean
from ops.words import RecordingRule


def sums(side: str, measure: str) -> tuple[str, str]:
    """The recorded sum of a measure, and that of its squares.

    >>> sums("lead", "map")
    ('model:solar_lead_map_summed:max', 'model:solar_lead_map_squares_summed:max')
    """
    name = f"{'model_k' if measure == 'ndcg' else 'model'}:solar_{side}_{measure}"
    return f"{name}_summed:max", f"{name}_squares_summed:max"


NDCG, NDCG_SQUARES = sums("online", "ndcg")
LEAD_NDCG, LEAD_NDCG_SQUARES = sums("lead", "ndcg")
QUERIES = "model:solar_queries:max"
ABANDONED = "model:solar_abandoned_lists:max"
WINS = "model_order:solar_debiased_wins_summed:max"
WEIGHT = "model:solar_debiased_weight_summed:max"
PRODUCTS = "model_product:solar_debiased_products_summed:max"
UPDATES = "model_kind:solar_updates:max"
LOSS = "model:solar_squared_hinge_loss:max"
BACKLOG = "model:solar_lag_records:max"
VERSION = "model:solar_version:max"
DUEL_QUERIES = "model:solar_duel_queries:max"
FOLLOWER_LAG = "model_leader:solar_follower_lag_records:max"
FOLLOWER_UPDATES = "model_leader_kind:solar_follower_updates:max"
FOLLOWER_LOSS = "model_leader:solar_follower_squared_hinge_loss:max"
COMPARED = "model_leader:solar_follower_compared_lists:max"
AGREEMENT = "model_leader:solar_follower_agreement_summed:max"
_SHARED = (
    *(name for side in ("online", "baseline", "lead") for measure in ("ndcg", "map")
      for name in sums(side, measure)),
    QUERIES, ABANDONED, WINS, WEIGHT, PRODUCTS, UPDATES, LOSS, BACKLOG, VERSION,
    sums("duel", "ndcg")[0], DUEL_QUERIES,
    FOLLOWER_LAG, FOLLOWER_UPDATES, FOLLOWER_LOSS, COMPARED, AGREEMENT,
)  # fmt: skip

#: Of the last hour: NDCG@10 as served minus as submitted, and the lead by debiased wins. An upper
#: limit is three standard errors above the lead, or the lead for models without standard errors.
HOUR_QUERIES = "model:solar_queries:1h"
LEAD = "model:solar_lead_ndcg10:1h"
LEAD_ERROR = "model:solar_lead_ndcg10_stderr:1h"
LEAD_LIMIT = "model:solar_lead_ndcg10_upper_limit:1h"
HOUR_WEIGHT = "model:solar_debiased_weight:1h"
WINS_LEAD = "model:solar_debiased_lead:1h"
WINS_LEAD_ERROR = "model:solar_debiased_lead_stderr:1h"
WINS_LEAD_LIMIT = "model:solar_debiased_lead_upper_limit:1h"
#: NDCG@10 of a day, and its change within a week.
DAY_NDCG = "model:solar_online_ndcg10:1d"
DAY_NDCG_ERROR = "model:solar_online_ndcg10_stderr:1d"
CHANGE = "model:solar_online_ndcg10_change:1w"
CHANGE_ERROR = "model:solar_online_ndcg10_change_stderr:1w"
FRESHNESS = "model:solar_freshness_seconds:p95_5m"

#: The least number of queries in a day for an alert: a standard error of at most 1.6 %.
DAY_QUERIES = 1_000
#: Standard errors that a difference must exceed before an alert fires.
SIGMAS = 3


def _at_10(name: str) -> str:
    return f'{name}{{k="10"}}'


def _shared(name: str) -> RecordingRule:
    """The greatest value of all replicas; the name of the rule has the labels and the metric."""
    labels, metric, _ = name.split(":")
    return RecordingRule(name, f"max by ({labels.replace('_', ', ')}) ({metric})")


def _limit(mean: str, error: str) -> str:
    return f"{mean} + {SIGMAS} * {error} or {mean}"


RECORDING_RULES = (
    *map(_shared, _SHARED),
    RecordingRule(HOUR_QUERIES, f"delta({QUERIES}[1h])"),
    RecordingRule(LEAD, window_mean(_at_10(LEAD_NDCG), QUERIES, "1h")),
    RecordingRule(
        LEAD_ERROR, window_error(_at_10(LEAD_NDCG), _at_10(LEAD_NDCG_SQUARES), QUERIES, "1h")
    ),
    RecordingRule(LEAD_LIMIT, _limit(LEAD, LEAD_ERROR)),
    RecordingRule(HOUR_WEIGHT, f"delta({WEIGHT}[1h])"),
    RecordingRule(
        WINS_LEAD,
        added_wins("lead", lambda order: f'{WINS}{{order="{order}"}}', "1h")
        + f" / on (model) ({HOUR_WEIGHT} > 0)",
    ),
    RecordingRule(
        WINS_LEAD_ERROR,
        share_error(
            "lead", WINS_LEAD, HOUR_WEIGHT, lambda one: f'{PRODUCTS}{{product="{one}"}}', "1h"
        ),
    ),
    RecordingRule(WINS_LEAD_LIMIT, _limit(WINS_LEAD, WINS_LEAD_ERROR)),
    RecordingRule(
        DAY_NDCG,
        f"delta({_at_10(NDCG)}[1d]) / on (model) (delta({QUERIES}[1d]) > {DAY_QUERIES})",
    ),
    RecordingRule(DAY_NDCG_ERROR, window_error(_at_10(NDCG), _at_10(NDCG_SQUARES), QUERIES, "1d")),
    RecordingRule(CHANGE, f"{DAY_NDCG} - {DAY_NDCG} offset 1w"),
    RecordingRule(CHANGE_ERROR, f"sqrt({DAY_NDCG_ERROR} ^ 2 + ({DAY_NDCG_ERROR} offset 1w) ^ 2)"),
    RecordingRule(
        FRESHNESS,
        "histogram_quantile(0.95, sum by (model, le) (rate(solar_freshness_seconds_bucket[5m])))",
    ),
)
