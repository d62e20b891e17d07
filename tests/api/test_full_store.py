"""A flood by one API key: the lists of other keys are still logged, and their feedback accepted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import auth
from app.storage.embedded.server import EmbeddedServer
from tests.api.services import PLAIN, application
from tests.servers import client as redis_client

MEMORY = 40 << 20
#: Documents of a large body: 100 kB in the store.
ROWS = [{"id": f"document {at}", "features": [at / 500] * 50} for at in range(500)]
SMALL = [{"id": "d1", "features": [1] * 50}, {"id": "d2", "features": [0] * 50}]
MOST_REQUESTS = 3_000


class Service:
    """The service, and requests with the key of a name."""

    def __init__(self, client: TestClient, keys: dict[str, str], url: str) -> None:
        self._client, self._keys, self._url = client, keys, url

    def ask(self, key: str, path: str, body: dict[str, Any], method: str = "POST") -> Any:
        headers = {"authorization": f"Bearer {self._keys[key]}"}
        return self._client.request(method, path, json={**body}, headers=headers)

    def use(self) -> float:
        """Return the used share of the store's memory."""
        with redis_client(self._url) as connection:
            return float(connection.info("memory")["used_memory"] / MEMORY)

    def flood_ranks(self, at: int) -> bool:
        """Rank a large list with the key `flood`; return whether it was refused."""
        body = {"model": "books", "request_id": f"flood {at}", "documents": ROWS}
        return not self.ask("flood", "/rank", body).json()["logged"]

    def flood_posts(self, at: int) -> bool:
        """Post a large event with the key `flood`; return whether it was refused."""
        event = {"type": "labels", "model": "books", "event_id": f"flood {at}", "documents": ROWS}
        reply = self.ask("flood", "/feedback", {**event, "labels": {}})
        assert reply.status_code in (202, 429), reply.text
        assert reply.status_code == 202 or int(reply.headers["retry-after"]) > 0
        return bool(reply.status_code == 429)

    def check_others(self, at: int) -> None:
        """Rank and click with the key `web`."""
        request = f"web {at}"
        body = {"model": "books", "request_id": request, "documents": SMALL}
        assert self.ask("web", "/rank", body).json()["logged"]
        click = {"type": "clicks", "event_id": request, "model": "books", "request_id": request}
        assert self.ask("web", "/feedback", {**click, "clicked": ["d2"]}).status_code == 202


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    keys = {name: auth.new_key(name, "rank+feedback+admin") for name in ("flood", "web")}
    entries = ",".join(entry for _, entry in keys.values())
    with (
        EmbeddedServer.start(tmp_path, memory=MEMORY, fsync="everysec") as server,
        application(server.url, keys=entries) as client,
    ):
        found = Service(client, {name: secret for name, (secret, _) in keys.items()}, server.url)
        model = {"features": 50, **PLAIN}
        assert found.ask("web", "/models/books", model, "PUT").status_code == 201
        yield found


@pytest.mark.parametrize(
    "flood", [pytest.param(Service.flood_ranks, marks=pytest.mark.slow), Service.flood_posts]
)
def test_a_flood_by_one_key_leaves_room_for_the_others(service: Service, flood: Any) -> None:
    refused = 0
    for at in range(MOST_REQUESTS):
        refused += flood(service, at)
        if at % 10 == 0:
            service.check_others(at)
        if refused >= 60:
            break
    assert refused >= 60
    assert 0.6 < service.use() < 0.8
