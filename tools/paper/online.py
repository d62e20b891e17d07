"""SOLAR paper: Table 1, Table 2 and Figure 2, online learning."""

from collections.abc import Sequence

import numpy as np

from app.evaluation.letor import JudgedData
from app.evaluation.online_experiment import BASELINES, Experiment, contestant_maker
from app.evaluation.plots import Curve, Panel
from app.evaluation.published import PUBLISHED_ONLINE, published_for
from app.ranking import online
from app.ranking.arrays import Floats
from tools.paper.compared import Compared, compared_table
from tools.paper.inputs import Inputs
from tools.paper.page import Part, figure
from tools.reference.markdown import table

ALGORITHMS = (*BASELINES, "solar-i", "solar-ii")
#: Table 1: queries, features, documents per query.
PUBLISHED_SIZES = {
    "OHSUMED": (106, 45, 152.26), "MQ2007": (1692, 46, 41.14), "MQ2008": (784, 46, 19.40),
    "HP2003": (150, 64, 984.04), "HP2004": (75, 64, 992.12), "NP2003": (75, 64, 991.04),
    "NP2004": (75, 64, 984.45), "TD2003": (50, 64, 981.16), "TD2004": (50, 64, 988.61),
}  # fmt: skip
#: Points of a curve.
POINTS = 50


def data_sets(inputs: Inputs) -> Part:
    """Table 1: the size of the data sets."""
    rows = []
    for name in inputs.letor_sets:
        data = inputs.queries(name)
        measured = (len(data.queries), data.n, data.documents / len(data.queries))
        rows.append([name, _size(*measured), _size(*PUBLISHED_SIZES[name])])
    return Part.on(inputs.letor_sets, table(["data", "measured", "published"], rows))


def _size(queries: int, features: int, documents: float) -> str:
    return f"{queries:,} queries, {features} features, {documents:.2f} documents a query"


def online_learning(inputs: Inputs) -> Part:
    """Table 2 and Figure 2: online cumulative NDCG and MAP."""
    texts, panels = [], []
    for name in inputs.letor_sets:
        data = inputs.queries(name)
        runs = {one: played(one, data, inputs.effort.permutations) for one in ALGORITHMS}
        published = published_for(PUBLISHED_ONLINE, data, "letor")
        rows = [
            Compared(one, found.mean(axis=(0, 1))[:3].tolist(), published.get(one))
            for one, found in runs.items()
        ]
        texts.append(compared_table("SOLAR Table 2", name, ("NDCG@1", "NDCG@5", "NDCG@10"), rows))
        panels.append(Panel(name, map_curves(runs), "queries"))
    if panels:
        title = "Online cumulative MAP over the number of queries"
        texts.append(figure(inputs.figures, "paper-map.svg", title, panels))
        texts.append("The published Figure 2 is a picture without numbers.")
    return Part.on(inputs.letor_sets, "\n\n".join(texts))


def played(algorithm: str, data: JudgedData, permutations: int) -> Floats:
    """Run Algorithm 1; return permutations x queries x measures."""
    experiment = Experiment(discount="letor")
    make = contestant_maker(algorithm, experiment, data)
    return np.array(
        [
            list(online.play_online(make(), data.queries, np.random.default_rng([0, at]), "letor"))
            for at in range(permutations)
        ]
    )


def map_curves(runs: dict[str, Floats]) -> Sequence[Curve]:
    """Return cumulative MAP of each algorithm, with its deviation over the permutations."""
    return [_map_curve(name, found[:, :, 4]) for name, found in runs.items()]


def _map_curve(name: str, found: Floats) -> Curve:
    queries = found.shape[1]
    so_far = np.cumsum(found, axis=1) / np.arange(1, queries + 1)
    at = np.unique(np.linspace(min(10, queries), queries, POINTS).astype(int)) - 1
    spread = so_far.std(axis=0, ddof=1) if len(found) > 1 else np.zeros(queries)
    x = (at + 1).astype(float).tolist()
    return Curve(name, x, so_far.mean(axis=0)[at].tolist(), spread[at].tolist())
