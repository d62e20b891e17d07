"""Server-sent events: an answer without an end, until its client or the server leaves."""

import asyncio
from contextlib import AbstractAsyncContextManager

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.serving.live import HEARTBEAT, Subscription
from app.storage.cancellation import end

EVENTS_MEDIA_TYPE = "text/event-stream"
#: The key in the scope of a request of a function that ends its stream; None if the server stops.
END_STREAM = "solar.end_stream"
_HEADERS = {
    "content-type": EVENTS_MEDIA_TYPE,
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx passes on each event at once
}


class EventStream(StreamingResponse):
    """The events of a subscription, which starts with the answer and ends with it."""

    media_type = EVENTS_MEDIA_TYPE

    def __init__(self, watching: AbstractAsyncContextManager[Subscription]) -> None:
        super().__init__((), headers=_HEADERS)
        self._watching = watching

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events; errors before the first one get an answer of their own."""
        async with self._watching as subscription:
            if scope.setdefault(END_STREAM, subscription.close) is None:
                subscription.close()
            headers = self.raw_headers
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            gone = asyncio.create_task(_close_when_gone(receive, subscription))
            try:
                events = HEARTBEAT
                while events:
                    await send({"type": "http.response.body", "body": events, "more_body": True})
                    events = await subscription.next()
                await send({"type": "http.response.body", "body": b""})
            finally:
                await end([gone])


async def _close_when_gone(receive: Receive, subscription: Subscription) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    subscription.close()
