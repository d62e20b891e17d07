"""The metrics of ranking quality: means, standard errors, and the sums for time windows.

A value is absent where there is none: a mean before the first query, a standard error before the
second. Models from before there were standard errors have neither these nor sums of squares.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from app.domain.model import SUMS
from app.domain.statistics import CUTOFFS, Statistics
from app.observability.quality_help import QUALITY_HELP, SIDES
from app.serving.served_model import ServedModel

#: Order in debiased wins → prefix of its sum.
_ORDERS = {"model": "", "submitted": "baseline_"}
PRODUCTS = (
    "weight_weight", "model_weight", "submitted_weight", "model_model", "submitted_submitted",
    "model_submitted",
)  # fmt: skip


class Measured(NamedTuple):
    """A model with its sums by name and its statistics."""

    name: str
    unit: float  # weight of a click pair whose two orders are equally likely
    has_errors: bool
    sums: dict[str, float]
    statistics: Statistics

    @classmethod
    def of(cls, model: ServedModel) -> "Measured":
        """Read the sums of a served model."""
        sums = dict(zip(SUMS, model.sums.tolist(), strict=True))
        has_errors, unit = model.config.counts_abandoned, model.config.kappa
        return cls(model.name, unit, has_errors, sums, Statistics(sums, has_errors))


def quality_metrics(models: Iterable[ServedModel]) -> Iterator[GaugeMetricFamily]:
    """Each metric of quality with its value for every model."""
    measured = [Measured.of(model) for model in models]
    for side in SIDES:
        for suffix, value in _VALUES.items():
            yield _ndcg(measured, side, suffix, value)
            yield _map(measured, side, suffix, value)
    yield _abandoned(measured)
    yield from _wins(measured)
    yield from _wins_sums(measured)


#: A value of a side (online, baseline, …) and a measure; None: absent.
_Value = Callable[[Measured, str, str], float | None]


def _squares(model: Measured, side: str, measure: str) -> float | None:
    return model.statistics.squares(side, measure) if model.has_errors else None


#: Suffix of a metric's name → its value.
_VALUES: dict[str, _Value] = {
    "": lambda m, side, measure: m.statistics.mean(side, measure),
    "_stderr": lambda m, side, measure: m.statistics.error(side, measure),
    "_summed": lambda m, side, measure: m.statistics.total(side, measure),
    "_squares_summed": _squares,
}


def _ndcg(models: list[Measured], side: str, suffix: str, value: _Value) -> GaugeMetricFamily:
    family = _gauge(f"solar_{side}_ndcg{suffix}", "model", "k")
    for model in models:
        for k, measure in CUTOFFS.items():
            _add(family, [model.name, k], value(model, side, measure))
    return family


def _map(models: list[Measured], side: str, suffix: str, value: _Value) -> GaugeMetricFamily:
    family = _gauge(f"solar_{side}_map{suffix}", "model")
    for model in models:
        _add(family, [model.name], value(model, side, "map"))
    return family


def _abandoned(models: list[Measured]) -> GaugeMetricFamily:
    family = _gauge("solar_abandoned_lists", "model")
    for model in models:
        _add(family, [model.name], model.statistics.abandoned)
    return family


def _wins(models: list[Measured]) -> Iterator[GaugeMetricFamily]:
    """Debiased wins of both orders, and the lead, with standard errors."""
    wins = _gauge("solar_debiased_wins", "model", "order")
    wins_error = _gauge("solar_debiased_wins_stderr", "model", "order")
    lead, lead_error = (
        _gauge("solar_debiased_lead", "model"),
        _gauge("solar_debiased_lead_stderr", "model"),
    )
    for model in models:
        found = model.statistics
        for order in _ORDERS:
            _add(wins, [model.name, order], found.wins(order))
            _add(wins_error, [model.name, order], found.wins_error(order))
        _add(lead, [model.name], found.wins("lead"))
        _add(lead_error, [model.name], found.wins_error("lead"))
    yield from (wins, wins_error, lead, lead_error)


def _wins_sums(models: list[Measured]) -> Iterator[GaugeMetricFamily]:
    """The sums for debiased wins in windows.

    The unit is a pair whose two orders are equally likely, for models of any release.
    """
    won = _gauge("solar_debiased_wins_summed", "model", "order")
    weight = _gauge("solar_debiased_weight_summed", "model")
    products = _gauge("solar_debiased_products_summed", "model", "product")
    for model in models:
        name, unit, sums = model.name, model.unit, model.sums
        for order, prefix in _ORDERS.items():
            _add(won, [name, order], sums[f"{prefix}debiased_wins"] / unit)
        _add(weight, [name], sums["debiased_weight"] / unit)
        for product in PRODUCTS if model.has_errors else ():
            _add(products, [name, product], sums[f"wins_{product}"] / unit**2)
    yield from (won, weight, products)


def _gauge(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, QUALITY_HELP[name], labels=labels)


def _add(family: GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)
