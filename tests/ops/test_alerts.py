"""Every alert has a runbook section and test cases, and the runbook names panels that exist."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from app.observability.metric_help import HELP
from app.ranking.drift import ALARM
from ops.__main__ import BOARDS, ROOT
from ops.recorded import RECORDING_RULES
from ops.rules import ALERTS
from tests.ops.expressions import service_metrics

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
RULES = yaml.safe_load((ROOT / "docker" / "prometheus" / "rules.yml").read_text())
NAMES = [alert.name for alert in ALERTS]
DRIFT = "Evidence of drift"
PARTS = ("**Meaning.**", "**Impact.**", "**Check.**", "**Fix.**")


def sections() -> dict[str, str]:
    found = re.split(r"^## (.+)\n", RUNBOOK, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def cases() -> Iterator[tuple[str, list[Any]]]:
    """The name of each promtool case, and the alerts that it expects."""
    for path in sorted((ROOT / "tests" / "ops").glob("rules_*test.yml")):
        for case in yaml.safe_load(path.read_text())["tests"]:
            yield case["name"], case["alert_rule_test"]


def rule_of(alert: str) -> Any:
    (rule,) = [one for group in RULES["groups"] for one in group["rules"]
               if one.get("alert") == alert]  # fmt: skip
    return rule


def test_the_runbook_has_one_section_for_each_alert() -> None:
    assert list(sections()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_section_has_meaning_impact_check_and_fix_in_this_order(name: str) -> None:
    positions = [sections()[name].find(part) for part in PARTS]
    assert positions[0] > -1
    assert positions == sorted(set(positions))


def test_the_runbook_refers_only_to_alerts_that_exist() -> None:
    assert set(re.findall(r"\bSolar[A-Z]\w+", RUNBOOK)) == set(NAMES)


def test_the_runbook_names_only_panels_and_dashboards_that_exist() -> None:
    quoted = re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", RUNBOOK.replace("*italics*", ""))
    assert len(quoted) > 20
    boards = {board.title.removeprefix("SOLAR: ") for board in BOARDS}
    panels = {panel.title for board in BOARDS for panel in board.panels()}
    assert set(quoted) <= boards | panels


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_links_to_its_section_and_has_a_severity(name: str) -> None:
    rule = rule_of(name)
    path, anchor = rule["annotations"]["runbook"].split("#")
    assert (ROOT / path).read_text() == RUNBOOK
    assert anchor in [heading.lower() for heading in sections()]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["for"]


@pytest.mark.parametrize("name", NAMES)
def test_a_description_has_three_sentences_for_fault_impact_and_first_step(name: str) -> None:
    annotations = rule_of(name)["annotations"]
    assert annotations["summary"]
    assert len(re.findall(r"\.(?= |$)", annotations["description"])) == 3


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_case_that_fires_and_a_case_that_is_quiet(name: str) -> None:
    found = dict(cases())
    fires, quiet = found[f"{name} fires"], found[f"{name} is quiet"]
    assert {one["alertname"] for one in (*fires, *quiet)} == {name}
    assert any(one["exp_alerts"] for one in fires)
    assert not any(one["exp_alerts"] for one in quiet)


def test_every_alert_has_exactly_two_rule_test_cases() -> None:
    assert len(list(cases())) == len(dict(cases())) == 2 * len(NAMES)


def test_alert_panel_and_help_have_the_alarm_level_of_the_drift_detector() -> None:
    assert rule_of("SolarDrift")["expr"] == f"max by (model) (solar_drift) > {ALARM:g}"
    (panel,) = [one for board in BOARDS for one in board.panels() if one.title == DRIFT]
    assert f"vector({ALARM:g})" in [query.expr for query in panel.queries]
    assert f"above {ALARM:g} it counts as drift" in HELP["solar_drift"]


def test_no_alert_fires_on_debiased_wins_alone() -> None:
    """They lean against whichever model draws the rankings."""
    used = {alert.name: service_metrics(alert.expr) for alert in ALERTS}
    wins = "solar_debiased_wins_summed"
    assert [name for name, found in used.items() if wins in found] == ["SolarWorseThanSubmitted"]
    assert "solar_lead_ndcg_summed" in used["SolarWorseThanSubmitted"]


def test_recorded_series_are_named_by_level_metric_and_operation() -> None:
    for one in RECORDING_RULES:
        assert re.fullmatch(r"model(_\w+)?:solar_\w+:\w+", one.name)
