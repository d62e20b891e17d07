"""Addresses, keys, proxies and certificates."""

import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from scripted_server import answers_with, scripted
from solar_client import AsyncSolar, InvalidArgument, Solar, Unauthorized, Unreachable

PROXIED = answers_with(200, b'{"models": []}')
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "", "ftp://host", "http://", "http://host:port", "http://h:99999"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    for kind in (Solar, AsyncSolar):
        with pytest.raises(InvalidArgument, match="url: expected http://HOST:PORT"):
            kind(url)


def test_the_path_of_the_url_is_kept_and_its_credentials_are_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOLAR_KEY", "hush\n")  # as read from a file
    with scripted(answers_with(200, b'{"jobs": []}')) as server:
        url = server.url.replace("//", "//somebody:else@") + "/solar/?page=1#top"
        with Solar(url) as solar:
            assert list(solar.list_jobs()) == []
            assert repr(solar) == f"Solar('{server.url}/solar')"
    assert server.heads[0].startswith("GET /solar/jobs HTTP/1.1\n")
    assert server.heads[0].lower().count("authorization: bearer hush\n") == 1
    assert "Basic" not in server.heads[0]


@pytest.mark.parametrize("key", ["hüsh", "hu\nsh"])
def test_an_invalid_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        Solar("http://host", key)
    assert str(raised.value) == "key: expected printable ASCII characters"


def test_no_message_and_no_representation_has_the_key() -> None:
    solar = Solar("http://127.0.0.1:9", "hush-hush")
    with pytest.raises(Unreachable) as unreachable:
        solar.get_model("m")
    with scripted(answers_with(401, b'{"detail": "expected a key"}')) as server:
        refusing = Solar(server.url, "hush-hush")
        with pytest.raises(Unauthorized) as refused:
            refusing.get_model("m")
        shown = [repr(solar), repr(solar._target), repr(solar._sender), repr(refusing._target)]
    for error in (unreachable.value, refused.value):
        shown += [str(error), repr(error), "".join(traceback.format_exception(error))]
    solar.close()
    refusing.close()
    assert [text for text in shown if "hush" in text] == []


# ---- proxies ----


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_no_proxy_is_used_for_a_loopback_address(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(PROXIED) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with Solar(f"http://{name}:9") as solar, pytest.raises(Unreachable):
            list(solar.list_models())
    assert proxy.heads == []


@pytest.mark.parametrize("kind", ["http_proxy", "all_proxy"])
def test_another_machine_is_reached_through_the_proxy_of_the_environment(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(PROXIED) as proxy:
        monkeypatch.setenv(kind, proxy.url.replace("//", "//me:secret@"))
        with Solar("http://ranking.invalid") as solar:
            assert list(solar.list_models()) == []
    assert proxy.heads[0].startswith("GET http://ranking.invalid/models HTTP/1.1\n")
    assert "Proxy-Authorization: Basic" in proxy.heads[0]


def test_a_host_of_no_proxy_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(PROXIED) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "ranking.invalid")
        with Solar("http://ranking.invalid") as solar, pytest.raises(Unreachable):
            list(solar.list_models())
    assert proxy.heads == []


@pytest.mark.parametrize("proxy", ["gopher://somewhere", "socks5://somewhere:1080"])
def test_an_invalid_proxy_is_reported(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(InvalidArgument, match="proxy: expected http://HOST:PORT"):
        Solar("http://ranking.invalid")


# ---- the package ----


def test_numpy_is_not_loaded_with_the_package() -> None:
    code = "import sys, solar_client; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_licence_is_that_of_the_service() -> None:
    here = Path(__file__).parents[1]
    assert (here / "LICENSE").read_text() == (here.parents[1] / "LICENSE").read_text()
