"""The sides of a simulated duel: the submitted order, rankers that do not learn, and models.

| text | side |
|---|---|
| `submitted` | the submitted order |
| `best`, `feature:7` | the best single feature, feature 7 |
| `labels`, `labels:0.1` | trained on the labels of all training queries, of a tenth |
| `model` | a model with the settings of the command, which learns from the clicks |
| `gamma=100,clicks=fair-pairs` | such a model with these settings of its own |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.domain.duels import SUBMITTED
from app.domain.followers import OWN_SETTINGS
from app.errors import SolarError
from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.simulation.runner import Judged, Scenario, best_feature

BEST, FEATURE, LABELS, MODEL = "best", "feature", "labels", "model"
_TEXTS = ("algorithm", "covariance", "clicks")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a duel; `settings` are those of a model that learns, None of any other side.

    `amount` is the number of a feature, or a share of the training queries.
    """

    text: str
    kind: str
    amount: float = 1.0
    settings: Mapping[str, float | str] | None = None

    @classmethod
    def of(cls, text: str) -> "Side":
        """Parse a side; ValueError if it is none.

        >>> Side.of("labels:0.1").amount, Side.of("gamma=100").settings
        (0.1, {'gamma': 100.0})
        """
        if text in (SUBMITTED, BEST, LABELS):
            return cls(text, text)
        kind, _, amount = text.partition(":")
        if kind in (FEATURE, LABELS):
            return cls(text, kind, _amount(kind, amount))
        settings = {} if text == MODEL else dict(map(_setting, text.split(",")))
        return cls(text, MODEL, settings=settings)

    @property
    def learns(self) -> bool:
        """Whether the side learns from the clicks."""
        return self.settings is not None


def _amount(kind: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if kind == FEATURE and not (found >= 1.0 and found.is_integer()):
        raise ValueError(f"feature: expected a number from 1, got {text!r}")
    if kind == LABELS and not 0.0 < found <= 1.0:
        raise ValueError(f"labels: expected a share above 0, at most 1, got {text!r}")
    return found


def _setting(text: str) -> tuple[str, float | str]:
    name, equals, value = text.partition("=")
    if not equals or name not in OWN_SETTINGS:
        raise ValueError(
            f"expected submitted, best, feature:N, labels, labels:SHARE, model or settings such as "
            f"gamma=100 (one of {', '.join(OWN_SETTINGS)}), got {text!r}"
        )
    if name in _TEXTS:
        return name, value
    try:
        return name, float(value)
    except ValueError:
        raise ValueError(f"{name}: expected a number, got {value!r}") from None


def fixed_weights(side: Side, judged: Judged, seed: int) -> Floats | None:
    """Return the weights of a side that does not learn; None is the submitted order."""
    if side.kind == SUBMITTED:
        return None
    if side.kind == LABELS:
        return _trained(judged.train, side.amount, seed)
    column, sign = int(side.amount) - 1, 1.0
    if side.kind == BEST:
        column, sign = best_feature(judged.train)
    if column >= judged.n:
        raise SolarError(f"--duel: expected a feature from 1 to {judged.n}, got {side.text!r}")
    weights: Floats = sign * np.eye(judged.n)[column]
    return weights


def _trained(queries: Sequence[LabelledQuery], share: float, seed: int) -> Floats:
    """Return the weights after one pass over the labels of a random share of the queries."""
    rng = np.random.default_rng([seed, 3])
    learner = SolarII(queries[0].documents.shape[1])
    for q in rng.permutation(len(queries))[: max(1, round(share * len(queries)))].tolist():
        learner.learn_pairs(queries[q].documents, queries[q].pairs.shuffled(rng))
    return learner.weights


def with_settings(scenario: Scenario, settings: Mapping[str, float | str]) -> Scenario:
    """Return a scenario whose model has these settings."""
    found = dict(settings)
    form = found.pop("covariance", None)
    changed = replace(scenario, **found)  # type: ignore[arg-type]
    plain = changed.algorithm.removesuffix("-diagonal")
    if form is None or plain == "solar-i":
        return changed
    return replace(changed, algorithm=plain + ("-diagonal" if form == "diagonal" else ""))
