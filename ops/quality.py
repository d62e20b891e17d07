"""*Ranking quality*: whether models beat the order they are given, and whether they learn."""

from ops import rules
from ops.words import BOTH, MODEL, Board, Panel, Query, Row, shared, windowed

WINDOW = "$window"
SERVED, SUBMITTED = "{{model}} as served", "{{model}} as submitted"
CLICKS = "Made of clicks it favours whatever was shown: look at it, judge by the debiased wins."


def _picked(name: str, *labels: str) -> str:
    return f"{name}{{{','.join((*labels, MODEL))}}}"


def _wins(order: str) -> str:
    wins = _picked(rules.WINS_SUM, f'order="{order}"')
    return windowed(wins, _picked(rules.WEIGHT_SUM), WINDOW)


def _ndcg(k: int) -> Panel:
    picked = f'k="{k}",' + MODEL + ',instance=~"$instance"'
    return Panel(
        f"NDCG@{k}, since the beginning",
        "none",
        f"Online cumulative NDCG@{k}: the mean over all queries that count. {CLICKS}",
        (
            Query(shared("solar_online_ndcg", labels=picked), SERVED),
            Query(shared("solar_baseline_ndcg", labels=picked), SUBMITTED),
        ),
        width=6, decimals=3, least=0, most=1,
    )  # fmt: skip


def _windowed_ndcg(k: int) -> Panel:
    return Panel(
        f"NDCG@{k}, last $window",
        "none",
        f"Mean NDCG@{k} of the queries within the window; empty while none come. {CLICKS}",
        tuple(
            Query(
                windowed(_picked(name, f'k="{k}"'), _picked(rules.QUERIES), WINDOW), legend
            )
            for name, legend in ((rules.NDCG_SUM, SERVED), (rules.BASELINE_NDCG_SUM, SUBMITTED))
        ),
        width=6, decimals=3, least=0, most=1,
    )  # fmt: skip


JUDGED = Row(
    "What judges: debiased pair wins",
    (
        Panel(
            "Debiased wins, last $window",
            "percentunit",
            "Weighted share of clicked-against-unclicked pairs that an order has right, of the "
            "clicks within the window: the model's plain order, and the order as submitted. The "
            "model should be above.",
            (
                Query(_wins("model"), "{{model}} model"),
                Query(_wins("submitted"), "{{model}} submitted"),
            ),
            width=10, decimals=1,
        ),
        Panel(
            "Lead over the submitted order, last $window",
            "percentunit",
            "Debiased wins of the model minus those of the submitted order. Below 0 for half an "
            "hour it alerts: SolarDebiasedWinsBelowBaseline.",
            (Query(f"({_wins('model')}) - on (model) ({_wins('submitted')})", "{{model}}"),),
            width=7, decimals=1,
        ),
        Panel(
            "Debiased wins, since the beginning",
            "percentunit",
            "The same over all clicks since the measures were last reset.",
            (Query(shared("solar_debiased_wins", "model, order"), "{{model}} {{order}}"),),
            width=7, decimals=1,
        ),
    ),
)  # fmt: skip

SHOWN = Row(
    "Online measures",
    (
        *(_ndcg(k) for k in (1, 5, 10)),
        Panel(
            "MAP, since the beginning",
            "none",
            f"Online cumulative mean average precision over all queries that count. {CLICKS}",
            (
                Query(shared("solar_online_map"), SERVED),
                Query(shared("solar_baseline_map"), SUBMITTED),
            ),
            width=6, decimals=3, least=0, most=1,
        ),
        *(_windowed_ndcg(k) for k in (1, 5, 10)),
        Panel(
            "MAP, last $window",
            "none",
            f"Mean average precision of the queries within the window; empty while none come. "
            f"{CLICKS}",
            tuple(
                Query(windowed(_picked(name), _picked(rules.QUERIES), WINDOW), legend)
                for name, legend in ((rules.MAP_SUM, SERVED), (rules.BASELINE_MAP_SUM, SUBMITTED))
            ),
            width=6, decimals=3, least=0, most=1,
        ),
        Panel(
            "NDCG@10 of explored lists, since the beginning",
            "none",
            f"Lists that were varied before they were shown, counted apart. {CLICKS}",
            (Query(shared("solar_explored_ndcg", labels=f'k="10",{BOTH}'), SERVED),),
            decimals=3, least=0, most=1,
        ),
        Panel(
            "Lists explored, share since the beginning",
            "percentunit",
            "Of the queries that count, those whose lists were varied: only they teach debiased "
            "clicks and fair pairs, and only they judge.",
            (
                Query(
                    f"{shared('solar_explored_queries')} / ({shared('solar_queries')} > 0)",
                    "{{model}}",
                ),
            ),
            decimals=1, least=0, most=1,
        ),
    ),
)  # fmt: skip

MODELS = Row(
    "The model",
    (
        Panel(
            "Pairs learnt",
            "cps",
            "Pairs a second by what they did: stepped moved the weights, passive were right by the "
            "margin already, refused would have left the numbers that can be.",
            (Query(f"deriv({_picked(rules.UPDATES)}[$window])", "{{model}} {{kind}}"),),
            least=0,
        ),
        Panel(
            "Squared hinge loss of a pair, last $window",
            "none",
            "Mean squared hinge loss of the pairs within the window, before the step on each. It "
            "falls while there is something to learn, then stays.",
            (
                Query(
                    f"delta({_picked(rules.LOSS)}[$window]) / on (model) "
                    f"(sum by (model) (delta({_picked(rules.UPDATES)}[$window])) > 0)",
                    "{{model}}",
                ),
            ),
            decimals=3, least=0,
        ),
        Panel(
            "Queries that count",
            "cps",
            "Queries a second that entered the measures: with a click or a label that tells "
            "documents apart.",
            (Query(f"deriv({_picked(rules.QUERIES)}[$window])", "{{model}}"),),
            least=0,
        ),
        Panel(
            "Norm of the weights",
            "none",
            "‖w‖. It grows at first and then hardly; a jump is a replacement, or features of "
            "another scale.",
            (Query(shared("solar_weight_norm"), "{{model}}"),),
            decimals=3, least=0,
        ),
        Panel(
            "Trace of Σ",
            "none",
            "How unsure SOLAR-II is, summed over the features: it falls with every step, and a "
            "warm start or a rollback sets it anew. 0 for SOLAR-I.",
            (Query(shared("solar_covariance_trace"), "{{model}}"),),
            decimals=3, least=0,
        ),
        Panel(
            "Version",
            "short",
            "The last record in the weights that are served. It only grows, a rollback included; "
            "falling means that the store went back (SolarVersionBackwards).",
            (Query(shared("solar_version"), "{{model}}"),),
            decimals=0,
        ),
    ),
)  # fmt: skip

BOARD = Board(
    "quality",
    "SOLAR: Ranking quality",
    "Whether the models rank better than the order they were given, and how they learn.",
    (JUDGED, SHOWN, MODELS),
    ("5m", "30m", "1h", "6h", "1d"),
)
