"""Rows of the dashboard *Ranking quality* about a model: exploration, drift, weights, covariance.

The selections and texts here are for all rows of that dashboard.
"""

from app.observability.model_table import LOSS_EVERY
from app.ranking.drift import ALARM
from ops import recorded
from ops.words import BOTH, MODEL, Panel, Query, Row, active, replica_max, shown_range

WINDOW = "$window"
AT_10 = f'k="10",{BOTH}'
CLICKS = "By clicks it favours the ranking that was shown."
BAND = (
    "The band is one standard error. Select one model to see it. Models from before there were "
    "standard errors have none."
)


def select(name: str, *labels: str) -> str:
    """A recorded series of the selected models."""
    return f"{name}{{{','.join((*labels, MODEL))}}}"


#: Models with a new query, or a reset of the measures, in the shown time range.
MEASURED = shown_range("changes", select(recorded.QUERIES))
#: Models with an applied record.
LEARNING = shown_range("changes", select(recorded.VERSION))


def shared(metric: str, labels: str = BOTH, activity: str = MEASURED) -> str:
    """A gauge of the committed state, of models with activity."""
    return active(replica_max(metric, labels=labels), activity)


def _new_losses(counter: str) -> str:
    return f"sum by (model) (increase({counter}{{{BOTH}}}[{WINDOW}]))"


EXPLORATION = Row(
    "Exploration: what it costs; drift",
    (
        Panel(
            "Expected NDCG@10 lost by exploration, last $window",
            "percentunit",
            "Share of NDCG@10 that a randomised ranking is expected to lose against the model "
            f"order; mean of one in {LOSS_EVERY} randomised rankings in the window. It is an "
            "estimate that takes the scores of the model as true. Rankings that are not randomised "
            "lose nothing. A lower setting exploration lowers it.",
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
            "Share of the measured queries whose ranking was randomised. Debiased learning, fair "
            "pairs and debiased wins use only these.",
            (Query(shared("solar_explored_share"), "{{model}}"),),
            width=6, decimals=1, minimum=0, maximum=1,
        ),
        Panel(
            "NDCG@10 of randomised rankings, since the last reset",
            "none",
            "Mean NDCG@10 of the measured queries whose ranking was randomised before it was "
            f"shown. {CLICKS} {BAND}",
            (
                Query(
                    shared("solar_explored_ndcg", AT_10), "{{model}}",
                    replica_max("solar_explored_ndcg_stderr", labels=AT_10),
                ),
            ),
            width=6, decimals=3, minimum=0, maximum=1,
        ),
        Panel(
            "Evidence of drift",
            "none",
            "It grows while the NDCG@10 of a model, by clicks, is clearly below its running mean, "
            "and falls otherwise. Above the alarm level for 10 minutes it fires SolarDrift. It "
            "compares a model with its own past, never with another model or order.",
            (
                Query(shared("solar_drift"), "{{model}}"),
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
            "Pairs per second, mean of the window. Stepped pairs changed the weights, passive "
            "pairs were already correct by the margin, refused pairs exceeded the numeric limits.",
            (
                Query(
                    active(f"deriv({select(recorded.UPDATES)}[{WINDOW}])", LEARNING),
                    "{{model}} {{kind}}",
                ),
            ),
            width=12, minimum=0,
        ),
        Panel(
            "Squared hinge loss per pair, last $window",
            "none",
            "Mean squared hinge loss of the pairs in the window, before the step on each. It falls "
            "while the model learns and then stays level.",
            (
                Query(
                    f"delta({select(recorded.LOSS)}[{WINDOW}]) / on (model) "
                    f"(sum by (model) (delta({select(recorded.UPDATES)}[{WINDOW}])) > 0)",
                    "{{model}}",
                ),
            ),
            width=12, decimals=3, minimum=0,
        ),
        Panel(
            "Weight norm",
            "none",
            "Euclidean norm of the weights, ‖w‖. It grows at first and then hardly changes. A jump "
            "means a replacement, or features with a different scale.",
            (Query(shared("solar_weight_norm", activity=LEARNING), "{{model}}"),),
            decimals=3, minimum=0,
        ),
        Panel(
            "Covariance trace",
            "none",
            "Trace of Σ, the uncertainty of SOLAR-II summed over the features. It falls with every "
            "step and rises as the model forgets; a warm start or a rollback sets it to another "
            "value. 0 for SOLAR-I.",
            (Query(shared("solar_covariance_trace", activity=LEARNING), "{{model}}"),),
            decimals=3, minimum=0,
        ),
        Panel(
            "Version served",
            "short",
            "Sequence number of the last record in the served weights. It only increases, even "
            "after a rollback by a user. A decrease means that the store lost records "
            "(SolarVersionBackwards).",
            (Query(shared("solar_version", activity=LEARNING), "{{model}}"),),
            decimals=0,
        ),
    ),
)  # fmt: skip
