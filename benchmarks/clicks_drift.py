"""What happens when users change what they want: all labels are dealt again in the middle of a run.

A new random linear utility of the standardised features, plus noise, deals the labels of each
query to its documents again, in training and test queries. Measured are the test NDCG@10 at
several numbers of rankings after the change, and when the drift detector raises an alarm. Not
every change hurts: a new utility may resemble the old one. An alarm is expected if the NDCG@10 of
the shown rankings falls by 0.1 or more.
`SOLAR_DEV_DRIFT_SEEDS` (5) sets the number of seeds.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.ranking import drift, measures, traffic
from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery
from app.ranking.traffic import DEPTH, Site, Visit
from app.simulation import runner
from app.simulation.runner import Judged, LearningRanker
from benchmarks.clicks_runs import BASELINE, PLAIN, USERS, ranker, share_out
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

CHANGE = 50_000
#: Rankings after the change at which the model is tested.
AFTER = (1_000, 2_000, 5_000, 10_000, 50_000)
FORGETTING = {f"forgetting {q:g}": q for q in (0.0, 3e-5, 1e-4)}
DEFAULT = "forgetting 3e-05"
#: Noise of the new labels, in deviations of the utility.
NOISE = 0.3
#: A fall of the shown NDCG@10 that the detector should notice, over this many rankings.
HARM, WINDOW = 0.1, 1_000
DATA = ("MSLR-sample", "digits", "diabetes", "correlated")


class Case(NamedTuple):
    """One seed of one contender on a data set with one kind of users."""

    data: str
    users: str
    contender: str
    seed: int


class Drifted(NamedTuple):
    """The tests before and after the change, and each ranking with clicks with its NDCG@10 by them.

    `fall` is the shown NDCG@10 of the last rankings before the change minus the first after it.
    """

    tests: Floats
    fall: float
    rankings: Floats
    qualities: Floats


def run() -> list[Goal]:
    """Print tests and alarms; the goals are no false alarms, and alarms for most changes."""
    seeds = int(os.environ.get("SOLAR_DEV_DRIFT_SEEDS", "5"))
    chosen = [name for name in (folds()[0], *DATA) if name in worlds()]
    contenders = (*FORGETTING, BASELINE)
    cases = [Case(data, users, one, seed) for data in chosen for users in USERS
             for one in contenders for seed in range(seeds)]  # fmt: skip
    found = dict(zip(cases, share_out(drifted, cases), strict=True))
    rows = [[data, users, one, *_means([found[Case(data, users, one, s)] for s in range(seeds)])]
            for data in chosen for users in USERS for one in contenders]  # fmt: skip
    head = ["data", "users", "contender", "before", *(f"+{after:,}" for after in AFTER)]
    title = f"Change after {CHANGE:,} rankings: test NDCG@10, {seeds} seeds"
    print(table(title, head, rows, words=3), end="\n\n")
    return _alarm_table([case for case in cases if case.contender == DEFAULT], found)


def _means(found: Sequence[Drifted]) -> list[str]:
    return [f"{mean:.4f}" for mean in np.mean([one.tests for one in found], axis=0)]


def _alarm_table(cases: Sequence[Case], found: dict[Case, Drifted]) -> list[Goal]:
    """Print when the detector raised alarms, for the default forgetting."""
    rows = []
    wrong = noticed = harmful = 0
    for data, users in dict.fromkeys((case.data, case.users) for case in cases):
        runs = [found[case] for case in cases if case[:2] == (data, users)]
        false = sum(at <= CHANGE for run in runs for at in alarms(run))
        hurt = [run for run in runs if run.fall >= HARM]
        delays = [late[0] - CHANGE for run in hurt if (late := _late(run))]
        others = sum(bool(_late(run)) for run in runs if run.fall < HARM)
        wrong, noticed, harmful = wrong + false, noticed + len(delays), harmful + len(hurt)
        rows.append([data, users, str(false), f"{len(delays)} of {len(hurt)}",
                     f"{np.median(delays):,.0f}" if delays else "–",
                     f"{others} of {len(runs) - len(hurt)}"])  # fmt: skip
    head = ["data", "users", "false alarms", "harmful changes noticed", "median rankings until",
            "other changes noticed"]  # fmt: skip
    title = (
        f"Drift detector: alarm at {drift.ALARM:g}, allowance {drift.ALLOWANCE:g}; a change is "
        f"harmful if the shown NDCG@10 falls by {HARM} in {WINDOW:,} rankings"
    )
    print(table(title, head, rows, words=2), end="\n\n")
    return [
        Goal("drift: false alarms", "0", str(wrong), wrong == 0),
        Goal("drift: harmful changes noticed", "> 50 %", f"{noticed} of {harmful}",
             2 * noticed > harmful),
    ]  # fmt: skip


def _late(run: Drifted) -> list[int]:
    return [at for at in alarms(run) if at > CHANGE]


def alarms(run: Drifted) -> list[int]:
    """Return the rankings at which the evidence reached the alarm."""
    mean = evidence = 0.0
    found = []
    for at, quality in zip(run.rankings.tolist(), run.qualities.tolist(), strict=True):
        before = evidence
        mean, evidence = drift.after(mean, evidence, quality, at)
        if before < drift.ALARM <= evidence:
            found.append(int(at))
    return found


def drifted(case: Case) -> Drifted:
    """Run one case."""
    world = worlds()[case.data]
    changed = dealt_again(world.judged, np.random.default_rng([case.seed, 7]))
    forgetting = FORGETTING.get(case.contender)
    model: LearningRanker
    if forgetting is None:
        model = ranker(case.contender, world)
    else:
        scenario = replace(PLAIN, forgetting=forgetting, pair_bound=world.pair_bound)
        model = runner.model(scenario, world.judged.n)
    tests, qualities, shown = [], [], np.zeros(CHANGE + AFTER[-1])
    for at, visit, test in _followed(model, (world.judged, changed), case):
        shown[at - 1] = visit.ndcg
        if visit.clicked.any():
            qualities.append((at, measures.ndcg(visit.clicked.astype(np.float64), DEPTH)))
        if at == CHANGE or at - CHANGE in AFTER:
            tests.append(test.ndcg(model.learner.weights))
    rankings, measured = np.array(qualities).T
    fall = shown[CHANGE - WINDOW : CHANGE].mean() - shown[CHANGE : CHANGE + WINDOW].mean()
    return Drifted(np.array(tests), float(fall), rankings, measured)


def _followed(
    model: LearningRanker, parts: tuple[Judged, Judged], case: Case
) -> Iterator[tuple[int, Visit, Site]]:
    """Let the model learn from both parts; yield each ranking's number, visit and test queries."""
    rng, at = np.random.default_rng([case.seed, 0]), 0
    for judged, count in zip(parts, (CHANGE, AFTER[-1]), strict=True):
        site, test = Site.of(judged.train), Site.of(judged.test)
        users = runner.visitors(PLAIN, judged, case.users)
        for visit in traffic.visits(site, model, users, rng, count):
            model.learn(site.of_query(visit.query), visit)
            at += 1
            yield at, visit, test


def dealt_again(judged: Judged, rng: np.random.Generator) -> Judged:
    """Deal the labels of each query to its documents by a new utility."""
    documents = np.concatenate([query.documents for query in judged.train]).astype(np.float64)
    spread = documents.std(axis=0)
    weights = rng.standard_normal(judged.n) / np.where(spread > 1e-6, spread, np.inf)
    noise = NOISE * float((documents @ weights).std())

    def dealt(query: LabelledQuery) -> LabelledQuery:
        utility = query.documents @ weights + noise * rng.standard_normal(len(query.labels))
        labels = np.empty_like(query.labels)
        labels[np.argsort(-utility)] = np.sort(query.labels)[::-1]
        return LabelledQuery(labels, query.documents)

    return Judged(*([dealt(query) for query in part] for part in (judged.train, judged.test)))
