"""Tracing: with SOLAR_OTEL every request is one span with its route's template."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Receive, Scope, Send

from app.config import Settings
from app.errors import SolarError
from app.observability import otel, tracing
from app.observability.tracing import current_traceparent, traceparent

SECRET = "correct-horse-battery-staple"  # noqa: S105  # not in use
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{PARENT}-01"


class SelfAnsweringRoute(APIRoute):
    """A route with a raw ASGI answer, like `/rank`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        body = current_traceparent().encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def rank() -> None:
    """Never called."""


async def model(name: str) -> str:
    return name


async def broken() -> None:
    raise ValueError(SECRET)


def application(settings: Settings) -> tuple[FastAPI, Any]:
    """Return a small application with the service's options."""
    options = tracing.telemetry_options(settings)
    app = FastAPI(telemetry=options)
    hot = APIRouter(route_class=SelfAnsweringRoute)
    hot.add_api_route("/rank", rank, methods=["POST"])
    hot.add_api_route("/models/{name}/rollback", rank, methods=["POST"])
    app.include_router(hot)
    app.add_api_route("/models/{name}", model)
    app.add_api_route("/broken", broken)
    return app, options


async def ask(app: FastAPI, *requests: tuple[str, str], **headers: str) -> list[httpx.Response]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://solar") as client:
        return [await client.request(*one, headers=headers) for one in requests]


@pytest.fixture
def traced() -> tuple[FastAPI, InMemorySpanExporter]:
    app, options = application(Settings(otel=True))
    provider, exporter = options["tracer_provider"], InMemorySpanExporter()
    assert isinstance(provider, TracerProvider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return app, exporter


Traced = tuple[FastAPI, InMemorySpanExporter]


def names(exporter: InMemorySpanExporter) -> list[str]:
    return [span.name for span in exporter.get_finished_spans()]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_every_request_is_one_span_with_its_routes_template(traced: Traced) -> None:
    app, exporter = traced
    asked = [
        ("POST", "/rank"), ("GET", "/models/books"), ("POST", "/models/books/rollback"),
        ("GET", "/rank"), ("GET", "/no-such-path"),
    ]  # fmt: skip
    answers = asyncio.run(ask(app, *asked))
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 404]
    assert names(exporter) == [
        "POST /rank", "GET /models/{name}", "POST /models/{name}/rollback", "GET /rank", "GET",
    ]  # fmt: skip
    hot = attributes(exporter.get_finished_spans()[0])
    assert (hot["http.route"], hot["http.response.status_code"]) == ("/rank", 200)


def test_a_span_continues_the_callers_trace_and_log_lines_name_the_span(traced: Traced) -> None:
    app, exporter = traced
    [answer] = asyncio.run(ask(app, ("POST", "/rank"), traceparent=HEADER))
    [span] = exporter.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT
    assert answer.text == f"00-{TRACE}-{span.context.span_id:016x}-01"


def test_without_a_callers_trace_a_span_starts_a_new_one(traced: Traced) -> None:
    app, exporter = traced
    [answer] = asyncio.run(ask(app, ("POST", "/rank"), traceparent="malformed"))
    [span] = exporter.get_finished_spans()
    assert span.parent is None
    about = span.context
    assert answer.text == f"00-{about.trace_id:032x}-{about.span_id:016x}-{about.trace_flags:02x}"


def test_a_bug_is_a_failed_span_without_values(traced: Traced) -> None:
    app, exporter = traced
    [answer] = asyncio.run(ask(app, ("GET", f"/broken?key={SECRET}"), authorization=SECRET))
    [span] = exporter.get_finished_spans()
    assert (answer.status_code, span.name, span.events) == (500, "GET /broken", ())
    assert not span.status.is_ok
    assert attributes(span)["error.type"] == "ValueError"
    assert SECRET not in span.to_json()


def test_the_attribute_of_a_long_path_is_truncated(traced: Traced) -> None:
    app, exporter = traced
    asyncio.run(ask(app, ("GET", "/" + 5000 * "x")))
    [span] = exporter.get_finished_spans()
    assert len(attributes(span)["url.path"]) == otel.ATTRIBUTE_CHARACTERS


def test_tracing_that_is_off_makes_no_spans_in_any_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    app, options = application(Settings())

    async def request() -> str:
        traceparent.set(HEADER)  # like the service
        async with tracing.exporting_spans(options):
            [answer] = await ask(app, ("POST", "/rank"))
        return answer.text

    assert asyncio.run(request()) == HEADER
    assert not app._native_telemetry.enabled()
    assert not app._telemetry["auto_configure"]


def test_tracing_that_is_off_imports_no_sdk() -> None:
    code = (
        "import sys; from app.config import Settings; from app.observability import tracing; "
        "from fastapi import FastAPI; FastAPI(telemetry=tracing.telemetry_options(Settings())); "
        "sys.exit('opentelemetry.sdk' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_extra_the_error_tells_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "app.observability.otel")
    monkeypatch.delattr("app.observability.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SolarError, match=r"pip install 'solar-ranking\[otel\]'"):
        tracing.telemetry_options(Settings(otel=True))


# ---- a collector ----


class Collector(ThreadingHTTPServer):
    """A stand-in for an OpenTelemetry collector: it accepts posts."""

    daemon_threads = True

    def __init__(self, silent: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.silent, self.got = silent, list[tuple[str, str, bytes]]()
        self.end = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:  # name set by the base class
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, self.headers["authorization"], body))
        if self.server.silent:
            self.server.end.wait()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def collecting(monkeypatch: pytest.MonkeyPatch, silent: bool = False) -> Iterator[Collector]:
    with Collector(silent) as collector:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")  # only the shutdown flushes
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.end.set()
            collector.shutdown()
            thread.join()


async def served_seconds(app: FastAPI, options: Any, *requests: tuple[str, str]) -> float:
    """Serve requests and shut down; return the seconds of the shutdown."""
    async with tracing.exporting_spans(options):
        await ask(app, *requests)
        ending = monotonic()
    return monotonic() - ending


def test_spans_are_exported_by_standard_variables_and_flushed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with collecting(monkeypatch) as collector:
        app, options = application(Settings(otel=True))
        asyncio.run(
            served_seconds(app, options, ("POST", "/rank"), ("GET", f"/models/a?key={SECRET}"))
        )
    [(path, authorization, body)] = collector.got
    assert (path, authorization) == ("/v1/traces", "Bearer x")
    assert SECRET.encode() not in body
    [resource] = ExportTraceServiceRequest.FromString(body).resource_spans
    about = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert about["service.name"] == "solar"
    assert about["deployment.environment.name"] == "test"
    spans = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert spans == ["POST /rank", "GET /models/{name}"]


def test_the_service_name_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    assert otel.make_provider().resource.attributes["service.name"] == "shop"


def test_a_silent_collector_does_not_delay_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "FLUSH_SECONDS", 0.2)
    with collecting(monkeypatch, silent=True) as collector:
        app, options = application(Settings(otel=True))
        took = asyncio.run(served_seconds(app, options, ("POST", "/rank")))
        assert len(collector.got) == 1
    assert 0.2 <= took < 5.0


def test_solar_serve_fails_before_it_starts_a_process(
    tmp_path: Path,
) -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk.trace'] = None; "
        "from app.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "serve", "--otel", "--data-dir", str(tmp_path / "data")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "pip install 'solar-ranking[otel]'" in ran.stderr
    assert not (tmp_path / "data").exists()
