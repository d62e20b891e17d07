"""`solar evaluate --folds`: batch against online learning, in the standard setting (section 5.3).

On each fold a model learns from the training queries. NDCG@10 on the validation queries chooses its
parameter. The test queries only measure the chosen model. The table shows the mean over the folds.
The deviation is over the permutations of the training queries, one run each of a system that
depends on their order. The sparse models of `sparsity.py` (with `--compare`) and the warm and cold
starts of `warm_vs_cold.py` follow the table.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from tqdm import tqdm

from app.evaluation import online_experiment, sparsity, warm_vs_cold
from app.evaluation.fold_systems import RANKSVM, SYSTEMS, System, measured
from app.evaluation.folds import Fold, all_queries
from app.evaluation.online_experiment import Experiment, OnlineRow
from app.evaluation.published import PUBLISHED_BATCH, published_for
from app.evaluation.sparsity import SPARSE_SYSTEMS, SparsityRow
from app.evaluation.warm_vs_cold import STARTS, Start
from app.ranking import online
from app.ranking.solar import SolarII

FoldRow: TypeAlias = OnlineRow | SparsityRow | Start
#: Models by run and fold.
Runs: TypeAlias = list[list[Any]]
Done: TypeAlias = Callable[[str], None]


def run_folds(
    experiment: Experiment,
    folds: Sequence[Fold],
    systems: Sequence[System] = SYSTEMS,
    *,
    progress: bool = True,
) -> Iterator[FoldRow]:
    """Yield a row for each system, then sparse models and starts; show progress on a terminal.

    RankSVM must be one of the systems: the starts need it.
    """
    for fold in folds:
        SolarII(fold.n, experiment.gamma)  # reports a bad parameter before minutes of work
    runs = sum(_runs(experiment, system) for system in systems)
    total = len(folds) * (runs + experiment.permutations * len(STARTS))
    with tqdm(total=total, unit="run", disable=None if progress else True, leave=False) as bar:

        def done(run: str) -> None:
            bar.set_description(run)
            bar.update()

        kept: dict[str, Runs] = {}
        yield from _rows(experiment, folds, systems, kept, done)
        if all(name in kept for name in SPARSE_SYSTEMS):
            yield from _sparsity_rows(folds, kept)
        (models,) = kept[RANKSVM.name]
        played = [
            warm_vs_cold.play_start(experiment, fold, model.weights, done)
            for fold, model in zip(folds, models, strict=True)
        ]
        yield from warm_vs_cold.summarise_starts(played, len(all_queries(folds).queries))


def _rows(
    experiment: Experiment,
    folds: Sequence[Fold],
    systems: Sequence[System],
    kept: dict[str, Runs],
    done: Done,
) -> Iterator[OnlineRow]:
    """Yield the rows; keep only the models that later rows need (forests take much memory)."""
    data, discount = all_queries(folds), experiment.discount
    published = published_for(PUBLISHED_BATCH, data, discount)
    for system in systems:
        runs: Runs = [[] for _ in range(_runs(experiment, system))]
        means = []
        for at, models in enumerate(runs):
            qualities = []
            for fold in folds:
                rng = np.random.default_rng([experiment.seed, at])
                model = system.train(fold, discount, rng)
                qualities.append(measured(model, fold.test, discount))
                models.append(model if system.name in (RANKSVM.name, *SPARSE_SYSTEMS) else None)
                done(system.name)
            means.append(online.mean_quality(qualities))
        kept[system.name] = runs
        figures = published.get(system.name)
        yield OnlineRow.of(system.name, len(data.queries), means, figures, untuned=system.untuned)


def _runs(experiment: Experiment, system: System) -> int:
    return experiment.permutations if system.permuted else 1


def _sparsity_rows(folds: Sequence[Fold], kept: dict[str, Runs]) -> Iterator[SparsityRow]:
    (stesinbio,) = kept["stesinbio"]
    penalties = np.array([model.penalty for model in stesinbio])
    for name in SPARSE_SYSTEMS:
        yield sparsity.sparsity_row(name, kept[name], folds, penalties)


def folds_table(rows: Sequence[FoldRow]) -> str:
    """Format all rows as text: the table, sparse models and starts (if any) below."""
    online_rows = [row for row in rows if isinstance(row, OnlineRow)]
    sparse = [row for row in rows if isinstance(row, SparsityRow)]
    played = [row for row in rows if isinstance(row, Start)]
    parts = [online_experiment.online_table(online_rows)]
    if sparse:
        parts.append(sparsity.sparsity_table(sparse))
    if played:
        parts.append(warm_vs_cold.start_table(played))
    return "\n\n".join(parts)
