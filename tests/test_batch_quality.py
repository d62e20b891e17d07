"""NDCG@10 of many queries in one pass, against one query at a time."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.ranking import measures, serving
from app.ranking.batch.accuracy import ndcg_each
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.ordertree import OrderTree
from app.ranking.measures import DISCOUNTS, Discount
from tests.strategies_batch import halves, judged


@st.composite
def ranked(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Draw scores with ties, labels and starts of up to 5 queries, some of them empty."""
    sizes = draw(st.lists(st.integers(0, 40), max_size=5))
    size = sum(sizes)
    label = st.one_of(st.integers(0, 4), st.floats(0, 30, width=16))
    scores = draw(st.lists(halves(3), min_size=size, max_size=size))
    labels = draw(st.lists(label, min_size=size, max_size=size))
    return np.array(scores, np.float64), np.array(labels, np.float64), np.cumsum([0, *sizes])


@given(ranked(), st.sampled_from(DISCOUNTS))
def test_the_ndcg_of_many_queries_has_the_bits_of_one_query_at_a_time(
    drawn: tuple[Any, Any, Any], discount: Discount
) -> None:
    scores, labels, starts = drawn
    each = [slice(a, b) for a, b in pairwise(starts.tolist()) if a < b]
    naive = [measures.quality(labels[q][serving.order(scores[q])], discount).ndcg_10 for q in each]
    assert ndcg_each(scores, labels, starts, discount).tolist() == naive


@given(judged())
def test_queries_with_two_labels_are_found_as_one_by_one(data: Judgements) -> None:
    naive = [len(set(data.labels[q].tolist())) > 1 for q in data.queries]
    assert data.ordering().tolist() == naive


@given(judged())
def test_centred_numbers_are_relative_to_the_first_document(data: Judgements) -> None:
    u = data.X[:, 0]
    naive = [value - u[q.start] for q in data.queries for value in u[q]]
    assert OrderTree.of(data.labels, data.starts).centred(u).tolist() == naive
