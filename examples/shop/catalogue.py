"""Invented products in SQLite, with a full-text index; the same seed gives the same products."""

import random
import sqlite3
from itertools import product

COLOURS = ("red", "blue", "green", "black", "white", "yellow", "grey", "brown", "pink", "orange")
MATERIALS = ("wooden", "metal", "glass", "cotton", "leather", "plastic", "ceramic", "paper")
THINGS = (
    "lamp", "chair", "table", "bag", "mug", "clock", "shelf", "pillow", "carpet", "mirror", "vase",
    "box", "bottle", "basket", "bench",
)  # fmt: skip
MAKERS = ("Alder", "Brook", "Cedar", "Dale", "Elm")
#: Every combination of these is one product.
COUNT = len(COLOURS) * len(MATERIALS) * len(THINGS) * len(MAKERS)


def create(database: sqlite3.Connection, seed: int = 1) -> None:
    """Fill a new database with products."""
    database.executescript(
        """
        CREATE TABLE products (id INTEGER PRIMARY KEY, title TEXT, description TEXT,
            price REAL, rating REAL, reviews INTEGER, stock INTEGER, age INTEGER);
        CREATE VIRTUAL TABLE texts USING fts5 (title, description, content='products',
            content_rowid='id', tokenize='porter');
        """
    )
    database.executemany("INSERT INTO products VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _rows(seed))
    database.execute("INSERT INTO texts (texts) VALUES ('rebuild')")
    database.commit()


def _rows(seed: int) -> list[tuple[object, ...]]:
    rng = random.Random(seed)  # noqa: S311  # invented data
    found: list[tuple[object, ...]] = []
    combinations = product(COLOURS, MATERIALS, THINGS, MAKERS)
    for number, (colour, material, thing, maker) in enumerate(combinations, start=1):
        described = rng.sample(COLOURS, 2) + rng.sample(MATERIALS, 1) + rng.sample(THINGS, 1)
        found.append((
            number, f"{maker} {colour} {material} {thing}",
            f"A {material} {thing} in {colour}. Goes with {' and '.join(described)}.",
            round(rng.lognormvariate(3.3, 0.8), 2), round(rng.uniform(1.5, 5.0), 1),
            int(rng.paretovariate(0.8)), rng.choice((0, 0, 1, 5, 20)), rng.randrange(1000),
        ))  # fmt: skip
    return found


def opened(path: str) -> sqlite3.Connection:
    """Open a database of products; fill it if it is new."""
    database = sqlite3.connect(path, check_same_thread=False)
    database.row_factory = sqlite3.Row
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'products'").fetchone():
        create(database)
    return database
