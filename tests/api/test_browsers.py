"""Web pages and the service: the Host header, and calls from pages of other origins."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, Response, sync_playwright

from app.api import auth, browsers
from app.api.tokens import new_token_key
from app.errors import SolarError
from app.storage.embedded.server import EmbeddedServer
from tests.api.services import Running, application, serving
from tests.api.test_docs_page import CHROMIUM, CHROMIUM_FLAGS
from tests.servers import TIMEOUT, server

__all__ = ["server"]  # a fixture

JUDGED = "1 qid:1 1:1 2:0\n0 qid:1 1:0 2:1\n"
EVIL, SHOP, NAME = "evil.example", "https://shop.example", "solar.internal"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    environ = {"SOLAR_HOSTS": f"{NAME}, [fd00::1]", "SOLAR_CORS": f"{SHOP}, http://LocalHost:80/"}
    with serving(environ=environ) as started, started.client() as client:
        assert client.put("/models/books", json={"features": 2}).status_code == 201
        yield started


@pytest.fixture(scope="module")
def host(running: Running) -> str:
    return urlsplit(running.url).netloc


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as opened:
        yield opened


def status_line(url: str, request: bytes) -> bytes:
    """Send bytes over a socket; return the answer up to its first space after the status."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), TIMEOUT) as opened:
        opened.sendall(request)
        return opened.recv(12)


def is_problem(reply: Any, status: int, remedy: str) -> bool:
    found = (reply.status_code, reply.headers["content-type"])
    return found == (status, "application/problem+json") and remedy in reply.json()["detail"]


# ---- the Host header ----


@pytest.mark.parametrize(
    "given",
    [
        "localhost", "localhost:1", "LOCALHOST:8000", "localhost.", "127.0.0.1", "127.0.0.1:9",
        "127.8.8.8", "[::1]", "[::1]:8000", "[::ffff:127.0.0.1]", NAME, f"{NAME}:80",
        f"{NAME.upper()}.:80", "[fd00::1]:80",
    ],
)  # fmt: skip
def test_loopback_names_and_configured_names_are_served(client: httpx.Client, given: str) -> None:
    assert client.get("/models", headers={"host": given}).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        EVIL, f"{EVIL}:8000", "", "localhost.evil.example", "evil.example@localhost", "x:localhost",
        "127.0.0.1.evil.example", "::1", "[::1", "[::1]x", "localhost:80:80", "localhost..",
        "1.1.1.1", "testserver", f"x.{NAME}", "localhost evil.example", "localhóst",
    ],
)  # fmt: skip
def test_any_other_host_is_421_for_every_path_and_method(client: httpx.Client, given: str) -> None:
    for method, path in (("GET", "/models"), ("POST", "/rank"), ("GET", "/docs"), ("PUT", "/no")):
        reply = client.request(method, path, headers={b"host": given.encode()})
        assert is_problem(reply, 421, "SOLAR_HOSTS"), given
        assert EVIL not in reply.text


def test_a_request_without_a_host_header_is_served(running: Running) -> None:
    assert status_line(running.url, b"GET /healthz HTTP/1.0\r\n\r\n") == b"HTTP/1.1 200"


@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_a_repeated_host_or_origin_is_400(running: Running, host: str, name: str) -> None:
    value = host if name == "Host" else f"http://{host}"
    head = f"GET /models HTTP/1.1\r\nHost: {host}\r\n{name}: {value}\r\nOrigin: http://{host}\r\n"
    assert status_line(running.url, f"{head}\r\n".encode()) == b"HTTP/1.1 400"


LOOPBACK, SOCKET = ("127.0.0.1", 80), ("/run/solar.sock", None)
WITH_KEYS = {"keys": auth.new_key("web", "rank")[1]}


@pytest.mark.parametrize(
    ("address", "settings", "status"),
    [
        (LOOPBACK, {}, 421), (LOOPBACK, WITH_KEYS, 200), (LOOPBACK, {"insecure": True}, 200),
        (SOCKET, {}, 200),
    ],
    ids=["no keys", "keys", "insecure", "unix socket"],
)  # fmt: skip
def test_with_keys_or_insecure_or_on_a_unix_socket_any_host_is_served(
    server: EmbeddedServer, address: tuple[str, int | None], settings: Any, status: int
) -> None:
    """The address is `scope["server"]`, which a wrapper around the application rewrites here."""
    with application(server.url, **settings) as client:
        original: Any = client.app

        async def rewritten(scope: Any, receive: Any, send: Any) -> None:
            await original({**scope, "server": address}, receive, send)

        assert TestClient(rewritten, f"http://{EVIL}").get("/healthz").status_code == status


@pytest.mark.parametrize("text", ["http://x", "x:80", "*", "x/y", "a b", "[::1]:80", "é.example"])
def test_an_invalid_name_in_solar_hosts_is_refused(text: str) -> None:
    with pytest.raises(SolarError, match="SOLAR_HOSTS: expected names or addresses without"):
        browsers.read_hosts(f"{NAME}, {text}")


# ---- the origin of a page ----

#: Headers of a call, and whether it is served; HERE is the service's own host and port.
CALLS: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({"origin": "http://HERE"}, True),
    ({"origin": "HTTP://HERE"}, True),
    ({"origin": "http://HERE", "sec-fetch-site": "same-origin"}, True),
    ({"origin": SHOP}, True),
    ({"origin": SHOP, "sec-fetch-site": "cross-site"}, True),
    ({"sec-fetch-site": "none"}, True),
    ({"sec-fetch-site": "same-origin"}, True),
    ({"origin": "https://HERE"}, False),  # the page has TLS, the service has none
    ({"origin": "https://HERE", "x-forwarded-proto": "https"}, True),
    ({"origin": "https://search.example", "sec-fetch-site": "same-origin"}, True),
    ({"origin": "http://HERE", "x-forwarded-proto": "https"}, False),
    ({"origin": "http://HERE", "sec-fetch-site": "cross-site"}, False),
    ({"origin": "http://localhost"}, True),  # in SOLAR_CORS as LocalHost:80
    ({"origin": "http://localhost:1"}, False),
    ({"origin": "http://127.0.0.1"}, False),
    ({"origin": "http://HERE0"}, False),
    ({"origin": f"http://{EVIL}"}, False),
    ({"origin": f"{SHOP}.{EVIL}"}, False),
    ({"origin": f"{SHOP}:444"}, False),
    ({"origin": "http://shop.example"}, False),
    ({"origin": "null"}, False),
    ({"origin": "null", "sec-fetch-site": "same-origin"}, False),
    ({"origin": ""}, False),
    ({"origin": "*"}, False),
    ({"sec-fetch-site": "cross-site"}, False),
    ({"sec-fetch-site": "same-site"}, False),
    ({"origin": "http://[::1]:80", "host": "[::1]"}, False),  # browsers omit a default port
    ({"origin": "http://[::1]", "host": "[::1]:80"}, True),
    ({"origin": "http://[::1]:8000", "host": "[::1]:8000"}, True),
    ({"origin": "http://localhost.", "host": "localhost."}, True),
]


@pytest.mark.parametrize(("headers", "served"), CALLS, ids=str)
def test_calls_that_change_something_need_an_allowed_origin(
    client: httpx.Client, host: str, headers: dict[str, str], served: bool
) -> None:
    given = {name: value.replace("HERE", host) for name, value in headers.items()}
    documents = [{"id": "a", "features": [1, 2]}]
    replies = [
        client.post("/rank", json={"model": "books", "documents": documents}, headers=given),
        client.put("/models/books", json={"features": 2}, headers=given),
        client.post("/feedback", headers=given),
        client.delete("/nowhere", headers=given),
        client.patch("/models/none", json={}, headers=given),
    ]
    if served:
        assert [one.status_code for one in replies] == [200, 200, 415, 404, 422]
    else:
        assert all(is_problem(one, 403, "SOLAR_CORS") for one in replies)
    assert client.get("/models/books", headers=given).status_code == 200


def test_without_a_host_header_no_origin_is_allowed(running: Running) -> None:
    request = b"DELETE /models/none HTTP/1.0\r\nOrigin: http://\r\n\r\n"
    assert status_line(running.url, request) == b"HTTP/1.1 403"


def test_keys_do_not_replace_an_allowed_origin(server: EmbeddedServer) -> None:
    secret, entry = auth.new_key("web", "admin")
    headers = {"authorization": f"Bearer {secret}"}
    with application(server.url, keys=entry) as client:
        assert client.delete("/models/none", headers=headers).status_code == 404
        foreign = client.delete("/models/none", headers={**headers, "origin": SHOP})
        assert is_problem(foreign, 403, "SOLAR_CORS")


def test_solar_cors_may_allow_every_origin(server: EmbeddedServer) -> None:
    with application(server.url, cors="*") as client:
        for origin in (SHOP, "null"):
            assert client.delete("/models/none", headers={"origin": origin}).status_code == 404


@pytest.mark.parametrize("cors", ["", "https://other.example"])
def test_beacons_alone_are_taken_from_any_page(server: EmbeddedServer, cors: str) -> None:
    assert frozenset({"/beacon"}) == browsers.CROSS_SITE_PATHS
    assert {"/beacon", "/solar.js"} == browsers.OPEN_PATHS
    foreign = {"origin": SHOP, "sec-fetch-site": "cross-site"}
    with application(server.url, token_keys=new_token_key("k1"), cors=cors) as client:
        taken = client.post("/beacon", headers={**foreign, "content-type": "text/plain"})
        assert (taken.status_code, taken.headers["access-control-allow-origin"]) == (204, "*")
        for path in ("/rank", "/feedback", "/beacon/", "/beacons"):
            refused = client.post(path, headers=foreign)
            assert refused.status_code in (403, 404), path
            assert "access-control-allow-origin" not in refused.headers
        asked = {**foreign, "access-control-request-method": "POST"}
        for path in ("/rank", "/feedback"):
            assert "access-control-allow-origin" not in client.options(path, headers=asked).headers
        script = client.get("/solar.js", headers=foreign)
        assert (script.status_code, script.headers["access-control-allow-origin"]) == (200, "*")
    local = {"server": "127.0.0.1", "token_keys": new_token_key("k1"), "cors": cors}
    with application(server.url, **local) as client:
        for host, status in (("localhost", 204), ("rebound.example", 421)):
            headers = {**foreign, "host": host, "content-type": "text/plain"}
            assert client.post("/beacon", headers=headers).status_code == status


# ---- Chromium ----

#: What a page can send without a preflight: a fetch, a form, a beacon; each to the address given.
SIMPLE_REQUESTS = {
    "fetch": "(url, body) => fetch(url, {method: 'POST', mode: 'no-cors', body}).then(() => null)",
    "beacon": "(url, body) => navigator.sendBeacon(url, body)",
    "form": """(url, body) => {
      const form = document.createElement("form");
      Object.assign(form, {method: "post", enctype: "text/plain", action: url});
      const field = document.createElement("input");
      field.name = body;
      form.append(field);
      document.body.append(form);
      form.submit();
    }""",
}
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="expected chromium on PATH, got none")


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page of another origin</title>")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    """The port of a web server with a page."""
    pages = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = Thread(target=pages.serve_forever)
    thread.start()
    yield pages.server_port
    pages.shutdown()
    pages.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for which evil.example resolves to this machine."""
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
    with sync_playwright() as driver:
        launched = driver.chromium.launch(
            executable_path=CHROMIUM, args=[*CHROMIUM_FLAGS, rules, "--no-sandbox"]
        )
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page()
    opened.set_default_timeout(TIMEOUT * 1000)
    yield opened
    opened.close()


@needs_chromium
@pytest.mark.parametrize("kind", SIMPLE_REQUESTS)
@pytest.mark.parametrize("name", [EVIL, "127.0.0.1"])
def test_a_page_of_another_origin_cannot_replace_a_model(
    page: Page, elsewhere: int, running: Running, kind: str, name: str
) -> None:
    page.goto(f"http://{name}:{elsewhere}/")
    target = f"{running.url}/models/books/warm-start"
    with page.expect_response(target) as answered:
        page.evaluate(f"([url, body]) => ({SIMPLE_REQUESTS[kind]})(url, body)", [target, JUDGED])
    assert answered.value.status == 403
    assert list(running.data.glob("uploads/*")) == []


@needs_chromium
def test_a_page_whose_name_resolves_to_the_service_is_refused(page: Page, host: str) -> None:
    answer = page.goto(f"http://{EVIL}:{host.rpartition(':')[2]}/models")
    assert isinstance(answer, Response)
    assert (answer.status, "SOLAR_HOSTS" in answer.text()) == (421, True)


@needs_chromium
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_the_service_itself_is_served(page: Page, host: str, name: str) -> None:
    page.goto(f"http://{name}:{host.rpartition(':')[2]}/docs")
    status = page.evaluate(
        "(body) => fetch('/rank', {method: 'POST', body, headers: {'content-type':"
        " 'application/json'}}).then((answer) => answer.status)",
        '{"model": "books", "documents": [{"id": "a", "features": [1, 2]}]}',
    )
    assert status == 200
