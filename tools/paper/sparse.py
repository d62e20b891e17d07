"""Summary of sparse ranking: Figures 2 to 4, Stesinbio on LETOR and its share of zeros."""

from app.evaluation.online_experiment import OnlineRow
from app.evaluation.sparsity import SPARSITY_NAMES, SparsityRow
from tools.paper.inputs import Inputs
from tools.paper.page import Part
from tools.paper.published import MEAN_RANKS, ZERO_WEIGHTS
from tools.reference.markdown import table

#: Names of the figure, and of the systems here.
SYSTEMS = {"Stesinbio": "stesinbio", "AdaRank": "adarank-ndcg", "RankBoost": "rankboost"}


def stesinbio_on_letor(inputs: Inputs) -> Part:
    """Figure 2: Stesinbio beside AdaRank and RankBoost."""
    texts = []
    for name in inputs.letor_sets:
        found = {
            row.algorithm: row.mean for row in inputs.fold_rows(name) if isinstance(row, OnlineRow)
        }
        rows = [
            [shown, f"{found[system].ndcg_10:.4f}", f"{found[system].ndcg_5:.4f}",
             f"{MEAN_RANKS['NDCG@10'][shown]}", f"{MEAN_RANKS['NDCG@5'][shown]}"]
            for shown, system in SYSTEMS.items()
        ]  # fmt: skip
        head = [name, "NDCG@10", "NDCG@5", "published mean rank, NDCG@10", "NDCG@5"]
        texts.append(table(head, rows))
    texts.append(
        "The published figure has mean ranks over several data sets of LETOR, which a single data "
        "set cannot give. Stesinbio here has several labels and margins."
    )
    return Part.on(inputs.letor_sets, "\n\n".join(texts))


def zero_weights(inputs: Inputs) -> Part:
    """Figures 3 and 4: PAMIR against Stesinbio; images and RCV1 are not there."""
    texts = []
    for name in inputs.letor_sets:
        found = [row for row in inputs.fold_rows(name) if isinstance(row, SparsityRow)]
        rows = [
            [row.system, *(f"{share:.4f}" for share in row.mean[:-1]), f"{row.mean.objective:.1f}"]
            for row in found
        ]
        texts.append(table([name, *SPARSITY_NAMES], rows))
    published = "; ".join(
        f"{data}: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        for data, shares in ZERO_WEIGHTS.items()
    )
    texts.append(
        f"Published share of zero weights, on data that is not there: {published}. A model of a "
        "few dozen dense features has little to leave out."
    )
    status = [f"{name} instead of images and RCV1" for name in inputs.letor_sets]
    return Part.on(status, "\n\n".join(texts))
