"""Splines: ramps against a naive version, all forms of a request, knots, and their choice."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from app.api import decoding, schemas
from app.config import Settings
from app.domain import splines
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.splines import Ramps, with_ramps
from app.errors import InvalidInput
from app.evaluation.letor import JudgedData
from app.evaluation.synthetic import SyntheticData
from app.ranking.batch import path
from app.ranking.batch.judgements import Judgements
from app.serving.served_model import ServedModel
from app.training import trainer
from app.training.options import Training
from app.training.splines import quantile_splines, with_splines
from app.training.targets.file import TrainingRequest, new_config, planned, trained
from tests.test_candidates import naive_min_max

Rows = NDArray[np.float32]
LIMITS = Settings()

singles = st.floats(-1e4, 1e4, width=32)
tables = arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.just(3)), elements=singles)
knot_lists = st.sets(singles, min_size=1, max_size=4).map(sorted)
some_splines = st.dictionaries(st.sampled_from(["a", "b", "c"]), knot_lists, min_size=1)


def bent_config(knots: dict[str, list[float]], **settings: Any) -> ModelConfig:
    return new_model_config(("a", "b", "c"), splines=knots, **settings)


def naive_ramps(documents: Rows, config: ModelConfig) -> Rows:
    """Each knot of each feature in order, one value after the other; a small ramp may be 0."""
    rows = []
    for document in documents:
        row = list(document)
        for column, name in enumerate(config.given):
            for knot in (config.splines or {}).get(name, ()):
                gap = np.float32(document[column]) - np.float32(knot)
                row.append(gap if gap > 0 else np.float32(0.0))
        rows.append(row)
    return np.array(rows, np.float32)


@given(tables, some_splines)
def test_ramps_equal_the_naive_version_bit_for_bit(documents: Rows, knots: Any) -> None:
    config = bent_config(knots, prior=0.0)
    assert config.ramps is not None
    found = with_ramps(documents, config.ramps)
    assert found.tobytes() == naive_ramps(documents, config).tobytes()
    assert found.shape[1] == config.n


def test_ramps_computed_in_parts_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = np.random.default_rng(1).standard_normal((50, 3)).astype(np.float32)
    ramps = Ramps.of("abc", {"a": (-1.0, 0.5), "c": (0.25,)})
    whole = with_ramps(documents, ramps)
    monkeypatch.setattr(splines, "RAMPS_AT_ONCE", 20)
    assert with_ramps(documents, ramps).tobytes() == whole.tobytes()


# ---- names and knots ----


@given(st.floats(-1e12, 1e12))
def test_a_knot_is_its_nearest_float32_in_the_shortest_decimals(knot: float) -> None:
    found = splines.rounded_knot(knot)
    assert np.float32(found) == np.float32(knot)
    assert splines.rounded_knot(found) == found
    shorter = (float(f"{found:.{digits}g}") for digits in range(1, 9))
    assert all(one == found or np.float32(one) != np.float32(found) for one in shorter)


@given(some_splines)
def test_the_columns_of_ramps_follow_the_features_and_have_unique_names(knots: Any) -> None:
    config = bent_config(knots)
    assert config.given == ("a", "b", "c")
    assert config.features[-1] == "_order"
    named = [one.rpartition(">") for one in config.columns[3:]]
    assert [(name, np.float32(float(knot))) for name, _, knot in named] == [
        (name, np.float32(knot)) for name in "abc" for knot in knots.get(name, ())
    ]


@pytest.mark.parametrize(
    ("knots", "message"),
    [
        ({"d": [1.0]}, 'splines: unknown feature "d"; expected a, b, c'),
        ({"a": []}, 'splines: expected ascending knots of "a", at least one, within ±1e[+]12'),
        ({"a": [1.0, 0.5]}, 'splines: expected ascending knots of "a"'),
        ({"a": [1.0, 1.0 + 1e-12]}, 'splines: expected ascending knots of "a"'),
        ({"a": [float("nan")]}, 'splines: expected ascending knots of "a"'),
        ({"a": [float("inf")]}, 'splines: expected ascending knots of "a"'),
        ({"a": [1e300]}, 'splines: expected ascending knots of "a"'),
        ({"a": range(1997)}, "splines: expected at most 2000 features, ramps and the submitted"),
        ({"a": range(2001)}, "splines: expected at most 2000 knots, got 2001"),
    ],
)
def test_invalid_splines_are_refused(knots: Any, message: str) -> None:
    for covariance in ("full", "diagonal"):
        with pytest.raises(InvalidInput, match=f"^{message}"):
            bent_config({name: list(some) for name, some in knots.items()},
                        covariance=covariance, prior=0.5)  # fmt: skip


def test_knots_have_no_exponent_in_the_names_of_columns() -> None:
    found = bent_config({"a": [-300, 10, 1500, 16777216], "b": [0.001]}, prior=0.0).features
    assert found[3:] == ("a>-300", "a>10", "a>1500", "a>16777216", "b>0.001")


def test_the_limit_of_features_names_the_splines_that_lower_it() -> None:
    names = tuple(f"f{at}" for at in range(2500))
    with pytest.raises(InvalidInput, match="expected 1 to 1999 with splines and a prior, got 2500"):
        new_model_config(names, covariance="diagonal", prior=0.5, splines={"f0": [0.5]})


def test_a_feature_with_the_name_of_a_ramp_is_refused() -> None:
    with pytest.raises(InvalidInput, match="features: expected unique names"):
        new_model_config(("a", "a>0.5"), splines={"a": [0.5]})


def test_at_the_limit_of_features_a_model_with_splines_has_no_prior() -> None:
    config = bent_config({"a": [float(knot) for knot in range(1997)]}, covariance="diagonal")
    assert (config.n, config.prior) == (2000, 0.0)


# ---- requests ----


def served(config: ModelConfig) -> ServedModel:
    return ServedModel("m", 1, 1, config, np.zeros(config.n), np.zeros(1), 0.0)


def bodies(rows: Rows) -> list[Any]:
    """The same documents as lists, by name, mixed, in columns and in binary."""
    ids = [f"d{at}" for at in range(len(rows))]
    lists = rows.tolist()
    named = [dict(zip("abc", row, strict=True)) for row in lists]
    mixed = [named[at] if at % 2 else lists[at] for at in range(len(rows))]
    objects = [
        [{"id": id_, "features": one} for id_, one in zip(ids, some, strict=True)]
        for some in (lists, named, mixed)
    ]
    as_json = [{"documents": one} for one in objects] + [{"ids": ids, "features": lists}]
    binary = msgspec.msgpack.encode({"ids": ids, "features": rows.tobytes()})
    found = [schemas.decode_rank(msgspec.json.encode(one)) for one in as_json]
    return [*found, schemas.decode_binary_rank(binary)]


@given(tables, some_splines, st.sampled_from(["none", "query-minmax"]), st.sampled_from([0.0, 0.5]))
def test_every_form_of_a_request_gets_the_same_columns(
    documents: Rows, knots: Any, normalization: str, prior: float
) -> None:
    config = bent_config(knots, normalization=normalization, prior=prior)
    scaled = naive_min_max(documents) if normalization == "query-minmax" else documents
    expected = naive_ramps(scaled, config)
    if prior:
        last = np.arange(len(documents)) / max(1, len(documents) - 1)
        expected = np.column_stack([expected, (1.0 - last).astype(np.float32)])
    first, *others = (
        decoding.candidates_of(body, served(config), LIMITS).documents for body in bodies(documents)
    )
    assert np.array_equal(first, expected)  # the naive scale of -0 is 0
    assert {one.tobytes() for one in others} == {first.tobytes()}


def test_limits_count_the_ramps() -> None:
    config = bent_config({"a": [1.0, 2.0], "b": [1.0]}, prior=0.0)
    for most in (50, 1_000):  # above the limit by each document, else by their number
        limits = Settings(numbers=most)
        for body in bodies(np.zeros((10, 3), np.float32)):
            assert decoding.submitted_values(body, config, limits) == 60


# ---- training ----


def test_knots_are_the_quantiles_that_split_the_training_values() -> None:
    rows = np.zeros((8, 3))
    rows[:, 0] = range(8)
    rows[:, 1] = [0, 0, 0, 0, 0, 1, 1, 1]  # the median is the least value
    judged = Judgements(rows, np.zeros(8), np.array([0, 8]))
    assert quantile_splines(judged, ["a", "b", "c"]) == {"a": (1.75, 3.5, 5.25)}


def test_knots_come_from_the_queries_that_are_not_held_out() -> None:
    data = JudgedData(5, SyntheticData(5, 20, 8).draw(np.random.default_rng(0))[1])
    plain = new_config(5, None)
    judged = trainer.judgements(data, plain, 1e4)
    some = np.arange(20) < 12
    found = with_splines(plain, data, Training(validation=8.0), 1e4)
    assert found.splines == quantile_splines(judged.some(some), plain.given)
    every = with_splines(plain, data, Training(C=1.0), 1e4)
    assert every.splines == quantile_splines(judged, plain.given)


def test_judged_data_gets_the_columns_of_a_request() -> None:
    _, queries = SyntheticData(3, 6, 5).draw(np.random.default_rng(3))
    for normalization in ("none", "query-minmax"):
        config = bent_config({"a": [0.25], "c": [-0.5, 0.5]}, normalization=normalization, prior=0)
        found = trainer.judgements(JudgedData(3, queries), config, 1e4)
        for rows, query in zip(found.queries, queries, strict=True):
            body = bodies(query.documents)[0]
            given = decoding.candidates_of(body, served(config), LIMITS)
            assert np.array_equal(found.X[rows], given.documents)


@pytest.mark.parametrize("normalization", ["none", "query-minmax"])
def test_splines_are_chosen_where_a_feature_is_bent_and_improve_new_queries(
    normalization: str,
) -> None:
    _, queries = SyntheticData(3, 200, 12, bent=1).draw(np.random.default_rng(0))
    data, test = JudgedData(3, queries[:100]), JudgedData(3, queries[100:])
    request = TrainingRequest((), None, Training(), None, normalization, "auto")
    config, tried = planned(request, data, Training(), 1e4)
    assert [segments for segments, _ in tried] == [0, 4]
    assert list(config.splines or ()) == ["f1", "f2", "f3"]
    quality = []
    for one in (new_config(3, normalization), config):
        found, _ = trained(data, Training(), one, 1e4)
        quality.append(
            path.batch_quality(trainer.judgements(test, one, 1e4), found.weights, "ndcg@10")
        )
    assert quality[1] - quality[0] >= 0.01


def test_equal_quality_on_held_out_queries_chooses_no_splines() -> None:
    _, queries = SyntheticData(3, 40, 12, noise=0.0).draw(np.random.default_rng(1))
    data = JudgedData(3, queries)
    request = TrainingRequest((), None, Training(), None, None, "auto")
    config, tried = planned(request, data, Training(validation=1.0), 1e4)
    assert [quality for _, quality in tried] == [1.0, 1.0]
    assert config == new_config(3, None)


def test_sparse_data_has_no_splines() -> None:
    with pytest.raises(InvalidInput, match=r"^splines: expected at most 2000 features"):
        with_splines(new_config(2001, None), JudgedData(2001, []), Training(), 1e4)


def test_without_an_option_a_new_model_is_linear() -> None:
    data = JudgedData(3, [])
    for wanted in (None, "0"):
        request = TrainingRequest((), None, Training(), None, None, wanted)
        assert planned(request, data, Training(), 1e4) == (new_config(3, None), ())
