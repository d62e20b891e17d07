"""A client of a service, whose key is `SOLAR_KEY`; and one that waits where it is asked to."""

import os
import ssl
import time
from functools import cache
from ipaddress import ip_address
from threading import Event
from typing import Any

import httpx

from app.errors import SolarError

#: Answers that ask to come again later.
LATER = (429, 503)
REQUEST_SECONDS = 60.0  # seconds for one request, however often it is repeated
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two tries


def connect_service(url: str, seconds: float) -> httpx.Client:
    """A client that connects at the first request; SolarError if that is no URL.

    Proxies of the environment are used as other programs use them, but not for a loopback
    address: a proxy would look for the service on its own machine.
    """
    try:
        given = httpx.URL(url)
        base = httpx.URL(scheme=given.scheme, host=given.host, port=given.port, path=given.path)
    except httpx.InvalidURL:
        base = httpx.URL()
    if base.scheme not in ("http", "https") or not base.host or (base.port or 0) >= 1 << 16:
        raise SolarError("--url: expected http://HOST:PORT or https://HOST:PORT")
    try:
        return httpx.Client(
            base_url=base, headers=_key_header(), timeout=seconds, verify=_system_certificates(),
            trust_env=not _is_loopback(base.host),
        )  # fmt: skip
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise SolarError(f"a proxy of the environment cannot be used: {error}") from error


def _key_header() -> dict[str, str]:
    key = os.environ.get("SOLAR_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):  # the library's own error would repeat it
        raise SolarError("SOLAR_KEY: expected printable ASCII characters")
    return {"authorization": f"Bearer {key}"} if key else {}


@cache
def _system_certificates() -> ssl.SSLContext:
    """Those that the system trusts; httpx alone would take certifi's, without a company's own."""
    return ssl.create_default_context()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpClient:
    """A connection of one thread; `waited` says why it came again, each time."""

    def __init__(self, url: str, stopped: Event | None = None) -> None:
        self._client = connect_service(url, REQUEST_SECONDS)
        self._stopped = stopped or Event()
        self.waited: list[str] = []

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
        """One request, repeated while it should come later: the status and the answer."""
        until, pause = time.monotonic() + REQUEST_SECONDS, SHORTEST_PAUSE
        while True:
            response = self._tried(method, path, body)
            if response is not None and response.status_code not in LATER:
                return response.status_code, read_json(response)
            why = "a connection" if response is None else str(response.status_code)
            if time.monotonic() > until or self._stopped.is_set():
                raise SolarError(f"{path}: still waiting for {why} after {REQUEST_SECONDS:g} s")
            self.waited.append(why)
            time.sleep(min(LONGEST_PAUSE, max(pause, _retry_after(response))))
            pause *= 2.0

    def _tried(self, method: str, path: str, body: bytes | None) -> httpx.Response | None:
        """The answer, or None without a connection."""
        headers = {"content-type": "application/json"}
        try:
            return self._client.request(method, path, content=body, headers=headers)
        except httpx.RequestError:
            return None


def read_json(response: httpx.Response) -> dict[str, Any]:
    """The object that a service answers with; SolarError if it is none."""
    try:
        said = response.json() if response.content else {}
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise SolarError(
            f"expected an answer of a service, got {response.status_code} without a JSON object"
        )
    return said


def _retry_after(response: httpx.Response | None) -> float:
    after = response.headers.get("retry-after", "") if response is not None else ""
    return float(after) if after.isdigit() else 0.0
