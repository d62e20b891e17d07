"""Dashboard *Ranking quality*: whether models beat the submitted order, and how they learn."""

from app.observability.model_table import LOSS_EVERY
from app.ranking.drift import ALARM
from ops import rules
from ops.words import BOTH, MODEL, Board, Panel, Query, Row, replica_max, window_mean

WINDOW = "$window"
SERVED, SUBMITTED = "{{model}} served", "{{model}} submitted"
CLICKS = "With click feedback it favours the ranking that was shown: judge by the debiased wins."


def _select(name: str, *labels: str) -> str:
    return f"{name}{{{','.join((*labels, MODEL))}}}"


def _wins(order: str) -> str:
    wins = _select(rules.WINS_SUM, f'order="{order}"')
    return window_mean(wins, _select(rules.WEIGHT_SUM), WINDOW)


def _ndcg(k: int) -> Panel:
    labels = f'k="{k}",' + MODEL + ',instance=~"$instance"'
    return Panel(
        f"NDCG@{k}, since the last reset",
        "none",
        f"Mean NDCG@{k} of all queries with feedback since the last reset of the measures. "
        f"{CLICKS}",
        (
            Query(replica_max("solar_online_ndcg", labels=labels), SERVED),
            Query(replica_max("solar_baseline_ndcg", labels=labels), SUBMITTED),
        ),
        width=6, decimals=3, minimum=0, maximum=1,
    )  # fmt: skip


def _window_ndcg(k: int) -> Panel:
    return Panel(
        f"NDCG@{k}, last $window",
        "none",
        f"Mean NDCG@{k} of the queries with feedback in the window; empty without feedback. "
        f"{CLICKS}",
        tuple(
            Query(
                window_mean(_select(name, f'k="{k}"'), _select(rules.QUERIES), WINDOW), legend
            )
            for name, legend in ((rules.NDCG_SUM, SERVED), (rules.BASELINE_NDCG_SUM, SUBMITTED))
        ),
        width=6, decimals=3, minimum=0, maximum=1,
    )  # fmt: skip


DEBIASED_WINS = Row(
    "Debiased wins: judge a model by these",
    (
        Panel(
            "Debiased wins, last $window",
            "percentunit",
            "Weighted share of pairs (clicked, not clicked) that an order ranks correctly, for "
            "clicks on randomised rankings in the window. It compares the model order without "
            "exploration and the submitted order. The model should be higher.",
            (
                Query(_wins("model"), "{{model}} model"),
                Query(_wins("submitted"), "{{model}} submitted"),
            ),
            width=10, decimals=1,
        ),
        Panel(
            "Lead over the submitted order, last $window",
            "percentunit",
            "Debiased wins of the model minus those of the submitted order. Below 0 for 30 minutes "
            "fires SolarDebiasedWinsBelowBaseline.",
            (Query(f"({_wins('model')}) - on (model) ({_wins('submitted')})", "{{model}}"),),
            width=7, decimals=1,
        ),
        Panel(
            "Debiased wins, since the last reset",
            "percentunit",
            "Debiased wins of all clicks since the last reset of the measures.",
            (Query(replica_max("solar_debiased_wins", "model, order"), "{{model}} {{order}}"),),
            width=7, decimals=1,
        ),
    ),
)  # fmt: skip

MEASURES = Row(
    "NDCG and MAP",
    (
        *(_ndcg(k) for k in (1, 5, 10)),
        Panel(
            "MAP, since the last reset",
            "none",
            "Mean average precision of all queries with feedback since the last reset of the "
            f"measures. {CLICKS}",
            (
                Query(replica_max("solar_online_map"), SERVED),
                Query(replica_max("solar_baseline_map"), SUBMITTED),
            ),
            width=6, decimals=3, minimum=0, maximum=1,
        ),
        *(_window_ndcg(k) for k in (1, 5, 10)),
        Panel(
            "MAP, last $window",
            "none",
            "Mean average precision of the queries with feedback in the window; empty without "
            f"feedback. {CLICKS}",
            tuple(
                Query(window_mean(_select(name), _select(rules.QUERIES), WINDOW), legend)
                for name, legend in ((rules.MAP_SUM, SERVED), (rules.BASELINE_MAP_SUM, SUBMITTED))
            ),
            width=6, decimals=3, minimum=0, maximum=1,
        ),
    ),
)  # fmt: skip


def _new_losses(counter: str) -> str:
    return f"sum by (model) (increase({counter}{{{BOTH}}}[$window]))"


EXPLORATION = Row(
    "Exploration: what it costs; drift",
    (
        Panel(
            "Expected NDCG@10 lost by exploration, last $window",
            "percentunit",
            "Share of NDCG@10 that a randomised ranking is expected to lose against the model "
            f"order; mean of one in {LOSS_EVERY} randomised rankings in the window, empty without "
            "any. It is an estimate that takes the scores of the model as true. Rankings that are "
            "not randomised lose nothing. A lower setting exploration lowers it.",
            (
                Query(
                    f"{_new_losses('solar_exploration_loss_total')} "
                    f"/ ({_new_losses('solar_exploration_loss_rankings_total')} > 0)",
                    "{{model}}",
                ),
            ),
            width=6, decimals=2, minimum=0,
        ),
        Panel(
            "Share of randomised rankings, since the last reset",
            "percentunit",
            "Share of the queries with feedback whose ranking was randomised. Debiased learning, "
            "fair pairs and debiased wins use only these.",
            (Query(replica_max("solar_explored_share"), "{{model}}"),),
            width=6, decimals=1, minimum=0, maximum=1,
        ),
        Panel(
            "NDCG@10 of randomised rankings, since the last reset",
            "none",
            f"Mean NDCG@10 of the rankings that were randomised before they were shown. {CLICKS}",
            (Query(replica_max("solar_explored_ndcg", labels=f'k="10",{BOTH}'), SERVED),),
            width=6, decimals=3, minimum=0, maximum=1,
        ),
        Panel(
            "Evidence of drift",
            "none",
            "It grows while the NDCG@10 of a model, by clicks, is clearly below its running mean, "
            "and falls otherwise. Above the alarm level for 10 minutes it fires SolarDrift. It "
            "compares a model with its own past, never with another model or order.",
            (
                Query(replica_max("solar_drift"), "{{model}}"),
                Query(f"vector({ALARM:g})", "alarm level"),
            ),
            width=6, decimals=1, minimum=0,
        ),
    ),
)  # fmt: skip

MODEL_STATE = Row(
    "Model",
    (
        Panel(
            "Pairs learnt, by kind",
            "cps",
            "Pairs per second. Stepped pairs changed the weights, passive pairs were already "
            "correct by the margin, refused pairs exceeded the numeric limits.",
            (Query(f"deriv({_select(rules.UPDATES)}[$window])", "{{model}} {{kind}}"),),
            minimum=0,
        ),
        Panel(
            "Squared hinge loss per pair, last $window",
            "none",
            "Mean squared hinge loss of the pairs in the window, before the step on each. It falls "
            "while the model learns and then stays level.",
            (
                Query(
                    f"delta({_select(rules.LOSS)}[$window]) / on (model) "
                    f"(sum by (model) (delta({_select(rules.UPDATES)}[$window])) > 0)",
                    "{{model}}",
                ),
            ),
            decimals=3, minimum=0,
        ),
        Panel(
            "Queries with feedback",
            "cps",
            "Queries per second that entered the measures; a query counts once.",
            (Query(f"deriv({_select(rules.QUERIES)}[$window])", "{{model}}"),),
            minimum=0,
        ),
        Panel(
            "Weight norm",
            "none",
            "Euclidean norm of the weights, ‖w‖. It grows at first and then hardly changes. A jump "
            "means a replacement, or features with a different scale.",
            (Query(replica_max("solar_weight_norm"), "{{model}}"),),
            decimals=3, minimum=0,
        ),
        Panel(
            "Covariance trace",
            "none",
            "Trace of Σ, the uncertainty of SOLAR-II summed over the features. It falls with every "
            "step and rises as the model forgets; a warm start or a rollback sets it to another "
            "value. 0 for SOLAR-I.",
            (Query(replica_max("solar_covariance_trace"), "{{model}}"),),
            decimals=3, minimum=0,
        ),
        Panel(
            "Version served",
            "short",
            "Sequence number of the last record in the served weights. It only increases, even "
            "after a rollback by a user. A decrease means that the store lost records "
            "(SolarVersionBackwards).",
            (Query(replica_max("solar_version"), "{{model}}"),),
            decimals=0,
        ),
    ),
)  # fmt: skip

BOARD = Board(
    "quality",
    "SOLAR: Ranking quality",
    "Whether the models rank better than the submitted order, and how they learn.",
    (DEBIASED_WINS, MEASURES, EXPLORATION, MODEL_STATE),
    ("5m", "30m", "1h", "6h", "1d"),
)
