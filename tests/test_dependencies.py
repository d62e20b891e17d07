"""Lookup of a request's model, and creation of the default model."""

from contextlib import suppress

import pytest

from app.api.dependencies import DEFAULT, Service
from app.config import Settings
from app.domain.model import initial_state
from app.domain.model_config import new_model_config
from app.errors import ModelExists, Unavailable
from app.main import create_app
from app.serving.served_model import ServedModel
from app.storage.store import Store
from tests.api.services import application
from tests.servers import server, url, with_store

__all__ = ["server", "url"]  # fixtures


@pytest.fixture
def settings(url: str) -> Settings:
    return Settings(redis_url=url, default_features="2", learner=False)


def test_an_invalid_request_creates_no_default_model(settings: Settings) -> None:
    async def act(store: Store) -> None:
        app = create_app(settings)
        async with app.router.lifespan_context(app):
            service: Service = app.state.service

            async def nothing(served: ServedModel) -> None:
                assert (served.epoch, served.config.given) == (0, ("f1", "f2"))

            await service.resolve(DEFAULT, nothing)
            assert await store.models.names() == []

    with_store(settings.redis_url, act)


def test_a_default_model_created_meanwhile_with_other_features_is_unavailable(
    settings: Settings,
) -> None:
    """The decoded request does not fit the model: trying again is safe."""

    async def act(store: Store) -> None:
        others = new_model_config(("bm25", "price", "age"))
        app = create_app(settings)
        async with app.router.lifespan_context(app):
            service: Service = app.state.service

            async def width(served: ServedModel) -> int:
                with suppress(ModelExists):  # between the lookup and the attempt to create it
                    await store.models.create(DEFAULT, initial_state(others))
                return len(served.config.given)

            with pytest.raises(Unavailable, match="with other features"):
                await service.resolve(DEFAULT, width)
            served, decoded = await service.resolve(DEFAULT, width)
            assert (served.epoch, served.config, decoded) == (1, others, 3)

    with_store(settings.redis_url, act)


def test_the_first_request_creates_the_default_model(url: str) -> None:
    with application(url, default_features="bm25, price") as http:
        assert http.get("/models").json() == {"models": []}
        documents = [{"id": "a", "features": {"price": 1.0}}, {"id": "b", "features": [1, 0]}]
        other = http.post("/rank", json={"model": "other", "documents": documents})
        assert other.status_code == 404
        assert http.get("/models").json() == {"models": []}
        answered = http.post("/rank", json={"documents": documents})
        assert answered.status_code == 200, answered.text
        assert answered.json()["model"] == "default"
        assert answered.json()["request_id"].startswith("default.")
        details = http.get("/models/default").json()
        assert (details["features"], details["algorithm"]) == (["bm25", "price"], "solar-ii")


def test_feedback_can_create_the_default_model(url: str) -> None:
    with application(url, default_features="2") as http:
        event = {
            "event_id": "e", "type": "labels", "labels": {"b": 1},
            "documents": [{"id": "a", "features": [1, 0]}, {"id": "b", "features": [0, 1]}],
        }  # fmt: skip
        posted = http.post("/feedback", json=event)
        assert (posted.status_code, posted.json()["seq"]) == (202, 1)
        assert http.get("/models/default").json()["features"] == ["f1", "f2"]
