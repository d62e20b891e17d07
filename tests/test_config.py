"""Every setting from the environment, and what cannot be one."""

from dataclasses import fields
from pathlib import Path

import pytest

from app import config
from app.config import GIB, VARIABLES, Settings
from app.errors import SolarError


def test_without_variables_there_are_defaults() -> None:
    found = config.read_settings({})
    assert (found.host, found.port, found.redis_url) == ("127.0.0.1", 8000, "")
    assert (found.data_dir, found.memory, found.lease) == (Path("data"), GIB, 5.0)
    assert config.read_settings({"PATH": "/bin"}) == found == Settings()


def test_every_variable_is_read() -> None:
    given: dict[str, tuple[str, object]] = {
        "SOLAR_HOST": ("0.0.0.0", "0.0.0.0"),  # noqa: S104
        "SOLAR_PORT": ("8080", 8080),
        "SOLAR_WORKERS": ("4", 4),
        "SOLAR_LEARNER": ("no", False),
        "SOLAR_KEYS": ("name:rank:00", "name:rank:00"),
        "SOLAR_INSECURE": ("true", True),
        "SOLAR_CORS": ("https://shop.example", "https://shop.example"),
        "SOLAR_REDIS_URL": ("redis://localhost", "redis://localhost"),
        "SOLAR_DURABILITY": ("replicated", "replicated"),
        "SOLAR_DATA_DIR": ("/var/lib/solar", Path("/var/lib/solar")),
        "SOLAR_MEMORY": ("1048576", 1 << 20),
        "SOLAR_LEASE": ("2.5", 2.5),
        "SOLAR_DEFAULT_FEATURES": ("bm25,price", "bm25,price"),
        "SOLAR_IMPRESSION_SECONDS": ("60", 60.0),
        "SOLAR_REMEMBER_SECONDS": ("0.1", 0.1),
        "SOLAR_WAIT_SECONDS": ("0.5", 0.5),
        "SOLAR_BODY_BYTES": ("1000", 1000),
        "SOLAR_BODY_SECONDS": ("3", 3.0),
        "SOLAR_DOCUMENTS": ("50", 50),
        "SOLAR_PAIRS": ("500", 500),
        "SOLAR_EVENTS": ("10", 10),
        "SOLAR_ID_LENGTH": ("64", 64),
        "SOLAR_FEATURE_BOUND": ("100", 100.0),
        "SOLAR_BACKLOG": ("7", 7),
        "SOLAR_SOURCE_SHARE": ("0.5", 0.5),
        "SOLAR_JOBS": ("2", 2),
        "SOLAR_TRAINING_MEMORY": ("1073741824", 1 << 30),
        "SOLAR_UPLOAD_BYTES": ("2000", 2000),
        "SOLAR_UPLOAD_SECONDS": ("30", 30.0),
        "SOLAR_UPLOAD_DIR": ("/srv/solar", "/srv/solar"),
        "SOLAR_CHECK_SECONDS": ("1", 1.0),
        "SOLAR_ACCESS_LOG": ("1", True),
        "SOLAR_OTEL": ("yes", True),
    }
    assert set(given) == set(VARIABLES)
    found = config.read_settings({name: text for name, (text, _) in given.items()})
    for name, (_, value) in given.items():
        assert getattr(found, VARIABLES[name][0]) == value
        assert getattr(Settings(), VARIABLES[name][0]) != value


def test_every_field_has_its_variable() -> None:
    assert {variable[0] for variable in VARIABLES.values()} == {
        field.name for field in fields(Settings)
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
        ("SOLAR_DURABILITY", "always"),
        ("SOLAR_PORT", "65536"),
        ("SOLAR_LEARNER", "perhaps"),
        ("SOLAR_IMPRESSION_SECONDS", "4.9"),
        ("SOLAR_IMPRESSION_SECONDS", "172801"),
        ("SOLAR_SOURCE_SHARE", "1.1"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(SolarError, match=f"{name}: expected"):
        config.read_settings({name: value})
