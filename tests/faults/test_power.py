"""Power cuts: unsynced data are lost."""

import asyncio
from pathlib import Path

import pytest

from app.storage.keys import Keys
from tests.faults import rounds
from tests.faults.event_generator import MODEL, new_model
from tests.faults.fleet import (
    Clients,
    ReplicaObserver,
    count_losses,
    fed,
    noticed,
    observed_replica,
)
from tests.faults.learners import LearnerProcesses
from tests.faults.observed_model import opened, run_scenario
from tests.faults.power import COMPILER, PowerCutNode, shim
from tests.faults.waiting import until

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler to note syncs with")


@needs_compiler
@pytest.mark.parametrize(("level", "fsync"), [("fsync", "always"), ("local", "everysec")])
def test_a_power_cut_loses_no_synced_event_and_other_losses_are_counted(
    level: str, fsync: str, pool: LearnerProcesses, tmp_path: Path
) -> None:
    node = PowerCutNode(tmp_path / "node", shim(tmp_path), appendfsync=fsync)

    async def one_cut(group: Clients, seen: ReplicaObserver) -> int:
        """Cut the power when unsynced records are served, so that the loss is noticed."""
        await fed(group)
        await until(seen.serves_more_than(tail() + 50), "50 more records are served")
        served, before = seen.weight_cache.serving[MODEL].version, seen.backwards
        lost_bytes = await asyncio.to_thread(node.cut_power)
        await asyncio.to_thread(node.start)
        if rolled_back := served > tail():
            await noticed(seen, before + 1)
        assert not (rolled_back and fsync == "always")
        return lost_bytes

    async def synced() -> bool:
        return node.unsynced() == 0

    def tail() -> int:
        return int(node.client.get(Keys(MODEL).seq) or 0)

    async def scenario() -> None:
        async with opened(node.url) as store:
            group = Clients(node.url, level, await new_model(store), pause=0.01)
            await until(synced, "the model itself is on the disk")
            pool.start(node.url)
            async with observed_replica(node.url) as seen, group:
                lost_bytes = sum([await one_cut(group, seen) for _ in range(rounds(2))])
            title = f"power cut, `appendfsync {fsync}`"
            found = await count_losses(node.url, [group], title, rounds(2), seen.ranked)
            print(f"\n{title}: {lost_bytes:,} bytes lost, rollback noticed {seen.backwards} times")  # noqa: T201
            if fsync == "always":
                assert found[level].lost == seen.backwards == 0
            else:
                assert lost_bytes
                assert found[level].lost

    try:
        node.start()
        run_scenario(scenario(), 60 + 30 * rounds(2))
    finally:
        node.kill()
        node.client.close()
