"""`/openapi.json` matches the service: it accepts and refuses what the document says."""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, reject, settings
from schemathesis import Case, GenerationMode, Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.errors import TITLES
from app.api.tokens import new_token_key
from tests.api.operations import GUARDED, Operation
from tests.api.operations import OPEN as OPEN_OPERATIONS
from tests.api.services import Running, serving
from tests.faults import rounds
from tests.servers import until

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
BEACON = ("POST", "/beacon")
OPERATIONS = [*((one.method, one.path) for one in GUARDED), BEACON]
#: Answers with an end; that of the stream has none, see test_stream.py.
ANSWERED = [one for one in OPERATIONS if one != ("GET", "/models/{name}/stream")]
OPEN = [one.path for one in OPEN_OPERATIONS if one.method == "GET"]
EXAMPLES = settings(
    max_examples=rounds(30),
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schemathesis.serializer("application/msgpack")
def as_msgpack(_: Any, body: Any) -> bytes:
    """Encode a body; the document describes bytes as base64, msgpack sends them raw."""
    if isinstance(body, dict) and isinstance(body.get("features"), str):
        body = {**body, "features": as_bytes(body["features"])}
    try:
        return msgspec.msgpack.encode(body)
    except OverflowError:  # msgpack has no such numbers
        reject()


@schemathesis.serializer("text/plain")
def as_text(_: Any, body: Any) -> bytes:
    """Encode the JSON of a beacon."""
    return json.dumps(body).encode()


def as_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode(errors="replace")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    environ = {
        "SOLAR_WAIT_SECONDS": "0", "SOLAR_DEFAULT_FEATURES": "2", "SOLAR_BEACON_RATE": "1e6",
        "SOLAR_TOKEN_KEYS": new_token_key("k1"),
    }  # fmt: skip
    with serving(environ=environ) as started:
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


def check_no_server_error(response: Response, case: Case[Any]) -> None:
    """Allow no 5xx, except 503 for a version not served yet and for the limit of jobs."""
    has_min_seq = isinstance(case.body, dict) and "min_seq" in case.body
    jobs_full = case.path.endswith("/warm-start") and "SOLAR_JOBS" in response.text
    assert response.status_code < 500 or (
        response.status_code == 503 and (has_min_seq or jobs_full)
    )


def check_small(response: Response) -> None:
    assert response.status_code < 400 or len(response.content) <= 2000


@pytest.mark.parametrize(("method", "path"), ANSWERED)
def test_a_body_that_the_document_allows_is_accepted(schema: Any, method: str, path: str) -> None:
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.POSITIVE))
    @EXAMPLES
    def holds(case: Case[Any]) -> None:
        response = case.call()
        check_no_server_error(response, case)
        check_small(response)
        assert response.status_code not in {400, 405, 408, 413, 415}
        case.validate_response(response, checks=CHECKS)

    holds()


#: All operations that can receive invalid input and refuse it.
WITHOUT_INVALID_INPUT = {("GET", "/models"), ("GET", "/status"), BEACON}
WITH_INVALID_INPUT = [one for one in ANSWERED if one not in WITHOUT_INVALID_INPUT]


@pytest.mark.parametrize(("method", "path"), WITH_INVALID_INPUT)
def test_a_body_that_the_document_forbids_is_refused(schema: Any, method: str, path: str) -> None:
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    @EXAMPLES
    def holds(case: Case[Any]) -> None:
        response = case.call()
        check_no_server_error(response, case)
        check_small(response)
        case.validate_response(response, checks=[*CHECKS, negative_data_rejection])

    holds()


def test_a_beacon_that_the_document_forbids_gets_the_same_answer(schema: Any) -> None:
    @given(case=schema["/beacon"]["POST"].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    @EXAMPLES
    def holds(case: Case[Any]) -> None:
        response = case.call()
        assert response.status_code in {204, 405, 413, 415}
        case.validate_response(response, checks=CHECKS)

    holds()


@pytest.mark.parametrize("path", OPEN)
def test_health_and_metrics_conform_to_the_document(schema: Any, path: str) -> None:
    case = schema[path]["GET"].Case()
    response = case.call()
    assert response.status_code == 200
    case.validate_response(response, checks=CHECKS)


def test_the_served_document_lists_every_operation(document: Any) -> None:
    documented = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert documented == {*OPERATIONS, *(("GET", path) for path in OPEN)}
    assert OPEN == ["/healthz", "/readyz", "/metrics"]
    assert "the last one counts" in document["paths"]["/rank"]["post"]["description"]


@pytest.mark.parametrize("operation", [*GUARDED, *OPEN_OPERATIONS], ids=str)
def test_every_operation_documents_its_success_and_its_refusals(operation: Operation) -> None:
    documented = operation.documented
    statuses = set(documented["responses"])
    assert any(status < "300" for status in statuses)
    assert {"403", "500"} <= statuses
    if operation.scope is not None:
        assert {"401", "503"} <= statuses
    if str(operation) == "POST /beacon":
        assert {"404", "408", "413", "415", "429", "503"} <= statuses
    elif "requestBody" in documented:
        assert {"400", "408", "413", "415", "422"} <= statuses
    assert documented["summary"]
    assert documented["description"]
    assert documented["operationId"]
    assert documented["tags"]


@pytest.mark.parametrize("operation", [*GUARDED, *OPEN_OPERATIONS], ids=str)
def test_every_success_has_a_schema_and_every_error_that_of_a_problem(operation: Operation) -> None:
    for status, answer in operation.documented["responses"].items():
        if status == "204":
            assert "content" not in answer
        elif status < "300":
            (media,) = answer["content"].values()
            assert media["schema"]
        else:
            (kind,) = answer["content"]
            assert kind == "application/problem+json"
            schema = answer["content"][kind]["schema"]
            assert schema == {"$ref": "#/components/schemas/ProblemBody"}
            assert answer["description"] == TITLES[int(status)]


def test_every_reference_resolves_and_every_schema_is_used(document: Any) -> None:
    parts = document["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named == set(parts)


def examples(document: Any, method: str, path: str) -> list[Any]:
    """Return all examples of a body."""
    content = document["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]
    named = [one["value"] for one in content.get("examples", {}).values()]
    return named or content["schema"]["examples"]


@pytest.fixture
def fresh() -> Iterator[httpx.Client]:
    """A separate service, without the example's model."""
    with serving() as started, started.client() as found:
        yield found


def test_every_example_works(fresh: httpx.Client, document: Any) -> None:
    """The examples, in order, create, use, tune and train a model."""
    client, path = fresh, "/models/{name}"

    def call(method: str, path: str, status: int, body: Any) -> Any:
        reply = client.request(method, path.format(name="books"), json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    made, *others = examples(document, "PUT", path)
    assert call("PUT", path, 201, made) == call("PUT", path, 200, made)
    for at, other in enumerate(others):
        call("PUT", f"/models/other{at}", 201, other)
    answers = [call("POST", "/rank", 200, one) for one in examples(document, "POST", "/rank")]
    assert len(answers) >= 2
    assert all(one["logged"] for one in answers)
    request_id = answers[0]["request_id"]
    events = examples(document, "POST", "/feedback")
    old = [one for one in events if str(one.get("request_id")).startswith("books.")]
    assert old
    for event in old:
        call("POST", "/feedback", 410, event)  # the request in the example has expired
    for event in events:
        call(
            "POST", "/feedback", 202, {**event, "request_id": request_id} if event in old else event
        )
    for change in examples(document, "PATCH", path):
        call("PATCH", path, 202, change)
    for version in examples(document, "POST", f"{path}/versions"):
        call("POST", f"{path}/versions", 201, version)
    for version in examples(document, "POST", f"{path}/rollback"):
        seq = call("POST", f"{path}/rollback", 202, version)["seq"]
        until(partial(is_learnt, client, seq))
    for judged in examples(document, "POST", f"{path}/warm-start"):
        job = call("POST", f"{path}/warm-start", 202, judged)["id"]
        until(partial(is_done, client, job))


def test_every_example_of_a_question_works(client: httpx.Client, document: Any) -> None:
    made = client.put("/models/asked", json={"features": ["bm25", "price"]})
    assert made.status_code == 201
    for question in ("compare", "what-if"):
        [example] = examples(document, "POST", f"/models/{{name}}/{question}")
        assert client.post(f"/models/asked/{question}", json=example).status_code == 200


def is_learnt(client: httpx.Client, seq: int) -> bool:
    return bool(client.get("/models/books").json()["version"] >= seq)


def is_done(client: httpx.Client, job: str) -> bool:
    found = client.get(f"/jobs/{job}").json()
    assert found["state"] in ("running", "done"), found
    return bool(found["state"] == "done")
