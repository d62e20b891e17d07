"""The help texts of the metrics of duels and followers."""

_SIDES = (
    "by model, champion and challenger. The champion is the model itself or, in a tournament, the "
    "follower that is ahead; the challenger is a follower, submitted or version"
)
_DUEL = "of the duel that is on, or else of the last one"
_ABSENT = "Absent for a model without a duel so far."
_FOLLOWER = "by model (the follower) and leader (the model whose log it follows)"
_SINCE = "Counted since the last reset of the measures."
_NO_QUERY = "Absent before the first list of a duel with a click."
#: Measure → its name, and its labels.
_MEASURES = {
    "ndcg": ("NDCG", "by model and cut-off k: 1, 5, 10 or all"),
    "map": ("average precision", "by model"),
}


def _of_measure(measure: str) -> dict[str, str]:
    """The texts of the mean and of the sum of a measure of the lists of duels."""
    title, labels = _MEASURES[measure]
    name = f"solar_duel_{measure}"
    return {
        name: (
            f"Mean {title} of the lists of duels as served, from 0 to 1, {labels}. They are in "
            f"solar_online_{measure}, too. {_NO_QUERY} {_SINCE}"
        ),
        f"{name}_summed": (
            f"Sum of the {title} of the lists of duels as served, {labels}. For the mean in a time "
            f"window, divide its change by that of solar_duel_queries. {_NO_QUERY}"
        ),
    }


DUEL_HELP = {
    "solar_duel_on": (
        f"1 while the duel is on, 0 after it has ended, {_SIDES}. The metrics of the last duel "
        f"stay until the next one begins. {_ABSENT}"
    ),
    "solar_duel_lists": (
        "Number of lists with an event of clicks, also one without a click, "
        f"{_DUEL}, {_SIDES}. The outcome is that of the champion, by all clicks so far: won, lost "
        "or tied. Later clicks move a list from one outcome to another; the verdict does not come "
        f"from these numbers but from solar_duel_decided_lists. {_ABSENT}"
    ),
    "solar_duel_decided_lists": (
        f"Number of lists that count for the verdict {_DUEL}, {_SIDES}. The outcome is that of the "
        "champion at the first event after which one side led: won or lost. Later clicks change "
        f"nothing, unlike in solar_duel_lists. {_ABSENT}"
    ),
    "solar_duel_log_evidence": (
        "Natural logarithm of the evidence E that the sides are not equally good, "
        f"{_DUEL}, {_SIDES}. It starts at 0 and grows while one side wins. {_ABSENT}"
    ),
    "solar_duel_log_evidence_max": (
        f"Largest solar_duel_log_evidence so far, {_DUEL}, {_SIDES}. The p-value is e to the power "
        f"of its negative. The verdict falls where it reaches -log(solar_duel_alpha). {_ABSENT}"
    ),
    "solar_duel_alpha": (
        "Greatest probability of a verdict if both sides are equally good, "
        f"{_DUEL}, {_SIDES}. A duel of a tournament has a part of the tournament's. {_ABSENT}"
    ),
    "solar_duel_verdict": (
        f"1 if the champion is better, -1 if the challenger is, 0 if undecided, {_DUEL}, {_SIDES}. "
        f"A verdict stands until the next duel. {_ABSENT}"
    ),
    "solar_duel_queries": (
        "Number of queries in the means of NDCG and MAP that got a list of a duel, by model. "
        "Unlike solar_duel_lists it has those of earlier duels and none without a click or label. "
        f"They are in solar_queries, too, but not in solar_explored_queries. {_NO_QUERY} {_SINCE}"
    ),
    **_of_measure("ndcg"),
    **_of_measure("map"),
    "solar_follower_lag_records": (
        "Number of records in the log of the leader that a follower has not learnt yet, "
        f"{_FOLLOWER}. Above 1,000 it gets no lists of a duel. For what the leader itself has not "
        "learnt yet see solar_lag_records."
    ),
    "solar_follower_stalled": (
        f"1 if a follower has stalled, 0 if not, {_FOLLOWER}. A stalled follower held back more "
        "than the log may have: it learns nothing until it is deleted and created again."
    ),
    "solar_follower_updates": (
        f"Number of pairs that a follower has processed, {_FOLLOWER}, and by kind. The kinds are "
        f"those of solar_updates: stepped, passive and refused. {_SINCE}"
    ),
    "solar_follower_squared_hinge_loss": (
        "Sum of the squared hinge losses of all pairs of a follower before the step on each, "
        f"{_FOLLOWER}. Per pair it is comparable between followers with the same click strategy. "
        f"{_SINCE}"
    ),
    "solar_follower_compared_lists": (
        "Number of lists of the leader whose plain order was compared with that of a follower, "
        f"{_FOLLOWER}. {_SINCE}"
    ),
    "solar_follower_agreement_summed": (
        "Sum of the shares of document pairs that follower and leader rank alike, of the first 10 "
        f"documents of each compared list, {_FOLLOWER}. For the mean agreement in a time window, "
        f"divide its change by that of solar_follower_compared_lists. {_SINCE}"
    ),
    "solar_follower_passed_by_records": (
        "Number of replacements of the leader that did not change a follower, "
        f"{_FOLLOWER}: rollbacks, replays and promotions. {_SINCE}"
    ),
}
