"""Checks of the lists of a log: what came of each, how long it lives, and what was learnt of it.

All is compared with a naive oracle that reads only what clients sent (`tests/oracles_gains.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.domain import codec
from app.domain.click_pairs import ClickPairs
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from tests.faults.event_generator import VISITS
from tests.oracles_gains import OracleLists, as_triplets, carried_by, same_pairs

if TYPE_CHECKING:
    from app.domain.model import Model
    from tests.faults.checker import StoredModel


def check_lists(found: StoredModel, left: float = VISITS.ordinary) -> None:
    """I5, I26: check what is known of each list, and that clicked lists live longer than `left`.

    A purchase may come late: the list of a click must still be there.
    """
    config, lists = found.start.model.config, OracleLists()
    for record in found.feedback().values():
        if record.kind == "clicks" and record.submitted is not None:
            differs = lists.take(record.query, record, config, found.start.seq == 0)
            assert not differs, differs
    for request in lists:
        kept, lives = found.lists[request]
        assert carried_by(kept) == lists[request].carried(config.counts_abandoned)
        if lists[request].now.clicks:
            assert lives > left * 1000, f"{request} is not remembered longer"


def check_learnt(found: StoredModel, learnt_model: Model) -> None:
    """I26: check that the same bits follow from triplets: the pairs of lists by a naive oracle.

    So a repetition teaches nothing, and a late purchase the increase only.
    """
    reducer, lists = Reducer(found.start, follows=found.follows), OracleLists()
    for blob in found.records.values():
        record = codec.load_record(blob)
        if isinstance(record, Feedback) and record.kind == "clicks":
            settings = reducer.config
            lists.take(record.query, record, settings, found.start.seq == 0)
            pairs = lists[record.query].pairs(record, settings.clicks, settings.kappa)
            if settings.pair_bound is None:
                reducer.apply(codec.dump_record(as_triplets(record, pairs)))
                continue
            clicks = ClickPairs(record, settings.kappa)  # triplets are bounded without `before`
            assert same_pairs(clicks.new_pairs(settings.clicks), pairs)
            reducer.apply(blob)
        else:
            reducer.apply(blob)
    slow = reducer.state().model
    assert slow.weights.tobytes() == learnt_model.weights.tobytes()
    assert slow.spread.tobytes() == learnt_model.spread.tobytes()
    assert slow.certainty == learnt_model.certainty
