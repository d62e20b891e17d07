"""`solar learn`, `log`, `replay` and `verify`, as people run them, on a real store."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.domain import codec
from app.domain.impressions import Impression
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Replace, ResetMeasures, Retune
from app.errors import StoreError
from app.ingest.appender import PendingEvent, post
from app.learning import replay
from app.learning.replay import verify
from app.storage.embedded.server import SOCKET, EmbeddedServer
from app.storage.keys import Keys
from app.storage.log import NewRecord
from app.storage.store import Store
from tests.servers import PATIENCE, client, old_server, server, until, url, with_store
from tests.test_codec import bits
from tests.test_learner import QUICK, append, blobs, committed, feedback, first, learning, replayed

__all__ = ["server", "url"]  # fixtures

ROOT = Path(__file__).parents[1]


def solar(url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command, *rest = arguments
    return subprocess.run(
        [sys.executable, "-m", "app", command, "--redis-url", url, *rest],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )


def one_line(ran: "subprocess.CompletedProcess[str]") -> str:
    """What a command that failed had to say: one line, no stack trace."""
    assert ran.returncode == 2, ran
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert ran.stderr.startswith("solar: ")
    return ran.stderr


def learnt(url: str, records: list[bytes], model: str = "books", **pace: Any) -> ModelState:
    """A model with a log, learnt."""

    async def act(store: Store) -> ModelState:
        await store.models.create(model, first())
        async with learning(store, replace(QUICK, **pace)):
            for begin in range(0, len(records), 10):
                await append(store, records[begin : begin + 10], model)
            return await committed(store, len(records), model)

    return with_store(url, act)


def claim(state: ModelState) -> dict[str, Any]:
    return {"seq": state.seq, "chain": state.chain.hex()}


def tamper(url: str, name: str, blob: bytes) -> None:
    with client(url) as connection:
        connection.hset(Keys("books").state, name, blob)


# ---- learn ----


@contextlib.contextmanager
def a_learner(url: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "app", "learn", "--redis-url", url],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SOLAR_LEASE": "2"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_learner_told_to_stop_commits_releases_and_ends_well(url: str, how: int) -> None:
    async def act(store: Store) -> ModelState:
        await store.models.create("books", first())
        with a_learner(url) as process:
            await append(store, blobs(0, 20))
            await committed(store, 1)
            await append(store, blobs(20, 40))
            await committed(store, 20)
            process.send_signal(how)
            _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
        assert "Traceback" not in said
        return (await store.states.load("books")).state

    state = with_store(url, act)
    assert bits(state) == bits(replayed(first(), blobs(0, 40)))
    with client(url) as connection:
        assert connection.exists(Keys("books").lease) == 0


def test_a_learner_of_a_badly_set_server_says_so_and_learns(url: str) -> None:
    async def act(store: Store) -> str:
        await store.models.create("books", first())
        with client(url) as connection:
            connection.config_set("appendfsync", "everysec")
        with a_learner(url) as process:
            await append(store, blobs(0, 3))
            await committed(store, 3)
            process.terminate()
            return str(process.communicate(timeout=20)[1])

    try:
        assert "appendfsync: expected always, got everysec" in with_store(url, act)
    finally:
        with client(url) as connection:
            connection.config_set("appendfsync", "always")


# ---- log ----


def test_a_learner_without_a_store_lives_but_is_not_ready_until_it_comes(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"unix://{tmp_path / 'data' / SOCKET}"
    learn = [sys.executable, "-m", "app", "learn", "--redis-url", url, "--port", str(port)]
    with subprocess.Popen(learn, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: status(port, "/healthz") == 200)
            assert status(port, "/readyz") == 503
            with EmbeddedServer.start(tmp_path / "data"):
                until(lambda: status(port, "/readyz") == 200)
                process.terminate()
                assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def status(port: int, path: str) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False).status_code
    except httpx.TransportError:
        return 0


def test_a_log_is_shown_a_record_a_line(url: str) -> None:
    documents = np.zeros((3, 4), np.float32)
    clicks = Feedback(
        "e-1", "clicks", documents, np.arange(3), clicks=np.array([2]), query="r", source="web"
    )
    records = [
        codec.dump_record(clicks),
        codec.dump_record(Retune(gamma=5.0)),
        codec.dump_record(ResetMeasures()),
        codec.dump_record(Replace(first().model, "warm start")),
        b"junk",
    ]
    learnt(url, records)
    ran = solar(url, "log", "books")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == [1, 2, 3, 4, 5]
    for part in ('"clicks": [2]', '"source": "web"', '"event": "e-1"', '"documents": 3'):
        assert part in lines[0]
    assert '"gamma": 5.0' in lines[1]
    assert "reset" in lines[2]
    assert '"replace": "warm start"' in lines[3]
    assert "unreadable: expected a blob of ours" in lines[4]
    some = solar(url, "log", "books", "--after", "1", "--count", "2").stdout.splitlines()
    assert some == lines[1:3]


def test_the_log_of_a_trimmed_model_begins_where_it_begins(url: str) -> None:
    learnt(url, blobs(0, 40), version=5, versions=2)
    ran = solar(url, "log", "books", "--count", "3")
    assert ran.returncode == 0, ran.stderr
    assert [int(line.split()[0]) for line in ran.stdout.splitlines()] == [36, 37, 38]


# ---- replay and verify ----


def test_a_replay_of_a_good_model_matches_and_says_from_where(url: str) -> None:
    learnt(url, blobs(0, 33), version=5, versions=3)
    ran = solar(url, "replay", "books")
    assert ran.returncode == 0, ran.stderr
    assert "from version 20" in ran.stdout
    assert "the same bits as the committed state at 33" in ran.stdout
    assert "books: log dense" in solar(url, "verify").stdout


@pytest.mark.parametrize(
    ("field", "named"), [("w", "weights"), ("spread", "covariance"), ("sums", "measures")]
)
def test_a_replay_names_what_differs(url: str, field: str, named: str) -> None:
    state = learnt(url, blobs(0, 10))
    other = {"w": state.model.weights, "spread": state.model.spread, "sums": state.sums}[field]
    fields = claim(state) if field == "w" else {}
    tamper(url, field, codec.dump_blob(field, fields, {"values": np.nextafter(other, 9.0)}))
    said = one_line(solar(url, "replay", "books"))
    assert said == f"solar: books: the replay differs in {named}\n"


def test_a_replay_names_settings_that_differ(url: str) -> None:
    learnt(url, blobs(0, 3))
    settings = replace(first().model.config, gamma=99.0)
    tamper(url, "meta", codec.dump_blob("meta", codec.dump_config(settings), {}))
    assert "differs in settings" in one_line(solar(url, "replay", "books"))


def test_verify_names_every_bad_model_and_what_is_wrong_with_it(url: str) -> None:
    learnt(url, blobs(0, 5))
    learnt(url, blobs(0, 5), "atlas")
    learnt(url, blobs(0, 5), "maps")
    with client(url) as connection:
        connection.hset(Keys("books").state, "w", b"junk")
        connection.xdel(Keys("maps").log, "3-0")
    ran = solar(url, "verify")
    assert ran.returncode == 2
    lines = dict(line.split(":", 1) for line in ran.stdout.splitlines())
    assert set(lines) == {"atlas", "books", "maps"}
    assert "log dense" in lines["atlas"]
    assert "a blob of ours" in lines["books"]
    assert "gap" in lines["maps"]
    assert "2 of the models" in ran.stderr


def test_verify_finds_other_bits(url: str) -> None:
    state = learnt(url, blobs(0, 5))
    tamper(url, "w", codec.dump_blob("w", claim(state), {"values": state.model.weights + 1.0}))

    assert with_store(url, lambda store: verify(store, "books")) == [
        "weights: the replay differs from the committed state"
    ]


def test_verify_finds_weights_that_are_no_numbers(url: str) -> None:
    state = learnt(url, blobs(0, 5))
    tamper(url, "w", codec.dump_blob("w", claim(state), {"values": np.full(4, np.nan)}))
    complaints = with_store(url, lambda store: verify(store, "books"))
    assert "weights: expected finite numbers" in complaints


def test_verify_finds_a_state_that_is_ahead_of_its_log(url: str) -> None:
    learnt(url, blobs(0, 5))
    with client(url) as connection:
        connection.set(Keys("books").seq, 3)
    complaints = with_store(url, lambda store: verify(store, "books"))
    assert any("the state is at 5, but the log ends at 3" in complaint for complaint in complaints)


def test_verify_finds_a_gap_beyond_what_is_committed(url: str) -> None:
    learnt(url, blobs(0, 5))

    async def act(store: Store) -> list[str]:
        await append(store, blobs(5, 9))
        with client(url) as connection:
            connection.xdel(Keys("books").log, "7-0")
        try:
            return await verify(store, "books")
        except StoreError as error:
            return [str(error)]

    assert "gap" in "".join(with_store(url, act))


def test_verify_of_a_live_model_complains_of_nothing(url: str) -> None:
    """While records are appended, learnt, and trimmed away."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, replace(QUICK, commit=0.0, version=20, versions=3)):
            for at in range(150):
                await append(store, [feedback(at)])
                if at % 5 == 0:
                    assert await verify(store, "books") == []

    with_store(url, act)


@pytest.mark.parametrize("command", ["log", "replay", "verify"])
def test_an_unknown_model_is_one_clear_line(url: str, command: str) -> None:
    assert "model atlas: no model of this name" in one_line(solar(url, command, "atlas"))


@pytest.mark.parametrize("command", ["learn", "verify"])
def test_an_old_server_is_one_clear_line(command: str) -> None:
    with old_server("6.2.14") as url:
        assert "expected Redis 7.0 or newer, or a Valkey, got 6.2.14" in one_line(
            solar(url, command)
        )


def test_a_store_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    gone = f"unix://{tmp_path}/nothing.sock"
    line = f"the store at {tmp_path}/nothing.sock is unreachable: No such file or directory"
    assert line in one_line(solar(gone, "verify"))
    assert "store URL: expected one of" in one_line(solar("http://here", "log", "books"))


# ---- without a source ----

SETTINGS = ModelConfig(("x", "y", "z"), gamma=10.0)
LISTS = {
    name: Impression(
        ("a", "b", "c", "d"),
        np.random.default_rng(at).standard_normal((4, 3)).astype(np.float32),
        np.array([2, 0, 3, 1]),
    )
    for at, name in enumerate(["both", "good only", "bad first"])
}


def on(request: str, event: str, source: str, **said: Any) -> PendingEvent:
    shown = LISTS[request]
    kind = "clicks" if "clicks" in said else "labels"
    bare = Feedback(event, kind, shown.documents, shown.submitted, query=request, source=source)  # type: ignore[arg-type]
    arrays: dict[str, Any] = {name: np.array(places) for name, places in said.items()}
    return PendingEvent(replace(bare, **arrays), on_request=True)


def own(event: str, source: str, labels: list[float]) -> PendingEvent:
    documents = LISTS["both"].documents
    return PendingEvent(
        Feedback(event, "labels", documents, labels=np.array(labels), source=source)
    )


POSTS = [
    own("1", "good", [0.0, 1.0, 2.0, 0.0]),
    on("both", "2", "good", clicks=[3]),
    on("both", "3", "bad", clicks=[0]),
    on("both", "4", "good", clicks=[1]),
    own("5", "bad", [2.0, 0.0, 0.0, 0.0]),
    on("good only", "6", "good", clicks=[2]),
    on("bad first", "7", "bad", labels=[3.0, 0.0, 0.0, 0.0]),
    on("bad first", "8", "good", clicks=[3]),
    on("both", "9", "bad", labels=[0.0, 0.0, 0.0, 4.0]),
    on("both", "10", "good", clicks=[2]),
    on("good only", "11", "good", labels=[0.0, 1.0, 0.0, 0.0]),
]
GOOD = [posted for posted in POSTS if posted.feedback.source == "good"]


async def posted_to(store: Store, model: str, posts: list[PendingEvent]) -> None:
    epoch = await store.models.create(model, initial_state(SETTINGS))
    shown = {name: one.dump() for name, one in LISTS.items()}
    await store.log.remember(model, epoch, shown, 60.0)
    for one in posts:
        await post(store, model, epoch, [one], limit=100, time=1)


def test_a_replay_without_a_source_is_as_if_it_had_never_posted(url: str) -> None:
    async def prepare(store: Store) -> ModelState:
        await posted_to(store, "books", POSTS)
        await posted_to(store, "never", GOOD)
        async with learning(store):
            await committed(store, len(POSTS))
            return await committed(store, len(GOOD), "never")

    never = with_store(url, prepare)
    found = with_store(url, lambda store: replay.replay(store, "books", "bad"))
    assert found.skipped == len(POSTS) - len(GOOD)
    assert bits(found.replayed.model) == bits(never.model)
    assert found.replayed.sums.tobytes() == never.sums.tobytes()
    before = with_store(url, lambda store: store.log.tail("books"))
    ran = solar(url, "replay", "books", "--without-source", "bad")
    assert ran.returncode == 0, ran.stderr
    assert f"left out {found.skipped} records of source bad" in ran.stdout
    assert with_store(url, lambda store: store.log.tail("books")) == before


def test_applying_a_replay_puts_the_model_in_place_by_a_record(url: str) -> None:
    async def prepare(store: Store) -> ModelState:
        await posted_to(store, "books", POSTS)
        await posted_to(store, "never", GOOD)
        async with learning(store):
            await committed(store, len(POSTS))
            return await committed(store, len(GOOD), "never")

    never = with_store(url, prepare)
    ran = solar(url, "replay", "books", "--without-source", "bad", "--apply")
    assert ran.returncode == 0, ran.stderr
    seq = len(POSTS) + 1
    assert f"record {seq} puts the result in place" in ran.stdout

    async def learn(store: Store) -> ModelState:
        async with learning(store):
            return await committed(store, seq)

    state = with_store(url, learn)
    assert bits(state.model) == bits(never.model)
    assert with_store(url, lambda store: store.states.versions("books")) == [0, len(POSTS)]
    assert "the same bits" in solar(url, "replay", "books").stdout


def test_applying_a_replay_loses_nothing_that_waits_in_the_log(url: str) -> None:
    """What good sources posted after the last commit is in the model that takes its place."""

    async def prepare(store: Store) -> ModelState:
        await posted_to(store, "books", POSTS[:5])
        await posted_to(store, "never", GOOD)
        async with learning(store):
            await committed(store, 5)
            never = await committed(store, len(GOOD), "never")
        epoch, *_ = await store.states.position("books")
        await post(store, "books", epoch, POSTS[5:], limit=100, time=1)
        return never

    never = with_store(url, prepare)
    ran = solar(url, "replay", "books", "--without-source", "bad", "--apply")
    assert ran.returncode == 0, ran.stderr

    async def learn(store: Store) -> ModelState:
        async with learning(store):
            return await committed(store, len(POSTS) + 1)

    assert bits(with_store(url, learn).model) == bits(never.model)


def test_applying_needs_a_source_to_leave_out(url: str) -> None:
    assert "--apply: expected --without-source" in one_line(
        solar(url, "replay", "books", "--apply")
    )


def test_an_event_named_like_a_replay_s_does_not_keep_it_from_being_applied(url: str) -> None:
    async def prepare(store: Store) -> int:
        await posted_to(store, "books", POSTS)
        async with learning(store):
            await committed(store, len(POSTS))
        epoch, *_ = await store.states.position("books")
        name = f"replay-{len(POSTS) + 1}-bad"
        forged = NewRecord(name, b"", codec.dump_record(ResetMeasures()))
        await store.log.append("books", epoch, [forged], limit=100, time=1)
        async with learning(store):
            await committed(store, len(POSTS) + 1)
        return await store.log.tail("books")

    tail = with_store(url, prepare)
    ran = solar(url, "replay", "books", "--without-source", "bad", "--apply")
    assert with_store(url, lambda store: store.log.tail("books")) == tail + 1, (
        ran.stdout + ran.stderr
    )
