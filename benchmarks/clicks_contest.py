"""The contest of `clicks`: SOLAR against PDGD on all data, and all strategies on the main data."""

from collections.abc import Mapping, Sequence

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.solar import SolarII
from app.ranking.traffic import Site
from app.simulation import runner
from app.simulation.runner import Judged
from benchmarks.clicks_runs import (
    BASELINE,
    DEBIASED,
    PLAIN,
    PRIORED,
    RATES,
    USERS,
    Result,
    Run,
    not_behind,
    reach,
    results,
    seeds,
    signed,
)
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

#: How much better the rankings that users see should be on real data.
LEAD = 0.005
STRATEGIES = (
    DEBIASED, PRIORED, "debiased, diagonal", "debiased, SOLAR-I", "fair-pairs", *RATES,
    "click-skip-above",
)  # fmt: skip


def run() -> list[Goal]:
    """Print the contest, and return its goals."""
    goals = every_strategy(folds()[0])
    goals += every_world()
    return goals + all_folds()


def every_strategy(data: str) -> list[Goal]:
    """All strategies on the main data, next to training on labels."""
    runs = {(one, users): Run(data, users, one, seeds()) for one in STRATEGIES for users in USERS}
    found = results(list(runs.values()))
    labels = trained_on_labels(worlds()[data].judged, seeds())
    head = ["NDCG@10, final / shown", *USERS]
    rows = [[one, *(_both(found[runs[one, users]]) for users in USERS)] for one in STRATEGIES]
    rows.append(["SOLAR-II, trained on labels", *([_mean(labels)] * len(USERS))])
    print(table(f"Clicks, {data}: {seeds()} seeds, ± deviation", head, rows), end="\n\n")
    rows = [
        [one, *(_lead(found[runs[one, u]], found[runs[BASELINE, u]]) for u in USERS)]
        for one in STRATEGIES
        if one != BASELINE
    ]
    title = f"Clicks, {data}: difference to {BASELINE}, ± standard error"
    print(table(title, head, rows), end="\n\n")
    ends = {users: found[runs[DEBIASED, users]].test.mean() for users in USERS}
    name = f"{data}, {{}}: final minus trained on labels"
    return [reach(name.format(users), -0.01, end - labels.mean()) for users, end in ends.items()]


def every_world() -> list[Goal]:
    """The default against all rates of PDGD on all data."""
    cases = [(data, users) for data in worlds() for users in USERS]
    _prepare(cases)
    rows, goals = [], []
    for data, users in cases:
        found = _found(data, users)
        rows.append([data, users, *_cells(found)])
        goals += _goals(data, users, found[DEBIASED].minus(found[BASELINE]))
    head = [
        "data", "users", "final", "shown", "final: lead", "worst", "best PDGD", "shown: lead",
        "worst", "best PDGD",
    ]  # fmt: skip
    title = (
        f"Clicks, all data, {seeds()} seeds: NDCG@10 of the default, its lead over {BASELINE} "
        "(± standard error; worst seed), and the best PDGD with the lead over it"
    )
    print(table(title, head, rows, words=2), end="\n\n")
    return goals


def all_folds() -> list[Goal]:
    """The mean over the folds of each seed."""
    _prepare([(data, users) for data in folds() for users in USERS])
    rows, goals = [], []
    for users in USERS:
        leads = [_found(data, users)[DEBIASED].minus(_found(data, users)[BASELINE])
                 for data in folds()]  # fmt: skip
        mean = Result(*np.mean(leads, axis=0))
        rows.append([users, signed(mean.test), f"{mean.test.min():+.4f}",
                     signed(mean.shown), f"{mean.shown.min():+.4f}"])  # fmt: skip
        goals += _goals("all folds", users, mean)
    head = ["users", "final: lead", "worst seed", "shown: lead", "worst seed"]
    title = f"Clicks, {len(folds())} folds together: lead over {BASELINE}, {seeds()} seeds"
    print(table(title, head, rows), end="\n\n")
    return goals


def _prepare(cases: Sequence[tuple[str, str]]) -> None:
    results([Run(*case, one, seeds()) for case in cases for one in (DEBIASED, *RATES)])


def _found(data: str, users: str) -> Mapping[str, Result]:
    runs = {one: Run(data, users, one, seeds()) for one in (DEBIASED, *RATES)}
    found = results(list(runs.values()))
    return {one: found[run] for one, run in runs.items()}


def _cells(found: Mapping[str, Result]) -> list[str]:
    solar, lead = found[DEBIASED], found[DEBIASED].minus(found[BASELINE])
    finals = {one: found[one].test.mean() for one in RATES}
    shown = {one: found[one].shown.mean() for one in RATES}
    return [
        f"{solar.test.mean():.4f}", f"{solar.shown.mean():.4f}",
        signed(lead.test), f"{lead.test.min():+.4f}", _best(finals, solar.test.mean()),
        signed(lead.shown), f"{lead.shown.min():+.4f}", _best(shown, solar.shown.mean()),
    ]  # fmt: skip


def _best(means: Mapping[str, float], own: float) -> str:
    name = max(means, key=means.__getitem__)
    return f"{name.removeprefix('PDGD ')} ({own - means[name]:+.4f})"


def _goals(data: str, users: str, lead: Result) -> list[Goal]:
    name = f"{data}, {users}: {{}} minus {BASELINE}"
    real = data == "all folds" or worlds()[data].real
    shown = name.format("shown")
    return [
        not_behind(name.format("final"), lead.test),
        reach(shown, LEAD, lead.shown.mean()) if real else not_behind(shown, lead.shown),
    ]


def trained_on_labels(judged: Judged, seeds: int) -> Floats:
    """The test after SOLAR-II learnt all labels of the same queries once, in random order."""
    found = []
    for seed in range(seeds):
        site, test = runner.sites(PLAIN, judged, seed)
        found.append(test.ndcg(label_weights(judged, site, np.random.default_rng(seed))))
    return np.array(found)


def label_weights(judged: Judged, site: Site, rng: np.random.Generator) -> Floats:
    """The weights after one pass over all labels."""
    learner = SolarII(site.documents.shape[1])
    for q in rng.permutation(len(judged.train)).tolist():
        learner.learn_pairs(site.of_query(q), judged.train[q].pairs.shuffled(rng))
    return learner.weights


def _both(found: Result) -> str:
    return f"{_mean(found.test)} / {found.shown.mean():.4f}"


def _mean(values: Floats) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"


def _lead(one: Result, other: Result) -> str:
    lead = one.minus(other)
    return f"{signed(lead.test)} / {signed(lead.shown)}"
