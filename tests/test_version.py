"""The same version everywhere; and the wheel has the marker for type checkers."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import solar_client
import yaml

import app
from app.__main__ import main
from app.api.routers.console import CONSOLE_FILES

ROOT = Path(__file__).parents[1]


def test_project_package_changelog_and_image_have_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    (image,) = yaml.safe_load((ROOT / "k8s/base/kustomization.yaml").read_text())["images"]
    assert project["version"] == app.__version__
    assert re.findall(r"^## (\d.+)$", changelog, re.MULTILINE)[0] == app.__version__
    assert image["newTag"] == app.__version__


def test_the_client_has_one_version_and_the_extra_names_it() -> None:
    """An unrelated package on PyPI has the name, so pip must not take any other version."""
    client = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert client["version"] == solar_client.__version__
    assert extras["client"] == [f"solar-client=={solar_client.__version__}"]


def test_solar_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"solar {app.__version__}\n"


def test_the_wheel_is_typed_and_has_the_version(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "flit_core.wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.whl")
    with ZipFile(path) as wheel:
        names = wheel.namelist()
        about = wheel.read(f"solar_ranking-{app.__version__}.dist-info/METADATA").decode()
    assert "app/py.typed" in names
    assert {f"app/api/swagger/{name}" for name in ("index.html", "LICENSE", "NOTICE")} < set(names)
    console = {f"app/api/console/{name}" for name in (*CONSOLE_FILES, "README.md", "uPlot.LICENSE")}
    assert console < set(names)
    assert f"\nVersion: {app.__version__}\n" in about
    assert "\nLicense-File: app/api/console/uPlot.LICENSE\n" in about
