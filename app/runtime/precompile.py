"""Compile all kernels ahead of time: `python -m app.runtime.precompile`, for a read-only image.

It learns and trains on tiny data by the code paths of the service, so the cache holds the kernels
that a service calls. `--check` fails if a kernel was not in the cache.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numba.extending import is_jitted

from app.domain import codec
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.evaluation.synthetic import SyntheticData
from app.learning import learner
from app.ranking import duel_traffic, traffic
from app.ranking.limits import MOST_FEATURES_FULL
from app.simulation import runner
from app.training import process
from app.training.options import UPLOAD, Training, TrainingTask

MODEL_KINDS = (
    ModelConfig(("a", "b"), "solar-i", pair_bound=40.0),
    ModelConfig(("a", "b"), "solar-ii", pair_bound=40.0),
    ModelConfig(("a", "b"), "solar-ii", "diagonal", pair_bound=40.0),
)
TRAININGS = (
    Training(C=0.1),
    Training(loss="l1", C=0.1),
    Training("domination", penalty=0.1),
    Training(validation=0.5),
    Training(validation=0.5, by="pairwise"),
)
#: Kernels of sparse online models: only `solar evaluate` calls them.
NOT_SERVED = {
    "app.ranking.sparse.first_order_sparse",
    "app.ranking.sparse.score_sparse",
    "app.ranking.sparse.second_order_sparse",
    "app.ranking.sparse.well_formed",
}
MEMORY = 4 << 30  # bytes; a required field of a task


def warm() -> None:
    """Call every kernel that learning, training and simulations use."""
    learner.warm_up()
    for config in MODEL_KINDS:
        reducer = Reducer(initial_state(config))
        for event in events():
            if not reducer.apply(codec.dump_record(event)):
                raise AssertionError(
                    f"{event.kind}: the record was rejected, so it compiled no kernel"
                )
        reducer.state()
    simulate_visits()
    with tempfile.TemporaryDirectory(prefix="solar-warm-") as directory, chdir(directory):
        for config, training in product((dense("full"), dense("diagonal"), sparse()), TRAININGS):
            Path(UPLOAD).write_text(judged(config.n))
            train_kernels(config, training, blob=False)
        Path(UPLOAD).write_bytes(blob())
        train_kernels(dense("full"), Training(C=0.1), blob=True)


def simulate_visits() -> None:
    """Simulate a few users, for `solar simulate`."""
    _, queries = SyntheticData(2, 4, 3).draw(np.random.default_rng(0))
    judged = runner.Judged(queries, queries)
    for clicks in ("debiased", "fair-pairs"):
        runner.play_traffic(runner.Scenario(clicks, impressions=20), judged, "informational", 0)
    site = traffic.Site.of(queries)
    orders = duel_traffic.Orders.of(site, np.ones(2), None, 3)
    users = runner.visitors(runner.Scenario(top_k=3), judged, "informational")
    duel_traffic.play(site, orders, users, np.random.default_rng(0), 20)


def events() -> Iterator[Feedback]:
    """Yield feedback of every kind: on a served ranking, and with documents sent along."""
    rows = np.eye(3, 2, dtype=np.float32)
    submitted, pair = np.arange(3)[::-1].copy(), (np.array([0]), np.array([2]))
    for served in (None, submitted):
        yield Feedback("w", "labels", rows, submitted=served, labels=np.array([0.0, 2.0, 1.0]))
        for weights in (None, np.array([0.5])):
            yield Feedback("w", "triplets", rows, submitted=served, preferred=pair[0],
                           other=pair[1], weights=weights)  # fmt: skip
    clicked = Feedback("w", "clicks", rows, submitted=submitted, clicks=np.array([2]))
    yield clicked
    yield replace(clicked, odds=np.array([0.2, 0.3, 0.4, 0.1]))
    yield replace(clicked, swaps=np.array([[1, 0]]))


def dense(covariance: Any) -> ModelConfig:
    """A model of two features."""
    return ModelConfig(("a", "b"), "solar-ii", covariance)


def sparse() -> ModelConfig:
    """Return a model with enough features for sparse rows."""
    n = MOST_FEATURES_FULL + 1
    return ModelConfig(tuple(f"f{at}" for at in range(1, n + 1)), "solar-ii", "diagonal")


def judged(n: int) -> str:
    """Return twelve queries of three documents as LETOR text with `n` features."""
    return "".join(
        f"{grade} qid:{query} 1:{(grade + query) % 4 / 4} {n}:{grade / 4}\n"
        for query in range(12)
        for grade in range(3)
    )


def blob() -> bytes:
    """Return judged queries in the format of a stored JSON upload."""
    rows = np.tile(np.array([[0.1, 0.9], [0.5, 0.4], [0.8, 0.2]], np.float32), (4, 1))
    labels, starts = np.tile([0.0, 1.0, 2.0], 4), np.arange(5) * 3
    return codec.dump_blob("judged", {}, {"documents": rows, "labels": labels, "starts": starts})


def train_kernels(config: ModelConfig, training: Training, *, blob: bool) -> None:
    """Train like a job, in the working directory."""
    process.work(TrainingTask(config, training, 1e4, blob, MEMORY), lambda *_: None)


def count_kernels() -> tuple[int, list[str]]:
    """Return the number of cached kernels and the names of compiled ones."""
    loaded, compiled = 0, []
    for name, kernel in sorted(kernels().items()):
        loaded += sum(kernel.stats.cache_hits.values())
        compiled += [f"{name}{signature}" for signature in kernel.stats.cache_misses]
    return loaded, compiled


def kernels() -> dict[str, Any]:
    """Return every cached kernel of `app.ranking` by name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("app.ranking")]
    found = [one for module in modules for one in vars(module).values() if is_jitted(one)]
    named = {f"{one.py_func.__module__}.{one.py_func.__name__}": one for one in found}
    return {name: one for name, one in named.items() if one.stats.cache_path is not None}


def uncalled() -> list[str]:
    """Return kernels that were never called, except NOT_SERVED: a service might call them."""
    never = {name for name, kernel in kernels().items() if not kernel.signatures}
    return sorted(never - NOT_SERVED)


def main(arguments: Sequence[str]) -> int:
    """Compile and print the number of kernels; with --check a compiled kernel is an error.

    A kernel that was never called is an error, too: call new kernels in `warm`.
    """
    warm()
    loaded, compiled = count_kernels()
    wrong = [f"compiled: {name}" for name in compiled] if "--check" in arguments else []
    if not loaded:  # kernels inlined in cached ones do not count as called
        wrong += [f"never called: {name}" for name in uncalled()]
    print(*wrong, f"kernels: {loaded} from the cache, {len(compiled)} compiled", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
