"""Published figures of the RankSVM paper and of the summary of sparse ranking.

Those of the SOLAR paper are in `app.evaluation.published`. Shares are numbers from 0 to 1.
"""

from typing import NamedTuple


class Statistics(NamedTuple):
    """A row of Table 2: documents, features, labels, queries, pairs, mean of labels / documents."""

    documents: int
    features: int
    labels: int
    queries: int
    pairs: int
    labels_per_document: float


#: Table 2, fold 1.
STATISTICS = {
    "MQ2007": Statistics(42_158, 46, 3, 1_017, 246_015, 0.0546),
    "MQ2008": Statistics(9_630, 46, 3, 471, 52_325, 0.1697),
}

#: Tables 3 and 4: log2 of the best C by pairwise accuracy and by mean NDCG.
BEST_C = {
    ("MQ2007", "RankSVM, L1"): (-1, 8),
    ("MQ2007", "RankSVM, L2"): (-5, -15),
    ("MQ2008", "RankSVM, L1"): (8, -6),
    ("MQ2008", "RankSVM, L2"): (7, 7),
    ("MQ2007", "SVR, L1"): (8, 8),
    ("MQ2007", "SVR, L2"): (-7, -11),
    ("MQ2008", "SVR, L1"): (8, 8),
    ("MQ2008", "SVR, L2"): (-1, -4),
}

#: Tables 5 to 7: mean NDCG and pairwise accuracy.
QUALITY = {
    ("MQ2007", "RankSVM, L2"): (0.5211, 0.7036),
    ("MQ2007", "SVR, L1"): (0.4756, 0.6406),
    ("MQ2007", "SVR, L2"): (0.5157, 0.6856),
    ("MQ2007", "random forest, 40"): (0.4959, 0.6616),
    ("MQ2007", "GBDT, 100"): (0.5182, 0.6978),
    ("MQ2007", "random forest, 1000"): (0.5221, 0.6907),
    ("MQ2007", "GBDT, 1000"): (0.4892, 0.6758),
    ("MQ2008", "RankSVM, L2"): (0.4571, 0.8270),
    ("MQ2008", "SVR, L1"): (0.4153, 0.7772),
    ("MQ2008", "SVR, L2"): (0.4450, 0.8217),
    ("MQ2008", "random forest, 40"): (0.4541, 0.8036),
    ("MQ2008", "GBDT, 100"): (0.4706, 0.8283),
    ("MQ2008", "random forest, 1000"): (0.4675, 0.8260),
    ("MQ2008", "GBDT, 1000"): (0.4491, 0.7978),
}

#: Table 10: log2 of C, and pairwise accuracy, on MQ2007-list and MQ2008-list.
PARTIAL_PAIRS = {"partial pairs": ((-9, 0.7910), (-10, 0.8181)),
                 "all pairs": ((-12, 0.8071), (-14, 0.8211))}  # fmt: skip

#: Summary, Figure 2: mean ranks over data sets of LETOR. The lower the better.
MEAN_RANKS = {
    "NDCG@10": {
        "Stesinbio": 3.62,
        "base": 3.38,
        "margin": 2.75,
        "AdaRank": 4.12,
        "RankBoost": 3.38,
    },
    "precision@10": {
        "Stesinbio": 3.25,
        "base": 3.12,
        "margin": 2.38,
        "AdaRank": 4.00,
        "RankBoost": 3.12,
    },
    "NDCG@5": {"Stesinbio": 3.12, "base": 3.38, "margin": 3.62, "AdaRank": 4.12, "RankBoost": 3.38},
}

#: Summary, Figures 3 and 4: the share of zero weights.
ZERO_WEIGHTS = {
    "images (Figure 3)": {"PAMIR": 0.034, "Stesinbio, ℓ1": 0.943, "Stesinbio, ℓ2": 0.014},
    "RCV1 (Figure 4)": {"PAMIR": 0.781, "Stesinbio, ℓ1": 0.988},
}
