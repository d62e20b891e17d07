"""SOLAR paper: Table 3 (batch against online learning) and Figure 3 (scalability)."""

from app.evaluation.online_experiment import OnlineRow
from app.evaluation.plots import Curve, Panel
from app.evaluation.published import PUBLISHED_BATCH
from app.ranking.batch.judgements import Judgements
from benchmarks import figure3
from benchmarks.timing import side_by_side
from tools.paper.compared import Compared, compared_table
from tools.paper.inputs import Inputs
from tools.paper.page import Part, figure

#: The rows of Table 3; further systems of `--compare` follow them.
TABLE_3 = tuple(next(iter(PUBLISHED_BATCH.values())))
FIFTHS = range(1, 6)
#: The end of a name in `benchmarks.figure3` that has a fixed C.
FIXED = f", C = {figure3.C:g}"


def batch_against_online(inputs: Inputs) -> Part:
    """Table 3: NDCG on the test queries of five folds."""
    texts = []
    for name in inputs.letor_sets:
        found = [row for row in inputs.fold_rows(name) if isinstance(row, OnlineRow)]
        rows = [Compared(row.algorithm, row.mean[:3], row.published, [f"{row.mean.map:.4f}"])
                for row in found]  # fmt: skip
        measures = ("NDCG@1", "NDCG@5", "NDCG@10")
        texts.append(compared_table("SOLAR Table 3", name, measures, rows, ["MAP"]))
    return Part.on(inputs.letor_sets, "\n\n".join(texts))


def scalability(inputs: Inputs) -> Part:
    """Figure 3: CPU time of one pass of SOLAR against RankSVM, on growing parts of MQ2008."""
    if "MQ2008" not in inputs.letor_sets:
        return Part.on([], "")
    fold = inputs.folds("MQ2008")[0]
    held_out, seconds, queries = Judgements.of(fold.validation), [], []
    side_by_side(figure3.candidates(fold.train[:20], held_out), lasting=0.0)  # compiles
    for fifths in FIFTHS:
        part = fold.train[: len(fold.train) * fifths // 5]
        queries.append(float(len(part)))
        seconds.append(side_by_side(figure3.candidates(part, held_out), inputs.effort.lasting))
    curves = [
        Curve(name.removesuffix(FIXED), queries, [one[name] for one in seconds], [])
        for name in seconds[0]
    ]
    panel = Panel(f"CPU seconds of a training{FIXED}", curves, "training queries", ylog=True)
    drawn = figure(inputs.figures, "paper-scalability.svg", "MQ2008, fold 1", [panel])
    return Part.on(["MQ2008"], f"{drawn}\n\n{_ratios(seconds[-1])}")


def _ratios(seconds: dict[str, float]) -> str:
    """Say how many times as long each candidate takes as SOLAR-I, on all training queries."""
    first = seconds["SOLAR-I"]
    ratios = ", ".join(
        f"{name.removesuffix(FIXED)} {one / first:.1f}" for name, one in seconds.items()
    )
    return (
        f"CPU time on all training queries, as a multiple of SOLAR-I's: {ratios}. Published: "
        "RankSVM takes more than 100 times as long as SOLAR. That RankSVM is the code of Chapelle "
        "and Keerthi. The one here counts pairs by a tree, so the factor is smaller."
    )
