"""Invalid input over real HTTP: refused with a short answer, quickly, and nothing is stored."""

import gzip
import json
import os
import random
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import numpy as np
import pytest
import redis

from app.api.errors import TITLES
from app.storage.embedded import server
from tests.api.services import PLAIN, Running, serving
from tests.faults import rounds
from tests.servers import TIMEOUT, until

JSON, MSGPACK = "application/json", "application/msgpack"
PROBLEM = "application/problem+json"
#: Part of every request: in the path, a header and the body. No answer and no log may contain it.
MARKER = "qzMARKERzq"
MAX_ANSWER_BYTES = 2000
MAX_SECONDS = 0.05
TRIES = 10  # the machine may be busy: one try has to be within MAX_SECONDS
BODY_BYTES, PAIRS = 2_000_000, 20_000  # limits of the services under test
GIVE_UP_SECONDS = 2.5  # until 408 from the service with a body timeout of 0.3 s
MANY_DIGITS, LONG_ID = "9" * 5000, "x" * 129


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


# ---- a raw connection ----


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """A raw connection: sends any bytes, and reads answers."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT)
        self._unread = b""

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the answer may come earlier
            self._socket.sendall(data)

    def readable(self, seconds: float) -> bool:
        """Whether data arrives within this time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def shut_down_sending(self) -> None:
        """Close the sending side."""
        self._socket.shutdown(socket.SHUT_WR)

    def closed(self) -> bool:
        """Wait until the service closes the connection without sending more."""
        return not self._unread and not self._receive()

    def reply(self) -> Reply:
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:])
        body = self._exactly(int(headers.get("content-length", 0)))
        return Reply(int(head[0].split()[1]), headers, body)

    def _until(self, end: bytes) -> bytes:
        while end not in self._unread:
            self._more()
        found, _, self._unread = self._unread.partition(end)
        return found

    def _exactly(self, count: int) -> bytes:
        while len(self._unread) < count:
            self._more()
        found, self._unread = self._unread[:count], self._unread[count:]
        return found

    def _more(self) -> None:
        received = self._receive()
        assert received, "the connection was closed before an answer"
        self._unread += received

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except ConnectionResetError:  # closed while this side was still sending
            return b""


def head(method: str, path: str, *lines: str) -> bytes:
    start = (f"{method} {path}?m={MARKER} HTTP/1.1", "Host: localhost", f"X-Marker: {MARKER}")
    return "\r\n".join([*start, *lines, "", ""]).encode()


@dataclass(frozen=True)
class Ask:
    """A request and its expected status."""

    case: str
    status: int
    body: bytes | str | dict[str, Any]
    path: str = "/rank"
    media_type: str = JSON
    method: str = "POST"
    headers: tuple[str, ...] = ()
    repeats: bool = False  # the marker is also an unknown name, which the answer repeats

    def encoded(self) -> bytes:
        match self.body:
            case bytes():
                return self.body
            case str():
                return self.body.encode()
            case _:
                return json.dumps(self.body).encode()

    def sent(self) -> bytes:
        body = self.encoded()
        kind = [f"Content-Type: {self.media_type}"] if self.media_type else []
        lines = (*kind, f"Content-Length: {len(body)}", *self.headers)
        return head(self.method, self.path, *lines) + body


# ---- the service under test ----


def worker(running: Running) -> int:
    """Return the worker process of a service."""
    parent = running.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return next(
        int(child) for child, command in commands.items() if b"app.runtime.worker" in command
    )


def resident(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak(process: int) -> int:
    """Return the peak resident memory of a process in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@dataclass
class ServiceUnderTest:
    """A service with models `books` and `films` of two features, and a client of its store."""

    running: Running
    store: Any

    def ask(self, ask: Ask) -> Reply:
        with Connection(self.running.url) as connection:
            connection.send(ask.sent())
            return connection.reply()

    def post(self, path: str, body: Any, *headers: str) -> Reply:
        return self.ask(Ask("", 0, body, path, headers=headers))

    def model(self, name: str = "books") -> Any:
        """Read a model after it has learnt all records."""
        until(self.settled)
        return self.ask(Ask("", 200, b"", f"/models/{name}", method="GET")).json()

    def ranked(self, count: int = 4, model: str = "books") -> tuple[str, list[str]]:
        """Rank documents and log the impression; return its request id and the ranking."""
        documents = [{"id": f"d{at}", "features": [0, at % 5]} for at in range(count)]
        answer = self.post("/rank", {"model": model, "documents": documents}).json()
        assert answer["logged"]
        return answer["request_id"], [one["id"] for one in answer["documents"]]

    def stored(self) -> dict[str, bytes]:
        """Return everything in the store except leases, and what workers count."""
        leases = (":lease", ":fence", ":learners", "solar:history", "solar:kept")
        names = [name.decode() for name in self.store.keys("*")]
        names = sorted(name for name in names if not name.endswith(leases))
        names = [name for name in names if not name.startswith("solar:{solar:learners}:")]
        return {name: self.store.dump(name) for name in names}

    def tail(self, model: str = "books") -> int:
        return int(self.store.get(f"solar:{{{model}}}:seq"))

    def settled(self) -> bool:
        """Whether all records are learnt."""
        return all(
            int(self.store.hget(name.replace(b":seq", b":state"), "seq"))
            == int(self.store.get(name))
            for name in self.store.keys("*:seq")
        )

    def cpu_seconds(self) -> float:
        """Return the worker's CPU seconds, as other processes may load the machine."""
        try:
            own = Path(f"/proc/{worker(self.running)}/schedstat").read_text()
        except FileNotFoundError:
            return time.perf_counter()
        return int(own.split()[0]) / 1e9

    def refuses(self, ask: Ask) -> Reply:
        """Check that a request is refused shortly, quickly, and without a change in the store."""
        until(self.settled)
        before, seconds = self.stored(), []
        for _ in range(TRIES):
            with Connection(self.running.url) as connection:
                start = self.cpu_seconds()
                connection.send(ask.sent())
                reply = connection.reply()
                seconds.append(self.cpu_seconds() - start)
            check_refusal(reply, ask.status, repeats=ask.repeats)
            if min(seconds) <= MAX_SECONDS:
                break
        assert MARKER not in self.running.logged()
        assert self.stored() == before
        assert min(seconds) <= MAX_SECONDS
        return reply


def check_refusal(reply: Reply, status: int, *, repeats: bool = False) -> None:
    """Check a short problem; of the request it may repeat only a quoted unknown name."""
    assert (reply.status, reply.headers["content-type"]) == (status, PROBLEM), reply
    assert len(reply.body) <= MAX_ANSWER_BYTES
    problem = reply.json()
    assert any(MARKER in name for name in names_repeated(problem["detail"])) is repeats, problem
    assert MARKER not in str(reply.headers) + without_names(reply.body.decode())
    assert problem["status"] == status
    assert problem["title"]


UNKNOWN = re.compile(r'unknown (?:field|feature|follower) \\?"(.{0,65}?)\\?"(?=;)')


def names_repeated(detail: str) -> list[str]:
    """Return the unknown names in an answer: whole, or 64 characters and an ellipsis."""
    return [name for name in UNKNOWN.findall(detail) if len(name) <= 64 or name.endswith("…")]


def without_names(text: str) -> str:
    return UNKNOWN.sub("unknown", text)


BOOKS = {**PLAIN, "features": ["bm25", "price"], "gamma": 1000.0}


def _run_service(environ: Mapping[str, str]) -> Iterator[ServiceUnderTest]:
    with serving(environ=environ) as running:
        url = server.find(running.data)
        assert url is not None
        with redis.Redis.from_url(url) as store:
            service = ServiceUnderTest(running, store)
            for name in ("books", "films"):
                made = service.ask(Ask("", 201, BOOKS, f"/models/{name}", method="PUT"))
                assert made.status == 201
            until(service.settled)
            yield service


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceUnderTest]:
    yield from _run_service(
        {
            "SOLAR_BODY_BYTES": str(BODY_BYTES),
            "SOLAR_PAIRS": str(PAIRS),
            "SOLAR_WAIT_SECONDS": "0.03",
            "SOLAR_DEFAULT_FEATURES": "2",
        }
    )


@pytest.fixture(scope="module")
def impatient_service() -> Iterator[ServiceUnderTest]:
    """A service with short timeouts and a small source share."""
    yield from _run_service(
        {
            "SOLAR_BODY_SECONDS": "0.3",
            "SOLAR_IMPRESSION_SECONDS": "5",
            "SOLAR_CONVERSION_SECONDS": "5",
            "SOLAR_SOURCE_SHARE": "0.5",
        }
    )


# ---- bodies ----


def rank(features: str = "[1, 2]", more: str = "") -> str:
    """Return a valid JSON body for /rank."""
    return (
        f'{{"model": "books", "query_id": "{MARKER}", '
        f'"documents": [{{"id": "{MARKER}", "features": {features}}}]{more}}}'
    )


def documents(*ids: str, **more: Any) -> dict[str, Any]:
    listed = [{"id": name, "features": [1, 2]} for name in ids]
    return {"model": "books", "query_id": MARKER, "documents": listed, **more}


def columns(ids: Sequence[str], features: Any, **more: Any) -> dict[str, Any]:
    return {"model": "books", "query_id": MARKER, "ids": ids, "features": features, **more}


def binary(ids: Sequence[str], features: Any, **more: Any) -> bytes:
    return msgspec.msgpack.encode(columns(ids, features, **more))


def float32(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


numbers = count()


def new_event() -> str:
    """Return a new event id: an event accepted by mistake must not hide the next as a duplicate."""
    return f"{MARKER}{next(numbers)}"


def event(**fields: Any) -> dict[str, Any]:
    """Return a valid event with two documents; `...` removes a field."""
    valid = {
        "event_id": new_event(),
        "model": "books",
        "type": "triplets",
        "documents": [{"id": MARKER, "features": [1, 2]}, {"id": "b", "features": {"price": 3}}],
        "triplets": [[MARKER, "b"]],
    }
    return {name: value for name, value in {**valid, **fields}.items() if value is not ...}


def labels(**labels: Any) -> dict[str, Any]:
    return event(type="labels", triplets=..., labels=labels)


def clicks(request_id: str, *clicked: str, **more: Any) -> dict[str, Any]:
    shared = {"event_id": new_event(), "type": "clicks"}
    return {**shared, "request_id": request_id, "clicked": clicked, **more}


def request_id(model: str, seconds: float) -> str:
    """Return the request id that the service generates at a time."""
    moment = f"{int(seconds * 1000):012x}"
    return f"{model}.{moment[:8]}-{moment[8:]}-7000-8000-000000000000"


# ---- requests and their expected statuses ----

VALID = rank()
DEEP = 100_000
NUMBERS = {
    "text": f'"{MARKER}"',
    "a number as text": '"1"',
    "true": "true",
    "null": "null",
    "a list": "[1]",
    "an object": f'{{"{MARKER}": 1}}',
    "1e400": "1e400",
    "-1e400": "-1e400",
    "an integer of 5000 digits": MANY_DIGITS,
    "an integer of 400 digits": MANY_DIGITS[:400],
}


def unreadable(fine: str) -> dict[str, bytes]:
    """Return unreadable variants of a valid body that contains the marker."""
    text, marker = fine.encode(), MARKER.encode()
    return {
        "empty": b"",
        "blank": b"  \n",
        "truncated": text[:-1],
        "truncated in a word": text[: text.index(marker) + 4],
        "followed by something": text + marker,
        "followed by another": text + text,
        "bad UTF-8": text.replace(marker, marker + b"\xff"),
        "a surrogate in UTF-8": text.replace(marker, marker + b"\xed\xa0\x80"),
        "with a BOM": b"\xef\xbb\xbf" + text,
        "UTF-16": fine.encode("utf-16"),
        "UTF-16 without a BOM": fine.encode("utf-16-le"),
        "UTF-32": fine.encode("utf-32"),
        "a lone high surrogate": text.replace(marker, marker + b"\\ud800"),
        "a lone low surrogate": text.replace(marker, marker + b"\\udc00"),
        "a surrogate and a letter": text.replace(marker, marker + b"\\ud800\\u0041"),
        "a raw control character": text.replace(marker, marker + b"\n"),
        "single quotes": text.replace(b'"', b"'"),
        "a comma at the end": text[:-1] + b",}",
        "NaN": b"NaN",
        "YAML": b"model: " + marker,
    }


TRANSPORT = [
    *(Ask(f"a body that is {how}", 400, body) for how, body in unreadable(VALID).items()),
    *(Ask(f"an event that is {how}", 400, body, "/feedback")
      for how, body in unreadable(json.dumps(event())).items()),
    *(Ask(f"a model that is {how}", 400, body, "/models/new", method="PUT")
      for how, body in unreadable(f'{{"features": ["{MARKER}"]}}').items()),
    *(Ask(f"a body with {number}", 400, rank(f"[1, {number}]"))
      for number in ("NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "0x1", "1_0")),
    Ask("bad UTF-8 in a name", 400, b'{"\xff' + MARKER.encode() + b'": 1}'),
    Ask("a surrogate in a name", 400, rank(f'{{"{MARKER}\\ud800": 1}}')),
    Ask("msgpack as JSON", 400, binary([MARKER], float32(1, 2))),
    Ask("gzip", 415, gzip.compress(VALID.encode()), headers=("Content-Encoding: gzip",)),
    Ask("a gzip bomb", 415, gzip.compress(bytes(10**8)), headers=("Content-Encoding: gzip",)),
    Ask("brotli", 415, VALID, headers=("Content-Encoding: br",)),
    Ask("a body over the limit", 413, VALID + " " * BODY_BYTES),
    Ask("no content type", 415, VALID, media_type=""),
    Ask("plain text", 415, VALID, media_type="text/plain"),
    Ask("a form", 415, VALID, media_type="application/x-www-form-urlencoded"),
    Ask("an unknown content type", 415, VALID, media_type=f"application/{MARKER}"),
    Ask("msgpack as feedback", 415, msgspec.msgpack.encode(event()), "/feedback", MSGPACK),
    Ask("a form as feedback", 415, event(), "/feedback", "multipart/form-data"),
    Ask("text as a model", 415, BOOKS, "/models/new", "text/plain", "PUT"),
    Ask("text as a rollback", 415, {"version": 0}, "/models/books/rollback", "text/plain"),
    Ask("an unknown path", 404, VALID, f"/{MARKER}"),
    Ask("a path below one", 404, VALID, f"/rank/{MARKER}"),
    Ask("a path with a trailing slash", 404, VALID, "/rank/"),
    Ask("a path of two models", 404, VALID, f"/models/books/features/{MARKER}"),
    Ask("a path with odd bytes", 404, VALID, f"/%ff%00%0a{MARKER}"),
    Ask("GET of /rank", 405, b"", method="GET"),
    Ask("PUT of /feedback", 405, event(), "/feedback", method="PUT"),
    Ask("POST of a model", 405, BOOKS, "/models/books", method="POST"),
    Ask("POST of /metrics", 405, b"", "/metrics"),
    Ask("TRACE", 405, b"", method="TRACE"),
]  # fmt: skip

SHAPES = [
    *(Ask(f"{what} as a feature", 422, rank(f"[1, {number}]")) for what, number in NUMBERS.items()),
    *(Ask(f"{what} as a named feature", 422, rank(f'{{"price": {number}}}'))
      for what, number in NUMBERS.items()),
    *(Ask(f"{what} as top_k", 422, rank(more=f', "top_k": {number}'))
      for what, number in NUMBERS.items() if what not in {"null", "an integer of 400 digits"}),
    *(Ask(f"{what} as min_seq", 422, rank(more=f', "min_seq": {number}'))
      for what, number in NUMBERS.items() if what not in {"null", "an integer of 400 digits"}),
    *(Ask(f"{what} as a label", 422, json.dumps(labels(b=77)).replace("77", number), "/feedback")
      for what, number in NUMBERS.items()),
    *(Ask(f"{what} as a weight", 422, json.dumps(event(triplets=[[MARKER, "b", 77]]))
          .replace("77", number), "/feedback") for what, number in NUMBERS.items()),
    *(Ask(f"{what} as gamma", 422, json.dumps({**BOOKS, "gamma": 77}).replace("77", number),
          "/models/new", method="PUT") for what, number in NUMBERS.items()),
    *(Ask(f"{what} as a new gamma", 422, f'{{"gamma": {number}}}', "/models/books",
          method="PATCH") for what, number in NUMBERS.items()),
    *(Ask(f"{what} as a version", 422, f'{{"version": {number}}}', "/models/books/rollback")
      for what, number in NUMBERS.items() if what not in ("text", "an integer of 400 digits")),
    *(Ask(f"{what} as a body for {path}", 422, body, path, method=method)
      for what, body in {"an array": f'["{MARKER}"]', "a text": f'"{MARKER}"', "null": "null",
                         "a number": "1", "true": "true"}.items()
      for method, path in (("POST", "/rank"), ("POST", "/feedback"), ("PUT", "/models/new"),
                           ("PATCH", "/models/books"), ("POST", "/models/books/rollback"))),
    Ask("nothing to rank", 422, {"model": "books"}),
    *(Ask(f"an empty object for {path}", 422, {}, path, method=method)
      for method, path in (("POST", "/feedback"), ("PUT", "/models/new"),
                           ("PATCH", "/models/books"), ("POST", "/models/books/rollback"))),
    Ask("an unknown field of /rank", 422, documents("a", **{MARKER: MARKER}), repeats=True),
    Ask("an unknown field of a document", 422, rank().replace('"features"', f'"{MARKER}"'),
        repeats=True),
    Ask("an unknown field more of a document", 422, rank(f'[1, 2], "{MARKER}": "{MARKER}"'),
        repeats=True),
    Ask("an unknown field of an event", 422, event(**{MARKER: MARKER}), "/feedback",
        repeats=True),
    Ask("an unknown field beside events", 422, {"events": [event()], MARKER: MARKER},
        "/feedback", repeats=True),
    Ask("an unknown field of a model", 422, {**BOOKS, MARKER: MARKER}, "/models/new",
        method="PUT", repeats=True),
    Ask("an unknown field of a tuning", 422, {"gamma": 1, MARKER: MARKER}, "/models/books",
        method="PATCH", repeats=True),
    Ask("an unknown field of a rollback", 422, {"version": 0, MARKER: MARKER},
        "/models/books/rollback", repeats=True),
    Ask("null for a text", 422, documents("a", query_id=None)),
    Ask("null for the model", 422, documents("a", model=None)),
    Ask("1 for true", 422, documents("a", log=1)),
    Ask("text for true", 422, documents("a", explain="true")),
    Ask("1.0 for a whole number", 422, documents("a", top_k=1.0)),
    Ask("top_k of 0", 422, documents("a", top_k=0)),
    Ask("min_seq below 0", 422, documents("a", min_seq=-1)),
    Ask("20,000 wrong documents", 422,
        documents() | {"documents": [{"id": 1}] * 20_000}),
    Ask("20,000 wrong features", 422, documents() | {
        "documents": [{"id": MARKER, "features": ["1"] * 20_000}]}),
    Ask("arrays in arrays", 422, "[" * DEEP),
    Ask("objects in objects", 422, f'{{"{MARKER}":' * DEEP, repeats=True),
    Ask("arrays in arrays as a feature", 422, rank("[" * DEEP + "]" * DEEP)),
    Ask("arrays in arrays as an unknown field", 422, rank(more=f', "{MARKER}": ' + "[" * DEEP),
        repeats=True),
    Ask("arrays in arrays as feedback", 422, "[" * DEEP, "/feedback"),
    Ask("objects in objects as feedback", 400, f'{{"{MARKER}":' * DEEP, "/feedback"),
    Ask("events in events", 400, '{"events":[' * (DEEP // 2), "/feedback"),
    Ask("arrays in arrays as events", 400, f'{{"events":[{"[" * DEEP}{"]" * DEEP}]}}', "/feedback"),
    Ask("arrays in arrays as a model", 422, "[" * DEEP, "/models/new", method="PUT"),
    Ask("arrays in arrays as names", 422, f'{{"features": {"[" * DEEP}', "/models/new",
        method="PUT"),
]  # fmt: skip

TOO_MANY_IDS = [f"d{at}" for at in range(1001)]
INVALID_IDS = {
    "empty": "",
    "too long": LONG_ID,
    "with a NUL": f"{MARKER}\0",
    "with a new line": f"{MARKER}\n",
    "with a DEL": f"{MARKER}\x7f",
    "with a C1 control character": f"{MARKER}\x85",
}
RANK = [
    Ask("too few features", 422, rank("[1]")),
    Ask("too many features", 422, rank("[1, 2, 3]")),
    Ask("no features", 422, rank("[]")),
    Ask("ragged rows", 422, columns(["a", MARKER], [[1, 2], [1]])),
    Ask("ragged rows of the right sum", 422, columns(["a", MARKER], [[1, 2, 3], [1]])),
    Ask("more ids than rows", 422, columns(["a", MARKER], [[1, 2]])),
    Ask("more rows than ids", 422, columns([MARKER], [[1, 2], [1, 2]])),
    Ask("ids alone", 422, {"model": "books", "ids": [MARKER]}),
    Ask("features alone", 422, {"model": "books", "features": [[1, 2]]}),
    Ask("documents and columns", 422, documents("a", ids=[MARKER], features=[[1, 2]])),
    Ask("a list too short among objects", 422, {
        "model": "books", "documents": [{"id": MARKER, "features": {"price": 1}},
                                        {"id": "b", "features": [1]}]}),
    Ask("no documents", 422, documents()),
    Ask("no columns", 422, columns([], [])),
    Ask("1001 documents", 422, documents(*TOO_MANY_IDS)),
    Ask("1001 rows", 422, columns(TOO_MANY_IDS, [[1, 2]] * 1001)),
    Ask("an id twice", 422, documents(MARKER, "b", MARKER)),
    Ask("an id twice in columns", 422, columns([MARKER, MARKER], [[1, 2]] * 2)),
    *(Ask(f"a document's id that is {how}", 422, documents("a", name))
      for how, name in INVALID_IDS.items()),
    *(Ask(f"a column's id that is {how}", 422, columns([name], [[1, 2]]))
      for how, name in INVALID_IDS.items()),
    *(Ask(f"a request_id that is {how}", 422, documents("a", request_id=name))
      for how, name in INVALID_IDS.items()),
    *(Ask(f"a query_id that is {how}", 422, documents("a", query_id=name))
      for how, name in INVALID_IDS.items() if name),
    Ask("a feature over the bound", 422, rank("[1, 10001]")),
    Ask("a feature below the bound", 422, rank("[-10001, 1]")),
    Ask("a feature over the bound that rounds to the bound", 422, rank("[1, 10000.0001]")),
    Ask("a named feature over the bound", 422, rank('{"price": 1e30}')),
    Ask("a feature that the model does not know", 422, rank(f'{{"{MARKER}": 77}}'),
        repeats=True),
    Ask("an unknown model", 404, documents("a", model=MARKER)),
    Ask("an unknown model and nothing to rank", 404, documents(model=MARKER)),
    *(Ask(f"a model called {name!r}", 422, documents("a", model=name))
      for name in ("", "a.b", "{a}", f"{MARKER} b", "a" * 65, "ä")),
    Ask("no msgpack", 400, b"", media_type=MSGPACK),
    Ask("truncated msgpack", 400, binary([MARKER], float32(1, 2))[:-1], media_type=MSGPACK),
    Ask("msgpack and more", 400, binary([MARKER], float32(1, 2)) + b"1", media_type=MSGPACK),
    Ask("JSON as msgpack", 422, VALID, media_type=MSGPACK),
    Ask("msgpack with bad UTF-8", 400, binary([MARKER], b"").replace(b"qz", b"\xff\xff"),
        media_type=MSGPACK),
    Ask("msgpack with a number for a name", 422, b"\x81\x01\x01", media_type=MSGPACK),
    Ask("msgpack in msgpack", 422, b"\x91" * DEEP, media_type=MSGPACK),
    Ask("msgpack maps in maps", 422, b"\x81\xa1a" * DEEP, media_type=MSGPACK),
    Ask("an array of four billion", 422, b"\xdd\xff\xff\xff\xff", media_type=MSGPACK),
    Ask("ids of four billion", 400, b"\x82\xa3ids\xdd\xff\xff\xff\xff", media_type=MSGPACK),
    Ask("rows in msgpack", 422, binary([MARKER], [[1.0, 2.0]]), media_type=MSGPACK),
    Ask("no rows in msgpack", 422, binary([MARKER], b""), media_type=MSGPACK),
    Ask("a row too short", 422, binary([MARKER], float32(1)), media_type=MSGPACK),
    Ask("a row too many", 422, binary([MARKER], float32(1, 2, 3, 4)), media_type=MSGPACK),
    Ask("seven bytes", 422, binary([MARKER], bytes(7)), media_type=MSGPACK),
    Ask("doubles", 422, binary([MARKER], np.ones(2).tobytes()), media_type=MSGPACK),
    Ask("no documents in msgpack", 422, binary([], b""), media_type=MSGPACK),
    Ask("1001 documents in msgpack", 422, binary(TOO_MANY_IDS, bytes(8008)), media_type=MSGPACK),
    Ask("an id twice in msgpack", 422, binary([MARKER] * 2, bytes(16)), media_type=MSGPACK),
    Ask("a control character in msgpack", 422, binary([f"{MARKER}\0"], bytes(8)),
        media_type=MSGPACK),
    *(Ask(f"{value} in float32", 422, binary([MARKER], float32(1, value)), media_type=MSGPACK)
      for value in (np.nan, np.inf, -np.inf, 1e5, -1e38)),
    Ask("a signalling NaN in float32", 422, binary([MARKER], b"\x01\x00\x80\x7f" * 2),
        media_type=MSGPACK),
]  # fmt: skip

UNUSED = request_id("books", time.time())
EXPIRED = request_id("books", time.time() - 1e6)
FEEDBACK = [
    Ask("an unknown request", 404, clicks(MARKER, model="books"), "/feedback"),
    Ask("a generated request id never issued", 404, clicks(UNUSED), "/feedback"),
    Ask("an expired request id", 410, clicks(EXPIRED), "/feedback"),
    Ask("labels for an unknown request", 404,
        event(type="labels", request_id=MARKER, documents=..., triplets=..., labels={}),
        "/feedback"),
    Ask("an unknown model's event", 404, event(model=MARKER), "/feedback"),
    Ask("an unknown model's request", 404, clicks(request_id(MARKER, time.time())), "/feedback"),
    Ask("a request of another model", 422, clicks(UNUSED, model="films"), "/feedback"),
    Ask("events of two models", 422, {"events": [event(), event(event_id="f", model="films")]},
        "/feedback"),
    Ask("events of two models by their requests", 422,
        {"events": [clicks(UNUSED), clicks(UNUSED.replace("books", "films"), event_id="f")]},
        "/feedback"),
    Ask("an unknown type", 422, event(type=MARKER), "/feedback"),
    Ask("no type", 422, event(type=...), "/feedback"),
    Ask("a number as a type", 422, event(type=1), "/feedback"),
    Ask("no event_id", 422, event(event_id=...), "/feedback"),
    *(Ask(f"an event_id that is {how}", 422, event(event_id=name), "/feedback")
      for how, name in INVALID_IDS.items()),
    *(Ask(f"a source that is {how}", 422, event(source=name), "/feedback")
      for how, name in INVALID_IDS.items() if name),
    *(Ask(f"an event's query_id that is {how}", 422, event(query_id=name), "/feedback")
      for how, name in INVALID_IDS.items() if name),
    *(Ask(f"an event's document that is {how}", 422,
          event(documents=[{"id": name, "features": [1, 2]}], triplets=[]), "/feedback")
      for how, name in INVALID_IDS.items()),
    Ask("neither a request nor documents", 422, event(documents=...), "/feedback"),
    Ask("a request and documents", 422, event(request_id=UNUSED), "/feedback"),
    Ask("no documents in an event", 422, event(documents=[], triplets=[]), "/feedback"),
    Ask("an event's document over the bound", 422,
        event(documents=[{"id": MARKER, "features": [1, 1e5]}]), "/feedback"),
    Ask("an event's document with too few features", 422,
        event(documents=[{"id": MARKER, "features": [1]}]), "/feedback"),
    Ask("a triplet of one", 422, event(triplets=[[MARKER]]), "/feedback"),
    Ask("a triplet of four", 422, event(triplets=[[MARKER, "b", 1, 1]]), "/feedback"),
    Ask("a triplet with itself", 422, event(triplets=[[MARKER, MARKER]]), "/feedback"),
    Ask("a triplet with an unknown document", 422, event(triplets=[[MARKER, "c"]]), "/feedback"),
    *(Ask(f"a weight of {weight}", 422, event(triplets=[[MARKER, "b", weight]]), "/feedback")
      for weight in (0, -1, 1e-13, 1e13)),
    *(Ask(f"a label of {label}", 422, labels(b=label), "/feedback")
      for label in (-0.1, 30.1, 1e300)),
    Ask("a label for an unknown document", 422, labels(c=1), "/feedback"),
    Ask("too many triplets", 422, event(triplets=[["b", "c"]] * (PAIRS + 1)), "/feedback"),
    Ask("too many pairs by labels", 422,
        event(type="labels", triplets=..., labels={f"d{at}": at % 30 for at in range(1000)},
              documents=[{"id": f"d{at}", "features": {}} for at in range(1000)]), "/feedback"),
    Ask("no events", 422, {"events": []}, "/feedback"),
    Ask("1001 events", 422, {"events": [event()] * 1001}, "/feedback"),
    Ask("an object as events", 422, {"events": {MARKER: 1}}, "/feedback"),
    Ask("1000 bad events", 422, {"events": [{MARKER: 1}] * 1000}, "/feedback"),
    Ask("1000 numbers as events", 422, {"events": [1] * 1000}, "/feedback"),
    Ask("events on unknown requests", 422,
        {"events": [clicks(UNUSED, event_id=f"{MARKER}{at}") for at in range(1000)]}, "/feedback"),
]  # fmt: skip


def put(case: str, status: int, *, at: str = "new", **fields: Any) -> Ask:
    return Ask(case, status, {**BOOKS, **fields}, f"/models/{at}", method="PUT")


ADMIN = [
    put("no features", 422, features=[]),
    put("a feature without a name", 422, features=[""]),
    put("a feature with a long name", 422, features=[LONG_ID]),
    put("a feature with a control character", 422, features=[f"{MARKER}\0"]),
    put("a feature twice", 422, features=[MARKER, MARKER]),
    put("a text as features", 422, features=MARKER),
    put("numbers as features", 422, features=[1, 2]),
    put("0 features", 422, features=0),
    put("2001 features with full covariance", 422, features=2001),
    put("100,001 features", 422, features=100_001, algorithm="solar-i"),
    put("10**30 features", 422, features=10**30, algorithm="solar-i"),
    put("true as a count", 422, features=True),
    put("an unknown algorithm", 422, algorithm=MARKER),
    put("an unknown covariance", 422, covariance=MARKER),
    put("an unknown normalization", 422, normalization=MARKER),
    put("an unknown click strategy", 422, clicks=MARKER),
    *(put(f"{name} of {value}", 422, **dict[str, Any]({name: value}))
      for name in ("C", "gamma") for value in (0, -1, 1e-13, 1e13)),
    put("an existing model with other features", 409, at="books", features=3),
    put("a name with a dot", 422, at=f"{MARKER}.b"),
    put("a name with a brace", 422, at=f"%7B{MARKER}%7D"),
    put("a name with a NUL", 422, at=f"{MARKER}%00"),
    put("a name with a new line", 422, at=f"{MARKER}%0a"),
    put("a name that is not UTF-8", 422, at=f"{MARKER}%ff"),
    put("a name too long", 422, at="a" * 65),
    put("a name with a slash", 404, at=f"a%2f{MARKER}"),
    put("no name", 404, at=""),
    Ask("nothing to tune", 422, {}, "/models/books", method="PATCH"),
    Ask("tuning to an unknown click strategy", 422, {"clicks": MARKER}, "/models/books",
        method="PATCH"),
    Ask("tuning to a gamma over the limit", 422, {"gamma": 1e13}, "/models/books", method="PATCH"),
    Ask("tuning an unknown model", 404, {"gamma": 1}, f"/models/{MARKER}", method="PATCH"),
    Ask("reading an unknown model", 404, b"", f"/models/{MARKER}", method="GET"),
    Ask("reading an invalid model name", 404, b"", f"/models/{MARKER}%0a", method="GET"),
    Ask("deleting an unknown model", 404, b"", f"/models/{MARKER}", method="DELETE"),
    Ask("deleting an invalid model name", 404, b"", f"/models/%7B{MARKER}%7D", method="DELETE"),
    Ask("versions of an unknown model", 404, b"", f"/models/{MARKER}/versions", method="GET"),
    Ask("rolling back an unknown model", 404, {"version": 0}, f"/models/{MARKER}/rollback"),
    Ask("rolling back to an unknown version", 404, {"version": 77}, "/models/books/rollback"),
    Ask("rolling back to a large version", 404, {"version": 10**300}, "/models/books/rollback"),
    Ask("rolling back below 0", 422, {"version": -1}, "/models/books/rollback"),
    Ask("a model's body over the limit", 413, b" " * (BODY_BYTES + 1), "/models/new", method="PUT"),
    Ask("feedback over the limit", 413, b" " * (BODY_BYTES + 1), "/feedback"),
]  # fmt: skip


def bank(case: str, status: int, grid: Any, *, at: str = "books", **more: Any) -> Ask:
    return Ask(case, status, {"grid": grid, **more}, f"/models/{at}/followers")


def duel(case: str, status: int, *, at: str = "books", **body: Any) -> Ask:
    return Ask(case, status, body, f"/models/{at}/duel", method="PUT",
               repeats=body.get("challenger") == MARKER)  # fmt: skip


FOLLOWED = {"follows": "books"}
DUELS = [
    Ask("a follower of an unknown model", 422, {"follows": MARKER}, "/models/b", method="PUT"),
    Ask("a follower of a list", 422, {"follows": [MARKER]}, "/models/b", method="PUT"),
    Ask("a follower with features", 422, {**FOLLOWED, "features": [MARKER]}, "/models/b",
        method="PUT"),
    Ask("a follower with an unknown field", 422, {**FOLLOWED, MARKER: 1}, "/models/b",
        method="PUT", repeats=True),
    Ask("a follower from nowhere", 422, {**FOLLOWED, "from": MARKER}, "/models/b", method="PUT"),
    Ask("a follower from a large seq", 422, {**FOLLOWED, "from": 10**300}, "/models/b",
        method="PUT"),
    Ask("a follower with a gamma of NaN", 400, '{"follows": "books", "gamma": NaN}', "/models/b",
        method="PUT"),
    Ask("a follower in a duel by its name only", 422, FOLLOWED, "/models/submitted", method="PUT"),
    bank("a grid that is a text", 422, MARKER),
    bank("a grid of a text", 422, {"clicks": MARKER}),
    bank("a grid with an unknown strategy", 422, {"clicks": [MARKER]}),
    bank("a grid of lists", 422, {"gamma": [[MARKER]]}),
    bank("a large grid", 422, {"gamma": [float(at) for at in range(1, 100_000)]}),
    bank("a grid with a number over the limit", 422, {"gamma": [1e13]}),
    bank("a grid for an unknown model", 404, {"gamma": [1.0]}, at=MARKER),
    bank("a grid from nowhere", 422, {"gamma": [1.0]}, **{"from": MARKER}),
    Ask("followers of an unknown model", 404, b"", f"/models/{MARKER}/followers", method="GET"),
    duel("no challenger", 422),
    duel("an unknown challenger", 422, challenger=MARKER),
    duel("a challenger in a list", 422, challenger=[MARKER]),
    duel("an unknown kind of challenger", 422, challenger={"name": MARKER}),
    duel("a challenger that is a version by name", 422, challenger={"version": MARKER}),
    duel("a challenger that is a large version", 422, challenger={"version": 10**300}),
    duel("a share of a text", 422, challenger="submitted", share=MARKER),
    duel("a tournament without followers", 422, challenger="followers", max_lists=10),
    duel("a tournament of too many lists", 422, challenger="followers", max_lists=10**300),
    duel("a duel of an unknown model", 404, at=MARKER, challenger="submitted"),
    Ask("reading a duel of an unknown model", 404, b"", f"/models/{MARKER}/duel", method="GET"),
    Ask("ending a duel of an unknown model", 404, b"", f"/models/{MARKER}/duel", method="DELETE"),
    Ask("ending no duel", 404, b"", "/models/books/duel", method="DELETE"),
    Ask("a promotion of an unknown model", 404, {}, f"/models/{MARKER}/duel/promote"),
    Ask("a promotion without a duel", 404, {"force": True}, "/models/books/duel/promote"),
    Ask("a promotion by a text", 422, {"force": MARKER}, "/models/books/duel/promote"),
    Ask("deleting followers in an unknown way", 422, b"", f"/models/books?followers={MARKER}",
        method="DELETE"),
]  # fmt: skip


def question(case: str, status: int, kind: str, *, at: str = "books", **more: Any) -> Ask:
    listed = [{"id": name, "features": [1, 2]} for name in ("a", MARKER)]
    body = {"documents": listed, **more}
    return Ask(case, status, body, f"/models/{at}/{kind}", repeats=MARKER in more)


TWO: dict[str, Any] = {"first": "a", "second": MARKER}
LONG_LIST = [{"id": name, "features": [1, 2]} for name in TOO_MANY_IDS]
QUESTIONS = [
    question("a document compared with itself", 422, "compare", first=MARKER, second=MARKER),
    question("an unknown document", 422, "compare", first="a", second=f"{MARKER}x"),
    question("one document", 422, "compare", first=MARKER),
    question("an unknown field", 422, "compare", **TWO, **dict[str, Any]({MARKER: 1})),
    question("a number as scored", 422, "compare", **TWO, scored=1),
    question("no documents", 422, "compare", **TWO, documents=[]),
    question("1001 documents", 422, "compare", **TWO, documents=LONG_LIST),
    question("rows as scored with a feature more", 422, "compare", **TWO, scored=True,
             documents=[{"id": MARKER, "features": [1, 2, 3]}]),
    question("a feature over the bound", 422, "compare", **TWO,
             documents=[{"id": MARKER, "features": [1, 1e300]}]),
    question("a comparison by an unknown model", 404, "compare", at=MARKER, **TWO),
    Ask("a comparison that is no object", 422, f'["{MARKER}"]', "/models/books/compare"),
    Ask("a comparison with NaN", 400, '{"documents": [{"id": "a", "features": [NaN, 1]}]}',
        "/models/books/compare"),
    Ask("a comparison in msgpack", 415, {}, "/models/books/compare", MSGPACK),
    Ask("a comparison over the limit", 413, b" " * (BODY_BYTES + 1), "/models/books/compare"),
    question("no clicks", 422, "what-if"),
    question("a click on an unknown document", 422, "what-if", clicks=[f"{MARKER}x"]),
    question("more clicks than documents", 422, "what-if", clicks=[MARKER, "a", MARKER]),
    question("clicks as a text", 422, "what-if", clicks=MARKER),
    question("clicks without documents", 422, "what-if", clicks=[], documents=[]),
    question("clicks on an unknown model", 404, "what-if", at=MARKER, clicks=[]),
    Ask("a trial over the limit", 413, b" " * (BODY_BYTES + 1), "/models/books/what-if"),
    Ask("impressions of an unknown model", 404, b"", f"/models/{MARKER}/impressions", method="GET"),
    Ask("an unknown version a", 404, b"", f"/models/books/versions/{MARKER}/diff/0", method="GET"),
    Ask("an unknown version b", 404, b"", f"/models/books/versions/0/diff/{MARKER}", method="GET"),
    Ask("versions of no model", 404, b"", f"/models/{MARKER}/versions/0/diff/0", method="GET"),
    Ask("a version with a NUL", 404, b"", "/models/books/versions/%00/diff/0", method="GET"),
]  # fmt: skip


def each(asks: list[Ask]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("ask", asks, ids=[ask.case for ask in asks])


@each(TRANSPORT)
def test_an_invalid_transport_is_refused(service: ServiceUnderTest, ask: Ask) -> None:
    service.refuses(ask)


@each(SHAPES)
def test_a_body_of_another_shape_is_refused(service: ServiceUnderTest, ask: Ask) -> None:
    service.refuses(ask)


@each(RANK)
def test_invalid_rank_input_is_refused(service: ServiceUnderTest, ask: Ask) -> None:
    service.refuses(ask)


@each(FEEDBACK)
def test_invalid_feedback_is_refused(service: ServiceUnderTest, ask: Ask) -> None:
    service.refuses(ask)


@each(QUESTIONS)
def test_an_invalid_question_is_refused_and_stores_nothing(
    service: ServiceUnderTest, ask: Ask
) -> None:
    service.refuses(ask)


@each(ADMIN)
def test_an_invalid_model_request_is_refused(service: ServiceUnderTest, ask: Ask) -> None:
    service.refuses(ask)


@each(DUELS)
def test_an_invalid_follower_or_duel_is_refused(service: ServiceUnderTest, ask: Ask) -> None:
    service.refuses(ask)


# ---- transport: requests that an HTTP client library cannot send ----


def test_a_chunked_body_over_the_limit_is_refused_before_it_ends(service: ServiceUnderTest) -> None:
    before, chunk = service.stored(), b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with Connection(service.running.url) as connection:
        connection.send(
            head("POST", "/rank", f"Content-Type: {JSON}", "Transfer-Encoding: chunked")
        )
        for _ in range(BODY_BYTES // 0x10000 + 1):
            connection.send(chunk)
        check_refusal(connection.reply(), 413)
        assert connection.closed()
    assert service.stored() == before


def test_a_content_length_over_the_limit_is_refused_before_the_body(
    service: ServiceUnderTest,
) -> None:
    with Connection(service.running.url) as connection:
        length = f"Content-Length: {BODY_BYTES + 1}"
        connection.send(head("POST", "/rank", f"Content-Type: {JSON}", length))
        check_refusal(connection.reply(), 413)
        assert connection.closed()


def test_a_body_in_chunks_within_the_limit_is_read(service: ServiceUnderTest) -> None:
    with Connection(service.running.url) as connection:
        connection.send(
            head("POST", "/rank", f"Content-Type: {JSON}", "Transfer-Encoding: chunked")
        )
        for byte in VALID.encode():
            connection.send(b"1\r\n%c\r\n" % byte)
        connection.send(b"0\r\n\r\n")
        assert connection.reply().status == 200


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_does_not_arrive_is_408(
    impatient_service: ServiceUnderTest, framing: str
) -> None:
    before, start = impatient_service.stored(), time.monotonic()
    with Connection(impatient_service.running.url) as connection:
        connection.send(head("POST", "/rank", f"Content-Type: {JSON}", framing))
        connection.send(b"1\r\n{\r\n" if "chunked" in framing else b"{")
        check_refusal(connection.reply(), 408)
        assert connection.closed()
    assert impatient_service.stored() == before
    assert time.monotonic() - start < GIVE_UP_SECONDS


def test_a_body_that_arrives_too_slowly_is_408(impatient_service: ServiceUnderTest) -> None:
    with Connection(impatient_service.running.url) as connection:
        connection.send(head("POST", "/rank", f"Content-Type: {JSON}", "Content-Length: 100000"))
        start, answered = time.monotonic(), False
        while not answered and time.monotonic() - start < GIVE_UP_SECONDS:
            connection.send(b" ")
            answered = connection.readable(0.02)
        assert answered
        check_refusal(connection.reply(), 408)


def test_a_connection_lost_within_a_body_stores_nothing(service: ServiceUnderTest) -> None:
    before = service.stored()
    with Connection(service.running.url) as connection:
        connection.send(Ask("", 0, VALID).sent()[:-1])
        connection.shut_down_sending()
        assert connection.closed()
    assert service.stored() == before
    assert service.post("/rank", VALID).status == 200


INVALID_HTTP = {
    "a word": f"{MARKER}\r\n\r\n".encode(),
    "two lengths": head("POST", "/rank", "Content-Length: 1", "Content-Length: 2"),
    "a length and chunks": head("POST", "/rank", "Content-Length: 1", "Transfer-Encoding: chunked"),
    "a length below 0": head("POST", "/rank", "Content-Length: -1"),
    "a length of 5000 digits": head("POST", "/rank", f"Content-Length: {MANY_DIGITS}"),
    "a chunk without a size": head("POST", "/rank", "Transfer-Encoding: chunked") + b"zz\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a NUL in a header": head("GET", "/healthz", "X: a\0b"),
}


@pytest.mark.parametrize("sent", INVALID_HTTP.values(), ids=INVALID_HTTP)
def test_invalid_http_is_refused(service: ServiceUnderTest, sent: bytes) -> None:
    with Connection(service.running.url) as connection:
        connection.send(sent)
        reply = connection.reply()
    assert reply.status == 400
    assert len(reply.body) <= MAX_ANSWER_BYTES
    assert MARKER not in reply.body.decode() + service.running.logged()


def test_a_connection_stays_usable_after_a_refusal(service: ServiceUnderTest) -> None:
    bad = [Ask("", 404, VALID, "/nowhere"), Ask("", 405, VALID, method="PUT"), Ask("", 422, "[]"),
           Ask("", 415, VALID, headers=("Content-Encoding: gzip",)), Ask("", 400, "{")]  # fmt: skip
    with Connection(service.running.url) as connection:
        for ask in bad:
            connection.send(ask.sent() + Ask("", 200, VALID).sent())
            assert (connection.reply().status, connection.reply().status) == (ask.status, 200)


# ---- odd but valid requests ----


def test_the_last_value_of_a_repeated_json_key_counts(service: ServiceUnderTest) -> None:
    twice = rank(more=f', "top_k": "{MARKER}"')[:-1] + ', "top_k": 1, "query_id": "last"}'
    service.refuses(Ask("the first value is invalid", 422, twice))
    fine = rank(more=', "top_k": 5')[:-1] + ', "top_k": 1, "query_id": "last"}'
    assert service.post("/rank", fine).json()["query_id"] == "last"
    feature = rank('{"price": 1, "price": 7}', ', "explain": true')
    assert service.post("/rank", feature).status == 200


def test_a_feature_at_the_bound_is_accepted(service: ServiceUnderTest) -> None:
    assert service.post("/rank", rank("[10000, -10000.0]")).status == 200


@pytest.mark.parametrize(
    "number", ["0." + MANY_DIGITS, "1e-" + MANY_DIGITS[:500], "-0.0", "1E+2", "5e-324"]
)
def test_odd_number_notations_are_accepted(service: ServiceUnderTest, number: str) -> None:
    assert service.post("/rank", rank(f"[{number}, 1]")).status == 200


def test_a_surrogate_pair_is_one_character(service: ServiceUnderTest) -> None:
    reply = service.post("/rank", rank().replace(MARKER, "\\ud83d\\ude00"))
    assert reply.json()["documents"][0]["id"] == "\U0001f600"


# ---- rank ----


def test_a_refused_request_does_not_create_the_default_model(service: ServiceUnderTest) -> None:
    service.refuses(Ask("too few features", 422, {"documents": [{"id": "a", "features": [1]}]}))
    one = {"documents": [{"id": "a", "features": [1, 2]}]}
    service.refuses(Ask("an unknown pinned document", 422, {**one, "pinned": [MARKER]}))
    service.refuses(Ask("an unknown request", 404, clicks(MARKER), "/feedback"))


@pytest.mark.parametrize("ahead", [77, 10**30])
def test_a_min_seq_that_is_not_served_in_time_is_503(service: ServiceUnderTest, ahead: int) -> None:
    until(service.settled)
    before, seq = service.stored(), service.tail() + ahead
    reply = service.post("/rank", documents("a", min_seq=seq))
    check_refusal(reply, 503)
    assert reply.headers["retry-after"] == "1"
    assert str(seq) not in reply.body.decode()
    assert service.stored() == before


@pytest.fixture(scope="module", params=[46, 136])
def learnt(service: ServiceUnderTest, request: pytest.FixtureRequest) -> tuple[str, int]:
    """A model with many different non-zero weights."""
    n, rng = request.param, np.random.default_rng(3)
    name = f"n{n}"
    made = Ask("", 201, {**PLAIN, "features": n}, f"/models/{name}", method="PUT")
    assert service.ask(made).status == 201
    rows = [{"id": f"d{at}", "features": rng.normal(size=n).tolist()} for at in range(9)]
    body = event(model=name, documents=rows, triplets=[["d1", "d2"], ["d3", "d4"], ["d5", "d6"]])
    assert service.post("/feedback", body, "Prefer: wait=20").status == 200
    weights = service.model(name)["weights"].values()
    assert 0.0 not in weights
    assert len(set(weights)) == n
    return name, n


def shown(service: ServiceUnderTest, model: str, rows: Any, **more: Any) -> list[int]:
    """Rank documents; return their submitted positions, best first."""
    ids, packed = [str(at) for at in range(len(rows))], rows.astype("<f4").tobytes()
    body = binary(ids, packed, **{"model": model, "log": False, **more})
    reply = service.ask(Ask("", 200, body, media_type=MSGPACK))
    return [int(one["id"]) for one in reply.json()["documents"]]


SIZES = (2, 3, 5, 8, 17, 64, 599, 601, 1000)


def test_equal_documents_keep_the_submitted_order(
    service: ServiceUnderTest, learnt: tuple[str, int]
) -> None:
    model, n = learnt
    rng = np.random.default_rng(5)
    for size in SIZES:
        rows = np.tile(rng.normal(size=n), (size, 1))
        assert shown(service, model, rows) == list(range(size))
        assert shown(service, model, rows, top_k=2) == [0, 1]
        assert sorted(shown(service, model, rows, explore=True)) == list(range(size))


def test_equal_documents_are_adjacent_at_any_submitted_position(
    service: ServiceUnderTest, learnt: tuple[str, int]
) -> None:
    model, n = learnt
    rng = np.random.default_rng(7)
    for size in SIZES:
        kinds = rng.integers(0, 3, size=size)
        rows = rng.normal(size=(3, n))[kinds]
        order = shown(service, model, rows)
        groups = [kinds[at] for at in order]
        assert sum(a != b for a, b in pairwise(groups)) == len(set(kinds)) - 1
        for kind in range(3):
            together = [at for at in order if kinds[at] == kind]
            assert together == sorted(together)


def test_a_model_without_training_keeps_the_submitted_order(service: ServiceUnderTest) -> None:
    rows = np.random.default_rng(9).normal(size=(1000, 2))
    assert shown(service, "films", rows) == list(range(1000))
    drawn = shown(service, "films", rows, top_k=7, explore=True)
    assert len(set(drawn)) == 7
    assert max(drawn) > 10  # reaches below the first page


# ---- feedback ----


def accepted(seq: int) -> dict[str, Any]:
    return {"accepted": 1, "duplicates": 0, "rejected": 0, "seq": seq, "errors": []}


def repeated(seq: int) -> dict[str, Any]:
    return {"accepted": 0, "duplicates": 1, "rejected": 0, "seq": seq, "errors": []}


def status_and_body(reply: Reply) -> tuple[int, Any]:
    return reply.status, reply.json()


@pytest.mark.parametrize(
    "what",
    [
        {"type": "clicks", "clicked": ["d1", MARKER]},
        {"type": "labels", "labels": {"d1": 1, MARKER: 1}},
        {"type": "triplets", "triplets": [["d1", MARKER]]},
        {"type": "triplets", "triplets": [[MARKER, "d1"]]},
    ],
)
def test_a_document_that_was_not_shown_is_refused(
    service: ServiceUnderTest, what: dict[str, Any]
) -> None:
    answer, _ = service.ranked()
    body = {"event_id": new_event(), "request_id": answer, **what}
    service.refuses(Ask("", 422, body, "/feedback"))


def test_more_clicks_than_documents_are_refused(service: ServiceUnderTest) -> None:
    answer, _ = service.ranked()
    service.refuses(Ask("", 422, clicks(answer, *["d1"] * 5), "/feedback"))


def test_a_repeated_event_gets_the_same_seq(service: ServiceUnderTest) -> None:
    answer, _ = service.ranked()
    body, seq = clicks(answer, "d1", event_id="repeated"), service.tail() + 1
    assert status_and_body(service.post("/feedback", body)) == (202, accepted(seq))
    stored = service.store.xlen("solar:{books}:log")
    for _ in range(3):
        assert status_and_body(service.post("/feedback", body)) == (202, repeated(seq))
    twice = service.post("/feedback", {"events": [body, body]})
    assert twice.json() == {**repeated(seq), "duplicates": 2}
    assert service.store.xlen("solar:{books}:log") == stored


def test_an_event_twice_in_one_batch_is_one_record(service: ServiceUnderTest) -> None:
    body, seq = event(event_id="in one post"), service.tail() + 1
    reply = service.post("/feedback", {"events": [body, body]})
    assert status_and_body(reply) == (202, {**accepted(seq), "duplicates": 1})
    assert service.tail() == seq


def test_another_body_with_the_same_event_id_is_refused(service: ServiceUnderTest) -> None:
    answer, _ = service.ranked()
    assert service.post("/feedback", clicks(answer, "d1", event_id="mine")).status == 202
    for other in (
        clicks(answer, "d2", event_id="mine"),
        clicks(answer, event_id="mine"),
        clicks(answer, "d1", event_id="mine", source=MARKER),
        event(event_id="mine"),
    ):
        service.refuses(Ask("", 422, other, "/feedback"))


def test_an_event_sent_concurrently_is_one_record(service: ServiceUnderTest) -> None:
    answer, _ = service.ranked()
    before, clients = service.tail(), 8
    barrier = Barrier(clients)

    def post(_: int) -> Any:
        barrier.wait()
        return service.post("/feedback", clicks(answer, "d2", event_id="at once")).json()

    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(post, range(clients)))
    assert sum(one["accepted"] for one in answers) == 1
    assert sum(one["duplicates"] for one in answers) == clients - 1
    assert {one["seq"] for one in answers} == {before + 1}
    assert service.tail() == before + 1


def learn_from(service: ServiceUnderTest, body: Any) -> Any:
    reply = service.post("/feedback", body, "Prefer: wait=20")
    assert reply.status == 200
    assert reply.json()["version"] >= reply.json()["seq"]
    return service.model()


def test_an_impression_without_clicks_is_abandoned_and_gives_no_pairs(
    service: ServiceUnderTest,
) -> None:
    answer, _ = service.ranked()
    before = service.model()
    after = learn_from(service, clicks(answer, event_id="nothing"))
    assert after["feedback"] == before["feedback"] + 1
    assert after["queries"] == before["queries"]
    assert after["abandoned_lists"] == before["abandoned_lists"] + 1
    assert after["pairs"] == before["pairs"]
    assert after["weights"] == before["weights"]


def learnt_pairs(model: dict[str, Any]) -> int:
    return sum(count for kind, count in model["pairs"].items() if kind != "bounded")


def test_later_clicks_add_their_pairs_and_the_query_counts_once(service: ServiceUnderTest) -> None:
    answer, ids = service.ranked()
    before = service.model()
    first = learn_from(service, clicks(answer, ids[1], event_id="first"))
    assert learnt_pairs(first) - learnt_pairs(before) == 1
    second = learn_from(service, clicks(answer, ids[3], event_id="second"))
    assert learnt_pairs(second) - learnt_pairs(first) == 2
    assert second["queries"] == before["queries"] + 1
    assert second["feedback"] == before["feedback"] + 2


def test_too_many_pairs_are_refused(service: ServiceUnderTest) -> None:
    answer, ids = service.ranked(1000)
    service.refuses(Ask("", 422, clicks(answer, *ids[500:]), "/feedback"))
    about: dict[str, Any] = {"event_id": new_event(), "request_id": answer}
    judged = {**about, "type": "labels", "labels": {name: int(name[1:]) % 30 for name in ids}}
    service.refuses(Ask("", 422, judged, "/feedback"))
    triplets = [[ids[0], name] for name in ids[1:]] * 21
    preferred = {**about, "type": "triplets", "triplets": triplets}
    service.refuses(Ask("", 422, preferred, "/feedback"))


def test_many_events_with_too_many_pairs_are_refused_quickly(service: ServiceUnderTest) -> None:
    answer, ids = service.ranked(1000)
    many = [clicks(answer, *ids[500:], event_id=f"{MARKER}{at}") for at in range(20)]
    service.refuses(Ask("", 422, {"events": many}, "/feedback"))


def test_many_clicks_with_few_pairs_are_accepted(service: ServiceUnderTest) -> None:
    answer, ids = service.ranked(1000)
    assert service.post("/feedback", clicks(answer, *ids, event_id="all of them")).status == 202


def test_only_the_valid_events_of_a_batch_are_stored(service: ServiceUnderTest) -> None:
    answer, _ = service.ranked()
    seq = service.tail()
    batch = [
        event(event_id="good 1"),
        {MARKER: 1},
        clicks(answer, MARKER, event_id="not shown"),
        clicks(UNUSED, event_id="unknown"),
        clicks(EXPIRED, event_id="expired"),
        clicks(answer, "d1", event_id="good 2"),
        event(event_id="good 1", query_id="other"),
        7,
    ]
    reply = service.post("/feedback", {"events": batch})
    answered = reply.json()
    assert (reply.status, reply.headers["content-type"]) == (202, JSON)
    assert (answered["accepted"], answered["duplicates"], answered["rejected"]) == (2, 0, 6)
    assert answered["seq"] == seq + 2 == service.tail()
    assert [(one["index"], one["status"]) for one in answered["errors"]] == [
        (1, 422), (2, 422), (3, 404), (4, 410), (6, 422), (7, 422),
    ]  # fmt: skip
    assert all(one["title"] == TITLES[one["status"]] for one in answered["errors"])
    assert all(one["detail"] for one in answered["errors"])
    assert MARKER not in reply.body.decode() + service.running.logged()
    again = service.post("/feedback", {"events": batch}).json()
    assert again == {**answered, "accepted": 0, "duplicates": 2}


def test_a_batch_without_a_valid_event_lists_each_error(service: ServiceUnderTest) -> None:
    batch = [{}, clicks(UNUSED), clicks(EXPIRED, event_id="f")]
    reply = service.refuses(Ask("", 422, {"events": batch}, "/feedback"))
    errors = [(one["index"], one["status"]) for one in reply.json()["errors"]]
    assert errors == [(0, 422), (1, 404), (2, 410)]


def test_an_impression_expires(impatient_service: ServiceUnderTest) -> None:
    answer, _ = impatient_service.ranked()
    assert (
        impatient_service.post("/feedback", clicks(answer, "d1", event_id="in time")).status == 202
    )
    until(lambda: not impatient_service.store.keys(f"*:imp:*:{answer}"))
    impatient_service.refuses(Ask("", 410, clicks(answer, "d2", event_id="late"), "/feedback"))
    again = impatient_service.post("/feedback", clicks(answer, "d1", event_id="in time")).json()
    assert (again["accepted"], again["duplicates"]) == (0, 1)


def test_a_source_over_its_share_is_429_while_other_sources_are_accepted(
    impatient_service: ServiceUnderTest,
) -> None:
    assert impatient_service.post("/feedback", event(event_id="o", source="others")).status == 202
    events = [event(event_id=f"e{at}", source=MARKER) for at in range(100)]
    assert impatient_service.post("/feedback", {"events": events}).json()["accepted"] == 100
    over = event(event_id="over", source=MARKER)
    reply = impatient_service.refuses(Ask("", 429, over, "/feedback"))
    assert int(reply.headers["retry-after"]) > 0
    others = event(event_id="other", source="others")
    both = impatient_service.post("/feedback", {"events": [over, others]}).json()
    assert (both["accepted"], both["rejected"]) == (1, 1)
    assert [(one["index"], one["status"]) for one in both["errors"]] == [(0, 429)]


@needs_proc
def test_many_clicks_on_one_request_stay_within_memory_limits(service: ServiceUnderTest) -> None:
    """Each record of a request carries its earlier clicks: 200 times 1000 would take 160 MB."""
    answer, ids = service.ranked(1000, "films")
    process = worker(service.running)
    before = peak(process)
    events = [clicks(answer, *ids, event_id=f"many {at}") for at in range(200)]
    start = time.monotonic()
    reply = service.post("/feedback", {"events": events})
    assert reply.status in {202, 422}
    assert time.monotonic() - start < 5.0
    assert peak(process) - before < 100_000_000
    assert (service.store.memory_usage("solar:{films}:log") or 0) < 50_000_000


# ---- random bodies ----

WARM_UP_BODIES = 20_000
BODIES = WARM_UP_BODIES + rounds(20_000)  # 420,000 in `make chaos`
MAX_GROWTH_BYTES = 8_000_000
MAX_CPU_SECONDS = 0.0006  # of the worker for one body
POOL, GROUP = 4, 50  # connections, and requests that go out on each before the first answer

TARGETS = {
    "/rank": [VALID, json.dumps(columns(["a", "b"], [[1, 2], [3.5, -4e-2]], top_k=1, explore=True)),
              json.dumps(documents("a", "b", "c", explain=True, log=False, request_id="r"))],
    "/feedback": [json.dumps(clicks(UNUSED, "a", "b")), json.dumps(event(source="s", query_id="q")),
                  json.dumps(event(type="labels", triplets=..., labels={"b": 2.5, MARKER: 0})),
                  json.dumps({"events": [clicks(UNUSED, event_id="g"), event()]})],
    "/models/books": [json.dumps(BOOKS), json.dumps({"features": 3, "algorithm": "solar-i"})],
    "/models/films": [json.dumps({"gamma": 1e3, "C": 1e-3, "clicks": "click-skip-previous"})],
    "/models/books/rollback": ['{"version": 77}'],
}  # fmt: skip
METHODS = {"/models/books": "PUT", "/models/films": "PATCH"}
TOKENS = [
    b"NaN", b"-Infinity", b"1e400", b"null", b"true", b'"1"', b"[]", b"{}", b"[[", b"{" * 50,
    b"\xff", b"\x00", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"9" * 400, b"-", b",", b":", b'"',
    b"\xed\xa0\x80", b'"type": "clicks",', b'"events": [1],', b'"model": "missing",', b"1e-400",
]  # fmt: skip


def mutated(rng: random.Random, body: bytes, other: bytes) -> bytes:
    at, end = sorted((rng.randrange(len(body) + 1), rng.randrange(len(body) + 1)))
    match rng.randrange(6):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + rng.choice(TOKENS) + body[at:]
        case 2:
            return body[:at] + rng.choice(TOKENS) + body[end:]
        case 3:
            return body[:at] + rng.randbytes(rng.randrange(8)) + body[at + 1 :]
        case 4:
            return body[:at] + other[rng.randrange(len(other)) :]
        case _:
            return rng.randbytes(rng.randrange(60))


def bad_requests(seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)  # noqa: S311  # reproducible
    texts = {path: [body.encode() for body in bodies] for path, bodies in TARGETS.items()}
    packed = [binary(["a", MARKER], float32(1, 2, 3, 4)), binary([MARKER], bytes(8), top_k=1)]
    weighted = ["/rank"] * 4 + ["/feedback"] * 4 + list(texts)
    everything = [body for bodies in texts.values() for body in bodies] + packed
    while True:
        path = rng.choice(weighted)
        is_packed = path == "/rank" and rng.random() < 0.3
        body = mutated(
            rng, rng.choice(packed if is_packed else texts[path]), rng.choice(everything)
        )
        media_type = f"Content-Type: {MSGPACK if is_packed else JSON}"
        length = f"Content-Length: {len(body)}"
        yield head(METHODS.get(path, "POST"), path, media_type, length) + body


def check_short(reply: Reply) -> int:
    """Check that an answer is short and repeats no value; return its status."""
    if reply.status >= 400:
        assert len(reply.body) <= MAX_ANSWER_BYTES
        if MARKER.encode() in reply.body:
            assert MARKER not in without_names(reply.body.decode())
    return reply.status


@needs_proc
def test_invalid_bodies_are_answered_without_memory_growth(service: ServiceUnderTest) -> None:
    process, requests, warm = worker(service.running), bad_requests(11), 0
    counts: Counter[int] = Counter()
    start = service.cpu_seconds()
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(service.running.url)) for _ in range(POOL)]
        for done in range(0, BODIES, POOL * GROUP):
            warm = resident(process) if done == WARM_UP_BODIES else warm
            for connection in connections:
                connection.send(b"".join(next(requests) for _ in range(GROUP)))
            counts.update(
                check_short(connection.reply()) for connection in connections for _ in range(GROUP)
            )
    grown = resident(process) - warm
    assert sum(counts.values()) == BODIES
    assert set(counts) <= {200, 202, 400, 404, 409, 410, 422}
    assert {400, 404, 409, 422} <= set(counts)
    assert sum(count for status, count in counts.items() if status >= 400) > 0.9 * BODIES
    assert grown < MAX_GROWTH_BYTES
    assert service.cpu_seconds() - start < MAX_CPU_SECONDS * BODIES
    assert worker(service.running) == process
    assert MARKER not in service.running.logged()
    assert "Traceback" not in service.running.logged()


def test_every_log_line_is_json_with_a_message(service: ServiceUnderTest) -> None:
    for line in service.running.logged().splitlines():
        assert json.loads(line)["message"]
