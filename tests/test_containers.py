"""The image and the compose file, checked without a container engine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
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
from tests.sizes import api_memory, size

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
CONTAINERS = (ROOT / "docs" / "deploy.md").read_text()
#: Variables of clients, not of the service: `solar train --url` and the demo read the API key.
CLIENT_VARIABLES = {"SOLAR_KEY"}
TARGET = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}


def run(
    *command: str | Path, environ: dict[str, str] | None = None, cwd: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**os.environ, **(environ or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


# ---- syntax ----


@pytest.mark.skipif(
    not (BIN / "hadolint").exists(), reason="hadolint has no wheel for this platform"
)
def test_hadolint_accepts_the_dockerfile() -> None:
    found = run(BIN / "hadolint", "docker/Dockerfile")
    assert found.returncode == 0, found.stdout


def test_the_compose_file_matches_the_schema_of_compose(tmp_path: Path) -> None:
    schema = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    found = run(*schema, "docker-compose.yml")
    assert found.returncode == 0, found.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text(COMPOSE_TEXT.replace("read_only: true", "readonly: true"))
    assert run(*schema, broken).returncode != 0


# ---- content ----


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bSOLAR_[A-Z_]+\b", text))


def test_every_solar_variable_is_a_setting_of_the_service() -> None:
    named = variables(DOCKERFILE) | variables(COMPOSE_TEXT) | variables(CONTAINERS)
    named |= variables((ROOT / "docker" / "up.sh").read_text())
    assert len(named) > 4
    assert named <= {*config.VARIABLES, config.ENV_FILE, *CLIENT_VARIABLES}


def images() -> Iterator[str]:
    yield from re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    for service in COMPOSE["services"].values():
        if "build" not in service:
            yield service["image"]


def test_every_image_is_pinned_to_one_version() -> None:
    found = list(images())
    assert len(found) == 6
    for image in found:
        assert re.search(r":v?\d+\.\d+\.\d+(-[a-z-]+)?(@sha256:[0-9a-f]{64})?$", image), image
    for line in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE):
        assert line == "${PYTHON_IMAGE}"


def test_no_command_line_contains_a_password() -> None:
    for service in COMPOSE["services"].values():
        words = " ".join([*(service.get("entrypoint") or []), *(service.get("command") or [])])
        assert not re.search(r"requirepass|masterauth|--pass|\$\{", words), words


def test_the_default_user_of_redis_keeps_all_permissions() -> None:
    """With fewer, a restart loses every transaction: redis/redis#14541, seen with Redis 7.0.15."""
    (script,) = COMPOSE["services"]["redis"]["command"]
    assert "\nuser default off ~* &* +@all\n" in script


def test_every_container_is_read_only_without_capabilities() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_every_container_has_a_limit_of_memory_and_processes() -> None:
    for name, service in COMPOSE["services"].items():
        # compose refuses `pids_limit` next to `deploy.resources.limits` without `pids`.
        assert "resources" not in service.get("deploy", {}), name
        assert 128 <= service["pids_limit"] <= 1024, name
        on_tmpfs = sum(size(one) for one in re.findall(r"size=(\w+)", str(service.get("tmpfs"))))
        assert size(default(service["mem_limit"])) >= on_tmpfs + (64 << 20), name
        for one in service.get("tmpfs", ()):
            assert "size=" in one, name  # else half of the machine's memory


def test_an_api_container_fits_its_workers_and_all_their_training_jobs() -> None:
    api = COMPOSE["services"]["api"]
    given = {
        name: default(value)
        for name, value in api["environment"].items()
        if name in config.VARIABLES
    }
    (scratch,) = re.findall(r"size=(\w+)", str(api["tmpfs"]))
    wanted = api_memory(config.read_settings(given), size(scratch))
    assert size(default(api["mem_limit"])) >= wanted


def default(text: str) -> str:
    """The value of a setting if `.env` does not have its variable."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_only_the_api_and_grafana_can_be_published_beyond_this_machine() -> None:
    """Prometheus and Alertmanager have no passwords."""
    public = {
        name
        for name, service in COMPOSE["services"].items()
        for port in service.get("ports", ())
        if not port.startswith("127.0.0.1:")
    }
    assert public == {"proxy", "grafana"}


def test_the_api_sees_the_address_of_the_visitor_behind_the_proxy() -> None:
    """The rate of beacons is by address; Docker's networks are in these ranges."""
    proxy = (ROOT / "docker" / "proxy" / "nginx.conf").read_text()
    assert "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;" in proxy
    trusted = COMPOSE["services"]["api"]["environment"]["FORWARDED_ALLOW_IPS"]
    assert trusted == "172.16.0.0/12,192.168.0.0/16"  # with *, a visitor could state any address
    networks = [ip_network(one) for one in trusted.split(",")]
    for docker in ("172.18.0.5", "172.31.0.2", "192.168.16.3"):
        assert any(ip_address(docker) in network for network in networks)


def test_only_containers_with_a_port_reach_other_networks() -> None:
    """SOLAR and Redis answer calls and need none of their own outside the stack."""
    internal = {name for name, one in COMPOSE["networks"].items() if (one or {}).get("internal")}
    outside = {
        name for name, one in COMPOSE["services"].items() if not set(one["networks"]) <= internal
    }
    assert outside == {name for name, one in COMPOSE["services"].items() if one.get("ports")}
    assert {"api", "learner", "redis", "demo"}.isdisjoint(outside)


def test_the_proxy_limits_headers_as_the_service_does() -> None:
    proxy = (ROOT / "docker" / "proxy" / "nginx.conf").read_text()
    (buffers,) = re.findall(r"^\s*large_client_header_buffers (\d+) (\d+)k;", proxy, re.MULTILINE)
    assert int(buffers[0]) * int(buffers[1]) <= 32
    (seconds,) = re.findall(r"^\s*client_header_timeout (\d+)s;", proxy, re.MULTILINE)
    assert int(seconds) <= 10


def test_mounted_folders_exist() -> None:
    for service in COMPOSE["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("./") and not source.endswith("/dashboards"):  # generated
                assert (ROOT / source).is_dir(), source


def test_services_and_ports_are_documented() -> None:
    assert COMPOSE["services"]["api"]["deploy"]["replicas"] == 2
    assert COMPOSE["services"]["demo"]["profiles"] == ["demo"]
    for name in ("PUBLISH_API", "PUBLISH_GRAFANA", "PUBLISH_PROMETHEUS", "PUBLISH_ALERTMANAGER"):
        assert f"`{name}`" in CONTAINERS
    for name in COMPOSE["services"]:
        assert f"`{name}`" in CONTAINERS, name


def test_both_stages_of_the_image_name_the_same_cpu() -> None:
    stages = DOCKERFILE.split("\nFROM ")[1:]
    assert len(stages) == 2
    for stage in stages:
        assert "ARG KERNEL_CPU=x86-64-v3" in stage
        assert "NUMBA_CPU_NAME=${KERNEL_CPU}" in stage
        assert 'NUMBA_CPU_FEATURES=""' in stage
        assert "NUMBA_CACHE_DIR=/opt/solar/kernels" in stage


def test_the_builder_gets_the_locked_dependencies_of_both_images() -> None:
    copied = (ROOT / ".dockerignore").read_text().splitlines()
    for name in ("build", "run", "cluster"):
        assert (ROOT / f"requirements/{name}.txt").exists()
        assert f"!requirements/{name}.txt" in copied


# ---- make up ----


def test_make_up_without_docker_reports_the_remedy(tmp_path: Path) -> None:
    sh = next(path for path in ("/bin/sh", "/usr/bin/sh") if Path(path).exists())
    for name in ("dirname", "printf"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    found = run(sh, ROOT / "docker" / "up.sh", environ={"PATH": str(tmp_path)})
    assert found.returncode == 1
    assert "no docker command" in found.stderr
    assert "make run" in found.stderr


# ---- kernels ----


@pytest.mark.slow
def test_kernels_in_a_read_only_cache_are_not_compiled_again(tmp_path: Path) -> None:
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


def test_precompiling_covers_every_kind_of_model_and_training() -> None:
    assert {(kind.algorithm, kind.covariance) for kind in MODEL_KINDS} == {
        ("solar-i", "full"), ("solar-ii", "full"), ("solar-ii", "diagonal"),
    }  # fmt: skip
    assert {(one.trainer, one.loss) for one in TRAININGS} >= {
        ("ranksvm", "l2"), ("ranksvm", "l1"), ("domination", "l2"),
    }  # fmt: skip


# ---- the demo ----


@pytest.mark.slow
def test_the_demo_creates_a_model_that_learns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret, entry = auth.new_key("admin", "rank+feedback+admin")
    (tmp_path / "admin_key").write_text(f"{secret}\n")
    monkeypatch.setattr(traffic, "RATE", (50.0, 50.0))
    with serving(environ={"SOLAR_KEYS": entry}) as service:
        traffic.main(service.url, str(tmp_path / "admin_key"), seconds=3.0)
        with service.client(headers={"authorization": f"Bearer {secret}"}) as client:
            until(lambda: client.get("/models/demo").json()["queries"] > 5)
            found = client.get("/models/demo").json()
    assert found["features"] == list(traffic.FEATURES)
    assert any(found["weights"].values())


def test_the_preferences_of_the_demo_drift_and_return() -> None:
    start, other = traffic.PREFERENCES
    assert traffic.preferences(0.0) == pytest.approx(start)
    assert traffic.preferences(traffic.DRIFT_PERIOD / 2) == pytest.approx(other)
    assert traffic.preferences(traffic.DRIFT_PERIOD) == pytest.approx(start)
    assert json.dumps(traffic.rate(0.0)) == "2.0"
