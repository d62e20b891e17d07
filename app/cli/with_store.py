"""Run a command on a store: `--redis-url` and `--data-dir`, or the settings, say where it is."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from app.cli.options import store_settings
from app.runtime import wiring
from app.storage.store import Store

StoreCommand = Callable[[argparse.Namespace, Store], Awaitable[None]]
Print = Callable[[str], None]


def with_store(options: argparse.Namespace, work: StoreCommand, *, patient: bool = False) -> None:
    """Run a command on the store; a `patient` one waits for the server and checks it itself."""
    settings = store_settings(options)

    async def run(url: str) -> None:
        store = Store.open(url, settings.durability)
        try:
            if not patient:
                await store.servers.refuse_old()
            await work(options, store)
        finally:
            await store.close()

    with wiring.store_url(settings) as url:
        asyncio.run(run(url))
