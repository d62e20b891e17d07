"""A server with scripted answers, on a real socket."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
#: How a scripted server answers one request.
Script = Callable[["Handler"], None]


class Scripted(ThreadingHTTPServer):
    """A server with scripted `answers`, the last one repeated; it records heads and bodies."""

    daemon_threads = True

    def __init__(self, *answers: Script) -> None:
        self.answers, self.heads, self.bodies = list(answers), list[str](), list[bytes]()
        self.connections = 0
        self.lock = threading.Lock()
        super().__init__((HOST, 0), Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def events(self) -> list[list[dict[str, Any]]]:
        """Return the events of each post."""
        return [json.loads(body)["events"] for body in self.bodies]

    def handle_error(self, *_: object) -> None:
        """Ignore errors: some tests close the connection early."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Scripted

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with self.server.lock:
            self.server.heads.append(f"{self.requestline}\n{self.headers}")
            self.server.bodies.append(body)
            answers = self.server.answers
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self.body = body
        answer(self)

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = handle_any  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def answers_with(status: int, body: bytes = b"{}", **headers: str) -> Script:
    return lambda handler: handler.answer(status, body, **headers)


def accepts(handler: Handler) -> None:
    """Acknowledge all events."""
    many = len(json.loads(handler.body)["events"])
    found = {"accepted": many, "duplicates": 0, "rejected": 0, "seq": 1, "errors": []}
    handler.answer(202, json.dumps(found).encode())


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True


def ranks(handler: Handler) -> None:
    """Rank the documents in reverse."""
    asked = json.loads(handler.body)
    ids = asked.get("ids") or [one["id"] for one in asked["documents"]]
    documents = [{"id": one, "rank": at, "score": 1.0} for at, one in enumerate(reversed(ids), 1)]
    found = {
        "request_id": "m.01970000-0000-7000-8000-000000000000", "query_id": "", "model": "m",
        "version": 3, "explored": False, "logged": True, "degraded": False,
        "documents": documents,
    }  # fmt: skip
    handler.answer(200, json.dumps(found).encode())


@contextmanager
def scripted(*answers: Script, context: ssl.SSLContext | None = None) -> Iterator[Scripted]:
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
