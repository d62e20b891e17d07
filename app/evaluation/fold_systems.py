"""The systems of `solar evaluate --folds`: each learns from the training queries of a fold.

NDCG@10 on the validation queries chooses the parameter of a system. The first systems are the rows
of Table 3. The others are Stesinbio with PAMIR, its counterpart (`sparsity.py`), and the online
learners of Table 2, which have no parameter. `library_models.py` has further systems.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from app.evaluation.folds import Fold
from app.evaluation.letor import JudgedData
from app.evaluation.online_experiment import Experiment, contestant_maker
from app.evaluation.sparsity import SparseLearner
from app.ranking import measures, online, serving
from app.ranking.arrays import Floats
from app.ranking.baselines.pamir import Pamir
from app.ranking.batch import path
from app.ranking.batch.adarank import train_adarank
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.listnet import train_listnet
from app.ranking.batch.rankboost import StumpRanker, train_rankboost
from app.ranking.batch.trainers import trainer
from app.ranking.measures import Discount, Quality
from app.ranking.online import Contestant, LabelledQuery
from app.ranking.solar import LinearLearner, Rows, SolarI, SolarII

#: The paper's ranges (section 5.3.1) in half powers of ten, the strongest regularisation first.
GRID_C = tuple(10.0 ** (e / 2) for e in range(-13, -6))
GRID_GAMMA = tuple(10.0 ** (e / 2) for e in range(12, 5, -1))
#: Powers of ten around PAMIR_C, the best in the online experiment on MQ2008.
GRID_PAMIR = tuple(10.0**e for e in range(-5, 0))

CANDIDATES: Mapping[str, Callable[[int], list[LinearLearner]]] = {
    "solar-i": lambda n: [SolarI(n, C) for C in GRID_C],
    "solar-ii": lambda n: [SolarII(n, gamma) for gamma in GRID_GAMMA],
    "pamir": lambda n: [Pamir(n, C) for C in GRID_PAMIR],
}


class Scorer(Protocol):
    """A trained model."""

    def score(self, documents: Rows) -> Floats:
        """Score each document."""


Train: TypeAlias = Callable[[Fold, Discount, np.random.Generator], Scorer]


@dataclass(frozen=True, slots=True)
class System:
    """A row of the table. A `permuted` system runs once for each order of the training queries."""

    name: str
    train: Train
    permuted: bool = False
    untuned: bool = False


def train_ranksvm(fold: Fold, discount: Discount) -> LinearLearner:
    """Train RankSVM (squared hinge) with the C that ranks the validation queries best."""
    train, validation = judged_parts(fold)
    chosen = path.follow_path(trainer("l2", train), validation, discount=discount).best
    return LinearLearner(fold.n, chosen.minimum.w)


def train_stesinbio(fold: Fold, discount: Discount) -> SparseLearner:
    """Train on the domination loss with the λ that ranks the validation queries best."""
    train, validation = judged_parts(fold)
    chosen = path.follow_path(trainer("domination", train), validation, discount=discount).best
    return SparseLearner(fold.n, chosen.minimum.w, chosen.parameter)


def judged_parts(fold: Fold) -> tuple[Judgements, Judgements]:
    """Return the training and the validation queries."""
    return Judgements.of(fold.train), Judgements.of(fold.validation)


def best_after_one_pass(
    learners: Sequence[LinearLearner], fold: Fold, rng: np.random.Generator, discount: Discount
) -> LinearLearner:
    """Teach all learners the same pairs in the same order, once; return the best on validation."""
    for at in rng.permutation(len(fold.train)):
        query = fold.train[at]
        pairs = query.pairs.shuffled(rng)
        for learner in learners:
            learner.learn_pairs(query.documents, pairs)
    return max(learners, key=lambda one: measured(one, fold.validation, discount).ndcg_10)


def after_one_pass(algorithm: str, fold: Fold, rng: np.random.Generator) -> Contestant:
    """Teach an online learner without a parameter all training queries, once."""
    contestant = contestant_maker(algorithm, Experiment(), JudgedData(fold.n, fold.train))()
    for at in rng.permutation(len(fold.train)):
        contestant.learn(fold.train[at], rng)
    return contestant


def measured(model: Scorer, queries: Sequence[LabelledQuery], discount: Discount) -> Quality:
    """Return the mean quality of a model's rankings; the model does not change."""
    scores = model.score(np.concatenate([query.documents for query in queries]))
    ends = np.cumsum([len(query.labels) for query in queries])[:-1]
    each = zip(queries, np.split(scores, ends), strict=True)
    return online.mean_quality(
        [measures.quality(query.labels[serving.order(some)], discount) for query, some in each]
    )


def _adarank(fold: Fold, discount: Discount, _: np.random.Generator) -> LinearLearner:
    return LinearLearner(fold.n, train_adarank(*judged_parts(fold), discount))


def _rankboost(fold: Fold, discount: Discount, _: np.random.Generator) -> StumpRanker:
    return train_rankboost(*judged_parts(fold), discount)


def _listnet(fold: Fold, discount: Discount, _: np.random.Generator) -> LinearLearner:
    return LinearLearner(fold.n, train_listnet(*judged_parts(fold), discount))


def _chosen(algorithm: str) -> System:
    def train(fold: Fold, discount: Discount, rng: np.random.Generator) -> LinearLearner:
        return best_after_one_pass(CANDIDATES[algorithm](fold.n), fold, rng, discount)

    return System(algorithm, train, permuted=True)


def _online(algorithm: str) -> System:
    def train(fold: Fold, _: Discount, rng: np.random.Generator) -> Contestant:
        return after_one_pass(algorithm, fold, rng)

    return System(algorithm, train, permuted=True)


RANKSVM = System("ranksvm", lambda fold, discount, _: train_ranksvm(fold, discount))
ONE_PASS_SYSTEMS = (_chosen("solar-i"), _chosen("solar-ii"))
#: The rows without `--compare`.
SYSTEMS = (RANKSVM, *ONE_PASS_SYSTEMS)
#: The rows with `--compare`, without those of libraries.
COMPARED_SYSTEMS = (
    RANKSVM,
    System("adarank-ndcg", _adarank),
    System("rankboost", _rankboost),
    System("listnet", _listnet),
    *ONE_PASS_SYSTEMS,
    System("stesinbio", lambda fold, discount, _: train_stesinbio(fold, discount)),
    _chosen("pamir"),
    _online("prank-pointwise"),
    _online("prank-pairwise"),
    _online("committee-perceptron"),
)
