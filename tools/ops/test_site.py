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
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
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


class Problems(list[str]):
    """What goes wrong on a page: an error, a failed request, a request to another host."""

    def __init__(self, page: Page, host: str) -> None:
        super().__init__()
        self._host = host
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("requestfailed", lambda request: self.append(f"failed: {request.url}"))
        page.on("console", self._check_console)
        page.on("request", self._check_host)

    def _check_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.append(f"console: {message.text}")

    def _check_host(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme != "data" and address.netloc != self._host:
            self.append(f"another host: {request.url}")


def test_no_page_needs_another_host_or_reports_an_error(browser: Browser, host: str) -> None:
    assert len(PAGES) > 20
    page = browser.new_page()
    problems = Problems(page, host)
    for name in PAGES:
        page.goto(f"http://{host}/{name}", wait_until="networkidle")
        assert page.locator("h1").count() >= 1, name
    assert problems == []


def test_the_search_finds_the_page_of_a_task(browser: Browser, host: str) -> None:
    page = browser.new_page()
    problems = Problems(page, host)
    page.goto(f"http://{host}/index.html")
    search = page.get_by_role("textbox", name="Search")
    search.click()
    page.get_by_text("Type to start searching").wait_for()  # the index is loaded
    search.press_sequentially("roll back")
    page.locator('.md-search-result__item a[href*="models.html"]').first.wait_for()
    assert problems == []
