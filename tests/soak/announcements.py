"""What was done to the service when, and whether it disturbs the latencies."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic


@dataclass
class Announcement:
    """An action: its seconds since the start, its kind, and how long it disturbed the service."""

    at: float
    kind: str
    what: str
    seconds: float = 0.0
    disturbs: bool = False


class Announcements:
    """The actions of a run, also as lines of JSON in a file."""

    def __init__(self, file: Path) -> None:
        self.all: list[Announcement] = []
        self.started = monotonic()
        self._file, self._open, self._quiet_since = file, 0, 0.0

    def now(self) -> float:
        """Return the seconds since the start."""
        return monotonic() - self.started

    def restart(self) -> None:
        """Count the seconds from now on; what was before has taken no time."""
        self.started, self._quiet_since = monotonic(), 0.0
        self.all.clear()

    def note(self, kind: str, what: str) -> None:
        """Announce an action that disturbs nothing."""
        self._add(Announcement(self.now(), kind, what))

    @contextmanager
    def disturbance(self, kind: str, what: str) -> Iterator[None]:
        """Announce an action that disturbs the service until the block ends."""
        made = Announcement(self.now(), kind, what, disturbs=True)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._quiet_since = self.now()
            made.seconds = self._quiet_since - made.at
            self._add(made)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing disturbs the service now."""
        return not self._open

    def is_quiet_since(self, at: float) -> bool:
        """Whether nothing has disturbed the service since `at`."""
        return not self._open and at >= self._quiet_since

    def _add(self, made: Announcement) -> None:
        self.all.append(made)
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(made)) + "\n")
