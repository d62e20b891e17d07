"""PromQL of means, shares and standard errors in a time window, from recorded sums.

Each result has one series for each model, with the label `model` alone. A sum over queries can
fall slightly, because later feedback replaces a query's measure. Windows therefore use `delta`;
`rate` would take the fall for a restart. The formulas are those of `app/domain/statistics.py`.
"""

from collections.abc import Callable

#: The orders of debiased wins, and the lead of the model over the submitted order.
ORDERS = ("model", "submitted", "lead")


def window_mean(total: str, count: str, window: str) -> str:
    """The mean within a window; no value if the count did not increase.

    >>> window_mean("total", "count", "1h")
    'delta(total[1h]) / on (model) (delta(count[1h]) > 0)'
    """
    return f"delta({total}[{window}]) / on (model) (delta({count}[{window}]) > 0)"


def window_error(total: str, squares: str, count: str, window: str) -> str:
    """The standard error of the mean within a window; no value for fewer than two queries.

    >>> window_error("s", "q", "n", "1h")  # doctest: +NORMALIZE_WHITESPACE
    'sqrt(clamp_min(delta(q[1h]) - on (model) delta(s[1h]) ^ 2 / on (model) (delta(n[1h]) >= 2), 0)
    / on (model) (delta(n[1h]) - 1) / on (model) delta(n[1h]))'
    """
    added = f"delta({count}[{window}])"
    spread = (
        f"delta({squares}[{window}]) "
        f"- on (model) delta({total}[{window}]) ^ 2 / on (model) ({added} >= 2)"
    )
    return f"sqrt(clamp_min({spread}, 0) / on (model) ({added} - 1) / on (model) {added})"


def added_wins(order: str, select: Callable[[str], str], window: str) -> str:
    """The weight of the pairs that an order ranks correctly; `select` gives the sum of an order.

    >>> added_wins("lead", lambda order: f'won{{order="{order}"}}', "1h")
    '(delta(won{order="model"}[1h]) - on (model) delta(won{order="submitted"}[1h]))'
    """
    if order != "lead":
        return f"delta({select(order)}[{window}])"
    model, submitted = (f"delta({select(one)}[{window}])" for one in ("model", "submitted"))
    return f"({model} - on (model) {submitted})"


def share_error(
    order: str, share: str, weight: str, select: Callable[[str], str], window: str
) -> str:
    """The standard error of the debiased wins of an order: `√Σ(a - share·b)² / weight`.

    `select` gives the sum of a product: model_model is Σa², model_weight Σab, weight_weight Σb².

    >>> share_error("model", "r", "w", str, "1h")  # doctest: +NORMALIZE_WHITESPACE
    'sqrt(clamp_min(delta(model_model[1h]) - on (model) 2 * r * on (model) delta(model_weight[1h])
    + on (model) r ^ 2 * on (model) delta(weight_weight[1h]), 0)) / on (model) (w > 0)'
    """

    def added(product: str) -> str:
        return f"delta({select(product)}[{window}])"

    squares, mixed = added(f"{order}_{order}"), added(f"{order}_weight")
    if order == "lead":
        both = f"{added('model_model')} + on (model) {added('submitted_submitted')}"
        squares = f"({both} - on (model) 2 * {added('model_submitted')})"
        mixed = f"({added('model_weight')} - on (model) {added('submitted_weight')})"
    spread = (
        f"{squares} - on (model) 2 * {share} * on (model) {mixed} "
        f"+ on (model) {share} ^ 2 * on (model) {added('weight_weight')}"
    )
    return f"sqrt(clamp_min({spread}, 0)) / on (model) ({weight} > 0)"
