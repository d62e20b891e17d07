"""Mean NDCG, the measure of the RankSVM paper for LETOR and MSLR (eq. 39)."""

import numpy as np

from app.ranking import serving
from app.ranking.arrays import Floats
from app.ranking.batch.accuracy import pairwise_accuracy
from app.ranking.batch.judgements import Judgements
from app.ranking.limits import LARGEST_LABEL
from app.ranking.measures import discounts


def mean_ndcg(labels: Floats) -> float:
    """Return the mean of NDCG@m over m = 1 … documents, with LETOR's discount; 0 if all are 0.

    >>> mean_ndcg(np.array([0.0, 1.0]))
    0.5
    """
    table = discounts("letor", len(labels))[: len(labels)]
    best = np.sort(labels)[::-1]
    gained, ideal = (np.cumsum((2.0**some - 1.0) * table) for some in (labels, best))
    return float(np.mean(gained / ideal)) if best[0] > 0.0 else 0.0


def tested(judged: Judgements, scores: Floats) -> tuple[float, float]:
    """Return mean NDCG, averaged over the queries, and pairwise accuracy.

    Mean NDCG is 0 with labels that its gains do not allow, as those of MQ2008-list (Table 3).
    """
    accuracy = pairwise_accuracy(scores, judged.labels, judged.starts)
    if judged.labels.max() > LARGEST_LABEL:
        return 0.0, accuracy
    ndcgs = [mean_ndcg(judged.labels[q][serving.order(scores[q])]) for q in judged.queries]
    return float(np.mean(ndcgs)), accuracy
