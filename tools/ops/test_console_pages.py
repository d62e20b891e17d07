"""The console in Chromium, against a real service with simulated visitors.

Without Chromium these tests are skipped; `tools/ops/browser.sh` installs it first.
"""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from app.api import auth
from tests.api.services import Running, serving
from tests.api.test_faults import child
from tests.console.browser import ADDRESSES, CHROMIUM, SEEN, ConsolePage
from tests.console.traffic import TASTE, documents, new_model, visit
from tests.servers import until

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="expected chromium on PATH, got none"),
    pytest.mark.usefixtures("patient"),
]

MALICIOUS = "<img src=x onerror=alert(1)>"
AWAY = re.compile("not connected", re.IGNORECASE)
PHONE = {"width": 360, "height": 740}


@pytest.fixture
def model(http: httpx.Client) -> str:
    """A new model with some visits, all learnt, and a named version."""
    name = f"books-{uuid4().hex[:6]}"
    new_model(http, name)
    visits(http, name, 15)
    assert http.post(f"/models/{name}/versions", json={"name": "start"}).status_code == 201
    visits(http, name, 15)
    return name


def visits(http: httpx.Client, name: str, count: int) -> None:
    """Let visitors come, and wait until all is learnt."""
    rng = np.random.default_rng(count)
    seq = max(visit(http, name, rng) for _ in range(count))
    until(lambda: http.get(f"/models/{name}").json()["version"] >= seq)


@pytest.fixture
def console(browser: Browser, running: Running) -> Iterator[ConsolePage]:
    """A page that fails the test if something goes wrong on it."""
    page = browser.new_page()
    page.set_default_timeout(SEEN)
    found = ConsolePage(page, running.url)
    yield found
    page.close()
    assert found.problems == []


def settled(page: Page) -> None:
    """Wait until a page shows data: nothing that says it is still being read."""
    expect(page.locator(".page-body")).not_to_be_empty(timeout=SEEN)
    expect(page.get_by_text(re.compile("^Reading|^Computing|^Loading"))).to_have_count(
        0, timeout=SEEN
    )


def note_of(page: Page, text: str | re.Pattern[str]) -> Locator:
    """The message with a text."""
    return page.locator(".note").filter(has_text=text)


# ---- all pages ----


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_has_no_error_no_violation_and_no_other_host(
    console: ConsolePage, model: str, address: str
) -> None:
    page = console.open(address, model)
    settled(page)
    expect(page.locator(".note.bad")).to_have_count(0)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_does_not_scroll_sideways_on_a_phone(
    console: ConsolePage, model: str, address: str
) -> None:
    console.page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page = console.open(address, model)
    settled(page)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, address


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    browser: Browser, running: Running, model: str, scheme: Any
) -> None:
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(SEEN)
    console = ConsolePage(page, running.url)
    found = list[str]()
    for address in ADDRESSES:
        settled(console.open(address, model))
        for one in Axe().run(page).response["violations"]:
            if one["impact"] in ("serious", "critical"):
                found += [f"{address}: {one['id']}: {node['html']}" for node in one["nodes"]]
    context.close()
    assert found == []


def test_a_page_without_models_says_what_to_do_next(browser: Browser) -> None:
    with serving() as empty:
        page = browser.new_page()
        page.set_default_timeout(SEEN)
        console = ConsolePage(page, empty.url)
        console.open("models")
        expect(page.locator(".empty")).to_contain_text(re.compile("model", re.IGNORECASE))
        assert "curl" in page.locator("main").inner_text()
        page.close()
        assert console.problems == []


# ---- data of others ----


def test_an_id_with_html_stays_text(console: ConsolePage, http: httpx.Client, model: str) -> None:
    given = [{"id": MALICIOUS, "features": dict.fromkeys(TASTE, 0.9)}]
    given += documents(np.random.default_rng(0), 3)
    request = recent_request(http, {"model": model, "documents": given, "query_id": MALICIOUS})
    for address in ("why", "try"):
        page = console.open(address, model)
        expect(page.get_by_text(MALICIOUS).first).to_be_visible()
    page = console.open("live", model)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    click(http, request, MALICIOUS)
    expect(page.get_by_text(MALICIOUS).first).to_be_visible()
    assert page.locator("main img").count() == 0


def recent_request(http: httpx.Client, body: dict[str, Any]) -> str:
    """Rank until the request is among the recent ones: at most one a second is noted."""

    def noted() -> bool:
        ranked.append(http.post("/rank", json=body).json()["request_id"])
        found = http.get(f"/models/{body['model']}/impressions").json()["impressions"]
        return ranked[-1] in [one["request"] for one in found]

    ranked = list[str]()
    until(noted)
    return ranked[-1]


def click(http: httpx.Client, request: str, *ids: str) -> int:
    """Post a click; return its seq."""
    event = {"event_id": str(uuid4()), "type": "clicks", "request_id": request, "clicked": ids}
    answer = http.post("/feedback", json=event)
    assert answer.status_code == 202, answer.text
    return int(answer.json()["seq"])


# ---- live ----


def test_a_posted_click_is_on_the_live_page_within_two_seconds(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("live", model)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    given = documents(np.random.default_rng(5))
    ranked = http.post("/rank", json={"model": model, "documents": given}).json()
    last = ranked["documents"][-1]["id"]
    page.evaluate(
        """(id) => { window.seen = new Promise((done) => new MutationObserver(() =>
          document.querySelector("main").textContent.includes(id) && done(performance.now()))
          .observe(document.querySelector("main"), {childList: true, subtree: true})); }""",
        last,
    )
    began = page.evaluate("performance.now()")
    click(http, ranked["request_id"], last)
    took = page.evaluate("window.seen") - began
    assert took < 2000, f"{took:.0f} ms"


# ---- versions ----


def test_a_version_is_kept_compared_and_deleted_by_mouse(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("versions", model)
    page.get_by_label("Name").fill("evening")
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(note_of(page, "is kept as evening")).to_be_visible()
    assert "evening" in names_of(http, model)
    page.get_by_label("A is start").check()
    expect(page.locator(".diff")).to_contain_text("bm25")
    page.get_by_role("button", name="Delete evening").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(note_of(page, "evening is deleted")).to_be_visible()
    assert "evening" not in names_of(http, model)


def names_of(http: httpx.Client, model: str) -> list[str]:
    """The names of kept versions."""
    found = http.get(f"/models/{model}/versions").json()["versions"]
    return [one["name"] for one in found if one.get("name")]


def test_a_rollback_shows_what_changes_and_is_done_by_mouse(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    kept = next(
        one for one in http.get(f"/models/{model}/versions").json()["versions"]
        if one.get("name") == "start"
    )  # fmt: skip
    page = console.open("versions", model)
    page.get_by_role("button", name="Roll back to start").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("bm25")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert http.get(f"/models/{model}").json()["version"] > kept["version"]
    page.get_by_role("button", name="Roll back to start").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(note_of(page, "Rolled back to start")).to_be_visible()
    before = [one["version"] for one in http.get(f"/models/{model}/versions").json()["versions"]]
    assert len(before) >= 3  # created, start, before the rollback


def test_keyboard_alone_keeps_a_version_and_rolls_back(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("versions", model)
    settled(page)
    seq = http.get(f"/models/{model}").json()["seq"]
    tab_to(page, page.get_by_label("Name"))
    page.keyboard.type("night")
    page.keyboard.press("Enter")
    expect(note_of(page, "is kept as night")).to_be_visible()
    tab_to(page, page.get_by_role("button", name="Roll back to start"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Roll back")
    expect(confirm).to_be_enabled()
    tab_to(page, confirm)
    page.keyboard.press("Enter")
    expect(note_of(page, "Rolled back to start")).to_be_visible()
    assert http.get(f"/models/{model}").json()["seq"] == seq + 1


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until an element has the focus."""
    expect(target).to_be_visible()
    for _ in range(80):
        if target.evaluate("(element) => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{target}: expected the focus after some tabs")


# ---- why and try ----


def test_the_contributions_of_two_documents_add_up_to_the_gap(
    console: ConsolePage, model: str
) -> None:
    page = console.open("why", model)
    with page.expect_response(lambda one: one.url.endswith("/compare")) as answered:
        page.get_by_role("button", name="Exchange A and B").click()
    found = answered.value.json()
    parts = sum(one["contribution"] for one in found["contributions"])
    assert parts + found["rest"]["contribution"] == pytest.approx(found["gap"], abs=1e-9)
    expect(page.locator(".verdict")).to_contain_text(found["first"]["id"])


def test_a_click_is_tried_on_a_copy_then_posted(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("try", model)
    before = http.get(f"/models/{model}").json()
    page.get_by_role("button", name="Paste documents").click()
    page.get_by_role("button", name="Use an example").click()
    page.get_by_role("button", name=re.compile("^Click")).nth(4).click()
    expect(page.get_by_text("nothing was stored")).to_be_visible()
    assert http.get(f"/models/{model}").json()["weights"] == before["weights"]
    page.get_by_role("button", name=re.compile("real model")).click()
    page.get_by_role("dialog").get_by_role("button", name="Post the click").click()
    expect(note_of(page, "Posted as record")).to_be_visible()
    assert http.get(f"/models/{model}").json()["seq"] == before["seq"] + 1


def test_a_slider_moves_the_order_as_rank_does(console: ConsolePage, model: str) -> None:
    page = console.open("try", model)
    page.get_by_role("button", name="Paste documents").click()
    page.get_by_role("button", name="Use an example").click()
    slider = page.get_by_role("slider").first
    slider.focus()
    for _ in range(6):
        page.keyboard.press("PageDown")
    pasted = page.evaluate("document.querySelector('#pasted-list').value")
    assert "doc-1" in pasted
    shown = page.locator(".ranking-row .id, .ranking .id")
    expect(shown.first).to_be_visible()


# ---- jobs ----


@pytest.mark.parametrize("how", ["mouse", "keyboard"])
def test_a_warm_start_is_done_from_a_file(
    console: ConsolePage, http: httpx.Client, model: str, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "judged.txt"
    path.write_text(judged())
    page = console.open("jobs")
    page.get_by_label("Model").select_option(model)
    page.get_by_label(re.compile("file", re.IGNORECASE)).first.set_input_files(path)
    start = page.get_by_role("button", name=re.compile("^Train|^Start"))
    if how == "mouse":
        start.first.click()
    else:
        tab_to(page, start.first)
        page.keyboard.press("Enter")
    expect(page.get_by_text("done").first).to_be_visible()
    until(lambda: [one for one in jobs(http, model) if one["state"] == "done"])


def jobs(http: httpx.Client, model: str) -> list[dict[str, Any]]:
    """The jobs of a model."""
    return [one for one in http.get("/jobs").json()["jobs"] if one["model"] == model]


def judged() -> str:
    """Judged queries in LETOR format."""
    rng = np.random.default_rng(3)
    lines = []
    for query in range(30):
        for row in rng.random((6, len(TASTE))).tolist():
            good = sum(weight * x for weight, x in zip(TASTE.values(), row, strict=True))
            pairs = " ".join(f"{at}:{x:.4f}" for at, x in enumerate(row, start=1))
            lines.append(f"{int(good > 0.4)} qid:{query} {pairs}")
    return "\n".join(lines) + "\n"


# ---- faults, keys ----


def test_a_store_that_goes_away_shows_not_connected_and_heals(browser: Browser) -> None:
    with serving() as running, running.client() as http:
        new_model(http, "books")
        visits(http, "books", 5)
        page = browser.new_page()
        page.set_default_timeout(SEEN)
        console = ConsolePage(page, running.url, away=True)
        console.open("models")
        expect(page.get_by_role("link", name="books").first).to_be_visible()
        store = child(running.process.pid, "valkey")
        assert store is not None
        os.kill(store, signal.SIGSTOP)
        try:
            expect(page.locator("#banner")).to_contain_text(AWAY)
        finally:
            os.kill(store, signal.SIGCONT)
        expect(page.locator("#banner")).to_be_hidden()
        visits(http, "books", 1)
        page.close()
        assert console.problems == []


def test_a_service_that_goes_away_shows_not_connected_and_heals(
    browser: Browser, tmp_path: Path
) -> None:
    page = browser.new_page()
    page.set_default_timeout(SEEN)
    with serving(data=tmp_path) as running, running.client() as http:
        new_model(http, "books")
        port = running.url.rpartition(":")[2]
        console = ConsolePage(page, running.url, away=True)
        console.open("models")
        expect(page.get_by_role("link", name="books").first).to_be_visible()
    expect(page.locator("#banner")).to_contain_text(AWAY)
    with serving("--port", port, data=tmp_path):
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.get_by_role("link", name="books").first).to_be_visible()
        page.close()
    assert console.problems == []


def test_a_key_is_asked_for_kept_in_the_tab_and_sent_as_a_header(browser: Browser) -> None:
    reader, entry = auth.new_key("reader", "read")
    admin, other = auth.new_key("admin", "rank+feedback+admin")
    with serving(environ={"SOLAR_KEYS": f"{entry},{other}"}) as running:
        with running.client(headers={"authorization": f"Bearer {admin}"}) as http:
            new_model(http, "books")
        page = browser.new_page()
        page.set_default_timeout(SEEN)
        console = ConsolePage(page, running.url, away=True)
        console.open("models")
        dialog = page.get_by_role("dialog")
        dialog.locator("input").fill(reader)
        dialog.get_by_role("button", name="Use this key").click()
        expect(page.get_by_role("link", name="books").first).to_be_visible()
        assert page.context.cookies() == []
        assert page.evaluate("Object.values(sessionStorage)") == [reader]
        assert page.evaluate("localStorage.length") == 0
        assert reader not in page.url
        page.close()
        assert [one for one in console.problems if "401" not in one] == []
        assert reader not in running.logged()
