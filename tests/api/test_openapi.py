"""`/openapi.json` tells the truth: whatever it allows or forbids, the service keeps to it."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from app.api.routes import ROUTES
from hypothesis import HealthCheck, Phase, given, reject, settings
from schemathesis import Case, GenerationMode, Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.services import Running, serving

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
OPERATIONS = [(route.method, route.path) for route in ROUTES]
OPEN = ["/healthz", "/readyz", "/metrics"]
EXAMPLES = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schemathesis.serializer("application/msgpack")
def as_msgpack(_: Any, body: Any) -> bytes:
    """JSON has no bytes, so the document speaks of base64; on the wire they are bytes."""
    if isinstance(body, dict) and isinstance(body.get("features"), str):
        body = {**body, "features": as_bytes(body["features"])}
    try:
        return msgspec.msgpack.encode(body)
    except OverflowError:  # msgpack has no such numbers
        reject()


def as_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode(errors="replace")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(environ={"SOLAR_WAIT_SECONDS": "0", "SOLAR_DEFAULT_FEATURES": "2"}) as started:
        yield started


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as found:
        yield found


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> Any:
    return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def schema(running: Running) -> Any:
    return schemathesis.openapi.from_url(f"{running.url}/openapi.json")


def not_our_fault(response: Response, case: Case[Any]) -> None:
    """No 5xx, but for a version that is not served yet."""
    asked = isinstance(case.body, dict) and "min_seq" in case.body
    assert response.status_code < 500 or (response.status_code == 503 and asked)


def small(response: Response) -> None:
    assert response.status_code < 400 or len(response.content) <= 2000


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_the_document_allows_is_understood(schema: Any, method: str, path: str) -> None:
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.POSITIVE))
    @EXAMPLES
    def holds(case: Case[Any]) -> None:
        response = case.call()
        not_our_fault(response, case)
        small(response)
        assert response.status_code not in {400, 405, 408, 413, 415}
        case.validate_response(response, checks=CHECKS)

    holds()


#: All but what cannot be asked wrongly.
FORBIDDING = [one for one in OPERATIONS if one != ("GET", "/models")]


@pytest.mark.parametrize(("method", "path"), FORBIDDING)
def test_what_the_document_forbids_is_refused(schema: Any, method: str, path: str) -> None:
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    @EXAMPLES
    def holds(case: Case[Any]) -> None:
        response = case.call()
        not_our_fault(response, case)
        small(response)
        case.validate_response(response, checks=[*CHECKS, negative_data_rejection])

    holds()


@pytest.mark.parametrize("path", OPEN)
def test_what_ops_ask_for_is_documented(schema: Any, path: str) -> None:
    case = schema[path]["GET"].Case()
    response = case.call()
    assert response.status_code == 200
    case.validate_response(response, checks=CHECKS)


def test_every_path_is_in_the_document(document: Any) -> None:
    said = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert said == {*OPERATIONS, *(("GET", path) for path in OPEN)}
    assert "the last one counts" in document["info"]["description"]


def test_every_operation_documents_its_success_and_its_refusals(document: Any) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            statuses = set(operation["responses"])
            assert any(status < "300" for status in statuses), (path, method)
            assert "503" in statuses
            if path not in OPEN:
                assert {"401", "403"} <= statuses
            if "requestBody" in operation:
                assert {"400", "408", "413", "415", "422"} <= statuses


def example(document: Any, method: str, path: str) -> Any:
    content = document["paths"][path][method.lower()]["requestBody"]["content"]
    return content["application/json"]["example"]


def answers(document: Any, method: str, path: str, status: int) -> Any:
    said = document["paths"][path][method.lower()]["responses"][str(status)]
    return said["content"]["application/json"]["example"]


def alike(example: Any, answer: Any) -> bool:
    """Whether an answer has what its example has, of the same kinds."""
    match example:
        case dict():
            return isinstance(answer, dict) and all(
                name in answer and alike(value, answer[name]) for name, value in example.items()
            )
        case list():
            return isinstance(answer, list) and all(
                alike(one, other) for one, other in zip(example, answer, strict=False)
            )
        case bool() | str():
            return type(example) is type(answer)
        case _:
            return isinstance(answer, int | float) and not isinstance(answer, bool)


def test_every_example_does_what_it_says(client: httpx.Client, document: Any) -> None:
    """One life of a model, told by the examples alone."""
    path = "/models/{name}"

    def ask(method: str, path: str, status: int, body: Any = ...) -> Any:
        told = example(document, method, path) if body is ... else body
        reply = client.request(method, path.format(name="books"), json=told)
        assert reply.status_code == status, reply.text
        return reply.json()

    made = ask("PUT", path, 201)
    assert alike(answers(document, "PUT", path, 201), made)
    assert ask("PUT", path, 200) == made
    ranked = ask("POST", "/rank", 200)
    assert alike(answers(document, "POST", "/rank", 200), ranked)
    assert ranked["logged"]
    ask("POST", "/feedback", 410)  # the example's own request is long ago
    event = example(document, "POST", "/feedback") | {"request_id": ranked["request_id"]}
    received = ask("POST", "/feedback", 202, event)
    assert alike(answers(document, "POST", "/feedback", 202), received)
    tuned = ask("PATCH", path, 202)
    assert alike(answers(document, "PATCH", path, 202), tuned)
    assert tuned["seq"] == received["seq"] + 1
    ask("POST", f"{path}/rollback", 404)  # nor is its version kept
    rolled = ask("POST", f"{path}/rollback", 202, {"version": 0})
    assert alike(answers(document, "POST", f"{path}/rollback", 202), rolled)
    listed = client.get("/models").json()
    assert alike(answers(document, "GET", "/models", 200), listed)
    kept = client.get("/models/books/versions").json()
    assert alike(answers(document, "GET", f"{path}/versions", 200), kept)


def test_the_documentation_is_a_page_that_needs_nothing_from_elsewhere(
    client: httpx.Client,
) -> None:
    reply = client.get("/docs")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    for route in ROUTES:
        assert f"{route.method} {route.path}" in reply.text
    assert not re.search(r"<script|<link|<img|src=|url\(|https?://", reply.text)
