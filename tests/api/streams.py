"""A client of `GET /models/{name}/stream`, in a thread."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from tests.servers import TIMEOUT, until


@dataclass
class Event:
    """An event of a stream, and when it came."""

    name: str
    id: str
    data: dict[str, Any]
    time: float = field(default_factory=time.monotonic)


@dataclass
class Stream:
    """An open stream: its headers, the events and comments so far, and its end."""

    headers: dict[str, str]
    events: list[Event] = field(default_factory=list)
    comments: int = 0
    ended: float | None = None  # when the server has ended it

    def records(self) -> list[Event]:
        return [one for one in self.events if one.name == "record"]

    def record(self, seq: int) -> Event:
        """Wait for the sample of a record."""
        until(lambda: any(one.data["seq"] == seq for one in self.records()))
        return next(one for one in self.records() if one.data["seq"] == seq)

    def read(self, response: HTTPResponse) -> None:
        """Read events until the server ends the stream, or the connection is closed."""
        fields: dict[str, str] = {}
        with contextlib.suppress(OSError, HTTPException):
            while line := response.readline().decode():
                if line.startswith(":"):
                    self.comments += 1
                elif line != "\n":
                    name, _, value = line[:-1].partition(": ")
                    fields[name] = value
                elif fields:
                    data = json.loads(fields["data"])
                    self.events.append(Event(fields["event"], fields.get("id", ""), data))
                    fields = {}
            self.ended = time.monotonic()


@contextlib.contextmanager
def streaming(url: str, model: str = "m", last: str = "", **headers: str) -> Iterator[Stream]:
    """Open a stream; yield it once its first comment has come."""
    place = urlsplit(url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=3 * TIMEOUT)
    given = {**headers, **({"last-event-id": last} if last else {})}
    try:
        connection.request("GET", f"/models/{model}/stream", headers=given)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        found = Stream({name.lower(): value for name, value in response.getheaders()})
        reader = threading.Thread(target=found.read, args=[response])
        reader.start()
        try:
            until(lambda: found.comments or found.ended)
            yield found
        finally:
            with contextlib.suppress(OSError):  # it has ended
                connection.sock.shutdown(socket.SHUT_RDWR)
            reader.join()
            response.close()
    finally:
        connection.close()
