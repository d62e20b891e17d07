"""Followers and duels by both clients, against a real service."""

import asyncio
from collections.abc import Iterator

import pytest
from solar_client import AsyncSolar, Conflict, NotFound, Refused, Solar

from tests.api.duels import STILL, documents
from tests.api.services import Running, serving
from tests.servers import TIMEOUT

FEATURES = ["good", "noise"]
SETTINGS = {name: value for name, value in STILL.items() if name != "features"}


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture
def solar(service: Running) -> Iterator[Solar]:
    with Solar(service.url) as client:
        yield client


def test_followers_are_created_listed_and_deleted(solar: Solar) -> None:
    solar.create_model("shop", FEATURES, **SETTINGS)
    made = solar.create_follower("shop-b", "shop", gamma=2.0, start_at="oldest", cold=True)
    assert (made.follows, made.gamma, made.lag, made.stalled) == ("shop", 2.0, 0, False)
    assert solar.create_follower("shop-b", "shop", gamma=2.0).gamma == 2.0
    bank = solar.create_followers("shop", {"gamma": (5.0, 6.0)}, start_at=0)
    assert [(one.name, one.gamma) for one in bank] == [("shop-gamma5", 5.0), ("shop-gamma6", 6.0)]
    assert [one.name for one in solar.list_followers("shop")] == [
        "shop-b", "shop-gamma5", "shop-gamma6",
    ]  # fmt: skip
    listed = {one.name: one.follows for one in solar.list_models()}
    assert (listed["shop"], listed["shop-b"]) == (None, "shop")
    assert solar.get_model("shop").follows is None
    with pytest.raises(Refused):
        solar.create_follower("other", "missing")
    with pytest.raises(Conflict):
        solar.delete_model("shop")
    solar.delete_model("shop-b")
    solar.delete_model("shop", followers=True)
    with pytest.raises(NotFound):
        solar.get_model("shop-gamma5")


def test_a_duel_is_begun_read_and_ended(solar: Solar) -> None:
    solar.create_model("duels", FEATURES, **SETTINGS)
    solar.create_follower("duels-b", "duels", gamma=2.0)
    with pytest.raises(NotFound):
        solar.get_duel("duels")
    begun = solar.begin_duel("duels", "duels-b", share=0.5, alpha=0.01)
    assert (begun.challenger, begun.share, begun.alpha, begun.ended) == ("duels-b", 0.5, 0.01, None)
    assert (begun.verdict, begun.interval, begun.win_share) == ("undecided", (0.0, 1.0), None)
    rankings = [
        solar.rank(documents(seed), model="duels", request_id=f"r{seed}", timeout=TIMEOUT)
        for seed in range(40)
    ]
    assert {ranking.duel for ranking in rankings} == {True, False}
    listed = {one.name: one.duel for one in solar.list_models()}
    assert listed["duels"] is not None
    assert (listed["duels"].verdict, listed["duels"].ended) == ("undecided", False)
    with pytest.raises(Conflict):
        solar.begin_duel("duels", "submitted")
    with pytest.raises(Conflict):
        solar.delete_model("duels-b")
    ended = solar.end_duel("duels").ended
    assert ended is not None
    assert ended.why == "ended"
    assert solar.get_duel("duels").ended == ended
    assert solar.begin_duel("duels", 0).challenger == {"version": 0}
    solar.end_duel("duels")
    tournament = solar.begin_duel("duels", "followers", max_lists=100, promote=True).tournament
    assert tournament is not None
    assert (tournament.followers, tournament.promote, tournament.ahead) == (
        ["duels-b"], True, "duels",
    )  # fmt: skip
    assert [one.challenger for one in tournament.table] == ["duels-b"]


def test_the_client_for_asyncio_has_the_same_calls(service: Running) -> None:
    async def run() -> None:
        async with AsyncSolar(service.url) as solar:
            await solar.create_model("async", FEATURES, **SETTINGS)
            made = await solar.create_follower("async-b", "async", gamma=2.0)
            assert made.follows == "async"
            [one] = await solar.create_followers("async", {"gamma": [3.0]}, cold=True)
            assert one.name == "async-gamma3"
            assert len(await solar.list_followers("async")) == 2
            begun = await solar.begin_duel("async", "async-b", share=0.1)
            assert (await solar.get_duel("async")).id == begun.id
            with pytest.raises(Conflict):
                await solar.promote("async")
            with pytest.raises(Conflict, match="async-b would be promoted"):
                await solar.promote("async", force=True, challenger=0)
            seq = await solar.promote("async", force=True, duel=begun.id)
            assert seq == begun.id + 1
            await solar.rank(documents(1), model="async", min_seq=seq, timeout=TIMEOUT)
            assert (await solar.get_duel("async")).ended is not None
            await solar.delete_model("async", followers=True)

    asyncio.run(run())


def test_a_challenger_is_promoted(solar: Solar) -> None:
    solar.create_model("promoted", FEATURES, **SETTINGS)
    solar.create_follower("promoted-b", "promoted", gamma=2.0)
    begun = solar.begin_duel("promoted", "promoted-b")
    with pytest.raises(Conflict):
        solar.promote("promoted")
    for challenger, duel in (("promoted-c", None), (0, None), (None, begun.id + 1)):
        with pytest.raises(Conflict, match="GET"):
            solar.promote("promoted", force=True, challenger=challenger, duel=duel)
    seq = solar.promote("promoted", force=True, challenger="promoted-b", duel=begun.id)
    assert seq > begun.id
    assert solar.rank(documents(1), model="promoted", min_seq=seq, timeout=TIMEOUT).ids
    assert solar.get_model("promoted").gamma == 2.0
