"""The shop: a page with a search box, results in SOLAR's order, and a page for each product.

The browser sends the clicks itself: the page has the token of its ranking, and loads `solar.js`.
"""

import os
import re
import secrets
from collections.abc import Sequence
from html import escape
from typing import Annotated

from fastapi import Cookie, FastAPI
from fastapi.responses import HTMLResponse
from solar_client import Solar

from examples.shop import catalogue
from examples.shop.search import FEATURES, Candidate, candidates

SOLAR_URL = os.environ.get("SHOP_SOLAR_URL", "http://127.0.0.1:8000")
MODEL, SHOWN = "shop", 10
VISITOR = re.compile("[0-9a-f]{32}")

database = catalogue.opened(os.environ.get("SHOP_DATABASE", ":memory:"))
solar = Solar(SOLAR_URL, model=MODEL)
solar.create_model(MODEL, list(FEATURES), normalization="query-minmax")
app = FastAPI(title="Shop")

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Shop</title>
<style>body {{ font: 16px system-ui; margin: 2rem auto; max-width: 40rem }} li {{ margin: .7rem 0 }}
small {{ color: #555 }}</style>
<form><input name="q" value="{query}" aria-label="Search" autofocus> <button>Search</button></form>
<ol data-solar-token="{token}">{results}</ol>
<script type="module">
import {{ solar }} from "{url}/solar.js";
solar("{url}/beacon", {{ viewer: "{viewer}" }});
</script></html>"""
RESULT = """<li data-solar-id="{id}"><a href="/products/{id}">{title}</a>
<small>{price:.2f} € · {rating} ★ · {stock}</small>
<button data-solar-action="add_to_cart" type="button">Add to cart</button></li>"""


@app.get("/", response_class=HTMLResponse)
def search_page(q: str = "", visitor: Annotated[str, Cookie()] = "") -> HTMLResponse:
    """Show the products that match, in the order of the model; a cookie names the visitor."""
    viewer = visitor if VISITOR.fullmatch(visitor) else secrets.token_hex(16)
    found = candidates(database, q)
    token, shown = _ranked(found, q, viewer) if found else ("", [])
    results = "".join(_result(one) for one in shown)
    text = PAGE.format(query=escape(q), token=token, results=results, url=SOLAR_URL, viewer=viewer)
    page = HTMLResponse(text)
    if viewer != visitor:
        page.set_cookie("visitor", viewer, max_age=86_400, httponly=True, samesite="lax")
    return page


def _ranked(found: Sequence[Candidate], query: str, viewer: str) -> tuple[str, list[Candidate]]:
    """Return the token of a ranking and its first products; as found, if SOLAR is away."""
    ranking = solar.rank(found, query_id=query[:128], top_k=SHOWN, viewer=viewer)
    by_id = {one.id: one for one in found}
    return ranking.token or "", [by_id[name] for name in ranking.ids]


def _result(one: Candidate) -> str:
    stock = "in stock" if one.stock else "sold out"
    about = {"price": one.price, "rating": one.rating, "stock": stock}
    return RESULT.format(id=one.id, title=escape(one.title), **about)


@app.get("/products/{number}", response_class=HTMLResponse)
def product_page(number: int) -> str:
    """Show a product."""
    row = database.execute("SELECT * FROM products WHERE id = ?", (number,)).fetchone()
    return f"<h1>{escape(row['title'])}</h1><p>{escape(row['description'])}" if row else "Unknown"
