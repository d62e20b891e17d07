"""The reducer against a naive version, and with records that should never exist."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.codec import next_chain
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import SUMS, Model, ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer, sound
from app.ranking.clicks import CLASSICAL_STRATEGIES
from app.ranking.covariance import square
from app.ranking.solar import SolarII
from tests import oracles
from tests.test_codec import bits, json_values, records, sealed, words

REJECTED = SUMS.index("rejected")
ALGORITHMS = [("solar-i", "full"), ("solar-ii", "full"), ("solar-ii", "diagonal")]


def names(n: int) -> tuple[str, ...]:
    return tuple(f"f{k}" for k in range(1, n + 1))


def start(n: int = 3, **settings: Any) -> ModelState:
    return initial_state(ModelConfig(names(n), **settings), seed=b"a model of its own")


def applied(state: ModelState, blobs: Sequence[bytes]) -> ModelState:
    reducer = Reducer(state)
    for blob in blobs:
        reducer.apply(blob)
    return reducer.state()


def dumped(*log: Record) -> list[bytes]:
    return [codec.dump_record(record) for record in log]


# ---- posts and their records ----


class Impression(NamedTuple):
    """A request: documents in the order shown, and their submitted positions."""

    query: str
    documents: Any
    submitted: Any


class Post(NamedTuple):
    """One event of a user on a ranking."""

    shown: Impression
    kind: Any
    content: Any

    def feedback(self, event: str) -> Feedback:
        query, documents, submitted = self.shown
        bare = Feedback(event, self.kind, documents, submitted, query=query)
        if self.kind == "labels":
            return replace(bare, labels=np.array(self.content))
        if self.kind == "clicks":
            return replace(bare, clicks=np.array(self.content, np.int64))
        table = np.array(self.content, np.float64).reshape(-1, 3)
        preferred, other = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
        return replace(bare, preferred=preferred, other=other, weights=table[:, 2].copy())


def as_log(posts: Sequence[Post], counts_abandoned: bool = False) -> list[bytes]:
    """Records of posts; each builds on the earlier ones on the same request."""
    so_far: dict[str, PriorFeedback] = {}
    log: list[Record] = []
    for at, post in enumerate(posts):
        feedback = post.feedback(f"e{at}")
        if post.shown.submitted is not None:
            query = post.shown.query
            before = so_far.get(query, PriorFeedback.load(b""))
            feedback, so_far[query] = on_request(feedback, before, counts_abandoned)
        log.append(feedback)
    return dumped(*log)


@st.composite
def rankings(draw: st.DrawFn, n: int, query: str) -> Impression:
    """Documents drawn from a normal distribution, some of them twice; on a request or not."""
    count, rng = draw(st.integers(1, 12)), np.random.default_rng(draw(st.integers(0, 2**32)))
    documents = rng.standard_normal((count, n)).astype(np.float32)
    documents[draw(st.integers(0, count - 1))] = documents[0]
    # only the top may have been shown, so submitted positions may exceed the ranking
    submitted = rng.permutation(count + draw(st.integers(0, 3)))[:count]
    return Impression(query, documents, submitted if draw(st.booleans()) else None)


@st.composite
def post_logs(draw: st.DrawFn, n: int) -> list[Post]:
    """Up to 12 posts, several on the same request."""
    requests = [draw(rankings(n, f"r{at}")) for at in range(draw(st.integers(1, 4)))]
    return [
        draw(posts_on(draw(st.sampled_from(requests)))) for _ in range(draw(st.integers(1, 12)))
    ]


@st.composite
def posts_on(draw: st.DrawFn, shown: Impression) -> Post:
    count = len(shown.documents)
    place = st.integers(0, count - 1)
    kind = draw(st.sampled_from(["clicks", "clicks", "labels", "triplets"]))
    if kind == "labels":
        label = st.sampled_from([0.0, 0.0, 1.0, 2.0, 0.5, 4.75])
        return Post(shown, kind, draw(st.lists(label, min_size=count, max_size=count)))
    if kind == "clicks":
        return Post(shown, kind, draw(st.lists(place, max_size=4)))
    weighted = st.tuples(place, place, st.floats(0.01, 100.0))
    return Post(shown, kind, draw(st.lists(weighted, max_size=6)))


def naive(
    algorithm: tuple[str, str], n: int, strategy: str, counts_abandoned: bool
) -> oracles.NaiveReducer:
    learner: Any = oracles.NaiveSolarI(n, 0.1)
    if algorithm == ("solar-ii", "full"):
        learner = oracles.NaiveSolarII(n, 10.0)
    if algorithm == ("solar-ii", "diagonal"):
        learner = oracles.NaiveSolarIIDiagonal(n, 10.0)
    return oracles.NaiveReducer(learner, strategy, counts_abandoned)


def play(oracle: oracles.NaiveReducer, post: Post) -> None:
    query, documents, submitted = post.shown
    do: dict[str, Callable[..., None]] = {
        "labels": oracle.labels,
        "clicks": oracle.click,
        "triplets": oracle.triplets,
    }
    if submitted is None:
        query = f"{query} of its own {len(oracle.quality) + len(oracle.abandoned)}"
        moved = bool(oracle.stepped)  # else all weights are exactly 0 in both
        assume(not (moved and nearly_tied(oracle.learner.w, documents.astype(np.float64))))
    do[post.kind](query, documents.astype(np.float64), list(post.content), submitted)


def nearly_tied(w: Any, documents: Any) -> bool:
    """Check whether rounding decides an order: opposite pairs cancel exactly in SOLAR-II."""
    gaps = (documents[:, None] - documents[None]).reshape(-1, len(w))
    return bool((np.abs(gaps[gaps.any(axis=1)] @ w) < 1e-9).any())


# ---- against the oracle ----


@pytest.mark.parametrize("strategy", CLASSICAL_STRATEGIES)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=" ".join)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_reducer_equals_the_naive_formulas(
    algorithm: tuple[Any, Any], strategy: str, data: st.DataObject
) -> None:
    n = data.draw(st.sampled_from([1, 3, 9]))
    posts, counting = data.draw(post_logs(n)), data.draw(st.sampled_from([None, 2, 3]))
    rule = counting is not None
    oracle = naive(algorithm, n, strategy, rule)
    for post in posts:
        play(oracle, post)
    kind, covariance = algorithm
    begin = start(
        n, algorithm=kind, covariance=covariance, C=0.1, gamma=10.0, clicks=strategy,
        counting=counting,
    )  # fmt: skip
    state = applied(begin, as_log(posts, rule))
    np.testing.assert_allclose(state.model.weights, oracle.learner.w, rtol=1e-6, atol=1e-7)
    if isinstance(oracle.learner, oracles.NaiveSolarIIDiagonal):
        sigma = np.diag(oracle.learner.sigma)
        np.testing.assert_allclose(state.model.spread, sigma, rtol=1e-6, atol=1e-9)
    elif isinstance(oracle.learner, oracles.NaiveSolarII):
        found = square(state.model.spread, n)
        np.testing.assert_allclose(found, oracle.learner.sigma, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(state.sums[:11], oracle.sums(), atol=1e-9)
    measures = state.measures()
    assert measures["abandoned"] == len(oracle.abandoned)
    first = SUMS.index("square_ndcg@1")
    squares = oracle.squares() if rule else [0.0] * 15
    np.testing.assert_allclose(state.sums[first : first + 15], squares, atol=1e-9)
    assert (measures["feedback"], measures["rejected"]) == (len(posts), 0.0)
    assert (measures["stepped"], measures["passive"]) == (oracle.stepped, oracle.passive)
    assert measures["squared_loss"] == pytest.approx(oracle.squared_loss, rel=1e-6)
    largest = oracle.largest_gap if counting == 3 else 0.0
    assert measures["largest_gap"] == pytest.approx(largest, rel=1e-9)


# ---- one rule each ----

DOCUMENTS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], np.float32)
REQUEST = Impression("r", DOCUMENTS, np.array([2, 0, 3, 1]))  # submitted in the order 1, 3, 0, 2
OWN = Impression("q", DOCUMENTS, None)


def test_an_event_without_clicks_counts_as_a_query_without_pairs_in_models_from_before() -> None:
    measures = applied(start(), as_log([Post(REQUEST, "clicks", [])])).measures()
    assert measures["queries"] == 1.0
    assert measures["stepped"] == measures["passive"] == 0.0
    assert measures["ndcg"] == measures["map"] == 0.0


def test_pairs_from_labels_follow_the_submitted_order() -> None:
    state = applied(start(gamma=1.0), as_log([Post(REQUEST, "labels", [1.0, 0.0, 2.0, 1.0])]))
    learner = SolarII(3, gamma=1.0)
    for i, j in [(3, 1), (0, 1), (2, 1), (2, 3), (2, 0)]:  # submitted as 1, 3, 0, 2: row-major
        learner.learn((DOCUMENTS[i] - DOCUMENTS[j])[None])
    assert state.model.weights.tobytes() == learner.weights.tobytes()
    shown = SolarII(3, gamma=1.0)
    for i, j in [(0, 1), (2, 0), (2, 1), (2, 3), (3, 1)]:
        shown.learn((DOCUMENTS[i] - DOCUMENTS[j])[None])
    assert state.model.weights.tobytes() != shown.weights.tobytes()


def test_a_later_click_teaches_only_its_new_pairs_and_replaces_the_measure() -> None:
    first, second = Post(REQUEST, "clicks", [3]), Post(REQUEST, "clicks", [1])
    state = applied(start(gamma=1.0), as_log([first, second]))
    learner = SolarII(3, gamma=1.0)
    for i, j in [(3, 0), (3, 1), (3, 2), (1, 0)]:
        learner.learn((DOCUMENTS[i] - DOCUMENTS[j])[None])
    assert state.model.weights.tobytes() == learner.weights.tobytes()
    measures = state.measures()
    assert measures["queries"] == 1.0
    assert measures["map"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert measures["baseline_map"] == pytest.approx(1.0)  # 1 and 3 were submitted first


def test_the_same_click_again_teaches_nothing() -> None:
    click = Post(REQUEST, "clicks", [3])
    once, twice = applied(start(), as_log([click])), applied(start(), as_log([click, click]))
    assert bits(once.model) == bits(twice.model)
    assert once.sums[:11].tobytes() == twice.sums[:11].tobytes()


def test_a_document_clicked_again_later_teaches_no_pair_twice() -> None:
    clicks = [Post(REQUEST, "clicks", [place]) for place in (3, 1, 3)]
    begin = start(clicks="last-click-skip-above")
    assert applied(begin, as_log(clicks)).measures()["stepped"] == 4.0  # 3 over 0, 1, 2; 1 over 0


def test_labels_after_clicks_replace_the_measure_of_the_request() -> None:
    posts = [Post(REQUEST, "clicks", [1]), Post(REQUEST, "labels", [2.0, 0.0, 0.0, 0.0])]
    measures = applied(start(), as_log(posts)).measures()
    assert measures["queries"] == measures["ndcg@1"] == measures["map"] == 1.0
    assert measures["baseline_ndcg@1"] == 0.0


def test_clicks_after_labels_are_new_clicks() -> None:
    labels, click = Post(REQUEST, "labels", [0.0] * 4), Post(REQUEST, "clicks", [1])
    state = applied(start(), as_log([click, labels, click]))
    assert state.measures()["stepped"] == 1.0
    assert state.measures()["queries"] == 1.0


def test_an_event_with_its_own_documents_is_ranked_by_the_weights_before_it() -> None:
    labels = Post(OWN, "labels", [0.0, 0.0, 1.0, 0.0])
    first = applied(start(), as_log([labels])).measures()
    assert first["map"] == first["baseline_map"] == pytest.approx(1 / 3)  # all weights zero: ties
    second = applied(start(), as_log([labels, labels])).measures()
    assert second["queries"] == 2.0
    assert second["map"] == pytest.approx(1 / 3 + 1.0)
    assert second["baseline_map"] == pytest.approx(2 / 3)


def test_a_document_preferred_in_half_of_its_triplets_has_label_0() -> None:
    content = [(0, 1, 1.0), (1, 0, 1.0), (3, 2, 1.0)]
    measures = applied(start(), as_log([Post(REQUEST, "triplets", content)])).measures()
    assert measures["map"] == pytest.approx(1 / 4)


def test_the_weight_of_a_pair_is_the_omega_of_the_learner() -> None:
    state = applied(start(gamma=1.0), as_log([Post(REQUEST, "triplets", [(0, 1, 0.25)])]))
    learner = SolarII(3, gamma=1.0)
    learner.learn((DOCUMENTS[0] - DOCUMENTS[1])[None], np.array([0.25]))
    assert bits(state.model.weights) == bits(learner.weights)


def test_triplets_without_weights_weigh_1() -> None:
    bare = Feedback("e", "triplets", DOCUMENTS, preferred=np.array([0]), other=np.array([1]))
    weighted = replace(bare, weights=np.ones(1))
    assert bits(applied(start(), dumped(bare)).model) == bits(
        applied(start(), dumped(weighted)).model
    )


def test_the_chain_is_the_hash_of_every_record() -> None:
    log, begin = as_log([Post(OWN, "clicks", [1]), Post(REQUEST, "clicks", [2])]), start()
    state = applied(begin, log)
    assert (state.seq, state.chain) == (2, next_chain(next_chain(begin.chain, log[0]), log[1]))
    assert applied(begin, log[::-1]).chain != state.chain


def test_the_returned_state_is_a_frozen_copy() -> None:
    reducer = Reducer(start())
    before = reducer.state()
    reducer.apply(as_log([Post(OWN, "clicks", [2])])[0])
    assert not before.model.weights.any()
    for array in (before.model.weights, before.model.spread, before.sums):
        assert not array.flags.writeable


# ---- replace, retune, reset ----

LOG = as_log(
    [
        Post(REQUEST, "clicks", [3]),
        Post(OWN, "labels", [0.0, 1.0, 2.0, 0.0]),
        Post(REQUEST, "clicks", [1, 2]),
        Post(OWN, "triplets", [(0, 1, 0.5), (2, 1, 2.0)]),
    ]
)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=" ".join)
def test_a_replace_record_replaces_the_model_and_keeps_the_sums(algorithm: Any) -> None:
    kind, covariance = algorithm
    other = applied(start(algorithm=kind, covariance=covariance, C=1.0, gamma=2.0), LOG)
    state = applied(start(), [*LOG, *dumped(Replace(other.model, "rollback"))])
    assert bits(state.model) == bits(other.model)
    assert state.sums.tobytes() == applied(start(), LOG).sums.tobytes()
    assert bits(applied(state, LOG).model) == bits(applied(other, LOG).model)


def test_a_replace_record_may_change_the_number_of_features() -> None:
    wider = start(5).model
    state = applied(start(), dumped(Replace(wider, "more features")))
    assert state.model.config.n == 5
    assert applied(state, LOG).measures()["rejected"] == len(LOG)


def test_a_retune_keeps_the_weights_and_changes_later_steps() -> None:
    before = applied(start(), LOG)
    after = applied(before, dumped(Retune(gamma=1.0, clicks="click-no-click-next")))
    assert bits(after.model.weights) == bits(before.model.weights)
    assert bits(after.model.spread) == bits(before.model.spread)
    assert after.model.config == replace(
        before.model.config, gamma=1.0, clicks="click-no-click-next"
    )
    assert bits(applied(after, LOG).model.weights) != bits(applied(before, LOG).model.weights)


def test_a_retune_of_nothing_changes_nothing() -> None:
    before = applied(start(), LOG)
    assert bits(applied(before, dumped(Retune())).model) == bits(before.model)


def test_a_reset_of_measures_does_not_change_the_model() -> None:
    before = applied(start(), LOG)
    after = applied(before, dumped(ResetMeasures()))
    assert not after.sums.any()
    assert bits(after.model) == bits(before.model)


# ---- records that cannot be applied ----

GOOD = Feedback("e", "clicks", DOCUMENTS, np.arange(4), clicks=np.array([2]))
LABELS = Feedback("e", "labels", DOCUMENTS, labels=np.array([0.0, 1.0, 0.0, 2.0]))
TRIPLETS = Feedback(
    "e",
    "triplets",
    DOCUMENTS,
    preferred=np.array([0]),
    other=np.array([1]),
    weights=np.array([1.0]),
)
SETTINGS = ModelConfig(names(3))
MODEL = Model(SETTINGS, np.zeros(3), np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]))
BAD: dict[str, Record] = {
    "too few features": replace(GOOD, documents=DOCUMENTS[:, :2]),
    "no documents": replace(GOOD, documents=DOCUMENTS[:0], clicks=np.zeros(0, np.int64)),
    "flat documents": replace(GOOD, documents=DOCUMENTS[0]),
    "deep documents": replace(GOOD, documents=DOCUMENTS[None]),
    "a NaN feature": replace(LABELS, documents=np.full((4, 3), np.nan, np.float32)),
    "an infinite feature": replace(LABELS, documents=np.full((4, 3), np.inf, np.float32)),
    "a click beyond the ranking": replace(GOOD, clicks=np.array([4])),
    "a click before the ranking": replace(GOOD, clicks=np.array([-1])),
    "an earlier click beyond the ranking": replace(GOOD, clicked_before=np.array([9])),
    "clicks that are fractions": replace(GOOD, clicks=np.array([0.5])),
    "clicks in two dimensions": replace(GOOD, clicks=np.array([[0]])),
    "no clicks": replace(GOOD, clicks=None),
    "too few places of submission": replace(GOOD, submitted=np.arange(3)),
    "too few counted labels": replace(GOOD, counted=np.zeros(3)),
    "a counted label that is none": replace(GOOD, counted=np.full(4, np.nan)),
    "no labels": replace(LABELS, labels=None),
    "too many labels": replace(LABELS, labels=np.zeros(5)),
    "a negative label": replace(LABELS, labels=np.full(4, -1.0)),
    "a label above 30": replace(LABELS, labels=np.full(4, 31.0)),
    "a NaN label": replace(LABELS, labels=np.full(4, np.nan)),
    "a preferred document beyond the ranking": replace(TRIPLETS, preferred=np.array([4])),
    "another document before the ranking": replace(TRIPLETS, other=np.array([-1])),
    "more preferred than others": replace(TRIPLETS, preferred=np.array([0, 1])),
    "too few weights": replace(TRIPLETS, weights=np.zeros(0)),
    "a weight of 0": replace(TRIPLETS, weights=np.zeros(1)),
    "a negative weight": replace(TRIPLETS, weights=np.array([-1.0])),
    "an absurd weight": replace(TRIPLETS, weights=np.array([1e300])),
    "a NaN weight": replace(TRIPLETS, weights=np.array([np.nan])),
    "an unknown kind of feedback": replace(GOOD, kind="likes"),  # type: ignore[arg-type]
    "a replace with a NaN weight": Replace(replace(MODEL, weights=np.full(3, np.nan)), ""),
    "a replace with too few weights": Replace(replace(MODEL, weights=np.zeros(2)), ""),
    "a replace with a bad diagonal": Replace(replace(MODEL, spread=np.zeros(6)), ""),
    "a replace with an unknown algorithm": Replace(
        replace(MODEL, config=replace(SETTINGS, algorithm="solar-iii")),  # type: ignore[arg-type]
        "",
    ),
    "a replace with no features": Replace(replace(MODEL, config=ModelConfig(())), ""),
    "a replace with an unknown strategy": Replace(
        replace(MODEL, config=replace(SETTINGS, clicks="guess")), ""
    ),
    "a replace with gamma 0": Replace(replace(MODEL, config=replace(SETTINGS, gamma=0.0)), ""),
    "a replace with words for gamma": Replace(
        replace(MODEL, config=replace(SETTINGS, gamma="much")),  # type: ignore[arg-type]
        "",
    ),
    "a retune to NaN": Retune(gamma=float("nan")),
    "a retune to a negative gamma": Retune(gamma=-1.0),
    "a retune to words": Retune(gamma="much"),  # type: ignore[arg-type]
    "a retune to an unknown strategy": Retune(clicks="guess"),
}


def rejects(blob: bytes, n: int = 3) -> None:
    """A rejected record moves seq and chain and counts; nothing else differs, now or later."""
    before = applied(start(n), LOG)
    reducer = Reducer(before)
    assert reducer.apply(blob) is False
    only_rejected(before, reducer.state(), blob)


def only_rejected(before: ModelState, after: ModelState, blob: bytes) -> None:
    assert (after.seq, after.chain) == (before.seq + 1, next_chain(before.chain, blob))
    assert bits(after.model) == bits(before.model)
    counted = before.sums.copy()
    counted[REJECTED] += 1
    assert after.sums.tobytes() == counted.tobytes()


@pytest.mark.parametrize("what", BAD)
def test_a_record_that_cannot_be_applied_is_rejected(what: str) -> None:
    rejects(codec.dump_record(BAD[what]))


def test_the_records_that_the_invalid_ones_are_made_from_are_valid() -> None:
    for record in (GOOD, LABELS, TRIPLETS, Replace(MODEL, "")):
        assert Reducer(start()).apply(codec.dump_record(record))


def test_a_nan_feature_of_a_served_ranking_changes_no_weight() -> None:
    documents = DOCUMENTS.copy()
    documents[2] = np.nan
    before = applied(start(), LOG)
    after = applied(before, dumped(replace(GOOD, documents=documents)))
    assert bits(after.model) == bits(before.model)
    assert np.isfinite(after.sums).all()


@given(st.binary(max_size=100))
def test_any_bytes_are_rejected(noise: bytes) -> None:
    rejects(noise)


@given(st.data())
def test_a_damaged_record_is_rejected(data: st.DataObject) -> None:
    blob = bytearray(data.draw(st.sampled_from(LOG)))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    rejects(bytes(blob))


total = settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])


@total
@given(records)
def test_no_record_stops_the_reducer(record: Record) -> None:
    check_total(codec.dump_record(record))


@total
@given(
    st.sampled_from(["clicks", "labels", "triplets", "x", None]),
    st.dictionaries(st.sampled_from(codec._ARRAYS), json_values, max_size=3),
    st.dictionaries(
        st.sampled_from(codec._ARRAYS),
        st.sampled_from(
            [
                np.zeros((4, 3), np.float32),
                np.arange(4),
                np.arange(3),
                np.arange(4, dtype=np.int32),
                np.ones(4),
                np.zeros((0, 3)),
                np.zeros(0, np.int64),
                np.full((4, 3), np.nan),
                np.full(4, np.inf),
                np.full((4, 3), 3e38, np.float32),
                np.full((4, 3), 1e300),
            ]
        ),
    ),
)
def test_no_feedback_stops_the_reducer(kind: Any, plain: Any, arrays: Any) -> None:
    fields = {"event": "e", "kind": kind, "query": "", "source": "", **plain}
    check_total(codec.dump_blob("feedback", fields, arrays))


def test_feedback_whose_documents_are_a_scalar_is_rejected() -> None:
    header = ["feedback", {"event": "e", "kind": "clicks"}, [["documents", "f4", []]]]
    rejects(sealed(json.dumps(header).encode(), b"\0\0\0\0"))


@total
@given(
    st.dictionaries(
        st.sampled_from(["features", "algorithm", "covariance", "C", "gamma", "clicks"]),
        json_values | words,
    )
)
def test_no_replace_or_retune_stops_the_reducer(given_: Any) -> None:
    plain = {**codec.dump_config(SETTINGS), **given_}
    model = {"weights": MODEL.weights, "spread": MODEL.spread}
    check_total(codec.dump_blob("replace", {"reason": "", "settings": plain}, model))
    check_total(codec.dump_blob("retune", given_, {}))


def check_total(blob: bytes) -> None:
    before = applied(start(), LOG)
    reducer = Reducer(before)
    accepted, after = reducer.apply(blob), reducer.state()
    assert after.seq == before.seq + 1
    assert np.isfinite(after.sums).all()
    assert sound(after.model) == []
    if not accepted:
        only_rejected(before, after, blob)
    assert bits(Reducer(after).state()) == bits(after)


# ---- the same bits for every batching of the log ----


@st.composite
def blob_logs(draw: st.DrawFn, n: int = 3) -> list[bytes]:
    """Posts, mixed with other records and damaged ones."""
    log = as_log(draw(post_logs(n)))
    others = dumped(
        Retune(gamma=5.0),
        ResetMeasures(),
        Replace(applied(start(), LOG).model, ""),
        *BAD.values(),
    )
    for blob in draw(st.lists(st.sampled_from([*others[:3], others[5], b"junk"]), max_size=3)):
        log.insert(draw(st.integers(0, len(log))), blob)
    return log


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=" ".join)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_storing_and_loading_the_state_changes_no_bit(algorithm: Any, data: st.DataObject) -> None:
    begin = start(algorithm=algorithm[0], covariance=algorithm[1], C=0.5, gamma=10.0)
    log = data.draw(blob_logs())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4)))
    whole, state, done = applied(begin, log), begin, 0
    for cut in [*cuts, len(log)]:
        state, done = stored_and_loaded(applied(state, log[done:cut])), cut
    assert bits(state) == bits(whole)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_reading_the_state_in_between_changes_no_bit(data: st.DataObject) -> None:
    log, reducer = data.draw(blob_logs()), Reducer(start(gamma=10.0))
    for blob in log:
        reducer.apply(blob)
        reducer.state()
    assert bits(reducer.state()) == bits(applied(start(gamma=10.0), log))


def stored_and_loaded(state: ModelState) -> ModelState:
    """The state after encoding and decoding its model in a replace record."""
    record = codec.load_record(codec.dump_record(Replace(state.model, "")))
    assert isinstance(record, Replace)
    return replace(state, model=record.model)


# ---- I16 ----


def test_an_unsound_state_is_reported() -> None:
    state = start()
    assert sound(state.model) == []
    broken = replace(state.model, weights=np.array([0.0, np.inf, 0.0]), spread=np.full(6, -1.0))
    complaints = sound(broken)
    assert [complaint.split(":")[0] for complaint in complaints] == ["weights", "covariance"]
    nans = replace(state.model, spread=np.full(6, np.nan))
    assert len(sound(nans)) == 2
    diagonal = start(covariance="diagonal")
    assert sound(diagonal.model) == []
    assert sound(replace(diagonal.model, spread=np.zeros(3))) != []
    assert sound(start(algorithm="solar-i").model) == []
