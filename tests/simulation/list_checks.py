"""Checks of lists: all that came of one is known, none ends too soon, a repetition teaches nothing.

The checks follow the calls of the store with a clock and counts of their own. A list that has ended
and is ranked again begins again without feedback.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.click_pairs import ClickPairs
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, is_graded
from tests.oracles_gains import OracleLists, carried_by, same_pairs
from tests.simulation.expected import ModelEpoch, hold
from tests.simulation.keyspace import text
from tests.simulation.scripts import CONDITIONS, EACH, GIVEN
from tests.simulation.server import Server, Step


@dataclass
class RememberedList:
    """A list in the store, and when it ends; `name` is unique among all that had its key."""

    name: str
    shown: bytes
    tenant: bytes
    ends: float
    events: int = 0
    clicked: bool = False


class ListChecks:
    """I26: the lists of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.keep = 0.0  # seconds of a clicked list, from its first click on
        self._there: dict[str, RememberedList] = {}
        self._known = OracleLists()
        self._count = 0

    def clear(self) -> None:
        """Begin again, with the first step."""
        self._there.clear()
        self._known, self._count = OracleLists(), 0

    def find(self, key: str) -> RememberedList | None:
        """Return a list that has not ended."""
        found = self._there.get(key)
        return found if found is not None and found.ends > self._server.wall_clock() else None

    def remembered(self, step: Step) -> None:
        """Follow a call of `remember`."""
        keys, (ttl, _, _, *given) = step.call.given
        for key, tenant, shown, stored in zip(
            keys[1:], given[::2], given[1::2], step.answer[1:], strict=False
        ):
            ends, known = step.at + int(ttl) / 1000, self._there.get(key)
            if not stored:
                continue
            if known is None or known.ends <= step.at or known.shown != shown:
                self._count += 1
                name = f"{key} {self._count}"
                self._there[key] = RememberedList(name, shown, text(tenant), ends)
            else:
                known.ends = max(known.ends, ends)

    def appended(self, step: Step, at: int, record: Record | None, config: ModelConfig) -> str:
        """Check an appended event: the list was there, and the record carries all of it.

        Return the name of the list, "" if the event is on none.
        """
        key, tenant = request_of(step, at)
        if not key or not isinstance(record, Feedback) or record.clicks is None:
            return ""
        one = self._there.get(key)
        hold(one and one.ends > step.at, f"I26: {record.event} is on a list that has ended")
        assert one is not None
        hold(tenant == one.tenant, f"I23: {record.event} is on a list of {one.tenant!r}")
        differs = self._known.take(one.name, record, config)
        hold(not differs, f"I5: {differs}")
        one.events += 1
        if record.clicks.size and not one.clicked:
            one.clicked = True
            one.ends = max(one.ends, step.at + self.keep)
        return one.name

    def look(self, keys: Iterable[str]) -> None:
        """Check lists in the server: all that came of them, and when they end."""
        for key in keys:
            one, entry = self._there.get(key), self._server.db.data.get(key)
            if one is None or one.ends <= self._server.wall_clock():
                continue
            hold(entry is not None, f"I26: {one.name} is forgotten")
            assert entry is not None
            hold(entry.ends == one.ends, f"I26: {one.name} ends at {entry.ends}, not {one.ends}")
            kept = entry.value.get(b"a", b"")
            if one.events:
                rule = (False, True)  # of counting: the last record on the list has chosen
                expected = [self._known[one.name].carried(counts) for counts in rule]
                hold(carried_by(kept) in expected, f"I5: {one.name} has lost feedback")
            else:
                hold(kept == b"", f"I5: {one.name} has feedback that is not in the log")

    def look_at_all(self, epochs: Iterable[tuple[str, int]]) -> None:
        """Check all lists of some models in the server."""
        starts = tuple(f"solar:{{{model}}}:imp:{epoch}:" for model, epoch in epochs)
        self.look([key for key in self._there if key.startswith(starts)])

    def check_end(self, current: ModelEpoch) -> None:
        """Compare the pairs of all lists with a naive oracle: a repetition teaches nothing."""
        config, oracle = current.state.model.config, OracleLists()
        loaded = current.loaded(len(current.records))
        if not any(isinstance(one, Feedback) and is_graded(one) for one in loaded):
            return
        for name, record in zip(current.lists, loaded, strict=True):
            if name and isinstance(record, Feedback):
                oracle.take(name, record, config)
                expected = oracle[name].pairs(record, config.clicks, config.kappa)
                found = ClickPairs(record, config.kappa).new_pairs(config.clicks)
                hold(same_pairs(found, expected), f"I26: {record.event} teaches other pairs")


def request_of(step: Step, at: int) -> tuple[str, bytes]:
    """Return the key of the list of an event of an append, "" if it is on none, and its tenant."""
    keys, args = step.call.given
    count, number = int(args[9]), text(args[GIVEN + EACH * at + 4])
    if not number:
        return "", b""
    on, tenant = map(text, args[GIVEN + EACH * count + CONDITIONS * (int(number) - 1) :][:2])
    return (str(keys[int(on) - 1]) if on.isdigit() else ""), tenant


def request_keys(step: Step) -> list[str]:
    """Return the keys of all lists of a call of `remember` or `append`."""
    return [key for key in step.call.given[0] if ":imp:" in key]
