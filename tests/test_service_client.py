"""solar-client in commands with --url: retries, errors, certificates, uploads."""

import json
import random
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from solar_client import Solar, Unavailable

from app.errors import SolarError
from app.simulation import service_client
from app.simulation.service_client import client_errors, retrying
from tests.api.services import ROOT, serving
from tests.commands import solar
from tests.test_tls import certified

HOST = "127.0.0.1"
#: How a scripted server answers one request.
Answer = Callable[[BaseHTTPRequestHandler], None]


class Scripted(ThreadingHTTPServer):
    """A server with scripted `answers`, the last one repeated."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
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


NO_JOBS = answers_with(200, b'{"jobs": []}')


# ---- retries and errors ----


def test_a_call_is_repeated_while_the_service_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(service_client, "random", lambda: 1.0)
    answers = [answers_with(503, Retry_After="2"), answers_with(429, Retry_After="soon")]
    waited: list[str] = []
    with scripted(*answers, hangs_up, hangs_up, NO_JOBS) as server, Solar(server.url) as client:
        assert retrying(lambda: list(client.list_jobs()), waited) == []
    assert waited == ["503", "429", "no connection"]
    assert slept == [2.1, 0.2, 0.4]


def test_the_last_error_is_raised_when_the_time_is_over_or_the_run_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = threading.Event()
    stopped.set()
    with scripted(answers_with(503)) as server, Solar(server.url) as client:
        with pytest.raises(Unavailable):
            retrying(lambda: client.get_job("m"), [], stopped)
        monkeypatch.setattr(service_client, "REQUEST_SECONDS", -1.0)
        with pytest.raises(Unavailable):
            retrying(lambda: client.get_job("m"), [])


def test_an_answer_that_is_not_of_solar_is_reported() -> None:
    with (
        scripted(answers_with(200, b"<html>")) as server,
        Solar(server.url) as client,
        pytest.raises(SolarError, match="expected an answer of SOLAR, got 200 with another body"),
        client_errors(),
    ):
        client.get_model("m")


def test_an_invalid_key_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOLAR_KEY", "hüsh")
    words = ["train", judged_file(tmp_path, 40), "--model", "m", "--C", "1", "--url", "http://h"]
    assert solar(*words) == 2
    assert capsys.readouterr().err == "solar: SOLAR_KEY: expected printable ASCII characters\n"


@pytest.mark.parametrize("foreign", ["", "class Client: ...\n"])
@pytest.mark.parametrize("command", ["train", "simulate"])
def test_without_solar_client_a_command_with_url_names_what_to_install(
    command: str, foreign: str, tmp_path: Path
) -> None:
    """Also if an unrelated package of this name is installed."""
    broken = foreign or "raise ImportError('not installed')\n"
    (tmp_path / "solar_client.py").write_text(broken)
    words = [command, judged_file(tmp_path, 40), "--model", "m", "--url", "http://127.0.0.1:9"]
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
        f"from app.__main__ import main; sys.exit(main({words!r}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 2, ran.stderr
    assert "solar: --url: expected solar-client, which is not installed" in ran.stderr
    assert "pip install ./clients/python" in ran.stderr


def test_https_trusts_only_the_certificates_of_the_system(tmp_path: Path) -> None:
    made = certified(tmp_path, "solar")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.file, made.key)
    code = (
        "import sys; from solar_client import Solar\n"
        "with Solar(sys.argv[1]) as client: print(list(client.list_jobs()))"
    )
    with scripted(NO_JOBS, context=context) as server:
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        ran = [
            subprocess.run(
                [sys.executable, "-c", code, url], env=environ, capture_output=True, text=True,
                check=False,
            )
            for environ in ({}, {"SSL_CERT_FILE": str(made.file)})
        ]  # fmt: skip
    assert "CERTIFICATE_VERIFY_FAILED" in ran[0].stderr
    assert (ran[1].stdout, ran[1].stderr) == ("[]\n", "")


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


MODEL = {
    "name": "m", "algorithm": "solar-ii", "version": 0, "seq": 0, "features": ["f1"],
    "weights": {"f1": 0.0}, "normalization": "none", "clicks": "debiased", "explore": True,
    "covariance": "full", "C": 1e-5, "gamma": 1e4, "prior": 0.0,
}  # fmt: skip
REFUSED = json.dumps({"detail": "expected at most 1000 bytes"}).encode()


def refuses_halfway(handler: BaseHTTPRequestHandler) -> None:
    """Answer after the head, and close the connection during the upload."""
    answers_with(413, REFUSED, Connection="close")(handler)


def test_an_upload_refused_halfway_reports_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", judged_file(tmp_path, 20_000), "--model", "m", "--C", "1"]
    with scripted(answers_with(200, json.dumps(MODEL).encode()), refuses_halfway) as server:
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
