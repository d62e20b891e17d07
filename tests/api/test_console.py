"""`/console/` and its files: headers, redirects, the switch, vendored files, rules of code."""

import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest

from app.api.routers.console import CONSOLE_FILES, CONSOLE_FOLDER
from app.storage.embedded.server import EmbeddedServer
from tests.api.services import application, serving
from tests.servers import server

__all__ = ["server"]  # a fixture

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: Limit of all files of the folder together, in bytes.
LARGEST_CONSOLE = 250_000
PATHS = ("/console/", *(f"/console/{name}" for name in CONSOLE_FILES if name != "index.html"))
HTML = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
OWN_SCRIPTS = [name for name in CONSOLE_FILES if name.endswith(".js") and "uPlot" not in name]
#: What would turn data into HTML or code, or call another host.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|"
    r"createContextualFragment|parseFromString|localStorage|document\.cookie|"
    r"fetch\(\s*[\"'`/]|https?://(?!www\.w3\.org/2000/svg)"
)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving() as running, running.client() as found:
        yield found


def _text(name: str) -> str:
    return (CONSOLE_FOLDER / name).read_text()


def test_every_vendored_file_of_the_console_matches_its_recorded_hash() -> None:
    _, _, block = _text("README.md").partition("```text\n")
    version, *lines = block.removesuffix("```\n").splitlines()
    assert re.fullmatch(r"# uplot 1\.\d+\.\d+", version)
    hashes = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert hashes.keys() == {path.name for path in CONSOLE_FOLDER.glob("uPlot*")}
    assert "uPlot.LICENSE" in hashes
    for name, digest in hashes.items():
        assert hashlib.sha256((CONSOLE_FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_all_files_together_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in CONSOLE_FOLDER.iterdir()}
    assert sum(sizes.values()) <= LARGEST_CONSOLE, sizes


def test_the_console_has_no_inline_script_or_style() -> None:
    page = _text("index.html")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>|https?:|javascript:", page)
    addresses = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert set(addresses) <= CONSOLE_FILES.keys()


@pytest.mark.parametrize("name", OWN_SCRIPTS)
def test_a_script_never_parses_data_as_html_or_code(name: str) -> None:
    assert FORBIDDEN.search(_text(name)) is None


@pytest.mark.parametrize("name", OWN_SCRIPTS)
def test_a_script_imports_only_files_that_are_served(name: str) -> None:
    imported = re.findall(r'from "([^"]+)"', _text(name))
    assert {one.removeprefix("./") for one in imported} <= CONSOLE_FILES.keys()
    assert all(one.startswith("./") for one in imported)


def test_every_page_has_a_module() -> None:
    pages = {"models", "model", "why", "try", "live", "duel", "versions", "jobs", "health"}
    assert pages == {name[5:-3] for name in OWN_SCRIPTS if name.startswith("page_")}
    for page in pages:
        assert "\nexport async function show(root" in _text(f"page_{page}.js")


def test_no_file_of_the_console_refers_to_a_source_map() -> None:
    for name in CONSOLE_FILES:
        assert "sourceMappingURL" not in _text(name)


@pytest.mark.parametrize("path", PATHS)
def test_a_file_has_its_type_and_its_security_policy(client: httpx.Client, path: str) -> None:
    name = path.removeprefix("/console/") or "index.html"
    reply = client.get(path)
    assert reply.status_code == 200
    assert reply.content == (CONSOLE_FOLDER / name).read_bytes()
    assert reply.headers["content-type"].partition(";")[0] == CONSOLE_FILES[name]
    assert reply.headers["content-security-policy"] == CSP
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-cache"
    assert "set-cookie" not in reply.headers


def test_a_file_that_the_browser_has_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/console/main.js")
    again = client.get("/console/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    other = client.get("/console/main.js", headers={"if-none-match": '"other"'})
    assert other.status_code == 200


@pytest.mark.parametrize("path", ["/console/", "/console/main.js", "/console", "/"])
def test_head_of_the_console_is_answered_like_get_without_the_body(
    client: httpx.Client, path: str
) -> None:
    head, got = client.head(path, headers=HTML), client.get(path, headers=HTML)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for headers in (head.headers, got.headers):
        for name in ("date", "x-request-id"):
            headers.pop(name)
    assert head.headers == got.headers


@pytest.mark.parametrize(
    "file",
    [
        "index.html", "README.md", "uPlot.LICENSE", "none.js", "..%2Fswagger%2Finit.js",
        "%2e%2e/docs", "a/b", "%00", "Main.js",
    ],
)  # fmt: skip
def test_no_other_file_of_the_console_is_served(client: httpx.Client, file: str) -> None:
    reply = client.get(f"/console/{file}")
    assert reply.status_code == 404
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/", "/console"])
def test_a_browser_is_sent_to_the_console_also_below_a_prefix(
    client: httpx.Client, path: str
) -> None:
    reply = client.get(path, headers=HTML)
    assert reply.status_code == 307
    assert reply.headers["location"] == "console/"
    assert reply.headers["vary"] == "accept"
    assert httpx.URL(f"http://proxy/solar{path}").join(reply.headers["location"]).path == (
        "/solar/console/"
    )
    assert client.get(path, headers=HTML, follow_redirects=True).status_code == 200


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
def test_the_root_stays_unknown_to_other_clients(client: httpx.Client, accept: str) -> None:
    reply = client.get("/", headers={"accept": accept})
    assert reply.status_code == 404
    assert reply.json()["detail"] == "path: unknown; GET /docs lists all paths"


def test_the_console_can_be_turned_off(server: EmbeddedServer) -> None:
    with application(server.url, console=False) as client:
        for path in ("/", "/console", *PATHS):
            reply = client.get(path, headers=HTML, follow_redirects=False)
            assert reply.status_code == 404, path
            assert reply.headers["content-type"] == "application/problem+json"
