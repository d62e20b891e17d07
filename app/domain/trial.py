"""A trial of feedback on a copy of a model: its pairs, and the model after it. Pure.

The copy learns with the reducer, so the weights have the bits of a posted event. The blobs are the
protocol of the process that runs a trial (`app/runtime/trial_process.py`).
"""

from typing import NamedTuple

import numpy as np

from app.domain import codec
from app.domain.click_pairs import ClickPairs
from app.domain.learners import restored
from app.domain.model import SUMS, Model, ModelState
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.ranking import bounds, covariance
from app.ranking.arrays import Floats, Integers, as_floats

#: Pairs of a trial that are described; the others are counted.
TRIED_PAIRS = 100


class TriedPairs(NamedTuple):
    """The first pairs of a record in their order: positions, and the weight as it is learnt.

    A margin is `w·x` before the step of the pair; the outcomes are those of `kernels.py`. `total`
    is the number of all pairs of the record.
    """

    preferred: Integers
    other: Integers
    weights: Floats
    margins: Floats
    outcomes: Integers
    total: int


def try_pairs(model: Model, event: Feedback, most: int = TRIED_PAIRS) -> TriedPairs:
    """Learn the first pairs of a click event one by one, on a copy of the model."""
    config, documents = model.config, as_floats(event.documents)
    every = ClickPairs(event, config.kappa).new_pairs(config.clicks)
    every, _ = bounds.bounded(documents, every, config.pair_bound)
    pairs = every.some(slice(most))
    learner = restored(model)
    gaps = learner.pair_batch(documents, pairs)
    margins, outcomes = np.zeros(len(pairs)), np.zeros(len(pairs), np.int64)
    for t, (p, o) in enumerate(pairs.listed()):
        x = documents[p].astype(np.float64) - documents[o].astype(np.float64)
        margins[t] = learner.weights @ x
        outcomes[t] = learner.learn_batch(gaps.part(t, t + 1)).outcome[0]
    return TriedPairs(pairs.preferred, pairs.other, pairs.weights, margins, outcomes, len(every))


def model_after(model: Model, event: Feedback) -> Model:
    """Return the model after a record, with the bits of the reducer."""
    reducer = Reducer(ModelState(0, b"", model, np.zeros(len(SUMS))))
    reducer.apply_decoded(b"", event)
    return reducer.state().model


def run_trial(model: Model, event: Feedback) -> bytes:
    """Return the outcome of a trial as a blob: first pairs, and the weights and variances after."""
    pairs, after = try_pairs(model, event), model_after(model, event)
    arrays = {name: getattr(pairs, name) for name in TriedPairs._fields if name != "total"}
    variances = covariance.variances(after.spread, model.config.n)
    return codec.dump_blob(
        "trial",
        {"total": pairs.total},
        {**arrays, "after": after.weights, "variances": variances},
    )
