"""`/docs` in a browser: the page works offline, under its security policy, with all buttons.

Without Chromium these tests are skipped; `tools/ops/browser.sh` installs it first.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    Response,
    sync_playwright,
)

from app.api import auth
from tests.api.services import Running, serving
from tests.servers import TIMEOUT

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="expected chromium on PATH, got none")

#: Without these flags Chromium itself sends requests to other hosts.
CHROMIUM_FLAGS = [
    "--disable-background-networking", "--disable-component-update", "--disable-gpu",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
#: Runs before any script of the page.
REPORT_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`securitypolicyviolation: ${event.violatedDirective} ${event.blockedURI}`));"""

#: Adds an inline script, an inline style and a request to another host; resolves after all three.
VIOLATE_POLICY = """() => new Promise((done) => {
  let noticed = 0;
  document.addEventListener("securitypolicyviolation", () => ++noticed === 3 && done());
  for (const [kind, text] of [["script", "window.ran = true"], ["style", "body {color: red}"]]) {
    const element = document.createElement(kind);
    element.textContent = text;
    document.body.append(element);
  }
  fetch("http://elsewhere.example/").catch(() => null);
})"""


@dataclass
class WatchedPage:
    """A page, and the list of its violations."""

    page: Page
    host: str
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.add_init_script(REPORT_VIOLATIONS)
        self.page.on("console", self._check_message)
        self.page.on("pageerror", lambda error: self.violations.append(f"error: {error}"))
        self.page.on("request", self._check_request)
        self.page.on(
            "requestfailed", lambda request: self.violations.append(f"failed: {request.url}")
        )
        self.page.on("response", self._expect_200)

    def _expect_200(self, response: Response) -> None:
        if response.status != 200:
            self.violations.append(f"{response.status}: {response.url}")

    def _check_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.violations.append(f"console: {message.text}")

    def _check_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.netloc != self.host and address.scheme != "data":
            self.violations.append(f"another host: {request.url}")

    def open(self) -> None:
        """Open the page, and wait until all operations are listed."""
        self.page.goto(f"http://{self.host}/docs")
        self.page.locator(".opblock").nth(15).wait_for()

    def operation(self, tag: str, name: str) -> Locator:
        """Open an operation and press Try it out."""
        found = self.page.locator(f"#operations-{tag}-{name}")
        found.locator(".opblock-summary-control").click()
        found.get_by_role("button", name="Try it out").click()
        return found

    def execute(self, operation: Locator) -> tuple[str, str]:
        """Press Execute; return the status and the body that the page shows."""
        operation.get_by_role("button", name="Execute").click()
        shown = operation.locator(".live-responses-table tbody tr").first
        status = shown.locator(".response-col_status").inner_text()
        return status.strip(), shown.locator(".highlight-code").first.inner_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def key() -> tuple[str, str]:
    return auth.new_key("tester", "rank+feedback+admin")


@pytest.fixture(scope="module")
def running(key: tuple[str, str]) -> Iterator[Running]:
    with serving(environ={"SOLAR_KEYS": key[1]}) as started:
        yield started


@pytest.fixture
def watched(browser: Browser, running: Running) -> Iterator[WatchedPage]:
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT * 1000)
    yield WatchedPage(page, urlsplit(running.url).netloc)
    page.close()


def authorize(page: Page, secret: str) -> None:
    page.get_by_role("button", name="Authorize").first.click()
    dialog = page.locator(".modal-ux")
    dialog.get_by_role("textbox").fill(secret)
    dialog.get_by_role("button", name="Apply credentials").click()
    dialog.get_by_role("button", name="Close").click()


def test_a_ranking_can_be_tried_without_other_hosts_or_policy_violations(
    watched: WatchedPage, running: Running, key: tuple[str, str]
) -> None:
    with running.client(headers={"authorization": f"Bearer {key[0]}"}) as client:
        made = client.put("/models/books", json={"features": ["bm25", "price"]})
        assert made.is_success
    watched.open()
    authorize(watched.page, key[0])
    rank = watched.operation("ranking", "rank")
    status, body = watched.execute(rank)
    assert status == "200"
    assert '"query_id": "q-123"' in body
    rank.locator(".examples-select select").first.select_option(label="Ids and features as columns")
    rank.get_by_role("button", name="Clear").click()
    status, body = watched.execute(rank)
    assert status == "200"
    assert '"query_id": ""' in body
    assert watched.violations == []


def test_a_policy_violation_is_detected(watched: WatchedPage) -> None:
    watched.open()
    assert watched.violations == []
    watched.page.evaluate(VIOLATE_POLICY)
    assert not watched.page.evaluate("window.ran")
    messages = "\n".join(watched.violations)
    assert "securitypolicyviolation: script-src" in messages
    assert "securitypolicyviolation: style-src" in messages
    assert "securitypolicyviolation: connect-src" in messages
