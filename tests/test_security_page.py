"""The limits on the security page are those of the settings."""

import re
from pathlib import Path

from app.api.auth import SCOPES
from app.api.browsers import OPEN_PATHS
from app.config import VARIABLES, Settings, is_size

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
UNITS = {"MB": 10**6, "GiB": 1 << 30}


def limits() -> dict[str, str]:
    """Setting → its default on the page."""
    table = PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = (line.split(" | ") for line in table.splitlines() if line.startswith("| "))
    return {row[2].strip("`"): row[1] for row in rows if row[2].startswith("`SOLAR_")}


def value(text: str) -> float:
    """The number at the start of a text such as `10 MB`, `1,800 s` or `1: no limit`."""
    number, unit = re.match(r"([\d,]+) ?(\w*)", text).groups()  # type: ignore[union-attr]
    return float(number.replace(",", "")) * UNITS.get(unit, 1)


def test_the_page_has_the_default_of_every_limit() -> None:
    shown = limits()
    for variable, name in VARIABLES.items():
        field = Settings.model_fields[name]
        if re.search(r"\b(limit|maximum)\b", str(field.description)):
            assert variable in shown
        if variable in shown and isinstance(field.default, int | float):
            assert value(shown[variable]) == field.default, variable
            assert is_size(name) == (shown[variable].split()[-1] in UNITS), variable


def test_everyone_of_the_threat_model_has_a_row() -> None:
    table = PAGE.partition("\n## Threat model\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| **")]
    assert len(rows) == 5 + len(SCOPES)
    assert all(any(f"`{scope}` key**" in row for row in rows) for scope in SCOPES)
    assert all(len([cell for cell in row.split(" | ") if len(cell) > 10]) == 4 for row in rows)


def test_the_page_names_every_path_that_is_open_to_all_origins() -> None:
    cors = PAGE.partition("\n## CORS\n")[2].partition("\n## ")[0]
    assert cors.strip().startswith("There is no CORS unless `SOLAR_CORS` is set, but for ")
    first = cors.partition(":")[0]
    assert set(re.findall(r"`(/[^`]+)`", first)) == OPEN_PATHS


def test_the_page_names_the_protocol_and_the_way_to_report() -> None:
    assert "--http app.runtime.protocol:LimitedProtocol" in PAGE
    assert "\n## Report a vulnerability\n" in PAGE
    assert "[Secure](docs/security.md)" in (ROOT / "README.md").read_text()


def test_scripts_use_only_commands_of_the_documented_acl() -> None:
    acl = re.findall(r"```acl\n(.*?)```", PAGE, re.DOTALL)[0]
    allowed = set(re.findall(r"\+(\S+)", acl))
    scripts = "".join(
        one.read_text() for one in (ROOT / "app" / "storage" / "scripts").glob("*.lua")
    )
    calls = re.findall(r"redis\.p?call\('(\w+)'(?:, '([A-Z]+)')?", scripts)
    used = {"|".join(filter(None, call)).lower() for call in calls}
    assert "memory|usage" in used
    assert used - allowed == set()
