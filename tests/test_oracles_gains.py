"""The naive oracle of lists gives what the app learns of them, and tells when that is wrong."""

import numpy as np
import pytest

from app.domain.click_pairs import ClickPairs
from app.domain.impressions import Impression, PriorFeedback, on_request
from app.domain.records import Feedback
from app.ranking import graded
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.serving import PINNED
from tests.faults.event_generator import SETTINGS, EventGenerator
from tests.oracles_gains import OracleLists, carried_by, same_pairs

SHOWN, EVENTS = 10, 8
SWAPS = np.array([[0, 1], [2, 0], [5, 1], [8, 0]])


def visited_list(seed: int, strategy: str) -> list[Feedback]:
    """Return the records of generated visits to one list; each agrees with the oracle."""
    rng, generator = np.random.default_rng(seed), EventGenerator(seed)
    odds, documents = rng.random(SHOWN + 1), rng.random((SHOWN, 8)).astype(np.float32)
    odds[3] = PINNED
    fair = strategy == "fair-pairs"
    about = (None, SWAPS) if fair else (odds, None)
    order = np.arange(SHOWN)
    generator.rankings["r"] = Impression(tuple(map(str, order)), documents, order, *about)
    so_far, found, lists = PriorFeedback.load(b""), list[Feedback](), OracleLists()
    for _ in range(EVENTS):
        record, so_far = on_request(generator.click("r").feedback, so_far, True)
        assert lists.take("r", record, SETTINGS) == ""
        found.append(record)
        assert carried_by(so_far.dump()) == lists["r"].carried(True)
        pairs = ClickPairs(record, 1.0).new_pairs(strategy)
        assert same_pairs(pairs, lists["r"].pairs(record, strategy, 1.0))
    return found


@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
def test_the_oracle_gives_the_bits_of_the_pairs_of_the_app(strategy: str) -> None:
    records = [one for seed in range(30) for one in visited_list(seed, strategy)]
    assert sum(one.gains is not None for one in records) > 20
    assert sum(one.examined is not None for one in records) > 20


def test_the_oracle_finds_a_repetition_that_is_learnt_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = graded.new_pairs
    monkeypatch.setattr(graded, "new_pairs", lambda found, _, reading: right(found, [], reading))
    with pytest.raises(AssertionError):
        visited_list(1, "debiased")


def test_the_oracle_finds_a_record_that_carries_no_gains_of_earlier_clicks() -> None:
    first, *_ = visited_list(1, "debiased")
    lists = OracleLists()
    for _ in range(2):
        differs = lists.take("r", first, SETTINGS)
    assert "carries" in differs
