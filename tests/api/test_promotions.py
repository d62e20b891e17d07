"""Promotions and tournaments over HTTP: a challenger that has won takes the place of its leader."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import httpx
import pytest

from app.domain import codec
from app.domain.duels import Duel, Tournament
from app.domain.followers import promoted_config
from app.domain.records import Feedback, Replace
from app.domain.reducer import Reducer
from app.storage.keys import internal_event, keys_of
from app.storage.log import NewRecord
from app.storage.store import Store
from tests.api.duels import (
    EVENTS,
    STILL,
    call,
    documents,
    ids,
    nothing_learnt,
    promoted,
    rank,
    refused,
    serve_users,
    store_url,
    teach,
    until_learnt,
    with_follower,
)
from tests.api.services import Running, serving
from tests.servers import until, with_store
from tests.test_codec import bits

HALF = {"challenger": "submitted", "share": 0.5}
#: Requests until a test gives up.
MOST_REQUESTS = 4_000


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def duel_of(http: httpx.Client, model: str) -> Any:
    return call(http, "GET", f"/models/{model}/duel", 200)


def promote(http: httpx.Client, model: str, **body: Any) -> int:
    seq = promoted(http, model, **body)["seq"]
    until(lambda: call(http, "GET", f"/models/{model}", 200)["version"] >= seq)
    return int(seq)


def serve_until(http: httpx.Client, model: str, over: Any) -> Any:
    """Serve users until the duel of the model is over; return it."""
    for first in range(0, MOST_REQUESTS, 50):
        serve_users(http, model, range(first, first + 50))
        found = duel_of(http, model)
        if over(found):
            return found
    raise AssertionError(found)


def test_from_a_bank_of_followers_to_a_verdict_and_its_promotion(http: httpx.Client) -> None:
    call(http, "PUT", "/models/life", 201, STILL)
    call(http, "POST", "/models/life/followers", 201, {"grid": {"gamma": [1.0, 1e11]}})
    seq = teach(http, "life")
    for name in ("life-gamma1", "life-gamma100000000000"):
        until_learnt(http, name, seq)
    duel = {"challenger": "life-gamma1", "share": 0.5}
    call(http, "PUT", "/models/life/duel", 201, duel)
    detail = refused(http, "POST", "/models/life/duel/promote", 409, {})
    assert detail == 'verdict: expected challenger, got undecided; or send "force": true'
    found = serve_until(http, "life", lambda one: one["verdict"] != "undecided")
    assert (found["verdict"], found["lists_to_go"]) == ("challenger", 0)
    assert found["evidence"] >= 20.0
    assert found["p_value"] <= 0.05
    assert found["interval"][1] < 0.5
    before = call(http, "GET", "/models/life", 200)
    follower = until_learnt(http, "life-gamma1", before["seq"])
    seq = promote(http, "life", force=False)
    after = call(http, "GET", "/models/life", 200)
    assert (after["gamma"], after["clicks"], after["explore"]) == (1.0, "debiased", True)
    assert after["weights"] == until_learnt(http, "life-gamma1", seq)["weights"]
    assert after["weights"] == follower["weights"]
    assert after["queries"] == before["queries"]
    ended = duel_of(http, "life")
    assert ended["ended"] == {"seq": seq, "why": "promotion"}
    assert {**ended, "ended": None, "ready": True} == found
    for name in ("life-gamma1", "life-gamma100000000000"):
        assert until_learnt(http, name, seq)["passed_by"] == 1
    top = [ids(rank(http, "life", seed, explore=False))[0] for seed in range(20)]
    assert top == [
        max(documents(seed), key=lambda one: one["features"][0])["id"] for seed in range(20)
    ]
    detail = refused(http, "POST", "/models/life/duel/promote", 409, {"force": True})
    assert "has ended by a promotion" in detail


def test_a_promotion_under_feedback_loses_no_record(http: httpx.Client, service: Running) -> None:
    """The promoted model is the follower folded up to the record before the promotion."""
    with_follower(http, "load", "load-b", clicks="click-skip-above")
    call(http, "PUT", "/models/load/duel", 201, {**HALF, "challenger": "load-b"})
    stop, sent = threading.Event(), count()
    acknowledged: list[str] = []

    def work() -> None:
        with service.client() as one:
            while not stop.is_set():
                seed = next(sent)
                name = f"load-{next(EVENTS)}"
                event = {"event_id": name, "type": "labels", "model": "load",
                         "documents": documents(seed), "labels": {f"d{seed % 8}": 2}}  # fmt: skip
                if one.post("/feedback", json=event).status_code == 202:
                    acknowledged.append(name)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(acknowledged) >= 50)
        seq = promote(http, "load", force=True)
        until(lambda: len(acknowledged) >= 100)
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    async def check(store: Store) -> None:
        entries = await store.log.read("load", 0, 100_000)
        events = [
            record.event
            for entry in entries
            if isinstance(record := codec.load_record(entry.record), Feedback)
        ]
        assert {*acknowledged} <= {*events}
        first = await store.states.load_at("load", keys_of("load/load-b").snapshot(0))
        reducer = Reducer(first.state, follows=True)
        for entry in entries[: seq - 1]:
            reducer.apply(entry.record)
        expected, found = reducer.state().model, codec.load_record(entries[seq - 1].record)
        assert isinstance(found, Replace)
        assert found.kind == "promotion"
        assert found.model.config == promoted_config(found.model.config, expected.config)
        for part in ("weights", "spread", "certainty"):
            assert bits(getattr(found.model, part)) == bits(getattr(expected, part))

    with_store(store_url(service), check)


def test_a_promoted_version_is_as_it_was(http: httpx.Client) -> None:
    call(http, "PUT", "/models/old", 201, {**STILL, "gamma": 1.0})
    before = call(http, "GET", "/models/old", 200)["weights"]
    teach(http, "old", 10)
    call(http, "PUT", "/models/old/duel", 201, {**HALF, "challenger": {"version": 0}})
    promote(http, "old", force=True)
    assert call(http, "GET", "/models/old", 200)["weights"] == before


def test_a_rollback_that_is_not_learnt_yet_outlives_a_promotion(
    http: httpx.Client, service: Running
) -> None:
    """Another learner has the lease for a while, and learns nothing."""
    with_follower(http, "held", "held-b")
    call(http, "PUT", "/models/held/duel", 201, {**HALF, "challenger": "held-b"})
    begun = call(http, "GET", "/models/held", 200)["seq"]
    with nothing_learnt(service, "held"):
        back = call(http, "POST", "/models/held/rollback", 202, {"version": 0})["seq"]
        detail = refused(http, "POST", "/models/held/duel/promote", 409, {"force": True})
        assert "has changed" in detail
    assert back == begun + 1
    until(lambda: call(http, "GET", "/models/held", 200)["version"] == back)
    assert duel_of(http, "held")["ended"] == {"seq": back, "why": "rollback"}
    detail = refused(http, "POST", "/models/held/duel/promote", 409, {"force": True})
    assert "has ended by a rollback" in detail


def test_what_cannot_be_promoted_is_refused(http: httpx.Client) -> None:
    call(http, "PUT", "/models/no", 201, STILL)
    path = "/models/no/duel/promote"
    assert "PUT" in refused(http, "POST", path, 404, {})
    assert "force: " in refused(http, "POST", path, 422, {"force": 1})
    call(http, "PUT", "/models/no/duel", 201, HALF)
    for force in (True, False):
        detail = refused(http, "POST", path, 422, {"force": force})
        assert "the submitted order cannot be promoted" in detail
    call(http, "DELETE", "/models/no/duel", 200)
    call(http, "PUT", "/models/no-b", 201, {"follows": "no"})
    call(http, "PUT", "/models/no/duel", 201, {**HALF, "challenger": "no-b"})
    assert "follows no" in refused(http, "POST", "/models/no-b/duel/promote", 409, {})
    call(http, "DELETE", "/models/no/duel", 200)
    assert "got undecided" in refused(http, "POST", path, 409, {})
    call(http, "DELETE", "/models/no-b", 204)
    assert "unknown follower" in refused(http, "POST", path, 422, {"force": True})


def test_a_promotion_of_another_side_than_the_confirmed_one_is_refused(
    http: httpx.Client,
) -> None:
    with_follower(http, "sure", "sure-b")
    begun = call(http, "PUT", "/models/sure/duel", 201, {**HALF, "challenger": "sure-b"})["id"]
    path = "/models/sure/duel/promote"
    for body, found in (
        ({"challenger": "sure-c"}, "challenger: sure-b would be promoted; "),
        ({"challenger": {"version": 0}}, "challenger: sure-b would be promoted; "),
        ({"duel": begun + 1}, f"duel: the model's duel is {begun}; "),
        ({"duel": begun + 1, "challenger": "sure-b"}, f"duel: the model's duel is {begun}; "),
    ):
        detail = refused(http, "POST", path, 409, {**body, "force": True})
        assert detail.startswith(found)
        assert "GET /models/{name}/duel" in detail
    for wrong in ({"duel": "1"}, {"duel": None}, {"challenger": 7}, {"challenger": None}):
        refused(http, "POST", path, 422, {**wrong, "force": True})
    assert duel_of(http, "sure")["ended"] is None
    promote(http, "sure", force=True, challenger="sure-b", duel=begun)
    call(http, "PUT", "/models/sure/duel", 201, {**HALF, "challenger": {"version": 0}})
    detail = refused(http, "POST", path, 409, {"challenger": "sure-b", "force": True})
    assert detail.startswith("challenger: version 0 would be promoted; ")
    promote(http, "sure", force=True, challenger={"version": 0})


def test_a_promoted_model_without_randomised_rankings_is_said_to_learn_nothing(
    http: httpx.Client,
) -> None:
    call(http, "PUT", "/models/calm", 201, {**STILL, "clicks": "click-skip-above"})
    for name, clicks in (("calm-b", "click-skip-above"), ("calm-c", "debiased")):
        call(http, "PUT", f"/models/{name}", 201, {"follows": "calm", "clicks": clicks})
    warnings = []
    for name in ("calm-b", "calm-c"):
        call(http, "PUT", "/models/calm/duel", 201, {**HALF, "challenger": name})
        found = promoted(http, "calm", force=True)
        warnings.append(found["warning"])
    remedy = 'PATCH /models/{name} {"explore": true} randomises them'
    only = "debiased learns from randomised rankings only, and the model's are not: "
    assert warnings == [None, only + remedy]
    found = call(http, "GET", "/models/calm", 200)
    assert (found["clicks"], found["explore"]) == ("debiased", False)

    def stepped(first: int) -> int:
        """The pairs learnt from the clicks on some more rankings."""
        before = call(http, "GET", "/models/calm", 200)["pairs"]["stepped"]
        serve_users(http, "calm", range(first, first + 20), worst=True)
        return int(call(http, "GET", "/models/calm", 200)["pairs"]["stepped"]) - int(before)

    assert stepped(0) == 0
    seq = call(http, "PATCH", "/models/calm", 202, {"explore": True})["seq"]
    until(lambda: call(http, "GET", "/models/calm", 200)["version"] >= seq)
    assert stepped(100) > 0


# ---- tournaments ----


@pytest.mark.slow
def test_the_best_of_a_bank_is_found_and_put_in_place(http: httpx.Client) -> None:
    call(http, "PUT", "/models/cup", 201, STILL)
    grid = {"gamma": [1.0, 1e11, 1e10]}
    made = call(http, "POST", "/models/cup/followers", 201, {"grid": grid})["followers"]
    names = [one["name"] for one in made]
    seq = teach(http, "cup")
    for name in names:
        until_learnt(http, name, seq)
    body = {"challenger": "followers", "max_lists": 3000, "share": 0.5, "promote": True}
    begun = call(http, "PUT", "/models/cup/duel", 201, body)
    assert begun["alpha"] == pytest.approx(0.05 / 6)
    assert begun["tournament"] == {
        "id": begun["id"], "step": 0, "followers": names, "max_lists": 3000, "alpha": 0.05,
        "promote": True, "ahead": "cup", "table": begun["tournament"]["table"],
    }  # fmt: skip
    for name in names:
        assert "is in a duel" in refused(http, "DELETE", f"/models/{name}", 409)
    assert "the tournament goes on" in refused(http, "POST", "/models/cup/duel/promote", 409, {})
    serve_until(http, "cup", lambda one: one["ended"] or one["verdict"] == "challenger")
    found = serve_until(http, "cup", lambda one: one["ended"])
    assert found["ended"]["why"] == "promotion"
    tournament = found["tournament"]
    assert (tournament["step"], tournament["ahead"]) == (2, "cup-gamma1")
    assert [
        (one["champion"], one["challenger"], one["verdict"]) for one in tournament["table"]
    ] == [
        ("cup", names[0], "challenger"),
        ("cup-gamma1", names[1], "champion"),
        ("cup-gamma1", names[2], "champion"),
    ]
    until(lambda: call(http, "GET", "/models/cup", 200)["gamma"] == 1.0)


def test_a_tournament_ends_also_if_a_step_of_it_comes_first(
    http: httpx.Client, service: Running
) -> None:
    """The step is in the log and not learnt yet, so the request names the duel before it."""
    call(http, "PUT", "/models/league", 201, STILL)
    call(http, "POST", "/models/league/followers", 201, {"grid": {"gamma": [1.0, 2.0]}})
    body = {"challenger": "followers", "max_lists": 2000}
    begun = call(http, "PUT", "/models/league/duel", 201, body)
    names, each = begun["tournament"]["followers"], begun["alpha"]
    of = Tournament(begun["id"], 1, tuple(names), 2000, 0.05, promote=False)
    step = codec.dump_record(Duel(names[1], begun["share"], each, tournament=of))

    async def append(store: Store) -> None:
        epoch, *_ = await store.states.position("league")
        event = NewRecord(internal_event("tournament", "test"), b"", step)
        await store.log.append("league", epoch, [event], limit=100, time=0)

    with ThreadPoolExecutor(1) as pool:
        with nothing_learnt(service, "league"):
            with_store(store_url(service), append)
            ending = pool.submit(call, http, "DELETE", "/models/league/duel", 200)
            until(lambda: tail_of(service, "league") == begun["id"] + 2)
        ended = ending.result()
    assert (ended["challenger"], ended["ended"]["why"]) == (names[1], "ended")
    assert duel_of(http, "league") == ended


def test_a_promotion_of_another_follower_than_before_a_step_is_refused(
    http: httpx.Client, service: Running
) -> None:
    """The step comes between the request that reads the tournament and the one that promotes."""
    call(http, "PUT", "/models/series", 201, STILL)
    call(http, "POST", "/models/series/followers", 201, {"grid": {"gamma": [1.0, 2.0]}})
    body = {"challenger": "followers", "max_lists": 2000}
    read = call(http, "PUT", "/models/series/duel", 201, body)
    names = read["tournament"]["followers"]
    of = Tournament(read["id"], 1, tuple(names), 2000, 0.05, promote=False)
    step = codec.dump_record(Duel(names[1], read["share"], read["alpha"], tournament=of))

    async def append(store: Store) -> None:
        epoch, *_ = await store.states.position("series")
        event = NewRecord(internal_event("tournament", "test"), b"", step)
        await store.log.append("series", epoch, [event], limit=100, time=0)

    with_store(store_url(service), append)
    until(lambda: duel_of(http, "series")["challenger"] == names[1])
    path = "/models/series/duel/promote"
    for given in ({"challenger": read["challenger"]}, {"duel": read["id"]}):
        refused(http, "POST", path, 409, {**given, "force": True})
    assert duel_of(http, "series")["ended"] is None
    now = duel_of(http, "series")
    promote(http, "series", force=True, challenger=names[1], duel=now["id"])
    assert call(http, "GET", "/models/series", 200)["gamma"] == 2.0


def tail_of(service: Running, model: str) -> int:
    return with_store(store_url(service), lambda store: store.log.tail(model))


def test_an_undecided_tournament_leaves_the_model_in_place(http: httpx.Client) -> None:
    call(http, "PUT", "/models/draw", 201, STILL)
    call(http, "POST", "/models/draw/followers", 201, {"grid": {"gamma": [1e10, 1e11]}})
    body = {"challenger": "followers", "max_lists": 40, "share": 0.5, "promote": True}
    call(http, "PUT", "/models/draw/duel", 201, body)
    found = serve_until(http, "draw", lambda one: one["ended"])
    assert found["ended"]["why"] == "finished"
    assert found["tournament"]["ahead"] == "draw"
    assert [one["verdict"] for one in found["tournament"]["table"]] == ["undecided", "undecided"]
    assert [one["lists"] for one in found["tournament"]["table"]] == [20, 20]
    assert "the model itself is ahead" in refused(
        http, "POST", "/models/draw/duel/promote", 409, {}
    )
    assert call(http, "GET", "/models/draw", 200)["gamma"] == STILL["gamma"]
