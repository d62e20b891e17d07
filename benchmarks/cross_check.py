"""The load client of these benchmarks next to wrk, which others wrote (Debian package `wrk`).

Both send the same /rank request in a closed loop on as many connections, in turns. wrk counts
answers that are not 2xx or 3xx, and any makes the comparison void.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import load
from benchmarks.report import Goal, at_most, not_measured, table
from benchmarks.service import (
    CONNECTIONS,
    DOCUMENTS,
    TOP,
    N,
    Running,
    create,
    good,
    rank_requests,
    solar,
)

ROUNDS, SECONDS = 5, 2
NAME = "load client next to wrk"
SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
"""


def run() -> list[Goal]:
    """Print the table, return the goals."""
    tool = shutil.which("wrk")
    if tool is None:
        print("Load client: wrk is not installed (apt-get install wrk)\n")
        return [not_measured(NAME, "<= 10 %")]
    with tempfile.TemporaryDirectory(prefix="solar-bench-") as folder:
        directory = Path(folder)
        with solar(directory / "data") as service:
            create(service.port, "bench", N)
            return [_compare(service, tool, directory)]


def _compare(service: Running, tool: str, directory: Path) -> Goal:
    """Return the difference of the medians of both tools."""
    request = rank_requests("bench", DOCUMENTS, N, TOP)["objects"][0]
    body, script = directory / "body.json", directory / "post.lua"
    body.write_bytes(request.partition(b"\r\n\r\n")[2])
    script.write_text(SCRIPT.format(body=body))
    found: dict[str, list[float]] = {"this client": [], "wrk": []}
    for _ in range(ROUNDS):
        flood = load.flood(service.port, load.lasting([request], SECONDS), CONNECTIONS)
        found["this client"].append(good(load.run(flood)).rate)
        found["wrk"].append(_rate_of_wrk(tool, script, service.port))
    rows = [
        [name, f"{np.median(rates):,.0f} /s", f"{min(rates):,.0f}", f"{max(rates):,.0f}"]
        for name, rates in found.items()
    ]
    title = (
        f"/rank, objects, {CONNECTIONS} connections, {ROUNDS} rounds of {SECONDS} s each, in turns"
    )
    print(table(title, ["", "median", "least", "most"], rows), "\n")
    own, other = (float(np.median(found[name])) for name in ("this client", "wrk"))
    return at_most(NAME, 10, "% apart", 100 * abs(own / other - 1))


def _rate_of_wrk(tool: str, script: Path, port: int) -> float:
    """Return the requests per second that wrk counts."""
    command = [tool, "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", str(script)]
    target = f"http://{load.HOST}:{port}/rank"
    said = subprocess.run([*command, target], capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(f"wrk: expected no failed requests, got\n{said}")
    return float(re.findall(r"Requests/sec: *([\d.]+)", said)[0])
