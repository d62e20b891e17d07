"""Every error that one package raises for another.

SolarError
├── InvalidInput        what a caller gave cannot be; its message is written for the caller
├── BadData             a file that was offered as judged data is not
├── BadBlob             bytes from the store are not what was once written
├── NoSuchModel         the model does not exist, or not any more
├── ModelExists         a model of this name exists already
└── StoreError          the store cannot do its work
    ├── NoServerBinary      no server to embed
    ├── OldServer           the server is older than we need
    ├── NotDurable          the server is less safe than was asked for
    ├── DataDirectoryInUse  another server holds the data directory
    ├── ServerFailed        the embedded server did not come up
    ├── Unavailable         the store cannot be reached, or is loading: try again
    ├── Full                the store is at its memory limit
    ├── Backlog             the log is too far ahead of the learner: try again later
    ├── Changed             a request has got other feedback meanwhile: build the record anew
    └── Fenced              another learner has taken over, or the state moved on
        └── RolledBack          the log has other records than those that were learnt

The core (`app/ranking`) raises ValueError for arguments that cannot be: `parameter: expected ...,
got ...`.
"""


class SolarError(Exception):
    """Something went wrong that its reader can understand and mend."""


class InvalidInput(SolarError, ValueError):
    """What a caller gave cannot be; the message names the field and what was expected."""


class BadData(SolarError):
    """A line of a data file is not what it should be; the message says where and what."""


class BadBlob(SolarError):
    """Bytes that are damaged, or of a version or kind that was not expected."""


class NoSuchModel(SolarError):
    """There is no model of this name (any more)."""


class ModelExists(SolarError):
    """There is a model of this name already."""


class StoreError(SolarError):
    """The store cannot do its work."""


class NoServerBinary(StoreError):
    """There is no server to embed; the message says what to install."""


class OldServer(StoreError):
    """The server is too old; the message says which version it has and which we need."""


class NotDurable(StoreError):
    """The server gives less than the level of durability that was asked for; it says what."""


class DataDirectoryInUse(StoreError):
    """Another server holds the data directory; the message says who."""


class ServerFailed(StoreError):
    """The embedded server did not come up; the message carries the end of its log."""


class Unavailable(StoreError):
    """The store cannot be reached now; trying again is safe."""


class Full(StoreError):
    """The store is at its memory limit; nothing was written."""


class Backlog(StoreError):
    """The log is too far ahead of the learner; nothing was written."""


class Changed(StoreError):
    """What an event builds on is no longer so; nothing was written."""


class Fenced(StoreError):
    """A commit was refused: another learner has taken over, or the state moved on."""


class RolledBack(Fenced):
    """A commit was refused: the log has other records than those it was made of (a failover)."""
