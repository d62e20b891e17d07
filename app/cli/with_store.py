"""Run a command on the store that `--redis-url`, `--data-dir` or the settings locate."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from app.cli.options import store_settings
from app.runtime import wiring
from app.storage.store import Store

StoreCommand = Callable[[argparse.Namespace, Store], Awaitable[None]]
Print = Callable[[str], None]


def with_store(options: argparse.Namespace, work: StoreCommand, *, wait: bool = False) -> None:
    """Run a command on the store; with `wait` the command itself waits for the server."""
    settings = store_settings(options)

    async def run(url: str) -> None:
        store = Store.open(url, settings.durability)
        try:
            if not wait:
                await store.servers.refuse_old()
            await work(options, store)
        finally:
            await store.close()

    with wiring.store_url(settings) as url:
        asyncio.run(run(url))
