"""The published tables: complete, and shown only beside the data that they are of."""

from itertools import chain

import numpy as np
import pytest

from app.evaluation.letor import JudgedData
from app.evaluation.published import (
    HP2003,
    HP2004,
    MQ2007,
    MQ2008,
    NP2003,
    NP2004,
    OHSUMED,
    PUBLISHED_BATCH,
    PUBLISHED_ONLINE,
    TD2003,
    TD2004,
    DataShape,
    PublishedTable,
    published_for,
)  # fmt: skip
from app.ranking.online import LabelledQuery

#: Documents per query in Table 1 of the paper, cut after two digits.
AVERAGES = {
    OHSUMED: 152.26, MQ2007: 41.14, MQ2008: 19.40, HP2003: 984.04, HP2004: 992.12, NP2003: 991.04,
    NP2004: 984.45, TD2003: 981.16, TD2004: 988.61,
}  # fmt: skip


def judged(shape: DataShape) -> JudgedData:
    sizes = [len(part) for part in np.array_split(np.arange(shape.documents), shape.queries)]
    queries = [LabelledQuery(np.zeros(size), np.zeros((size, 1))) for size in sizes]
    return JudgedData(shape.features, queries)


@pytest.mark.parametrize("shape", AVERAGES)
def test_the_documents_of_a_data_set_agree_with_table_1(shape: DataShape) -> None:
    assert 0.0 <= shape.documents / shape.queries - AVERAGES[shape] < 0.01


@pytest.mark.parametrize(("table", "rows"), [(PUBLISHED_ONLINE, 5), (PUBLISHED_BATCH, 6)])
def test_both_tables_have_all_rows_of_all_data_sets(table: PublishedTable, rows: int) -> None:
    assert set(table) == set(AVERAGES)
    assert all(len(figures) == rows for figures in table.values())
    values = list(chain(*chain(*(figures.values() for figures in table.values()))))
    assert all(0.0 < value < 1.0 for value in values)
    missing = 4 if table is PUBLISHED_BATCH else 0  # NDCG@10 of the batch learners on MQ2008
    assert len(values) == 3 * rows * len(table) - missing


def test_figures_are_shown_only_for_the_same_queries_features_and_documents() -> None:
    same = published_for(PUBLISHED_BATCH, judged(MQ2008), "letor")
    assert same["rankboost"] == (0.3856, 0.4666)
    for other in ({"documents": 15_210}, {"queries": 785}, {"features": 45}):
        assert published_for(PUBLISHED_BATCH, judged(MQ2008._replace(**other)), "letor") == {}


def test_two_data_sets_with_as_many_queries_and_features_are_told_apart() -> None:
    assert HP2003[:2] == NP2003[:2]
    first, second = (
        published_for(PUBLISHED_ONLINE, judged(one), "letor") for one in (HP2003, NP2003)
    )
    assert (first["solar-i"][0], second["solar-i"][0]) == (0.6993, 0.5527)


def test_the_standard_discount_has_no_published_figures() -> None:
    assert published_for(PUBLISHED_BATCH, judged(MQ2008), "standard") == {}
