"""The image and the compose file: what can be known of them without an engine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import config
from app.api import auth
from app.runtime import jit_cache
from app.runtime.precompile import MODEL_KINDS, TRAININGS
from docker.demo import traffic
from tests.api.services import serving
from tests.servers import until

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
CONTAINERS = (ROOT / "docs" / "containers.md").read_text()
#: The key of somebody who calls, not of the service: `solar train --url` and the demo read it.
CALLERS = {"SOLAR_KEY"}
TARGET = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}


def run(
    *command: str | Path, environ: dict[str, str] | None = None, cwd: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**os.environ, **(environ or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


# ---- the files, by the programs that read them ----


@pytest.mark.skipif(not (BIN / "hadolint").exists(), reason="no wheel of hadolint for this machine")
def test_hadolint_has_nothing_against_the_dockerfile() -> None:
    found = run(BIN / "hadolint", "docker/Dockerfile")
    assert found.returncode == 0, found.stdout


def test_the_compose_file_is_one_by_the_schema_of_compose(tmp_path: Path) -> None:
    schema = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    found = run(*schema, "docker-compose.yml")
    assert found.returncode == 0, found.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text(COMPOSE_TEXT.replace("read_only: true", "readonly: true"))
    assert run(*schema, broken).returncode != 0


# ---- what they say ----


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bSOLAR_[A-Z_]+\b", text))


def test_every_variable_of_ours_in_them_is_one_that_the_service_knows() -> None:
    named = variables(DOCKERFILE) | variables(COMPOSE_TEXT) | variables(CONTAINERS)
    named |= variables((ROOT / "docker" / "up.sh").read_text())
    assert len(named) > 4
    assert named <= set(config.VARIABLES) | CALLERS


def images() -> Iterator[str]:
    yield from re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    for service in COMPOSE["services"].values():
        if "build" not in service:
            yield service["image"]


def test_every_image_is_pinned_to_one_version() -> None:
    found = list(images())
    assert len(found) == 6
    for image in found:
        assert re.search(r":v?\d+\.\d+\.\d+(-[a-z-]+)?$", image), image
    for line in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE):
        assert line == "${PYTHON_IMAGE}"


def test_no_secret_stands_in_them() -> None:
    for service in COMPOSE["services"].values():
        for name, value in (service.get("environment") or {}).items():
            if re.search(r"PASSWORD|KEY|AUTH|SECRET|REDIS_URL", name):
                assert re.fullmatch(r"[^$]*\$\{[A-Z_]+:\?[^}]+\}[^$]*", value), (name, "no default")
    passwords = re.findall(r"\$\{[A-Z_]*(?:PASSWORD|KEYS?)\b([^}]*)\}", COMPOSE_TEXT)
    assert len(passwords) >= 5
    assert all(rest.startswith(":?") for rest in passwords)
    assert re.search(r"^\.env$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


def test_no_command_line_has_a_password() -> None:
    for service in COMPOSE["services"].values():
        words = " ".join([*(service.get("entrypoint") or []), *(service.get("command") or [])])
        assert not re.search(r"requirepass|masterauth|--pass|\$\{", words), words


def test_redis_may_load_what_it_wrote() -> None:
    """With less, a restart loses every transaction: redis/redis#14541, seen with Redis 7.0.15."""
    (script,) = COMPOSE["services"]["redis"]["command"]
    assert "\nuser default off ~* &* +@all\n" in script


def test_every_container_is_confined() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_files_that_are_mounted_are_there() -> None:
    for service in COMPOSE["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("./") and not source.endswith("/dashboards"):  # generated
                assert (ROOT / source).is_dir(), source


def test_what_is_served_behind_the_proxy_is_what_the_documents_say() -> None:
    assert COMPOSE["services"]["api"]["deploy"]["replicas"] == 2
    assert COMPOSE["services"]["demo"]["profiles"] == ["demo"]
    for name in ("PUBLISH_API", "PUBLISH_GRAFANA", "PUBLISH_PROMETHEUS", "PUBLISH_ALERTMANAGER"):
        assert f"`{name}`" in CONTAINERS
    for name in COMPOSE["services"]:
        assert f"`{name}`" in CONTAINERS, name


def test_the_image_names_one_target_for_the_build_and_for_later() -> None:
    stages = DOCKERFILE.split("\nFROM ")[1:]
    assert len(stages) == 2
    for stage in stages:
        assert "ARG KERNEL_CPU=x86-64-v3" in stage
        assert "NUMBA_CPU_NAME=${KERNEL_CPU}" in stage
        assert 'NUMBA_CPU_FEATURES=""' in stage
        assert "NUMBA_CACHE_DIR=/opt/solar/kernels" in stage


# ---- secrets ----


def test_make_up_makes_secrets_that_the_service_takes(tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    script = tmp_path / "docker" / "up.sh"
    script.write_bytes((ROOT / "docker" / "up.sh").read_bytes())
    assert run("sh", script, "secrets", cwd=tmp_path).returncode == 0
    path = tmp_path / ".env"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    made = dict(line.split("=", 1) for line in lines)
    keys = auth.read_keys(made["SOLAR_KEYS"])
    web, admin = (auth.holder(keys, made[name].encode()) for name in ("API_KEY", "ADMIN_KEY"))
    assert web is not None
    assert admin is not None
    assert web.scopes == {"rank", "feedback"}
    assert admin.scopes == {"rank", "feedback", "admin"}
    assert all(len(made[name]) == 43 for name in made if "PASSWORD" in name)
    needed = set(re.findall(r"\$\{([A-Z_]+):\?", COMPOSE_TEXT))
    assert needed <= set(made)
    before = path.read_text()
    assert run("sh", script, "secrets", cwd=tmp_path).returncode == 0
    assert path.read_text() == before


def test_make_up_says_what_to_do_where_there_is_no_engine(tmp_path: Path) -> None:
    sh = next(path for path in ("/bin/sh", "/usr/bin/sh") if Path(path).exists())
    for name in ("dirname", "printf"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    found = run(sh, ROOT / "docker" / "up.sh", environ={"PATH": str(tmp_path)})
    assert found.returncode == 1
    assert "no docker command" in found.stderr
    assert "make run" in found.stderr


# ---- kernels ----


def test_kernels_of_a_cache_that_cannot_be_written_are_not_compiled_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    script = (
        "from app.runtime import precompile; import sys\n"
        "precompile.learner.warm_up()\n"
        "loaded, compiled = precompile.count_kernels()\n"
        "print(loaded, len(compiled))\n"
    )
    environ = {**TARGET, "NUMBA_CACHE_DIR": str(cache)}
    first = run(sys.executable, "-c", script, environ=environ)
    assert first.returncode == 0, first.stderr
    assert first.stdout.split()[0] == "0"
    links = jit_cache.linked(cache)
    second = run(sys.executable, "-c", script, environ={**environ, "NUMBA_CACHE_DIR": str(links)})
    loaded, compiled = map(int, second.stdout.split())
    assert loaded > 5
    assert compiled == 0
    names = [path for path in links.rglob("*") if not path.is_dir()]
    assert len(names) > 10
    assert all(path.is_symlink() for path in names)


def test_warming_covers_every_kind_of_model_and_of_training() -> None:
    assert {(kind.algorithm, kind.covariance) for kind in MODEL_KINDS} == {
        ("solar-i", "full"), ("solar-ii", "full"), ("solar-ii", "diagonal"),
    }  # fmt: skip
    assert {(one.trainer, one.loss) for one in TRAININGS} >= {
        ("ranksvm", "l2"), ("ranksvm", "l1"), ("domination", "l2"),
    }  # fmt: skip


# ---- the demo ----


def test_the_demo_brings_queries_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, entry = auth.new_key("admin", "rank+feedback+admin")
    monkeypatch.setenv("SOLAR_KEY", secret)
    monkeypatch.setattr(traffic, "RATE", (50.0, 50.0))
    with serving(environ={"SOLAR_KEYS": entry}) as service:
        traffic.main(service.url, seconds=3.0)
        with service.client(headers={"authorization": f"Bearer {secret}"}) as client:
            until(lambda: client.get("/models/demo").json()["queries"] > 5)
            found = client.get("/models/demo").json()
    assert found["features"] == list(traffic.FEATURES)
    assert any(found["weights"].values())


def test_the_taste_of_the_demo_turns_and_comes_back() -> None:
    assert traffic.taste(0.0) == pytest.approx(traffic.TASTES[0])
    assert traffic.taste(traffic.TURN / 2) == pytest.approx(traffic.TASTES[1])
    assert traffic.taste(traffic.TURN) == pytest.approx(traffic.TASTES[0])
    assert json.dumps(traffic.rate(0.0)) == "2.0"
