"""Dashboard *Service*: traffic, errors, latency, store availability and resources."""

from ops import overview
from ops.words import BOTH, INSTANCE, TRAFFIC, Board, Panel, Query, Row, active, shown_range

REQUEST_COUNT = f"solar_request_seconds_count{{{TRAFFIC},{INSTANCE}}}"
ERROR_COUNT = f'solar_request_seconds_count{{status=~"5..",{TRAFFIC},{INSTANCE}}}'
BUCKETS = f"solar_request_seconds_bucket{{{TRAFFIC},{INSTANCE}}}"
DEGRADED = f"solar_degraded_answers_total{{{BOTH}}}"
RATE = "$__rate_interval"


def _latency(percent: int) -> Panel:
    return Panel(
        f"Latency p{percent}",
        "s",
        f"{percent} % of the requests to an endpoint take at most this long. Values are "
        "interpolated between histogram buckets; values above 5 s show as 5 s.",
        (
            Query(
                f"histogram_quantile({percent / 100}, "
                f"sum by (route, le) (rate({BUCKETS}[{RATE}])))",
                "{{route}}",
            ),
        ),
        minimum=0,
    )


REQUESTS = Row(
    "Requests",
    (
        Panel(
            "Requests by endpoint",
            "reqps",
            "Requests per second, without probes, scrapes and documentation.",
            (Query(f"sum by (route) (rate({REQUEST_COUNT}[{RATE}]))", "{{route}}"),),
            "stacked", minimum=0,
        ),
        Panel(
            "Responses by status",
            "reqps",
            "Responses per second by HTTP status. 4xx: the client's request is wrong (429: a "
            "source exceeds its share). 503: retry later, as the store is unreachable or full, the "
            "backlog limit is reached, or a model cannot be read.",
            (Query(f"sum by (status) (rate({REQUEST_COUNT}[{RATE}]))", "{{status}}"),),
            "stacked", minimum=0,
        ),
        Panel(
            "Error rate",
            "percentunit",
            "Share of 5xx among all responses, by endpoint. More than 5 % over all endpoints for 5 "
            "minutes fires SolarErrorRate.",
            (
                Query(
                    f"(sum by (route) (rate({ERROR_COUNT}[{RATE}])) "
                    f"or 0 * sum by (route) (rate({REQUEST_COUNT}[{RATE}]))) "
                    f"/ sum by (route) (rate({REQUEST_COUNT}[{RATE}]))",
                    "{{route}}",
                ),
            ),
            decimals=1, minimum=0,
        ),
        *(_latency(percent) for percent in (50, 95, 99)),
    ),
)  # fmt: skip

STORE = Row(
    "Store availability",
    (
        Panel(
            "Store reachable",
            "bool_yes_no",
            "Whether each instance reaches the store. With several workers, the worker that "
            "answered the scrape. No for 1 minute fires SolarStoreDown.",
            (Query(f"min by (instance) (solar_store_up{{{INSTANCE}}})", "{{instance}}"),),
            "states",
        ),
        Panel(
            "Time without the store",
            "percentunit",
            "Share of the shown time range in which an instance did not reach the store.",
            (
                Query(
                    "1 - avg by (instance) "
                    f"(avg_over_time(solar_store_up{{{INSTANCE}}}[$__range]))",
                    "{{instance}}",
                ),
            ),
            "number", decimals=2, minimum=0, maximum=1,
        ),
        Panel(
            "Degraded answers",
            "reqps",
            "/rank answers per second that came from memory because the store was unreachable. "
            "They use the last known weights, and their impressions are not stored. Empty if there "
            "were none in the shown time range.",
            (
                Query(
                    active(
                        f"sum by (model) (rate({DEGRADED}[{RATE}]))",
                        f"sum by (model) ({shown_range('increase', DEGRADED)})",
                    ),
                    "{{model}}",
                ),
            ),
            minimum=0,
        ),
    ),
)  # fmt: skip

IMPRESSIONS = Row(
    "Impressions and store memory",
    (
        Panel(
            "Impressions",
            "reqps",
            "/rank answers per second whose impression was stored (remembered) or not (dropped). "
            "An impression is dropped if the store is slow, unreachable or more than 80 % full "
            "(with several API keys, 70 % to 90 %, by key). "
            "Feedback on it is rejected. More than 0.1 % dropped in 10 minutes, for 10 minutes, "
            "fires SolarImpressionsNotRemembered.",
            (
                Query(
                    f"sum by (outcome) (rate(solar_impressions_total{{{INSTANCE}}}[{RATE}]))",
                    "{{outcome}}",
                ),
            ),
            "stacked", 12, minimum=0,
        ),
        Panel(
            "Store memory used",
            "percentunit",
            "Used share of the store's memory limit; 0 without a limit. More than 70 % fires "
            "SolarMemoryNearLimit. Above 80 % no impressions are stored (with several API keys, "
            "70 % to 90 %, by key). A full store refuses all feedback.",
            (Query(f"max(solar_store_memory_share{{{INSTANCE}}})", "used"),),
            width=12, decimals=1, minimum=0, maximum=1,
        ),
    ),
)  # fmt: skip

BEACONS = Row(
    "Beacons and clicked lists",
    (
        Panel(
            "Beacon events",
            "reqps",
            "Events per second at /beacon, by what became of them. Only accepted ones are in the "
            "log. More than 10 % forged for 10 minutes fires SolarBeaconsForged. Without "
            "SOLAR_TOKEN_KEYS there are none.",
            (
                Query(
                    f"sum by (outcome) (rate(solar_beacon_events_total{{{INSTANCE}}}[{RATE}]))",
                    "{{outcome}}",
                ),
            ),
            "stacked", 12, minimum=0,
        ),
        Panel(
            "Clicked lists",
            "reqps",
            "Lists per second that get their first click: remembered for late purchases (kept), or "
            "only as long as other lists, because clicked lists use a quarter of the store's "
            "memory (dropped). More than 1 % dropped in 10 minutes, for 10 minutes, fires "
            "SolarClickedListsDropped.",
            (
                Query(
                    f"sum by (outcome) (rate(solar_clicked_lists_total{{{INSTANCE}}}[{RATE}]))",
                    "{{outcome}}",
                ),
            ),
            "stacked", 12, minimum=0,
        ),
    ),
)  # fmt: skip

PROCESSES = Row(
    "Processes",
    (
        Panel(
            "Processes up",
            "bool_yes_no",
            "Whether each worker, the learner and the embedded store of an instance are up. Down "
            "for more than 1 of 5 minutes fires SolarProcessDown.",
            (
                Query(
                    f"min by (instance, process) (solar_process_up{{{INSTANCE}}})",
                    "{{instance}} {{process}}",
                ),
            ),
            "states", 12,
        ),
        Panel(
            "Restarts by process",
            "short",
            "How often a worker, the learner or the embedded store ended within 5 minutes. "
            "Restarts in a row follow after 0.1 s to 5 s.",
            (
                Query(
                    "sum by (instance, process) "
                    f"(increase(solar_process_restarts_total{{{INSTANCE}}}[5m]))",
                    "{{instance}} {{process}}",
                ),
            ),
            width=12, minimum=0,
        ),
        Panel(
            "Memory by process",
            "bytes",
            "Resident memory of each worker and of the learner (Linux only). Training jobs and an "
            "embedded store are not included.",
            (
                Query(
                    "max by (instance, process) "
                    f'(process_resident_memory_bytes{{process!="",{INSTANCE}}})',
                    "{{instance}} {{process}}",
                ),
            ),
            minimum=0,
        ),
        Panel(
            "CPU by process",
            "percentunit",
            "CPU use of each process as a share of one core. A worker uses one core, so near 100 % "
            "it is the bottleneck.",
            (
                Query(
                    "sum by (instance, process) "
                    f'(rate(process_cpu_seconds_total{{process!="",{INSTANCE}}}[{RATE}]))',
                    "{{instance}} {{process}}",
                ),
            ),
            minimum=0,
        ),
        Panel(
            "Software version",
            "bool_yes_no",
            "Running versions of SOLAR and Python. Two versions at once are normal only during a "
            "rollout.",
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
    "Requests, errors, latency, store availability, and memory and CPU of the processes.",
    (overview.ROW, REQUESTS, STORE, IMPRESSIONS, BEACONS, PROCESSES),
)
