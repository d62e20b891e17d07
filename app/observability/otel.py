"""Span export with the OpenTelemetry SDK (extra `otel`), configured by `OTEL_…` variables."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import TracerProvider as AnyTracerProvider

from app import __version__

ATTRIBUTE_CHARACTERS = 200  # of one attribute; a path may be long
FLUSH_SECONDS = 3.0  # for the last spans at the end; the collector may be unreachable


class _HideQuery(SpanProcessor):
    """Hides the query string in spans: its values must not leave the service."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        if span.attributes and "url.query" in span.attributes:
            span.set_attribute("url.query", "hidden")


def make_provider() -> TracerProvider:
    """Return a tracer provider without an exporter; it starts no thread."""
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "solar"}))
    limits = SpanLimits(max_span_attribute_length=ATTRIBUTE_CHARACTERS)
    provider = TracerProvider(resource=resource, span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(_HideQuery())
    return provider


@asynccontextmanager
async def exporting(provider: AnyTracerProvider) -> AsyncIterator[None]:
    """Export spans by OTLP over HTTP from a thread; wait FLUSH_SECONDS for the last spans."""
    made = cast("TracerProvider", provider)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield
    finally:
        last = threading.Thread(target=made.shutdown, daemon=True)  # may take 30 s
        last.start()
        await asyncio.to_thread(last.join, FLUSH_SECONDS)
