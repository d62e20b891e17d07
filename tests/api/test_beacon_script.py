"""`/solar.js` in a browser: clicks on a page of another origin are learnt."""

import gzip
import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha384
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import httpx
import pytest
from playwright.sync_api import Browser, Page

from app.api.routers.beacon_script import SCRIPT, integrity, script_version
from app.api.tokens import new_token_key
from tests.api.services import PLAIN, Running, serving
from tests.console.browser import CHROMIUM, chromium
from tests.servers import until

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="expected chromium on PATH, got none")
NAMES = [f"d{at}" for at in range(8)]
PAGE = """<!doctype html><title>Shop</title>
<script type="module" src="{url}/{script}" integrity="{integrity}" crossorigin="anonymous"></script>
<script type="module">
import {{ solar }} from "{url}/{script}";
window.page = solar("{beacon}", {options});
</script>
<ol data-solar-token="{token}">{items}</ol>"""
ITEM = """<li data-solar-id="{name}" style="height: 300px"><a id="{name}" href="/other">{name}</a>
<button id="buy-{name}" data-solar-action="purchase">Buy</button></li>"""


class Pages(BaseHTTPRequestHandler):
    """Serves the page of the test."""

    page = ""
    posted: ClassVar[list[tuple[str, dict[str, Any]]]] = []  # media types and bodies of beacons

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.posted.append((self.headers["content-type"], body))
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        text = (self.page if self.path == "/" else "<p>elsewhere</p>").encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    environ = {"SOLAR_TOKEN_KEYS": new_token_key("k1"), "SOLAR_BEACON_RATE": "1000"}
    with serving(environ=environ) as started, started.client() as client:
        assert client.put("/models/books", json={"features": 1, **PLAIN}).status_code == 201
        yield started


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as opened:
        yield opened


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """The origin of a shop, which is not that of the service."""
    web = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = Thread(target=web.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{web.server_port}"
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    Pages.posted.clear()
    context = browser.new_context(viewport={"width": 800, "height": 700})
    yield context.new_page()
    context.close()


def visit(
    tab: Page,
    shop: str,
    client: httpx.Client,
    beacon: str = "",
    copies: int = 1,
    token: str | None = None,
    expected: str | None = None,
    **options: Any,
) -> None:
    """Open the page with a new ranking. Its events go to the service, or to another address."""
    documents = [{"id": name, "features": [1.0]} for name in NAMES]
    found = client.post("/rank", json={"model": "books", "documents": documents}).json()
    items = "".join(copies * ITEM.format(name=name) for name in NAMES)
    url = str(client.base_url).rstrip("/")
    Pages.page = PAGE.format(
        url=url, beacon=beacon or f"{url}/beacon", items=items,
        script=f"solar.js?v={script_version()}", integrity=expected or integrity(),
        token=found["token"] if token is None else token,
        options=json.dumps({"examined": False, **options}),
    )  # fmt: skip
    tab.goto(f"{shop}/")
    if expected is None:
        tab.wait_for_function("window.page")


def sent() -> list[Any]:
    """Wait for events at the shop's own server; return those of each post."""
    until(lambda: Pages.posted)
    assert {kind for kind, _ in Pages.posted} == {"text/plain;charset=UTF-8"}
    return [body["events"] for _, body in Pages.posted]


def feedback(client: httpx.Client) -> int:
    return int(client.get("/models/books").json()["feedback"])


@needs_chromium
def test_a_click_that_leaves_the_page_is_learnt(tab: Page, shop: str, client: httpx.Client) -> None:
    before = feedback(client)
    visit(tab, shop, client)
    tab.click("#d1")
    tab.wait_for_url("**/other")
    until(lambda: feedback(client) == before + 1)


@needs_chromium
def test_a_click_of_the_middle_button_is_learnt(tab: Page, shop: str, client: httpx.Client) -> None:
    before = feedback(client)
    visit(tab, shop, client)
    tab.click("#d1", button="middle")
    until(lambda: feedback(client) == before + 1)


@needs_chromium
def test_the_events_of_a_page_are_sent_once(tab: Page, shop: str, client: httpx.Client) -> None:
    visit(tab, shop, client, f"{shop}/beacon")
    for name in ("d1", "d3", "d1"):
        tab.evaluate("name => document.getElementById(name).parentElement.click()", name)
    tab.goto(f"{shop}/other")
    clicked = [[event["clicked"] for event in events] for events in sent()]
    assert clicked == [[["d3", "d1"]]]  # each once, at its last click
    tab.goto(f"{shop}/other")  # a second one would have come before this page
    assert len(sent()) == 1


@needs_chromium
def test_an_action_is_a_gain_and_a_click(tab: Page, shop: str, client: httpx.Client) -> None:
    visit(tab, shop, client, f"{shop}/beacon", viewer="session-1")
    tab.click("#buy-d0")
    tab.goto(f"{shop}/other")
    [[event]] = sent()
    assert event["gains"] == {"d0": "purchase"}
    assert (event["clicked"], event["viewer"]) == (["d0"], "session-1")


@needs_chromium
def test_no_action_replaces_another_one(tab: Page, shop: str, client: httpx.Client) -> None:
    visit(tab, shop, client, f"{shop}/beacon")
    tab.evaluate("page.click('t', 'd0', 'purchase'), page.click('t', 'd0', 'add_to_cart')")
    tab.goto(f"{shop}/other")
    until(lambda: len(Pages.posted) == 2)
    assert [event["gains"]["d0"] for [event] in sent()] == ["purchase", "add_to_cart"]


@needs_chromium
def test_a_document_half_visible_for_a_second_is_examined(
    tab: Page, shop: str, client: httpx.Client
) -> None:
    visit(tab, shop, client, f"{shop}/beacon", examined=True)
    tab.wait_for_timeout(4_000)  # the places alone are not sent before the page is left
    assert not Pages.posted
    tab.goto(f"{shop}/other")
    [[event]] = sent()
    assert event["examined"] == 2  # of the third one less than half is visible
    assert event["clicked"] == []


@needs_chromium
def test_elements_of_one_document_count_once(tab: Page, shop: str, client: httpx.Client) -> None:
    """A list may be rendered twice, or a carousel may clone its documents."""
    visit(tab, shop, client, f"{shop}/beacon", copies=2, examined=True)
    tab.wait_for_timeout(4_000)
    tab.goto(f"{shop}/other")
    [[event]] = sent()
    assert event["examined"] == 1  # two elements of the first document are visible


@needs_chromium
def test_lists_without_a_click_need_not_be_sent(tab: Page, shop: str, client: httpx.Client) -> None:
    """Each event is a record with the documents of its list."""
    visit(tab, shop, client, f"{shop}/beacon", abandoned=False)
    tab.evaluate("page.examined('a', 3), page.examined('b', 5), page.flush()")
    tab.evaluate("page.click('a', 'd0'), page.flush()")
    assert sent() == [[{"token": "a", "clicked": ["d0"], "examined": 3}]]
    tab.evaluate("page.examined('a', 4), page.examined('b', 6)")  # a clicked list was read further
    tab.goto(f"{shop}/other")
    until(lambda: len(Pages.posted) == 2)
    assert sent()[1] == [{"token": "a", "clicked": [], "examined": 4}]


#: The tab is hidden, as scripts see it, until `show(true)`.
HIDDEN = """let hidden = true;
Object.defineProperty(document, "hidden", { get: () => hidden });
window.show = (now) => { hidden = !now; document.dispatchEvent(new Event("visibilitychange")); };"""


@needs_chromium
def test_nothing_is_examined_in_a_hidden_tab(tab: Page, shop: str, client: httpx.Client) -> None:
    tab.add_init_script(HIDDEN)
    visit(tab, shop, client, f"{shop}/beacon", examined=True)
    tab.wait_for_timeout(2_500)
    tab.evaluate("page.click('t', 'd0'), page.flush()")
    assert sent() == [[{"token": "t", "clicked": ["d0"]}]]
    tab.evaluate("show(true)")
    tab.wait_for_timeout(500)
    tab.evaluate("show(false)")
    tab.wait_for_timeout(1_500)
    assert len(sent()) == 1
    tab.evaluate("show(true)")
    tab.wait_for_timeout(2_500)
    tab.evaluate("show(false)")
    until(lambda: len(Pages.posted) == 2)
    assert [event["examined"] for event in sent()[1]] == [2]


@needs_chromium
def test_a_list_without_a_token_sends_nothing(tab: Page, shop: str, client: httpx.Client) -> None:
    """Templates write `ranking.token or ""`; each such event would count as forged."""
    visit(tab, shop, client, f"{shop}/beacon", token="", examined=True)
    tab.evaluate("document.getElementById('d1').parentElement.click()")
    tab.evaluate("page.click(null, 'd1'), page.gain(undefined, 'd1', 4), page.examined('', 3)")
    tab.wait_for_timeout(2_500)  # the first documents are examined by now
    tab.evaluate("page.click('t', 'd0')")
    tab.goto(f"{shop}/other")
    assert sent() == [[{"token": "t", "clicked": ["d0"]}]]


@needs_chromium
def test_large_events_are_sent_in_posts_of_16_kb(
    tab: Page, shop: str, client: httpx.Client
) -> None:
    visit(tab, shop, client, f"{shop}/beacon")
    click = "page.click(`token ${at}`, `${'é'.repeat(120)} ${id}`)"
    tab.evaluate(f"for (let at = 0; at < 15; at++) for (let id = 0; id < 6; id++) {click}")
    tab.goto(f"{shop}/other")
    until(lambda: len(Pages.posted) == 2)
    tokens = [event["token"] for events in sent() for event in events]  # posts come in any order
    assert sorted(tokens) == sorted(f"token {at}" for at in range(15))
    sizes = [len(json.dumps(events, ensure_ascii=False).encode()) for events in sent()]
    assert max(sizes) < 17_000


@needs_chromium
def test_without_sendbeacon_a_fetch_outlives_the_page(
    tab: Page, shop: str, client: httpx.Client
) -> None:
    before = feedback(client)
    tab.add_init_script("navigator.sendBeacon = () => false")
    visit(tab, shop, client)
    tab.click("#d2")
    tab.wait_for_url("**/other")
    until(lambda: feedback(client) == before + 1)


@needs_chromium
def test_a_page_with_another_hash_loads_nothing(tab: Page, shop: str, client: httpx.Client) -> None:
    """Neither the element nor the import runs a script that is not the expected one."""
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    other = "sha384-" + b64encode(sha384(b"another release").digest()).decode()
    visit(tab, shop, client, f"{shop}/beacon", expected=other)
    assert tab.evaluate("document.readyState") == "complete"  # after all modules
    assert tab.evaluate("typeof window.page") == "undefined"
    assert any("integrity" in text for text in said)
    tab.click("#d1")
    tab.wait_for_url("**/other")
    assert not Pages.posted


def test_a_browser_keeps_the_script_only_under_its_version(client: httpx.Client) -> None:
    """An integrity line that fits the release never meets an older script in a cache."""
    plain, other, exact = (
        client.get(path)
        for path in ("/solar.js", "/solar.js?v=0123456789ab", f"/solar.js?v={script_version()}")
    )
    for reply in (plain, other):
        assert reply.headers["cache-control"] == "no-cache"
    assert exact.headers["cache-control"] == "public, max-age=31536000, immutable"
    for reply in (plain, other, exact):
        assert reply.headers["content-location"] == f"solar.js?v={script_version()}"
        assert reply.headers["etag"] == f'"{integrity()}"'
        assert reply.content == SCRIPT.read_bytes()
        known = {"if-none-match": reply.headers["etag"]}
        again = client.get(str(reply.request.url), headers=known)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["cache-control"] == reply.headers["cache-control"]


def test_the_script_has_less_than_2_kb() -> None:
    size = len(gzip.compress(SCRIPT.read_bytes(), 9))
    print(f"solar.js: {size} bytes with gzip")  # noqa: T201
    assert size < 2_000


def test_the_documents_have_the_integrity_of_the_script() -> None:
    text = (Path(__file__).parents[2] / "docs" / "integrate.md").read_text()
    assert set(re.findall(r"sha384-[A-Za-z0-9+/=]+", text)) == {integrity()}
    assert set(re.findall(r"solar\.js\?v=(\w+)", text)) == {script_version()}


@pytest.mark.skipif(shutil.which("npm") is None, reason="expected npm on PATH, got none")
def test_the_npm_package_has_the_served_script(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "clients" / "js"
    package = json.loads((folder / "package.json").read_text())
    assert f"solar.js {package['version']}:" in SCRIPT.read_text()
    shutil.copytree(folder, tmp_path / "clients" / "js")
    shutil.copytree(SCRIPT.parent, tmp_path / "app" / "api" / "beacon")
    packed = subprocess.run(
        [shutil.which("npm") or "", "pack", "--json", "--offline"], cwd=tmp_path / "clients" / "js",
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    files = {one["path"] for one in json.loads(packed.stdout)[0]["files"]}
    assert files == {"README.md", "package.json", "solar.js"}
