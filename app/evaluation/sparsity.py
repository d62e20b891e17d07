"""Stesinbio beside PAMIR: the measures of Stevens, Bengio & Singer (2013), Figures 3 and 4.

    average precision     as in the main table
    precision@10          the share of relevant documents (label ≥ 1) in the first ten positions
    domination error      the share of documents, among those that must dominate others (D(i) ≠ ∅),
                          whose score is not above those of all of D(i)
    all pairs error       the share of pairs in the wrong order; ties are wrong
    zero weights          the share of features that the model does not use
    objective             `F(w)` of domination.py on the training queries, with the penalty λ that
                          was chosen for Stesinbio on this fold, for all models

All but the objective are measured on the test queries. Values are means over folds and runs.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from app.evaluation.folds import Fold
from app.ranking import serving
from app.ranking.arrays import Floats
from app.ranking.batch.accuracy import pairwise_accuracy
from app.ranking.batch.domination import Descent, Domination
from app.ranking.batch.judgements import Judgements
from app.ranking.measures import average_precision
from app.ranking.solar import LinearLearner

#: The systems of the table.
SPARSE_SYSTEMS = ("stesinbio", "pamir")


class SparseLearner(LinearLearner):
    """A model of the domination loss, and the penalty λ that was chosen for it."""

    def __init__(self, n: int, weights: Floats, penalty: float) -> None:
        super().__init__(n, weights)
        self.penalty = penalty


class SparsityMeasures(NamedTuple):
    """The measures of one model on one fold, or their means."""

    average_precision: float
    precision_10: float
    domination_error: float
    all_pairs_error: float
    zero_weights: float
    objective: float


SPARSITY_NAMES = (
    "average precision", "precision@10", "domination error", "all pairs error", "zero weights",
    "objective",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SparsityRow:
    """The means of one system over folds and runs."""

    system: str
    queries: int
    mean: SparsityMeasures

    def as_json(self) -> str:
        """Return one JSON object on one line."""
        names = [name.replace(" ", "_") for name in SPARSITY_NAMES]
        values = dict(zip(names, self.mean, strict=True))
        return json.dumps({"sparsity": self.system, "queries": self.queries, **values})


def sparsity_row(
    system: str, runs: Sequence[Sequence[LinearLearner]], folds: Sequence[Fold], penalties: Floats
) -> SparsityRow:
    """Measure the models of each run and fold; `penalties` has λ of each fold."""
    found = []
    for at, fold in enumerate(folds):
        loss, test = Domination(Judgements.of(fold.train)), Judgements.of(fold.test)
        found += [sparsity(models[at], loss, test, float(penalties[at])) for models in runs]
    mean = SparsityMeasures(*np.mean(found, axis=0).tolist())
    return SparsityRow(system, sum(len(fold.test) for fold in folds), mean)


def sparsity(
    learner: LinearLearner, loss: Domination, test: Judgements, penalty: float
) -> SparsityMeasures:
    """Measure one model: F on the training queries of `loss`, the others on test queries."""
    w, scores = learner.weights, learner.score(test.X)
    rankings = [test.labels[q][serving.order(scores[q])] for q in test.queries]
    return SparsityMeasures(
        float(np.mean([average_precision(labels) for labels in rankings])),
        float(np.mean([(labels[:10] >= 1.0).sum() / 10.0 for labels in rankings])),
        domination_error(scores, test),
        1.0 - pairwise_accuracy(scores, test.labels, test.starts),
        float(np.mean(w == 0.0)),
        Descent(loss, penalty, w).value,
    )


def domination_error(scores: Floats, judged: Judgements) -> float:
    """Return the share of documents with D(i) ≠ ∅ that do not dominate all of D(i); else 0.

    >>> judged = Judgements(np.zeros((3, 1)), np.array([2.0, 1.0, 0.0]), np.array([0, 3]))
    >>> domination_error(np.array([5.0, 1.0, 3.0]), judged)
    0.5
    """
    wrong, dominating = 0, 0
    for q in judged.queries:
        below = judged.labels[q][None, :] < judged.labels[q][:, None]
        highest = np.where(below, scores[q], -np.inf).max(axis=1, initial=-np.inf)
        wrong += int((below.any(axis=1) & (scores[q] <= highest)).sum())
        dominating += int(below.any(axis=1).sum())
    return wrong / dominating if dominating else 0.0


def sparsity_table(rows: Sequence[SparsityRow]) -> str:
    """Format the rows as text."""
    lines = [f"{'sparse models':<22}" + "".join(f"{name.upper():<18}" for name in SPARSITY_NAMES)]
    for row in rows:
        *shares, objective = row.mean
        cells = [f"{share:.4f}" for share in shares] + [f"{objective:.1f}"]
        lines.append(f"{row.system:<22}" + "".join(f"{cell:<18}" for cell in cells))
    return "\n".join(line.rstrip() for line in lines)
