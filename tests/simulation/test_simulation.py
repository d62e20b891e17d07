"""Two hundred simulated seeds; `docs/reliability.md` lists their findings."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoScriptError

from app.errors import Unavailable
from app.storage.log import REPEATED, AppendResult, NewRecord
from app.storage.store import Store
from tests.faults.event_generator import MODEL, new_model
from tests.simulation.client import Client
from tests.simulation.clockwork import SimulatedLoop, run
from tests.simulation.scripts import BY_DIGEST
from tests.simulation.server import LEVELS, Call, Level, Server, Step
from tests.simulation.world import play

SEEDS, CHUNK = 200, 10
#: Seeds that `make test` plays; `make test-slow` plays the others.
FIRST_SEEDS = 40
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(start, marks=[] if start < FIRST_SEEDS else pytest.mark.slow)
        for start in range(0, SEEDS, CHUNK)
    ],
)
def test_all_invariants_hold_for_every_seed(start: int) -> None:
    for seed in range(start, start + CHUNK):
        play(seed)


@pytest.mark.slow
def test_faults_lose_acknowledged_events_at_level_local_and_none_at_level_replicated() -> None:
    """Losses at `local` show that faults happen; `play` counts all losses exactly."""
    lost = dict.fromkeys(LEVELS, 0)
    for seed in range(30):
        outcome = play(seed)
        lost[outcome.level] += outcome.lost
    assert lost["local"] > 0
    assert lost["replicated"] == 0


def simulated(*words: str) -> list[str]:
    """Return the output of `make simulate`."""
    command = [sys.executable, "-m", "tests.simulation", *words]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    *trace, summary = simulated("--seed", "7")
    assert trace == list(play(7).trace)
    assert summary.startswith("seed 7: ")


def test_many_seeds_run_in_parallel() -> None:
    assert simulated("--seeds", "3", "--start", "5")[-1].startswith("3 seeds, 0 failed")


# ---- losses of a server ----


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("level", "left"), [("local", b"1"), ("fsync", b"3"), ("replicated", b"3")]
)
def test_a_power_cut_loses_unsynced_writes(level: Level, left: bytes) -> None:
    clock = Clock()
    server = Server(clock, level)
    for seconds in (0.0, 1.5, 0.1):
        clock.now += seconds
        server.execute(Call("incr", ("count",)))
    server.cut_power()
    server.start()
    assert server.execute(Call("get", ("count",))) == left


@pytest.mark.parametrize("level", LEVELS)
def test_a_failover_loses_writes_that_the_replica_lacks(level: Level) -> None:
    server, lost = Server(Clock(), level), list[Step]()
    server.watcher.lost = lost.extend
    server.execute(Call("incr", ("count",)))
    server.stall(True)
    server.execute(Call("incr", ("count",)))
    server.fail_over()
    server.start()
    assert server.execute(Call("get", ("count",))) == b"1"
    assert [step.call.name for step in lost] == ["incr"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_restart_after_a_kill_loses_nothing(level: Level) -> None:
    server = Server(Clock(), level)
    server.execute(Call("incr", ("count",)))
    server.stop()
    server.start()
    assert server.execute(Call("get", ("count",))) == b"1"


def test_an_event_that_the_replica_lacks_is_not_acknowledged_even_when_repeated() -> None:
    """Uses the store's WAIT: a repeated event writes only a mark."""

    async def act(loop: SimulatedLoop) -> None:
        server = Server(loop.time, "replicated")
        client_double: Any = Client(server)
        store = Store(client_double, "replicated")
        epoch, events = await new_model(store), [NewRecord("e", b"body", b"record")]

        async def append() -> list[AppendResult]:
            return await store.log.append(MODEL, epoch, events, limit=10, time=0)

        server.stall(True)
        for _ in range(2):
            with pytest.raises(Unavailable, match="not yet on a replica"):
                await append()
        assert await store.log.tail(MODEL) == 1
        server.stall(False)
        assert await append() == [(REPEATED, 1)]

    run(act)


def test_a_restarted_server_has_no_scripts_until_they_are_loaded() -> None:
    async def act(loop: SimulatedLoop) -> None:
        server = Server(loop.time)
        client: Any = Client(server)
        await new_model(Store(client))
        [digest] = [digest for digest, name in BY_DIGEST.items() if name == "release"]
        server.stop()
        server.start()
        with pytest.raises(NoScriptError):
            await client.together("key", ("EVALSHA", digest, 1, "key", 1))
        await Store(client).leases.release(MODEL, 1)
        assert await client.together("key", ("EVALSHA", digest, 1, "key", 1)) == [0]

    run(act)


def test_a_client_has_only_redis_commands() -> None:
    with pytest.raises(AttributeError):
        _ = Client(Server(Clock())).nonsense
