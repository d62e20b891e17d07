"""Access: keys with scopes, seen from outside; without keys nothing beyond loopback is served."""

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
from tests.servers import PATIENCE, server

__all__ = ["server"]  # a fixture

SCOPES = ("rank", "feedback", "admin")
OPEN = ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")
ORIGIN, STRANGER = "https://shop.example", "https://evil.example"
BODIES: dict[str, Any] = {
    "/rank": {"model": "books", "documents": [{"id": "a", "features": [1]}]},
    "/feedback": {"event_id": "e", "model": "books", "type": "clicks", "request_id": "r",
                  "clicked": []},
}  # fmt: skip


def solar(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """The command as a user types it, ended."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments], cwd=ROOT, env={**clean, **environ},
        capture_output=True, text=True, timeout=3 * PATIENCE, check=False,
    )  # fmt: skip


@dataclass(frozen=True)
class Made:
    """A key as `solar key` prints it."""

    secret: str
    entry: str


def make(name: str, *scopes: str) -> Made:
    return Made(*auth.new_key(name, "+".join(scopes)))


def make_by_command(name: str) -> Made:
    ran = solar("key", name)
    assert ran.returncode == 0, ran.stderr
    secret, entry = (line.split(": ", 1)[1].strip() for line in ran.stdout.splitlines())
    return Made(secret, entry)


@dataclass(frozen=True)
class Guarded:
    """A service with a key for each scope, one for all of them, and one of `solar key`'s making."""

    running: Running
    client: httpx.Client
    keys: Mapping[str, Made]

    def ask(self, method: str, path: str, key: str = "", **options: Any) -> httpx.Response:
        said = {"authorization": f"Bearer {self.keys[key].secret}"} if key else {}
        said |= options.pop("headers", {})
        return self.client.request(method, path, headers=said, **options)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    keys = {scope: make(f"{scope}-only", scope) for scope in SCOPES}
    keys |= {"all": make("all", *SCOPES), "plain": make_by_command("plain")}
    environ = {"SOLAR_KEYS": ", ".join(key.entry for key in keys.values())}
    environ |= {"SOLAR_ACCESS_LOG": "true", "SOLAR_HOST": "0.0.0.0"}  # noqa: S104  # it has keys
    data = tmp_path_factory.mktemp("data")
    with serving(data=data, environ=environ) as running, running.client() as client:
        found = Guarded(running, client, keys)
        assert found.ask("PUT", "/models/books", "all", json={"features": 1}).status_code == 201
        yield found


@pytest.fixture(scope="module")
def shared(server: EmbeddedServer) -> Iterator[TestClient]:
    """A service that browsers of two origins may call."""
    origins, keys = f"{ORIGIN}, http://localhost:3000", make("k", "rank").entry
    with application(server.url, cors=origins, keys=keys) as client:
        yield client


def is_problem(reply: Any, status: int) -> bool:
    kind = reply.headers["content-type"]
    return (reply.status_code, kind) == (status, "application/problem+json")


# ---- keys ----


def test_a_key_of_two_scopes_opens_both(guarded: Guarded) -> None:
    assert guarded.ask("POST", "/rank", "plain", json=BODIES["/rank"]).status_code == 200
    reply = guarded.ask("POST", "/feedback", "plain", json=BODIES["/feedback"])
    assert reply.status_code == 404
    assert is_problem(guarded.ask("GET", "/models", "plain"), 403)


@pytest.mark.parametrize(
    "said",
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
def test_whatever_is_no_key_opens_nothing(guarded: Guarded, said: str) -> None:
    key = guarded.keys["all"]
    told = said.format(secret=key.secret, digest=key.entry.split(":")[-1])
    reply = guarded.client.get("/models", headers={"authorization": told})
    assert is_problem(reply, 401)
    assert reply.headers["www-authenticate"] == "Bearer"


def test_bytes_that_are_no_text_open_nothing(guarded: Guarded) -> None:
    reply = guarded.client.get("/models", headers={b"authorization": b"Bearer \xff\xfe"})
    assert is_problem(reply, 401)


def test_the_scheme_is_read_in_any_case(guarded: Guarded) -> None:
    said = f"bEARER  {guarded.keys['all'].secret}"
    assert guarded.client.get("/models", headers={"authorization": said}).status_code == 200


def test_a_key_in_the_address_opens_nothing(guarded: Guarded) -> None:
    secret = guarded.keys["all"].secret
    for name in ("key", "api_key", "access_token", "authorization"):
        assert is_problem(guarded.client.get("/models", params={name: secret}), 401)


def test_who_may_not_in_is_not_told_what_is_there(guarded: Guarded) -> None:
    there = guarded.client.get("/models/books")
    not_there = guarded.client.get("/models/nobody")
    assert (there.status_code, there.content) == (not_there.status_code, not_there.content)


def test_a_body_is_not_read_for_somebody_without_a_key(guarded: Guarded) -> None:
    port = httpx.URL(guarded.running.url).port
    head = "POST /rank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port or 0), PATIENCE) as wire:
        wire.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", OPEN)
def test_health_metrics_and_docs_need_no_key(guarded: Guarded, path: str) -> None:
    assert guarded.client.get(path).status_code == 200
    assert guarded.client.head(path).status_code == 200


def test_a_key_is_the_source_of_its_feedback(guarded: Guarded) -> None:
    event = {"event_id": "mine", "model": "books", "type": "labels",
             "documents": [{"id": "a", "features": [1]}], "labels": {}}  # fmt: skip
    assert guarded.ask("POST", "/feedback", "feedback", json=event).status_code == 202
    ran = solar("log", "books", "--data-dir", str(guarded.running.data))
    assert "feedback-only" in ran.stdout, ran


def test_no_key_and_no_hash_is_in_a_log_or_an_answer(guarded: Guarded) -> None:
    for key in guarded.keys:
        for path in ("/models", "/rank", "/nowhere"):
            reply = guarded.ask("GET", path, key, params={"key": guarded.keys[key].secret})
            said = reply.text + str(reply.headers)
            assert guarded.keys[key].secret not in said
    said = guarded.running.logged() + guarded.client.get("/metrics").text
    assert '"status": 403' in said
    for made in guarded.keys.values():
        assert made.secret not in said
        assert made.entry.split(":")[-1] not in said


def test_no_key_is_in_what_other_users_can_see_of_a_process(guarded: Guarded) -> None:
    parent = guarded.running.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    for process in (str(parent), *children.read_text().split()):
        command = Path(f"/proc/{process}/cmdline").read_text()
        assert not any(made.secret in command for made in guarded.keys.values())


# ---- keys as text ----


def test_all_keys_are_compared_each_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [auth.new_key(f"k{at}", "rank") for at in range(5)]
    keys = auth.read_keys(",".join(entry for _, entry in made))
    compared: list[bytes] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return real(a, b)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for secret in (made[0][0], made[4][0], "nobody's"):
        compared.clear()
        auth.holder(keys, secret.encode())
        assert compared == [key.digest for key in keys]
    assert "==" not in inspect.getsource(auth.holder)


def test_a_secret_finds_its_holder_and_no_other_does() -> None:
    made = [auth.new_key(f"k{at}", "rank") for at in range(3)]
    keys = auth.read_keys(",".join(entry for _, entry in made))
    for at, (secret, _) in enumerate(made):
        found = auth.holder(keys, secret.encode())
        assert found is not None
        assert found.name == f"k{at}"
    assert auth.holder(keys, b"") is None
    assert auth.holder((), made[0][0].encode()) is None


def test_every_key_is_new_and_its_entry_does_not_tell_it() -> None:
    first, second = auth.new_key("web", "rank"), auth.new_key("web", "rank")
    assert first[0] != second[0]
    assert len(first[0]) >= 43  # 256 bits
    assert first[0] not in first[1]


HASH = "0" * 64


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
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SolarError, match="SOLAR_KEYS: expected") as refused:
        auth.read_keys(text)
    assert "web" not in str(refused.value)


def test_the_service_does_not_start_with_what_is_no_key() -> None:
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
        ("a\nb", "rank"),  # as a source it would be refused
        ("web", "root"),
        ("web", ""),
        ("web", "rank,feedback"),
    ],
)
def test_no_key_is_made_that_could_not_be_used(name: str, scopes: str) -> None:
    with pytest.raises(SolarError):
        auth.new_key(name, scopes)


def test_the_command_says_so_in_one_line() -> None:
    ran = solar("key", "web", "--scopes", "root")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("solar: ")
    assert ran.stderr.count("\n") == 1


# ---- exposed addresses ----

BEYOND = ("0.0.0.0", "::", "192.0.2.1", "solar.example", "")  # noqa: S104  # all to be refused


@pytest.mark.parametrize("host", BEYOND)
def test_an_address_beyond_loopback_needs_keys_or_courage(host: str) -> None:
    with pytest.raises(SolarError, match="expected API keys"):
        auth.check_exposed(host, (), insecure=False)
    auth.check_exposed(host, (auth.ANYBODY,), insecure=False)
    auth.check_exposed(host, (), insecure=True)


def test_the_service_does_not_start_beyond_loopback_without_keys(tmp_path: Path) -> None:
    ran = solar("serve", "--host", "::", "--port", "0", SOLAR_DATA_DIR=str(tmp_path / "data"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("solar: --host ::: expected API keys (SOLAR_KEYS;")
    assert "--insecure" in ran.stderr
    assert not (tmp_path / "data").exists()


def test_the_same_address_from_the_environment_is_refused(tmp_path: Path) -> None:
    environ = {"SOLAR_HOST": "0.0.0.0", "SOLAR_DATA_DIR": str(tmp_path / "data")}  # noqa: S104
    ran = solar("serve", "--port", "0", **environ)
    assert ran.returncode == 2
    assert "expected API keys" in ran.stderr


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_loopback_needs_no_keys(host: str) -> None:
    auth.check_exposed(host, (), insecure=False)


def test_insecure_means_that_anybody_may_do_anything() -> None:
    with serving("--host", "0.0.0.0", "--insecure") as running, running.client() as client:  # noqa: S104
        assert client.get("/models").status_code == 200


# ---- browsers ----


def preflight(client: Any, origin: str, path: str = "/rank") -> Any:
    asked = {"origin": origin, "access-control-request-method": "POST",
             "access-control-request-headers": "authorization, content-type"}  # fmt: skip
    return client.options(path, headers=asked)


def of_cors(reply: Any) -> set[str]:
    return {name for name in reply.headers if name.startswith("access-control-")}


def test_no_browser_may_call_by_default(guarded: Guarded) -> None:
    for origin in (ORIGIN, "null", "*", guarded.running.url):
        assert is_problem(preflight(guarded.client, origin), 405)
        assert not of_cors(preflight(guarded.client, origin))
        reply = guarded.ask("GET", "/models", "all", headers={"origin": origin})
        assert not of_cors(reply)


def test_a_browser_of_an_origin_that_is_set_may_call(shared: TestClient) -> None:
    for origin in (ORIGIN, "http://localhost:3000"):
        asked = preflight(shared, origin)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == origin
        assert "POST" in asked.headers["access-control-allow-methods"]
        allowed = asked.headers["access-control-allow-headers"].lower()
        assert {"authorization", "content-type", "prefer"} <= set(allowed.split(", "))
        refused = shared.post("/rank", headers={"origin": origin})
        assert is_problem(refused, 401)  # and the page can read why
        assert refused.headers["access-control-allow-origin"] == origin
        exposed = refused.headers["access-control-expose-headers"].split(", ")
        assert {"x-request-id", "location", "preference-applied", "retry-after"} == set(exposed)
        assert "access-control-allow-credentials" not in refused.headers


@pytest.mark.parametrize(
    "origin", [STRANGER, "null", "*", f"{ORIGIN}.evil.example", "https://SHOP.example", ""]
)
def test_a_browser_of_another_origin_may_not(shared: TestClient, origin: str) -> None:
    asked = preflight(shared, origin)
    assert asked.status_code == 400
    for reply in (asked, shared.get("/healthz", headers={"origin": origin})):
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("wrong", ["TRACE", "CONNECT"])
def test_a_browser_may_not_ask_for_a_method_that_no_path_has(
    shared: TestClient, wrong: str
) -> None:
    asked = {"origin": ORIGIN, "access-control-request-method": wrong}
    assert shared.options("/rank", headers=asked).status_code == 400


def test_caches_are_told_that_answers_differ_by_origin(shared: TestClient) -> None:
    for reply in (
        shared.get("/models", headers={"origin": ORIGIN}),
        preflight(shared, ORIGIN),
        preflight(shared, STRANGER),
    ):
        assert "origin" in reply.headers["vary"].lower().split(", ")
