"""Print a digest of everything the reducer computes, for `test_bits.py` to compare between CPUs.

The input comes from exact operations only, so any difference comes from the code under test.
"""

import hashlib
import sys
from itertools import product
from typing import Any

import numpy as np

from app.domain import codec
from app.domain.duels import Duel
from app.domain.followers import follower_config, follower_state
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.records import Feedback, Record
from app.domain.reducer import Reducer
from app.ranking import interleaving, measures, online, pairs, serving
from app.ranking.clicks import CLICK_STRATEGIES
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
        found += bits_of(reducer.state())
    return found


def bits_of(state: ModelState) -> bytes:
    """All numbers of a state."""
    model = state.model
    learnt = model.weights.tobytes() + model.spread.tobytes() + repr(model.certainty).encode()
    return state.chain + learnt + state.sums.tobytes() + repr(state.duel).encode()


def state_of_a_duel() -> bytes:
    """The bytes of the states of a champion and of a follower after lists of their duel."""
    rng = np.random.default_rng(12)
    settings = new_model_config(tuple("abcdefghijk"))
    first = initial_state(settings)
    others = {"gamma": 50.0, "covariance": "diagonal", "forgetting": 0.01}
    challenger = follower_state(first, follower_config(settings, **others))
    champion, follower = Reducer(first), Reducer(challenger, follows=True)
    records: list[Record] = [Duel("other", 0.5, 0.05)]
    for at in range(60):
        documents = rng.random((9, 12)).astype(np.float32)
        orders = rng.permutation(9), rng.permutation(9)
        draft = interleaving.team_draft(*orders, 6, rng.random(3))
        shown, count = draft.shown, rng.integers(0, 4)
        records.append(
            Feedback(
                f"d{at}", "clicks", documents[shown], shown, clicks=rng.permutation(6)[:count],
                swaps=draft.rounds, query=f"q{at}", duel=np.append(1, draft.teams),
            )
        )  # fmt: skip
        plain = rng.permutation(9)[:7]
        records.append(Feedback(f"p{at}", "clicks", documents[plain], plain, clicks=plain[:1] % 7))
        odds = np.append(rng.random(7), 0.5)
        records.append(
            Feedback(f"s{at}", "clicks", documents[plain], plain, clicks=plain[1:3] % 7, odds=odds)
        )
    for blob in [codec.dump_record(record) for record in records]:
        assert champion.apply(blob)
        assert follower.apply(blob)
    assert champion.state().duel.decided > 20  # type: ignore[union-attr]
    assert follower.state().measures()["compared"] == 120
    return bits_of(champion.state()) + bits_of(follower.state())


def states_with_gains() -> bytes:
    """The bytes of the states after clicks with gains and examined positions, for each reading."""
    rng, found = np.random.default_rng(13), b""
    for strategy in CLICK_STRATEGIES:
        reducer = Reducer(initial_state(new_model_config(tuple("abcdefghijk"), clicks=strategy)))
        for at in range(30):
            documents, order = rng.random((9, 12)).astype(np.float32), rng.permutation(9)
            about: dict[str, Any] = {"odds": np.append(rng.random(9), 0.5)}
            if strategy == "fair-pairs":
                about = {"swaps": np.array([[0, 1], [3, 0], [6, 1]])}
            so_far = PriorFeedback.load(b"")
            for event in range(3):
                clicks = rng.permutation(9)[: rng.integers(0, 4)]
                posted = Feedback(
                    f"g{at}-{event}", "clicks", documents, order, clicks=clicks, query=f"q{at}",
                    gains=rng.integers(0, 21, len(clicks)) / 2.0,
                    examined=rng.integers(0, 10, 1), **about,
                )  # fmt: skip
                record, so_far = on_request(posted, so_far, counts_abandoned=True)
                assert reducer.apply(codec.dump_record(record))
        found += bits_of(reducer.state())
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
    digest.update(state_of_a_duel())
    digest.update(states_with_gains())
    sys.stdout.write(digest.hexdigest() + "\n")


if __name__ == "__main__":
    main()
