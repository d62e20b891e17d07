"""The metrics page: every series of `/metrics`, with its HELP text."""

from collections.abc import Iterable

import numpy as np
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from app.domain.duels import Duel, DuelState
from app.domain.facts import Committed, ModelStatus, Served
from app.domain.model import SUMS
from app.domain.model_config import new_model_config
from app.observability.follower_metrics import chosen_followers
from app.observability.metrics import Metrics
from app.observability.model_metrics import ModelTotals, StoreHealth
from app.serving.served_model import ServedModel
from tools.reference.markdown import table

_HEAD = """# Metrics

All metrics of `GET /metrics`. Every worker returns the metrics of all workers and of the learner that `solar serve` started.
[Choose and read the measures](../measures.md) says which to watch, the [runbook](../runbook.md) what to do on an alert.

- A model's measures come from its committed state, so every replica reports the same value. Aggregate them with `max`, not `sum`.
- Sums (`…_summed`) are for windows: `delta(solar_online_ndcg_summed{k="10"}[1h]) / ignoring(k) delta(solar_queries[1h])`.
  The dashboards compute standard errors in windows from the sums of squares (`…_squares_summed`).
- A measure is absent while there is none: a mean before the first query, a standard error (`…_stderr`) before the second.
- The metrics of a duel (`solar_duel_…`) are there once a model has had one, those of a follower (`solar_follower_…`) while it
  exists. A follower is in no metric of models.
- Workers share their counters through files in a directory under `TMPDIR`. A new start removes the directory of a killed
  service. With another process manager, set `PROMETHEUS_MULTIPROC_DIR` to a directory that is empty at the start.
"""


def page() -> str:
    """Render the page."""
    families = _families()
    old = [one for one in families if one.documentation.startswith("Deprecated")]
    process = [one for one in families if one.name.startswith("process_")]
    solar = [one for one in families if one not in old and one not in process]
    parts = {"Models, requests and store": solar, "Processes": process, "Deprecated": old}
    return _HEAD + "".join(
        f"\n## {title}\n\n{_table(members)}\n" for title, members in parts.items() if members
    )


def _table(families: Iterable[Metric]) -> str:
    rows = ([f"`{_name(one)}`", _type(one), _labels(one), one.documentation] for one in families)
    return table(["metric", "type", "labels", "meaning"], rows)


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _type(family: Metric) -> str:
    return "untyped" if family.type == "unknown" else family.type


def _labels(family: Metric) -> str:
    names = {name for sample in family.samples for name in sample.labels} - {"le"}
    return ", ".join(f"`{name}`" for name in sorted(names))


def _families() -> list[Metric]:
    """Every family of a process that serves a model with two queries, in a duel with a follower."""
    sums, config = np.full(len(SUMS), 2.0), new_model_config(("bm25",), prior=0.0)
    duel = DuelState(1, Duel("books-b", 0.2, 0.05))
    model = ServedModel("books", 1, 1, config, np.ones(1), sums, 1.0, duel=duel)
    followers = chosen_followers({"books": model}, {}, {"books/books-b": model}, ())
    metrics = Metrics()
    metrics.request("/rank", 200, 0.001)
    metrics.served(Served("books", 1, False))
    metrics.learnt(Committed("books", 1, 0.001))
    health, totals = StoreHealth(True, 0.5), ModelTotals(models=1, learners=1)
    text = metrics.page([model], {"books": ModelStatus(1)}, health, totals, followers=followers)
    found = text_string_to_metric_families(text.decode())
    plain = (family for family in found if not family.name.endswith("_created"))
    return sorted(plain, key=lambda family: family.name)
