"""The metrics of duels, made from committed states; a model without a duel has none of them."""

from collections.abc import Callable, Iterable, Iterator
from math import log
from sys import float_info

from prometheus_client.core import GaugeMetricFamily

from app.domain.duels import DuelState
from app.domain.model import SUMS
from app.domain.statistics import CUTOFFS
from app.observability.duel_help import DUEL_HELP
from app.serving.served_model import ServedModel

_SIDES = ("model", "champion", "challenger")
_QUERIES = SUMS.index("duel_queries")


def duel_metrics(models: Iterable[ServedModel]) -> Iterator[GaugeMetricFamily]:
    """Each metric of duels; those without a value are left out with their help texts."""
    models = list(models)
    yield from with_values(_states(models))
    yield from with_values(_measures(models))


def with_values(families: Iterable[GaugeMetricFamily]) -> Iterator[GaugeMetricFamily]:
    """Leave out metrics without a value."""
    return (family for family in families if family.samples)


def gauge(name: str, *labels: str) -> GaugeMetricFamily:
    """Begin a metric of duels or followers."""
    return GaugeMetricFamily(name, DUEL_HELP[name], labels=labels)


def _states(models: Iterable[ServedModel]) -> Iterator[GaugeMetricFamily]:
    """The duel of each model that has one, or had one."""
    duels = [(_sides(model.name, duel), duel) for model in models if (duel := model.duel)]
    for name, counts in _COUNTS.items():
        family = gauge(name, *_SIDES, "outcome")
        for sides, duel in duels:
            for outcome, count in counts(duel).items():
                family.add_metric([*sides, outcome], count)
        yield family
    for name, value in _VALUES.items():
        family = gauge(name, *_SIDES)
        for sides, duel in duels:
            family.add_metric(sides, value(duel))
        yield family


def _sides(model: str, duel: DuelState) -> list[str]:
    return [model, duel.settings.champion or model, duel.settings.challenger]


def _measures(models: Iterable[ServedModel]) -> Iterator[GaugeMetricFamily]:
    """NDCG and MAP of the lists of duels, of each model that has some."""
    found = [
        (model.name, dict(zip(SUMS, model.sums.tolist(), strict=True)))
        for model in models
        if model.sums[_QUERIES]
    ]
    queries = gauge("solar_duel_queries", "model")
    ndcg, ndcg_sum = (gauge(f"solar_duel_ndcg{end}", "model", "k") for end in ("", "_summed"))
    average, average_sum = (gauge(f"solar_duel_map{end}", "model") for end in ("", "_summed"))
    for name, sums in found:
        count = sums["duel_queries"]
        queries.add_metric([name], count)
        for k, measure in CUTOFFS.items():
            ndcg.add_metric([name, k], sums[f"duel_{measure}"] / count)
            ndcg_sum.add_metric([name, k], sums[f"duel_{measure}"])
        average.add_metric([name], sums["duel_map"] / count)
        average_sum.add_metric([name], sums["duel_map"])
    yield from (queries, ndcg, ndcg_sum, average, average_sum)


def _log(evidence: float) -> float:
    """Return the logarithm, also of evidence that is 0 by a fault: the page must not fail."""
    return log(max(evidence, float_info.min))


_COUNTS: dict[str, Callable[[DuelState], dict[str, float]]] = {
    "solar_duel_lists": lambda duel: {
        "won": duel.wins, "lost": duel.losses, "tied": duel.lists - duel.wins - duel.losses,
    },
    "solar_duel_decided_lists": lambda duel: {"won": duel.won, "lost": duel.lost},
}  # fmt: skip
_VALUES: dict[str, Callable[[DuelState], float]] = {
    "solar_duel_on": lambda duel: duel.is_on,
    "solar_duel_log_evidence": lambda duel: _log(duel.evidence),
    "solar_duel_log_evidence_max": lambda duel: _log(duel.largest),
    "solar_duel_alpha": lambda duel: duel.settings.alpha,
    "solar_duel_verdict": lambda duel: duel.verdict,
}
