"""`solar simulate --url`: simulated users against a running service."""

import json
from pathlib import Path

import numpy as np
import pytest

from app.evaluation.synthetic import SyntheticData
from tests.api.services import serving
from tests.commands import solar


def judged_file(folder: Path) -> str:
    _, queries = SyntheticData(4, 30, 8, noise=0.2).draw(np.random.default_rng(3))
    lines = [
        f"{label:g} qid:{q} " + " ".join(f"{k + 1}:{value}" for k, value in enumerate(row))
        for q, query in enumerate(queries)
        for label, row in zip(query.labels, query.documents.tolist(), strict=True)
    ]
    (folder / "judged.txt").write_text("\n".join(lines) + "\n")
    return str(folder / "judged.txt")


def test_a_running_service_learns_from_simulated_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, plot = judged_file(tmp_path), tmp_path / "curves.svg"
    with serving() as service, service.client() as client:
        words = ["simulate", file, "--url", service.url, "--model", "shop", "--users", "perfect",
                 "--prior", "0", "--impressions", "300", "--connections", "4", "--top-k", "5",
                 "--json", "--plot", str(plot)]  # fmt: skip
        assert solar(*words) == 0
        output, errors = capsys.readouterr()
        found = client.get("/models/shop").json()
        assert solar(*words, "--gamma", "7") == 2
        assert "model shop: expected a new model or one with these settings" in (
            capsys.readouterr().err
        )
    assert found["seq"] == found["version"] == found["feedback"] == 300  # no duplicates
    row = json.loads(output)
    assert (
        row["curves"]["test"]["mean"][-1] == row["test"] > row["curves"]["test"]["mean"][0] + 0.05
    )
    assert "300 rankings in" in errors
    assert "/feedback p50" in errors
    assert '"logger"' not in errors  # httpx logs a line for each request
    assert "shown NDCG@10" in plot.read_text()
