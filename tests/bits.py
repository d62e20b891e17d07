"""Print a digest of everything the reducer computes, for `test_bits.py` to compare between CPUs.

The input comes from exact operations only, so any difference comes from the code under test.
"""

import hashlib
import sys
from itertools import product

import numpy as np

from app.domain import codec
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.ranking import measures, online, pairs, serving
from app.ranking.online import LabelledQuery, Pairwise
from app.ranking.solar import LinearLearner, SolarI, SolarII, SolarIIDiagonal
from app.ranking.sparse import SparseRows


def sparse(rows: np.ndarray) -> SparseRows:
    """Convert dense rows to CSR."""
    where = np.nonzero(rows)
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(rows, axis=1))])
    return SparseRows(rows.shape, starts, where[1], rows[where])


def reduced_states() -> bytes:
    """The bytes of the states after some logs."""
    rng = np.random.default_rng(11)
    found = b""
    kinds = (("solar-i", "full"), ("solar-ii", "full"), ("solar-ii", "diagonal"))
    for (algorithm, spread), bound in product(kinds, (None, 1.5)):
        settings = ModelConfig(tuple("abcdefghijk"), algorithm, spread, pair_bound=bound)  # type: ignore[arg-type]
        reducer = Reducer(initial_state(settings))
        for at in range(40):
            documents = rng.random((9, 11)).astype(np.float32)
            order = rng.permutation(9)
            clicks, labels = rng.permutation(9)[:3], rng.integers(0, 4, 9) / 2.0
            records = [
                Feedback(f"c{at}", "clicks", documents, order, clicks=clicks[:1]),
                Feedback(f"l{at}", "labels", documents, labels=labels),
                Feedback(f"t{at}", "triplets", documents, preferred=clicks, other=order[:3]),
            ]
            assert all(reducer.apply(codec.dump_record(record)) for record in records)
        state = reducer.state()
        found += state.chain + state.model.weights.tobytes()
        found += state.model.spread.tobytes() + state.sums.tobytes()
    return found


def main() -> None:
    """Learn, score, rank and measure at several widths; print one digest."""
    digest = hashlib.blake2b()
    for n in (1, 7, 46, 137):
        rng = np.random.default_rng(n)
        documents = rng.random((40, n)).astype(np.float32)
        documents[documents < 0.3] = 0.0
        labels = rng.integers(0, 5, 40) + 0.5 * rng.integers(0, 2, 40)
        ordered = pairs.from_labels(labels)
        learners: list[LinearLearner] = [
            SolarI(n, 0.1), SolarII(n, 10.0), SolarIIDiagonal(n, 10.0),
        ]  # fmt: skip
        for learner in learners:
            digest.update(learner.learn_pairs(documents, ordered).loss.tobytes())
            digest.update(learner.weights.tobytes())
            scores = learner.score(documents)
            digest.update(scores.tobytes())
            digest.update(np.array(measures.quality(labels[serving.order(scores)])).tobytes())
        digest.update(learners[1].covariance.tobytes())  # type: ignore[attr-defined]
        digest.update(learners[2].variances.tobytes())  # type: ignore[attr-defined]
        for learner in (SolarI(n, 0.1), SolarIIDiagonal(n, 10.0)):
            learner.learn_pairs(sparse(documents), ordered)
            digest.update(learner.weights.tobytes() + learner.score(sparse(documents)).tobytes())
        queries = [LabelledQuery(labels[at::4], documents[at::4]) for at in range(4)]
        played = online.play_online(Pairwise(SolarII(n)), queries, np.random.default_rng(0))
        digest.update(np.array(list(played)).tobytes())
    digest.update(reduced_states())
    sys.stdout.write(digest.hexdigest() + "\n")


if __name__ == "__main__":
    main()
