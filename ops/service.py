"""*Service*: how many ask, how long they wait, and what they get."""

from ops.words import BOTH, INSTANCE, TRAFFIC, Board, Panel, Query, Row

REQUESTS = f"solar_request_seconds_count{{{TRAFFIC},{INSTANCE}}}"
FAILED = f'solar_request_seconds_count{{status=~"5..",{TRAFFIC},{INSTANCE}}}'
BUCKETS = f"solar_request_seconds_bucket{{{TRAFFIC},{INSTANCE}}}"
RATE = "$__rate_interval"


def _latency(percent: int) -> Panel:
    return Panel(
        f"Latency p{percent}",
        "s",
        f"Of {percent} % of the requests to an endpoint nobody waited longer; from buckets, so "
        "between two bounds it is a guess, and above 5 s it says 5 s.",
        (
            Query(
                f"histogram_quantile({percent / 100}, "
                f"sum by (route, le) (rate({BUCKETS}[{RATE}])))",
                "{{route}}",
            ),
        ),
        least=0,
    )


ASKED = Row(
    "Requests",
    (
        Panel(
            "Requests by endpoint",
            "reqps",
            "Requests a second, without those of probes and of Prometheus.",
            (Query(f"sum by (route) (rate({REQUESTS}[{RATE}]))", "{{route}}"),),
            "stacked", least=0,
        ),
        Panel(
            "Answers by status",
            "reqps",
            "Answers a second by their status: 4xx are the callers' (429: over their share), 503 "
            "ours: the store is gone or full, or too many records wait.",
            (Query(f"sum by (status) (rate({REQUESTS}[{RATE}]))", "{{status}}"),),
            "stacked", least=0,
        ),
        Panel(
            "Share of errors",
            "percentunit",
            "Answers with 5xx among all, by endpoint. Over 5 % in all for five minutes it alerts: "
            "SolarErrorRate.",
            (
                Query(
                    f"(sum by (route) (rate({FAILED}[{RATE}])) "
                    f"or 0 * sum by (route) (rate({REQUESTS}[{RATE}]))) "
                    f"/ sum by (route) (rate({REQUESTS}[{RATE}]))",
                    "{{route}}",
                ),
            ),
            decimals=1, least=0,
        ),
        *(_latency(percent) for percent in (50, 95, 99)),
    ),
)  # fmt: skip

DEGRADED = Row(
    "Degraded: the store is gone, /rank goes on from memory",
    (
        Panel(
            "Store reached",
            "bool_yes_no",
            "Whether each process reaches the store (with several workers: the one that answered).",
            (Query(f"min by (instance) (solar_store_up{{{INSTANCE}}})", "{{instance}}"),),
            "states",
        ),
        Panel(
            "Degraded time",
            "percentunit",
            "The share of the time shown in which a process did not reach the store.",
            (
                Query(
                    "1 - avg by (instance) "
                    f"(avg_over_time(solar_store_up{{{INSTANCE}}}[$__range]))",
                    "{{instance}}",
                ),
            ),
            "number", decimals=2, least=0, most=1,
        ),
        Panel(
            "Degraded answers",
            "reqps",
            "Answers of /rank a second that came from memory: right as of the last version known, "
            "and not remembered.",
            (
                Query(
                    f"sum by (model) (rate(solar_degraded_answers_total{{{BOTH}}}[{RATE}]))",
                    "{{model}}",
                ),
            ),
            least=0,
        ),
    ),
)  # fmt: skip

REMEMBERED = Row(
    "Impressions and memory",
    (
        Panel(
            "Impressions",
            "reqps",
            "Answers of /rank a second that were remembered, or dropped: the store was too slow, "
            "gone, or over 80 % full. Feedback on a dropped one is refused.",
            (
                Query(
                    f"sum by (outcome) (rate(solar_impressions_total{{{INSTANCE}}}[{RATE}]))",
                    "{{outcome}}",
                ),
            ),
            "stacked", 12, least=0,
        ),
        Panel(
            "Memory of the store",
            "percentunit",
            "Used share of the server's memory limit (0 if it has none). From 70 % on it alerts "
            "(SolarMemoryNearLimit), from 80 % on nothing is remembered; a full one takes none.",
            (Query(f"max(solar_store_memory_share{{{INSTANCE}}})", "used"),),
            width=12, decimals=1, least=0, most=1,
        ),
    ),
)  # fmt: skip

RUNS = Row(
    "Processes",
    (
        Panel(
            "Memory by process",
            "bytes",
            "Resident memory of each worker and of the learner; Linux only. What trainings and an "
            "embedded store use is not in it.",
            (
                Query(
                    "max by (instance, process) "
                    f'(process_resident_memory_bytes{{process!="",{INSTANCE}}})',
                    "{{instance}} {{process}}",
                ),
            ),
            least=0,
        ),
        Panel(
            "CPU by process",
            "percentunit",
            "Share of one core that each process uses; a worker answers on one, so near 100 % it "
            "is the bottleneck.",
            (
                Query(
                    "sum by (instance, process) "
                    f'(rate(process_cpu_seconds_total{{process!="",{INSTANCE}}}[{RATE}]))',
                    "{{instance}} {{process}}",
                ),
            ),
            least=0,
        ),
        Panel(
            "Version",
            "bool_yes_no",
            "Which versions run, and on which Python: two at once during a roll-out only.",
            (
                Query(
                    f"max by (version, python) (solar_build_info{{{INSTANCE}}})",
                    "{{version}}, Python {{python}}",
                ),
            ),
            "phases",
        ),
    ),
)  # fmt: skip

BOARD = Board(
    "service",
    "SOLAR: Service",
    "Requests, errors, latencies, the time without a store, and what the processes use.",
    (ASKED, DEGRADED, REMEMBERED, RUNS),
)
