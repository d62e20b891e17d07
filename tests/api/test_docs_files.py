"""`/docs` and its files: the project's files, unchanged vendored files, nothing else."""

import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest

from app.api.routers.docs import FILES, FOLDER
from tests.api.services import serving

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'"
)
PAGES = ("/docs", "/openapi.json", *(f"/docs/{name}" for name in FILES))
#: Files of the folder that are not vendored.
OWN_FILES = {"index.html", "init.js", "SHA256SUMS"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving() as running, running.client() as found:
        yield found


def test_every_vendored_file_matches_its_recorded_hash() -> None:
    version, *lines = (FOLDER / "SHA256SUMS").read_text().splitlines()
    assert re.fullmatch(r"# swagger-ui-dist 5\.\d+\.\d+", version)
    hashes = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert hashes.keys() == {path.name for path in FOLDER.iterdir()} - OWN_FILES
    assert hashes.keys() >= {"LICENSE", "NOTICE", "swagger-ui-bundle.js.LICENSE.txt"}
    for name, digest in hashes.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_no_file_refers_to_a_source_map() -> None:
    for name in FILES:
        assert b"sourceMappingURL" not in (FOLDER / name).read_bytes()


def test_the_page_has_no_inline_script_or_style() -> None:
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>|https?:", page)
    assert {f"docs/{name}" for name in FILES} == set(re.findall(r'(?:src|href)="([^"]+)"', page))


@pytest.mark.parametrize("path", PAGES)
def test_the_security_policy_allows_files_of_this_service_only(
    client: httpx.Client, path: str
) -> None:
    reply = client.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-security-policy"] == CSP
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", [*PAGES, "/healthz", "/readyz", "/metrics"])
def test_a_head_request_is_answered_like_a_get_without_the_body(
    client: httpx.Client, path: str
) -> None:
    head, got = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    changing = ("date", "x-request-id", *(["content-length"] if path == "/metrics" else []))
    for headers in (head.headers, got.headers):
        for name in changing:
            headers.pop(name)
    assert head.headers == got.headers


def test_files_have_a_media_type_and_are_cached(client: httpx.Client) -> None:
    for name, media_type in FILES.items():
        reply = client.get(f"/docs/{name}")
        assert reply.headers["content-type"].partition(";")[0] == media_type
        assert reply.headers["cache-control"] == "max-age=3600"
        assert reply.content == (FOLDER / name).read_bytes()


@pytest.mark.parametrize(
    "file",
    ["", "index.html", "LICENSE", "SHA256SUMS", "..%2F..%2Fmain.py", "%2e%2e/docs", "a/b", "%00"],
)
def test_no_other_file_is_served(client: httpx.Client, file: str) -> None:
    reply = client.get(f"/docs/{file}")
    assert reply.status_code == 404
    assert reply.headers["content-type"] == "application/problem+json"


def test_requests_are_counted_under_the_page_and_its_files(client: httpx.Client) -> None:
    client.get("/docs")
    client.get("/docs/init.js")
    refused = client.post("/docs/init.js")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    counted = client.get("/metrics").text
    for route in ("/docs", "/docs/{file}"):
        assert f'solar_request_seconds_count{{route="{route}",status="200"}}' in counted
    assert "init.js" not in counted
