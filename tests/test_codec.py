"""Blobs: values survive encoding, and damaged blobs are refused.

The golden files hold blobs of each kind: `v1-…` as format 1 writes them, and so on for each format.
`python -m tests.test_codec` writes those that are missing and never touches one that exists: old
data must stay readable.
"""

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.domain import codec, duel_fields
from app.domain.duels import Duel, DuelResult, DuelState, EndDuel, Tournament
from app.domain.impressions import Impression, PriorFeedback
from app.domain.model import SUMS, Model, ModelState, Part, initial_state
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.errors import BadBlob, NewerFormat, StoreError
from app.ranking.certainty import UNKNOWN, Certainty
from app.ranking.tally import Tally
from app.storage.states import CommitInfo, dump_part, dump_state, load_state

GOLDEN = Path(__file__).parent / "golden"

# ---- hypothesis strategies ----

words = st.text(max_size=12)
numbers = st.floats()  # including NaN and infinity
positions = arrays.arrays(np.int64, st.integers(0, 5))
floats = arrays.arrays(np.float64, st.integers(0, 5), elements=numbers)
matrices = arrays.arrays(
    np.float32,
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    elements=st.floats(width=32),
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


model_settings = st.builds(
    ModelConfig,
    features=st.lists(words, max_size=4).map(tuple),
    algorithm=st.sampled_from(["solar-i", "solar-ii"]),
    covariance=st.sampled_from(["full", "diagonal"]),
    C=numbers,
    gamma=numbers,
    clicks=words,
    normalization=words,
    pair_bound=maybe(numbers),
    exploration=maybe(numbers),
    forgetting=maybe(numbers),
) | st.builds(
    lambda given, knots: new_model_config(given, splines=dict(zip(given[1:], knots, strict=False))),
    st.lists(words.filter(bool), min_size=1, max_size=4, unique=True).map(tuple),
    st.lists(st.sets(st.floats(-4.0, 4.0, width=16), min_size=1, max_size=3).map(sorted)),
)
certainties = st.just(UNKNOWN) | st.builds(Certainty, st.floats(0.0, 1e12), st.integers(1, 2**53))
models = st.builds(Model, model_settings, floats, floats, certainties)
feedback = st.builds(
    Feedback,
    event=words,
    kind=st.sampled_from(["clicks", "labels", "triplets"]),
    documents=matrices,
    submitted=maybe(positions),
    counted=maybe(floats),
    labels=maybe(floats),
    clicks=maybe(positions),
    clicked_before=maybe(positions),
    rounds=maybe(positions),
    preferred=maybe(positions),
    other=maybe(positions),
    weights=maybe(floats),
    query=words,
    source=words,
    swaps=maybe(positions),
    duel=maybe(positions),
)
finite = st.floats(allow_nan=False, allow_infinity=False)
naturals = st.integers(0, 2**53)
tournaments = st.lists(words, min_size=1, max_size=3).flatmap(
    lambda names: st.builds(
        Tournament,
        naturals,
        st.integers(0, len(names) - 1),
        st.just(tuple(names)),
        naturals,
        finite,
        st.booleans(),
    )
)
duels = st.builds(Duel, words, finite, finite, maybe(naturals), words, maybe(tournaments))
verdicts = st.sampled_from([-1, 0, 1])
counts = [naturals] * 5
duel_states = st.builds(
    DuelState,
    naturals,
    duels,
    *counts,
    finite,
    finite,
    verdicts,
    st.lists(st.tuples(naturals, naturals, naturals), max_size=3).map(tuple),
    st.lists(st.builds(DuelResult, words, words, *counts, finite, verdicts), max_size=2).map(tuple),
    naturals,
    words,
)
records: st.SearchStrategy[Record] = st.one_of(
    feedback,
    st.builds(Replace, models, words),
    st.builds(
        Retune,
        maybe(numbers),
        maybe(numbers),
        maybe(words),
        pair_bound=maybe(numbers),
        exploration=maybe(numbers),
        forgetting=maybe(numbers),
    ),
    st.just(ResetMeasures()),
    duels,
    st.builds(EndDuel, naturals, words),
)
states = st.builds(
    ModelState,
    seq=st.integers(0, 2**53),
    chain=st.binary(min_size=32, max_size=32),
    model=models,
    sums=arrays.arrays(np.float64, len(SUMS), elements=numbers),
    duel=maybe(duel_states),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=10,
)


def bits(value: Any) -> Any:
    """A value with arrays as types, shapes and bytes, so that == compares bits."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, float):
        return repr(value)  # JSON does not preserve the payload of a NaN
    if is_dataclass(value):
        parts = [(part.name, bits(getattr(value, part.name))) for part in fields(value)]
        return type(value).__name__, parts
    return [bits(one) for one in value] if isinstance(value, tuple) else value


def sealed(header: bytes, body: bytes = b"", version: int = 1) -> bytes:
    """Bytes with the right magic, length and checksum around any content."""
    head = b"SLR" + bytes([version]) + len(header).to_bytes(4, "little")
    content = head + header + body
    return content + codec._checksum(content)


def newer(blob: bytes) -> bytes:
    """The same content in the first format that this release does not read."""
    content = b"SLR" + bytes([codec.newest_format() + 1]) + blob[4 : -codec.CHECKSUM]
    return content + codec._checksum(content)


# ---- round trips ----


@given(records)
def test_a_record_survives_encoding_bit_for_bit(record: Record) -> None:
    assert bits(codec.load_record(codec.dump_record(record))) == bits(record)


@given(states, st.integers(1, 2**53))
def test_a_state_survives_encoding_bit_for_bit(state: ModelState, epoch: int) -> None:
    w, spread, sums, meta = dump_state(state)
    stored = {b"epoch": str(epoch).encode(), b"seq": str(state.seq).encode(), b"chain": state.chain}
    stored |= {b"w": w, b"spread": spread, b"sums": sums, b"meta": meta}
    assert bits(load_state(stored)) == bits(state)


@given(st.lists(words, max_size=4).map(tuple), matrices, positions, maybe(positions))
def test_an_impression_survives_encoding_bit_for_bit(
    ids: Any, documents: Any, from_: Any, duel: Any
) -> None:
    shown = Impression(ids, documents, from_, duel=duel)
    assert bits(Impression.load(shown.dump())) == bits(shown)


@given(positions, positions, maybe(floats))
def test_prior_feedback_survives_encoding_bit_for_bit(
    clicks: Any, rounds: Any, counted: Any
) -> None:
    so_far = PriorFeedback(clicks, rounds, counted)
    assert bits(PriorFeedback.load(so_far.dump())) == bits(so_far)


@given(records)
def test_the_same_record_gives_the_same_bytes(record: Record) -> None:
    blob = codec.dump_record(record)
    assert codec.dump_record(codec.load_record(blob)) == blob


def test_decoded_arrays_are_read_only() -> None:
    record = codec.load_record(golden_blobs()["feedback"])
    assert isinstance(record, Feedback)
    assert not record.documents.flags.writeable


def test_strided_arrays_are_encoded_by_their_values() -> None:
    table = np.arange(12.0).reshape(3, 4)
    found = codec.load_blob(codec.dump_blob("w", {}, {"values": table.T[::2]}), "w").arrays[
        "values"
    ]
    np.testing.assert_array_equal(found, table.T[::2])


# ---- damage ----

SMALL = codec.dump_blob("so-far", {"a": 1}, {"clicks": np.array([3], np.int64)})


def test_every_flipped_byte_is_refused() -> None:
    for place in range(len(SMALL)):
        for flip in range(1, 256):
            damaged = bytearray(SMALL)
            damaged[place] ^= flip
            with pytest.raises(BadBlob):
                codec.load_blob(bytes(damaged), "so-far")


def test_every_truncation_and_every_extra_byte_is_refused() -> None:
    for size in range(len(SMALL)):
        with pytest.raises(BadBlob):
            codec.load_blob(SMALL[:size], "so-far")
        with pytest.raises(BadBlob):
            codec.load_blob(SMALL[size + 1 :], "so-far")
    for byte in range(256):
        with pytest.raises(BadBlob):
            codec.load_blob(SMALL + bytes([byte]), "so-far")


@given(records, st.data())
def test_a_record_with_one_changed_byte_is_refused(record: Record, data: st.DataObject) -> None:
    blob = bytearray(codec.dump_record(record))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadBlob):
        codec.load_record(bytes(blob))


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_not_a_record(noise: bytes, with_magic: bool) -> None:
    with pytest.raises(BadBlob):
        codec.load_record(b"SLR\x01" + noise if with_magic else noise)


def test_format_0_is_damage() -> None:
    with pytest.raises(BadBlob, match="expected a format from 1"):
        codec.load_blob(sealed(b'["so-far",{},[]]', version=0), "so-far")


def test_an_unknown_kind_is_named_with_what_was_expected() -> None:
    blob = codec.dump_blob("so-far", {}, {})
    with pytest.raises(BadBlob, match=r"expected feedback or replace or .*, got "):
        codec.load_record(blob)
    with pytest.raises(BadBlob, match="expected w, got "):
        codec.load_blob(blob, "w")


def test_each_kind_of_damage_has_a_separate_message() -> None:
    with pytest.raises(BadBlob, match="a SOLAR blob"):
        codec.load_blob(b"PK\x03\x04", "w")
    with pytest.raises(BadBlob, match="damaged"):
        codec.load_blob(SMALL[:-1] + bytes([SMALL[-1] ^ 1]), "so-far")
    with pytest.raises(BadBlob, match="bytes of content"):
        codec.load_blob(sealed(b'["w",{},[]]', b"12345678"), "w")


# ---- newer formats ----


def test_a_newer_format_is_refused_with_both_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NewerFormat) as refused:
        codec.load_blob(sealed(b"any content", version=8), "w")
    assert str(refused.value) == "written by a newer release (format 8, this one reads up to 7)"
    monkeypatch.setitem(codec.NEEDED_FORMATS, ("w", "later"), 8)
    assert codec.load_blob(sealed(b'["w",{},[]]', version=8), "w").kind == "w"
    with pytest.raises(NewerFormat) as refused:
        codec.load_blob(sealed(b'["w",{},[]]', version=9), "w")
    assert str(refused.value) == "written by a newer release (format 9, this one reads up to 8)"


def test_a_newer_format_is_not_handled_as_damage_or_as_a_failure_of_the_store() -> None:
    assert not issubclass(NewerFormat, BadBlob | StoreError | ValueError)


@pytest.mark.parametrize("version", [codec.newest_format() + 1, 100, 255])
def test_a_damaged_blob_of_a_newer_format_is_damage(version: int) -> None:
    blob = sealed(b'["so-far",{},[]]', version=version)
    assert codec.is_newer(blob)
    for place in range(len(blob)):
        damaged = bytearray(blob)
        damaged[place] ^= 16
        assert not codec.is_newer(bytes(damaged))
        with pytest.raises(BadBlob):
            codec.load_blob(bytes(damaged), "so-far")
    for size in range(len(blob)):
        assert not codec.is_newer(blob[:size])


def test_no_blob_of_this_release_is_newer() -> None:
    for blob in golden_blobs().values():
        assert not codec.is_newer(blob)
        codec.refuse_newer(blob)


NEWER_NAMES = {
    "feedback-swapped": ("feedback", "swaps"),
    "retune-explore": ("retune", "explore"),
    "replace-prior": ("replace", "settings.prior"),
    "shown-drawn": ("shown", "odds"),
    "reset-measures": ("reset-measures", ""),
    "sums-gap": ("sums", "largest_gap"),
    "end-duel": ("end-duel", "why"),
    "shown-duel": ("shown", "duel"),
}


@pytest.mark.parametrize("name", NEWER_NAMES)
def test_a_blob_is_written_in_the_lowest_format_that_can_carry_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = golden_blobs()
    monkeypatch.setitem(codec.NEEDED_FORMATS, ("w", "later"), 7)
    monkeypatch.setitem(codec.NEEDED_FORMATS, NEWER_NAMES[name], 8)
    after = golden_blobs()
    changed = [other for other in after if after[other] != before[other]]
    assert changed == [one for one in before if NEWER_NAMES[name] in names_in(before[one])]
    assert name in changed
    for one in changed:
        assert after[one][3] == 8
        assert after[one][4:-4] == before[one][4:-4]
        assert codec.load_blob(after[one], NEWER_NAMES[name][0]).kind == NEWER_NAMES[name][0]


# ---- invalid content with a valid checksum ----


@given(json_values, st.binary(max_size=16))
def test_a_sealed_blob_with_any_header_is_a_record_or_refused(header: Any, body: bytes) -> None:
    read(sealed(json.dumps(header).encode(), body))


@given(st.binary(max_size=40), st.binary(max_size=16))
def test_a_sealed_blob_with_any_bytes_for_a_header_is_refused(header: bytes, body: bytes) -> None:
    with pytest.raises(BadBlob):
        codec.load_record(sealed(header, body))


@given(
    st.sampled_from(["feedback", "replace", "retune", "reset-measures", "duel", "end-duel"]),
    st.dictionaries(words, json_values, max_size=3),
    st.lists(
        st.tuples(
            words | st.sampled_from(codec._ARRAYS),
            st.sampled_from(["f4", "f8", "i8", "i4", "O", ""]),
            st.lists(st.integers(-2, 3) | st.integers(), max_size=3) | json_values,
        ),
        max_size=3,
    ),
    st.binary(max_size=48),
)
def test_a_sealed_blob_of_a_known_kind_is_a_record_or_refused(
    kind: str, plain: Any, described: Any, body: bytes
) -> None:
    read(sealed(json.dumps([kind, plain, described]).encode(), body))


def test_a_header_that_nests_too_deeply_is_refused() -> None:
    with pytest.raises(BadBlob):
        codec.load_record(sealed(b"[" * 200_000))


def read(blob: bytes) -> None:
    try:
        record = codec.load_record(blob)
    except BadBlob:
        return
    assert isinstance(record, Record)


# ---- golden files ----


def golden_blobs() -> dict[str, bytes]:
    """One blob of each kind, with fixed values."""
    settings = ModelConfig(
        ("bm25", "preis €"), "solar-ii", "full", 0.25, 100.0, "click-skip-previous"
    )
    model = Model(settings, np.array([0.5, -2.0]), np.array([1.0, 0.25, 3.0]))
    old_sums = np.arange(17) / 4.0  # newer states have more sums
    state = ModelState(7, bytes(range(32)), model, old_sums)
    documents = np.array([[0.0, 1.0], [2.0, -3.5], [0.25, 1e30]], np.float32)
    record = Feedback(
        event="e-1",
        kind="clicks",
        documents=documents,
        submitted=np.array([2, 0, 1]),
        counted=np.array([0.0, 1.0, 0.0]),
        labels=np.array([0.0, 2.0, 30.0]),
        clicks=np.array([2]),
        clicked_before=np.array([1]),
        rounds=np.array([1]),
        preferred=np.array([0, 1]),
        other=np.array([1, 2]),
        weights=np.array([1.0, 0.5]),
        query="books.0197",
        source="web Zürich",
    )
    w, spread, sums, meta = dump_state(state)
    prior = replace(settings, features=("bm25", "_order"), prior=0.5, explore=False)
    bounded = replace(settings, pair_bound=40.0)
    exploring = replace(bounded, exploration=0.5, forgetting=1e-4)
    counting = replace(exploring, counting=2)
    bent = replace(
        counting, features=("bm25", "preis €", "bm25>0.1", "bm25>7"), splines={"bm25": (0.1, 7.0)}
    )
    keeping = replace(exploring, counting=3)
    acting = replace(keeping, actions={"click": 1.0, "add_to_cart": 2.5})
    bought = PriorFeedback(np.array([2, 0]), np.array([1, 2]), np.array([0.5, 0.0, 4.0]))
    certainty = Certainty(0.75, 12)
    swapped = replace(record, swaps=np.array([[0, 1]]))
    teams = np.array([812, -1, 1, 0])
    tournament = Tournament(0, 0, ("shop-b", "shop-c"), 50_000, 0.05, promote=True)
    fought = DuelState(
        812, Duel("shop-c", 0.5, tournament.alpha_each, champion="shop-b",
                  tournament=replace(tournament, id=700, step=1)),
        9, 4, 3, 5, 2, 1.5, 2.25, 1, ((1, 1, 0), (9, 5, 2)),
        (DuelResult("", "shop-b", 40, 11, 12, 10, 13, 75.5, -1),), 900, "rollback",
    )  # fmt: skip
    sums_66 = replace(state, sums=np.arange(66) / 4.0, duel=fought)
    sums_57 = replace(state, sums=np.append(np.arange(56) / 4.0, 1.75))
    sums_56 = replace(state, sums=np.append(np.arange(56) / 4.0, 0.0))
    sums_29 = replace(state, sums=np.append(np.arange(27) / 4.0, [0.625, 3.5]))
    sums_27 = replace(state, sums=np.append(np.arange(26) / 4.0, 3.0))
    return {
        "feedback": codec.dump_record(record),
        "feedback-bare": codec.dump_record(Feedback("e-2", "labels", documents)),
        "replace": codec.dump_record(Replace(model, "warm start")),
        "replace-prior": codec.dump_record(Replace(replace(model, config=prior), "rollback")),
        "retune": codec.dump_record(Retune(C=0.5, clicks="click-skip-above")),
        "reset-measures": codec.dump_record(ResetMeasures()),
        "w": w,
        "spread": spread,
        "sums-aside": sums,
        "meta": meta,
        "shown": Impression(("a", "ü"), documents[:2], np.array([1, 0])).dump(),
        "feedback-drawn": codec.dump_record(replace(record, odds=np.array([1.0, 0.5, 0.0, 2.5]))),
        "shown-drawn": Impression(
            ("a", "ü"), documents[:2], np.array([1, 0]), np.array([1.0, 0.25, 0.5])
        ).dump(),
        "feedback-swapped": codec.dump_record(replace(record, swaps=np.array([[0, 1]]))),
        "shown-swapped": Impression(
            ("a", "ü"), documents[:2], np.array([1, 0]), swaps=np.array([[0, 1]])
        ).dump(),
        "retune-explore": codec.dump_record(Retune(clicks="debiased", explore=True)),
        "meta-prior": codec.dump_blob("meta", codec.dump_config(prior), {}),
        "replace-bound": codec.dump_record(Replace(replace(model, config=bounded), "rollback")),
        "retune-bound": codec.dump_record(Retune(pair_bound=40.0)),
        "meta-bound": codec.dump_blob("meta", codec.dump_config(bounded), {}),
        "sums-bounded": dump_state(sums_27, 7, "0a1b")[2],
        "sums-term": dump_state(state, 7, "0a1b")[2],
        "part": dump_part(
            Part(bytes(range(32)), 5, model.weights, model.spread, Tally(1, 3, 1, 2.75), 2)
        ),
        "replace-exploration": codec.dump_record(
            Replace(replace(model, config=exploring, certainty=certainty), "rollback")
        ),
        "retune-exploration": codec.dump_record(Retune(exploration=0.5, forgetting=1e-4)),
        "meta-exploration": codec.dump_blob("meta", codec.dump_config(exploring), {}),
        "w-certainty": dump_state(replace(state, model=replace(model, certainty=certainty)))[0],
        "sums-drift": dump_state(sums_29, 7, "0a1b")[2],
        "part-variance": dump_part(
            Part(bytes(range(32)), 5, model.weights, model.spread, Tally(1, 3, 1, 2.75, 4.5), 2)
        ),
        "replace-counting": codec.dump_record(
            Replace(replace(model, config=counting, certainty=certainty), "rollback")
        ),
        "meta-counting": codec.dump_blob("meta", codec.dump_config(counting), {}),
        "sums-squares": dump_state(sums_56, 7, "0a1b")[2],
        "replace-splines": codec.dump_record(
            Replace(Model(bent, np.arange(4.0), np.arange(10.0)), "warm start")
        ),
        "meta-splines": codec.dump_blob("meta", codec.dump_config(bent), {}),
        "replace-counting-gap": codec.dump_record(
            Replace(replace(model, config=keeping, certainty=certainty), "rollback")
        ),
        "meta-counting-gap": codec.dump_blob("meta", codec.dump_config(keeping), {}),
        "sums-gap": dump_state(sums_57, 7, "0a1b")[2],
        "part-gap": dump_part(
            Part(bytes(range(32)), 5, model.weights, model.spread, Tally(1, 3, 1, 2.75, 4.5, 9.0))
        ),
        **{
            f"replace-{reason.split()[0]}": codec.dump_record(Replace(model, reason))
            for reason in ("rollback to version 3", "without source web", "promotion of shop-b")
        },
        "feedback-duel": codec.dump_record(replace(swapped, duel=teams)),
        "shown-duel": Impression(
            ("a", "ü"), documents[:2], np.array([1, 0]), swaps=np.array([[0, 1]]), duel=teams[:3]
        ).dump(),
        "duel": codec.dump_record(Duel("shop-b", 0.2, 0.05)),
        "duel-version": codec.dump_record(Duel("version", 0.25, 0.05, version=800)),
        "duel-tournament": codec.dump_record(fought.settings),
        "end-duel": codec.dump_record(EndDuel(812, "ended")),
        "sums-duel": dump_state(sums_66, 7, "0a1b")[2],
        "so-far": PriorFeedback(
            np.array([2, 0]), np.array([1, 2]), np.array([1.0, 0.0, 1.0])
        ).dump(),
        "feedback-gains": codec.dump_record(
            replace(record, gains=np.array([4.0]), gains_before=np.array([0.5]))
        ),
        "feedback-examined": codec.dump_record(
            replace(record, examined=np.array([3]), examined_before=np.array([0]))
        ),
        "so-far-gains": replace(bought, gains=np.array([4.0, 0.5])).dump(),
        "so-far-examined": replace(bought, examined=np.array([0, 3])).dump(),
        "replace-actions": codec.dump_record(Replace(replace(model, config=acting), "rollback")),
        "retune-actions": codec.dump_record(Retune(actions={"purchase": 10.0, "click": 0.5})),
        "meta-actions": codec.dump_blob("meta", codec.dump_config(acting), {}),
    }


@pytest.mark.parametrize("kind", sorted(golden_blobs()))
def test_a_blob_is_still_written_with_the_same_bytes(kind: str) -> None:
    blob = golden_blobs()[kind]
    assert blob == (GOLDEN / f"v{blob[3]}-{kind}.bin").read_bytes()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("v*.bin")), ids=lambda path: path.stem)
def test_every_golden_blob_can_still_be_read(path: Path) -> None:
    kind = path.stem.split("-", 1)[1]
    suffixes = (
        "bare aside drawn swapped explore prior term bound bounded exploration certainty drift "
        "variance gap counting squares splines duel version tournament rollback without promotion "
        "gains examined actions"
    )
    for suffix in (f"-{one}" for one in suffixes.split() if kind != "end-duel"):
        kind = kind.removesuffix(suffix)
    assert codec.load_blob(path.read_bytes(), kind).kind == kind


_CONFIG = [
    "features", "algorithm", "covariance", "C", "gamma", "clicks", "normalization", "prior",
    "explore",
]  # fmt: skip
#: All names of format 1. Never add one: an older release refuses it. Give a new field an entry in
#: NEEDED_FORMATS, and a value in a golden file of that format.
FORMAT_1 = {
    "feedback": [
        "event", "kind", "query", "source", "documents", "submitted", "counted", "labels", "clicks",
        "clicked_before", "rounds", "preferred", "other", "weights", "odds", "swaps",
    ],
    "replace": ["reason", "settings", "weights", "spread", *(f"settings.{one}" for one in _CONFIG)],
    "retune": ["C", "gamma", "clicks", "explore"],
    "reset-measures": [],
    "w": ["seq", "chain", "values"],
    "spread": ["values"],
    "sums": ["time", "trace", "term", "values"],
    "meta": _CONFIG,
    "shown": ["ids", "documents", "submitted", "odds", "swaps"],
    "so-far": ["clicks", "rounds", "counted"],
}  # fmt: skip


def names_in(blob: bytes) -> set[tuple[str, str]]:
    """Every (kind, name) of a field or an array of a blob, with "" for the kind itself."""
    kind, plain, described = codec._header(
        memoryview(blob)[8:][: int.from_bytes(blob[4:8], "little")]
    )
    names = ["", *plain, *(f"settings.{one}" for one in plain.get("settings", ()))]
    return {(kind, name) for name in (*names, *(one for one, *_ in described))}


def names_in_golden_blobs(version: int) -> set[tuple[str, str]]:
    """The names in all golden files of a format."""
    blobs = [path.read_bytes() for path in GOLDEN.glob(f"v{version}-*.bin")]
    assert {blob[3] for blob in blobs} == {version}
    return set[tuple[str, str]]().union(*(names_in(blob) for blob in blobs))


def known_names() -> set[tuple[str, str]]:
    """Every (kind, name) of a value that this release stores."""

    def of(kind: str, names: Iterable[str]) -> set[tuple[str, str]]:
        return {(kind, name) for name in ("", *names)}

    def fields_of(cls: Any) -> list[str]:
        return [part.name for part in fields(cls)]

    config = fields_of(ModelConfig)
    model = [one for one in fields_of(Model) if one != "config"]
    replaced = ["reason", "settings", *model, *(f"settings.{one}" for one in config)]
    return (
        of("feedback", fields_of(Feedback)) | of("retune", fields_of(Retune))
        | of("replace", replaced) | of("reset-measures", fields_of(ResetMeasures))
        | of("shown", fields_of(Impression)) | of("so-far", fields_of(PriorFeedback))
        | of("sums", [*CommitInfo._fields, "values", *SUMS[26:30], "squares", SUMS[56]])
        | of("sums", ["duel", "duel_lists", "follower"])
        | of("duel", fields_of(Duel)) | of("end-duel", fields_of(EndDuel))
        | of("meta", config)
        | of("w", ["seq", "chain", "values", "certainty"]) | of("spread", ["values"])
        | of("part", [*({*fields_of(Part)} - {"tally"}), *Tally._fields])
    )  # fmt: skip


def format_of(kind: str, name: str) -> int:
    """Return the format that a name needs: its own, or that of its kind."""
    return max(codec.NEEDED_FORMATS.get((kind, one), 1) for one in ("", name))


def test_format_1_has_no_further_names() -> None:
    names = {(kind, name) for kind, some in FORMAT_1.items() for name in ("", *some)}
    assert names_in_golden_blobs(1) == names


def test_every_field_and_array_is_in_a_golden_blob_of_its_format() -> None:
    assert codec.NEEDED_FORMATS.keys() <= known_names()
    for version in range(1, codec.newest_format() + 1):
        of_format = {one for one in known_names() if format_of(*one) == version}
        assert of_format <= names_in_golden_blobs(version)


def test_format_1_has_26_sums() -> None:
    """An older release cannot read more values; store a further sum as an array of its own."""
    state = initial_state(ModelConfig(("a",)))
    stored = {last: dump_state(replace(state, sums=np.append(np.ones(26), last)))[2]
              for last in (0.0, 3.0)}  # fmt: skip
    assert [blob[3] for blob in stored.values()] == [1, 2]
    for blob in stored.values():
        assert codec.load_blob(blob, "sums").arrays["values"].tolist() == [1.0] * 26
    assert codec.load_blob(stored[3.0], "sums").arrays["bounded"].tolist() == [3.0]


def test_golden_blobs_decode_to_their_known_values() -> None:
    record = codec.load_record((GOLDEN / "v1-feedback.bin").read_bytes())
    assert isinstance(record, Feedback)
    assert (record.event, record.kind, record.source) == ("e-1", "clicks", "web Zürich")
    assert record.documents.tolist() == [[0.0, 1.0], [2.0, -3.5], [0.25, float(np.float32(1e30))]]
    assert record.clicks is not None
    assert record.clicks.tolist() == [2]
    replaced = codec.load_record((GOLDEN / "v1-replace.bin").read_bytes())
    assert isinstance(replaced, Replace)
    assert replaced.model.config.features == ("bm25", "preis €")
    assert replaced.model.weights.tolist() == [0.5, -2.0]
    retuned = codec.load_record((GOLDEN / "v1-retune.bin").read_bytes())
    assert retuned == Retune(C=0.5, gamma=None, clicks="click-skip-above")
    bound = codec.load_record((GOLDEN / "v2-retune-bound.bin").read_bytes())
    assert bound == Retune(pair_bound=40.0)
    exploring = codec.load_record((GOLDEN / "v3-retune-exploration.bin").read_bytes())
    assert exploring == Retune(exploration=0.5, forgetting=1e-4)
    certain = codec.load_record((GOLDEN / "v3-replace-exploration.bin").read_bytes())
    assert isinstance(certain, Replace)
    assert certain.model.certainty == Certainty(0.75, 12)
    assert (certain.model.config.exploration, certain.model.config.forgetting) == (0.5, 1e-4)
    bent = codec.load_record((GOLDEN / "v5-replace-splines.bin").read_bytes())
    assert isinstance(bent, Replace)
    assert bent.model.config.splines == {"bm25": (0.1, 7.0)}
    assert bent.model.config.given == ("bm25", "preis €")
    shown = Impression.load((GOLDEN / "v6-shown-duel.bin").read_bytes())
    assert shown.duel is not None
    assert shown.duel.tolist() == [812, -1, 1]
    duel = codec.load_record((GOLDEN / "v6-duel.bin").read_bytes())
    assert duel == Duel("shop-b", 0.2, 0.05)
    last = codec.load_record((GOLDEN / "v6-duel-tournament.bin").read_bytes())
    assert isinstance(last, Duel)
    assert last.tournament == Tournament(700, 1, ("shop-b", "shop-c"), 50_000, 0.05, promote=True)
    assert codec.load_record((GOLDEN / "v6-end-duel.bin").read_bytes()) == EndDuel(812, "ended")


def test_golden_blobs_with_gains_decode_to_their_known_values() -> None:
    bought = codec.load_record((GOLDEN / "v7-feedback-gains.bin").read_bytes())
    assert isinstance(bought, Feedback)
    assert bought.gains is not None
    assert bought.gains_before is not None
    assert (bought.gains.tolist(), bought.gains_before.tolist()) == ([4.0], [0.5])
    seen = codec.load_record((GOLDEN / "v7-feedback-examined.bin").read_bytes())
    assert isinstance(seen, Feedback)
    assert seen.examined is not None
    assert seen.examined_before is not None
    assert (seen.examined.tolist(), seen.examined_before.tolist()) == ([3], [0])
    so_far = PriorFeedback.load((GOLDEN / "v7-so-far-gains.bin").read_bytes())
    assert so_far.gains is not None
    assert (so_far.gains.tolist(), so_far.examined) == ([4.0, 0.5], None)
    retuned = codec.load_record((GOLDEN / "v7-retune-actions.bin").read_bytes())
    assert retuned == Retune(actions={"purchase": 10.0, "click": 0.5})
    acting = codec.load_record((GOLDEN / "v7-replace-actions.bin").read_bytes())
    assert isinstance(acting, Replace)
    assert acting.model.config.gains_of_actions == {"click": 1.0, "add_to_cart": 2.5}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v1-replace", "warm start"), ("v5-replace-splines", "warm start"),
        ("v1-replace-prior", "rollback"), ("v1-replace-rollback", "rollback"),
        ("v1-replace-without", "replay"), ("v1-replace-promotion", "promotion"),
    ],
)  # fmt: skip
def test_the_kind_of_an_old_replacement_is_read_from_its_reason(name: str, kind: str) -> None:
    record = codec.load_record((GOLDEN / f"{name}.bin").read_bytes())
    assert isinstance(record, Replace)
    assert record.kind == kind


def golden_state(sums: str) -> ModelState:
    """The state of the golden files with these sums."""
    kept = {name: (GOLDEN / f"v1-{name}.bin").read_bytes() for name in ("w", "spread", "meta")}
    fields = {name.encode(): blob for name, blob in kept.items()}
    blob = (GOLDEN / sums).read_bytes()
    return load_state({**fields, b"seq": b"7", b"chain": bytes(range(32)), b"sums": blob})


def test_a_duel_is_stored_beside_the_sums() -> None:
    state = golden_state("v6-sums-duel.bin")
    assert state.sums.tolist() == (np.arange(66) / 4.0).tolist()
    duel = state.duel
    assert duel is not None
    assert (duel.id, duel.settings.champion, duel.ended, duel.why) == (
        812,
        "shop-b",
        900,
        "rollback",
    )
    assert (duel.lists, duel.wins, duel.losses, duel.won, duel.lost) == (9, 4, 3, 5, 2)
    assert (duel.evidence, duel.largest, duel.verdict) == (1.5, 2.25, 1)
    assert duel.curve == ((1, 1, 0), (9, 5, 2))
    assert duel.results == (DuelResult("", "shop-b", 40, 11, 12, 10, 13, 75.5, -1),)
    assert golden_state("v5-sums-gap.bin").duel is None


@given(
    st.sampled_from(["duel", *duel_fields.dump_duel_state(DuelState(1, Duel("b", 0.2, 0.05)))]),
    json_values,
)
def test_a_stored_duel_with_any_value_is_loaded_or_refused(name: str, value: Any) -> None:
    fields = duel_fields.dump_duel_state(DuelState(1, Duel("b", 0.2, 0.05), curve=((1, 1, 0),)))
    try:
        found = duel_fields.load_duel_state(value if name == "duel" else {**fields, name: value})
    except BadBlob:
        return
    assert duel_fields.load_duel_state(duel_fields.dump_duel_state(found)) == found


@pytest.mark.parametrize(
    "splines",
    [
        {}, {"bm25": []}, {"bm25": [0.1]}, {"bm25": [7.0, 0.1]}, {"bm25": [0.1, "7"]},
        {"bm25": 0.1}, {"bm25": [0.1, float("nan")]}, {"bm25": [0.1, 7]}, {"price": [0.1, 7.0]},
        {"bm25": [0.1 + 1e-12, 7.0]},
    ],
)  # fmt: skip
def test_splines_that_do_not_match_the_features_are_refused(splines: Any) -> None:
    fields = codec.load_blob((GOLDEN / "v5-meta-splines.bin").read_bytes(), "meta").fields
    assert codec.load_config(fields).splines == {"bm25": (0.1, 7.0)}
    with pytest.raises(BadBlob, match="splines: expected ascending knots by feature"):
        codec.load_config({**fields, "splines": splines})


def test_splines_in_another_order_than_their_columns_are_refused() -> None:
    config = new_model_config(("b", "a"), splines={"a": (1.0,), "b": (2.0,)})
    fields = codec.dump_config(config)
    assert codec.load_config({**fields, "splines": {"b": [2.0], "a": [1.0]}}) == config
    with pytest.raises(BadBlob, match="splines: expected ascending knots by feature"):
        codec.load_config({**fields, "splines": {"a": [1.0], "b": [2.0]}})


@pytest.mark.parametrize(
    "share", [10**400, -(10**400), float("nan"), float("inf"), True, "1", None]
)
def test_a_share_that_is_no_finite_number_is_refused(share: Any) -> None:
    with pytest.raises(BadBlob, match="share: expected float"):
        duel_fields.load_duel({"challenger": "b", "share": share, "alpha": 0.05})


def test_sums_missing_in_an_old_state_start_at_0() -> None:
    state = golden_state("v1-sums-aside.bin")
    assert state.sums.tolist() == [*(np.arange(17) / 4.0), *[0.0] * (len(SUMS) - 17)]
    assert state.measures()["debiased_weight"] == 0.0


def test_an_initial_state_survives_the_stored_form() -> None:
    state = initial_state(ModelConfig(("a", "b")), seed=b"x")
    w, spread, sums, meta = dump_state(state)
    stored = {b"seq": b"0", b"chain": state.chain, b"w": w, b"spread": spread}
    assert bits(load_state({**stored, b"sums": sums, b"meta": meta})) == bits(state)


if __name__ == "__main__":
    for name, blob in golden_blobs().items():
        file = GOLDEN / f"v{blob[3]}-{name}.bin"
        if not file.exists():
            file.write_bytes(blob)
