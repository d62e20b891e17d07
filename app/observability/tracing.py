"""Traces (W3C Trace Context): what a log's line says of them."""

import re
import sys
from contextvars import ContextVar

#: Of the request under way, as its caller sent it; empty if there was none.
traceparent: ContextVar[str] = ContextVar("traceparent", default="")

_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def read_traceparent(header: bytes) -> str:
    """A header `traceparent`, or nothing if it is malformed.

    >>> read_traceparent(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    >>> read_traceparent(b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01")
    ''
    """
    return header.decode() if _TRACEPARENT.fullmatch(header) else ""


def current_traceparent() -> str:
    """Of the span that is active, else of the caller, else nothing."""
    trace = sys.modules.get("opentelemetry.trace")  # who has not imported it has no span
    context = trace.get_current_span().get_span_context() if trace else None
    if context is None or not context.is_valid:
        return traceparent.get()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
