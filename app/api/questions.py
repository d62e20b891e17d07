"""Questions with the documents of a query: the body, its limits, and the model that answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fastapi import Request
from msgspec import DecodeError

from app.api import decoding, memory
from app.api.dependencies import Service
from app.api.errors import undecodable
from app.api.routing import HELD, expect_json, read_body
from app.api.schemas import Document
from app.domain.candidates import Candidates
from app.domain.model import Model
from app.errors import InvalidInput
from app.serving.served_model import ServedModel
from app.storage.batching import LARGE, SMALL, Held

B = TypeVar("B")


async def read_question(
    service: Service, request: Request, decode: Callable[[bytes], B], fields: Any
) -> B:
    """Read and decode the body of a question, with the limits of /rank."""
    headers, held = dict(request.scope["headers"]), request.scope[HELD]
    expect_json(headers)
    body = await read_body(request.receive, headers, service.settings, held)
    if len(body) > LARGE:
        await service.memory.turn(len(body), body=True)
    if len(body) > SMALL:
        memory.hold_decoded(body, held)
    try:
        return decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error, fields) from None


@dataclass(frozen=True, slots=True)
class AskedModel:
    """The committed state of a model: one version with its weights and its covariance."""

    served: ServedModel
    model: Model


@asynccontextmanager
async def asked_model(service: Service, name: str) -> AsyncIterator[AskedModel]:
    """Load the committed state of a model, and hold its memory meanwhile."""
    async with service.holding((await service.weight_cache.find(name)).config):
        stored = await service.store.states.load(name, with_part=False)
        model, seq = stored.state.model, stored.state.seq
        config = model.config
        scale = model.certainty.scale(config.noise, config.exploration or 0.0)
        served = ServedModel(
            name, stored.epoch, seq, config, model.weights, stored.state.sums, 0.0, scale=scale
        )
        yield AskedModel(served, model)


async def question_candidates(
    service: Service,
    served: ServedModel,
    documents: Sequence[Document],
    scored: bool,
    held: Held,
) -> Candidates:
    """Convert the documents of a question to candidates, as /rank does; or as they were scored."""
    if scored:  # without prior, splines and normalisation, documents have all features as they are
        plain = replace(served.config, prior=0.0, splines=None, normalization="none")
        served = replace(served, config=plain)
    limits = service.settings
    numbers = decoding.feature_values(documents, served.config, limits)
    if numbers > memory.SMALL_ROWS:
        await memory.hold_rows(numbers, limits, held)
    return await asyncio.to_thread(decoding.candidates_of_documents, documents, served, limits)


def position_of(field: str, name: str, ids: Sequence[str]) -> int:
    """Return the position of a document; InvalidInput if there is none of this id."""
    try:
        return list(ids).index(name)
    except ValueError:
        raise InvalidInput(f"{field}: expected the id of a document") from None
