"""The work of a record: what it costs the learner, in units of about 0.1 ns.

A pair costs n² + 200 units with a full covariance, else 8·n + 200: by measurement an entry of the
covariance takes 0.09 to 0.12 ns, a feature of a pair without one 0.5 to 1.2 ns, and a pair of two
features 24 ns. Pure.
"""

from collections import Counter

from app.domain.model_config import ModelConfig
from app.domain.records import Feedback

#: Work of any record: reading, decoding, measures, its share of a commit; about 0.1 ms.
RECORD_WORK = 1_000_000
#: Work of each feature value of a record's documents: reading, hashing, measures.
VALUE_WORK = 60
#: Work of each pair of a clicked and an unclicked document, before it is learnt: to make it, and to
#: compare it with the pairs of earlier events; by measurement 0.5 and 1.5 µs on 1,000 documents.
CLICKED_WORK, COMPARED_WORK = 5_000, 15_000
_LINEAR, _EACH_PAIR = 8, 200


def pair_work(config: ModelConfig) -> int:
    """Return the work of one pair.

    >>> pair_work(ModelConfig(("a", "b", "c"))), pair_work(ModelConfig(("a",), algorithm="solar-i"))
    (209, 208)
    """
    full, n = config.algorithm == "solar-ii" and config.covariance == "full", len(config.features)
    return _EACH_PAIR + n * (n if full else _LINEAR)


def record_work(record: Feedback, of_pair: int) -> int:
    """Return the work of a record; `of_pair` is the work of one pair."""
    values = record.documents.size * VALUE_WORK
    return RECORD_WORK + values + most_pairs(record) * of_pair + _work_of_clicks(record)


def most_pairs(record: Feedback) -> int:
    """Return the number of pairs; of clicks an upper bound for every click strategy.

    A new click is preferred to each document without a click. A click below all earlier ones shows
    that the documents between were seen: the earlier clicks are then preferred to them, too.
    """
    if record.kind == "triplets":
        return 0 if record.preferred is None else len(record.preferred)
    if record.kind == "labels":
        return 0 if record.labels is None else label_pairs(record.labels.tolist())
    now, before = _clicks(record)
    unclicked = len(record.documents) - len(now | before)
    seen = max(0, max(now) - max(before)) if now and before else 0
    return len(now) * unclicked + len(before - now) * min(seen, unclicked)


def label_pairs(labels: list[float]) -> int:
    """Count the pairs of documents with different labels.

    >>> label_pairs([2.0, 0.0, 0.0, 1.0])
    5
    """
    return (len(labels) ** 2 - sum(many * many for many in Counter(labels).values())) // 2


def _clicks(record: Feedback) -> tuple[set[int], set[int]]:
    """Return the positions clicked in this record, and in earlier ones on the ranking."""
    now, before = record.clicks, record.clicked_before
    return (
        set() if now is None else set(now.tolist()),
        set() if before is None else set(before.tolist()),
    )


def _work_of_clicks(record: Feedback) -> int:
    """Return the work to make the pairs of all clicks so far, and to find the new ones.

    One strategy compares with one document of each earlier event, the others with all clicks.
    """
    if record.kind != "clicks":
        return 0
    now, before = _clicks(record)
    clicked, events = len(now | before), 0 if record.rounds is None else len(record.rounds)
    compared = max(clicked, events) if events else 0
    each = clicked * CLICKED_WORK + compared * COMPARED_WORK
    return each * (len(record.documents) - clicked)
