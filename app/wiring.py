"""The only place that plugs things together."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.settings import Environment
from app.store import embedded
from app.store.embedded import EmbeddedServer


@contextmanager
def store_url(environment: Environment) -> Iterator[str]:
    """Where the store is: the one that is named, the one that runs here already, or a new one."""
    url = environment.redis_url or embedded.find(environment.data_dir)
    if url:
        yield url
    else:
        with EmbeddedServer.start(environment.data_dir, memory=environment.memory) as server:
            yield server.url
