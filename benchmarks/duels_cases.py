"""Models that duel, the data they duel on, and users who see only positions.

Four models by data set: one trained on all labels (`good`), one trained on the labels of few
queries (`few`), the best single feature (`feature`), and `good` with disturbed weights (`noisy`).
No model learns while it is measured. Users submit the test queries.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.duel_traffic import Orders
from app.ranking.online import LabelledQuery
from app.ranking.traffic import Site
from app.ranking.users import EXAMINATION, Users
from app.simulation import runner
from app.simulation.runner import Judged, Scenario, best_feature
from benchmarks.clicks_wins import trained_on_labels
from benchmarks.worlds import folds, worlds

ALPHA = 0.05
LENGTH = 10
MODELS = ("good", "few", "feature", "noisy")
#: Training queries of `few`, at most an eighth of all.
FEW = 25
#: Disturbance of the weights of `noisy`, in standard deviations of the weights.
NOISE = 0.3
#: Data beside the first fold, if there is any: long lists and correlated features are invented.
OTHERS = ("MSLR-sample", "long lists", "correlated")


def data_sets() -> list[str]:
    """Return the names of the data sets."""
    return [folds()[0], *(name for name in OTHERS if name in worlds())]


@cache
def models(data: str) -> Mapping[str, Floats]:
    """Return the weights of the four models by name."""
    judged = worlds()[data].judged
    column, sign = best_feature(judged.train)
    good = trained_on_labels(judged.train, np.random.default_rng(20))
    few = trained_on_labels(_few(judged), np.random.default_rng(21))
    noise = np.random.default_rng(22).standard_normal(judged.n)
    feature = sign * np.eye(judged.n)[column]
    return dict(zip(MODELS, (good, few, feature, good + NOISE * good.std() * noise), strict=True))


def _few(judged: Judged) -> list[LabelledQuery]:
    count = min(FEW, len(judged.train) // 8)
    drawn = np.random.default_rng(21).choice(len(judged.train), count, replace=False)
    return [judged.train[q] for q in drawn.tolist()]


@cache
def site(data: str) -> Site:
    """Return the test queries."""
    return Site.of(worlds()[data].judged.test)


@cache
def orders(data: str, champion: str, challenger: str) -> Orders:
    """Return the first documents of all test queries by both models."""
    found = models(data)
    return Orders.of(site(data), found[champion], found[challenger], LENGTH)


def users(data: str, name: str) -> Users:
    """Return the users of this name."""
    return runner.visitors(Scenario(top_k=LENGTH), worlds()[data].judged, name)


def blind_users() -> Mapping[str, Users]:
    """Return users whose clicks depend on positions alone, by name."""
    half, always = np.full(5, 0.5), np.ones(LENGTH)
    return {
        "stop after a click": Users(half, half, always),
        "never stop": Users(half, np.zeros(5), always),
        "position-based": Users(np.full(5, 0.9), np.zeros(5), np.array(EXAMINATION)),
    }
