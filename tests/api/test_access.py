"""Authentication over HTTP: API keys with scopes, and non-loopback addresses without keys."""

import hmac
import inspect
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.api import auth
from app.errors import SolarError
from app.storage.embedded.server import EmbeddedServer
from tests.api.services import ROOT, Running, application, serving
from tests.servers import TIMEOUT, server

__all__ = ["server"]  # a fixture

SCOPES = ("rank", "feedback", "read", "admin")
OPEN = ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")
ORIGIN, OTHER_ORIGIN = "https://shop.example", "https://evil.example"
BODIES: dict[str, Any] = {
    "/rank": {"model": "books", "documents": [{"id": "a", "features": [1]}]},
    "/feedback": {"event_id": "e", "model": "books", "type": "clicks", "request_id": "r",
                  "clicked": []},
}  # fmt: skip


def solar(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run the `solar` command to its end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments], cwd=ROOT, env={**clean, **environ},
        capture_output=True, text=True, timeout=3 * TIMEOUT, check=False,
    )  # fmt: skip


@dataclass(frozen=True)
class NewKey:
    """A key as `solar key` prints it."""

    secret: str
    entry: str


def make(name: str, *scopes: str) -> NewKey:
    return NewKey(*auth.new_key(name, "+".join(scopes)))


def new_key_by_command(name: str) -> NewKey:
    ran = solar("key", name)
    assert ran.returncode == 0, ran.stderr
    secret, entry = (line.split(": ", 1)[1].strip() for line in ran.stdout.splitlines())
    return NewKey(secret, entry)


@dataclass(frozen=True)
class Guarded:
    """A service with a key for each scope, a key for all scopes, and a key from `solar key`."""

    running: Running
    client: httpx.Client
    keys: Mapping[str, NewKey]

    def ask(self, method: str, path: str, key: str = "", **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[key].secret}"} if key else {}
        headers |= options.pop("headers", {})
        return self.client.request(method, path, headers=headers, **options)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    keys = {scope: make(f"{scope}-only", scope) for scope in SCOPES}
    keys |= {"all": make("all", *SCOPES), "plain": new_key_by_command("plain")}
    environ = {"SOLAR_KEYS": ", ".join(key.entry for key in keys.values())}
    environ |= {"SOLAR_ACCESS_LOG": "true", "SOLAR_HOST": "0.0.0.0"}  # noqa: S104  # the service has keys
    data = tmp_path_factory.mktemp("data")
    with serving(data=data, environ=environ) as running, running.client() as client:
        found = Guarded(running, client, keys)
        assert found.ask("PUT", "/models/books", "all", json={"features": 1}).status_code == 201
        yield found


@pytest.fixture(scope="module")
def shared(server: EmbeddedServer) -> Iterator[TestClient]:
    """A service that allows two browser origins."""
    origins, keys = f"{ORIGIN}, http://localhost:3000", make("k", "rank").entry
    with application(server.url, cors=origins, keys=keys) as client:
        yield client


def is_problem(reply: Any, status: int) -> bool:
    kind = reply.headers["content-type"]
    return (reply.status_code, kind) == (status, "application/problem+json")


# ---- keys ----


def test_a_key_with_two_scopes_is_accepted_for_both(guarded: Guarded) -> None:
    assert guarded.ask("POST", "/rank", "plain", json=BODIES["/rank"]).status_code == 200
    reply = guarded.ask("POST", "/feedback", "plain", json=BODIES["/feedback"])
    assert reply.status_code == 404
    assert is_problem(guarded.ask("GET", "/models", "plain"), 403)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer wrong",
        "Bearer {secret}x",
        "Bearer x{secret}",
        "Basic {secret}",
        "{secret}",
        "Bearer {digest}",
        "Bearer {secret}, Bearer {secret}",
        "Bearer " + "x" * 10_000,
    ],
)
def test_an_invalid_authorization_header_is_401(guarded: Guarded, header: str) -> None:
    key = guarded.keys["all"]
    authorization = header.format(secret=key.secret, digest=key.entry.split(":")[-1])
    reply = guarded.client.get("/models", headers={"authorization": authorization})
    assert is_problem(reply, 401)
    assert reply.headers["www-authenticate"] == "Bearer"


def test_an_authorization_header_that_is_not_text_is_401(guarded: Guarded) -> None:
    reply = guarded.client.get("/models", headers={b"authorization": b"Bearer \xff\xfe"})
    assert is_problem(reply, 401)


def test_the_scheme_is_case_insensitive(guarded: Guarded) -> None:
    header = f"bEARER  {guarded.keys['all'].secret}"
    assert guarded.client.get("/models", headers={"authorization": header}).status_code == 200


def test_a_key_in_the_query_string_is_ignored(guarded: Guarded) -> None:
    secret = guarded.keys["all"].secret
    for name in ("key", "api_key", "access_token", "authorization"):
        assert is_problem(guarded.client.get("/models", params={name: secret}), 401)


def test_without_a_key_existing_and_missing_models_get_the_same_answer(guarded: Guarded) -> None:
    existing = guarded.client.get("/models/books")
    missing = guarded.client.get("/models/missing")
    assert (existing.status_code, existing.content) == (missing.status_code, missing.content)


def test_a_request_without_a_key_is_refused_before_its_body_is_read(guarded: Guarded) -> None:
    port = httpx.URL(guarded.running.url).port
    head = "POST /rank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port or 0), TIMEOUT) as connection:
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", OPEN)
def test_health_metrics_and_docs_need_no_key(guarded: Guarded, path: str) -> None:
    assert guarded.client.get(path).status_code == 200
    assert guarded.client.head(path).status_code == 200


def test_the_name_of_the_key_is_the_source_of_its_feedback(guarded: Guarded) -> None:
    event = {"event_id": "mine", "model": "books", "type": "labels",
             "documents": [{"id": "a", "features": [1]}], "labels": {}}  # fmt: skip
    assert guarded.ask("POST", "/feedback", "feedback", json=event).status_code == 202
    ran = solar("log", "books", "--data-dir", str(guarded.running.data))
    assert "feedback-only" in ran.stdout, ran


def test_logs_and_answers_contain_no_key_and_no_hash(guarded: Guarded) -> None:
    for key in guarded.keys:
        for path in ("/models", "/rank", "/nowhere"):
            reply = guarded.ask("GET", path, key, params={"key": guarded.keys[key].secret})
            assert guarded.keys[key].secret not in reply.text + str(reply.headers)
    texts = guarded.running.logged() + guarded.client.get("/metrics").text
    assert '"status": 403' in texts
    for made in guarded.keys.values():
        assert made.secret not in texts
        assert made.entry.split(":")[-1] not in texts


def test_command_lines_of_processes_contain_no_key(guarded: Guarded) -> None:
    parent = guarded.running.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    for process in (str(parent), *children.read_text().split()):
        command = Path(f"/proc/{process}/cmdline").read_text()
        assert not any(made.secret in command for made in guarded.keys.values())


# ---- keys as text ----


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [auth.new_key(f"k{at}", "rank") for at in range(5)]
    keys = auth.read_keys(",".join(entry for _, entry in made))
    compared: list[bytes] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return real(a, b)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for secret in (made[0][0], made[4][0], "unknown"):
        compared.clear()
        auth.holder(keys, secret.encode())
        assert compared == [key.digest for key in keys]
    assert "==" not in inspect.getsource(auth.holder)


def test_a_secret_matches_its_own_key_only() -> None:
    made = [auth.new_key(f"k{at}", "rank") for at in range(3)]
    keys = auth.read_keys(",".join(entry for _, entry in made))
    for at, (secret, _) in enumerate(made):
        found = auth.holder(keys, secret.encode())
        assert found is not None
        assert found.name == f"k{at}"
    assert auth.holder(keys, b"") is None
    assert auth.holder((), made[0][0].encode()) is None


def test_new_keys_differ_and_their_entries_do_not_contain_the_secret() -> None:
    first, second = auth.new_key("web", "rank"), auth.new_key("web", "rank")
    assert first[0] != second[0]
    assert len(first[0]) >= 43  # 256 bits
    assert first[0] not in first[1]


HASH = "0" * 64


@pytest.mark.parametrize("scopes", ["rank", "rank+feedback", "feedback", "read", "rank+read"])
def test_only_the_scope_admin_includes_another_one(scopes: str) -> None:
    [key] = auth.read_keys(f"web:{scopes}:{HASH}")
    assert key.scopes == set(scopes.split("+"))
    [admin] = auth.read_keys(f"web:{scopes}+admin:{HASH}")
    assert admin.scopes == {*scopes.split("+"), "read", "admin"}


@pytest.mark.parametrize(
    "text",
    [
        "web",
        "web:rank",
        f"web:rank:{HASH}:more",
        f":rank:{HASH}",
        f"{'w' * 65}:rank:{HASH}",
        f"web::{HASH}",
        f"web:root:{HASH}",
        f"web:rank+:{HASH}",
        "web:rank:00",
        f"web:rank:{'g' * 64}",
        f"web:rank:{HASH}0",
        f"fine:rank:{HASH},web",
    ],
)
def test_an_invalid_key_entry_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SolarError, match="SOLAR_KEYS: expected") as refused:
        auth.read_keys(text)
    assert "web" not in str(refused.value)


def test_the_service_does_not_start_with_an_invalid_key_entry() -> None:
    ran = solar("serve", "--port", "0", SOLAR_KEYS=f"web:root:{HASH}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("solar: SOLAR_KEYS: expected")
    assert ran.stderr.count("\n") == 1
    assert HASH not in ran.stderr


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        ("a:b", "rank"),
        ("a,b", "rank"),
        ("", "rank"),
        (" ", "rank"),
        ("w" * 65, "rank"),
        ("a\nb", "rank"),  # invalid as a source of feedback
        ("web", "root"),
        ("web", ""),
        ("web", "rank,feedback"),
    ],
)
def test_an_invalid_name_or_scope_makes_no_key(name: str, scopes: str) -> None:
    with pytest.raises(SolarError):
        auth.new_key(name, scopes)


def test_solar_key_reports_an_invalid_scope_in_one_line() -> None:
    ran = solar("key", "web", "--scopes", "root")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("solar: ")
    assert ran.stderr.count("\n") == 1


# ---- exposed addresses ----

NON_LOOPBACK = ("0.0.0.0", "::", "192.0.2.1", "solar.example", "")  # noqa: S104  # all are refused


@pytest.mark.parametrize("host", NON_LOOPBACK)
def test_a_non_loopback_address_needs_keys_or_insecure(host: str) -> None:
    with pytest.raises(SolarError, match="a non-loopback address needs API keys"):
        auth.check_exposed(host, (), insecure=False)
    auth.check_exposed(host, (auth.ANONYMOUS,), insecure=False)
    auth.check_exposed(host, (), insecure=True)


def test_the_service_does_not_start_on_a_non_loopback_address_without_keys(tmp_path: Path) -> None:
    ran = solar("serve", "--host", "::", "--port", "0", SOLAR_DATA_DIR=str(tmp_path / "data"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("solar: --host ::: a non-loopback address needs API keys; set SO")
    assert "--insecure" in ran.stderr
    assert not (tmp_path / "data").exists()


def test_a_non_loopback_address_from_the_environment_is_refused(tmp_path: Path) -> None:
    environ = {"SOLAR_HOST": "0.0.0.0", "SOLAR_DATA_DIR": str(tmp_path / "data")}  # noqa: S104
    ran = solar("serve", "--port", "0", **environ)
    assert ran.returncode == 2
    assert "a non-loopback address needs API keys" in ran.stderr


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_a_loopback_address_needs_no_keys(host: str) -> None:
    auth.check_exposed(host, (), insecure=False)


def test_insecure_serves_a_non_loopback_address_without_keys() -> None:
    with serving("--host", "0.0.0.0", "--insecure") as running, running.client() as client:  # noqa: S104
        assert client.get("/models").status_code == 200


# ---- browsers ----


def preflight(client: Any, origin: str, path: str = "/rank") -> Any:
    headers = {"origin": origin, "access-control-request-method": "POST",
               "access-control-request-headers": "authorization, content-type"}  # fmt: skip
    return client.options(path, headers=headers)


def cors_headers(reply: Any) -> set[str]:
    return {name for name in reply.headers if name.startswith("access-control-")}


def test_no_origin_is_allowed_by_default(guarded: Guarded) -> None:
    for origin in (ORIGIN, "null", "*", guarded.running.url):
        assert is_problem(preflight(guarded.client, origin), 405)
        assert not cors_headers(preflight(guarded.client, origin))
        reply = guarded.ask("GET", "/models", "all", headers={"origin": origin})
        assert not cors_headers(reply)


def test_a_configured_origin_is_allowed(shared: TestClient) -> None:
    for origin in (ORIGIN, "http://localhost:3000"):
        reply = preflight(shared, origin)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == origin
        assert "POST" in reply.headers["access-control-allow-methods"]
        allowed = reply.headers["access-control-allow-headers"].lower()
        assert {"authorization", "content-type", "prefer"} <= set(allowed.split(", "))
        refused = shared.post("/rank", headers={"origin": origin})
        assert is_problem(refused, 401)  # the page can read the cause
        assert refused.headers["access-control-allow-origin"] == origin
        exposed = refused.headers["access-control-expose-headers"].split(", ")
        assert {"x-request-id", "location", "preference-applied", "retry-after"} == set(exposed)
        assert "access-control-allow-credentials" not in refused.headers


@pytest.mark.parametrize(
    "origin", [OTHER_ORIGIN, "null", "*", f"{ORIGIN}.evil.example", "https://SHOP.example", ""]
)
def test_any_other_origin_is_refused(shared: TestClient, origin: str) -> None:
    refused = preflight(shared, origin)
    assert refused.status_code == 400
    for reply in (refused, shared.get("/healthz", headers={"origin": origin})):
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("wrong", ["TRACE", "CONNECT"])
def test_a_preflight_for_an_unknown_method_is_refused(shared: TestClient, wrong: str) -> None:
    headers = {"origin": ORIGIN, "access-control-request-method": wrong}
    assert shared.options("/rank", headers=headers).status_code == 400


def test_answers_vary_by_origin(shared: TestClient) -> None:
    for reply in (
        shared.get("/models", headers={"origin": ORIGIN}),
        preflight(shared, ORIGIN),
        preflight(shared, OTHER_ORIGIN),
    ):
        assert "origin" in reply.headers["vary"].lower().split(", ")
