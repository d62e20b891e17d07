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


@pytest.mark.slow
def test_models_duel_in_a_running_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = judged_file(tmp_path)
    with serving() as service, service.client() as client:
        words = ["simulate", file, "--url", service.url, "--users", "perfect", "--json",
                 "--impressions", "400", "--connections", "4", "--gamma", "50"]  # fmt: skip
        assert solar(*words, "--model", "shop", "--duel", "model", "submitted") == 0
        against_submitted = json.loads(capsys.readouterr().out)
        sides = ["--duel", "clicks=click-skip-above,gamma=7", "covariance=diagonal"]
        assert solar(*words, "--model", "books", *sides) == 0
        against_follower = json.loads(capsys.readouterr().out)
        shop, books = (client.get(f"/models/{name}/duel").json() for name in ("shop", "books"))
        leader, follower = (client.get(f"/models/{name}").json() for name in ("books", "books-b"))
        assert solar(*words, "--model", "shop", "--duel", "model", "submitted") == 2
        assert "duel: another one is on" in capsys.readouterr().err
        assert solar(*words, "--duel", "labels", "best") == 2
        assert "as a model in a service learns, got labels" in capsys.readouterr().err
    for row, duel in ((against_submitted, shop), (against_follower, books)):
        for name in ("lists", "wins", "losses", "ties", "win_share", "evidence", "verdict"):
            assert row[name] == duel[name]
        assert 100 < row["lists"] < 300
    assert against_submitted["verdict"] == "champion"
    assert against_submitted["needed"] <= against_submitted["lists"]
    assert against_submitted["champion_ndcg"] > against_submitted["challenger_ndcg"]
    assert (leader["gamma"], leader["clicks"]) == (7.0, "click-skip-above")
    assert (follower["gamma"], follower["clicks"]) == (50.0, "debiased")
    assert (follower["follows"], follower["covariance"]) == ("books", "diagonal")
    assert against_follower["challenger_ndcg"] is not None
