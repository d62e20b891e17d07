"""The catalogue, the search and the page of the example shop."""

import importlib
import json
import re
import sqlite3
import sys
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from app.api.tokens import new_token_key
from examples.shop import catalogue
from examples.shop.search import FEATURES, candidates
from tests.api.services import Running, serving


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    opened = catalogue.opened(":memory:")
    yield opened
    opened.close()


def test_the_catalogue_has_thousands_of_products(database: sqlite3.Connection) -> None:
    [count] = database.execute("SELECT count(*) FROM products").fetchone()
    assert count == catalogue.COUNT >= 5_000


def test_the_same_seed_gives_the_same_products(database: sqlite3.Connection) -> None:
    other = catalogue.opened(":memory:")
    rows = "SELECT * FROM products ORDER BY id"
    assert [*map(tuple, database.execute(rows))] == [*map(tuple, other.execute(rows))]
    other.close()


def test_the_best_text_matches_come_first(database: sqlite3.Connection) -> None:
    found = candidates(database, "red lamp")
    assert len(found) == 100
    assert all("red" in one.title and "lamp" in one.title for one in found[:20])
    assert all(one.features.keys() == set(FEATURES) for one in found)


@pytest.mark.parametrize("query", ["", '"', "*", "NEAR(", "'; DROP TABLE products; --", "a" * 9999])
def test_any_query_is_searched_for(database: sqlite3.Connection, query: str) -> None:
    assert isinstance(candidates(database, query), list)


@pytest.fixture
def running() -> Iterator[Running]:
    with serving(environ={"SOLAR_TOKEN_KEYS": new_token_key("k1")}) as started:
        yield started


@pytest.fixture
def page(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("SHOP_SOLAR_URL", running.url)
    shop = importlib.import_module("examples.shop.shop")
    with TestClient(shop.app) as opened:
        yield opened
    shop.solar.close()
    shop.database.close()
    del sys.modules["examples.shop.shop"]


def found_in(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]


def test_a_cookie_names_the_visitor_whose_beacons_are_accepted(
    page: TestClient, running: Running
) -> None:
    first = page.get("/?q=red+lamp")
    viewer = first.cookies["visitor"]
    assert len(viewer) == 32
    second = page.get("/?q=red+lamp")
    assert "set-cookie" not in second.headers
    assert [found_in(one.text, 'viewer: "(.*)"') for one in (first, second)] == [viewer, viewer]
    event = {
        "token": found_in(second.text, 'data-solar-token="(.*?)"'),
        "clicked": [found_in(second.text, 'data-solar-id="(.*?)"')],
    }
    with running.client() as client:
        for one in (event, {**event, "viewer": viewer}):
            content = json.dumps({"events": [one]})
            client.post("/beacon", content=content, headers={"content-type": "text/plain"})
        metrics = client.get("/metrics").text
    for outcome in ("forged", "accepted"):
        assert f'solar_beacon_events_total{{outcome="{outcome}"}} 1.0' in metrics


@pytest.mark.parametrize("cookie", ["", "short", "Z" * 32, '"</script>'])
def test_a_cookie_that_the_shop_has_not_made_is_replaced(page: TestClient, cookie: str) -> None:
    answer = page.get("/?q=lamp", headers={"cookie": f"visitor={cookie}"})
    viewer = found_in(answer.text, 'viewer: "(.*)"')
    assert answer.cookies["visitor"] == viewer != cookie
    assert re.fullmatch("[0-9a-f]{32}", viewer)
