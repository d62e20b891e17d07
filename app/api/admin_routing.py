"""Routes that continue in FastAPI: dependencies, pydantic, response models; and its errors."""

from collections.abc import Callable, Coroutine
from typing import Any, get_args

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from app.api.admin_schemas import Body
from app.api.auth import Key
from app.api.errors import PROBLEM_MEDIA_TYPE, Problem, invalid, undecodable
from app.api.memory import hold_decoded
from app.api.routing import HELD, GuardedRoute, Headers, Reply, expect_json, guard_of, read_body
from app.api.schemas import object_decoder
from app.storage.batching import SMALL


class AdminRoute(GuardedRoute):
    """A FastAPI route with a bounded body of strict JSON."""

    async def work(
        self, scope: Scope, receive: Receive, reply: Reply, _headers: Headers, _key: Key, /
    ) -> None:
        """Continue in FastAPI."""
        await super(GuardedRoute, self).handle(scope, receive, reply)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Read the body before FastAPI, which has no limit."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        fields = tuple(_field_names(self.body_field.field_info.annotation))
        decode = object_decoder(fields)

        async def with_body(request: Request) -> Response:
            headers, held = dict(request.scope["headers"]), request.scope[HELD]
            expect_json(headers)
            body = await read_body(request.receive, headers, guard_of(request.scope).settings, held)
            if len(body) > SMALL:
                hold_decoded(body, held)
            try:
                decoded = decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise undecodable(error, {"": fields}) from None
            return await handler(ReadRequest(request, body, decoded))

        return with_body


def _field_names(body: Any) -> dict[str, None]:
    """Return the names of the fields of a body, or of all its kinds."""
    if isinstance(body, type) and issubclass(body, Body):
        return dict.fromkeys(body.field_names())
    return {name: None for kind in get_args(body) for name in _field_names(kind)}


class ReadRequest(Request):
    """A request whose body has been read."""

    def __init__(self, request: Request, body: bytes, decoded: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._read, self._decoded = body, decoded

    async def body(self) -> bytes:
        """Return the body."""
        return self._read

    async def json(self) -> Any:
        """Return the decoded body."""
        return self._decoded


async def answer_problem(_: Request, error: Exception) -> Response:
    """Answer an error that FastAPI raises: an invalid body, or an HTTPException."""
    if isinstance(error, RequestValidationError):
        found = invalid(error.errors())
    elif isinstance(error, HTTPException):
        found = Problem(error.status_code, str(error.detail), error.headers)
    else:
        raise error
    return Response(found.body({}), found.status, found.headers, PROBLEM_MEDIA_TYPE)
