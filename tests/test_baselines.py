"""The paper's baseline learners against naive references."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.ranking.baselines.committee import CommitteePerceptron
from app.ranking.baselines.pamir import Pamir
from app.ranking.baselines.perceptron import PairwisePerceptron
from app.ranking.baselines.prank import PRank
from app.ranking.kernels import REFUSED
from tests.strategies import Stream, rankings, streams

# Whole numbers: the references and the kernels then compute without rounding.
whole = streams().map(lambda stream: Stream(np.round(stream.gaps), stream.weights))


@given(whole)
def test_the_perceptron_adds_the_gaps_it_ranks_wrongly(stream: Stream) -> None:
    learner, w, mistakes = PairwisePerceptron(stream.n), np.zeros(stream.n), 0
    for x in stream.gaps:
        if w @ x <= 0:
            w, mistakes = w + x, mistakes + 1
    assert learner.learn(stream.gaps).stepped == mistakes
    assert learner.weights.tolist() == w.tolist()


@given(streams(), st.sampled_from([1e-3, 0.1, 10.0]))
def test_pamir_caps_its_step(stream: Stream, C: float) -> None:
    learner, w = Pamir(stream.n, C), np.zeros(stream.n)
    for x, omega in zip(*stream, strict=True):
        if x @ x > 0:
            w = w + min(omega * C, max(0.0, 1.0 - w @ x) / (x @ x)) * x
    learner.learn(*stream)
    np.testing.assert_allclose(learner.weights, w, rtol=1e-9, atol=1e-9)


@given(whole)
def test_the_committee_keeps_the_longest_runs(stream: Stream) -> None:
    learner = CommitteePerceptron(stream.n, seats=3)
    v, run = np.zeros(stream.n), 0
    seats: list[tuple[int, Any]] = [(0, np.zeros(stream.n))] * 3
    for x in stream.gaps:
        if v @ x > 0:
            run += 1
            continue
        worst = min(range(3), key=lambda seat: seats[seat][0])
        if run > seats[worst][0]:
            seats[worst] = (run, v)
        v, run = v + x, 0
    learner.learn(stream.gaps)
    expected = sum(age * member for age, member in [*seats, (run, v)])
    assert learner.weights.tolist() == (expected + np.zeros(stream.n)).tolist()


@given(rankings(), st.data())
def test_prank_agrees_with_a_naive_reference(drawn: tuple[Any, Any], data: st.DataObject) -> None:
    documents = np.round(drawn[0])
    rows, n = documents.shape
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), float)
    learner, w, b = PRank(n, np.array([1.0, 2.0, 3.0])), np.zeros(n), np.zeros(3)
    moved = 0
    for x, label in zip(documents.astype(float), labels, strict=True):
        side = np.where(label > np.arange(3), 1, -1)
        tau = np.where(side * (w @ x - b) <= 0, side, 0)
        w, b = w + tau.sum() * x, b - tau
        moved += int(tau.sum() != 0)
    assert learner.learn_labels(documents, labels) == moved
    assert learner.weights.tolist() == w.tolist()


@pytest.mark.parametrize("make", [PairwisePerceptron, Pamir, CommitteePerceptron])
def test_a_gap_with_nan_is_refused(make: Any) -> None:
    learner = make(2)
    learner.learn(np.array([[1.0, 2.0], [1.0, 1.0]]))
    before = learner.weights.tolist()
    assert learner.learn(np.array([[np.nan, 1.0]])).outcome.tolist() == [REFUSED]
    assert learner.weights.tolist() == before


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="C: expected"):
        Pamir(2, C=np.nan)
    prank = PRank(2, np.array([1.0]))
    for documents, labels in (
        (np.ones((3, 2)), np.ones(1)),
        (np.array([[np.nan, 1.0]]), np.ones(1)),
    ):
        with pytest.raises(ValueError, match="expected finite features and one label per document"):
            prank.learn_labels(documents, labels)
    assert prank.weights.tolist() == [0.0, 0.0]


def test_the_baselines_refuse_sparse_rows() -> None:
    rows = csr_array(np.ones((1, 2)))
    with pytest.raises(ValueError, match="dense rows for PairwisePerceptron, got sparse rows"):
        PairwisePerceptron(2).learn(rows)
    with pytest.raises(ValueError, match="dense rows for PRank, got sparse rows"):
        PRank(2, np.array([1.0])).learn_labels(rows, np.array([1.0]))
