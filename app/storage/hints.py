"""Hints about models, on two channels for all of them: one connection hears everything.

Followers are models here: their hints have their addresses.

Hints only save time: a reader also polls, because a hint is lost while its connection is down.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from redis import exceptions as foreign

from app.storage.calls import translated
from app.storage.keys import APPENDED_CHANNEL, CHANGED_CHANNEL, is_address

#: Seconds of silence after which a subscription must answer PING: a connection may end unnoticed.
SILENCE_SECONDS = 1.0
#: Seconds between two attempts to subscribe.
SUBSCRIBE_SECONDS = 0.25


class Hints:
    """The hints of all models."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def changed(self) -> AsyncIterator[str]:
        """Yield each model that is created, committed or deleted; as `_listen`."""
        return self._listen(CHANGED_CHANNEL)

    def appended(self) -> AsyncIterator[str]:
        """Yield each model that a learner should look at: a record follows the last commit."""
        return self._listen(APPENDED_CHANNEL)

    async def call_learner(self, model: str) -> None:
        """Ask the learners to look at a model, as if it had a new record."""
        with translated(self._client):
            await self._client.publish(APPENDED_CHANNEL, model)

    async def _listen(self, channel: str) -> AsyncIterator[str]:
        """Yield the model of each hint, and "" when hints may have been lost; never fail."""
        while True:
            try:
                async with self._client.pubsub() as subscription:
                    await subscription.subscribe(channel)
                    asked = False
                    while True:
                        message = await subscription.get_message(timeout=SILENCE_SECONDS)
                        if message is None and asked:
                            break
                        asked = message is None
                        if message is None:
                            await subscription.ping()
                        elif message["type"] == "subscribe":  # also after a new connection
                            yield ""
                        elif message["type"] == "message" and (name := _name(message["data"])):
                            yield name
            except (foreign.RedisError, OSError):
                await asyncio.sleep(SUBSCRIBE_SECONDS)


def _name(hint: bytes) -> str:
    """Return the model of a hint, "" if another program has published something else.

    >>> _name(b"books 812"), _name(b"shop/shop-b 7"), _name(bytes([255]))
    ('books', 'shop/shop-b', '')
    """
    name = hint.decode(errors="replace").partition(" ")[0]
    return name if is_address(name) else ""
