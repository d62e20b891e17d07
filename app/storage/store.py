"""The store: all data of the service in Redis.

`models` (names and status), `followers`, `log` (records and impressions), `late_impressions` (their
removal), `states` (commits),
`versions`, `history` (points beside the states) and `history_budget` (their memory), `samples` (of
learnt records), `hints` (about changed models), `leases` (of learners), `jobs` (training jobs),
`servers` (memory, version, durability) and `outages` (log lines about an unreachable store).
"""

from typing import Any

from app.storage.calls import ScriptRunner, store_name
from app.storage.connection import connect
from app.storage.followers import Followers
from app.storage.health import Servers
from app.storage.hints import Hints
from app.storage.history import History
from app.storage.history_budget import HistoryBudget
from app.storage.jobs import Jobs
from app.storage.late_impressions import LateImpressions
from app.storage.leases import Leases
from app.storage.log import Log
from app.storage.models import Models
from app.storage.outages import Outages
from app.storage.samples import Samples
from app.storage.states import States
from app.storage.versions import Versions


class Store:
    """All data of the service, behind one client."""

    def __init__(self, client: Any, durability: str = "") -> None:
        self._client = client
        calls = ScriptRunner(client, replicas=int(durability == "replicated"))
        self.log, self.states = Log(client, calls), States(client, calls)
        self.late_impressions = LateImpressions(calls)
        self.versions = Versions(client, calls, self.states)
        self.followers = Followers(client, calls)
        self.models = Models(client, calls, self.versions, self.followers)
        self.leases, self.jobs = Leases(client, calls), Jobs(client, calls)
        self.hints, self.samples = Hints(client), Samples(client, calls)
        self.servers = Servers(client, durability)
        self.history, self.history_budget = History(client), HistoryBudget(calls, self.servers)
        self.name = store_name(client.address)
        self.outages = Outages(self.name)

    @classmethod
    def open(cls, url: str, durability: str = "") -> "Store":
        """Open the store at a URL (`connection.SCHEMES`) with a durability level (`health`)."""
        return cls(connect(url), durability)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
