"""Trials of feedback in a process of their own: a worker has no kernels and loads no compiler.

The same process folds records for a promotion (`app/learning/promotion.py`), in several exchanges.

The process starts with the first trial, which takes 0.6 s, nearly all of it to load the kernels. It
takes 150 MiB, and ends after 30 s without a trial. One trial runs at a time in a worker; others
wait for their turn.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from app.errors import TrialFailed
from app.storage.embedded.server import tied

#: Seconds that a trial waits for its turn, and that it may take.
TURN_SECONDS, TRIAL_SECONDS = 5.0, 30.0
#: Seconds after the last trial until the process ends.
IDLE_SECONDS = 30.0
#: Lower CPU priority than that of learners.
TRIAL_NICE = 10
#: The process computes with one thread.
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
#: Bytes of the length before each blob.
_LENGTH = 8


class TrialRunner:
    """Runs the trials of a worker, one at a time."""

    def __init__(self, idle: float = IDLE_SECONDS) -> None:
        self._turn, self._idle = asyncio.Lock(), idle
        self._process: TrialProcess | None = None
        self._ending: asyncio.TimerHandle | None = None

    async def run(self, *blobs: bytes) -> bytes:
        """Return the outcome of the trial of a model and feedback, both encoded.

        TrialFailed if the process fails, or other trials take too long.
        """
        async with self.exchanges() as ask:
            return await ask(blobs)

    @contextlib.asynccontextmanager
    async def exchanges(self) -> AsyncIterator[Callable[[Sequence[bytes]], Awaitable[bytes]]]:
        """Provide several exchanges of blobs for an answer, between which no trial runs."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise TrialFailed("other trials are running") from None
        try:
            yield self._run
        finally:
            self._turn.release()

    async def _run(self, blobs: Sequence[bytes]) -> bytes:
        if self._ending is not None:
            self._ending.cancel()
        whole = False
        try:
            if self._process is None or self._process.ended():
                self.close()
                self._process = await asyncio.to_thread(TrialProcess)
            async with asyncio.timeout(TRIAL_SECONDS):
                found = await self._process.ask(blobs)
            whole = True
        except (OSError, EOFError, TimeoutError) as error:
            raise TrialFailed("the process has failed, or did not start") from error
        finally:
            if whole:
                loop = asyncio.get_running_loop()
                self._ending = loop.call_later(self._idle, self.close)
            else:
                self.close()  # also if the caller is gone: the rest of the answer is not read
        return found

    def close(self) -> None:
        """End the process."""
        if self._ending is not None:
            self._ending.cancel()
        if self._process is not None:
            self._process.end()
        self._process = self._ending = None


class TrialProcess:
    """A running process, and the socket of its trials."""

    def __init__(self) -> None:
        self._socket, child = socket.socketpair()
        self._socket.setblocking(False)
        python = [sys.executable, "-P", "-m"]  # -P: import no `app` from the working directory
        command = [*python, "app.runtime.trial_process", str(child.fileno())]
        with child:
            try:
                environ = {**os.environ, **_THREADS}
                inherited = (child.fileno(),)
                self._process = tied(command, environ=environ, inherited=inherited, nice=TRIAL_NICE)
            except OSError:
                self._socket.close()
                raise

    async def ask(self, blobs: Sequence[bytes]) -> bytes:
        """Send blobs; return the answer."""
        loop = asyncio.get_running_loop()
        for blob in blobs:
            await loop.sock_sendall(self._socket, len(blob).to_bytes(_LENGTH, "little"))
            await loop.sock_sendall(self._socket, blob)
        size = int.from_bytes(await self._receive(_LENGTH), "little")
        return await self._receive(size)

    async def _receive(self, size: int) -> bytes:
        loop, found = asyncio.get_running_loop(), bytearray(size)
        view = memoryview(found)
        while view:
            count = await loop.sock_recv_into(self._socket, view)
            if not count:
                raise EOFError("expected more bytes of a blob")
            view = view[count:]
        return bytes(found)

    def ended(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Kill the process; it has nothing to keep."""
        self._socket.close()
        self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # it is killed: milliseconds
