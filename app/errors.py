"""Every error that one package raises for another.

SolarError
├── InvalidInput        the caller's input is invalid; the message is written for the caller
├── Forbidden           the settings do not allow what the caller names
├── BadData             a file of judged data is invalid
│   └── ReadFailed          it cannot be read, here or now
├── ClusterFailed       the cluster that trains is gone, or has other versions
├── Unreadable          stored bytes cannot be decoded: serve what is in memory
│   ├── BadBlob             they are damaged; a state can be rebuilt from its log
│   └── NewerFormat         a newer release wrote them; they are neither damaged nor repaired
├── NoSuchModel         the model does not exist, or was deleted
├── ModelExists         a model of this name exists already
├── IsFollower          the model follows another one, which ranks and learns in its place
├── HasFollowers        models follow this one: delete them first
├── NoSuchVersion       the version of a model is not kept
├── VersionExists       a version of this name exists already
├── TooManyVersions     the model has as many named versions as it may have
├── Overloaded          the requests hold too much memory: retry
├── TrialFailed         the process that tries feedback is busy or has failed: retry
├── OtherTenant         the request id belongs to another tenant
├── NoSlot              SOLAR_JOBS uploads and jobs are in progress: retry later
├── TooManyModels       the store has as many models as SOLAR_MODELS allows
└── StoreError          the store cannot complete an operation
    ├── NoServerBinary      no server binary is installed to embed
    ├── OldServer           the server version is too old
    ├── NotDurable          the server is less durable than SOLAR_DURABILITY requires
    ├── DataDirectoryInUse  another server holds the data directory
    ├── ServerFailed        the embedded server did not start
    ├── Unavailable         the store is unreachable or loading: retry
    │   └── NotReplicated       written, but no replica has confirmed it yet: retry
    ├── Full                the store is at its memory limit
    ├── Backlog             the backlog limit is reached: retry later
    │   └── WorkBacklog         the records that wait take too much work
    ├── Changed             a request has a new impression or other feedback: rebuild the record
    ├── TooLate             a write reached the store after its deadline; nothing was written
    ├── Stalled             a follower is too far behind: the log does not wait for it
    └── Fenced              another learner took the lease over, or the state has advanced
        └── RolledBack          the log and the learnt records differ (after a failover)

The core (`app/ranking`) raises ValueError for an invalid argument, with the message
`parameter: expected ..., got ...`.
"""

from collections.abc import Set


class SolarError(Exception):
    """An error whose message explains the cause and the remedy."""


class InvalidInput(SolarError, ValueError):
    """The caller's input is invalid; the message names the field and what was expected."""


class Forbidden(SolarError):
    """The settings do not allow what the caller names; the message names the setting."""


class ClusterFailed(SolarError):
    """The cluster that trains is gone, or cannot run the tasks; the model is not changed."""


class BadData(SolarError):
    """A line of a data file is invalid; the message names the line and the cause."""


class ReadFailed(BadData):
    """A file cannot be read: it is not there, or its server does not answer; others may have it."""


class Unreadable(SolarError):
    """Stored bytes cannot be decoded."""


class BadBlob(Unreadable):
    """Stored bytes are damaged, or have an unexpected kind."""


class NewerFormat(Unreadable):
    """A newer release wrote these bytes; the message names both formats. Leave them unchanged."""


class NoSuchModel(SolarError):
    """No model has this name; it may have been deleted."""


class ModelExists(SolarError):
    """A model of this name exists already."""


class IsFollower(SolarError):
    """A follower cannot do this: it neither ranks nor gets feedback or changes of its own."""

    def __init__(self, name: str, leader: str) -> None:
        super().__init__(f"model: {name} follows {leader}; send this to {leader}, or delete {name}")
        self.leader = leader


class HasFollowers(SolarError):
    """Models follow this one; nothing was deleted."""


class NoSuchVersion(SolarError):
    """The version of a model is not kept, or no longer."""


class VersionExists(SolarError):
    """The model has a version of this name already."""


class TooManyVersions(SolarError):
    """The model has as many named versions as it may have; nothing was kept."""


class Overloaded(SolarError):
    """The requests of this worker hold too much memory together; retrying is safe."""


class TooManyStreams(SolarError):
    """The worker has as many open streams as it may have; retry later, or at another worker."""


class TrialFailed(SolarError):
    """The process that tries feedback on a copy of a model is busy or has failed."""


class OtherTenant(SolarError):
    """The request id belongs to another tenant; choose a different id."""


class NoSlot(SolarError):
    """The worker has SOLAR_JOBS uploads and training jobs in progress; retry later."""


class TooManyModels(SolarError):
    """The store has as many models as SOLAR_MODELS allows; nothing was created."""


class StoreError(SolarError):
    """The store cannot complete an operation."""


class NoServerBinary(StoreError):
    """No server binary is installed to embed; the message names what to install."""


class OldServer(StoreError):
    """The server is too old; the message names its version and the required one."""


class NotDurable(StoreError):
    """The server is less durable than required; the message names the missing settings."""


class DataDirectoryInUse(StoreError):
    """Another server holds the data directory; the message names its process."""


class ServerFailed(StoreError):
    """The embedded server did not start; the message ends with its last log lines."""


class Unavailable(StoreError):
    """The store is unreachable or loading; retrying is safe."""


class NotReplicated(Unavailable):
    """A write is on the master and no replica has confirmed it in time; retrying is safe."""


class Full(StoreError):
    """The store is at its memory limit."""


class Backlog(StoreError):
    """The backlog limit is reached; nothing was written."""


class WorkBacklog(Backlog):
    """The records that wait for the learner take too much work; nothing was written."""


class Changed(StoreError):
    """The state that an event builds on has changed; nothing was written.

    `skipped` are the positions of the events that are in the log already, or refused.
    """

    def __init__(self, message: str, skipped: Set[int] = frozenset()) -> None:
        super().__init__(message)
        self.skipped = skipped


class TooLate(StoreError):
    """A write reached the store after its deadline; nothing was written."""


class Stalled(StoreError):
    """A follower is so far behind that the log does not wait for it; only a new one helps."""


class Fenced(StoreError):
    """A commit was refused: another learner took the lease over, or the state has advanced."""


class RolledBack(Fenced):
    """A commit was refused: the log and the learnt records differ (after a failover)."""
