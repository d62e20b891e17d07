"""Compile all kernels ahead of time: `python -m app.runtime.precompile`, for a read-only image.

It learns and trains in miniature, by the ways that records and uploads take, so that what it leaves
in the cache is what a service asks for. `--check` fails if any kernel was not in the cache.
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
from app.evaluation.synthetic import World
from app.learning import learner
from app.ranking.limits import MOST_FEATURES_FULL
from app.simulation import runner
from app.training import process
from app.training.options import UPLOAD, Training, TrainingTask

MODEL_KINDS = (
    ModelConfig(("a", "b"), "solar-i"),
    ModelConfig(("a", "b"), "solar-ii"),
    ModelConfig(("a", "b"), "solar-ii", "diagonal"),
)
TRAININGS = (
    Training(C=0.1),
    Training(loss="l1", C=0.1),
    Training("domination", penalty=0.1),
    Training(validation=0.5),
    Training(validation=0.5, by="pairwise"),
)
#: Kernels that nothing here calls: of sparse online models in `solar evaluate`.
NOT_SERVED = {
    "app.ranking.sparse.first_order_sparse",
    "app.ranking.sparse.score_sparse",
    "app.ranking.sparse.second_order_sparse",
    "app.ranking.sparse.well_formed",
}
MEMORY = 4 << 30  # bytes; a task must name some


def warm() -> None:
    """Call every kernel that learning, training and simulated users need."""
    learner.warm_up()
    for config in MODEL_KINDS:
        fold = Reducer(initial_state(config))
        for event in events():
            if not fold.apply(codec.dump_record(event)):
                raise AssertionError(f"{event.kind}: a record that is refused warms nothing")
        fold.state()
    simulate_visits()
    with tempfile.TemporaryDirectory(prefix="solar-warm-") as directory, chdir(directory):
        for config, training in product((dense("full"), dense("diagonal"), sparse()), TRAININGS):
            Path(UPLOAD).write_text(judged(config.n))
            train_kernels(config, training, blob=False)
        Path(UPLOAD).write_bytes(blob())
        train_kernels(dense("full"), Training(C=0.1), blob=True)


def simulate_visits() -> None:
    """A few simulated users, for `solar simulate`."""
    _, queries = World(2, 4, 3).draw(np.random.default_rng(0))
    judged = runner.Judged(queries, queries)
    for clicks in ("debiased", "fair-pairs"):
        runner.play_traffic(runner.Scenario(clicks, impressions=20), judged, "informational", 0)


def events() -> Iterator[Feedback]:
    """Feedback of every kind: on a list that was served, and on documents sent along."""
    rows = np.eye(3, 2, dtype=np.float32)
    places, pair = np.arange(3)[::-1].copy(), (np.array([0]), np.array([2]))
    for served in (None, places):
        yield Feedback("w", "labels", rows, submitted=served, labels=np.array([0.0, 2.0, 1.0]))
        for weights in (None, np.array([0.5])):
            yield Feedback("w", "triplets", rows, submitted=served, preferred=pair[0],
                           other=pair[1], weights=weights)  # fmt: skip
    clicked = Feedback("w", "clicks", rows, submitted=places, clicks=np.array([2]))
    yield clicked
    yield replace(clicked, odds=np.array([0.2, 0.3, 0.4, 0.1]))
    yield replace(clicked, swaps=np.array([[1, 0]]))


def dense(covariance: Any) -> ModelConfig:
    """A model of two features."""
    return ModelConfig(("a", "b"), "solar-ii", covariance)


def sparse() -> ModelConfig:
    """A model of so many features that its data are read as sparse rows."""
    n = MOST_FEATURES_FULL + 1
    return ModelConfig(tuple(f"f{at}" for at in range(1, n + 1)), "solar-ii", "diagonal")


def judged(n: int) -> str:
    """Twelve queries of three documents as LETOR text, the last feature being the n-th."""
    return "".join(
        f"{grade} qid:{query} 1:{(grade + query) % 4 / 4} {n}:{grade / 4}\n"
        for query in range(12)
        for grade in range(3)
    )


def blob() -> bytes:
    """Judged queries as a body of JSON leaves them."""
    rows = np.tile(np.array([[0.1, 0.9], [0.5, 0.4], [0.8, 0.2]], np.float32), (4, 1))
    labels, starts = np.tile([0.0, 1.0, 2.0], 4), np.arange(5) * 3
    return codec.dump_blob("judged", {}, {"documents": rows, "labels": labels, "starts": starts})


def train_kernels(config: ModelConfig, training: Training, *, blob: bool) -> None:
    """As a job would, in the working directory."""
    process.work(TrainingTask(config, training, 1e4, blob, MEMORY), lambda *_: None)


def counted() -> tuple[int, list[str]]:
    """How many kernels came from the cache, and which were compiled."""
    loaded, compiled = 0, []
    for name, kernel in sorted(kernels().items()):
        loaded += sum(kernel.stats.cache_hits.values())
        compiled += [f"{name}{signature}" for signature in kernel.stats.cache_misses]
    return loaded, compiled


def kernels() -> dict[str, Any]:
    """Every kernel of the core that is kept in the cache, by its name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("app.ranking")]
    found = [one for module in modules for one in vars(module).values() if is_jitted(one)]
    named = {f"{one.py_func.__module__}.{one.py_func.__name__}": one for one in found}
    return {name: one for name, one in named.items() if one.stats.cache_path is not None}


def cold() -> list[str]:
    """Kernels that were never called, where all were compiled: a service might call them."""
    never = {name for name, kernel in kernels().items() if not kernel.signatures}
    return sorted(never - NOT_SERVED)


def main(arguments: Sequence[str]) -> int:
    """Warm up, say what was compiled; with --check that is an error.

    So is a kernel that a new cache will not have: whoever adds one adds it to what is called here.
    """
    warm()
    loaded, compiled = counted()
    wrong = [f"compiled: {name}" for name in compiled] if "--check" in arguments else []
    if not loaded:  # else those within others are not seen
        wrong += [f"never called: {name}" for name in cold()]
    print(*wrong, f"kernels: {loaded} from the cache, {len(compiled)} compiled", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
