"""NDCG and MAP against their definitions."""

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ranking import measures
from app.ranking.measures import DISCOUNTS, Discount, Quality
from tests import oracles
from tests.strategies import labels


@pytest.mark.parametrize("discount", DISCOUNTS)
@given(some=labels())
def test_the_quality_agrees_with_the_definitions(discount: Discount, some: Any) -> None:
    expected = [oracles.ndcg(some.tolist(), k, discount) for k in (1, 5, 10, None)]
    expected.append(oracles.average_precision(some.tolist()))
    np.testing.assert_allclose(measures.quality(some, discount), expected, rtol=1e-12)


@pytest.mark.parametrize("discount", DISCOUNTS)
@given(some=labels(), k=st.integers(1, 40))
def test_ndcg_at_k_agrees_with_its_definition(discount: Discount, some: Any, k: int) -> None:
    expected = oracles.ndcg(some.tolist(), k, discount)
    assert measures.ndcg(some, k, discount) == pytest.approx(expected, rel=1e-12)


@given(labels())
def test_single_measures_equal_those_of_quality(some: Any) -> None:
    quality = measures.quality(some)
    assert measures.ndcg(some, 10) == quality.ndcg_10
    assert measures.ndcg(some) == quality.ndcg
    assert measures.average_precision(some) == quality.map


@given(labels())
def test_measures_lie_between_zero_and_one_and_the_ideal_scores_one(some: Any) -> None:
    assert all(0.0 <= value <= 1.0 + 1e-12 for value in measures.quality(some))
    ideal = measures.quality(np.sort(some)[::-1].copy())
    assert ideal.ndcg_1 == ideal.ndcg_5 == ideal.ndcg_10 == ideal.ndcg == float(some.any())


@given(st.sampled_from(DISCOUNTS), st.lists(labels(), max_size=5), st.randoms())
def test_many_queries_have_the_bits_of_single_ones(
    discount: Discount, some: list[Any], random: Any
) -> None:
    starts = np.cumsum([0, *map(len, some)])
    orders = [random.sample(range(len(one)), len(one)) for one in some]
    order = np.array([at + d for at, one in zip(starts, orders, strict=False) for d in one], int)
    joined = np.concatenate([[], *some])
    found = measures.measure_queries(joined, starts, order, discount)
    single = [
        measures.quality(one[shown], discount) for one, shown in zip(some, orders, strict=True)
    ]
    assert [tuple(row) for row in found.tolist()] == single


def test_a_label_out_of_range_is_found_in_any_query() -> None:
    with pytest.raises(ValueError, match=r"from 0 to 30, got \[ 1. 31.\]"):
        measures.measure_queries(np.array([0, 1, 31.0]), np.array([0, 1, 3]), np.arange(3))


def test_a_ranking_without_a_relevant_document_scores_zero() -> None:
    assert measures.quality(np.zeros(7)) == Quality(0.0, 0.0, 0.0, 0.0, 0.0)


def test_map_counts_labels_of_at_least_one() -> None:
    assert measures.average_precision(np.array([0.9, 1.0])) == 0.5


def test_standard_is_the_default_discount() -> None:
    some = np.array([0.0, 1.0, 2.0])
    assert measures.quality(some) == measures.quality(some, "standard")
    assert measures.quality(some) != measures.quality(some, "letor")


@pytest.mark.parametrize("label", range(31))
def test_whole_labels_have_exact_gains(label: int) -> None:
    assert measures.gain(float(label)) == 2**label - 1


@given(st.floats(0.0, 30.0))
def test_fractional_labels_have_the_gain_of_the_power_formula(label: float) -> None:
    assert measures.gain(label) == pytest.approx(2.0**label - 1.0, rel=1e-13, abs=1e-14)


def test_discounts_are_rounded_exactly() -> None:
    """For the exact d, (1 + r)^d = 2; it must lie between the midpoints around the float."""
    table = measures.discounts("standard", 2000)
    assert table[0] == 1.0
    with localcontext() as precise:
        precise.prec = 60
        log2 = Decimal(2).ln()
        for rank in range(2, 2001):
            d = float(table[rank - 1])
            low = (Decimal(d) + Decimal(math.nextafter(d, 0))) / 2
            high = (Decimal(d) + Decimal(math.nextafter(d, 1))) / 2
            log = Decimal(1 + rank).ln()
            assert low * log < log2 < high * log


def test_letors_discount_is_the_standard_discount_shifted_by_one_rank() -> None:
    letor, standard = measures.discounts("letor", 100), measures.discounts("standard", 100)
    assert letor[0] == letor[1] == 1.0
    assert letor[1:64].tolist() == standard[:63].tolist()


def test_long_rankings_have_discounts_at_every_rank() -> None:
    some = np.zeros(5000)
    some[-1] = 1.0
    assert measures.quality(some).ndcg == pytest.approx(1.0 / math.log2(5001))


@pytest.mark.parametrize("bad", [-1.0, 30.5, math.nan, math.inf])
def test_labels_out_of_range_are_refused(bad: float) -> None:
    for measure in (measures.quality, measures.ndcg, measures.average_precision):
        with pytest.raises(ValueError, match="labels: expected numbers from 0 to 30"):
            measure(np.array([1.0, bad]))


def test_invalid_arguments_raise_a_clear_error() -> None:
    with pytest.raises(ValueError, match="labels: expected one label per document"):
        measures.quality(np.zeros(0))
    with pytest.raises(ValueError, match="k: expected at least 1, got 0"):
        measures.ndcg(np.ones(3), 0)
    with pytest.raises(ValueError, match="discount: expected one of standard, letor, got 'log'"):
        measures.quality(np.ones(3), "log")  # type: ignore[arg-type]
