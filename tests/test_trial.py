"""A trial of feedback: the bits of the reducer, and the outcome of each pair."""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.domain import codec
from app.domain.model import Model, ModelState, initial_state
from app.domain.model_config import new_model_config
from app.domain.records import Feedback, Replace
from app.domain.reducer import Reducer
from app.domain.trial import TRIED_PAIRS, model_after, run_trial, try_pairs
from app.errors import TrialFailed
from app.ranking import kernels
from app.ranking.tally import OUTCOMES
from app.serving import trial_runner
from app.serving.trial_runner import TrialRunner
from tests.servers import until

KINDS: list[dict[str, Any]] = [
    {"algorithm": "solar-i", "C": 0.5},
    {"covariance": "full", "gamma": 3.0},
    {"covariance": "diagonal", "gamma": 3.0},
]


def state(n: int = 5, **settings: Any) -> ModelState:
    """A model that has learnt from 15 rankings: the next one makes it forget."""
    config = new_model_config(tuple(f"f{k}" for k in range(n)), **settings)
    reducer = Reducer(initial_state(config))
    for seed in range(15):
        assert reducer.apply(codec.dump_record(clicks(n + 1, 6, [seed % 5 + 1], seed)))
    return reducer.state()


def clicks(n: int, count: int, clicked: list[int], seed: int = 99) -> Feedback:
    rng = np.random.default_rng(seed)
    rows = rng.random((count, n)).astype(np.float32)
    odds = np.append(rng.random(count), 0.5)
    positions = np.array(clicked, np.int64)
    return Feedback("e", "clicks", rows, submitted=rng.permutation(count), clicks=positions,
                    odds=odds)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("strategy", ["debiased", "click-skip-above"])
def test_a_trial_has_the_bits_of_the_reducer(kind: dict[str, Any], strategy: str) -> None:
    before = state(clicks=strategy, **kind)
    event = clicks(6, 8, [5, 2])
    reducer = Reducer(before)
    assert reducer.apply(codec.dump_record(event))
    expected, found = reducer.state(), codec.load_blob(run_trial(before.model, event), "trial")
    assert found.arrays["after"].tobytes() == expected.model.weights.tobytes()
    assert model_after(before.model, event).spread.tobytes() == expected.model.spread.tobytes()
    assert before.model.weights.tobytes() != expected.model.weights.tobytes()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_pairs_of_a_trial_have_the_outcomes_and_losses_that_the_reducer_counts(
    kind: dict[str, Any],
) -> None:
    before = state(clicks="click-skip-above", pair_bound=0.5, **kind)
    wide = replace(before.model, weights=before.model.weights * 1e3)  # some pairs are passive
    event = clicks(6, 12, [4, 9])
    reducer = Reducer(replace(before, model=wide))
    assert reducer.apply(codec.dump_record(event))
    now, was, pairs = reducer.state().measures(), before.measures(), try_pairs(wide, event)
    counted = {name: now[name] - was[name] for name in (*OUTCOMES, "squared_loss", "bounded")}
    outcomes = [OUTCOMES[one] for one in pairs.outcomes.tolist()]
    assert {name: outcomes.count(name) for name in OUTCOMES} == {
        name: counted[name] for name in OUTCOMES
    }
    assert {"passive", "stepped"} <= set(outcomes)
    losses = np.maximum(0.0, 1.0 - pairs.margins)
    assert float(losses @ losses) == pytest.approx(counted["squared_loss"], rel=1e-9)
    assert counted["bounded"] == (pairs.weights < 1.0).sum() > 0


def test_outcomes_are_named_in_the_order_of_the_kernels() -> None:
    assert OUTCOMES[kernels.PASSIVE] == "passive"
    assert OUTCOMES[kernels.STEPPED] == "stepped"
    assert OUTCOMES[kernels.REFUSED] == "refused"


def test_a_trial_lists_its_first_pairs_and_counts_all() -> None:
    model = state(clicks="click-skip-above").model
    event = clicks(6, 60, [50, 59])
    pairs = try_pairs(model, event)
    assert (len(pairs.preferred), pairs.total) == (TRIED_PAIRS, 50 + 58)
    first = try_pairs(model, event, 1)
    assert first.margins[0] == pairs.margins[0]


def test_a_trial_without_a_click_has_no_pairs_and_changes_nothing() -> None:
    model = state().model
    found = codec.load_blob(run_trial(model, clicks(6, 4, [])), "trial")
    assert found.fields["total"] == 0
    assert found.arrays["after"].tobytes() == model.weights.tobytes()


# ---- the process ----


def blobs(model: Model, event: Feedback) -> tuple[bytes, bytes]:
    return codec.dump_record(Replace(model, "what-if")), codec.dump_record(event)


def test_one_process_runs_trials_and_ends_when_it_is_idle() -> None:
    model, event = state().model, clicks(6, 8, [5])

    async def act() -> None:
        runner = TrialRunner(idle=0.2)
        for _ in range(3):
            assert await runner.run(*blobs(model, event)) == run_trial(model, event)
        pid = process_of(runner)
        assert await runner.run(*blobs(model, event)) == run_trial(model, event)
        assert process_of(runner) == pid
        async with asyncio.timeout(20.0):
            while runner._process is not None:
                await asyncio.sleep(0.05)
        until(lambda: is_gone(pid))

    asyncio.run(act())


def test_a_killed_process_fails_one_trial_and_the_next_one_runs() -> None:
    model, event = state().model, clicks(6, 8, [5])

    async def act() -> None:
        runner = TrialRunner()
        await runner.run(*blobs(model, event))
        os.kill(process_of(runner), signal.SIGSTOP)
        asked = asyncio.create_task(runner.run(*blobs(model, event)))
        await asyncio.sleep(0.1)
        os.kill(process_of(runner), signal.SIGKILL)
        with pytest.raises(TrialFailed):
            await asked
        assert await runner.run(*blobs(model, event)) == run_trial(model, event)
        os.kill(process_of(runner), signal.SIGKILL)
        until(runner._process.ended)  # type: ignore[union-attr]
        assert await runner.run(*blobs(model, event)) == run_trial(model, event)
        runner.close()

    asyncio.run(act())


def test_a_process_that_does_not_start_fails_one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    model, event = state().model, clicks(6, 8, [5])

    async def act() -> None:
        runner = TrialRunner()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/nowhere/python")
            with pytest.raises(TrialFailed):
                await runner.run(*blobs(model, event))
        assert await runner.run(*blobs(model, event)) == run_trial(model, event)
        runner.close()

    asyncio.run(act())


def test_a_cancelled_trial_ends_its_process() -> None:
    model, event = state().model, clicks(6, 8, [5])

    async def act() -> None:
        runner = TrialRunner()
        await runner.run(*blobs(model, event))
        pid = process_of(runner)
        os.kill(pid, signal.SIGSTOP)
        asked = asyncio.create_task(runner.run(*blobs(model, event)))
        await asyncio.sleep(0.1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert runner._process is None
        until(lambda: is_gone(pid))
        assert await runner.run(*blobs(model, event)) == run_trial(model, event)
        runner.close()

    asyncio.run(act())


def test_a_trial_waits_for_its_turn_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_runner, "TURN_SECONDS", 0.05)
    model, event = state().model, clicks(6, 8, [5])

    async def act() -> None:
        runner = TrialRunner()
        await runner.run(*blobs(model, event))
        pid = process_of(runner)
        os.kill(pid, signal.SIGSTOP)
        asked = asyncio.create_task(runner.run(*blobs(model, event)))
        await asyncio.sleep(0.01)
        with pytest.raises(TrialFailed):
            await runner.run(*blobs(model, event))
        os.kill(pid, signal.SIGCONT)
        assert await asked == run_trial(model, event)
        runner.close()

    asyncio.run(act())


def process_of(runner: TrialRunner) -> int:
    assert runner._process is not None
    return int(runner._process._process.pid)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
