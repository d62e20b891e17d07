"""Whoever is woken finds out what to do; and each alert is tried where it fires and where not."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ops.__main__ import ROOT
from ops.rules import ALERTS, RECORDED

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
RULES = yaml.safe_load((ROOT / "docker" / "prometheus" / "rules.yml").read_text())
NAMES = [alert.name for alert in ALERTS]
PARTS = ("**What it means.**", "**Look at.**", "**Do.**")


def sections() -> dict[str, str]:
    found = re.split(r"^## (.+)\n", RUNBOOK, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def cases() -> Iterator[tuple[str, list[Any]]]:
    """Each case for promtool, and the alerts it expects."""
    for path in sorted((ROOT / "tests" / "ops").glob("rules_*test.yml")):
        for case in yaml.safe_load(path.read_text())["tests"]:
            yield case["name"], case["alert_rule_test"]


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    assert list(sections()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_section_says_what_it_means_what_to_look_at_and_what_to_do(name: str) -> None:
    places = [sections()[name].find(part) for part in PARTS]
    assert -1 < places[0] < places[1] < places[2]


def test_sections_send_the_reader_only_to_sections_that_exist() -> None:
    assert set(re.findall(r"\bSolar[A-Z]\w+", RUNBOOK)) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_leads_to_its_section_and_says_how_bad_it_is(name: str) -> None:
    (rule,) = [one for group in RULES["groups"] for one in group["rules"]
               if one.get("alert") == name]  # fmt: skip
    path, anchor = rule["annotations"]["runbook"].split("#")
    assert (ROOT / path).read_text() == RUNBOOK
    assert anchor in [heading.lower() for heading in sections()]
    assert rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["for"]


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_is_tried_where_it_fires_and_where_it_is_quiet(name: str) -> None:
    found = dict(cases())
    fires, quiet = found[f"{name} fires"], found[f"{name} is quiet"]
    assert {one["alertname"] for one in (*fires, *quiet)} == {name}
    assert any(one["exp_alerts"] for one in fires)
    assert not any(one["exp_alerts"] for one in quiet)


def test_no_case_is_of_an_alert_that_is_gone() -> None:
    assert len(list(cases())) == len(dict(cases())) == 2 * len(NAMES)


def test_recorded_series_are_named_by_what_they_are() -> None:
    for one in RECORDED:
        assert re.fullmatch(r"model(_\w+)?:solar_\w+:\w+", one.name)
