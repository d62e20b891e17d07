"""What was shown for a request, what has come of it so far, and the record of one more event.

Clicks on a request may come in several events. Each record then carries what was clicked before,
so that the fold learns only the new pairs, and by which labels the query is in the measures
already, so that it counts once. Pure: the store keeps these values as bytes.
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
    """The documents of an answer, in the order shown; `submitted` says where each came from.

    `odds` are those of a list that was drawn: e of each document, and the sum of all others;
    `swaps` those of one whose neighbours may have changed places.
    """

    ids: tuple[str, ...]
    documents: Documents
    submitted: Positions
    odds: Floats | None = None
    swaps: Positions | None = None

    def dump(self) -> bytes:
        """As the store keeps it."""
        names = ("documents", "submitted", "odds", "swaps")
        arrays = {name: getattr(self, name) for name in names}
        return codec.dump_blob("shown", {"ids": list(self.ids)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> "Impression":
        """The inverse of `dump`."""
        _, fields, arrays = codec.load_blob(blob, "shown")
        return cls(
            tuple(fields["ids"]), arrays["documents"], arrays["submitted"], arrays.get("odds"),
            arrays.get("swaps"),
        )  # fmt: skip

    def positions(self, ids: Sequence[str]) -> Positions:
        """Where these documents stand; InvalidInput if one was not shown."""
        places = {name: place for place, name in enumerate(self.ids)}
        unknown = [at for at, name in enumerate(ids) if name not in places]
        if unknown:
            raise InvalidInput(f"document {unknown[0]}: expected one of those shown")
        return np.array([places[name] for name in ids], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PriorFeedback:
    """What has come of a request.

    Its clicks in order, after how many of them each event ended, and the labels by which it counts.
    """

    clicks: Positions
    rounds: Positions
    counted: Floats | None

    def dump(self) -> bytes:
        """As the store keeps it."""
        return codec.dump_blob(
            "so-far", {}, {"clicks": self.clicks, "rounds": self.rounds, "counted": self.counted}
        )

    @classmethod
    def load(cls, blob: bytes) -> "PriorFeedback":
        """The inverse of `dump`; no bytes are a request without any feedback yet."""
        if not blob:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), None)
        arrays = codec.load_blob(blob, "so-far").arrays
        return cls(arrays["clicks"], arrays["rounds"], arrays.get("counted"))


def on_request(event: Feedback, so_far: PriorFeedback) -> tuple[Feedback, PriorFeedback]:
    """The record of an event on a request, and what has come of the request with it."""
    if event.kind == "clicks" and event.clicks is not None:
        record = replace(
            event, clicked_before=so_far.clicks, rounds=so_far.rounds, counted=so_far.counted
        )
        clicks = np.concatenate([so_far.clicks, event.clicks])
        rounds = np.append(so_far.rounds, len(clicks))
        return record, PriorFeedback(clicks, rounds, measured_labels(record))
    record = replace(event, counted=so_far.counted)
    return record, replace(so_far, counted=measured_labels(record))


def measured_labels(record: Feedback) -> Floats:
    """The labels by which a list is measured: as sent, 1/0 for clicks, won more than lost."""
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
    """All clicks on the list so far, in the order in which they came."""
    before = np.zeros(0, np.int64) if record.clicked_before is None else record.clicked_before
    now = _expected(record.clicks)
    return as_positions(np.concatenate([before, now]), len(record.documents))


def as_positions(positions: Positions | None, count: int) -> Positions:
    """Positions in a list of `count`, or ValueError."""
    found = _expected(positions)
    if found.dtype.kind != "i" or found.ndim != 1:
        raise ValueError("positions: expected whole numbers")
    if found.size and not 0 <= found.min() <= found.max() < count:
        raise ValueError(f"positions: expected places below {count}")
    return found


def as_labels(labels: Floats | None, count: int) -> Floats:
    """One label a document, or ValueError."""
    found = np.array(_expected(labels), dtype=np.float64)
    if found.shape != (count,):
        raise ValueError(f"labels: expected {count}, got shape {found.shape}")
    return found


def _expected(array: Positions | Floats | None) -> "np.ndarray":
    if array is None:
        raise ValueError("expected an array that this kind of feedback needs, got none")
    return array
