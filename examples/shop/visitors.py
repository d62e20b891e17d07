"""Simulated visitors of the shop in a real browser, whose preferences are known.

A visitor searches, reads the results from the top, and opens what is good enough. What is good: all
words of the query in the title, cheap, well rated, in stock. So the NDCG of a page is known, too.
"""

import argparse
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from playwright.sync_api import Page, sync_playwright

from examples.shop import catalogue, start
from examples.shop.search import Candidate, candidates

FLAGS = [
    "--disable-background-networking", "--disable-component-update", "--disable-gpu",
    "--disable-sync", "--no-first-run", "--no-sandbox",
]  # fmt: skip
#: The chance to click on a document of each grade, and to stop after a click.
CLICKS, STOPS = (0.03, 0.15, 0.45, 0.8, 0.95), 0.6
SHOWN = 10
#: The last third of 300 visitors must see an NDCG@10 that is higher than that of the first by this.
#: Five seeds without a browser, with the same pages and clicks: 0.14 to 0.29; one with it: 0.10.
LEAST_RISE = 0.02


def grade(one: Candidate, query: str) -> int:
    """Return how much visitors like a product, 0 to 4."""
    matches = all(word in one.title.lower() for word in query.split())
    liked = (one.price < 25, one.rating >= 3.5, one.stock > 0)
    return sum(liked) + 1 if matches else 0


def ndcg(shown: Sequence[int], every: Sequence[int]) -> float:
    """Return NDCG@10 of the grades shown, of all that match."""
    ideal = _dcg(sorted(every, reverse=True))
    return _dcg(shown) / ideal if ideal else 0.0


def _dcg(grades: Sequence[int]) -> float:
    return sum((2.0**one - 1.0) / math.log2(rank + 2) for rank, one in enumerate(grades[:SHOWN]))


@dataclass
class Visits:
    """Visitors one after the other; `quality` is the NDCG of what each was shown."""

    shop: str
    seed: int = 1
    quality: list[float] = field(default_factory=list)
    clicks: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)  # noqa: S311  # a simulation
        self._database = catalogue.opened(":memory:")

    def rise(self) -> float:
        """Return the mean quality of the last third of the visitors less that of the first."""
        third = max(1, len(self.quality) // 3)
        return fmean(self.quality[-third:]) - fmean(self.quality[:third])

    def one(self, page: Page) -> None:
        """Search, read from the top, click."""
        rng = self._rng
        query = f"{rng.choice(catalogue.COLOURS)} {rng.choice(catalogue.THINGS)}"
        page.goto(f"{self.shop}/?q={query.replace(' ', '+')}")
        ids = page.locator("[data-solar-id]").evaluate_all("all => all.map(x => x.dataset.solarId)")
        grades = {one.id: grade(one, query) for one in candidates(self._database, query)}
        shown = [grades[name] for name in ids]
        self.quality.append(ndcg(shown, [*grades.values()]))
        for name, of_document in zip(ids, shown, strict=True):
            if rng.random() < CLICKS[of_document]:
                self.clicks += 1
                page.locator(f'[data-solar-id="{name}"] a').click(modifiers=["Control"])
                if rng.random() < STOPS:
                    break
        page.goto("about:blank")  # leaves the page, which sends the clicks


def visit(shop: str, count: int, seed: int = 1) -> Visits:
    """Let visitors come in a browser."""
    visits = Visits(shop, seed)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for _ in range(count):
            context = browser.new_context()
            visits.one(context.new_page())
            context.close()
        browser.close()
    return visits


def main(arguments: Sequence[str]) -> int:
    """Start everything, let visitors come, and print the NDCG of what they were shown.

    The exit code is 1 if it has not risen from the first third of them to the last.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="shop-") as data,
        start.running(data, 8010, 8110) as shop,
    ):
        found = visit(shop, options.visitors, options.seed)
    part = max(1, options.visitors // 6)
    for first in range(0, options.visitors, part):
        some = found.quality[first : first + part]
        mean = sum(some) / len(some)
        print(f"visitors {first + 1:4} to {first + len(some):4}: NDCG@10 {mean:.3f}")  # noqa: T201
    rise = found.rise()
    print(f"{found.clicks} clicks; the last third saw {rise:+.3f}, expected {LEAST_RISE:+.3f}")  # noqa: T201
    return 0 if rise >= LEAST_RISE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
