"""Conversion of decoded bodies to candidates and feedback, with all limits; request ids."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from secrets import token_bytes
from time import time
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from app.api.schemas import (
    AnyEvent,
    AnyRankBody,
    BinaryRankBody,
    ClicksEvent,
    Document,
    Features,
    LabelsEvent,
    TripletsEvent,
)
from app.config import Settings
from app.domain import candidates
from app.domain.candidates import Candidates
from app.domain.impressions import Impression
from app.domain.model import Documents, Positions
from app.domain.model_config import ModelConfig
from app.domain.names import unknown_name
from app.domain.records import Feedback
from app.domain.work import label_pairs, pair_work
from app.errors import InvalidInput
from app.ranking.arrays import Floats
from app.ranking.clicks import CLASSICAL_STRATEGIES
from app.ranking.grades import grades_of
from app.ranking.limits import LEAST, LEAST_TRIPLET, MOST, MOST_TRIPLET
from app.serving.served_model import ServedModel

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_GENERATED_ID = re.compile(
    r"([A-Za-z0-9_-]{1,64})\.([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
MAX_FLOAT32 = float(np.finfo(np.float32).max)


def candidates_of(body: AnyRankBody, served: ServedModel, limits: Settings) -> Candidates:
    """Convert the documents of a body to the model's candidates; InvalidInput names the error."""
    n, bound = len(served.config.given), feature_bound(served.config, limits)
    if isinstance(body, BinaryRankBody):
        check_ids(body.ids, limits)
        return _candidates(body.ids, _raw_rows(body.features, len(body.ids), n, bound), served)
    if body.documents is not UNSET:
        if body.ids is not UNSET or body.features is not UNSET:
            raise InvalidInput("documents: expected either documents, or ids and features")
        return candidates_of_documents(body.documents, served, limits)
    if body.ids is UNSET or body.features is UNSET:
        raise InvalidInput("expected documents, or ids and features")
    if len(body.ids) != len(body.features):
        raise InvalidInput(f"features: expected {len(body.ids)} rows, got {len(body.features)}")
    check_ids(body.ids, limits)
    return _candidates(body.ids, _listed_rows(body.features, n, bound), served)


def candidates_of_documents(
    documents: Sequence[Document], served: ServedModel, limits: Settings
) -> Candidates:
    """Convert documents that are objects."""
    ids = [document.id for document in documents]
    check_ids(ids, limits)
    features = [document.features for document in documents]
    bound = feature_bound(served.config, limits)
    return _candidates(ids, feature_rows(features, served.config, bound), served)


def submitted_values(body: AnyRankBody, config: ModelConfig, limits: Settings) -> int:
    """Count the feature values that a body for a model gives, as below."""
    if not isinstance(body, BinaryRankBody) and body.documents is not UNSET:
        return feature_values(body.documents, config, limits)
    return len(body.ids) * len(config.features) if body.ids is not UNSET else 0


def feature_values(documents: Sequence[Document], config: ModelConfig, limits: Settings) -> int:
    """Count the values of documents, ramps included: an upper bound; above the limit exactly."""
    n = len(config.features)
    if len(documents) * n <= limits.numbers:
        return len(documents) * n
    more = len(config.columns) - len(config.given)
    return sum(len(one.features) + more if type(one.features) is list else n for one in documents)


def feature_bound(config: ModelConfig, limits: Settings) -> float:
    """Return the largest absolute value of a feature that the model accepts."""
    return limits.feature_bound if config.normalization == "none" else MAX_FLOAT32


def feature_rows(features: Sequence[Features], config: ModelConfig, bound: float) -> Documents:
    """Convert features, as lists or by name, to rows."""
    n = len(config.given)
    lists = [row for row in features if type(row) is list]
    if len(lists) == len(features):
        return _listed_rows(lists, n, bound)
    named = [row if isinstance(row, dict) else _named(at, row, config.given)
             for at, row in enumerate(features)]  # fmt: skip
    index = config.index
    return _in_parts(
        lambda start, end: candidates.by_name(named[start:end], index, start), len(named), n, bound
    )


def _candidates(ids: Sequence[str], rows: Documents, served: ServedModel) -> Candidates:
    config = served.config
    documents = candidates.normalized(
        rows, config.normalization, ordered=config.prior > 0.0, ramps=config.ramps
    )
    return Candidates(ids, documents)


def _in_parts(rows: Callable[[int, int], Floats], count: int, n: int, bound: float) -> Documents:
    """Build rows in parts, as their float64 values take twice the memory."""
    step = max(1, candidates.BLOCK // n)
    if count <= step:
        return candidates.rounded(rows(0, count), bound)
    documents = np.empty((count, n), np.float32)
    for start in range(0, count, step):
        end = min(count, start + step)
        documents[start:end] = candidates.rounded(rows(start, end), bound, start)
    return documents


def _listed_rows(features: Sequence[list[float]], n: int, bound: float) -> Documents:
    """Convert lists of floats to rows; InvalidInput names the first one of another width."""

    def rows(start: int, end: int) -> Floats:
        found = candidates.by_position(features[start:end], n)
        if found is None:
            at = next(at for at, row in enumerate(features) if len(row) != n)
            raise _wrong_width(at, n, len(features[at]))
        return found

    return _in_parts(rows, len(features), n, bound)


def _raw_rows(features: bytes, count: int, n: int, bound: float) -> Documents:
    if len(features) != 4 * n * count:
        raise InvalidInput(
            f"features: expected {4 * n * count} bytes, {count} rows of {n} float32, "
            f"got {len(features)}"
        )
    given: Documents = np.frombuffer(features, "<f4").reshape(count, n)
    with np.errstate(invalid="ignore"):  # a signalling NaN is refused, without a warning
        candidates.check_bound(given, bound)
    return given


def _named(at: int, row: list[float], names: Sequence[str]) -> dict[str, float]:
    if len(row) != len(names):
        raise _wrong_width(at, len(names), len(row))
    return dict(zip(names, row, strict=True))


def _wrong_width(at: int, expected: int, got: int) -> InvalidInput:
    return InvalidInput(f"documents[{at}].features: expected {expected} values, got {got}")


def check_ids(ids: Sequence[str], limits: Settings) -> None:
    """Raise InvalidInput unless the ids are unique, valid and within the limits."""
    if not 1 <= len(ids) <= limits.documents:
        raise InvalidInput(f"documents: expected 1 to {limits.documents}, got {len(ids)}")
    if len(set(ids)) != len(ids):
        raise InvalidInput("documents: expected unique ids")
    check_texts("documents[].id", ids, limits)


def check_texts(what: str, texts: Sequence[str], limits: Settings) -> None:
    """Raise InvalidInput if a text is too long or has control characters."""
    if max(map(len, texts), default=0) > limits.id_length:
        raise InvalidInput(f"{what}: expected at most {limits.id_length} characters")
    text = "".join(texts)
    if not text.isprintable() and _CONTROL.search(text):  # the first takes a tenth of the time
        raise InvalidInput(f"{what}: expected no control characters")


@dataclass(frozen=True, slots=True)
class FeedbackDecoder:
    """Converts events to feedback for a model; InvalidInput names the error in an event.

    With `clamps_examined` a depth below the last document is that of the last one.
    """

    served: ServedModel
    limits: Settings
    clamps_examined: bool = False

    def on_impression(self, event: AnyEvent, shown: Impression, source: str) -> Feedback:
        """Convert an event on a logged impression."""
        names = ("submitted", "odds", "swaps", "duel")
        about = {name: getattr(shown, name) for name in names}
        return self._feedback(event, shown, query=str(event.request_id), source=source, **about)

    def on_documents(self, event: AnyEvent, documents: Sequence[Document], source: str) -> Feedback:
        """Convert an event that carries its documents."""
        found = candidates_of_documents(documents, self.served, self.limits)
        own = Impression(tuple(found.ids), found.documents, np.zeros(0, np.int64))
        return self._feedback(event, own, query=event.query_id, source=source)

    def _feedback(self, event: AnyEvent, shown: Impression, **about: Any) -> Feedback:
        name, documents = event.event_id, shown.documents
        if isinstance(event, ClicksEvent):
            clicks, count = shown.positions(event.clicked), len(shown.ids)
            graded = self._graded(event, count)
            self._check_clicks(clicks, count, **graded)
            return Feedback(name, "clicks", documents, clicks=clicks, **graded, **about)
        if isinstance(event, LabelsEvent):
            labels = np.zeros(len(shown.ids))
            labels[shown.positions(list(event.labels))] = list(event.labels.values())
            self._check_pairs(label_pairs(labels.tolist()))
            return Feedback(name, "labels", documents, labels=labels, **about)
        return self._triplets(event, shown, **about)

    def _graded(self, event: ClicksEvent, shown: int) -> dict[str, Any]:
        """Return the gains of clicks and the number of examined positions, if they are given."""
        found: dict[str, Any] = {}
        if event.gains is not UNSET and event.gains:
            if not event.gains.keys() <= set(event.clicked):
                raise InvalidInput("gains: expected documents of clicked")
            gains = [self._gain(event.gains.get(name, 1.0)) for name in event.clicked]
            found["gains"] = np.array(gains)
        if event.examined is not UNSET:
            if event.examined > shown and not self.clamps_examined:
                raise InvalidInput(f"examined: expected at most {shown}, the number of documents")
            found["examined"] = np.array([min(event.examined, shown)])
        return found

    def _gain(self, given: float | str) -> float:
        """Return a gain, or that of an action by the model's table."""
        if not isinstance(given, str):
            return given
        actions = self.served.config.gains_of_actions
        if given not in actions:
            raise InvalidInput(f"gains: {unknown_name('action', given, list(actions))}")
        return actions[given]

    def _triplets(self, event: TripletsEvent, shown: Impression, **about: Any) -> Feedback:
        self._check_pairs(len(event.triplets))
        preferred = shown.positions([one.preferred for one in event.triplets])
        other = shown.positions([one.other for one in event.triplets])
        weights = np.array([one.weight for one in event.triplets], dtype=np.float64)
        self._check_weights(weights)
        if (preferred == other).any():
            raise InvalidInput("triplets: expected two different documents in each triplet")
        return Feedback(
            event.event_id, "triplets", shown.documents,
            preferred=preferred, other=other, weights=weights, **about,
        )  # fmt: skip

    def _check_weights(self, weights: Floats) -> None:
        """Refuse weights of triplets that the model does not accept."""
        unbounded = self.served.config.pair_bound is None
        least, most = (LEAST, MOST) if unbounded else (LEAST_TRIPLET, MOST_TRIPLET)
        wrong = ~((weights >= least) & (weights <= most))
        if wrong.any():
            at = int(wrong.argmax())
            raise InvalidInput(f"triplets[{at}]: expected a weight from {least:g} to {most:g}")

    def _check_clicks(
        self,
        clicks: Positions,
        shown: int,
        gains: Floats | None = None,
        examined: Positions | None = None,
    ) -> None:
        if len(clicks) > shown:
            raise InvalidInput(
                f"clicked: expected at most {shown} documents, each once, got {len(clicks)}"
            )
        if len(clicks) * shown <= self.most_pairs():
            return
        strategy, clicked = self.served.config.clicks, np.unique(clicks)
        deepest = 0 if examined is None else int(examined[0])
        if gains is not None:  # the pairs of all strategies: at most those of the grades
            self._check_pairs(label_pairs(grades_of(clicks, gains, shown).tolist()))
        elif strategy == "click-skip-above":  # counted without building: 240,000 pairs take 0.1 s
            self._check_pairs(int((clicked - np.arange(len(clicked))).sum()))
        elif strategy == "debiased":
            seen = min(shown, max(deepest, int(clicked[-1]) + 2))
            self._check_pairs(len(clicked) * (seen - len(clicked)))
        elif strategy in CLASSICAL_STRATEGIES:
            self._check_pairs(len(CLASSICAL_STRATEGIES[strategy](clicks.tolist(), shown)))

    def _check_pairs(self, count: int) -> None:
        if count > self.limits.pairs:
            raise InvalidInput(f"expected at most {self.limits.pairs} pairs, got {count}")
        most, n = self._pairs_by_work(), self.served.config.n
        if count > most:
            raise InvalidInput(
                f"expected at most {most} pairs of {n} features (SOLAR_BACKLOG_WORK), got {count}"
            )

    def most_pairs(self) -> int:
        """Return the number of pairs that an event may give."""
        return min(self.limits.pairs, self._pairs_by_work())

    def _pairs_by_work(self) -> int:
        """Return the number of pairs whose work may wait for the learner."""
        return int(self.limits.backlog_work) // pair_work(self.served.config)


def since_1970(moment: datetime | int | UnsetType) -> int | None:
    """Convert the time of an event to milliseconds since 1970; None if it has none.

    >>> since_1970(datetime.fromisoformat("1970-01-02T00:00:00Z")), since_1970(5)
    (86400000, 5)
    """
    if isinstance(moment, UnsetType):
        return None
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment


class RequestId(NamedTuple):
    """The parts of a generated request id."""

    model: str
    time: float  # seconds since 1970


def new_request_id(model: str) -> str:
    """Generate a request id `<model>.<uuid7>`, which names the model and the time."""
    drawn = token_bytes(10).hex()
    moment = f"{int(time() * 1000):012x}"
    variant = "89ab"[int(drawn[3], 16) & 3]
    return f"{model}.{moment[:8]}-{moment[8:]}-7{drawn[:3]}-{variant}{drawn[4:7]}-{drawn[8:]}"


def read_request_id(request: str) -> RequestId | None:
    """Read a generated request id; None for any other id.

    >>> read_request_id(new_request_id("books")).model
    'books'
    >>> read_request_id("my-own.id")
    """
    parts = _GENERATED_ID.fullmatch(request)
    if parts is None:
        return None
    return RequestId(parts[1], int(parts[2] + parts[3], 16) / 1000)
