"""All tables and figures with results in the three papers, in their order."""

from tools.paper import batch, online, ranksvm, solvers, sparse, unavailable
from tools.paper.page import Item

SOLAR = "SOLAR"
RANKSVM = "RankSVM"
SPARSE = "Sparse ranking"

ITEMS = (
    Item(SOLAR, ("Table 1",), "data sets", online.data_sets),
    Item(SOLAR, ("Table 2", "Figure 2"), "online NDCG and MAP", online.online_learning),
    Item(SOLAR, ("Table 3",), "batch against online", batch.batch_against_online),
    Item(SOLAR, ("Figure 3",), "scalability", batch.scalability),
    Item(RANKSVM, ("Table 2",), "statistics", ranksvm.statistics),
    Item(RANKSVM, ("Figure 4", "Figure 6"), "trees, direct counting", solvers.many_labels),
    Item(RANKSVM, ("Table 3", "Table 4", "Table 5"), "best C, SVR", ranksvm.linear_models),
    Item(RANKSVM, ("Figure 5",), "solvers over time", solvers.over_time),
    Item(RANKSVM, ("Figure 7",), "solvers over time, fixed C", solvers.fixed_c),
    Item(RANKSVM, ("Table 6", "Table 7"), "random forests, GBDT", ranksvm.forests),
    Item(RANKSVM, ("Table 8", "Table 9"), "sparse data", unavailable.sparse_data),
    Item(RANKSVM, ("Table 10",), "partial pairs", ranksvm.partial_pairs),
    Item(SPARSE, ("Figure 2",), "Stesinbio on LETOR", sparse.stesinbio_on_letor),
    Item(SPARSE, ("Figure 3", "Figure 4"), "share of zero weights", sparse.zero_weights),
)
