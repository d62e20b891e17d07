"""Acknowledged events against the records of the logs: nothing lost, nothing twice."""

import re
from collections import Counter
from dataclasses import dataclass, field

#: Problems of a kind that are kept; one is enough to fail a run.
MOST_PROBLEMS = 5
#: Kinds of problems that are kept, and the characters that name a kind.
MOST_KINDS, KIND_LENGTH = 100, 80


class Problems(list[str]):
    """What must not happen and did: some of each kind, the others are counted.

    Two problems are of a kind if they differ in numbers only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds = Counter[str]()

    def add(self, problem: str) -> None:
        """Note a problem, unless there are many of its kind already."""
        kind = re.sub(r"\d+", "N", problem)[:KIND_LENGTH]
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = "other kinds"
        self._kinds[kind] += 1
        if self._kinds[kind] <= MOST_PROBLEMS:
            self.append(problem)

    def total(self) -> int:
        """Count all problems, those that were not kept too."""
        return sum(self._kinds.values())

    def more(self) -> list[str]:
        """Count the problems that were not kept, by kind."""
        return [
            f"{kind}: {count - MOST_PROBLEMS} more"
            for kind, count in self._kinds.items()
            if count > MOST_PROBLEMS
        ]


@dataclass
class Book:
    """The events of one model, from its creation or from the start of the run.

    A seq of 0 is unknown: the event was in a batch, whose answer has one seq.
    """

    model: str
    problems: Problems
    before: int = 0  # feedback that was learnt before the run
    last: int = 0
    feedback: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    checked: int = 0
    missed: set[str] = field(default_factory=set)

    def acknowledge(self, event: str, seq: int = 0) -> None:
        """Note the answer to a post; a repeated event must get the same seq (I6)."""
        before = self.acknowledged.setdefault(event, seq)
        if before and seq and before != seq:
            self.problems.add(f"{self.model}: {event} has the seqs {before} and {seq}")
        self.acknowledged[event] = before or seq

    def record(self, seq: int, event: str = "") -> None:
        """Note a record of the log; `event` is empty unless it is feedback."""
        if seq != self.last + 1:
            self.problems.add(f"{self.model}: record {seq} follows record {self.last}")
        self.last = seq
        if not event:
            return
        self.feedback += 1
        if event in self.found:
            self.problems.add(f"{self.model}: {event} is at {self.found[event]} and at {seq}")
        self.found[event] = seq

    def check(self, *, whole: bool = False) -> None:
        """Check that acknowledged events are in the log at their seq (I1).

        An event after the last record that was read is not checked, unless the log was read whole.
        An event is noted once.
        """
        for event, seq in self.acknowledged.items():
            if (seq and seq <= self.last) or whole:
                at = self.found.get(event)
                if event not in self.missed and (at is None or (seq and at != seq)):
                    self.missed.add(event)
                    where = f"at {at}" if at else "missing"
                    self.problems.add(f"{self.model}: {event}, acknowledged at {seq}, is {where}")
        self.checked = len(self.acknowledged)
