"""The learner reports a covariance whose trace falls by half within 100 records."""

from collections.abc import Iterable

import numpy as np
import pytest

from app.domain import codec
from app.domain.facts import TraceHalved
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.records import Feedback, Record, Replace, Retune
from app.domain.reducer import Reducer
from app.learning.options import Fact
from app.learning.trace_watch import EVERY, WINDOW, TraceWatch
from app.storage.store import Store
from tests.servers import server, url, with_store
from tests.test_bounds import NAMES, N, forged, honest
from tests.test_learner import SHORT_INTERVALS, append, committed, learning

__all__ = ["server", "url"]  # fixtures

UNBOUNDED = ModelConfig(NAMES)
TRUTH = np.random.default_rng(5).normal(size=N)


def events(count: int, seed: int = 6) -> list[Feedback]:
    return list(honest(np.random.default_rng(seed), TRUTH, count))


def reported(config: ModelConfig, records: Iterable[Record]) -> list[int]:
    """The records at which the watch reports."""
    reducer = Reducer(initial_state(config))
    watch = TraceWatch("m", reducer)
    for record in records:
        reducer.apply(codec.dump_record(record))
        watch.watch()
    return [fact.seq for fact in watch.found()]


def test_an_attack_on_a_model_without_a_bound_is_reported_once() -> None:
    attacked = [*events(57), forged(1.0, 1e12), *events(200, 7)]
    assert reported(UNBOUNDED, attacked) == [60]


def test_one_attack_on_a_bounded_model_is_not_reported() -> None:
    config = new_model_config(NAMES, prior=0.0)
    assert reported(config, [*events(57), forged(1e4, 20.0), *events(200, 7)]) == []


def test_a_flood_of_pairs_at_the_bound_is_reported() -> None:
    config = new_model_config(NAMES, prior=0.0, pair_bound=20.0 * N)
    assert reported(config, [forged(1e4, 20.0)] * WINDOW) != []


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_honest_learning_is_not_reported(kind: str) -> None:
    config = new_model_config(NAMES, prior=0.0, covariance=kind)
    assert reported(config, events(1_000)) == []


def test_a_slow_fall_is_not_reported() -> None:
    """Each record takes 0.5 % of the variance: half of it only after 139 records."""
    step = Feedback(
        "e", "triplets", np.array([[1.0], [0.0]], np.float32), preferred=np.array([0]),
        other=np.array([1]), weights=np.array([1.0]),
    )  # fmt: skip

    def falling(gamma: float) -> list[int]:
        config = ModelConfig(("a",), gamma=gamma)
        return reported(config, [Retune(gamma=gamma), *[step] * (2 * WINDOW)])

    assert falling(2.0 * WINDOW) == []
    assert falling(WINDOW / 2.0) != []


def test_the_window_restarts_with_new_settings_and_with_a_new_model() -> None:
    small = Reducer(initial_state(UNBOUNDED))
    small.apply(codec.dump_record(forged(1.0, 1e12)))
    replacement = Replace(small.state().model, "rollback to version 1")
    assert reported(UNBOUNDED, [*events(57), replacement, *events(100, 7)]) == []
    attacked = [*events(EVERY + 1), forged(1.0, 1e12)]  # retuned before the next look
    assert reported(UNBOUNDED, [*attacked, Retune(gamma=1e5), *events(100, 7)]) == []


def test_solar_i_has_no_trace_and_no_report() -> None:
    config = ModelConfig(NAMES, "solar-i")
    assert reported(config, [*events(20), forged(1.0, 1e12), *events(100, 7)]) == []


def test_a_learner_reports_the_record_and_logs_it(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = [*events(14), forged(1.0, 1e12), *events(25, 7)]
    facts: list[Fact] = []

    async def act(store: Store) -> None:
        await store.models.create("books", initial_state(UNBOUNDED))
        await append(store, [codec.dump_record(record) for record in records])
        async with learning(store, SHORT_INTERVALS, facts.append):
            await committed(store, len(records))

    with_store(url, act)
    assert [fact for fact in facts if isinstance(fact, TraceHalved)] == [TraceHalved("books", 20)]
    message = "model books: the trace of the covariance fell by half within 100 records, up to 20"
    assert message in caplog.messages
