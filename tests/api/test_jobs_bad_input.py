"""Invalid uploads, options and job ids over real HTTP: refused, and nothing of them is stored."""

import gzip
import json
import lzma
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from app.api.auth import new_key
from app.domain.model_config import ModelConfig
from app.errors import BadData
from app.storage.keys import Keys
from app.training import process
from app.training.options import Training, TrainingTask
from app.training.trainer import checked_judgements
from tests.api import test_bad_input as bad_input
from tests.api.services import PLAIN, Running, serving
from tests.api.test_bad_input import MARKER, NUMBERS, Connection, Reply, unreadable
from tests.api.trainings import (
    ended_job,
    judged_queries,
    letor,
    records,
    started_job,
    store_of,
    training_processes,
    until_long,
    uploads,
    warm_start,
    worker_of,
)

UPLOAD_BYTES, BODY_BYTES = 200_000, 100_000
N = 3
VALID = letor(judged_queries(N, queries=4, documents=4))
TEXT, GZIP, JSON = "text/plain", "application/gzip", "application/json"
UUID = "01970000-0000-7000-8000-000000000000"
PATH = "/models/books/warm-start"
PACKED = gzip.compress(VALID)
XZ, XZ_PACKED = "application/x-xz", lzma.compress(VALID)


# ---- requests and their checks ----


@dataclass(frozen=True)
class Ask:
    """A request and its expected status."""

    case: str
    status: int
    body: bytes = VALID
    kind: str = TEXT
    query: str = ""
    path: str = PATH
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    repeats: bool = False

    def sent(self, http: httpx.Client) -> httpx.Response:
        kind = {"content-type": self.kind} if self.kind else {}
        url = f"{self.path}?{self.query}" if self.query else self.path
        headers = {"x-marker": MARKER, **kind, **self.headers}
        return http.request(self.method, url, content=self.body, headers=headers)


def check_refusal(answer: httpx.Response | Reply, status: int, *, repeats: bool = False) -> None:
    if isinstance(answer, httpx.Response):
        answer = Reply(answer.status_code, answer.headers, answer.content)
    bad_input.check_refusal(answer, status, repeats=repeats)


@dataclass
class Service:
    """A service with a model `books` of three features."""

    running: Running
    http: httpx.Client

    def jobs(self) -> list[bytes]:
        """Return the jobs in the store."""
        with redis.Redis.from_url(store_of(self.running)) as store:
            found: Any = store.keys(Keys("*").job("*").replace("{*}", "*"))
            return sorted(found)

    def records(self) -> int:
        return len(records(store_of(self.running), "books"))

    def check_nothing_stays(self) -> None:
        """Check that no file, process or lease remains, and that the log has no input."""
        until_long(lambda: uploads(self.running) == [])
        until_long(lambda: training_processes(worker_of(self.running)) == [])
        with redis.Redis.from_url(store_of(self.running)) as store:
            assert store.keys("*:training") == []
        logged = self.running.logged()
        assert MARKER not in logged
        assert "Traceback" not in logged

    def refuses(self, ask: Ask) -> httpx.Response:
        """Check that a request is refused before a job starts."""
        before = self.jobs(), self.records()
        answer = ask.sent(self.http)
        check_refusal(answer, ask.status, repeats=ask.repeats)
        assert (self.jobs(), self.records()) == before
        self.check_nothing_stays()
        return answer


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    environ = {
        "SOLAR_UPLOAD_BYTES": str(UPLOAD_BYTES),
        "SOLAR_BODY_BYTES": str(BODY_BYTES),
        "SOLAR_UPLOAD_SECONDS": "0.5",
        "SOLAR_BODY_SECONDS": "0.5",
        "SOLAR_CHECK_SECONDS": "60",
        "SOLAR_JOBS": "8",
    }
    with serving(environ=environ) as running, running.client() as http:
        for name in ("books", "films"):
            assert http.put(f"/models/{name}", json={**PLAIN, "features": N}).status_code == 201
        yield Service(running, http)


# ---- transport ----

GZIP_BOMB = gzip.compress(bytes(50_000_000))
XZ_BOMB = lzma.compress(bytes(50_000_000), preset=1)
TRANSPORT = [
    Ask("an unknown model", 404, path=f"/models/{MARKER}/warm-start"),
    Ask("a name that no model can have", 404, path="/models/..%2F..%2Fetc/warm-start"),
    Ask("GET", 405, b"", method="GET"),
    Ask("no content type", 415, kind=""),
    Ask("a form", 415, kind="application/x-www-form-urlencoded"),
    Ask("a file in a form", 415, kind="multipart/form-data; boundary=x"),
    Ask("msgpack", 415, kind="application/msgpack"),
    Ask("an unknown content type", 415, kind=f"application/{MARKER}"),
    Ask("brotli", 415, headers={"content-encoding": "br"}),
    Ask("gzip twice", 415, headers={"content-encoding": "gzip, gzip"}),
    Ask("JSON as gzip", 415, gzip.compress(b"{}"), JSON, headers={"content-encoding": "gzip"}),
    Ask("an empty body", 400, b""),
    Ask("an empty body as gzip", 400, gzip.compress(b""), GZIP),
    Ask("many empty members", 400, gzip.compress(b"") * 5000, GZIP),
    Ask("gzip that ends early", 400, PACKED[:-9], GZIP),
    Ask("gzip without its checksum", 400, PACKED[:-4], GZIP),
    Ask("gzip with another checksum", 400, PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], GZIP),
    Ask("only the head of gzip", 400, PACKED[:10], GZIP),
    Ask("garbage after gzip", 400, PACKED + MARKER.encode(), GZIP),
    Ask("half a second member", 400, PACKED + PACKED[:-9], GZIP),
    Ask("garbage in gzip", 400, PACKED[:40] + b"\xff" * 40 + PACKED[80:], GZIP),
    Ask("a gzip bomb", 413, GZIP_BOMB, GZIP),
    Ask("a gzip bomb in its second member", 413, PACKED + GZIP_BOMB, GZIP),
    Ask("a gzip bomb declared as text", 413, GZIP_BOMB, TEXT),
    Ask("an empty body as xz", 400, lzma.compress(b""), XZ),
    Ask("many empty streams", 400, lzma.compress(b"") * 5000, XZ),
    Ask("xz that ends early", 400, XZ_PACKED[:-9], XZ),
    Ask("xz in which a byte differs", 400, XZ_PACKED[:60] + b"\xff" + XZ_PACKED[61:], XZ),
    Ask("only the head of xz", 400, XZ_PACKED[:12], XZ),
    Ask("garbage after xz", 400, XZ_PACKED + MARKER.encode(), XZ),
    Ask("half a second stream", 400, XZ_PACKED + XZ_PACKED[:-9], XZ),
    Ask("an xz bomb", 413, XZ_BOMB, XZ),
    Ask("an xz bomb in its second stream", 413, XZ_PACKED + XZ_BOMB, XZ),
    Ask("an xz bomb declared as text", 413, XZ_BOMB, TEXT),
    Ask("xz that needs 65 MiB to unpack", 413, lzma.compress(VALID, preset=9), XZ),
    Ask("JSON as xz", 415, lzma.compress(b"{}"), JSON, headers={"content-encoding": "xz"}),
    Ask("too much text", 413, VALID + b"#" * UPLOAD_BYTES),
    Ask("one byte too much", 413, b"#" * (UPLOAD_BYTES + 1)),
    Ask("too much JSON", 413, b" " * (BODY_BYTES + 1), JSON),
]

UNKNOWN_OPTIONS = (f"{MARKER}={MARKER}", MARKER * 500)
OPTIONS = [
    Ask(f"the options {query}", 422, query=query, repeats=query in UNKNOWN_OPTIONS)
    for query in (
        "C=1&validation=0.2", "C=nan", "C=NaN", "C=inf", "C=-1", "C=0", "C=1e400", "C=1e13",
        "C=", "C", f"C={MARKER}", "C=1&C=2", "loss=l1&loss=l2", *UNKNOWN_OPTIONS, "c=1",
        f"loss={MARKER}", "loss=hinge", "trainer=svm", "by=map", "by=ndcg", "penalty=1",
        "trainer=domination&C=1", "trainer=domination&penalty=0",
        "trainer=domination&penalty=1&validation=0.2", "validation=0", "validation=1.5",
        "validation=-1", "validation=nan", "validation=inf", "validation=1e300", "C=1;loss=l1",
        f"C=1&&loss={MARKER}", "C=%ff", "%ff=1", "C=1%00", "C=0x1", "C=1_0", "C=true", "C=[1]",
        "C=" + "9" * 5000, "C=1&" * 2000 + "C=1", "queries=1",
    )
]  # fmt: skip

IDS = [
    Ask(f"{method} of {path}", 404, b"", "", path=path, method=method)
    for job in (
        MARKER, "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", f"books.{UUID}", f"missing.{UUID}",
        f"books.{UUID}%00", f"books.{UUID}%0a", f"..%2fbooks.{UUID}", f"books..{UUID}",
        f"BOOKS.{UUID.upper()}", f"{'x' * 65}.{UUID}", f"bo%7Boks%7D.{UUID}", "%00", "*",
        "x" * 5000,
    )
    for method, path in (("GET", f"/jobs/{job}"), ("DELETE", f"/jobs/{job}"),
                         ("POST", f"/jobs/{job}/start"))
]  # fmt: skip


def queries(*documents: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"queries": [{"documents": one} for one in documents], **more}).encode()


def two(features: Any, label: Any = 1) -> list[dict[str, Any]]:
    """Return a query of two documents, the second with these features and label."""
    return [{"label": 0, "features": [1, 2, 3]}, {"label": label, "features": features}]


def with_number(number: str) -> dict[str, bytes]:
    """Return JSON with a value as a feature, as a named feature, and as a label."""
    return {
        "a feature": queries(two([1, 2, 77])).replace(b"77", number.encode()),
        "a named feature": queries(two({"f1": 77})).replace(b"77", number.encode()),
        "a label": queries(two([1, 2, 3], 77)).replace(b"77", number.encode()),
    }


VALID_JSON = json.dumps({"queries": [{"query_id": MARKER, "documents": two([1, 2, 3])}]})
BODIES = [
    *(Ask(f"JSON that is {how}", 400, body, JSON)
      for how, body in unreadable(VALID_JSON).items()),
    *(Ask(f"{what} as {where}", 422, body, JSON)
      for what, number in NUMBERS.items() for where, body in with_number(number).items()),
    *(Ask(f"{number} as {where}", 400, body, JSON)
      for number in ("NaN", "Infinity") for where, body in with_number(number).items()),
    *(Ask(f"a label of {label}", 422, queries(two([1, 2, 3], label)), JSON)
      for label in (31, -1, 30.5)),
    *(Ask(f"a feature of {value:g}", 422, queries(two([1, 2, value])), JSON)
      for value in (1e39, -1e39)),
    Ask("an array", 422, f'["{MARKER}"]'.encode(), JSON),
    Ask("nothing", 422, b"{}", JSON),
    Ask("no queries", 422, queries(), JSON),
    Ask("null as queries", 422, b'{"queries": null}', JSON),
    Ask("no documents", 422, queries([]), JSON),
    Ask("an empty query among others", 422, queries(two([1, 2, 3]), []), JSON),
    Ask("a row too short", 422, queries(two([1, 2])), JSON),
    Ask("a row too long", 422, queries(two([1, 2, 3, 4])), JSON),
    Ask("an empty row", 422, queries(two([])), JSON),
    Ask("an unknown name", 422, queries(two({MARKER: 77})), JSON, repeats=True),
    Ask("a row too short among names", 422, queries([*two({"f1": 1}), *two([1])]), JSON),
    Ask("no features", 422, queries([{"label": 1}]), JSON),
    Ask("no label", 422, queries([{"features": [1, 2, 3]}]), JSON),
    Ask("an unknown field", 422, queries(two([1, 2, 3]), **{MARKER: MARKER}), JSON,
        repeats=True),
    Ask("an unknown field of a document", 422,
        queries([{"label": 1, "features": [1, 2, 3], MARKER: MARKER}]), JSON, repeats=True),
    Ask("a query id that is a number", 422, b'{"queries": [{"query_id": 1, "documents": []}]}',
        JSON),
    *(Ask(f"the options {options}", 422, queries(two([1, 2, 3]), **options), JSON)
      for options in ({"C": 1, "validation": 0.2}, {"C": 0}, {"C": "1"}, {"C": True},
                      {"loss": MARKER}, {"trainer": "domination", "C": 1}, {"validation": 1.5})),
    Ask("options beside JSON", 422, queries(two([1, 2, 3])), JSON, query="C=1"),
    Ask("9000 wrong documents", 422,
        b'{"queries":[{"documents":[' + b'{"a":1},' * 9000 + b"1]}]}", JSON),
]  # fmt: skip


LISTS = [
    Ask(f"the list of jobs with {query}", 422, b"", "", query, "/jobs", "GET")
    for query in ("limit=0", "limit=101", "limit=-1", "limit=x", f"limit={MARKER}", "limit=1.5",
                  "after=", "after=books", f"after={MARKER}", f"after=books.{UUID}%00",
                  f"after=books.{UUID[:-1]}", "after=%2B", "after=[x", "after=" + "x" * 5000)
]  # fmt: skip


@pytest.mark.parametrize(
    "ask", [*TRANSPORT, *OPTIONS, *IDS, *BODIES, *LISTS], ids=lambda ask: ask.case[:60]
)
def test_an_invalid_request_is_refused_and_nothing_is_stored(service: Service, ask: Ask) -> None:
    service.refuses(ask)


def test_json_with_too_many_feature_values_is_refused_before_memory_is_allocated(
    service: Service,
) -> None:
    body = {"features": 100_000, "covariance": "diagonal"}
    assert service.http.put("/models/wide", json=body).status_code == 201
    documents = [{"label": at % 2, "features": {}} for at in range(300)]
    service.refuses(Ask("too many", 413, queries(documents), JSON, path="/models/wide/warm-start"))


@pytest.mark.parametrize("path", ["/jobs/../../etc/passwd", "/jobs/..", "/jobs//start", "/jobs/"])
def test_a_path_traversal_is_refused(service: Service, path: str) -> None:
    for method in ("GET", "DELETE", "POST"):
        with Connection(service.running.url) as connection:
            connection.send(
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()
            )
            assert connection.reply().status in (404, 405)


def test_a_job_is_found_only_by_its_full_id(service: Service) -> None:
    """Another model's name does not find the job."""
    with redis.Redis.from_url(store_of(service.running)) as store:
        fields = {"epoch": "1", "state": "failed", "trains": "x", "about": '{"training":{}}'}
        store.hset(Keys("books").job(f"books.{UUID}"), mapping=fields)
        try:
            assert service.http.get(f"/jobs/books.{UUID}").status_code == 200
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/start")):
                answer = service.http.request(method, f"/jobs/films.{UUID}{path}")
                check_refusal(answer, 404)
            answer = service.http.post(f"/jobs/books.{UUID}/start")
            check_refusal(answer, 409)  # the data is not on this machine
        finally:
            store.delete(Keys("books").job(f"books.{UUID}"))
    service.check_nothing_stays()


# ---- slow and endless bodies ----


def head(kind: str, *lines: str) -> bytes:
    start = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}"]
    return "\r\n".join([*start, *lines, "", ""]).encode()


@pytest.mark.parametrize("kind", [TEXT, JSON])
def test_a_body_that_does_not_arrive_is_408(service: Service, kind: str) -> None:
    with Connection(service.running.url) as connection:
        connection.send(head(kind, "Content-Length: 1000") + VALID[:100])
        check_refusal(connection.reply(), 408)
    service.check_nothing_stays()


def test_a_chunked_body_over_the_limit_is_413(service: Service) -> None:
    with Connection(service.running.url) as connection:
        connection.send(head(TEXT, "Transfer-Encoding: chunked"))
        chunk = b"%x\r\n%s\r\n" % (10_000, b"#" * 10_000)
        for _ in range(UPLOAD_BYTES // 10_000 + 1):
            connection.send(chunk)
        connection.send(b"0\r\n\r\n")
        check_refusal(connection.reply(), 413)
    service.check_nothing_stays()


# ---- data that was uploaded but cannot be trained on ----


def line(rest: str = "1:1 2:2 3:3", label: str = "1", query: str = "qid:a") -> bytes:
    """Return a valid line, then a second one with these fields."""
    return f"0 qid:a 1:3 2:2 3:1\n{label} {query} {rest}\n".encode()


INVALID_LINES: dict[str, bytes] = {
    "NaN": line("1:nan"),
    "infinity": line("1:inf"),
    "1e400": line("1:1e400"),
    "more than a float32": line("1:1e39"),
    "words": line(f"1:{MARKER}"),
    "a number with an underscore": line("1:1_0"),
    "a number of other digits": line("1:\uff11"),
    "a label beyond": line(label="31"),
    "a label below": line(label="-1"),
    "a label that is NaN": line(label="nan"),
    "a label of words": line(label=MARKER),
    "no query": line(query=""),
    "an empty query": line(query="qid:"),
    "a query of another name": line(query=f"query:{MARKER}"),
    "feature 0": line("0:1"),
    "feature -1": line("-1:1"),
    "a feature beyond": line("10000001:1"),
    "a feature of 5000 digits": line("9" * 5000 + ":1"),
    "features that descend": line("2:1 1:1"),
    "a feature twice": line("1:1 1:1"),
    "no colon": line("1"),
    "two colons": line("1:1:1"),
    "no value": line("1:"),
    "a word more": line(f"1:1 {MARKER}"),
    "a NUL in a number": line("1:1\0"),
    "NULs": line(label="\0\0\0"),
    "bad UTF-8 in a number": line("1:@").replace(b"@", b"\xff"),
    "only a label": b"0 qid:a 1:3\n1\n",
}
INVALID_FILES: dict[str, tuple[bytes, str]] = {
    "only comments": (b"# nothing\n\n#\n", "upload: expected lines"),
    "blank": (b" \n\t\n", "upload: expected lines"),
    "UTF-16": (VALID.decode().encode("utf-16"), "upload:1: expected a label"),
    "UTF-16 without a BOM": (VALID.decode().encode("utf-16-le"), "upload:1: expected a label"),
    "a BOM": (b"\xef\xbb\xbf" + VALID, "upload:1: expected a label"),
    "binary": (bytes(range(256)) * 20, "upload:"),
    "no features": (b"0 qid:a\n1 qid:a\n", "upload: expected features"),
    "too few features": (b"0 qid:a 1:1\n1 qid:a 2:1\n", "features: expected 3"),
    "too many features": (b"0 qid:a 1:1\n1 qid:a 4:1\n", "features: expected 3"),
    "far too many features": (b"0 qid:a 1:1\n1 qid:a 9999999:1\n", "features: expected 3"),
    "a feature beyond the bound": (line("3:10001"), "features: expected values within"),
    "one query to choose by": (line(), "validation: expected queries"),
    "one level": (b"1 qid:a 3:1\n1 qid:a 3:2\n", "labels: expected two"),
    "one document a query": (b"1 qid:a 3:1\n0 qid:b 3:2\n", "labels: expected two"),
    "a query in two places": (
        line() + f"0 qid:{MARKER} 3:1\n0 qid:b 3:1\n0 qid:{MARKER} 3:1\n".encode(), "upload:5: exp",
    ),
}  # fmt: skip


def training_message(folder: Path, body: bytes) -> str:
    """Return the message of a training process on an upload in its working directory."""
    (folder / "upload").write_bytes(body)
    order = TrainingTask(
        ModelConfig(("f1", "f2", "f3")), Training(), 1e4, blob=False, memory=1 << 40
    )
    with pytest.raises(BadData) as caught:
        checked_judgements(process.read_judgements(order), order.training)
    return process.without_input(caught.value)


@pytest.mark.parametrize("what", INVALID_LINES)
def test_an_invalid_line_is_named_by_number_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    message = training_message(tmp_path, INVALID_LINES[what])
    assert re.match("upload:2: expected ", message), message
    assert MARKER not in message


@pytest.mark.parametrize("what", INVALID_FILES)
def test_data_that_cannot_be_trained_on_gets_a_message_with_the_expectation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    body, begins = INVALID_FILES[what]
    message = training_message(tmp_path, body)
    assert message.startswith(begins), message
    assert MARKER not in message


def check_refused_after_reading(service: Service, ask: Ask, detail: str) -> None:
    """Check that invalid data fails its job, is deleted, and leaves no record."""
    answer = ask.sent(service.http)
    check_refusal(answer, 422)
    assert answer.json()["detail"].startswith(detail), answer.text
    assert uploads(service.running) == []  # deleted before the answer
    service.check_nothing_stays()
    assert service.records() == 0


def test_invalid_data_is_refused_and_valid_data_can_follow_at_once(service: Service) -> None:
    for ask, detail in (
        (Ask("a bad line", 422, line(f"1:{MARKER}")), "upload:2: expected a finite float32"),
        (Ask("a bad line in gzip", 422, gzip.compress(line("2:1 1:1")), GZIP), "upload:2: exp"),
        (Ask("JSON beyond the bound", 422, queries(two([1, 2, 10_001])), JSON), "features: expec"),
        (Ask("JSON of one level", 422, queries(two([1, 2, 3], 0)), JSON, ), "labels: expected two"),
    ):  # fmt: skip
        check_refused_after_reading(service, ask, detail)
    job = started_job(warm_start(service.http, "films", VALID, C=1))
    assert ended_job(service.http, job)["state"] == "done"


def test_identical_features_fail_the_job_with_a_reason(
    service: Service,
) -> None:
    body = {**PLAIN, "features": 2, "gamma": 1e-12}
    assert service.http.put("/models/twins", json=body).status_code == 201
    same = b"".join(
        b"%d qid:%d 1:%d 2:%d\n" % (at % 2, at // 2, x, x)
        for at, x in enumerate((5000, -4000, -3001, 2003, 9999, -9998, 77, 78))
    )
    found = ended_job(service.http, started_job(warm_start(service.http, "twins", same, C=1e-12)))
    assert found["state"] == "failed"
    assert found["error"] == "covariance: expected features that are not collinear in float64"
    assert service.http.delete(f"/jobs/{found['id']}").status_code == 409
    shutil.rmtree(service.running.data / "uploads" / found["id"])  # kept for a restart
    assert "Traceback" not in service.running.logged()
    assert records(store_of(service.running), "twins") == []


# ---- memory, and keys ----


def test_data_over_the_memory_limit_of_training_is_refused() -> None:
    environ = {"SOLAR_TRAINING_MEMORY": "1000000", "SOLAR_CHECK_SECONDS": "60"}
    with serving(environ=environ) as running, running.client() as http:
        assert http.put("/models/books", json={**PLAIN, "features": 40}).status_code == 201
        answer = warm_start(
            http, "books", letor(judged_queries(40, queries=400, documents=20)), C=1
        )
        check_refusal(answer, 422)
        assert answer.json()["detail"] == (
            "expected data that fits into 1000000 bytes of memory (SOLAR_TRAINING_MEMORY); "
            "send less data or raise the limit"
        )
        assert (uploads(running), records(store_of(running), "books")) == ([], [])
        assert http.get("/readyz").status_code == 200


def test_jobs_need_a_key_with_the_admin_scope() -> None:
    admin, first = new_key("ops", "admin")
    web, second = new_key("web", "rank+feedback")
    with serving(environ={"SOLAR_KEYS": f"{first},{second}"}) as running:
        known = {name: {"authorization": f"Bearer {key}"} for name, key in
                 {"admin": admin, "web": web, "unknown": MARKER}.items()}  # fmt: skip
        with running.client(headers=known["admin"]) as http:
            assert http.put("/models/books", json={**PLAIN, "features": N}).status_code == 201
            assert http.get(f"/jobs/books.{UUID}").status_code == 404
        asks: tuple[tuple[str, str], ...] = (
            ("POST", PATH), ("GET", "/jobs"), ("GET", f"/jobs/books.{UUID}"),
            ("DELETE", f"/jobs/books.{UUID}"), ("POST", f"/jobs/books.{UUID}/start"),
        )  # fmt: skip
        refused: dict[str, Callable[[], dict[str, str]]] = {
            "401": lambda: known["unknown"], "403": lambda: known["web"],
        }  # fmt: skip
        with running.client() as http:
            for status, headers in refused.items():
                for method, path in asks:
                    answer = http.request(
                        method, path, content=VALID, headers={**headers(), "content-type": TEXT}
                    )
                    check_refusal(answer, int(status))
            for method, path in asks:
                check_refusal(http.request(method, path), 401)
        assert uploads(running) == []
        assert MARKER not in running.logged()
