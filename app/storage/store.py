"""All that the service keeps in Redis, by what it is asked for.

`models` (which there are), `log` (records and impressions), `states` (commits and versions),
`leases` (who learns), `jobs` (who trains) and `servers` (how full, how old, how safe they are).
"""

from typing import Any

from app.storage.calls import ScriptRunner
from app.storage.connection import connect
from app.storage.health import Servers
from app.storage.jobs import Jobs
from app.storage.leases import Leases
from app.storage.log import Log
from app.storage.models import Models
from app.storage.states import States


class Store:
    """All that the service keeps."""

    def __init__(self, client: Any, durability: str = "") -> None:
        self._client = client
        calls = ScriptRunner(client, replicas=int(durability == "replicated"))
        self.log, self.states = Log(client, calls), States(client, calls)
        self.models = Models(client, calls, self.states)
        self.leases, self.jobs = Leases(client, calls), Jobs(calls)
        self.servers = Servers(client, durability)

    @classmethod
    def open(cls, url: str, durability: str = "") -> "Store":
        """The store behind a URL (`connection.SCHEMES`), as durable as was asked for (`health`)."""
        return cls(connect(url), durability)

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()
