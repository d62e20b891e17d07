"""`solar simulate --url`: simulated users at a real service."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from app.errors import SolarError
from app.evaluation.synthetic import World
from app.simulation import http_client
from app.simulation.http_client import HttpClient
from tests.api.services import serving
from tests.commands import solar


def judged_file(folder: Path) -> str:
    _, queries = World(4, 30, 8, noise=0.2).draw(np.random.default_rng(3))
    lines = [
        f"{label:g} qid:{q} " + " ".join(f"{k + 1}:{value}" for k, value in enumerate(row))
        for q, query in enumerate(queries)
        for label, row in zip(query.labels, query.documents.tolist(), strict=True)
    ]
    (folder / "judged.txt").write_text("\n".join(lines) + "\n")
    return str(folder / "judged.txt")


def test_simulated_users_teach_a_running_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, plot = judged_file(tmp_path), tmp_path / "curves.svg"
    with serving() as service, service.client() as client:
        words = ["simulate", file, "--url", service.url, "--model", "shop", "--users", "perfect",
                 "--prior", "0", "--impressions", "300", "--connections", "4", "--top-k", "5",
                 "--json", "--plot", str(plot)]  # fmt: skip
        assert solar(*words) == 0
        said, whispered = capsys.readouterr()
        found = client.get("/models/shop").json()
        assert solar(*words, "--gamma", "7") == 2
        assert "model shop: expected a new one, or one with these settings" in (
            capsys.readouterr().err
        )
    assert found["seq"] == found["version"] == found["feedback"] == 300  # each click once
    row = json.loads(said)
    assert (
        row["curves"]["test"]["mean"][-1] == row["test"] > row["curves"]["test"]["mean"][0] + 0.05
    )
    assert "300 lists in" in whispered
    assert "/feedback p50" in whispered
    assert plot.read_text().count("<polyline") == 2


class Busy(BaseHTTPRequestHandler):
    """Asks to come again twice, then answers."""

    seen = 0

    def do_GET(self) -> None:
        Busy.seen += 1
        status = 503 if Busy.seen <= 2 else 200
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def busy() -> Iterator[str]:
    Busy.seen = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_line_waits_where_it_is_asked_to_and_says_so(busy: str) -> None:
    with HttpClient(busy) as line:
        assert line.ask("GET", "/")[0] == 200
        assert line.waited == ["503", "503"]


def test_a_service_that_is_not_there_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "REQUEST_SECONDS", 0.1)
    with HttpClient("http://127.0.0.1:9") as line, pytest.raises(SolarError, match="a connection"):
        line.ask("GET", "/")
    with pytest.raises(SolarError, match="--url: expected http://HOST:PORT"):
        HttpClient("localhost:8000")
