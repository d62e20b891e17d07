"""Power cuts: whatever was not synced to the disk is gone."""

import asyncio
from pathlib import Path

import pytest

from tests.faults import rounds
from tests.faults.fleet import Crowd, account, fed, onlooker
from tests.faults.invented import new_model
from tests.faults.learners import Staff
from tests.faults.power import COMPILER, Mains, shim
from tests.faults.scene import opened, play
from tests.faults.waiting import until

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler to note syncs with")


@needs_compiler
@pytest.mark.parametrize(("level", "fsync"), [("fsync", "always"), ("local", "everysec")])
def test_a_power_cut_loses_nothing_that_is_synced_and_what_it_loses_is_counted(
    level: str, fsync: str, staff: Staff, tmp_path: Path
) -> None:
    node = Mains(tmp_path / "node", shim(tmp_path), appendfsync=fsync)

    async def one_cut(crowd: Crowd) -> int:
        await fed(crowd, by=100)
        gone = await asyncio.to_thread(node.cut_power)
        await asyncio.to_thread(node.start)
        await fed(crowd)
        return gone

    async def scene() -> None:
        async with opened(node.url) as store:
            crowd = Crowd(node.url, level, await new_model(store), pause=0.01)
            staff.hire(node.url)
            async with onlooker(node.url) as seen, crowd:
                await until(seen.serves_more_than(0), "something is learnt")
                gone = sum([await one_cut(crowd) for _ in range(rounds(2))])
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
