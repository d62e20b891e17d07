"""The work of a record: what it costs the learner, in units of about 0.1 ns.

A pair costs n² + 200 units with a full covariance, else 8·n + 200: by measurement an entry of the
covariance takes 0.09 to 0.12 ns, a feature of a pair without one 0.5 to 1.2 ns, and a pair of two
features 24 ns. Pure.
"""

from collections import Counter

import numpy as np

from app.domain.impressions import list_feedback
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, is_graded
from app.ranking.arrays import Floats
from app.ranking.grades import ListFeedback

#: Work of any record: reading, decoding, measures, its share of a commit; about 0.1 ms.
RECORD_WORK = 1_000_000
#: Work of each feature value of a record's documents: reading, hashing, measures.
VALUE_WORK = 60
#: Work of making each pair of clicks on a ranking, earlier clicks included; and of its weight, for
#: each document of the ranking.
CLICKED_WORK, CLICKED_WORK_OF_DOCUMENT = 4_000, 8
#: Work of each event on a ranking with gains; of comparing one pair with it; and of each document.
GRADED_WORK, COMPARED_WORK, GRADED_WORK_OF_DOCUMENT = 300_000, 250, 40
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
    return RECORD_WORK + values + most_pairs(record) * of_pair + _clicked_work(record)


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
    if is_graded(record):  # any pair with a clicked document may have grown
        return len(now | before) * len(record.documents)
    unclicked = len(record.documents) - len(now | before)
    seen = max(0, max(now) - max(before)) if now and before else 0
    return len(now) * unclicked + len(before - now) * min(seen, unclicked)


def most_new_pairs(record: Feedback, strategy: str) -> int:
    """Return the number of pairs that clicks teach in a reading, with what came before them.

    A pair grows if its clicked document got a higher grade, or if the other one was seen only now.
    An upper bound with gains, otherwise exact but for pinned documents.
    """
    *earlier, now = list_feedback(record)
    shown, grades = len(record.documents), now.grades
    if strategy not in ("click-skip-above", "last-click-skip-above", "debiased"):
        return shown  # at most one for each document
    before = earlier[-1] if earlier else ListFeedback(now.clicks[:0], np.zeros(shown))
    grown = np.flatnonzero(grades > before.grades)
    if strategy != "debiased":
        if strategy == "last-click-skip-above":
            grown_last = now.lasts & {*grown.tolist()} | now.lasts - before.lasts
            grown = np.array(sorted(grown_last), np.int64)
        return sum(int((grades[:at] < grades[at]).sum()) for at in grown.tolist())
    seen, seen_before = _seen(now), _seen(before)
    newly = np.flatnonzero((grades > 0.0) & (grades == before.grades))
    return _lower(grades[:seen], grades[grown]) + _lower(grades[seen_before:seen], grades[newly])


def _seen(found: ListFeedback) -> int:
    """Return how many documents count as seen by debiased clicks."""
    last = int(found.clicks.max(initial=-2))
    return max(found.examined, last + 2) if last >= 0 else 0


def _lower(some: Floats, than: Floats) -> int:
    """Count the pairs of a value and a smaller one.

    >>> _lower(np.array([0.0, 2.0, 1.0]), np.array([1.0, 2.0]))
    3
    """
    return int(np.searchsorted(np.sort(some), than).sum())


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


def _clicked_work(record: Feedback) -> int:
    """Return the work of making the pairs of all clicks on the ranking so far, known ones too."""
    now, before = _clicks(record)
    clicked, documents = len(now | before), len(record.documents)
    each = CLICKED_WORK + CLICKED_WORK_OF_DOCUMENT * documents
    if is_graded(record):  # the pairs are compared with what had come after each earlier event
        events = 1 if record.rounds is None else len(record.rounds) + 1
        of_event = GRADED_WORK + GRADED_WORK_OF_DOCUMENT * documents
        compared = clicked * documents * COMPARED_WORK
        return events * (of_event + compared) + clicked * documents * each
    return clicked * (documents - clicked) * each
