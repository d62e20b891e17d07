"""HTTP clients of a service: a plain one, and one that retries; the API key is `SOLAR_KEY`."""

import os
import ssl
import time
from functools import cache
from ipaddress import ip_address
from threading import Event
from typing import Any

import httpx

from app.errors import SolarError

#: Statuses that ask the client to retry later.
RETRY_STATUSES = (429, 503)
REQUEST_SECONDS = 60.0  # timeout of one request with all its retries
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two attempts


def connect_service(url: str, seconds: float) -> httpx.Client:
    """Return a client that connects at its first request; SolarError if `url` is invalid.

    The client uses the environment's proxies, except for a loopback address: a proxy would
    connect to its own loopback.
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
        raise SolarError(
            f"proxy: expected valid proxy settings in the environment, got: {error}"
        ) from error


def _key_header() -> dict[str, str]:
    key = os.environ.get("SOLAR_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):  # httpx's error would print the key
        raise SolarError("SOLAR_KEY: expected printable ASCII characters")
    return {"authorization": f"Bearer {key}"} if key else {}


@cache
def _system_certificates() -> ssl.SSLContext:
    """The certificates that the system trusts; httpx defaults to certifi, without private CAs."""
    return ssl.create_default_context()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpClient:
    """A client of one thread that retries; `waited` holds the reason of each retry."""

    def __init__(self, url: str, stopped: Event | None = None) -> None:
        self._client = connect_service(url, REQUEST_SECONDS)
        self._stopped = stopped or Event()
        self.waited: list[str] = []

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
        """Send one request, with retries; return the status and the answer."""
        until, pause = time.monotonic() + REQUEST_SECONDS, SHORTEST_PAUSE
        while True:
            response = self._attempt(method, path, body)
            if response is not None and response.status_code not in RETRY_STATUSES:
                return response.status_code, read_json(response)
            reason = "no connection" if response is None else str(response.status_code)
            if time.monotonic() > until or self._stopped.is_set():
                raise SolarError(
                    f"{path}: expected an answer within {REQUEST_SECONDS:g} s, got {reason}"
                )
            self.waited.append(reason)
            time.sleep(min(LONGEST_PAUSE, max(pause, _retry_after(response))))
            pause *= 2.0

    def _attempt(self, method: str, path: str, body: bytes | None) -> httpx.Response | None:
        """Return the answer, or None without a connection."""
        headers = {"content-type": "application/json"}
        try:
            return self._client.request(method, path, content=body, headers=headers)
        except httpx.RequestError:
            return None


def read_json(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer; SolarError if there is none."""
    try:
        body = response.json() if response.content else {}
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise SolarError(
            f"expected a JSON object from the service, got {response.status_code} without one"
        )
    return body


def _retry_after(response: httpx.Response | None) -> float:
    after = response.headers.get("retry-after", "") if response is not None else ""
    return float(after) if after.isdigit() else 0.0
