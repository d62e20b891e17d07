"""A user's script with solar-client; `tools/installed_client.py` type-checks and runs it.

It runs in an environment that has solar-client, an unrelated package `app`, and no numpy.
"""

import asyncio
import importlib.util
import sys
from dataclasses import dataclass

import solar_client
from solar_client import AsyncSolar, Job, NotFound, Ranking, RejectedEvent, Solar

import app  # the user's own


@dataclass(frozen=True)
class Product:
    """A document of the user."""

    id: str
    title: str
    features: dict[str, float]


PRODUCTS = [
    Product("d1", "One", {"bm25": 7.1, "price": 12.5}),
    Product("d7", "Seven", {"bm25": 9.8, "price": 3.0}),
]
JUDGED = b"2 qid:1 1:9.8 2:3\n0 qid:1 1:7.1 2:12.5\n"


def refused(event: RejectedEvent) -> None:
    """Report an event that the service refused."""
    sys.exit(f"{event.event_id}: {event.status} {event.detail}")


def titles(ranking: Ranking) -> list[str]:
    """The titles in the order to show."""
    by_id = {product.id: product.title for product in PRODUCTS}
    return [by_id[document.id] for document in ranking.documents]


def session(url: str) -> None:
    """Use the client for threads."""
    with Solar(url, model="shop", on_rejected=refused) as solar:
        solar.create_model("shop", ["bm25", "price"], normalization="query-minmax", prior=0)
        ranking = solar.rank(PRODUCTS, top_k=10, timeout=20.0)
        assert sorted(titles(ranking)) == ["One", "Seven"]
        assert not ranking.degraded
        event_id: str | None = solar.click(ranking, "d7")
        assert event_id
        solar.label(ranking.request_id, {"d7": 2})
        solar.prefer(None, [("d7", "d1"), ("d7", "d1", 0.5)], documents=PRODUCTS)
        assert solar.flush(20.0).acknowledged == 3
        shares: list[float] = []
        job: Job = solar.warm_start(
            "shop", JUDGED, C=0.1, on_progress=lambda found: shares.append(found.share_done)
        )
        assert (job.state, shares[-1]) == ("done", 1.0)
        assert solar.list_versions("shop")[0].version == 0
        try:
            solar.get_model("unknown")
        except NotFound as error:
            print("expected:", error.status, error.detail)


async def async_session(url: str) -> None:
    """Use the client for asyncio."""
    async with AsyncSolar(url, model="shop") as solar:
        rows = [[7.1, 12.5], [9.8, 3.0]]
        ranking = await solar.rank(["d1", "d7"], rows, timeout=20.0)
        solar.click(ranking, ranking.ids[0])
        assert (await solar.flush(20.0)).acknowledged == 1


if __name__ == "__main__":
    assert app.OF_THE_USER
    assert importlib.util.find_spec("numpy") is None
    session(sys.argv[1])
    asyncio.run(async_session(sys.argv[1]))
    print(f"solar-client {solar_client.__version__} ranked, sent feedback and trained")
