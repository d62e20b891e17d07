"""Rows of the dashboard *Ranking quality* about duels and followers."""

from ops import recorded
from ops.model_rows import CLICKS, WINDOW, select
from ops.windows import window_mean
from ops.words import BOTH, INSTANCE, Panel, Query, Row, active, replica_max, shown_range

#: Labels of the two sides of a duel.
SIDES = "model, champion, challenger"
_LEGEND = "{{model}}: {{champion}} – {{challenger}}"
#: Models with a duel that was on in the shown time range.
_ON = f"max by (model) ({shown_range('max_over_time', f'solar_duel_on{{{BOTH}}}')})"
#: Filters of followers by the variable of their leader.
LEADER = 'leader=~"$model"'


def _duel(metric: str, labels: str = BOTH) -> str:
    """A gauge of each duel."""
    return replica_max(metric, SIDES, labels)


def _decided(outcome: str) -> str:
    return _duel("solar_duel_decided_lists", f'outcome="{outcome}",{BOTH}')


def _duel_mean() -> str:
    total = select(recorded.sums("duel", "ndcg")[0], 'k="10"')
    return window_mean(total, select(recorded.DUEL_QUERIES), WINDOW)


def _all_mean() -> str:
    """The mean of all measured lists of the models that had lists of duels in the window."""
    total = select(recorded.sums("online", "ndcg")[0], 'k="10"')
    mean = window_mean(total, select(recorded.QUERIES), WINDOW)
    return active(mean, f"delta({select(recorded.DUEL_QUERIES)}[{WINDOW}])")


DUEL = Row(
    "Duel",
    (
        Panel(
            "Lists of the duel, by outcome",
            "short",
            "Lists with click events since the duel began, by all clicks so far: the champion won, "
            "lost or tied. More clicks can change an outcome. Lines are of models with a duel in "
            "the shown time range.",
            (
                Query(
                    active(replica_max("solar_duel_lists", f"{SIDES}, outcome"), _ON),
                    f"{_LEGEND} {{{{outcome}}}}",
                ),
            ),
            decimals=0, minimum=0,
        ),
        Panel(
            "Win share of the champion",
            "percentunit",
            "Share of the decided lists that the champion won. A list is decided at its first "
            "event after which one side leads. 50 % means that both sides are equally good. Do not "
            "stop a duel because of this line: only the verdict accounts for looking often.",
            (
                Query(
                    active(f"{_decided('won')} / ({_decided('won')} + {_decided('lost')})", _ON),
                    _LEGEND,
                ),
                Query("vector(0.5)", "equally good"),
            ),
            decimals=1, minimum=0, maximum=1,
        ),
        Panel(
            "Verdict of the duel",
            "none",
            "Which side is better. The champion is the model or, in a tournament, the follower "
            "that is ahead. A verdict while the duel is on fires SolarDuelDecided.",
            (Query(_duel("solar_duel_verdict"), _LEGEND),),
            "verdicts",
        ),
        Panel(
            "Evidence that one side is better",
            "none",
            "The evidence E on a logarithmic axis, and 1/α. It starts at 1. If both sides are "
            "equally good, it ever reaches 1/α with a probability of at most α, whenever you look. "
            "The verdict falls at 1/α.",
            (
                Query(
                    active(f"exp({_duel('solar_duel_log_evidence')})", _ON), f"{_LEGEND} evidence"
                ),
                Query(active(f"1 / {_duel('solar_duel_alpha')}", _ON), f"{_LEGEND} 1/α"),
            ),
            width=12, logarithmic=True,
        ),
        Panel(
            "Lists of duels: NDCG@10, last $window",
            "none",
            "Mean NDCG@10 as served of the lists of duels in the window, and of all measured lists "
            f"of the same models. {CLICKS} There is no standard error of lists of duels.",
            (
                Query(_duel_mean(), "{{model}} duel"),
                Query(_all_mean(), "{{model}} all lists"),
            ),
            width=12, decimals=3, minimum=0, maximum=1,
        ),
    ),
)  # fmt: skip


def _follower(name: str, *labels: str) -> str:
    """A recorded series of the followers of the selected models."""
    return f"{name}{{{','.join((*labels, LEADER))}}}"


def _loss() -> str:
    pairs = f"sum by (model) (delta({_follower(recorded.FOLLOWER_UPDATES)}[{WINDOW}]))"
    return f"delta({_follower(recorded.FOLLOWER_LOSS)}[{WINDOW}]) / on (model) ({pairs} > 0)"


_LAG = _follower(recorded.FOLLOWER_LAG)
FOLLOWERS = Row(
    "Followers",
    (
        Panel(
            "Lag of followers",
            "short",
            "Records in the log of the leader that a follower has not learnt. Above 1,000 it gets "
            "no lists of a duel; above 1,000 for 30 minutes, while the leader is not, it fires "
            "SolarFollowerBehind. Empty if no follower lagged in the shown time range.",
            (Query(active(_LAG, shown_range("max_over_time", _LAG)), "{{model}}"),),
            width=6, decimals=0, minimum=0,
        ),
        Panel(
            "Followers: squared hinge loss per pair, last $window",
            "none",
            "Mean squared hinge loss of a follower's pairs in the window, before the step on each. "
            "Compare followers with the same click strategy. A duel tells which one users prefer.",
            (Query(_loss(), "{{model}}"),),
            width=6, decimals=3, minimum=0,
        ),
        Panel(
            "Agreement with the leader, last $window",
            "percentunit",
            "Share of document pairs that follower and leader rank alike, of the first 10 "
            "documents, mean over the lists of the window. Near 100 % a duel has little to decide.",
            (
                Query(
                    window_mean(
                        _follower(recorded.AGREEMENT), _follower(recorded.COMPARED), WINDOW
                    ),
                    "{{model}}",
                ),
            ),
            width=6, decimals=1, minimum=0, maximum=1,
        ),
        Panel(
            "Follower learns",
            "bool_yes_no",
            "Whether a follower learns. No: it has stalled, as it held back more than the log may "
            "have. That fires SolarFollowerStalled; delete the follower and create it again.",
            (
                Query(
                    f"1 - max by (model) (solar_follower_stalled{{{LEADER},{INSTANCE}}})",
                    "{{model}}",
                ),
            ),
            "states", 6,
        ),
    ),
)  # fmt: skip
