"""The HTTP client of `solar simulate --url` and `solar train --url`, over real sockets."""

import json
import random
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from app.errors import SolarError
from app.simulation import http_client
from app.simulation.http_client import HttpClient, connect_service
from tests.api.services import serving
from tests.commands import solar
from tests.test_tls import certified

HOST = "127.0.0.1"
#: How a scripted server answers one request.
Answer = Callable[[BaseHTTPRequestHandler], None]


class Scripted(ThreadingHTTPServer):
    """A server with scripted `answers`, the last one repeated; it records the request heads."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.heads = list(answers), list[str]()
        super().__init__((HOST, 0), Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Ignore errors: some tests close the connection early."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def handle_any(self) -> None:
        self.server.heads.append(f"{self.requestline}\n{self.headers}")
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def answers_with(status: int, body: bytes = b"{}", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


@contextmanager
def scripted(*answers: Answer, context: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    server = Scripted(*answers)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- waiting ----


def test_the_client_waits_for_retry_after_and_records_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    answers = (
        answers_with(503, Retry_After="2"),
        answers_with(429, Retry_After="soon"),
        answers_with(503, b"<html>"),
    )
    with (
        scripted(*answers, hangs_up, answers_with(200)) as server,
        HttpClient(server.url) as client,
    ):
        assert client.ask("GET", "/") == (200, {})
        assert client.waited == ["503", "429", "503", "no connection"]
    assert slept == [2.0, 0.1, 0.2, 0.4]


def test_the_client_reconnects_after_a_lost_connection() -> None:
    with (
        scripted(answers_with(200), hangs_up, answers_with(200)) as server,
        HttpClient(server.url) as client,
    ):
        assert client.ask("GET", "/one")[0] == 200
        assert client.ask("POST", "/two", b"{}")[0] == 200
        assert client.waited == ["no connection"]
        assert [head.split()[:2] for head in server.heads] == [
            ["GET", "/one"],
            ["POST", "/two"],
            ["POST", "/two"],
        ]


def test_an_unreachable_service_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "REQUEST_SECONDS", 0.1)
    with (
        HttpClient("http://127.0.0.1:9") as client,
        pytest.raises(SolarError, match="no connection"),
    ):
        client.ask("GET", "/")


@pytest.mark.parametrize("body", [b"<html>welcome</html>", b"\xff", b"[1]", b'"hello"'])
def test_an_answer_that_is_not_json_is_reported(body: bytes) -> None:
    with (
        scripted(answers_with(200, body)) as server,
        HttpClient(server.url) as client,
        pytest.raises(SolarError, match="expected a JSON object from the service, got 200 without"),
    ):
        client.ask("GET", "/")


# ---- addresses, keys and proxies ----


@pytest.mark.parametrize(
    "url", ["localhost:8000", "", "ftp://host", "http://", "http://host:port", "http://h:99999"]
)
def test_an_invalid_service_url_is_refused(url: str) -> None:
    with pytest.raises(SolarError, match="--url: expected http://HOST:PORT"):
        HttpClient(url)


def test_the_path_of_the_url_is_kept_and_its_credentials_are_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOLAR_KEY", "hush\n")  # as read from a file
    with scripted(answers_with(200)) as server:
        url = server.url.replace("//", "//somebody:else@") + "/solar/?page=1#top"
        with HttpClient(url) as client:
            client.ask("GET", "/models?a=b")
    assert server.heads[0].startswith("GET /solar/models?a=b HTTP/1.1\n")
    assert server.heads[0].count("uthorization: Bearer hush\n") == 1
    assert "Basic" not in server.heads[0]


@pytest.mark.parametrize("key", ["hüsh", "hu\nsh"])
def test_an_invalid_key_is_refused_and_not_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOLAR_KEY", key)
    with pytest.raises(SolarError) as raised:
        connect_service("http://host", 1.0)
    assert str(raised.value) == "SOLAR_KEY: expected printable ASCII characters"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_no_proxy_is_used_for_a_loopback_address(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(answers_with(200, b'{"by": "proxy"}')) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with (
            connect_service(f"http://{name}:9", 1.0) as client,
            suppress(httpx.HTTPError),
        ):
            client.get("/")
    assert proxy.heads == []


def test_a_remote_service_is_reached_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with scripted(answers_with(200, b'{"by": "proxy"}')) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with HttpClient("http://ranking.invalid") as client:
            assert client.ask("GET", "/models") == (200, {"by": "proxy"})
    assert proxy.heads[0].startswith("GET http://ranking.invalid/models HTTP/1.1\n")


def test_an_invalid_proxy_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "gopher://somewhere")
    with pytest.raises(SolarError, match=r"proxy: expected valid proxy settings .*gopher"):
        connect_service("http://ranking.invalid", 1.0)


def test_https_trusts_only_the_certificates_of_the_system(tmp_path: Path) -> None:
    """In separate processes, as a process reads the trusted certificates once."""
    made = certified(tmp_path, "solar")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.file, made.key)
    code = (
        "import sys; from app.simulation.http_client import connect_service\n"
        "with connect_service(sys.argv[1], 10.0) as client: print(client.get('/').status_code)"
    )
    with scripted(answers_with(204), context=context) as server:
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        ran = [
            subprocess.run(
                [sys.executable, "-c", code, url], env=environ, capture_output=True, text=True,
                check=False,
            )
            for environ in ({}, {"SSL_CERT_FILE": str(made.file)})
        ]  # fmt: skip
    assert "CERTIFICATE_VERIFY_FAILED" in ran[0].stderr
    assert (ran[1].stdout, ran[1].stderr) == ("204\n", "")


# ---- uploads ----


def judged_file(folder: Path, documents: int) -> str:
    """Write text that compresses badly, so that its upload takes a while."""
    rng = random.Random(3)  # noqa: S311
    file = folder / "judged.txt"
    with file.open("w") as out:
        for d in range(documents):
            values = " ".join(f"{k}:{rng.random():.9f}" for k in range(1, 41))
            out.write(f"{d % 3} qid:{d // 20} {values}\n")
    return str(file)


REFUSED = json.dumps({"detail": "expected at most 1000 bytes"}).encode()


def refuses_halfway(handler: BaseHTTPRequestHandler) -> None:
    """Answer after the head, and close the connection during the upload."""
    answers_with(413, REFUSED, Connection="close")(handler)


def test_an_upload_refused_halfway_reports_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", judged_file(tmp_path, 20_000), "--model", "m", "--C", "1"]
    with scripted(answers_with(200), refuses_halfway) as server:
        assert solar(*words, "--url", server.url) == 2
    message = capsys.readouterr().err
    assert message == "solar: the service answered 413: expected at most 1000 bytes\n"


def test_an_upload_over_the_limit_reports_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", judged_file(tmp_path, 20_000), "--model", "m", "--C", "1"]
    with serving(environ={"SOLAR_UPLOAD_BYTES": "1000000"}) as service:
        assert solar(*words, "--url", service.url) == 2
    message = capsys.readouterr().err
    assert message == "solar: the service answered 413: body: expected at most 1000000 bytes\n"
