"""Named versions: the calls of solar-client against a real service."""

from collections.abc import Iterator

import pytest
from solar_client import Conflict, NotFound, Solar

from tests.api.services import serving
from tests.servers import TIMEOUT, until

DOCUMENTS = [{"id": "a", "features": [1.0, 0.0]}, {"id": "b", "features": [0.0, 1.0]}]


@pytest.fixture
def solar() -> Iterator[Solar]:
    with serving() as running, Solar(running.url, model="m") as client:
        client.create_model("m", 2, prior=0)
        yield client


def test_a_version_is_named_listed_restored_and_deleted(solar: Solar) -> None:
    solar.label(None, {"a": 1}, documents=DOCUMENTS)
    assert solar.flush(TIMEOUT).acknowledged == 1
    until(lambda: solar.get_model("m").version == 1)
    made = solar.create_version("m", "before-sale")
    assert (made.name, made.version) == ("before-sale", 1)
    assert made.size is not None
    assert made.size > 0
    assert made.time is not None
    assert "before-sale" in [one.name for one in solar.list_versions("m")]
    with pytest.raises(Conflict):
        solar.create_version("m", "before-sale")
    assert solar.rollback("m", "before-sale") == 2
    ranking = solar.rank(DOCUMENTS, version="before-sale", explore=False, timeout=TIMEOUT)
    assert (ranking.version, ranking.ids) == (1, ["a", "b"])
    assert solar.rank(DOCUMENTS, version=0, explore=False, timeout=TIMEOUT).version == 0
    solar.delete_version("m", "before-sale")
    with pytest.raises(NotFound):
        solar.delete_version("m", "before-sale")


def test_the_measures_since_a_version_are_read(solar: Solar) -> None:
    for found in solar.list_versions("m"):
        assert found.since is None or "queries" in found.since
