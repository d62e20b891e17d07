"""Processes that train groups: `python -m app.training.workers DESCRIPTOR`.

Each has one BLAS thread, so that results do not depend on the number of processes. Ctrl-C reaches
only the parent, and a process ends with its parent, even after kill -9.
"""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from subprocess import Popen
from types import TracebackType
from typing import Any, TypeVar

from app.errors import SolarError
from app.training.child_process import exit_code, start_child

T = TypeVar("T")
#: Parts per process that may be trained before the first one, which the caller waits for, is.
PARTS_AHEAD = 4
#: Seconds that a process has to exit after it has closed its socket.
EXIT_SECONDS = 1.0


class Workers:
    """Processes that apply functions; a context manager that ends them."""

    def __init__(self, count: int) -> None:
        self._processes: dict[Connection, Popen[bytes]] = {}
        try:
            for _ in range(count):
                process, parent = start_child("app.training.workers")
                self._processes[Connection(parent.detach())] = process
        except OSError:
            self.close()
            raise

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; those that are still busy are killed."""
        for connection in self._processes:
            connection.close()
        for process in self._processes.values():
            exit_code(process, 0.0)
        self._processes = {}

    def map(self, function: Callable[[T], Any], parts: Iterable[Sequence[T]]) -> Iterator[Any]:
        """Yield `function(item)` for the items of all parts, in order.

        A process has one part at a time; SolarError if it ends before it answers.
        """
        waiting, given, next_part = iter(parts), 0, 0
        idle, busy = list(self._processes), dict[Connection, int]()
        done: dict[int, list[Any]] = {}
        while True:
            while idle and given < next_part + PARTS_AHEAD * len(self._processes):
                part = next(waiting, None)
                if part is None:
                    break
                connection = idle.pop()
                self._send(connection, (function, part))
                busy[connection], given = given, given + 1
            if next_part in done:
                yield from done.pop(next_part)
                next_part += 1
            elif busy:
                ready = wait(list(busy))
                for connection in [one for one in busy if one in ready]:
                    done[busy.pop(connection)] = self._receive(connection)
                    idle.append(connection)
            else:
                return

    def _send(self, connection: Connection, value: Any) -> None:
        try:
            connection.send(value)
        except OSError:
            raise self._ended(connection) from None

    def _receive(self, connection: Connection) -> list[Any]:
        try:
            found: list[Any] = connection.recv()
        except (EOFError, OSError):
            raise self._ended(connection) from None
        return found

    def _ended(self, connection: Connection) -> SolarError:
        code = exit_code(self._processes[connection], EXIT_SECONDS)
        how = f"exit code {code}"
        if code < 0:
            how = f"{signal.Signals(-code).name} (out of memory, if the system sent it)"
        return SolarError(f"a training process ended by {how}; start the training again")


def serve(connection: Connection) -> None:
    """Apply functions to parts until the parent closes the socket."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            function, part = connection.recv()
            connection.send([function(item) for item in part])


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
