"""Samples of learnt records: a capped stream beside the log, written while somebody watches.

The id of a sample is the learner's fencing token and the record's seq, `<fence>-<seq>`. It grows
from record to record and from learner to learner, and any process can tell the current position.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from app.errors import NoSuchModel
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import keys_of

#: Samples that the stream keeps.
MOST_SAMPLES = 1_000
#: Milliseconds that samples are kept after the last one.
SAMPLES_MILLISECONDS = 600_000
#: Milliseconds that a model stays watched, unless the watch is renewed.
WATCHED_MILLISECONDS = 20_000
_ID = re.compile(r"(\d{1,19})-(\d{1,19})", re.ASCII)


class SampleId(NamedTuple):
    """The position of a sample in the stream of its model."""

    fence: int
    seq: int

    @classmethod
    def parse(cls, text: str) -> "SampleId | None":
        """Read an id; None if the text is no id.

        >>> SampleId.parse("3-812"), SampleId.parse("812"), str(SampleId(3, 812))
        (SampleId(fence=3, seq=812), None, '3-812')
        """
        found = _ID.fullmatch(text)
        return cls(int(found[1]), int(found[2])) if found else None

    def __str__(self) -> str:
        return f"{self.fence}-{self.seq}"


class Watched(NamedTuple):
    """A model when it is watched: its epoch, and the position of the last commit."""

    epoch: int
    position: SampleId


class NewSample(NamedTuple):
    """A sample of a record, and the tenant whose feedback it is."""

    seq: int
    content: bytes
    tenant: str = ""


class StoredSample(NamedTuple):
    """A sample as it was written."""

    id: SampleId
    content: bytes
    tenant: str = ""


class Samples:
    """The samples of all models."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    async def watch(self, model: str) -> Watched:
        """Let the learner write samples for a while; return where they begin."""
        keys = keys_of(model)
        with translated(self._client):
            _, fence, (epoch, seq) = await self._client.together(
                keys.watched,
                ("SET", keys.watched, "1", "PX", WATCHED_MILLISECONDS),
                ("GET", keys.fence),
                ("HMGET", keys.state, "epoch", "seq"),
            )
        if epoch is None or seq is None:
            raise NoSuchModel(f"model {model}: no model of this name")
        return Watched(int(epoch), SampleId(int(fence or 0), int(seq)))

    async def write(self, model: str, epoch: int, fence: int, samples: Sequence[NewSample]) -> None:
        """Add samples, unless the model is another one by now."""
        keys, values = keys_of(model), [epoch, fence, MOST_SAMPLES, SAMPLES_MILLISECONDS]
        given = [part for sample in samples for part in sample]
        await self._calls.script("sample", [keys.state, keys.samples], [*values, *given])

    async def read(self, model: str, after: SampleId, count: int) -> list[StoredSample]:
        """Return the next samples after a position, the oldest first."""
        return await self._range(model, f"({after}", "+", count)

    async def keeps(self, model: str, sample: SampleId) -> bool:
        """Whether a sample is still there, and so are all after it."""
        return bool(await self._range(model, str(sample), str(sample), 1))

    async def _range(self, model: str, first: str, last: str, count: int) -> list[StoredSample]:
        with translated(self._client):
            found = await self._client.xrange(keys_of(model).samples, first, last, count)
        return [
            StoredSample(id_, fields.get(b"s", b""), fields.get(b"t", b"").decode())
            for name, fields in found
            if (id_ := SampleId.parse(name.decode())) is not None
        ]
