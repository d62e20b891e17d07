"""The way to a service; and a connection that is kept open, and waits where that is asked for."""

import json
import os
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.errors import SolarError

#: Answers that ask to come again later.
LATER = (429, 503)
REQUEST_SECONDS = 60.0  # seconds for one request, however often it is repeated
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two tries


class Endpoint(NamedTuple):
    """Where a service is, and the header with its key, which is `SOLAR_KEY`."""

    connection: HTTPConnection
    path: str
    headers: dict[str, str]

    @classmethod
    def to(cls, url: str, patience: float) -> "Endpoint":
        """A connection that is opened at the first request; SolarError if that is no URL."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SolarError("--url: expected http://HOST:PORT or https://HOST:PORT")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=patience)
        key = os.environ.get("SOLAR_KEY", "")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return cls(connection, parts.path.rstrip("/"), headers)


class HttpClient:
    """A connection of one thread; `waited` says why it came again, each time."""

    def __init__(self, url: str, stopped: Event | None = None) -> None:
        self._connection, self._path, headers = Endpoint.to(url, REQUEST_SECONDS)
        self._headers = {"content-type": "application/json", **headers}
        self._stopped = stopped or Event()
        self.waited: list[str] = []

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """One request, repeated while it should come later: the status and the answer."""
        until, pause = time.monotonic() + REQUEST_SECONDS, SHORTEST_PAUSE
        while True:
            status, said, after = self._tried(method, path, body)
            if status and status not in LATER:
                return status, said
            why = str(status) if status else "a connection"
            if time.monotonic() > until or self._stopped.is_set():
                raise SolarError(f"{path}: still waiting for {why} after {REQUEST_SECONDS:g} s")
            self.waited.append(why)
            time.sleep(min(LONGEST_PAUSE, max(pause, after)))
            pause *= 2.0

    def _tried(self, method: str, path: str, body: bytes | None) -> tuple[int, Any, float]:
        """The status (0: no connection), the answer, and after how long to come again."""
        try:
            self._connection.request(method, self._path + path, body, self._headers)
            response = self._connection.getresponse()
            said = response.read()
        except (OSError, HTTPException):
            self._connection.close()
            return 0, {}, 0.0
        after = response.headers.get("Retry-After", "0")
        return response.status, _read(said), float(after) if after.isdigit() else 0.0


def _read(said: bytes) -> Any:
    try:
        return json.loads(said or b"{}")
    except ValueError:
        raise SolarError("expected an answer of a service, got something else") from None
