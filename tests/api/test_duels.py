"""Duels over HTTP: which of two sides ranks better, by the clicks on interleaved lists."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from app.ranking.evidence import interval
from tests.api.duels import (
    STILL,
    best,
    call,
    click_event,
    documents,
    ids,
    post,
    rank,
    refused,
    serve_users,
    store_url,
    teach,
    until_learnt,
    with_follower,
)
from tests.api.services import Running, serving
from tests.servers import bare_server, until
from tests.servers import client as redis_client

HALF = {"challenger": "submitted", "share": 0.5}


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def pairs(http: httpx.Client) -> None:
    """`known` has a follower that knows what is good; `other` has one, too."""
    with_follower(http, "known", "known-b")
    call(http, "PUT", "/models/other", 201, STILL)
    call(http, "PUT", "/models/other-b", 201, {"follows": "other", "gamma": 1.0})


@contextlib.contextmanager
def dueling(http: httpx.Client, model: str, **body: Any) -> Iterator[Any]:
    """Begin a duel, and end it after the block."""
    yield call(http, "PUT", f"/models/{model}/duel", 201, {"share": 0.5, **body})
    http.delete(f"/models/{model}/duel")


def duel_of(http: httpx.Client, model: str) -> Any:
    return call(http, "GET", f"/models/{model}/duel", 200)


# ---- lists ----


@pytest.mark.usefixtures("pairs")
def test_a_share_of_the_requests_gets_a_list_of_both_sides(http: httpx.Client) -> None:
    with dueling(http, "known", challenger="known-b", share=0.3):
        answers = [rank(http, "known", seed) for seed in range(300)]
    duels = [answer for answer in answers if "duel" in answer]
    assert 60 <= len(duels) <= 120
    for answer in duels:
        assert (answer["duel"], answer["explored"], answer["logged"]) == (True, True, True)
        assert sorted(ids(answer)) == [f"d{at}" for at in range(8)]
        known = {"request_id", "query_id", "model", "version", "explored", "logged", "degraded",
                 "documents", "duel"}  # fmt: skip
        assert answer.keys() == known
        assert answer["documents"][0].keys() == {"id", "rank", "score"}


@pytest.mark.usefixtures("pairs")
def test_a_list_takes_turns_from_both_orders(http: httpx.Client) -> None:
    """The first place is the best of one side; both choose first equally often."""
    champion, challenger = 0, 0
    with dueling(http, "known", challenger="known-b"):
        for seed in range(200):
            answer = rank(http, "known", seed)
            if "duel" in answer:
                first = ids(answer)[0]
                good = {one["id"]: one["features"][0] for one in documents(seed)}
                champion += first == "d0"  # the submitted order
                challenger += good[first] == max(good.values())
    assert champion + challenger >= 80
    assert 0.35 <= champion / (champion + challenger) <= 0.65


@pytest.mark.usefixtures("pairs")
def test_no_request_duels_while_lists_are_not_remembered(
    service: Running, http: httpx.Client
) -> None:
    with dueling(http, "known", challenger="known-b"):
        before = [rank(http, "known", seed) for seed in range(20)]
        assert {"duel" in answer for answer in before} == {True, False}
        with nearly_full(service, http):
            for seed in range(20):
                answer = rank(http, "known", seed)
                assert (answer["logged"], "duel" in answer) == (False, False)
        assert [rank(http, "known", seed) for seed in range(20)] == before


@contextlib.contextmanager
def nearly_full(service: Running, http: httpx.Client) -> Iterator[None]:
    """Lower the limit of the store's memory, so that no impression is logged in the block."""

    with redis_client(store_url(service)) as connection:
        limit = connection.config_get("maxmemory")["maxmemory"]
        connection.config_set("maxmemory", int(connection.info("memory")["used_memory"] / 0.88))
        try:
            until(lambda: not rank(http, "known", 999)["logged"])
            yield
        finally:
            connection.config_set("maxmemory", limit)
            until(lambda: rank(http, "known", 999)["logged"])


@pytest.mark.usefixtures("pairs")
def test_the_same_request_gets_the_same_list_again_however_it_is_sent(http: httpx.Client) -> None:
    with dueling(http, "known", challenger="known-b"):
        first = [rank(http, "known", seed) for seed in range(20)]
        assert {"duel" in answer for answer in first} == {True, False}
        for seed, answer in enumerate(first):
            assert rank(http, "known", seed) == answer
            names, rows = zip(
                *((one["id"], one["features"]) for one in documents(seed)), strict=True
            )
            body = {"model": "known", "request_id": f"known-{seed}", "ids": names}
            columns = call(http, "POST", "/rank", 200, {**body, "features": rows})
            assert columns == answer
            packed = {**body, "features": np.array(rows, "<f4").tobytes()}
            sent = http.post(
                "/rank",
                content=msgspec.msgpack.encode(packed),
                headers={"content-type": "application/msgpack"},
            )
            assert sent.json() == answer


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("options", [{"explore": False}, {"log": False}, {"version": 0}])
def test_requests_that_ask_for_another_list_never_duel(
    http: httpx.Client, options: dict[str, Any]
) -> None:
    with dueling(http, "known", challenger="known-b"):
        assert not any("duel" in rank(http, "known", seed, **options) for seed in range(30))
        assert any("duel" in rank(http, "known", seed, explore=True) for seed in range(30))


@pytest.mark.usefixtures("pairs")
def test_pinned_documents_keep_their_places_and_top_k_its_length(http: httpx.Client) -> None:
    found = 0
    with dueling(http, "known", challenger="known-b"):
        for seed in range(40):
            answer = rank(http, "known", seed, pinned=["d1", "d4"], top_k=5, explain=True)
            shown = ids(answer)
            assert (shown[1], shown[4], len(set(shown))) == ("d1", "d4", 5)
            assert "contributions" in answer["documents"][0]
            found += "duel" in answer
    assert found >= 10


@pytest.mark.usefixtures("pairs")
def test_without_a_duel_answers_are_as_before(http: httpx.Client) -> None:
    with dueling(http, "known", challenger="known-b"):
        during = {seed: rank(http, "known", seed) for seed in range(20)}
    for seed, answer in during.items():
        after = rank(http, "known", seed)
        assert "duel" not in after
        if "duel" not in answer:
            assert after["documents"] == answer["documents"]


def test_recent_lists_of_duels_are_described_without_their_teams(http: httpx.Client) -> None:
    call(http, "PUT", "/models/seen", 201, STILL)
    teach(http, "seen", 5)
    with dueling(http, "seen", challenger="submitted"):
        seed = next(at for at in range(100) if "duel" in rank(http, "seen", at))
        until(lambda: _noted(http, seed))
        found = _noted(http, seed)
    assert found is not None
    assert (found["duel"], found["explored"]) == (True, True)
    listed = [{"id": one["id"], "features": one["features"]} for one in found["documents"]]
    question = {"documents": listed, "first": "d0", "second": "d1", "scored": True}
    call(http, "POST", "/models/seen/compare", 200, question)
    question = {"documents": listed, "clicks": ["d0"], "scored": True}
    call(http, "POST", "/models/seen/what-if", 200, question)
    call(http, "GET", "/models/seen/versions/0/diff/current", 200)


def _noted(http: httpx.Client, seed: int) -> Any:
    rank(http, "seen", seed)
    found = call(http, "GET", "/models/seen/impressions", 200)["impressions"]
    return next((one for one in found if one["request"] == f"seen-{seed}"), None)


# ---- counts ----


def test_clicks_on_lists_are_counted_for_the_side_that_chose_the_document(
    http: httpx.Client,
) -> None:
    with_follower(http, "counted", "counted-b")
    begun = call(http, "PUT", "/models/counted/duel", 201, {**HALF, "challenger": "counted-b"})
    assert (begun["lists"], begun["decided"], begun["verdict"]) == (0, 0, "undecided")
    assert (begun["win_share"], begun["interval"], begun["curve"]) == (None, [0.0, 1.0], [])
    assert (begun["champion"], begun["challenger"]) == ("counted", "counted-b")
    assert (begun["ended"], begun["ready"], begun["tournament"]) == (None, True, None)
    duels = sum("duel" in answer for answer in serve_users(http, "counted", range(60)))
    found = duel_of(http, "counted")
    assert found["lists"] == duels == found["wins"] + found["losses"] + found["ties"]
    assert found["losses"] > 2 * found["wins"]
    assert found["decided"] == found["wins"] + found["losses"]  # each has one event
    assert found["win_share"] == found["wins"] / found["decided"]
    assert found["interval"] == list(interval(found["wins"], found["losses"], 0.05))
    assert found["p_value"] >= 1.0 / found["evidence"]
    last = found["curve"][-1]
    assert (last["lists"], last["decided"]) == (found["lists"], found["decided"])
    assert last["evidence"] == pytest.approx(found["evidence"])
    model = call(http, "GET", "/models/counted", 200)
    assert (model["queries"], model["explored"]["queries"]) == (120, 60 - duels)
    [listed] = (
        one for one in call(http, "GET", "/models", 200)["models"] if one["name"] == "counted"
    )
    assert listed["duel"] == {
        **{name: found[name] for name in ("champion", "challenger", "decided", "win_share")},
        "verdict": found["verdict"], "ended": False,
    }  # fmt: skip


def test_more_clicks_change_the_count_for_people_but_not_the_verdict(http: httpx.Client) -> None:
    with_follower(http, "again", "again-b")
    with dueling(http, "again", challenger="again-b"):
        answers = {seed: rank(http, "again", seed) for seed in range(80)}
        # Without the submitted first document on top both orders differ from the first place on.
        duels = {
            seed: one for seed, one in answers.items() if "duel" in one and ids(one)[0] != "d0"
        }
        first = [click_event("again", seed, best(seed, ids(one))) for seed, one in duels.items()]
        post(http, "again", first)
        before = duel_of(http, "again")
        post(http, "again", first)  # repeated events
        assert duel_of(http, "again") == before
        more = [click_event("again", seed, ids(one)) for seed, one in duels.items()]
        post(http, "again", more)
        after = duel_of(http, "again")
    for field in ("lists", "decided", "win_share", "evidence", "curve"):
        assert after[field] == before[field]
    assert after["losses"] < before["losses"]


def test_late_clicks_on_an_ended_duel_count_for_no_side(http: httpx.Client) -> None:
    with_follower(http, "late", "late-b")
    call(http, "PUT", "/models/late/duel", 201, {**HALF, "challenger": "late-b"})
    answers = {seed: rank(http, "late", seed) for seed in range(30)}
    serve_users(http, "late", range(100, 120))
    ended = call(http, "DELETE", "/models/late/duel", 200)
    assert ended["ended"] == {"seq": call(http, "GET", "/models/late", 200)["seq"], "why": "ended"}
    assert ended["lists"] > 0
    late = [click_event("late", seed, best(seed, ids(one))) for seed, one in answers.items()]
    post(http, "late", late)
    assert duel_of(http, "late") == ended
    call(http, "PUT", "/models/late/duel", 201, {**HALF, "challenger": "late-b"})
    more = [click_event("late", seed, ids(one)[:1]) for seed, one in answers.items()]
    post(http, "late", more)
    assert duel_of(http, "late")["lists"] == 0
    call(http, "DELETE", "/models/late/duel", 200)


# ---- refusals ----

WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "challenger: required"),
    ({"challenger": "known"}, "challenger: unknown follower"),
    ({"challenger": "other-b"}, "challenger: unknown follower"),
    ({"challenger": "known/known-b"}, "challenger: unknown follower"),
    ({"challenger": ""}, "challenger: "),
    ({"challenger": 7}, "challenger: "),
    ({"challenger": None}, "challenger: "),
    ({"challenger": {"version": 12345}}, "challenger.version: expected a kept version, got 12345"),
    ({"challenger": {"version": "0"}}, "challenger.version: "),
    ({"challenger": {"version": -1}}, "challenger.version: "),
    ({"challenger": {}}, "challenger.version: required"),
    ({"challenger": {"name": "x"}}, 'challenger: unknown field "name"'),
    ({"challenger": "submitted", "share": 0}, "share: "),
    ({"challenger": "submitted", "share": 0.51}, "share: "),
    ({"challenger": "submitted", "share": "0.2"}, "share: "),
    ({"challenger": "submitted", "alpha": 9e-7}, "alpha: "),
    ({"challenger": "submitted", "alpha": 0.3}, "alpha: "),
    ({"challenger": "submitted", "max_lists": 10}, "max_lists: expected none"),
    ({"challenger": "known-b", "promote": True}, "promote: expected none"),
    (
        {"challenger": "followers"},
        "max_lists: expected at least 1, one for each follower",
    ),
    ({"challenger": "followers", "max_lists": 0}, "max_lists: "),
    ({"challenger": "submitted", "shar": 0.1}, 'unknown field "shar"; did you mean "share"?'),
]


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize(("body", "detail"), WRONG, ids=lambda one: str(one)[:50])
def test_an_impossible_duel_is_refused(
    http: httpx.Client, body: dict[str, Any], detail: str
) -> None:
    before = call(http, "GET", "/models/known", 200)["seq"]
    assert detail in refused(http, "PUT", "/models/known/duel", 422, body)
    assert call(http, "GET", "/models/known", 200)["seq"] == before


def test_a_model_without_followers_has_no_tournament(http: httpx.Client) -> None:
    call(http, "PUT", "/models/alone", 201, STILL)
    body = {"challenger": "followers", "max_lists": 100}
    assert "without any" in refused(http, "PUT", "/models/alone/duel", 422, body)


def test_a_model_without_a_duel_has_none_to_read_or_end(http: httpx.Client) -> None:
    call(http, "PUT", "/models/none", 201, STILL)
    assert "PUT" in refused(http, "GET", "/models/none/duel", 404)
    assert "PUT" in refused(http, "DELETE", "/models/none/duel", 404)
    assert "no model" in refused(http, "GET", "/models/missing/duel", 404)
    assert "no model" in refused(http, "PUT", "/models/missing/duel", 404, HALF)
    call(http, "PUT", "/models/none/duel", 201, HALF)
    assert "is on" in refused(http, "PUT", "/models/none/duel", 409, HALF)
    call(http, "DELETE", "/models/none/duel", 200)
    assert "none is on" in refused(http, "DELETE", "/models/none/duel", 404)
    assert call(http, "GET", "/models/none/duel", 200)["ended"]["why"] == "ended"


def test_of_two_duels_at_once_one_begins(http: httpx.Client, service: Running) -> None:
    call(http, "PUT", "/models/raced", 201, STILL)
    for _ in range(5):
        barrier = threading.Barrier(4)

        def begin(_: int, barrier: threading.Barrier = barrier) -> int:
            with service.client() as one:
                barrier.wait()
                return one.put("/models/raced/duel", json=HALF).status_code

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(begin, range(4))) == [201, 409, 409, 409]
        call(http, "DELETE", "/models/raced/duel", 200)


@pytest.mark.usefixtures("pairs")
def test_a_follower_in_a_duel_is_not_deleted(http: httpx.Client) -> None:
    with dueling(http, "other", challenger="other-b"):
        detail = refused(http, "DELETE", "/models/other-b", 409)
        assert "end it with DELETE /models/other/duel" in detail


def test_other_changes_of_the_model_end_its_duel(http: httpx.Client) -> None:
    call(http, "PUT", "/models/changed", 201, STILL)
    call(http, "PUT", "/models/changed/duel", 201, HALF)
    seq = call(http, "PATCH", "/models/changed", 202, {"gamma": 1.0})["seq"]
    rank(http, "changed", 1, min_seq=seq)
    assert duel_of(http, "changed")["ended"] is None
    seq = call(http, "POST", "/models/changed/rollback", 202, {"version": 0})["seq"]
    rank(http, "changed", 1, min_seq=seq)
    found = duel_of(http, "changed")
    assert (found["ended"], found["ready"]) == ({"seq": seq, "why": "rollback"}, False)


# ---- a kept version ----


def test_a_kept_version_duels_as_it_was(http: httpx.Client) -> None:
    call(http, "PUT", "/models/kept", 201, {**STILL, "gamma": 1.0})
    plain = [ids(rank(http, "kept", seed, explore=False)) for seed in range(100)]
    teach(http, "kept")
    with dueling(http, "kept", challenger={"version": 0}) as begun:
        assert (begun["challenger"], begun["ready"]) == ({"version": 0}, True)
        answers = [rank(http, "kept", seed) for seed in range(100)]
        duels = [(seed, one) for seed, one in enumerate(answers) if "duel" in one]
        assert len(duels) >= 30
        news = {seed: ids(rank(http, "kept", seed, explore=False)) for seed, _ in duels}
        for seed, one in duels:
            assert ids(one)[0] in (plain[seed][0], news[seed][0])
        assert {ids(one)[0] == plain[seed][0] for seed, one in duels} == {True, False}


# ---- outages and restarts ----


def test_a_duel_continues_after_a_restart(tmp_path: Path) -> None:
    with serving(data=tmp_path) as running, running.client() as http:
        with_follower(http, "m", "m-b")
        call(http, "PUT", "/models/m/duel", 201, {**HALF, "challenger": "m-b"})
        first = serve_users(http, "m", range(40))
        seq = call(http, "GET", "/models/m", 200)["seq"]
        until_learnt(http, "m-b", seq)
        again = [rank(http, "m", seed) for seed in range(40)]
        before = duel_of(http, "m")
        assert before["lists"] == sum("duel" in one for one in first)
        running.kill()
    with serving(data=tmp_path) as running, running.client() as http:
        until(lambda: duel_of(http, "m")["ready"])
        assert duel_of(http, "m") == before
        assert [rank(http, "m", seed) for seed in range(40)] == again
        more = serve_users(http, "m", range(40, 60))
        assert duel_of(http, "m")["lists"] == before["lists"] + sum("duel" in one for one in more)


def test_no_list_is_one_of_a_duel_while_the_store_is_away(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        store = contextlib.ExitStack()
        url = store.enter_context(bare_server("--appendonly", "no"))
        stack.callback(store.close)
        running = stack.enter_context(serving("--redis-url", url, data=tmp_path))
        http = stack.enter_context(running.client())
        call(http, "PUT", "/models/away", 201, STILL)
        call(http, "PUT", "/models/away/duel", 201, HALF)
        assert any("duel" in rank(http, "away", seed) for seed in range(30))
        store.close()
        until(lambda: rank(http, "away", 0)["degraded"])
        answers = [rank(http, "away", seed) for seed in range(30)]
        assert not any("duel" in one or one["logged"] for one in answers)
        assert http.get("/models/away/duel").status_code == 503
