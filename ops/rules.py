"""What Prometheus computes by itself: recorded series, and alerts.

Gauges of a committed state are the same on every replica and are recorded with max. A sum over
queries may fall by a little (a query's measure may be replaced), so windows are differences of
gauges, `delta`, and never `rate`, which would take a fall for a restart.
"""

from ops.words import TRAFFIC, Alert, Recorded, windowed

NDCG_SUM = "model_k:solar_online_ndcg_sum:max"
BASELINE_NDCG_SUM = "model_k:solar_baseline_ndcg_sum:max"
MAP_SUM = "model:solar_online_map_sum:max"
BASELINE_MAP_SUM = "model:solar_baseline_map_sum:max"
QUERIES = "model:solar_queries:max"
WINS_SUM = "model_order:solar_debiased_wins_sum:max"
WEIGHT_SUM = "model:solar_debiased_weight_sum:max"
UPDATES = "model_kind:solar_updates:max"
LOSS = "model:solar_squared_hinge_loss:max"
BACKLOG = "model:solar_lag_records:max"
WINS_HOUR = "model_order:solar_debiased_wins:1h"
QUALITY_DAY = "model:solar_quality:1d"
FRESHNESS = "model:solar_freshness_seconds:p95_5m"

#: A pair's weight ω is 10·2ρ with 0 < ρ < 1: about 10. Fewer pairs than a hundred in an hour, or a
#: thousand in a day (a standard error of 1.6 %), wake nobody.
HOUR_WEIGHT = 1_000
DAY_WEIGHT = 10_000
DAY_QUERIES = 1_000

RECORDED = (
    *(
        Recorded(name, f"max by ({by.replace('_', ', ')}) ({metric})")
        for by, metric, name in (
            (*one.split(":")[:2], one)
            for one in (
                NDCG_SUM, BASELINE_NDCG_SUM, MAP_SUM, BASELINE_MAP_SUM, QUERIES, WINS_SUM,
                WEIGHT_SUM, UPDATES, LOSS, BACKLOG,
            )
        )
    ),
    Recorded(WINS_HOUR, windowed(WINS_SUM, WEIGHT_SUM, "1h")),
    Recorded(
        QUALITY_DAY,
        f'delta({WINS_SUM}{{order="model"}}[1d]) '
        f"/ on (model) (delta({WEIGHT_SUM}[1d]) > {DAY_WEIGHT})",
        (("measure", "debiased wins"),),
    ),
    Recorded(
        QUALITY_DAY,
        f'delta({NDCG_SUM}{{k="10"}}[1d]) / on (model) (delta({QUERIES}[1d]) > {DAY_QUERIES}) '
        f"unless on (model) {WEIGHT_SUM} > 0",  # with clicks it favours whatever was shown
        (("measure", "ndcg@10"),),
    ),
    Recorded(
        FRESHNESS,
        "histogram_quantile(0.95, sum by (model, le) (rate(solar_freshness_seconds_bucket[5m])))",
    ),
)  # fmt: skip

ALERTS = (
    Alert(
        "SolarDebiasedWinsBelowBaseline",
        f'{WINS_HOUR}{{order="model"}} - on (model) {WINS_HOUR}{{order="submitted"}}',
        f"< 0 and on (model) delta({WEIGHT_SUM}[1h]) > {HOUR_WEIGHT}",
        "30m", "critical",
        "Model {{ $labels.model }} ranks worse than the order it is given",
    ),
    Alert(
        "SolarQualityDropped",
        f"{QUALITY_DAY} - {QUALITY_DAY} offset 1w",
        "< -0.05",
        "1h", "warning",
        "Model {{ $labels.model }}: {{ $labels.measure }} of a day changed by "
        "{{ $value | humanize }} in a week",
    ),
    Alert(
        "SolarBacklogGrowing",
        f"deriv({BACKLOG}[10m])",
        f"> 0 and {BACKLOG} > 1000",
        "10m", "warning",
        "Model {{ $labels.model }} is learnt more slowly than feedback comes",
    ),
    Alert(
        "SolarFreshnessOverBound",
        FRESHNESS,
        "> 1",
        "10m", "warning",
        "Model {{ $labels.model }}: feedback is served after {{ $value | humanizeDuration }}",
    ),
    Alert(
        "SolarNoLeader",
        "max by (model) (solar_learner_present)",
        "== 0",
        "1m", "critical",
        "Nobody learns model {{ $labels.model }}",
    ),
    Alert(
        "SolarVersionBackwards",
        "max by (model) (increase(solar_version_backwards_total[15m]))",
        "> 0",
        "0m", "critical",
        "Model {{ $labels.model }} went back: the store has lost what was acknowledged",
    ),
    Alert(
        "SolarMemoryNearLimit",
        "max(solar_store_memory_share)",
        "> 0.7",
        "10m", "warning",
        "The store's memory is {{ $value | humanizePercentage }} full",
    ),
    Alert(
        "SolarErrorRate",
        f'sum(rate(solar_request_seconds_count{{status=~"5..",{TRAFFIC}}}[5m])) '
        f"/ sum(rate(solar_request_seconds_count{{{TRAFFIC}}}[5m]))",
        "> 0.05",
        "5m", "critical",
        "{{ $value | humanizePercentage }} of the requests fail",
    ),
    Alert(
        "SolarStoreDown",
        "min by (instance) (solar_store_up)",
        "== 0",
        "1m", "critical",
        "{{ $labels.instance }} cannot reach the store",
    ),
    Alert(
        "SolarJobFailed",
        'sum by (model) (increase(solar_jobs_total{outcome="failed"}[15m]))',
        "> 0",
        "0m", "warning",
        "A training of model {{ $labels.model }} has failed",
    ),
    Alert(
        "SolarGone",
        "(count(solar_store_up) or vector(0))",
        "== 0",
        "2m", "critical",
        "No process of the service can be scraped",
    ),
)  # fmt: skip
