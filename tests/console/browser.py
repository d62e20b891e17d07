"""Chromium for the tests of the console: pages that note what goes wrong on them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.waits import TIMEOUT

CHROMIUM = shutil.which("chromium")
SEEN = 1000 * TIMEOUT  #: Milliseconds that a test waits for what a page shows.
#: Without these flags Chromium itself sends requests to other hosts; containers have no sandbox.
CHROMIUM_FLAGS = [
    "--disable-background-networking", "--disable-component-update", "--disable-gpu",
    "--disable-sync", "--no-first-run", "--no-sandbox",
]  # fmt: skip
#: Runs before any script of the page.
REPORT_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`securitypolicyviolation: ${event.violatedDirective} ${event.blockedURI}`));"""
#: The pages of the console, `{model}` for a name, and a text that a complete page shows.
ADDRESSES = {
    "models": "#/models",
    "model": "#/models/{model}",
    "why": "#/models/{model}/why",
    "try": "#/models/{model}/try",
    "live": "#/models/{model}/live",
    "duel": "#/models/{model}/duel",
    "versions": "#/models/{model}/versions",
    "jobs": "#/jobs",
    "health": "#/health",
}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium."""
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@dataclass
class ConsolePage:
    """A page of the console, and a list of what went wrong on it."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    #: Whether failed requests and their messages are expected: the service is away.
    away: bool = False

    def __post_init__(self) -> None:
        self.page.add_init_script(REPORT_VIOLATIONS)
        self.page.on("console", self._check_message)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", self._check_request)

    def _check_message(self, message: ConsoleMessage) -> None:
        failed = "Failed to load resource" in message.text or "ERR_" in message.text
        if message.type in ("error", "warning") and not (self.away and failed):
            self.problems.append(f"console: {message.text} at {message.location}")

    def _check_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.netloc != urlsplit(self.url).netloc and address.scheme != "data":
            self.problems.append(f"another host: {request.url}")

    def open(self, address: str, model: str = "") -> Page:
        """Go to a page of the console and wait for its heading."""
        target = f"{self.url}/console/{ADDRESSES[address].format(model=model)}"
        self.page.goto("about:blank")
        self.page.goto(target)
        self.page.get_by_role("heading", level=1).wait_for()
        return self.page
