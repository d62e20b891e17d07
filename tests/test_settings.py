"""Every knob from the environment, and what cannot be one."""

from dataclasses import fields
from pathlib import Path

import pytest

from app import settings
from app.errors import SolarError
from app.settings import GIB, VARIABLES, Environment


def test_without_variables_there_are_defaults() -> None:
    assert settings.read({}) == Environment("", Path("data"), GIB, 5.0)
    assert settings.read({"PATH": "/bin"}) == Environment()


def test_every_variable_is_read() -> None:
    given = {
        "SOLAR_REDIS_URL": "redis://localhost",
        "SOLAR_DATA_DIR": "/var/lib/solar",
        "SOLAR_MEMORY": "1048576",
        "SOLAR_LEASE": "2.5",
    }
    assert set(given) == set(VARIABLES)
    found = settings.read(given)
    assert found == Environment("redis://localhost", Path("/var/lib/solar"), 1 << 20, 2.5)


def test_every_field_has_its_variable() -> None:
    assert {variable[0] for variable in VARIABLES.values()} == {
        field.name for field in fields(Environment)
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SOLAR_MEMORY", "1GB"),
        ("SOLAR_MEMORY", ""),
        ("SOLAR_MEMORY", "0"),
        ("SOLAR_MEMORY", "-1"),
        ("SOLAR_LEASE", "soon"),
        ("SOLAR_LEASE", "0"),
        ("SOLAR_LEASE", "-5"),
        ("SOLAR_LEASE", "nan"),
        ("SOLAR_LEASE", "inf"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(SolarError, match=f"{name}: expected"):
        settings.read({name: value})
