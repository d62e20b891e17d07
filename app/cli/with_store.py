"""What all commands on a store share."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from app import config
from app.config import Environment
from app.runtime import wiring
from app.storage.store import Store

Command = Callable[[argparse.Namespace, Store], Awaitable[None]]


def environment_of(options: argparse.Namespace) -> Environment:
    """The variables, and the options over them."""
    environment = config.read()
    if options.redis_url:
        environment = replace(environment, redis_url=options.redis_url)
    if options.data_dir:
        environment = replace(environment, data_dir=options.data_dir)
    return environment


def with_store(options: argparse.Namespace, command: Command, *, patient: bool = False) -> None:
    """Run a command on the store; a patient one waits for it, and then asks how old it is."""
    environment = environment_of(options)

    async def run(url: str) -> None:
        store = Store.open(url, environment.durability)
        try:
            if not patient:
                await store.refuse_old_server()
            await command(options, store)
        finally:
            await store.close()

    with wiring.store_url(environment) as url:
        asyncio.run(run(url))
