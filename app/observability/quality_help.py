"""The help texts of the metrics of ranking quality."""

_SINCE = "Counted since the last reset of the measures."
_WITHOUT_ERRORS = "for models from before there were standard errors"
_ORDERS = "by model and order: model (without exploration) or submitted"
_PAIRS = "click pairs from randomised rankings"
_FIRST_PAIR = "Absent before the first click pair from a randomised ranking."
_SIGN = (
    "A cheap, pessimistic sign for one model against its own submitted order: it leans against the "
    "model that draws the rankings. Do not compare models by it."
)
_IN_WINDOWS = "for standard errors in time windows"

#: Sides of the measures → what is measured, and the metric with the number of queries.
SIDES = {
    "online": ("of the rankings as served", "solar_queries"),
    "baseline": ("of the same queries in the order as submitted", "solar_queries"),
    "lead": ("as served minus that as submitted, query by query", "solar_queries"),
    "explored": ("of those served rankings that were randomised", "solar_explored_queries"),
}
_BOUNDS = {"lead": "from -1 to 1"}
_BIAS = {"lead": " By clicks it favours the ranking that was shown; by labels it is unbiased."}
#: Measure → its name, and its labels.
_MEASURES = {
    "ndcg": ("NDCG", "by model and cut-off k: 1, 5, 10 or all"),
    "map": ("average precision", "by model"),
}


def _of_measure(side: str, measure: str) -> dict[str, str]:
    """The texts of the mean, its standard error, and the sums."""
    (what, count), (title, labels) = SIDES[side], _MEASURES[measure]
    name, bounds = f"solar_{side}_{measure}", _BOUNDS.get(side, "from 0 to 1")
    mean = f"{title} (MAP)" if measure == "map" else title
    return {
        name: (
            f"Mean {mean} {what}, {bounds}, {labels}. Absent before the first query. {_SINCE}"
            f"{_BIAS.get(side, '')}"
        ),
        f"{name}_stderr": (
            f"Standard error of {name}, {labels}. Absent before the second query, and "
            f"{_WITHOUT_ERRORS}."
        ),
        f"{name}_summed": (
            f"Sum of the {title} {what}, {labels}. For the mean in a time window, divide its "
            f"change by that of {count}."
        ),
        f"{name}_squares_summed": (
            f"Sum of the squares of the {title} {what}, {labels}, {_IN_WINDOWS}. Absent "
            f"{_WITHOUT_ERRORS}."
        ),
    }


QUALITY_HELP = {
    "solar_abandoned_lists": (
        "Number of rankings whose click events have no click so far, by model. They are not in "
        "solar_queries and not in the means. A later click or label moves a ranking from here to "
        "solar_queries, so the number can fall. Absent for models that count such rankings as "
        f"queries with 0. {_SINCE}"
    ),
    "solar_debiased_wins": (
        f"Weighted share of {_PAIRS} that an order ranks correctly, from 0 to 1, {_ORDERS}. "
        f"{_SIGN} {_FIRST_PAIR} {_SINCE}"
    ),
    "solar_debiased_wins_stderr": (
        f"Standard error of solar_debiased_wins, {_ORDERS}. {_FIRST_PAIR} Also absent "
        f"{_WITHOUT_ERRORS}."
    ),
    "solar_debiased_lead": (
        "Debiased wins of the model order minus those of the submitted order, from -1 to 1, by "
        f"model. {_SIGN} {_FIRST_PAIR} {_SINCE}"
    ),
    "solar_debiased_lead_stderr": (
        f"Standard error of solar_debiased_lead, by model. {_FIRST_PAIR} Also absent "
        f"{_WITHOUT_ERRORS}."
    ),
    "solar_debiased_wins_summed": (
        f"Sum of the weights of {_PAIRS} that an order ranks correctly, {_ORDERS}. For the share "
        "in a time window, divide its change by that of solar_debiased_weight_summed."
    ),
    "solar_debiased_weight_summed": (
        f"Sum of the weights of all {_PAIRS}, by model. A pair whose two orders were equally "
        f"likely weighs 1. {_SINCE}"
    ),
    "solar_debiased_products_summed": (
        f"Sum over queries of the product of two sums of weights of {_PAIRS}, by model and "
        "product: weight is of all pairs of a query, model and submitted of those that this order "
        f"ranks correctly. They are {_IN_WINDOWS}. Absent {_WITHOUT_ERRORS}."
    ),
}
for _side in SIDES:
    for _measure in _MEASURES:
        QUALITY_HELP |= _of_measure(_side, _measure)
