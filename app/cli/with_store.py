"""Run a command on the store that `--redis-url`, `--data-dir` or the settings locate."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from app.cli.options import store_settings
from app.errors import NoSuchModel, SolarError
from app.runtime import wiring
from app.storage.embedded import server
from app.storage.keys import is_name
from app.storage.store import Store

StoreCommand = Callable[[argparse.Namespace, Store], Awaitable[None]]
Print = Callable[[str], None]


async def address_of(store: Store, name: str) -> str:
    """Return the address of a model or a follower by its name; NoSuchModel without a valid one."""
    if not is_name(name):
        raise NoSuchModel(f"model {name}: no model of this name")
    return await store.followers.address(name) or name


def with_store(
    options: argparse.Namespace, work: StoreCommand, *, wait: bool = False, existing: bool = False
) -> None:
    """Run a command on the store.

    With `wait` the command itself waits for the server. With `existing` a data directory without a
    store is an error; otherwise a store is created there.
    """
    settings = store_settings(options)
    if existing and not settings.redis_url and not server.has_data(settings.data_dir):
        raise SolarError(
            f"{settings.data_dir}: no store there; name the service's store by --data-dir or "
            "--redis-url"
        )

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
