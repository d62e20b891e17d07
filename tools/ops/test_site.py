"""The built documentation site in Chromium: no other host, no error, a search that finds.

`tools/ops/browser.sh` builds the site and installs Chromium first.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:  # type: ignore[override]
        """Print nothing."""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(SITE)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        launched = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


def problems_of(page: Page, host: str) -> list[str]:
    """A list that fills with what goes wrong on a page from now on."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on("console", lambda line: line.type == "error" and found.append(line.text))
    page.on("requestfailed", lambda request: found.append(f"failed: {request.url}"))
    page.on(
        "request",
        lambda request: (
            urlsplit(request.url).scheme != "data"
            and urlsplit(request.url).netloc != host
            and found.append(f"another host: {request.url}")
        ),
    )
    return found


def test_no_page_needs_another_host_or_reports_an_error(browser: Browser, host: str) -> None:
    assert len(PAGES) > 20
    page = browser.new_page()
    problems = problems_of(page, host)
    for name in PAGES:
        page.goto(f"http://{host}/{name}", wait_until="load")
        assert page.locator("h1").count() >= 1, name
    assert problems == []


def test_the_search_finds_the_page_of_a_task(browser: Browser, host: str) -> None:
    page = browser.new_page()
    page.goto(f"http://{host}/index.html")
    page.get_by_role("textbox", name="Search").fill("roll back")
    page.locator(".md-search-result__item", has_text="Roll back").first.wait_for()
