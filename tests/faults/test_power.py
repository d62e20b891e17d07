"""Power cuts: whatever was not synced to the disk is gone."""

import asyncio
from pathlib import Path

import pytest

from app.storage.keys import Keys
from tests.faults import rounds
from tests.faults.fleet import Crowd, Onlooker, account, fed, noticed, onlooker
from tests.faults.invented import MODEL, new_model
from tests.faults.learners import LearnerProcesses
from tests.faults.power import COMPILER, Mains, shim
from tests.faults.scene import opened, play
from tests.faults.waiting import until

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler to note syncs with")


@needs_compiler
@pytest.mark.parametrize(("level", "fsync"), [("fsync", "always"), ("local", "everysec")])
def test_a_power_cut_loses_nothing_that_is_synced_and_what_it_loses_is_counted(
    level: str, fsync: str, pool: LearnerProcesses, tmp_path: Path
) -> None:
    node = Mains(tmp_path / "node", shim(tmp_path), appendfsync=fsync)

    async def one_cut(crowd: Crowd, seen: Onlooker) -> int:
        """Cut it when much of what was just posted is served; what is gone is missed."""
        await fed(crowd)
        await until(seen.serves_more_than(tail() + 50), "50 more records are served")
        served, before = seen.weight_cache.serving[MODEL].version, seen.backwards
        gone = await asyncio.to_thread(node.cut_power)
        await asyncio.to_thread(node.start)
        if rolled_back := served > tail():
            await noticed(seen, before + 1)
        assert not (rolled_back and fsync == "always")
        return gone

    async def synced() -> bool:
        return node.unsynced() == 0

    def tail() -> int:
        return int(node.client.get(Keys(MODEL).seq) or 0)

    async def scene() -> None:
        async with opened(node.url) as store:
            crowd = Crowd(node.url, level, await new_model(store), pause=0.01)
            await until(synced, "the model itself is on the disk")
            pool.hire(node.url)
            async with onlooker(node.url) as seen, crowd:
                gone = sum([await one_cut(crowd, seen) for _ in range(rounds(2))])
            title = f"power cut, `appendfsync {fsync}`"
            found = await account(node.url, [crowd], title, rounds(2), seen.ranked)
            print(f"\n{title}: {gone:,} bytes gone, seen to go back {seen.backwards} times")  # noqa: T201
            if fsync == "always":
                assert found[level].lost == seen.backwards == 0
            else:
                assert gone
                assert found[level].lost

    try:
        node.start()
        play(scene(), 60 + 30 * rounds(2))
    finally:
        node.kill()
        node.client.close()
