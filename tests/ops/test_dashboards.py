"""The dashboards match their source, and every panel is explained and uses existing metrics."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.learning.learner import warm_up
from app.observability.metrics import DEPRECATED_NAMES
from ops.__main__ import BOARDS, ROOT, files
from tests.api.services import serving
from tests.ops.expressions import all_expressions, metrics, service_metrics
from tests.servers import until

FOLDER = ROOT / "docker" / "grafana" / "dashboards"
#: The units in use, of those in @grafana/data 11.6; Grafana shows no unit for an unknown name.
UNITS = {"bool_yes_no", "bytes", "cps", "none", "percentunit", "reqps", "s", "short"}
BUILT_IN = {"__rate_interval", "__range"}


@pytest.mark.parametrize("path", files(), ids=lambda path: Path(path).name)
def test_committed_files_are_what_make_dashboards_writes(path: Path) -> None:
    assert path.read_text() == files()[path], "run make dashboards"


def test_only_the_generated_dashboards_are_provisioned() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == ["pipeline", "quality", "service"]


def boards() -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]


def panels(board: Any) -> Iterator[Any]:
    return (panel for panel in board["panels"] if panel["type"] != "row")


@pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])
def test_every_panel_has_a_unit_a_description_and_a_legend(board: Any) -> None:
    for panel in panels(board):
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["legendFormat"], panel["title"]
    titles = [panel["title"] for panel in panels(board)]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])
def test_variables_are_declared_and_used(board: Any) -> None:
    declared = {one["name"] for one in board["templating"]["list"]}
    assert {"datasource", "model", "instance"} <= declared
    text = json.dumps(list(panels(board)))
    used = set(re.findall(r"\$\{?(\w+)", text)) - BUILT_IN
    assert used == declared


@pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])
def test_panels_do_not_overlap_and_have_unique_ids(board: Any) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        x, y = at.get("x", 0), at.get("y", 0)
        cells = {(x + dx, y + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert x + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])
def test_the_panels_of_a_row_fill_whole_lines(board: Any) -> None:
    """Grafana places panels from left to right: each line is full, and its panels equally high."""
    lines: dict[int, list[Any]] = {}
    for panel in board["panels"]:
        lines.setdefault(panel["gridPos"].get("y", 0), []).append(panel)
    next_line = 0
    for top, line in sorted(lines.items()):
        titles = [panel["title"] for panel in line]
        assert top == next_line, titles
        assert sum(panel["gridPos"]["w"] for panel in line) == 24, titles
        (height,) = {panel["gridPos"]["h"] for panel in line}
        next_line = top + height


@pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])
def test_every_dashboard_begins_with_the_same_row_of_numbers(board: Any) -> None:
    row, *others = board["panels"]
    assert (row["type"], row["title"]) == ("row", "At a glance")
    first = list(itertools.takewhile(lambda panel: panel["type"] != "row", others))
    assert [panel["title"] for panel in first] == [
        "Rankings per second", "/rank p99", "Freshness p95", "NDCG@10 lead, last hour",
        "Share not remembered", "Rankings not remembered",
    ]  # fmt: skip
    assert {panel["type"] for panel in first} == {"stat"}
    lead = first[3]["targets"]
    assert [target["legendFormat"] for target in lead] == ["lead", "standard error"]


@pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])
def test_lines_have_no_gaps(board: Any) -> None:
    for panel in panels(board):
        if panel["type"] == "timeseries":
            custom = panel["fieldConfig"]["defaults"]["custom"]
            stacked = "stacking" in custom
            assert custom["spanNulls"] is not stacked, panel["title"]


def test_lines_of_models_are_of_models_with_activity_in_the_shown_range() -> None:
    """An idle model draws no line at 0 or at its last value."""
    filtered = 0
    for board in BOARDS:
        for panel in board.panels():
            for query in panel.queries:
                if panel.kind == "lines" and "{{model}}" in query.legend:
                    of_window = re.search(r"\[\$window\]\)+ > 0\)$", query.expr)
                    in_range = re.search(r"\[\$__range\] @ end\(\)\)+ > 0\)$", query.expr)
                    assert of_window or in_range, (panel.title, query.expr)
                    filtered += bool(in_range)
    assert filtered > 25


def bands(panel: Any) -> dict[str, dict[str, Any]]:
    """The overrides of a panel by the query to which they apply."""
    return {
        one["matcher"]["options"]: {value["id"]: value["value"] for value in one["properties"]}
        for one in panel["fieldConfig"].get("overrides", [])
        if one["matcher"]["id"] == "byFrameRefID"
    }


def test_a_standard_error_is_a_band_between_two_hidden_lines() -> None:
    (board,) = [board for board in boards() if board["uid"] == "solar-quality"]
    found = 0
    for panel in panels(board):
        targets = {target["refId"]: target for target in panel["targets"]}
        looks = bands(panel)
        assert set(looks) == {name for name in targets if "-" in name}, panel["title"]
        for name in targets.keys() - looks.keys():
            if f"{name}-above" in looks:
                below, above = looks[f"{name}-below"], looks[f"{name}-above"]
                assert above["custom.fillBelowTo"] == targets[f"{name}-below"]["legendFormat"]
                assert above["custom.fillOpacity"] > below["custom.fillOpacity"] == 0
                for one in (below, above):
                    assert one["custom.lineWidth"] == 0
                    assert one["custom.hideFrom"]["legend"] is True
                    assert one["custom.hideFrom"]["viz"] is False
                found += 1
    assert found > 20


def test_every_mean_on_the_quality_board_has_a_band() -> None:
    (board,) = [board for board in BOARDS if board.name == "quality"]
    means = re.compile(r"NDCG@\d+(?! lost)|MAP|Debiased")
    for panel in board.panels():
        if panel.kind == "lines" and means.match(panel.title):
            assert all(query.error for query in panel.queries), panel.title
            assert "The band is one standard error." in panel.description


def test_panels_of_debiased_wins_say_that_they_do_not_compare_models() -> None:
    found = 0
    for board in BOARDS:
        for panel in board.panels():
            if any("debiased" in one.expr for one in panel.queries):
                assert "pessimistic sign for one model" in panel.description, panel.title
                assert "Do not compare models by it." in panel.description, panel.title
                found += 1
    assert found == 3


def test_descriptions_name_alerts_that_exist() -> None:
    rules = (ROOT / "docker" / "prometheus" / "rules.yml").read_text()
    for board in BOARDS:
        for panel in board.panels():
            for name in re.findall(r"\bSolar[A-Z]\w+", panel.description):
                assert f"alert: {name}\n" in rules, panel.title


# ---- metrics of a running service ----


def begin_duel(http: httpx.Client) -> None:
    """Create a follower of the model, and begin a duel with it."""
    assert http.put("/models/default-b", json={"follows": "default"}).status_code == 201
    duel = {"challenger": "default-b", "share": 0.5}
    assert http.put("/models/default/duel", json=duel).status_code == 201


def click_again(http: httpx.Client, documents: list[dict[str, Any]]) -> bool:
    """Click on a ranking, which may be of the duel."""
    ranked = http.post("/rank", json={"documents": documents}).json()
    event = {"type": "clicks", "request_id": ranked["request_id"], "clicked": ["a"]}
    named = {"event_id": ranked["request_id"], **event}
    return http.post("/feedback", json=named).status_code == 202


def has_duels(text: str) -> bool:
    """Whether a list of a duel is measured, and the follower has compared a list."""
    compared = r'solar_follower_compared_lists\{leader="default",model="default-b"\} [1-9]'
    return "solar_duel_ndcg{" in text and bool(re.search(compared, text))


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    """Sample → metric type, from /metrics of a service with a follower and a duel."""
    warm_up()  # the first compilation exceeds the timeout of `until`
    documents = [{"id": "a", "features": [1.0, 0.0]}, {"id": "b", "features": [0.0, 1.0]}]
    event = {"event_id": "e", "type": "labels", "documents": documents, "labels": {"b": 1}}
    with serving() as service, service.client() as http:
        assert http.put("/models/default", json={"features": 2}).status_code == 201
        assert http.post("/feedback", json=event).status_code == 202
        until(lambda: 'solar_freshness_seconds_count{model="default"}' in http.get("/metrics").text)
        for at in range(2):  # a standard error needs two
            ranked = http.post("/rank", json={"documents": documents, "explore": True}).json()
            click = {"event_id": f"c{at}", "type": "clicks", "request_id": ranked["request_id"]}
            assert http.post("/feedback", json={**click, "clicked": ["a"]}).status_code == 202
        until(lambda: 'solar_explored_ndcg_stderr{k="10"' in http.get("/metrics").text)
        begin_duel(http)
        until(lambda: click_again(http, documents) and has_duels(http.get("/metrics").text))
        text = http.get("/metrics").text
    return {
        sample.name: family.type
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_in_an_expression_exists(page: dict[str, str]) -> None:
    named = set[str]().union(*(service_metrics(one.expr) for one in all_expressions()))
    assert named <= set(page)
    assert len(named) > 25


def test_dashboards_and_rules_use_no_deprecated_metric(page: dict[str, str]) -> None:
    deprecated = {name for old in DEPRECATED_NAMES.values() for name in (old, f"{old}_total")}
    assert len(deprecated & set(page)) == len(DEPRECATED_NAMES)
    for one in all_expressions():
        assert not metrics(one.expr) & deprecated, one.where


def test_gauges_that_all_replicas_share_are_never_summed(page: dict[str, str]) -> None:
    gauges = {name for name, kind in page.items() if kind == "gauge"}
    shared = gauges - {"solar_store_up", "solar_process_up"}  # each instance has its own value
    seen = set()
    for where, expr in all_expressions():
        for name in metrics(expr) & shared:
            for before in re.split(rf"(?<![\w:]){name}\b(?!:)", expr)[:-1]:
                over_time = r"((deriv|max_over_time)\()?"
                found = re.search(rf"max( by \([\w, ]+\) )?\({over_time}$", before)
                assert found, (where, name)
                seen.add(name)
    assert len(seen) > 15
