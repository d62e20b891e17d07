"""Dashboard *Ranking quality*: whether models beat the submitted order, and how they learn."""

from ops import overview, recorded
from ops.duel_rows import DUEL, FOLLOWERS
from ops.model_rows import (
    BAND,
    CLICKS,
    EXPLORATION,
    MEASURED,
    MODEL_STATE,
    WINDOW,
    select,
    shared,
)
from ops.windows import added_wins, share_error, window_error, window_mean
from ops.words import BOTH, Board, Panel, Query, Row, active, replica_max, shown_range

SIGN = (
    "A cheap, pessimistic sign for one model against its own submitted order: it leans against the "
    "model that draws the rankings. Do not compare models by it."
)
#: Side of the measures → legend.
LEGENDS = {
    "online": "{{model}} served", "baseline": "{{model}} submitted", "lead": "{{model}}",
}  # fmt: skip


def _mean(side: str, k: int | None) -> Query:
    """NDCG@k, or MAP without k, since the last reset."""
    name, labels = (f"solar_{side}_ndcg", f'k="{k}",{BOTH}') if k else (f"solar_{side}_map", BOTH)
    error = replica_max(f"{name}_stderr", labels=labels)
    return Query(shared(name, labels), LEGENDS[side], error)


def _window_mean(side: str, k: int | None) -> Query:
    """NDCG@k, or MAP without k, in the window."""
    labels = (f'k="{k}"',) if k else ()
    total, squares = (select(name, *labels) for name in recorded.sums(side, "ndcg" if k else "map"))
    queries = select(recorded.QUERIES)
    mean = window_mean(total, queries, WINDOW)
    error = window_error(total, squares, queries, WINDOW)
    return Query(active(mean, MEASURED), LEGENDS[side], error)


def _measure(k: int | None) -> str:
    return f"NDCG@{k}" if k else "MAP"


def _mean_of(k: int | None) -> str:
    return f"Mean NDCG@{k}" if k else "Mean average precision"


def _both_orders(k: int | None) -> Panel:
    return Panel(
        f"{_measure(k)}, since the last reset",
        "none",
        f"{_mean_of(k)} of all measured queries since the last reset of the measures, as "
        f"served and as submitted. {CLICKS} {BAND}",
        (_mean("online", k), _mean("baseline", k)),
        width=6, decimals=3, minimum=0, maximum=1,
    )  # fmt: skip


def _both_orders_in_window(k: int | None) -> Panel:
    return Panel(
        f"{_measure(k)}, last $window",
        "none",
        f"{_mean_of(k)} of the queries that were measured in the window, as served and as "
        f"submitted. {CLICKS} {BAND}",
        (_window_mean("online", k), _window_mean("baseline", k)),
        width=6, decimals=3, minimum=0, maximum=1,
    )  # fmt: skip


LEAD = Row(
    "Lead over the submitted order",
    (
        Panel(
            "NDCG@10 lead, last $window",
            "none",
            "NDCG@10 as served minus as submitted of the same query, mean of the window. "
            f"{CLICKS} Below 0 in the last hour by more than 3 standard errors, together with the "
            f"debiased lead if there are click pairs, it fires SolarWorseThanSubmitted. {BAND}",
            (_window_mean("lead", 10),),
            decimals=3,
        ),
        Panel(
            "NDCG@10 lead, since the last reset",
            "none",
            "NDCG@10 as served minus as submitted of the same query, mean since the last reset of "
            f"the measures. {CLICKS} {BAND}",
            (_mean("lead", 10),),
            decimals=3,
        ),
        Panel(
            "MAP lead, last $window",
            "none",
            "Average precision as served minus as submitted of the same query, mean of the window. "
            f"{CLICKS} {BAND}",
            (_window_mean("lead", None),),
            decimals=3,
        ),
    ),
)  # fmt: skip

MEASURES = Row(
    "NDCG and MAP",
    (
        *(_both_orders_in_window(k) for k in (1, 5, 10, None)),
        *(_both_orders(k) for k in (1, 5, 10, None)),
    ),
)


def _abandoned_share() -> str:
    """Abandoned lists may become fewer by late clicks: then the share is 0."""
    abandoned = f"clamp_min(delta({select(recorded.ABANDONED)}[{WINDOW}]), 0)"
    queries = f"delta({select(recorded.QUERIES)}[{WINDOW}])"
    return f"{abandoned} / (({abandoned} + {queries}) > 0)"


LISTS = Row(
    "Lists with feedback",
    (
        Panel(
            "Queries measured",
            "cps",
            "Queries per second that entered NDCG and MAP, by a first click or label; a query "
            "counts once. Mean of the window.",
            (
                Query(
                    active(f"deriv({select(recorded.QUERIES)}[{WINDOW}])", MEASURED), "{{model}}"
                ),
            ),
            minimum=0,
        ),
        Panel(
            "Abandoned lists, since the last reset",
            "short",
            "Rankings whose click events have no click so far. They are not in NDCG and MAP. The "
            "number falls when a click or label follows. Models that count them as queries with 0 "
            "have no line.",
            (
                Query(
                    active(
                        replica_max("solar_abandoned_lists"),
                        shown_range("changes", select(recorded.ABANDONED)),
                    ),
                    "{{model}}",
                ),
            ),
            decimals=0, minimum=0,
        ),
        Panel(
            "Share of abandoned lists, last $window",
            "percentunit",
            "Abandoned lists as a share of all lists that got their first feedback in the window. "
            "A rise can mean worse rankings, or missing clicks: check the tracking first. It needs "
            "click events also for lists without a click.",
            (
                Query(
                    active(_abandoned_share(), shown_range("changes", select(recorded.ABANDONED))),
                    "{{model}}",
                ),
            ),
            decimals=1, minimum=0, maximum=1,
        ),
    ),
)  # fmt: skip


def _product(name: str) -> str:
    return select(recorded.PRODUCTS, f'product="{name}"')


def _wins(order: str, legend: str) -> Query:
    """Debiased wins of an order, or the lead, in the window."""
    weight = f"delta({select(recorded.WEIGHT)}[{WINDOW}])"
    won = added_wins(order, lambda one: select(recorded.WINS, f'order="{one}"'), WINDOW)
    share = f"{won} / on (model) ({weight} > 0)"
    return Query(share, legend, share_error(order, f"({share})", weight, _product, WINDOW))


def _all_wins(order: str) -> Query:
    """Debiased wins of an order since the last reset."""
    labels = f'order="{order}",{BOTH}'
    error = replica_max("solar_debiased_wins_stderr", labels=labels)
    return Query(shared("solar_debiased_wins", labels), f"{{{{model}}}} {order}", error)


DEBIASED_WINS = Row(
    "Debiased wins: a cheap, pessimistic sign for one model against its own submitted order",
    (
        Panel(
            "Debiased lead, last $window",
            "percentunit",
            "Debiased wins of the model order minus those of the submitted order, in the window. "
            f"{SIGN} Alone it fires no alert: SolarWorseThanSubmitted also needs the NDCG@10 lead. "
            f"{BAND}",
            (_wins("lead", "{{model}}"),),
            decimals=1,
        ),
        Panel(
            "Debiased wins, last $window",
            "percentunit",
            "Weighted share of pairs (clicked, not clicked) that an order ranks correctly, for "
            "clicks on randomised rankings in the window: the model order without exploration, and "
            f"the submitted order. {SIGN} {BAND}",
            (_wins("model", "{{model}} model"), _wins("submitted", "{{model}} submitted")),
            decimals=1,
        ),
        Panel(
            "Debiased wins, since the last reset",
            "percentunit",
            "Debiased wins of all clicks on randomised rankings since the last reset of the "
            f"measures. {SIGN} {BAND}",
            (_all_wins("model"), _all_wins("submitted")),
            decimals=1,
        ),
    ),
)  # fmt: skip

BOARD = Board(
    "quality",
    "SOLAR: Ranking quality",
    "Whether the models rank better than the submitted order, and how they learn. Lines are of "
    "models with feedback in the shown time range.",
    (
        overview.ROW, LEAD, MEASURES, LISTS, DUEL, FOLLOWERS, EXPLORATION, MODEL_STATE,
        DEBIASED_WINS,
    ),
    ("5m", "30m", "1h", "6h", "1d"),
)  # fmt: skip
