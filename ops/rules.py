"""Alerts for Prometheus; ops/recorded.py has the series that they compare."""

from app.ranking.drift import ALARM
from ops import recorded
from ops.recorded import BACKLOG, FRESHNESS, SIGMAS
from ops.words import TRAFFIC, Alert, new_count

#: The least number of queries, and the least weight of click pairs, in an hour for an alert. A
#: pair's weight is 2ρ with 0 < ρ < 1, about 1: so about 100 pairs.
LEAST = 100

#: Models with click pairs in the last hour that are not clearly worse by their debiased wins.
_NOT_WORSE_BY_WINS = (
    f"{recorded.HOUR_WEIGHT} > 0 "
    f"unless ({recorded.WINS_LEAD_LIMIT} < 0 and {recorded.HOUR_WEIGHT} > {LEAST})"
)
#: The backlog of the leader itself has alerts of its own.
_LEADER_LAGS = (
    f'unless on (leader) label_replace({BACKLOG} > 1000, "leader", "$1", "model", "(.+)")'
)
_IMPRESSIONS = "sum(rate(solar_impressions_total[10m]))"
_CLICKED_LISTS = "sum(rate(solar_clicked_lists_total[10m]))"
#: Events whose tokens were verified.
_BEACONS = 'sum(rate(solar_beacon_events_total{outcome!~"over-rate|refused|too-large"}[10m]))'

ALERTS = (
    Alert(
        "SolarWorseThanSubmitted",
        recorded.LEAD,
        f"< 0 and {recorded.LEAD_LIMIT} < 0 and {recorded.HOUR_QUERIES} > {LEAST} "
        f"unless ({_NOT_WORSE_BY_WINS})",
        "30m", "critical",
        "Model {{ $labels.model }} ranks worse than the submitted order",
        "For 30 minutes model {{ $labels.model }} has been below the submitted order by more than "
        f"{SIGMAS} standard errors in NDCG@10, which by clicks favours the ranking that was shown, "
        "and, if there are click pairs, in debiased wins, which lean against the model. Users get "
        "worse rankings than without the model. Roll the model back to a version from before the "
        "drop.",
    ),
    Alert(
        "SolarQualityDropped",
        recorded.CHANGE,
        f"< -0.05 unless {recorded.CHANGE} + {SIGMAS} * {recorded.CHANGE_ERROR} >= 0",
        "1h", "warning",
        'Model {{ $labels.model }}: daily NDCG@10 changed by {{ printf "%.2f" $value }} within a '
        "week",
        "Compared with a week ago, the daily NDCG@10 of model {{ $labels.model }} dropped by more "
        f"than 0.05 and by more than {SIGMAS} standard errors. Users find relevant documents "
        "further down. Check whether the submitted order dropped as well.",
    ),
    Alert(
        "SolarDrift",
        "max by (model) (solar_drift)",
        f"> {ALARM:g}",
        "10m", "warning",
        "Model {{ $labels.model }}: NDCG@10 has fallen below its mean",
        "The evidence of drift of model {{ $labels.model }} has been above the alarm level for 10 "
        "minutes. Users may look for other documents than before, and find them further down. "
        "Check what changed: season, catalogue, features or click tracking.",
    ),
    Alert(
        "SolarDuelDecided",
        "max by (model, champion, challenger) (solar_duel_verdict)",
        "!= 0 and max by (model, champion, challenger) (solar_duel_on) == 1",
        "0m", "info",
        "Duel of model {{ $labels.model }}: "
        "{{ if gt $value 0.0 }}{{ $labels.champion }}{{ else }}{{ $labels.challenger }}{{ end }} "
        "beats "
        "{{ if gt $value 0.0 }}{{ $labels.challenger }}{{ else }}{{ $labels.champion }}{{ end }}",
        "The duel of model {{ $labels.model }} between {{ $labels.champion }} and "
        "{{ $labels.challenger }} has a verdict. Until it ends, a share of the requests gets lists "
        "that the losing side helps to order. Promote the challenger if it has won, or end the "
        "duel.",
    ),
    Alert(
        "SolarBacklogGrowing",
        f"deriv({BACKLOG}[10m])",
        f"> 0 and {BACKLOG} > 1000",
        "10m", "warning",
        "Model {{ $labels.model }} learns more slowly than feedback arrives",
        "More than 1,000 records of model {{ $labels.model }} wait, and the backlog has grown for "
        "10 minutes. Rankings reflect feedback late, and /feedback answers 503 once the backlog "
        "reaches SOLAR_BACKLOG. Check that a learner holds the lease.",
    ),
    Alert(
        "SolarFreshnessOverBound",
        FRESHNESS,
        "> 1",
        "10m", "warning",
        "Model {{ $labels.model }}: feedback is served after {{ $value | humanizeDuration }} (p95)",
        "One in twenty new versions of model {{ $labels.model }} is served more than 1 second "
        "after its last record was appended. Rankings are correct but slightly out of date. Check "
        "the backlog and the commit duration.",
    ),
    Alert(
        "SolarTotalBacklogGrowing",
        "max(deriv(solar_backlog_records[10m]))",
        "> 0 and max(solar_backlog_records) > 10000",
        "10m", "warning",
        "All models together learn more slowly than feedback arrives",
        "More than 10,000 records wait over all models, and their number has grown for 10 minutes. "
        "Rankings of many models reflect feedback late. Check that enough learners run.",
    ),
    Alert(
        "SolarNoLeader",
        "max by (model) (solar_learner_present)",
        f"== 0 and on (model) {BACKLOG} > 0",  # of many models, those without records have none
        "1m", "critical",
        "No learner holds the lease of model {{ $labels.model }}",
        "Records of model {{ $labels.model }} wait, and no learner has held its lease for 1 "
        "minute. Rankings keep the current weights. Check the log of the learners.",
    ),
    Alert(
        "SolarLearningStalled",
        "max by (model) (solar_lag_seconds)",
        "> 60",
        "1m", "critical",
        "Model {{ $labels.model }} has learnt nothing for {{ $value | humanizeDuration }}",
        "Records of model {{ $labels.model }} wait, and none was learnt for more than 1 minute, "
        "also if a learner holds the lease. Rankings keep the current weights. Check the log of "
        "the learners.",
    ),
    Alert(
        "SolarNoLearner",
        "max(solar_learners)",
        "== 0",
        "1m", "critical",
        "No learner runs",
        "No learner process has been registered in the store for 1 minute. All models keep their "
        "current weights, and new feedback waits. Check that a learner process runs.",
    ),
    Alert(
        "SolarFollowerStalled",
        "max by (model, leader) (solar_follower_stalled)",
        "> 0",
        "0m", "warning",
        "Follower {{ $labels.model }} of model {{ $labels.leader }} has stalled",
        "Follower {{ $labels.model }} was so far behind model {{ $labels.leader }} that the log "
        "was trimmed without it. Users notice nothing, but it learns nothing more and takes part "
        "in no duel. Delete it and create it again.",
    ),
    Alert(
        "SolarFollowerBehind",
        recorded.FOLLOWER_LAG,
        f"> 1000 unless max by (model, leader) (solar_follower_stalled) > 0 {_LEADER_LAGS}",
        "30m", "warning",
        "Follower {{ $labels.model }} is {{ $value | humanize }} records behind model "
        "{{ $labels.leader }}",
        "For 30 minutes follower {{ $labels.model }} has not learnt more than 1,000 records that "
        "wait in the log of model {{ $labels.leader }}. Users notice nothing, but it gets no lists "
        "of a duel and stalls if it falls further behind. Check the CPU time of the learners.",
    ),
    Alert(
        "SolarModelDamaged",
        "max(solar_models_damaged)",
        "> 0",
        "2m", "critical",
        "Models with a damaged state: {{ $value }}",
        "The stored state of a model has been damaged for 2 minutes, and no learner has rebuilt "
        "it. Its requests get 503 or older weights, and all other models are served. Find it with "
        "GET /models.",
    ),
    Alert(
        "SolarVersionBackwards",
        new_count("max by (model)", "solar_store_rollbacks_total"),
        "> 0",
        "0m", "critical",
        "The store lost records of model {{ $labels.model }}",
        "The store went back to an earlier version of model {{ $labels.model }}, as after a "
        "failover. Acknowledged feedback may be lost, and rankings use older weights. Check which "
        "server failed over or was restored.",
    ),
    Alert(
        "SolarCovarianceCollapsed",
        new_count("sum by (model)", "solar_trace_halved_total"),
        "> 0",
        "0m", "warning",
        "The covariance of model {{ $labels.model }} fell by half within 100 records",
        "Model {{ $labels.model }} became certain within a few records, as after pairs with very "
        "large weights or features. It learns little from further feedback. Find the sender with "
        "solar log, and replay the model without it.",
    ),
    Alert(
        "SolarImpressionsNotRemembered",
        f'sum(rate(solar_impressions_total{{outcome="dropped"}}[10m])) / ({_IMPRESSIONS} > 0)',
        "> 0.001",
        "10m", "warning",
        "{{ $value | humanizePercentage }} of the rankings are not remembered",
        "More than 0.1 % of the rankings that asked for logging have not been stored for 10 "
        "minutes. Users get their rankings, but feedback on these is rejected and teaches nothing. "
        "Check the memory and the latency of the store.",
    ),
    Alert(
        "SolarClickedListsDropped",
        'sum(rate(solar_clicked_lists_total{outcome="dropped"}[10m])) '
        f"/ ({_CLICKED_LISTS} > 0)",
        "> 0.01",
        "10m", "warning",
        "{{ $value | humanizePercentage }} of the clicked lists are forgotten early",
        "For 10 minutes the clicked lists have used a quarter of the store's memory, and more than "
        "1 % of the new ones are kept only as long as lists without a click. Purchases later than "
        "that are rejected and teach nothing. Raise the memory limit, or shorten "
        "SOLAR_CONVERSION_SECONDS.",
    ),
    Alert(
        "SolarBeaconsForged",
        'sum(rate(solar_beacon_events_total{outcome="forged"}[10m])) '
        f"/ ({_BEACONS} > 0.1)",
        "> 0.1",
        "10m", "info",
        "{{ $value | humanizePercentage }} of the events of beacons have forged tokens",
        "For 10 minutes more than 10 % of the events at /beacon have had a token that no key of "
        "the service made for this viewer. They teach nothing. Check that all workers have the "
        "same SOLAR_TOKEN_KEYS, that a replaced key is still listed, and that pages send the "
        "viewer of the ranking; else somebody guesses tokens.",
    ),
    Alert(
        "SolarMemoryNearLimit",
        "max(solar_store_memory_share)",
        "> 0.7",
        "10m", "warning",
        "The store's memory is {{ $value | humanizePercentage }} full",
        "The store has used more than 70 % of its memory limit for 10 minutes. Above 80 % "
        "/rank stores no impressions, and at 100 % /feedback answers 503. Raise the memory limit.",
    ),
    Alert(
        "SolarErrorRate",
        f'sum(rate(solar_request_seconds_count{{status=~"5..",{TRAFFIC}}}[5m])) '
        f"/ sum(rate(solar_request_seconds_count{{{TRAFFIC}}}[5m]))",
        "> 0.05",
        "5m", "critical",
        "{{ $value | humanizePercentage }} of the requests fail",
        "More than 5 % of the client requests have had a 5xx response for 5 minutes. Users miss "
        "rankings, and clients must send feedback again. Check which endpoint and status fail.",
    ),
    Alert(
        "SolarStoreDown",
        "min by (instance) (solar_store_up)",
        "== 0",
        "1m", "critical",
        "{{ $labels.instance }} cannot reach the store",
        "Instance {{ $labels.instance }} has not reached the store for 1 minute. /rank answers "
        "from memory without storing impressions, and /feedback answers 503. Check the Redis "
        "server and the network to it.",
    ),
    Alert(
        "SolarProcessDown",
        "min by (instance, process) (avg_over_time(solar_process_up[5m]))",
        "< 0.8",
        "1m", "warning",
        "The {{ $labels.process }} of {{ $labels.instance }} is down or restarts repeatedly",
        "The {{ $labels.process }} of {{ $labels.instance }} was down for more than 1 of the last "
        "5 minutes. /rank goes on, but without the learner no model learns, and without the store "
        "/feedback answers 503. Read why it ended in the log of the service.",
    ),
    Alert(
        "SolarJobFailed",
        new_count("sum by (model)", 'solar_jobs_total{outcome="failed"}'),
        "> 0",
        "0m", "warning",
        "A training job of model {{ $labels.model }} failed",
        "A training job of model {{ $labels.model }} failed within the last 15 minutes. Users "
        "notice nothing, because the model keeps its weights. Read the error with GET /jobs/ID.",
    ),
    Alert(
        "SolarGone",
        "(count(solar_store_up) or vector(0))",
        "== 0",
        "2m", "critical",
        "Prometheus receives no metrics from the service",
        "Prometheus has received no metrics from any process for 2 minutes. The service may be "
        "down, and no other alert can fire. Check that the processes run and that Prometheus "
        "reaches /metrics.",
    ),
)  # fmt: skip
