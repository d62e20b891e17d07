"""Scores computed in the page agree with those of /rank, up to the rounding of a sum.

Without Chromium these tests are skipped; `tools/ops/browser.sh` installs it first.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Error, Page

from tests.api.services import Running
from tests.console.browser import CHROMIUM, chromium
from tests.console.traffic import TASTE, new_model, visit
from tests.waits import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="expected chromium on PATH, got none")

#: Models by name: with and without scaling, with and without the submitted order as a feature, and
#: with splines.
MODELS: dict[str, dict[str, Any]] = {
    "plain": {"normalization": "none", "prior": 0},
    "ordered": {"normalization": "none"},
    "scaled": {"normalization": "query-minmax", "prior": 0},
    "scaled-ordered": {"normalization": "query-minmax"},
    "bent": {"splines": {"bm25": [-0.1, 0.3], "popularity": [1e-4]}, "prior": 0},
    "scaled-bent": {"splines": {"returns": [0.1, 0.7]}, "normalization": "query-minmax"},
}
SCORE = """async ([module, model, text]) => {
  const { parseDocuments, scoreList, scorerOf, orderOf } = await import(module);
  const scorer = scorerOf(model);
  const scores = scoreList({ documents: parseDocuments(text, scorer), scored: false }, scorer);
  return { scores, order: orderOf(scores) };
}"""


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    """Return a client after each model has learnt from some clicks."""
    rng = np.random.default_rng(3)
    with running.client() as http:
        for name, settings in MODELS.items():
            new_model(http, name, **settings)
            last = max(visit(http, name, rng) for _ in range(30))
            until(partial(has_learnt, http, name, last))
        yield http


@pytest.fixture(scope="module")
def page(running: Running) -> Iterator[Page]:
    with chromium() as browser:
        opened = browser.new_page()
        opened.goto(f"{running.url}/console/")
        yield opened


def model_of(http: httpx.Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/models/{name}").json()
    return found


def has_learnt(http: httpx.Client, name: str, seq: int) -> bool:
    return bool(model_of(http, name)["version"] >= seq)


def scored_in_page(page: Page, model: dict[str, Any], text: str) -> dict[str, list[float]]:
    module = page.url.partition("#")[0] + "scoring.js"
    found: dict[str, list[float]] = page.evaluate(SCORE, [module, model, text])
    return found


def drawn_documents(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Draw documents: values that float32 rounds, a constant feature, two equal documents."""
    rows = rng.standard_normal((9, len(TASTE))) * [1, 1e-3, 1e3, 1, 7]
    rows[:, 3] = 0.1
    rows[5] = rows[2]
    return [{"id": f"d{at}", "features": row} for at, row in enumerate(rows.tolist())]


@pytest.mark.parametrize("name", MODELS)
def test_the_page_scores_and_orders_documents_as_rank_does(
    client: httpx.Client, page: Page, name: str
) -> None:
    rng = np.random.default_rng(5)
    model = model_of(client, name)
    assert any(model["weights"].values())
    for _ in range(20):
        given = drawn_documents(rng)
        body = {"model": name, "documents": given, "explore": False, "log": False}
        ranked = client.post("/rank", json=body).json()["documents"]
        here = scored_in_page(page, model, json.dumps(given))
        ids = [given[int(at)]["id"] for at in here["order"]]
        scores = [here["scores"][int(at)] for at in here["order"]]
        assert ids == [one["id"] for one in ranked]
        assert scores == pytest.approx([one["score"] for one in ranked], rel=1e-12, abs=1e-12)


CHANGED = """async ([module, model, shown, row]) => {
  const { scoreList, scorerOf, withScored } = await import(module);
  const scorer = scorerOf(model);
  const features = row.reduce((before, value, k) => withScored(before, k, value, scorer), shown);
  const list = (features, scored) => ({ documents: [{ id: "a", features }], scored });
  return [scoreList(list(features, true), scorer), scoreList(list(row, false), scorer)].flat();
}"""


def test_the_ramps_of_a_shown_document_follow_its_features(
    client: httpx.Client, page: Page
) -> None:
    model, module = model_of(client, "bent"), page.url.partition("#")[0] + "scoring.js"
    shown = client.get("/models/bent/impressions").json()["impressions"][0]["documents"][0]
    row = np.random.default_rng(7).standard_normal(len(TASTE)).astype(np.float32).tolist()
    assert len(shown["features"]) == len(TASTE) + 3
    changed, submitted = page.evaluate(CHANGED, [module, model, shown["features"], row])
    assert changed == pytest.approx(submitted, rel=1e-12)


@pytest.mark.usefixtures("client")
def test_a_shown_list_has_a_slider_for_each_feature_and_none_for_a_ramp(
    running: Running, page: Page
) -> None:
    page.goto(f"{running.url}/console/#/models/scaled-bent/try")
    page.locator(".slider-name").first.wait_for()
    names = page.locator(".slider-name").all_inner_texts()
    assert sorted(names) == sorted([*TASTE, "submitted order"])


def test_the_page_reads_documents_by_name_and_an_absent_feature_is_0(
    client: httpx.Client, page: Page
) -> None:
    model = model_of(client, "plain")
    named = '{"documents": [{"id": "a", "features": {"price": 2}}, {"id": "b", "features": {}}]}'
    found = scored_in_page(page, model, named)
    assert found["scores"] == [pytest.approx(2 * model["weights"]["price"]), 0.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing is pasted yet"),
        ("{", "expected JSON"),
        ("[]", "expected a list of documents"),
        ('[{"id": "", "features": []}]', r"documents\[0\]\.id: expected a text"),
        ('[{"id": "a", "features": [1]}]', r"documents\[0\]\.features: expected 5 values, got 1"),
        ('[{"id": "a", "features": {"colour": 1}}]', 'unknown feature "colour"'),
        ('[{"id": "a", "features": {"price": "1"}}]', "features.price: expected a number"),
        ('[{"id": "a", "features": {}}, {"id": "a", "features": {}}]', "a is there twice"),
    ],
)
def test_the_page_says_what_is_wrong_with_pasted_documents(
    client: httpx.Client, page: Page, text: str, message: str
) -> None:
    with pytest.raises(Error, match=message):
        scored_in_page(page, model_of(client, "plain"), text)


@pytest.mark.parametrize("name", ["plain", "scaled", "bent"])
def test_the_order_follows_a_slider_as_rank_does(
    running: Running, client: httpx.Client, page: Page, name: str
) -> None:
    page.goto(f"{running.url}/console/#/models/{name}/try")
    page.get_by_role("button", name="Paste documents").click()
    page.get_by_role("button", name="Use an example").click()
    given = json.loads(page.locator("#pasted-list").input_value())
    selected = page.locator(".ranking .selected .id").inner_text()
    features = next(one["features"] for one in given if one["id"] == selected)
    seen = [page.locator(".ranking .id").all_inner_texts()]
    for at, end in [(0, "Home"), (0, "End"), (1, "Home"), (1, "End")]:
        slider = page.get_by_role("slider").nth(at)
        slider.press(end)
        features[page.locator(".slider-name").nth(at).inner_text()] = float(slider.input_value())
        body = {"model": name, "documents": given, "explore": False, "log": False}
        ranked = [one["id"] for one in client.post("/rank", json=body).json()["documents"]]
        seen.append(page.locator(".ranking .id").all_inner_texts())
        assert seen[-1] == ranked
    assert len(set(map(tuple, seen))) > 1
