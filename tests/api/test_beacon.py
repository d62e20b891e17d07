"""Beacons: clicks from web pages, on the lists that tokens name."""

import contextlib
import gzip
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from app.api.auth import new_key
from app.api.tokens import TokenKeys, new_token_key, read_token_keys
from app.domain import codec
from app.domain.records import Feedback
from app.storage.embedded.server import EmbeddedServer, find
from app.storage.store import Store
from tests.api.services import PLAIN, Running, serving
from tests.servers import until, with_store

KEYS = new_token_key("k1")
DOCUMENTS = [{"id": name, "features": [1.0 * (name == "b"), 0.5]} for name in "abc"]
TEXT = {"content-type": "text/plain;charset=UTF-8"}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(environ={"SOLAR_TOKEN_KEYS": KEYS, "SOLAR_BEACON_RATE": "1000"}) as started:
        yield started


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as opened:
        for name in ("books", "songs"):
            assert opened.put(f"/models/{name}", json={"features": 2, **PLAIN}).status_code == 201
        yield opened


def ranked(client: httpx.Client, model: str = "books", **more: Any) -> dict[str, Any]:
    answer = client.post("/rank", json={"model": model, "documents": DOCUMENTS} | more)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def post(client: httpx.Client, *events: Any, **headers: str) -> httpx.Response:
    return client.post(
        "/beacon", content=json.dumps({"events": events}), headers={**TEXT, **headers}
    )


def counts(client: httpx.Client) -> dict[str, int]:
    lines = client.get("/metrics").text.splitlines()
    start = 'solar_beacon_events_total{outcome="'
    found = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return {line.split('"')[0]: int(float(line.split()[-1])) for line in found}


def added(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def seq(client: httpx.Client, model: str = "books") -> int:
    return int(client.get(f"/models/{model}").json()["seq"])


def test_a_click_from_a_page_is_learnt(client: httpx.Client) -> None:
    token, before, first = ranked(client)["token"], counts(client), seq(client)
    answer = post(client, {"token": token, "clicked": ["b"]})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    assert added(before, counts(client)) == {"accepted": 1}
    assert seq(client) == first + 1


def test_a_copy_of_a_beacon_changes_nothing(client: httpx.Client) -> None:
    event = {"token": ranked(client)["token"], "clicked": ["b", "a"]}
    post(client, event)
    before, first = counts(client), seq(client)
    for again in (event, {**event, "clicked": ["a", "b"]}):
        assert post(client, again).status_code == 204
    assert added(before, counts(client)) == {"duplicate": 2}
    assert seq(client) == first


def test_events_of_several_models_go_in_one_post(client: httpx.Client) -> None:
    tokens = [ranked(client, name)["token"] for name in ("books", "songs", "books")]
    before = [seq(client, name) for name in ("books", "songs")]
    post(client, *({"token": token, "clicked": ["c"]} for token in tokens))
    assert [seq(client, name) for name in ("books", "songs")] == [before[0] + 2, before[1] + 1]


def test_no_event_of_a_large_post_is_lost(client: httpx.Client) -> None:
    features = 500
    settings = {"features": features, "covariance": "diagonal"}
    assert client.put("/models/wide", json=settings).status_code == 201
    wide = [{"id": f"d{at}", "features": [0.5] * features} for at in range(20)]
    body, before = {"model": "wide", "documents": wide}, counts(client)
    tokens = [client.post("/rank", json=body).json()["token"] for _ in range(60)]  # of 40 kB each
    post(client, *({"token": token, "clicked": ["d1"]} for token in tokens))
    assert added(before, counts(client)) == {"accepted": 60}
    assert seq(client, "wide") == 60


def test_a_token_belongs_to_its_viewer(client: httpx.Client) -> None:
    token, before = ranked(client, viewer="session-1")["token"], counts(client)
    for viewer in ("session-1", "session-2", ""):
        post(client, {"token": token, "clicked": ["a"], "viewer": viewer})
    assert added(before, counts(client)) == {"accepted": 1, "forged": 2}


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        ({"token": "1.k1.zzzzzz.YQBi." + "A" * 22, "clicked": ["a"]}, "forged"),
        ({"token": "", "clicked": []}, "forged"),
        ({"clicked": ["a"]}, "invalid"),
        ({"token": 7}, "invalid"),
        ("text", "invalid"),
    ],
)
def test_other_events_are_counted_and_tell_nothing(
    client: httpx.Client, event: Any, outcome: str
) -> None:
    before, first = counts(client), seq(client)
    answer = post(client, event)
    assert (answer.status_code, answer.content) == (204, b"")
    assert added(before, counts(client)) == {outcome: 1}
    assert seq(client) == first


@pytest.mark.parametrize("body", [b"", b"\xff", b"{", b"[]", b'{"events": 7}', b"\x00" * 100])
def test_a_damaged_body_is_counted_and_tells_nothing(client: httpx.Client, body: bytes) -> None:
    before = counts(client)
    assert client.post("/beacon", content=body, headers=TEXT).status_code == 204
    assert added(before, counts(client)) == {"invalid": 1}


def test_a_document_that_was_not_shown_is_invalid(client: httpx.Client) -> None:
    token, before, first = ranked(client, top_k=1)["token"], counts(client), seq(client)
    post(client, {"token": token, "clicked": ["z"]})
    assert added(before, counts(client)) == {"invalid": 1}
    assert seq(client) == first


def test_a_list_has_at_most_20_events(client: httpx.Client) -> None:
    found, before = ranked(client), counts(client)
    for event in range(20):
        body = {"event_id": f"many-{event}", "type": "clicks", "request_id": found["request_id"]}
        assert client.post("/feedback", json={**body, "clicked": ["a"]}).status_code == 202
    post(client, {"token": found["token"], "clicked": ["b"]})
    assert added(before, counts(client)) == {"over-limit": 1}


def _monitor(store: Any) -> Any:
    return store.monitor()


def commands_about(running: Running, request: str, act: Callable[[], object]) -> list[str]:
    """Commands of the store that name a request, while something is done."""
    url = find(running.data)
    assert url is not None
    with contextlib.closing(redis.Redis.from_url(url)) as store, _monitor(store) as seen:
        act()
        store.echo("end")
        commands = iter(lambda: str(seen.next_command()["command"]), "ECHO end")
        return [one for one in commands if request in one]


@pytest.mark.parametrize("outcome", ["duplicate", "invalid", "over-limit"])
def test_copies_have_the_same_outcome_and_do_not_reach_the_store(
    client: httpx.Client, running: Running, outcome: str
) -> None:
    found = ranked(client)
    event = {"token": found["token"], "clicked": ["z" if outcome == "invalid" else "b"]}
    if outcome == "over-limit":
        post(client, *({**event, "gains": {"b": at / 20}} for at in range(20)))
    post(client, event)
    before = counts(client)
    about = commands_about(
        running, found["request_id"], lambda: post(client, *(event for _ in range(50)))
    )
    assert added(before, counts(client)) == {outcome: 50}
    assert about == []


def test_large_posts_are_refused_and_counted(client: httpx.Client) -> None:
    before = counts(client)
    answer = client.post("/beacon", content=b"x" * 65_537, headers=TEXT)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (413, "*")
    assert post(client, *({} for _ in range(101))).status_code == 413
    assert added(before, counts(client)) == {"too-large": 2}
    assert post(client, *({} for _ in range(100))).status_code == 204


def test_a_page_of_another_origin_may_post(client: httpx.Client) -> None:
    origin = {"origin": "https://shop.example", "sec-fetch-site": "cross-site"}
    token = ranked(client)["token"]
    body = {"event_id": "cross", "type": "clicks", "request_id": "x", "clicked": []}
    assert client.post("/feedback", json=body, headers=origin).status_code == 403
    before = counts(client)
    assert post(client, {"token": token, "clicked": ["a"]}, **origin).status_code == 204
    assert added(before, counts(client)) == {"accepted": 1}


@pytest.mark.parametrize("path", ["/beacon"])
def test_a_preflight_is_allowed_from_any_origin(client: httpx.Client, path: str) -> None:
    asked = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    answer = client.options(path, headers=asked)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, "*")
    assert answer.headers["access-control-allow-headers"] == "content-type"
    assert client.options("/feedback", headers=asked).status_code == 405


def test_a_list_that_is_not_remembered_has_no_token(client: httpx.Client) -> None:
    assert "token" not in ranked(client, log=False)


def test_other_media_types_are_refused(client: httpx.Client) -> None:
    answer = client.post("/beacon", content=b"{}", headers={"content-type": "image/png"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (415, "*")


def test_an_address_that_sends_too_much_waits() -> None:
    with (
        serving(environ={"SOLAR_TOKEN_KEYS": KEYS, "SOLAR_BEACON_RATE": "0.1"}) as started,
        started.client() as client,
    ):
        assert post(client, {}).status_code == 204
        before, answer = counts(client), post(client, {}, {})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (429, "*")
        assert answer.headers["retry-after"] == "1"
        assert added(before, counts(client)) == {"over-rate": 2}


def test_without_keys_there_are_no_tokens_and_no_beacons() -> None:
    with serving() as started, started.client() as client:
        assert client.put("/models/books", json={"features": 2}).status_code == 201
        assert "token" not in ranked(client)
        assert post(client, {}).status_code == 404
        assert client.post("/beacon", content=b"").status_code == 404  # of any media type


def test_the_script_is_served_to_pages_of_any_origin(client: httpx.Client) -> None:
    answer = client.get("/solar.js", headers={"origin": "https://shop.example"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("known", "status"),
    [("{}", 304), ("W/{}", 304), ('"other", {}', 304), ("*", 304), ('"other"', 200), ("", 200)],
)
def test_a_browser_that_has_the_script_does_not_load_it_again(
    client: httpx.Client, known: str, status: int
) -> None:
    etag = client.head("/solar.js").headers["etag"]
    answer = client.get("/solar.js", headers={"if-none-match": known.format(etag)})
    assert (answer.status_code, answer.headers["etag"]) == (status, etag)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert bool(answer.content) == (status == 200)


def lifetime(running: Running, request: str) -> float:
    """Seconds until an impression expires."""
    url = find(running.data)
    assert url is not None
    with contextlib.closing(redis.Redis.from_url(url)) as store:
        [key] = store.keys(f"*:imp:*:{request}")
        return float(store.pttl(key)) / 1000


def test_a_clicked_list_is_remembered_for_late_purchases(
    client: httpx.Client, running: Running
) -> None:
    clicked, other = ranked(client), ranked(client)
    post(client, {"token": clicked["token"], "clicked": ["b"]})
    post(client, {"token": other["token"], "clicked": [], "examined": 2})
    assert 21_000 < lifetime(running, clicked["request_id"]) <= 21_600
    assert lifetime(running, other["request_id"]) <= 1_800
    # Equal features: the order, and with it the impression, is the same after the click was learnt.
    alike = [{"id": name, "features": [1.0, 0.5]} for name in "abc"]
    kept: dict[str, Any] = {"request_id": "kept", "documents": alike, "explore": False}
    post(client, {"token": ranked(client, **kept)["token"], "clicked": ["b"]})
    ranked(client, **kept)
    assert lifetime(running, "kept") > 21_000


def test_a_purchase_is_a_gain(client: httpx.Client) -> None:
    token, before = ranked(client)["token"], counts(client)
    post(client, {"token": token, "clicked": ["b"]})
    post(client, {"token": token, "clicked": ["b"], "gains": {"b": "purchase"}, "examined": 3})
    post(client, {"token": token, "clicked": ["b"], "gains": {"b": 4}, "examined": 3})
    assert added(before, counts(client)) == {"accepted": 3}
    for wrong in ({"b": "unknown"}, {"a": 1}, {"b": 11}, {"b": -1}):
        post(client, {"token": token, "clicked": ["b"], "gains": wrong})
    assert added(before, counts(client)) == {"accepted": 3, "invalid": 4}


@pytest.mark.parametrize("depth", [4, 1 << 70])
def test_a_depth_below_the_list_is_its_length_and_keeps_the_clicks(
    client: httpx.Client, running: Running, depth: int
) -> None:
    """A page may count more elements than documents; the backend's own events stay strict."""
    found, before = ranked(client), counts(client)
    post(client, {"token": found["token"], "clicked": ["b"], "examined": depth})
    assert added(before, counts(client)) == {"accepted": 1}
    examined = last_record(running).examined
    assert examined is not None
    assert examined.tolist() == [3]
    body = {"event_id": "deep", "type": "clicks", "request_id": found["request_id"]}
    answer = client.post("/feedback", json={**body, "clicked": [], "examined": depth})
    assert (answer.status_code, "examined" in answer.json()["detail"]) == (422, True)


def last_record(running: Running, model: str = "books") -> Feedback:
    """The latest record of a model's log."""
    url = find(running.data)
    assert url is not None

    async def read(store: Store) -> bytes:
        [entry] = await store.log.read(model, await store.log.tail(model) - 1, 1)
        return entry.record

    record = codec.load_record(with_store(url, read))
    assert isinstance(record, Feedback)
    return record


# ---- attacks ----


def keys_of_service() -> TokenKeys:
    found = read_token_keys(KEYS, 3_600.0)
    assert found is not None
    return found


def token(model: str, request: str, viewer: str = "", age: float = 0.0) -> str:
    """A token by the key of the service."""
    return keys_of_service().sign(model, request, viewer, time.time() - age)


def test_tokens_of_all_kinds_get_the_same_answer(client: httpx.Client) -> None:
    found, before = ranked(client), counts(client)
    other = read_token_keys(new_token_key("k1"), 3_600.0)
    assert other is not None
    bad = {
        "forged": other.sign("books", found["request_id"], "", time.time()),
        "expired": token("books", found["request_id"], age=7_200.0),
        "unknown": token("books", "never-ranked"),
    }
    models = {name: token(name, "r") for name in ("never-created", "a/b", "", "x" * 200, "\n")}
    answers = [
        post(client, {"token": one, "clicked": ["a"]})
        for one in (found["token"], *bad.values(), *models.values())
    ]
    seen = {
        (one.status_code, one.content, *sorted({*one.headers} - {"x-request-id"}))
        for one in answers
    }
    assert len(seen) == 1
    expected = {"accepted": 1, "forged": 1, "expired": 1, "unknown": 1 + len(models)}
    assert added(before, counts(client)) == expected


def test_a_token_of_a_follower_is_unknown(client: httpx.Client) -> None:
    body = {"follows": "songs", "from": "now", "start": "weights"}
    assert client.put("/models/songs-b", json=body).status_code == 201
    before = counts(client)
    for name in ("songs-b", "songs/songs-b"):
        assert post(client, {"token": token(name, "r"), "clicked": []}).status_code == 204
    assert added(before, counts(client)) == {"unknown": 2}
    assert client.delete("/models/songs-b").status_code in (200, 202, 204)


def test_a_model_that_is_created_again_gets_the_events_of_its_own_lists(
    client: httpx.Client,
) -> None:
    """The same request, viewer and second: the token and the event are the same."""
    same, before = token("twice", "own"), counts(client)
    for _ in range(2):
        assert client.put("/models/twice", json={"features": 2, **PLAIN}).status_code == 201
        assert ranked(client, "twice", request_id="own")["logged"]
        post(client, {"token": same, "clicked": ["b"]})
        assert seq(client, "twice") == 1
        assert client.delete("/models/twice").status_code in (200, 202, 204)
        post(client, {"token": same, "clicked": ["b"]})
    assert added(before, counts(client)) == {"accepted": 2, "unknown": 2}


def test_a_replay_after_a_restart_is_a_duplicate(tmp_path: Path) -> None:
    environ = {"SOLAR_TOKEN_KEYS": KEYS}
    with serving(environ=environ, data=tmp_path) as started, started.client() as opened:
        assert opened.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        event = {"token": ranked(opened)["token"], "clicked": ["b", "a"], "gains": {"b": 2, "a": 1}}
        post(opened, event)
        assert seq(opened) == 1
        started.stop()
    with serving(environ=environ, data=tmp_path) as started, started.client() as opened:
        before = counts(opened)
        post(opened, event, {**event, "clicked": ["a", "b"], "gains": {"a": 1, "b": 2}})
        assert added(before, counts(opened)) == {"duplicate": 2}
        assert seq(opened) == 1


def test_concurrent_events_on_one_list_are_20_and_none_twice(client: httpx.Client) -> None:
    found, before, first = ranked(client), counts(client), seq(client)
    events = [
        {"token": found["token"], "clicked": ["b"], "gains": {"b": at / 10}} for at in range(60)
    ]
    with ThreadPoolExecutor(12) as pool:
        posts = [pool.submit(post, client, *events[at::12], *events[:2]) for at in range(12)]
        assert {one.result().status_code for one in posts} <= {204, 503}
    assert seq(client) == first + 20
    assert added(before, counts(client))["accepted"] == 20


def test_copies_in_one_post_are_stored_once(client: httpx.Client) -> None:
    event, before, first = {"token": ranked(client)["token"], "clicked": ["a"]}, counts(client), 0
    first = seq(client)
    post(client, *(event for _ in range(50)))
    assert seq(client) == first + 1
    assert added(before, counts(client)) == {"accepted": 1, "duplicate": 49}


def test_copies_at_two_workers_are_stored_once() -> None:
    """Each worker knows the events that it has seen: a copy at the other one reaches the store."""
    environ = {"SOLAR_TOKEN_KEYS": KEYS, "SOLAR_BEACON_RATE": "1000"}
    with serving("--workers", "2", environ=environ) as started, started.client() as client:
        assert client.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        found = ranked(client)
        event, posts = {"token": found["token"], "clicked": ["a"]}, 1
        post(client, event)

        def post_elsewhere() -> None:
            with started.client() as other:  # a new connection, at any of the workers
                assert post(other, event).status_code == 204

        def reached_the_store() -> bool:
            nonlocal posts
            posts += 1
            return bool(commands_about(started, found["request_id"], post_elsewhere))

        until(reached_the_store)
        assert seq(client) == 1
        assert counts(client)["accepted"] == 1
        assert counts(client)["duplicate"] == posts - 1


def test_one_list_is_counted_once_however_many_events_come(client: httpx.Client) -> None:
    def clicked_lists() -> float:
        lines = client.get("/metrics").text.splitlines()
        start = 'solar_clicked_lists_total{outcome="kept"}'
        return sum(float(line.split()[-1]) for line in lines if line.startswith(start))

    event, before = {"token": ranked(client)["token"], "clicked": ["a"]}, clicked_lists()
    post(client, *({**event, "gains": {"a": at / 50}} for at in range(50)))
    post(client, event)
    assert clicked_lists() == before + 1


def test_the_lists_of_a_duel_take_beacons(client: httpx.Client) -> None:
    """Gains act in the pairs; a duel counts clicks."""
    settings = {"features": 2, "prior": 0}
    assert client.put("/models/duels", json=settings).status_code == 201
    body = {"follows": "duels", "from": "now", "start": "weights"}
    assert client.put("/models/duels-b", json=body).status_code == 201
    answer = client.put("/models/duels/duel", json={"challenger": "duels-b", "share": 0.5})
    assert answer.status_code == 201, answer.text
    before = counts(client)

    lists = (ranked(client, "duels") for _ in range(1_000))
    found = next(one for one in lists if one.get("duel"))
    event = {"token": found["token"], "clicked": ["b"], "gains": {"b": "purchase"}, "examined": 3}
    post(client, event, event, {**event, "clicked": []})
    assert added(before, counts(client)) == {"accepted": 1, "duplicate": 1, "invalid": 1}
    until(lambda: client.get("/models/duels").json()["feedback"] >= 1)
    assert client.get("/models/duels").json()["rejected"] == 0


def test_keys_of_the_api_neither_help_nor_harm() -> None:
    secret, entry = new_key("web", "rank+feedback+read+admin")
    environ = {"SOLAR_TOKEN_KEYS": KEYS, "SOLAR_KEYS": entry}
    bearer = {"authorization": f"Bearer {secret}"}
    with serving(environ=environ) as started, started.client(headers=bearer) as opened:
        assert opened.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        found, before = ranked(opened), counts(opened)
        with started.client() as page:
            post(page, {"token": found["token"], "clicked": ["b"]})
            assert page.get("/solar.js").status_code == 200
            assert page.post("/feedback", json={}).status_code == 401
        wrong = {"authorization": "Bearer wrong", "cookie": "a=b"}
        assert post(opened, {"token": found["token"], "clicked": ["a"]}, **wrong).status_code == 204
        assert added(before, counts(opened)) == {"accepted": 2}
        quality = opened.get("/models/books").json()
        assert quality["seq"] == 2


def test_while_the_store_is_away_all_tokens_get_the_same_answer(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as store:
        environ = {"SOLAR_TOKEN_KEYS": KEYS, "SOLAR_REDIS_URL": store.url}
        with serving(environ=environ) as started, started.client() as opened:
            assert opened.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
            found = ranked(opened)
            post(opened, {"token": found["token"], "clicked": ["a"]})  # known to the worker
            store.kill()
            until(lambda: post(opened).status_code == 503)
            tokens = (found["token"], "", token("books", "x"), token("books", "y", age=9_999.0))
            before = counts(opened)
            answers = [post(opened, {"token": one, "clicked": ["a"]}) for one in tokens]
            assert {one.status_code for one in answers} == {503}
            assert len({one.content for one in answers}) == 1
            assert added(before, counts(opened)) == {"refused": len(tokens)}


@pytest.mark.parametrize(
    "event",
    [
        {"clicked": ["a"] * 1001}, {"clicked": "a"}, {"clicked": [1]}, {"clicked": None},
        {"examined": -1}, {"examined": 1.5}, {"gains": {"z": 1}},
        {"gains": {"a": "\x00"}}, {"viewer": "x" * 257}, {"viewer": None},
        {"clicked": ["a"], "gains": {"a": 1e308}}, {"clicked": ["\ud800"]}, {"clicked": [""]},
        {"clicked": ["a" * 5000]}, {"clicked": ["a", "a", "a", "a"]},
    ],
)  # fmt: skip
def test_a_valid_token_with_anything_else_tells_nothing(client: httpx.Client, event: Any) -> None:
    body, first = {"token": ranked(client)["token"], "clicked": [], **event}, seq(client)
    answer = post(client, body)
    assert (answer.status_code, answer.content) == (204, b"")
    assert seq(client) == first


def test_deep_and_odd_bodies_tell_nothing(client: httpx.Client) -> None:
    start = b'{"events":[{"token":"' + ranked(client)["token"].encode() + b'",'
    for body in (
        b'{"events":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        start + b'"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}]}",
        start + b'"clicked":["\\ud800"]}]}',
        start + b'"gains":{"a":1e400}}]}',
        start + b'"gains":{"a":' + b"9" * 5000 + b"}}]}",
        b"\xef\xbb\xbf{}", '{"events":[]}'.encode("utf-16"), b'{"events":[]}trailing',
    ):  # fmt: skip
        assert client.post("/beacon", content=body, headers=TEXT).status_code in (204, 413)
    assert client.post("/beacon", content=b'{"events":[]}', headers=TEXT).status_code == 204
    zipped = {**TEXT, "content-encoding": "gzip"}
    assert client.post("/beacon", content=gzip.compress(b"{}"), headers=zipped).status_code == 415


def test_a_chunked_body_over_the_limit_is_refused(client: httpx.Client) -> None:
    answer = client.post("/beacon", content=(b"x" * 8_192 for _ in range(9)), headers=TEXT)
    assert answer.status_code == 413


def test_other_methods_are_refused(client: httpx.Client) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/beacon").status_code == 405


def test_events_that_take_too_much_work_together_are_stored_one_by_one() -> None:
    environ = {"SOLAR_TOKEN_KEYS": KEYS, "SOLAR_BACKLOG_WORK": "5e6", "SOLAR_BEACON_RATE": "1000"}
    with serving(environ=environ) as started, started.client() as opened:
        assert opened.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        tokens, before = [ranked(opened)["token"] for _ in range(8)], counts(opened)
        answer = post(opened, *({"token": one, "clicked": ["b"]} for one in tokens))
        found = added(before, counts(opened))
        assert sum(found.values()) == 8
        assert "invalid" not in found
        assert answer.status_code == (204 if found == {"accepted": 8} else 503)
