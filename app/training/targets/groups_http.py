"""`solar train --group-by` over HTTP: one job of the service a group, one after the other.

The groups are trained here first: that refuses bad groups before anything changes, and finds the
pooled choice. The service then trains each group again, with the same result.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from random import random
from typing import Any

import numpy as np
from solar_client import Conflict, Job, NotFound, Solar, Unavailable
from solar_client.backoff import delay

from app.domain.model_config import ModelConfig, new_model_config
from app.evaluation.tables import placed
from app.ranking.sparse import SparseRows
from app.simulation.service_client import client_errors, service_client
from app.training.groups import Fit, GroupTask, GroupTraining, Outcome
from app.training.options import Training
from app.training.targets.groups import GroupReport, GroupRequest, outcomes, replaced_counted

#: Seconds to wait for a free slot: each job has to end, and others may train, too.
SLOT_SECONDS = 600.0


def groups_over_http(request: GroupRequest, bound: float, url: str) -> str:
    """Train all groups in a service and wait; return a summary."""
    with service_client(url) as client:
        with request.workers() as workers:
            data = request.read()
            configs = existing_models(client, request.names(data))
            tasks = request.tasks(data, configs)
            training = GroupTraining(request.training, bound)
            found = list(outcomes(request, tasks, training, workers))
        report = GroupReport(request, tasks)
        with replaced_counted(report), client_errors():
            for one in found:
                if isinstance(one.found, Fit):
                    if one.task.model not in configs:
                        create_group_model(client, one.task)
                    train_remotely(client, one, one.found, request.training)
                report.add(one)
    return f"{report.finish()}\nmodels replaced: {report.trained}"


def existing_models(client: Solar, names: Sequence[str]) -> dict[str, ModelConfig]:
    """Return the settings that matter for training, of the models that exist."""
    found = {}
    for name in names:
        with suppress(NotFound):
            model = client.get_model(name)
            found[name] = new_model_config(
                tuple(model.features), covariance="diagonal", prior=0.0,  # Σ is the service's
                normalization=model.normalization, splines=model.splines,
            )  # fmt: skip
    return found


def create_group_model(client: Solar, task: GroupTask) -> None:
    """Create the model of a group."""
    config = task.config
    settings = {"covariance": config.covariance, "normalization": config.normalization}
    client.create_model(task.model, config.given, prior=0.0, **settings)


def train_remotely(client: Solar, outcome: Outcome, fit: Fit, training: Training) -> None:
    """Run the job of a group; Ctrl-C cancels it."""
    task = outcome.task
    options = {name: getattr(training, name) for name in Training.__struct_fields__}
    if outcome.pooled:
        options |= {training.parameter: fit.about[training.parameter], "validation": None}
    job = _started(client, task.model, letor_text(task), options)
    try:
        client.wait_for_job(job.id)
    except KeyboardInterrupt:
        with suppress(Conflict):  # the job has ended
            client.cancel_job(job.id)
        raise


def letor_text(task: GroupTask) -> bytes:
    """Return the data of a group as the service receives it; features of 0 are omitted."""
    given, lines = task.config.given, []
    for at, query in enumerate(task.data.queries):
        rows = query.documents
        if isinstance(rows, np.ndarray):
            rows = SparseRows.of(placed(rows, task.names, given))
        for label, low, high in zip(query.labels, rows.indptr, rows.indptr[1:], strict=False):
            pairs = zip(rows.indices[low:high], rows.data[low:high], strict=True)
            named = [f"{column + 1}:{value!s}" for column, value in pairs]
            lines.append(f"{label:.17g} qid:{at} {' '.join(named)}")
    last = f" {len(given)}:0"  # the text must have the last feature once
    if f" {len(given)}:" not in lines[0]:
        lines[0] += last
    return "\n".join([*lines, ""]).encode()


def _started(client: Solar, model: str, text: bytes, options: dict[str, Any]) -> Job:
    """Start a job; wait while the service has no free slot."""
    until, failures = time.monotonic() + SLOT_SECONDS, 0
    while True:
        try:
            return client.warm_start(model, text, wait=False, **options)
        except Unavailable:
            if time.monotonic() > until:
                raise
        failures += 1
        time.sleep(delay(failures, 0.0, random()))  # noqa: S311  # jitter
