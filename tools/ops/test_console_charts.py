"""Pages of models with little history: one list, a burst of lists, long ids."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

pytest.importorskip("playwright")

from tests.api.services import Running, serving
from tests.console.browser import CHROMIUM, ConsolePage, chromium
from tests.console.traffic import new_model
from tests.servers import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

#: A chart with one time; returns the length of its axis in seconds.
ONE_TIME = """async (now) => {
  const { lineChart } = await import("./chart.js");
  const Plot = globalThis.uPlot;
  let plot = null;
  globalThis.uPlot = function (...given) { plot = new Plot(...given); return plot; };
  const options = { series: [{ label: "x", colour: "--blue" }], least: 300 };
  lineChart(document.querySelector("main"), options).update([now], [{ values: [0.5] }]);
  globalThis.uPlot = Plot;
  await new Promise((drawn) => setTimeout(drawn, 50));
  return plot.scales.x.max - plot.scales.x.min;
}"""
#: Rates in three minutes of a model that learnt 50 lists in a second and then nothing.
BURST = """async () => {
  const { ratesOf } = await import("./model_history.js");
  const history = { columns: ["queries"], hour: [[0, 10, 10]], day: [], now: [180000, 60, 60] };
  return ratesOf(history, ["queries"], { seconds: 180, bins: 3 });
}"""


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def console(service: Running) -> Iterator[ConsolePage]:
    with chromium() as browser:
        yield ConsolePage(browser.new_page(), service.url)


def click(http: httpx.Client, model: str, first: str) -> None:
    names = (first, "other")
    given = [{"id": name, "features": [at, 0, 0, 0, 0]} for at, name in enumerate(names)]
    ranked = http.post("/rank", json={"model": model, "documents": given}).json()
    event = {"event_id": str(uuid4()), "type": "clicks", "request_id": ranked["request_id"]}
    assert http.post("/feedback", json={**event, "clicked": [first]}).status_code == 202
    until(lambda: http.get(f"/models/{model}").json()["queries"] == 1)


def test_a_model_with_one_list_has_no_error_and_no_curves(
    service: Running, console: ConsolePage
) -> None:
    with service.client() as http:
        new_model(http, "one")
        click(http, "one", "a")
    page = console.open("model", "one")
    page.get_by_text("There are no curves yet.").wait_for()
    numbers = page.get_by_label("Main numbers").inner_text()
    assert "1 feedback record\n" in numbers
    assert "±" not in numbers
    assert console.problems == []


def test_a_long_id_leaves_room_for_the_choice_of_two_documents(
    service: Running, console: ConsolePage
) -> None:
    with service.client() as http:
        new_model(http, "long")
        click(http, "long", "i" * 128)
    page = console.open("why", "long")
    choice = page.get_by_label("B is other")
    choice.wait_for()
    card = page.locator("table.picks").evaluate("(one) => one.parentElement.clientWidth")
    assert page.locator("table.picks").evaluate("(one) => one.offsetWidth") <= card
    choice.click(trial=True)


def test_the_axis_of_a_single_time_is_short(console: ConsolePage) -> None:
    assert console.open("models").evaluate(ONE_TIME, 1_800_000_000) == 300


def test_a_burst_of_lists_is_over_when_it_is_over(console: ConsolePage) -> None:
    first, *later = console.open("models").evaluate(BURST)
    assert first == pytest.approx(50 / 60)
    assert later == [0, 0]
