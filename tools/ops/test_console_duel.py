"""The page of duels in Chromium, against a real service with simulated visitors.

Without Chromium these tests are skipped; `tools/ops/browser.sh` installs it first.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Route, expect

from app.api import auth
from tests.api.duels import promoted
from tests.api.services import Running, serving
from tests.console.browser import CHROMIUM, SEEN, ConsolePage
from tests.console.traffic import new_model, visit
from tests.servers import until

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="expected chromium on PATH, got none"),
    pytest.mark.usefixtures("patient"),
]

MALICIOUS = "<img src=x onerror=alert(1)>"
PHONE = {"width": 360, "height": 740}
#: Whether a canvas has a pixel that is not transparent.
DRAWN = """(one) => one.getContext("2d").getImageData(0, 0, one.width, one.height).data
  .some((value, k) => k % 4 === 3 && value > 0)"""
#: The sentence on a duel of the model "shop".
SENTENCE = """async (duel) => (await import("./duel_text.js")).verdictOf(duel, "shop").text"""


@pytest.fixture
def model(http: httpx.Client) -> str:
    """A new model in a duel with its follower, after some visits."""
    name = f"books-{uuid4().hex[:6]}"
    new_model(http, name)
    begin(http, name)
    return name


def begin(http: httpx.Client, name: str) -> None:
    """Let a follower of a model learn something else than it, and begin a duel."""
    given = {"follows": name, "clicks": "click-skip-above", "gamma": 10}
    http.put(f"/models/{name}-b", json=given).raise_for_status()
    visits(http, name, 15)
    body = {"challenger": f"{name}-b", "share": 0.5}
    http.put(f"/models/{name}/duel", json=body).raise_for_status()
    visits(http, name, 40)
    until(lambda: duel_of(http, name)["decided"] > 0)


def visits(http: httpx.Client, name: str, count: int) -> None:
    """Let visitors come, and wait until all is learnt, by the followers too."""
    rng = np.random.default_rng(count)
    seq = max(visit(http, name, rng) for _ in range(count))
    until(lambda: http.get(f"/models/{name}").json()["version"] >= seq)
    until(lambda: all(one["version"] >= seq for one in followers_of(http, name)))


def duel_of(http: httpx.Client, name: str) -> Any:
    """The duel of a model."""
    return http.get(f"/models/{name}/duel").json()


def followers_of(http: httpx.Client, name: str) -> Any:
    """The followers of a model."""
    return http.get(f"/models/{name}/followers").json()["followers"]


@pytest.fixture
def console(browser: Browser, running: Running) -> Iterator[ConsolePage]:
    """A page that fails the test if something goes wrong on it."""
    page = browser.new_page()
    page.set_default_timeout(SEEN)
    found = ConsolePage(page, running.url)
    yield found
    page.close()
    assert found.problems == []


def note_of(page: Page, text: str) -> Locator:
    """The message with a text."""
    return page.locator(".note").filter(has_text=text)


# ---- what the page shows ----


def test_the_evidence_and_the_interval_are_drawn(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("duel", model)
    charts = page.locator(".chart canvas")
    expect(charts).to_have_count(2)
    assert [charts.nth(k).evaluate(DRAWN) for k in range(2)] == [True, True]
    expect(page.locator(".verdict")).to_contain_text(f"against {model}-b")
    decided = duel_of(http, model)["decided"]
    expect(page.locator(".tile").first).to_contain_text(str(decided))


def test_the_page_follows_a_duel_and_keeps_the_focus(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("duel", model)
    promote = page.get_by_role("button", name="Promote…")
    promote.focus()
    lists = duel_of(http, model)["lists"]
    visits(http, model, 30)
    assert duel_of(http, model)["lists"] > lists
    expect(page.locator(".tile").filter(has_text=f"of {lists} lists")).to_have_count(0)
    expect(promote).to_be_focused()


def test_followers_are_a_table_and_stand_below_their_leader(
    console: ConsolePage, model: str
) -> None:
    page = console.open("duel", model)
    row = page.get_by_role("row").filter(has_text=f"{model}-b")
    expect(row).to_contain_text("γ 10, click-skip-above")
    expect(row).to_contain_text("in the duel")
    page = console.open("models")
    card = page.locator("article").filter(has=page.get_by_role("link", name=model, exact=True))
    expect(card).to_contain_text(f"Followers: {model}-b")
    expect(card.get_by_role("link", name=re.compile(f"against {model}-b"))).to_be_visible()
    expect(page.get_by_role("link", name=f"{model}-b", exact=True)).to_have_count(0)


@pytest.mark.parametrize(
    ("verdict", "decided", "challenger", "sentence"),
    [
        ("champion", 9000, "submitted", "beats the submitted order, 53.1 % of decided lists"),
        ("challenger", 60, "shop-b", "loses to shop-b, 53.1 % of decided lists"),
        ("undecided", 99, {"version": 800}, "too few decided lists against version 800"),
        ("undecided", 100, "shop-b", "undecided against shop-b, 53.1 % of decided lists"),
    ],
)
def test_a_verdict_is_one_of_four_sentences(
    console: ConsolePage, verdict: str, decided: int, challenger: Any, sentence: str
) -> None:
    page = console.open("models")
    duel = {
        "champion": "shop", "challenger": challenger, "verdict": verdict, "decided": decided,
        "win_share": 0.531,
    }  # fmt: skip
    assert page.evaluate(SENTENCE, duel).replace("\u202f", " ") == sentence
    ahead = page.evaluate(SENTENCE, {**duel, "champion": "shop-c"}).replace("\u202f", " ")
    assert ahead == f"shop-c {sentence}"


def test_a_name_with_html_stays_text(console: ConsolePage, model: str) -> None:
    def rename(route: Route) -> None:
        text = route.fetch().text().replace(f'"{model}-b"', json.dumps(MALICIOUS))
        route.fulfill(body=text, content_type="application/json")

    console.page.route(re.compile("/(followers|duel)$"), rename)
    page = console.open("duel", model)
    expect(page.locator("th").filter(has_text=MALICIOUS)).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text(MALICIOUS)
    assert page.locator("main img").count() == 0
    page.unroute_all(behavior="ignoreErrors")


def test_a_phone_does_not_scroll_sideways(console: ConsolePage, model: str) -> None:
    console.page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page = console.open("duel", model)
    expect(page.locator(".verdict")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, running: Running, model: str, scheme: Any) -> None:
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")
    page = ConsolePage(context.new_page(), running.url).open("duel", model)
    expect(page.locator(".verdict")).to_be_visible()
    found = axe(page)
    page.get_by_role("button", name="Promote…").click()
    expect(page.get_by_role("dialog")).to_contain_text("bm25")
    found += axe(page)
    context.close()
    assert found == []


def axe(page: Page) -> list[str]:
    """What axe finds on a page."""
    violations = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in violations for node in one["nodes"]]


def test_a_page_without_a_connection_says_so(
    browser: Browser, running: Running, model: str
) -> None:
    context = browser.new_context()
    console = ConsolePage(context.new_page(), running.url, away=True)
    page = console.open("duel", model)
    expect(page.locator(".verdict")).to_be_visible()
    context.set_offline(True)
    expect(page.locator("#banner")).to_contain_text("Not connected")
    expect(page.locator(".verdict")).to_be_visible()
    context.set_offline(False)
    expect(page.locator("#banner")).to_be_hidden()
    context.close()
    assert console.problems == []


# ---- what it changes ----


def test_a_duel_is_ended_and_another_one_begun_from_the_form(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("duel", model)
    page.get_by_role("button", name="End the duel…").click()
    page.get_by_role("dialog").get_by_role("button", name="End the duel").click()
    expect(note_of(page, "The duel has ended.")).to_be_visible()
    page.get_by_label("Challenger").select_option(label="the submitted order")
    page.get_by_label("Share of requests").fill("0.9")
    console.away = True  # the browser reports the 422
    begin = page.get_by_role("button", name="Begin the duel")
    begin.click()
    expect(note_of(page, "Not begun")).to_contain_text("share")
    page.get_by_label("Share of requests").fill("0.3")
    begin.click()
    expect(page.get_by_role("heading", name="against the submitted order")).to_be_visible()
    found = duel_of(http, model)
    assert (found["challenger"], found["share"], found["ended"]) == ("submitted", 0.3, None)
    expect(page.get_by_role("button", name="Promote…")).to_have_count(0)


def test_followers_are_created_alone_or_by_their_settings_and_deleted(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("duel", model)
    page.get_by_label("Name").fill(f"{model}-c")
    page.get_by_label("γ").fill("500")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("button", name=f"Delete {model}-c")).to_be_visible()
    page.get_by_label("γ").fill("1e2, 1e3")
    page.get_by_role("button", name="Create").click()
    expect(note_of(page, "2 followers are created.")).to_be_visible()
    gammas = {one["name"]: one["gamma"] for one in followers_of(http, model)}
    assert sorted(gammas.values()) == [10, 100, 500, 1000]
    page.get_by_role("button", name=f"Delete {model}-c").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(note_of(page, f"{model}-c is deleted.")).to_be_visible()
    assert f"{model}-c" not in [one["name"] for one in followers_of(http, model)]


@pytest.mark.parametrize("how", ["mouse", "keyboard"])
def test_a_promotion_without_a_verdict_needs_one_more_choice(
    console: ConsolePage, http: httpx.Client, model: str, how: str
) -> None:
    page = console.open("duel", model)
    promote = page.get_by_role("button", name="Promote…")
    use(page, promote, how)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("bm25")
    expect(dialog).to_contain_text("click-skip-above")
    expect(dialog).to_contain_text("the duel is undecided")
    confirm = dialog.get_by_role("button", name="Promote", exact=True)
    expect(confirm).to_be_disabled()
    use(page, dialog.get_by_role("checkbox"), how, key="Space")
    expect(confirm).to_be_enabled()
    use(page, confirm, how)
    expect(note_of(page, "Promoted by record")).to_be_visible()
    expect(page.get_by_text("ended by record")).to_be_visible()
    assert duel_of(http, model)["ended"]["why"] == "promotion"
    assert http.get(f"/models/{model}").json()["clicks"] == "click-skip-above"


def test_a_promotion_of_a_duel_that_has_changed_since_the_dialog_is_refused(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("duel", model)
    page.get_by_role("button", name="Promote…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("checkbox").check()
    confirm = dialog.get_by_role("button", name="Promote", exact=True)
    expect(confirm).to_be_enabled()
    http.delete(f"/models/{model}/duel").raise_for_status()
    body = {"challenger": f"{model}-b", "share": 0.4}
    now = http.put(f"/models/{model}/duel", json=body).raise_for_status().json()["id"]
    console.away = True  # the browser reports the 409
    confirm.click()
    expect(note_of(page, "Not promoted")).to_contain_text(f"the model's duel is {now}")
    assert duel_of(http, model)["ended"] is None


@pytest.mark.parametrize("end", ["promotion", "ended"])
def test_the_models_page_has_a_verdict_only_of_a_duel_that_is_on(
    console: ConsolePage, http: httpx.Client, model: str, end: str
) -> None:
    if end == "promotion":
        promoted(http, model, force=True)
    else:
        http.delete(f"/models/{model}/duel").raise_for_status()
    until(lambda: duel_of(http, model)["ended"] is not None)
    page = console.open("models")
    card = page.locator("article").filter(has=page.get_by_role("link", name=model, exact=True))
    expect(card.get_by_role("link", name="the last duel has ended")).to_be_visible()
    expect(card).not_to_contain_text(f"{model}-b,")
    expect(card).not_to_contain_text("against")


def test_a_cancelled_promotion_changes_nothing(
    console: ConsolePage, http: httpx.Client, model: str
) -> None:
    page = console.open("duel", model)
    page.get_by_role("button", name="Promote…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert duel_of(http, model)["ended"] is None


def use(page: Page, control: Locator, how: str, key: str = "Enter") -> None:
    """Click a control, or go to it by tabs and press a key."""
    if how == "mouse":
        return control.click()
    expect(control).to_be_visible()
    for _ in range(60):
        if control.evaluate("(one) => one === document.activeElement"):
            return page.keyboard.press(key)
        page.keyboard.press("Tab")
    raise AssertionError(f"{control}: expected the focus after some tabs")


def test_a_reader_sees_the_duel_and_nothing_to_change_it(browser: Browser) -> None:
    reader, entry = auth.new_key("reader", "read")
    admin, other = auth.new_key("admin", "rank+feedback+admin+read")
    with serving(environ={"SOLAR_KEYS": f"{entry},{other}"}) as running:
        with running.client(headers={"authorization": f"Bearer {admin}"}) as http:
            new_model(http, "books")
            begin(http, "books")
        page = browser.new_page()
        page.set_default_timeout(SEEN)
        console = ConsolePage(page, running.url)
        keep = f"sessionStorage.setItem('solar-key', '{reader}')"
        page.add_init_script(f"if (location.protocol === 'http:') {keep}")
        console.open("duel", "books")
        expect(page.locator(".verdict")).to_be_visible()
        expect(page.get_by_role("table")).to_contain_text("books-b")
        expect(page.locator("main button")).to_have_count(0)
        page.close()
        assert console.problems == []
