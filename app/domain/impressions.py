"""Impressions, the feedback on them so far, and the record of one more event.

Clicks on a request may arrive in several events. Each record carries the earlier clicks, so that
the reducer learns only the new pairs. It also carries the labels by which the query is already in
the measures, so that the query counts once. A ranking whose events have no click is abandoned: it
counts separately, until a click or a label arrives. Pure: the store keeps these values as bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.domain import codec
from app.domain.model import Documents, Positions
from app.domain.records import Feedback
from app.errors import InvalidInput
from app.ranking.arrays import Floats


@dataclass(frozen=True, slots=True)
class Impression:
    """The documents of an answer in the order shown; `submitted` has their submitted positions.

    `odds` belong to a sampled ranking: e of each document, and the sum of all others. `swaps`
    belong to a ranking with randomly swapped neighbours.
    """

    ids: tuple[str, ...]
    documents: Documents
    submitted: Positions
    odds: Floats | None = None
    swaps: Positions | None = None

    def dump(self) -> bytes:
        """Encode for the store."""
        names = ("documents", "submitted", "odds", "swaps")
        arrays = {name: getattr(self, name) for name in names}
        return codec.dump_blob("shown", {"ids": list(self.ids)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> "Impression":
        """Decode the result of `dump`."""
        _, fields, arrays = codec.load_blob(blob, "shown")
        return cls(
            tuple(fields["ids"]), arrays["documents"], arrays["submitted"], arrays.get("odds"),
            arrays.get("swaps"),
        )  # fmt: skip

    def positions(self, ids: Sequence[str]) -> Positions:
        """Find the positions of documents by id; InvalidInput if one was not shown."""
        known = {name: position for position, name in enumerate(self.ids)}
        unknown = [at for at, name in enumerate(ids) if name not in known]
        if unknown:
            raise InvalidInput(
                f"document {unknown[0]}: expected the id of a document that was shown"
            )
        return np.array([known[name] for name in ids], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PriorFeedback:
    """Feedback on a request so far.

    `clicks` are in the order of arrival, `rounds` counts the clicks at the end of each event, and
    `counted` are the labels by which the query is in the measures, empty if it is abandoned.
    """

    clicks: Positions
    rounds: Positions
    counted: Floats | None

    def dump(self) -> bytes:
        """Encode for the store."""
        return codec.dump_blob(
            "so-far", {}, {"clicks": self.clicks, "rounds": self.rounds, "counted": self.counted}
        )

    @classmethod
    def load(cls, blob: bytes) -> "PriorFeedback":
        """Decode the result of `dump`; no bytes mean a request without feedback."""
        if not blob:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), None)
        arrays = codec.load_blob(blob, "so-far").arrays
        return cls(arrays["clicks"], arrays["rounds"], arrays.get("counted"))


def on_request(
    event: Feedback, so_far: PriorFeedback, counts_abandoned: bool = False
) -> tuple[Feedback, PriorFeedback]:
    """Build the record of an event on a request, and the request's feedback after it.

    `counts_abandoned` is the rule of the model (`ModelConfig.counts_abandoned`).
    """
    if event.kind == "clicks" and event.clicks is not None:
        record = replace(
            event, clicked_before=so_far.clicks, rounds=so_far.rounds, counted=so_far.counted
        )
        clicks = np.concatenate([so_far.clicks, event.clicks])
        rounds = np.append(so_far.rounds, len(clicks))
        counted = counted_labels(record, counts_abandoned)
        return record, PriorFeedback(clicks, rounds, counted)
    record = replace(event, counted=so_far.counted)
    return record, replace(so_far, counted=counted_labels(record, counts_abandoned))


def counted_labels(record: Feedback, counts_abandoned: bool) -> Floats:
    """Labels by which a query is in the measures after a record; none if it is abandoned.

    An event without a click changes nothing in a query that is counted already.
    """
    if counts_abandoned and record.kind == "clicks" and not _has_clicks(record):
        return np.zeros(0) if record.counted is None else record.counted
    return measured_labels(record)


def _has_clicks(record: Feedback) -> bool:
    before = record.clicked_before
    return bool(_expected(record.clicks).size or (before is not None and before.size))


def measured_labels(record: Feedback) -> Floats:
    """Labels that measure a ranking: as sent; 1 or 0 for clicks; 1 if won more than lost."""
    count = len(record.documents)
    if record.kind == "labels":
        return as_labels(record.labels, count)
    if record.kind == "clicks":
        clicked = np.zeros(count)
        clicked[all_clicks(record)] = 1.0
        return clicked
    wins = np.bincount(as_positions(record.preferred, count), minlength=count)
    losses = np.bincount(as_positions(record.other, count), minlength=count)
    return (wins > losses).astype(np.float64)


def all_clicks(record: Feedback) -> Positions:
    """All clicks on the ranking so far, in the order of arrival."""
    before = np.zeros(0, np.int64) if record.clicked_before is None else record.clicked_before
    now = _expected(record.clicks)
    return as_positions(np.concatenate([before, now]), len(record.documents))


def as_positions(positions: Positions | None, count: int) -> Positions:
    """Check positions in a ranking of `count` documents; ValueError if one is wrong."""
    found = _expected(positions)
    if found.dtype.kind != "i" or found.ndim != 1:
        raise ValueError("positions: expected whole numbers")
    if found.size and not 0 <= found.min() <= found.max() < count:
        raise ValueError(f"positions: expected numbers from 0 to {count - 1}")
    return found


def as_labels(labels: Floats | None, count: int) -> Floats:
    """Check that there is one label per document; else ValueError."""
    found = np.array(_expected(labels), dtype=np.float64)
    if found.shape != (count,):
        raise ValueError(f"labels: expected {count} values, got shape {found.shape}")
    return found


def _expected(array: Positions | Floats | None) -> "np.ndarray":
    if array is None:
        raise ValueError("expected an array that this type of feedback needs, got none")
    return array
