"""`solar learn`, `log`, `replay` and `verify` on a real store."""

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

from app.__main__ import COMMANDS, build_parser, main
from app.domain import codec
from app.domain.impressions import Impression
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Replace, ResetMeasures, Retune
from app.errors import StoreError
from app.ingest.appender import PendingEvent, post
from app.learning import replay
from app.learning.replay import verify
from app.storage.embedded.data_directory import SOCKET
from app.storage.embedded.server import EmbeddedServer
from app.storage.keys import Keys
from app.storage.log import NewImpression, NewRecord
from app.storage.store import Store
from tests.servers import TIMEOUT, client, old_server, server, until, url, with_store
from tests.test_codec import bits
from tests.test_learner import (
    SHORT_INTERVALS,
    append,
    blobs,
    committed,
    feedback,
    first,
    learning,
    replayed,
)

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
    """The error of a failed command: one line, no stack trace."""
    assert ran.returncode == 2, ran
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert ran.stderr.startswith("solar: ")
    return ran.stderr


def learnt(url: str, records: list[bytes], model: str = "books", **pace: Any) -> ModelState:
    """Create a model, append records and learn them."""

    async def act(store: Store) -> ModelState:
        await store.models.create(model, first())
        async with learning(store, replace(SHORT_INTERVALS, **pace)):
            for begin in range(0, len(records), 10):
                await append(store, records[begin : begin + 10], model)
            return await committed(store, len(records), model)

    return with_store(url, act)


def claim(state: ModelState) -> dict[str, Any]:
    return {"seq": state.seq, "chain": state.chain.hex()}


def tamper(url: str, name: str, blob: bytes) -> None:
    with client(url) as connection:
        connection.hset(Keys("books").state, name, blob)


# ---- arguments ----


def test_every_command_and_option_has_a_help_text() -> None:
    (commands,) = (one.choices for one in build_parser()._actions if isinstance(one.choices, dict))
    assert set(commands) == set(COMMANDS)
    for name, parser in commands.items():
        assert parser.description, name
        assert all(action.help for action in parser._actions), name
        assert "%" not in parser.format_help(), name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["config", "--prot", "1"], "solar config: unknown arguments: --prot 1"),
        (["log"], "solar log: the following arguments are required: MODEL"),
        (["log", "m", "--after", "x"], "expected a whole number of at least 0, got 'x'"),
        (["train", "x", "--C", "much"], "solar train: argument --C: expected a number, got 'much'"),
        (["serv"], "solar: argument COMMAND: invalid choice: 'serv'"),
    ],
)
def test_a_wrong_argument_is_one_error_line_and_a_pointer_to_the_help(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    error, pointer = capsys.readouterr().err.splitlines()
    assert message in error
    assert pointer == f"see {error.split(':')[0]} --help"


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
def test_a_stopped_learner_commits_releases_its_lease_and_exits_with_0(url: str, how: int) -> None:
    async def act(store: Store) -> ModelState:
        await store.models.create("books", first())
        with a_learner(url) as process:
            await append(store, blobs(0, 20))
            await committed(store, 1)
            await append(store, blobs(20, 40))
            await committed(store, 20)
            process.send_signal(how)
            _, printed = process.communicate(timeout=20)
        assert process.returncode == 0, printed
        assert "Traceback" not in printed
        return (await store.states.load("books")).state

    state = with_store(url, act)
    assert bits(state) == bits(replayed(first(), blobs(0, 40)))
    with client(url) as connection:
        assert connection.exists(Keys("books").lease) == 0


def test_a_learner_warns_of_wrong_server_settings_and_learns(url: str) -> None:
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


def test_a_learner_without_a_store_is_healthy_and_becomes_ready_with_the_store(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"unix://{tmp_path / 'data' / SOCKET}"
    learn = [sys.executable, "-m", "app", "learn", "--redis-url", url, "--port", str(port)]
    with subprocess.Popen(learn, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: status(port, "/healthz") == 200)
            assert status(port, "/readyz") == 503
            assert status(port, "/metrics", host="evil.example") == 421
            with EmbeddedServer.start(tmp_path / "data"):
                until(lambda: status(port, "/readyz") == 200)
                process.terminate()
                assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()


def status(port: int, path: str, host: str = "localhost") -> int:
    url = f"http://127.0.0.1:{port}{path}"
    try:
        return httpx.get(url, headers={"host": host}, trust_env=False).status_code
    except httpx.TransportError:
        return 0


def test_solar_log_prints_one_record_per_line(url: str) -> None:
    documents = np.zeros((3, 4), np.float32)
    clicks = Feedback(
        "e-1", "clicks", documents, np.arange(3), clicks=np.array([2]), query="r", source="web"
    )
    records = [
        codec.dump_record(clicks),
        codec.dump_record(Retune(gamma=5.0, explore=False)),
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
    assert lines[1].endswith('{"retune": {"gamma": 5.0, "explore": false}}')
    assert "reset" in lines[2]
    assert '"replace": "warm start"' in lines[3]
    assert "unreadable: expected a SOLAR blob" in lines[4]
    some = solar(url, "log", "books", "--after", "1", "--count", "2").stdout.splitlines()
    assert some == lines[1:3]


def test_solar_log_starts_at_the_first_kept_record_of_a_trimmed_log(url: str) -> None:
    learnt(url, blobs(0, 40), version=5, versions=2)
    ran = solar(url, "log", "books", "--count", "3")
    assert ran.returncode == 0, ran.stderr
    assert [int(line.split()[0]) for line in ran.stdout.splitlines()] == [36, 37, 38]


# ---- replay and verify ----


def test_the_replay_of_a_valid_model_equals_it_and_prints_the_first_version(url: str) -> None:
    learnt(url, blobs(0, 33), version=5, versions=3)
    ran = solar(url, "replay", "books")
    assert ran.returncode == 0, ran.stderr
    assert "from version 20" in ran.stdout
    assert "the replay equals the committed state at record 33" in ran.stdout
    assert "books: log without gaps" in solar(url, "verify").stdout


@pytest.mark.parametrize(
    ("field", "named"), [("w", "weights"), ("spread", "covariance"), ("sums", "measures")]
)
def test_a_replay_names_the_part_that_differs(url: str, field: str, named: str) -> None:
    state = learnt(url, blobs(0, 10))
    other = {"w": state.model.weights, "spread": state.model.spread, "sums": state.sums}[field]
    fields = claim(state) if field == "w" else {}
    tamper(url, field, codec.dump_blob(field, fields, {"values": np.nextafter(other, 9.0)}))
    printed = one_line(solar(url, "replay", "books"))
    assert printed == f"solar: books: the replay differs in {named}\n"


def test_a_replay_names_settings_that_differ(url: str) -> None:
    learnt(url, blobs(0, 3))
    settings = replace(first().model.config, gamma=99.0)
    tamper(url, "meta", codec.dump_blob("meta", codec.dump_config(settings), {}))
    assert "differs in settings" in one_line(solar(url, "replay", "books"))


def test_verify_names_every_bad_model_and_its_problem(url: str) -> None:
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
    assert "log without gaps" in lines["atlas"]
    assert "a SOLAR blob" in lines["books"]
    assert "gap" in lines["maps"]
    assert "2 of 3 models" in ran.stderr


def test_verify_prints_the_loss_bounds_of_a_log_that_begins_after_a_version(url: str) -> None:
    learnt(url, blobs(0, 33), version=5, versions=3)
    ran = solar(url, "verify", "--bound", "books")
    assert ran.returncode == 0, ran.stderr
    lines = [line.removeprefix("books: ") for line in ran.stdout.splitlines()]
    for line, comparator in zip(lines, ("final weights", "batch RankSVM"), strict=False):
        words = line.replace(",", "").split()
        assert line.startswith(f"Theorem 3 (corrected), {comparator}: ")
        assert float(words[words.index("loss") + 1]) > 0.0
        assert 0.0 < float(words[words.index("ratio") + 1]) <= 1.0
    assert lines[-1].startswith("log without gaps")


def test_verify_finds_changed_bits(url: str) -> None:
    state = learnt(url, blobs(0, 5))
    tamper(url, "w", codec.dump_blob("w", claim(state), {"values": state.model.weights + 1.0}))

    assert with_store(url, lambda store: verify(store, "books")) == [
        "weights: the replay differs from the committed state"
    ]


def test_verify_finds_weights_that_are_not_finite(url: str) -> None:
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


def test_verify_finds_a_gap_after_the_committed_record(url: str) -> None:
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


def test_verify_of_a_live_model_finds_no_problem(url: str) -> None:
    """While records are appended, learnt, and trimmed away."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with learning(store, replace(SHORT_INTERVALS, commit=0.0, version=20, versions=3)):
            for at in range(150):
                await append(store, [feedback(at)])
                if at % 5 == 0:
                    assert await verify(store, "books") == []

    with_store(url, act)


@pytest.mark.parametrize("command", ["log", "replay", "verify"])
def test_an_unknown_model_is_a_one_line_error(url: str, command: str) -> None:
    assert "model atlas: no model of this name" in one_line(solar(url, command, "atlas"))


@pytest.mark.parametrize("command", ["learn", "verify"])
def test_an_old_server_is_a_one_line_error(command: str) -> None:
    with old_server("6.2.14") as url:
        assert "expected Redis 7.0 or newer, or a Valkey, got 6.2.14" in one_line(
            solar(url, command)
        )


def test_an_unreachable_store_is_a_one_line_error(tmp_path: Path) -> None:
    gone = f"unix://{tmp_path}/nothing.sock"
    line = f"the store at {tmp_path}/nothing.sock is unreachable: No such file or directory"
    assert line in one_line(solar(gone, "verify"))
    assert "store URL: expected one of" in one_line(solar("http://here", "log", "books"))


@pytest.mark.parametrize("words", [["verify"], ["log", "books"], ["replay", "books"]])
def test_a_directory_without_a_store_is_an_error_and_stays_empty(
    tmp_path: Path, words: list[str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "app", *words, "--data-dir", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert f"{tmp_path}: no store there" in one_line(ran)
    assert list(tmp_path.iterdir()) == []


# ---- without a source ----

SETTINGS = ModelConfig(("x", "y", "z"), gamma=10.0)
IMPRESSIONS = {
    name: Impression(
        ("a", "b", "c", "d"),
        np.random.default_rng(at).standard_normal((4, 3)).astype(np.float32),
        np.array([2, 0, 3, 1]),
    )
    for at, name in enumerate(["both", "good only", "bad first"])
}


def on(request: str, event: str, source: str, **feedback: Any) -> PendingEvent:
    shown = IMPRESSIONS[request]
    kind = "clicks" if "clicks" in feedback else "labels"
    bare = Feedback(event, kind, shown.documents, shown.submitted, query=request, source=source)  # type: ignore[arg-type]
    arrays: dict[str, Any] = {name: np.array(values) for name, values in feedback.items()}
    return PendingEvent(replace(bare, **arrays), on_request=True)


def own(event: str, source: str, labels: list[float]) -> PendingEvent:
    documents = IMPRESSIONS["both"].documents
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
POSTS_OF_GOOD = [posted for posted in POSTS if posted.feedback.source == "good"]


async def posted_to(store: Store, model: str, posts: list[PendingEvent]) -> None:
    epoch = await store.models.create(model, initial_state(SETTINGS))
    shown = [NewImpression(name, one.dump()) for name, one in IMPRESSIONS.items()]
    await store.log.store_impressions(model, epoch, shown, 60.0)
    for one in posts:
        await post(store, model, epoch, [one], limit=100, time=1)


def test_a_replay_without_a_source_equals_a_log_without_it(url: str) -> None:
    async def prepare(store: Store) -> ModelState:
        await posted_to(store, "books", POSTS)
        await posted_to(store, "never", POSTS_OF_GOOD)
        async with learning(store):
            await committed(store, len(POSTS))
            return await committed(store, len(POSTS_OF_GOOD), "never")

    never = with_store(url, prepare)
    found = with_store(url, lambda store: replay.replay(store, "books", "bad"))
    assert found.skipped == len(POSTS) - len(POSTS_OF_GOOD)
    assert bits(found.replayed.model) == bits(never.model)
    assert found.replayed.sums.tobytes() == never.sums.tobytes()
    before = with_store(url, lambda store: store.log.tail("books"))
    ran = solar(url, "replay", "books", "--without-source", "bad")
    assert ran.returncode == 0, ran.stderr
    assert f"applied {len(POSTS_OF_GOOD)} records from version 0" in ran.stdout
    assert f"left out {found.skipped} records of source bad" in ran.stdout
    assert with_store(url, lambda store: store.log.tail("books")) == before


def test_applying_a_replay_appends_a_record_that_replaces_the_model(url: str) -> None:
    async def prepare(store: Store) -> ModelState:
        await posted_to(store, "books", POSTS)
        await posted_to(store, "never", POSTS_OF_GOOD)
        async with learning(store):
            await committed(store, len(POSTS))
            return await committed(store, len(POSTS_OF_GOOD), "never")

    never = with_store(url, prepare)
    ran = solar(url, "replay", "books", "--without-source", "bad", "--apply")
    assert ran.returncode == 0, ran.stderr
    seq = len(POSTS) + 1
    assert f"record {seq} replaces the model by the result" in ran.stdout

    async def learn(store: Store) -> ModelState:
        async with learning(store):
            return await committed(store, seq)

    state = with_store(url, learn)
    assert bits(state.model) == bits(never.model)
    assert with_store(url, lambda store: store.states.versions("books")) == [0, len(POSTS)]
    assert "the replay equals" in solar(url, "replay", "books").stdout


def test_applying_a_replay_keeps_records_that_wait_in_the_log(url: str) -> None:
    """Posts of good sources after the last commit are in the new model."""

    async def prepare(store: Store) -> ModelState:
        await posted_to(store, "books", POSTS[:5])
        await posted_to(store, "never", POSTS_OF_GOOD)
        async with learning(store):
            await committed(store, 5)
            never = await committed(store, len(POSTS_OF_GOOD), "never")
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


@pytest.mark.parametrize(
    ("source", "left_out"),
    [
        ("shop", ["shop", "web/shop", "web@acme/shop"]),
        ("web/shop", ["web/shop"]),
        ("web", ["web", "app/web"]),
        ("web/", ["web", "web/shop", "web/a/shop"]),
        ("a/shop", ["web/a/shop"]),
        ("", [""]),
    ],
)
def test_a_source_is_left_out_by_its_name_its_key_or_both(source: str, left_out: list[str]) -> None:
    names = ["", "shop", "web", "web/shop", "web@acme/shop", "app/web", "web/a/shop", "webshop"]
    given = replay.SourceFilter(source)
    judged = Feedback("e", "labels", np.eye(2, dtype=np.float32), labels=np.ones(2))
    records = {name: codec.dump_record(replace(judged, source=name)) for name in names}
    assert [name for name, one in records.items() if given.keep(one) is None] == left_out
    on_request = replace(judged, submitted=np.arange(2), query="r")
    shown = {name: codec.dump_record(replace(on_request, source=name)) for name in names}
    assert [name for name, one in shown.items() if given.keep(one) is None] == left_out


def test_a_replay_says_what_it_cannot_leave_out(url: str) -> None:
    async def prepare(store: Store) -> None:
        await posted_to(store, "books", POSTS)
        async with learning(store):
            await committed(store, len(POSTS))

    with_store(url, prepare)
    nothing = solar(url, "replay", "books", "--without-source", "baad").stdout
    assert "no record has this source; `solar log books` prints the sources" in nothing
    first = solar(url, "replay", "books", "--without-source", "bad", "--apply").stdout
    assert "influence" not in first
    left_out = len(POSTS) - len(POSTS_OF_GOOD)
    second = solar(url, "replay", "books", "--without-source", "bad").stdout
    assert f"{left_out} of them are before a record that replaces the model" in second


def test_apply_requires_a_source_to_leave_out(url: str) -> None:
    assert "--apply: expected --without-source" in one_line(
        solar(url, "replay", "books", "--apply")
    )


def test_an_event_id_like_that_of_a_replay_does_not_block_it(url: str) -> None:
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


def test_an_error_follows_what_was_printed_also_in_one_pipe() -> None:
    """Python buffers a pipe unless PYTHONUNBUFFERED is set, which a fresh machine has not."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run(
        [sys.executable, "-m", "app", "config"], env={**environ, "SOLAR_PROT": "9000"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.splitlines()[-1].startswith("solar: SOLAR_PROT: unknown setting")
