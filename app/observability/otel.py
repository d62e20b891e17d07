"""OpenTelemetry's SDK (extra `otel`): where spans go, as the variables `OTEL_…` say."""

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

ATTRIBUTE_CHARACTERS = 200  # of one attribute: a path may be as long as its sender likes
FLUSH_SECONDS = 3.0  # for the last spans at the end; a collector may be gone


class _HideQuery(SpanProcessor):
    """The query string stays out of spans, as its values stay out of logs."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        if span.attributes and "url.query" in span.attributes:
            span.set_attribute("url.query", "hidden")


def make_provider() -> TracerProvider:
    """A provider of tracers whose spans go nowhere yet; it starts no thread."""
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "solar"}))
    limits = SpanLimits(max_span_attribute_length=ATTRIBUTE_CHARACTERS)
    provider = TracerProvider(resource=resource, span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(_HideQuery())
    return provider


@asynccontextmanager
async def exporting(provider: AnyTracerProvider) -> AsyncIterator[None]:
    """Export spans by OTLP over HTTP, from a thread; at the end the last ones, if that is quick."""
    made = cast("TracerProvider", provider)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield
    finally:
        last = threading.Thread(target=made.shutdown, daemon=True)  # it may take half a minute
        last.start()
        await asyncio.to_thread(last.join, FLUSH_SECONDS)
