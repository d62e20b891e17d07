"""Process metrics: the version, and CPU, memory and descriptors of each process (Linux only).

prometheus-client has no process metrics in multiprocess mode, where any worker answers for all. So
each process has a name here, the label `process`.
"""

import os
import platform
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from app import __version__
from app.observability import multiprocess
from app.observability.metric_help import HELP, PROCESS_LABEL


class Processes:
    """A collector for all processes of the multiprocess directory; without one, this process.

    It includes a learner with a separate directory.
    """

    def __init__(self, role: str, learner_metrics: str = "") -> None:
        self._directory = os.environ.get(multiprocess.DIRECTORY, "")
        self._learner_metrics = learner_metrics
        self._role, self._pid = role, os.getpid()
        self._reader = ProcessCollector(pid=lambda: self._pid, registry=None)
        if self._directory:
            multiprocess.name_process(self._directory, role)

    def collect(self) -> Iterator[Metric]:
        """Yield the version and each metric with a sample for every process."""
        build = GaugeMetricFamily(
            "solar_build_info", HELP["solar_build_info"], labels=["version", "python"]
        )
        build.add_metric([__version__, platform.python_version()], 1.0)
        yield build
        yield from self._status()
        families: dict[str, Metric] = {}
        for name, pid in self._processes().items():
            self._pid = pid  # the reader reads this process
            for found in self._reader.collect():
                about = Metric(found.name, f"{found.documentation} {PROCESS_LABEL}", found.type)
                family = families.setdefault(found.name, about)
                for sample in found.samples:
                    family.add_sample(sample.name, {"process": name}, sample.value)
        yield from families.values()

    def _status(self) -> Iterator[Metric]:
        """Yield the status of the processes that are restarted when they end."""
        up, restarts = "solar_process_up", "solar_process_restarts"
        running = GaugeMetricFamily(up, HELP[up], labels=["process"])
        ended = CounterMetricFamily(restarts, HELP[restarts], labels=["process"])
        found = multiprocess.read_status(self._learner_metrics)
        for name, status in found.items():
            running.add_metric([name], status.up)
            ended.add_metric([name], status.restarts)
        yield from (running, ended)

    def _processes(self) -> dict[str, int]:
        if self._directory:
            return multiprocess.named_processes(self._directory)
        own = {self._role: os.getpid()}
        if self._learner_metrics:
            own |= multiprocess.named_processes(self._learner_metrics)
        return own
