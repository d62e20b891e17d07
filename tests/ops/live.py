"""`python -m tests.ops.live`: a real Prometheus scrapes a real service under traffic.

Every expression of every panel and rule must return data, and promtool must have no complaint about
the page of metrics. Expressions that need a week of data get it by backfill: a block of last week's
recorded quality.
"""

import contextlib
import json
import math
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from app.api.tokens import new_token_key
from app.learning.learner import warm_up
from ops.__main__ import ROOT
from ops.recorded import DAY_NDCG, DAY_NDCG_ERROR
from tests.api.services import serving
from tests.ops.expressions import Expression, all_expressions
from tests.ops.traffic import CLICKED, JUDGED, SHARE, Traffic
from tests.servers import TIMEOUT, until

WEEK = 7 * 86_400
#: Values of Grafana's variables; `$model` gets one of MODELS, as a band needs one model.
VARIABLES = {"$__rate_interval": "30s", "$__range": "10m", "$window": "1m", "$instance": ".*"}
MODELS = (".*", CLICKED)
#: Panels of faults that the traffic does not cause, and of a job that ends between two scrapes:
#: their models need no activity.
QUIET = ("Store rollbacks", "Rejected records", "Learner interruptions", "Training job running")
ACTIVITY = "@ end())) >"
#: Series that the traffic must have increased.
INCREASED = (
    'solar_jobs_total{outcome="done"}', 'solar_jobs_total{outcome="failed"}',
    'solar_replacements_total{kind="warm-start"}', 'solar_replacements_total{kind="rollback"}',
    'solar_feedback_events_total{outcome="duplicates"}',
    'solar_feedback_events_total{outcome="rejected"}',
    'solar_feedback_events_total{outcome="over-share"}',
    'solar_beacon_events_total{outcome="accepted"}',
    'solar_beacon_events_total{outcome="forged"}', 'solar_clicked_lists_total{outcome="kept"}',
    'solar_impressions_total{outcome="dropped"}', "solar_degraded_answers_total",
    'solar_request_seconds_count{status="503"}', 'solar_request_seconds_count{status="404"}',
    "solar_exploration_loss_total", "solar_exploration_loss_rankings_total",
)  # fmt: skip
SETTINGS = {
    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
    "rule_files": [str(ROOT / "docker" / "prometheus" / "rules.yml")],
}


def free_port() -> int:
    """A port that is free at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


@contextlib.contextmanager
def prometheus(directory: Path, targets: list[str]) -> Iterator[httpx.Client]:
    """A client for a Prometheus that scrapes these targets and evaluates the rules."""
    jobs = [{"job_name": "solar", "static_configs": [{"targets": targets}]}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump({**SETTINGS, "scrape_configs": jobs}))
    backfill(directory)
    port = free_port()
    command = [
        "prometheus", f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            until(lambda: ready(http, process, directory / "log"))
            yield http
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def ready(http: httpx.Client, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Whether Prometheus answers."""
    assert process.poll() is None, log.read_text()
    try:
        return http.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def backfill(directory: Path) -> None:
    """Write 20 minutes of last week's recorded quality into Prometheus' data."""
    start = time.time() - WEEK - 300
    lines = []
    for name, value in ((DAY_NDCG, 0.5), (DAY_NDCG_ERROR, 0.01)):
        lines += [f"# TYPE {name} gauge"]
        lines += [
            f'{name}{{model="{JUDGED}"}} {value} {start + at:.0f}' for at in range(0, 1200, 10)
        ]
    (directory / "week.txt").write_text("\n".join([*lines, "# EOF", ""]))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics",  # noqa: S607  # on PATH
         str(directory / "week.txt"), str(directory / "data")],
        check=True, capture_output=True,
    )  # fmt: skip


def query(http: httpx.Client, expr: str, model: str) -> list[Any]:
    """The series that an expression returns now, without NaN."""
    for name, value in {**VARIABLES, "$model": model}.items():
        expr = expr.replace(name, value)
    answer = http.post("/api/v1/query", data={"query": expr}).json()
    assert answer["status"] == "success", (expr, answer)
    return [one for one in answer["data"]["result"] if not math.isnan(float(one["value"][1]))]


def without_data(http: httpx.Client, expressions: list[Expression]) -> list[Expression]:
    """The expressions that return nothing."""
    return [one for one in expressions if not any(query(http, one.expr, m) for m in MODELS)]


def without_activity(one: Expression) -> Expression:
    """For the panels in QUIET, the expression for all models."""
    if not one.where.endswith(QUIET):
        return one
    return one._replace(expr=one.expr.replace(ACTIVITY, f"{ACTIVITY}="))


def complaints(page: bytes) -> str:
    """What promtool has to say about a page of metrics."""
    command = ["promtool", "check", "metrics"]
    found = subprocess.run(command, input=page, capture_output=True, check=False)
    output = (found.stdout + found.stderr).decode()
    return output or ("promtool failed" if found.returncode else "")


def main() -> int:
    """Run traffic until every expression has data; 1 if one has none after two minutes."""
    warm_up()  # the first compilation exceeds the timeout of `until`
    expressions = [*map(without_activity, all_expressions())]
    expressions += [Expression("the traffic", f"{one} > 0") for one in INCREASED]
    with (
        tempfile.TemporaryDirectory(prefix="solar-live-") as directory,
        serving("--workers", "2", "--source-share", str(SHARE), "--jobs", "2",
                environ={"SOLAR_REMEMBER_SECONDS": "0.5",
                         "SOLAR_TOKEN_KEYS": new_token_key("k1")}) as service,
        prometheus(Path(directory), [service.url.removeprefix("http://")]) as http,
        service.client() as client,
    ):  # fmt: skip
        until(lambda: query(http, "solar_store_up", ""))  # else the first counts are not seen
        traffic = Traffic(client, service)
        traffic.start()
        deadline, left = time.monotonic() + 120, expressions
        while left and time.monotonic() < deadline:
            traffic.round()
            left = without_data(http, left)
        print(json.dumps(traffic.answers, indent=1))
        counted = len(expressions) - len(left)
        print(f"{counted} of {len(expressions)} expressions returned data")
        for one in left:
            print("EMPTY", one.where, one.expr, sep=" | ")
        page = client.get("/metrics").content
    print(f"promtool check metrics on {page.count(b'# TYPE')} metrics:", complaints(page) or "fine")
    return int(bool(left or complaints(page)))


if __name__ == "__main__":
    sys.exit(main())
