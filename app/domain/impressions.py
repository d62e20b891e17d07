"""Impressions, the feedback on them so far, and the record of one more event.

Clicks on a request may arrive in several events. Each record carries the earlier clicks, so that
the reducer learns only the new pairs. It also carries the labels by which the query is already in
the measures, so that the query counts once. A ranking whose events have no click is abandoned: it
counts separately, until a click or a label arrives. A click may have a gain: a document's label is
the largest of its gains. Pure: the store keeps these values as bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.domain import codec
from app.domain.model import Documents, Positions
from app.domain.records import Feedback
from app.errors import InvalidInput
from app.ranking.arrays import Floats, frozen
from app.ranking.grades import ListFeedback, grades_of
from app.ranking.limits import LARGEST_GAIN


@dataclass(frozen=True, slots=True)
class Impression:
    """The documents of an answer in the order shown; `submitted` has their submitted positions.

    `odds` belong to a sampled ranking: e of each document, and the sum of all others. `swaps`
    belong to a ranking with randomly swapped neighbours. `duel` is as in `Feedback`.
    """

    ids: tuple[str, ...]
    documents: Documents
    submitted: Positions
    odds: Floats | None = None
    swaps: Positions | None = None
    duel: Positions | None = None

    def dump(self) -> bytes:
        """Encode for the store."""
        names = ("documents", "submitted", "odds", "swaps", "duel")
        arrays = {name: getattr(self, name) for name in names}
        return codec.dump_blob("shown", {"ids": list(self.ids)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> "Impression":
        """Decode the result of `dump`."""
        _, fields, arrays = codec.load_blob(blob, "shown")
        return cls(
            tuple(fields["ids"]), arrays["documents"], arrays["submitted"], arrays.get("odds"),
            arrays.get("swaps"), arrays.get("duel"),
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
    `gains` are those of the clicks, None if all are 1. `examined` is what each event said of how
    many positions were examined (0: nothing), None if no event did.
    """

    clicks: Positions
    rounds: Positions
    counted: Floats | None
    gains: Floats | None = None
    examined: Positions | None = None

    def dump(self) -> bytes:
        """Encode for the store."""
        names = ("clicks", "rounds", "counted", "gains", "examined")
        return codec.dump_blob("so-far", {}, {name: getattr(self, name) for name in names})

    @classmethod
    def load(cls, blob: bytes) -> "PriorFeedback":
        """Decode the result of `dump`; no bytes mean a request without feedback."""
        if not blob:
            return cls(_NO_POSITIONS, _NO_POSITIONS, None)
        arrays = codec.load_blob(blob, "so-far").arrays
        later = (arrays.get(name) for name in ("counted", "gains", "examined"))
        return cls(arrays["clicks"], arrays["rounds"], *later)


_NO_POSITIONS: Positions = frozen(np.zeros(0, np.int64))


def on_request(
    event: Feedback, so_far: PriorFeedback, counts_abandoned: bool = False
) -> tuple[Feedback, PriorFeedback]:
    """Build the record of an event on a request, and the request's feedback after it.

    `counts_abandoned` is the rule of the model (`ModelConfig.counts_abandoned`).
    """
    if event.kind == "clicks" and event.clicks is not None:
        record = replace(
            event, clicked_before=so_far.clicks, rounds=so_far.rounds, counted=so_far.counted,
            gains_before=so_far.gains, examined_before=so_far.examined,
        )  # fmt: skip
        clicks = np.concatenate([so_far.clicks, event.clicks])
        rounds = np.append(so_far.rounds, len(clicks))
        counted = counted_labels(record, counts_abandoned)
        return record, PriorFeedback(clicks, rounds, counted, all_gains(record), _examined(record))
    record = replace(event, counted=so_far.counted)
    return record, replace(so_far, counted=counted_labels(record, counts_abandoned))


def all_gains(record: Feedback) -> Floats | None:
    """Gains of all clicks on the ranking so far, in the order of arrival; None if all are 1."""
    before, now = record.gains_before, record.gains
    if before is None and now is None:
        return None
    earlier = np.ones(len(_or_none(record.clicked_before))) if before is None else before
    latest = np.ones(len(_expected(record.clicks))) if now is None else now
    found = np.concatenate([earlier, latest])
    wrong = found.shape != (len(all_clicks(record)),) or found.dtype != np.float64
    if wrong or not ((found >= 0.0) & (found <= LARGEST_GAIN)).all():
        raise ValueError(f"gains: expected one from 0 to {LARGEST_GAIN:g} for each click")
    return found


def _examined(record: Feedback) -> Positions | None:
    """What each event so far said of the examined positions; None if none said anything."""
    before, now = record.examined_before, record.examined
    if before is None and now is None:
        return None
    earlier = np.zeros(len(_or_none(record.rounds)), np.int64) if before is None else before
    return np.concatenate([earlier, np.zeros(1, np.int64) if now is None else now])


def list_feedback(record: Feedback) -> list[ListFeedback]:
    """What had come of a list after each event on it; the last one is that of the record."""
    clicks, shown = all_clicks(record), len(record.documents)
    gains = all_gains(record)
    ends = as_positions(np.append(_or_none(record.rounds), len(clicks)), len(clicks) + 1)
    stated = _examined(record)
    stated = np.zeros(len(ends), np.int64) if stated is None else as_positions(stated, shown + 1)
    if len(stated) != len(ends):
        raise ValueError(f"examined: expected one number for each of {len(ends)} events")
    if (np.diff(ends) < 0).any():
        raise ValueError("rounds: expected ascending numbers of clicks")
    gains = np.ones(len(clicks)) if gains is None else gains
    found, start, grades, lasts = list[ListFeedback](), 0, np.zeros(shown), frozenset[int]()
    for end, deepest in zip(ends.tolist(), np.maximum.accumulate(stated).tolist(), strict=True):
        if end > start:
            grades = np.maximum(grades, grades_of(clicks[start:end], gains[start:end], shown))
            lasts = lasts | {int(clicks[end - 1])}
        found.append(ListFeedback(clicks[:end], grades, deepest, lasts))
        start = end
    return found


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
    """Labels that measure a ranking: as sent; gains of clicks; 1 if won more than lost."""
    count = len(record.documents)
    if record.kind == "labels":
        return as_labels(record.labels, count)
    if record.kind == "clicks":
        gains = all_gains(record)
        if gains is not None:
            return grades_of(all_clicks(record), gains, count)
        clicked = np.zeros(count)
        clicked[all_clicks(record)] = 1.0
        return clicked
    wins = np.bincount(as_positions(record.preferred, count), minlength=count)
    losses = np.bincount(as_positions(record.other, count), minlength=count)
    return (wins > losses).astype(np.float64)


def all_clicks(record: Feedback) -> Positions:
    """All clicks on the ranking so far, in the order of arrival."""
    before, now = _or_none(record.clicked_before), _expected(record.clicks)
    return as_positions(np.concatenate([before, now]), len(record.documents))


def _or_none(positions: Positions | None) -> Positions:
    """Return positions, an empty array if there are none."""
    return _NO_POSITIONS if positions is None else positions


def submitted_order(event: Feedback) -> Positions:
    """Return the documents of a ranking in the submitted order."""
    count = len(event.documents)
    if event.submitted is None:
        return np.arange(count)
    if event.submitted.shape != (count,):
        raise ValueError(
            f"submitted: expected {count} positions, got shape {event.submitted.shape}"
        )
    return event.submitted.argsort(kind="stable")


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
