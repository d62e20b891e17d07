"""Candidates of a query with their features, in the order of the full-text index."""

import math
import re
import sqlite3
from dataclasses import dataclass

#: The features of a candidate, as the model gets them.
FEATURES = ("bm25_title", "bm25_description", "price", "rating", "reviews", "in_stock", "age")
#: Candidates of a query: more than a page shows, so that the model can bring one up.
CANDIDATES = 100
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Candidate:
    """A product that matches a query."""

    id: str
    title: str
    price: float
    rating: float
    stock: int
    features: dict[str, float]


def candidates(database: sqlite3.Connection, query: str) -> list[Candidate]:
    """Return the products with any word of the query, the best text match first.

    FTS5 gives a better match a smaller number, so its numbers are negated.
    """
    words = " OR ".join(f'"{word}"' for word in _WORD.findall(query))
    if not words:
        return []
    rows = database.execute(
        """
        SELECT products.*, bm25(texts, 1, 0) AS in_title, bm25(texts, 0, 1) AS in_description
        FROM texts JOIN products ON products.id = texts.rowid
        WHERE texts MATCH ? ORDER BY bm25(texts, 3, 1), products.id LIMIT ?
        """,
        (words, CANDIDATES),
    )
    return [_candidate(row) for row in rows]


def _candidate(row: sqlite3.Row) -> Candidate:
    values = (
        -row["in_title"], -row["in_description"], math.log(row["price"]), row["rating"],
        math.log(row["reviews"]), float(row["stock"] > 0), row["age"] / 1000,
    )  # fmt: skip
    features = dict(zip(FEATURES, values, strict=True))
    about = (row["title"], row["price"], row["rating"], row["stock"])
    return Candidate(str(row["id"]), *about, features)
