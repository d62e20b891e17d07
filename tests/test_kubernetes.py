"""The manifests of k8s/ are complete, hardened and consistent with the service.

`make test` has no kustomize (it has no wheel), so these tests read the files of an overlay and
combine them. `tools/ops/kubernetes.sh` runs the same tests on the output of kubectl, whose path is
in SOLAR_DEV_KUBECTL.
"""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import config
from app.__main__ import build_parser
from app.runtime import children, worker
from app.storage.connection import SCHEMES
from tests.api.operations import OPEN
from tests.sizes import api_memory, size
from tools import prometheus_rule

ROOT = Path(__file__).parents[1]
K8S = ROOT / "k8s"
KUBECTL = os.environ.get("SOLAR_DEV_KUBECTL", "")
OVERLAYS = ("single", "redis-ha", "monitoring")
WITH_PODS = ("single", "redis-ha")
COMPONENT = "app.kubernetes.io/component"
#: Bytes of a container's log that the kubelet keeps by default: five files of 10 MiB.
KUBELET_LOGS = 50 << 20
Manifest = dict[str, Any]


# ---- reading manifests ----


@cache
def overlay(name: str) -> tuple[Manifest, ...]:
    """All manifests of an overlay."""
    folder = K8S / "overlays" / name
    if not KUBECTL:
        return tuple(_collected(folder))
    ran = subprocess.run(
        [KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    return tuple(yaml.safe_load_all(ran.stdout))


def _collected(folder: Path) -> Iterator[Manifest]:
    """The manifests of a kustomization with its images and its ConfigMaps, without hashed names."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    images = {one["name"]: one for one in kustomization.get("images", ())}
    for resource in kustomization["resources"]:
        path = (folder / resource).resolve()
        found = _collected(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
        for one in found:
            for spec in pod_specs([one]):
                for container in spec["containers"]:
                    if image := images.get(container["image"]):
                        digest = f"@{image['digest']}" if "digest" in image else ""
                        name = image.get("newName", image["name"])
                        container["image"] = f"{name}:{image['newTag']}{digest}"
            yield one
    for made in kustomization.get("configMapGenerator", ()):
        data = {file: (folder / file).read_text() for file in made.get("files", ())}
        for file in made.get("envs", ()):
            lines = (folder / file).read_text().splitlines()
            data |= dict(one.split("=", 1) for one in lines if one and not one.startswith("#"))
        yield {"kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data}


def of_kind(manifests: tuple[Manifest, ...], *kinds: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] in kinds]


def named(manifests: tuple[Manifest, ...], kind: str, name: str) -> Manifest:
    """The manifest of this name; kubectl appends a hash to the names of generated ones."""
    found = [
        one
        for one in of_kind(manifests, kind)
        if re.fullmatch(re.escape(name) + r"(-[a-z0-9]{10})?", one["metadata"]["name"])
    ]
    assert len(found) == 1, (kind, name)
    return found[0]


def workloads(manifests: tuple[Manifest, ...]) -> list[Manifest]:
    return of_kind(manifests, "Deployment", "StatefulSet")


def pod_specs(manifests: Any) -> list[Manifest]:
    return [
        one["spec"]["template"]["spec"]
        for one in manifests
        if one["kind"] in ("Deployment", "StatefulSet")
    ]


def component(manifest: Manifest) -> str:
    return str(manifest["spec"]["template"]["metadata"]["labels"][COMPONENT])


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        one["operator"] == "In" and labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", ())
    )


def ports_of(manifest: Manifest) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"]
        for container in manifest["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]
    }


def settings_of(manifests: tuple[Manifest, ...]) -> dict[str, str]:
    data: dict[str, str] = named(manifests, "ConfigMap", "solar-settings")["data"]
    return data


# ---- every pod ----


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_pod_meets_the_restricted_standard(name: str) -> None:
    (namespace,) = of_kind(overlay(name), "Namespace")
    for mode in ("enforce", "audit", "warn"):
        assert namespace["metadata"]["labels"][f"pod-security.kubernetes.io/{mode}"] == "restricted"
    for spec in pod_specs(overlay(name)):
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True
        assert pod["runAsUser"] > 0
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= {"emptyDir", "configMap"}
            assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""})


@pytest.mark.parametrize("name", WITH_PODS)
def test_no_pod_gets_a_token_or_service_links(name: str) -> None:
    (account,) = of_kind(overlay(name), "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    for spec in pod_specs(overlay(name)):
        assert spec["serviceAccountName"] == account["metadata"]["name"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False  # else it would set SOLAR_PORT=tcp://…


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_container_has_resources_probes_and_a_pinned_image(name: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for spec in pod_specs(overlay(name)):
        for container in spec["containers"]:
            resources = container["resources"]
            assert set(resources["requests"]) == {"cpu", "memory", "ephemeral-storage"}
            assert set(resources["limits"]) == {"memory", "ephemeral-storage"}
            for kind, limit in resources["limits"].items():
                assert 0 < size(resources["requests"][kind]) <= size(limit)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container[probe]["timeoutSeconds"] >= 2  # the default of 1 s is short
            image, _, tag = container["image"].partition("@")[0].partition(":")
            assert re.fullmatch(r"\d+\.\d+\.\d+", tag), container["image"]
            assert image != "solar" or tag == version


@pytest.mark.parametrize("name", WITH_PODS)
def test_the_storage_limit_covers_the_volumes_on_disk_and_the_logs(name: str) -> None:
    """The kubelet evicts a pod whose volumes on disk and logs exceed its containers' limits."""
    for spec in pod_specs(overlay(name)):
        volumes = (volume.get("emptyDir", {"medium": "Memory"}) for volume in spec["volumes"])
        on_disk = sum(size(one["sizeLimit"]) for one in volumes if one.get("medium") != "Memory")
        (container,) = spec["containers"]
        limit = container["resources"]["limits"]["ephemeral-storage"]
        assert size(limit) >= on_disk + KUBELET_LOGS


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_selector_selects_only_its_pods(name: str) -> None:
    pods = {
        component(one): one["spec"]["template"]["metadata"]["labels"]
        for one in workloads(overlay(name))
    }
    assert set(pods) >= {"api", "learner"}
    for one in workloads(overlay(name)):
        found = [who for who, labels in pods.items() if selects(one["spec"]["selector"], labels)]
        assert found == [component(one)]
        for constraint in one["spec"]["template"]["spec"].get("topologySpreadConstraints", ()):
            assert selects(constraint["labelSelector"], pods[component(one)])
    for one in of_kind(overlay(name), "Service", "PodDisruptionBudget"):
        selector = one["spec"]["selector"]
        selector = selector if "matchLabels" in selector else {"matchLabels": selector}
        found = [who for who, labels in pods.items() if selects(selector, labels)]
        assert [f"solar-{who}" for who in found] == [one["metadata"]["name"]]
    for one in of_kind(overlay(name), "Service"):
        ports = ports_of(named(overlay(name), *_kind_and_name(name, one["metadata"]["name"])))
        for port in one["spec"]["ports"]:
            assert port["port"] == ports[port["targetPort"]]


def _kind_and_name(of: str, name: str) -> tuple[str, str]:
    return next(
        (one["kind"], name) for one in workloads(overlay(of)) if one["metadata"]["name"] == name
    )


# ---- consistency with the service ----


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_variable_is_a_valid_setting_of_the_service(name: str) -> None:
    given = settings_of(overlay(name))
    assert set(given) <= set(config.VARIABLES)
    assert config.read_settings(given).jobs == 1
    for one in workloads(overlay(name)):
        if component(one) == "redis":
            continue
        for container in one["spec"]["template"]["spec"]["containers"]:
            assert {entry["name"] for entry in container["env"]} <= set(config.VARIABLES)
            (source,) = container["envFrom"]
            assert source["configMapRef"]["name"].startswith("solar-settings")


@pytest.mark.parametrize("name", WITH_PODS)
def test_secrets_are_only_referenced(name: str) -> None:
    assert of_kind(overlay(name), "Secret") == []
    secret = {"SOLAR_KEYS", "SOLAR_REDIS_URL", "SOLAR_TOKEN_KEYS"}
    assert not secret & set(settings_of(overlay(name)))
    for spec in pod_specs(overlay(name)):
        for container in spec["containers"]:
            for entry in container["env"]:
                assert set(entry["valueFrom"]) == {"secretKeyRef"}
    for path in K8S.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            assert not re.search(r"://[^/\s]*:[^/\s]*@", path.read_text()), path


@pytest.mark.parametrize("name", WITH_PODS)
def test_the_api_gets_token_keys_from_its_secret_if_there_are_any(name: str) -> None:
    """`/beacon`, which the Ingress exposes, is 404 without them."""
    api = named(overlay(name), "Deployment", "solar-api")
    (container,) = api["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"]}
    expected = {"name": "solar-keys", "key": "token-keys", "optional": True}
    assert given["SOLAR_TOKEN_KEYS"] == expected
    assert "--from-literal=token-keys=" in (ROOT / "docs" / "kubernetes.md").read_text()


@pytest.mark.parametrize("name", WITH_PODS)
def test_the_commands_are_valid_and_the_api_has_no_learner(name: str) -> None:
    for who, flags in (("api", {"learner": False}), ("learner", {"host": "0.0.0.0"})):  # noqa: S104
        one = named(overlay(name), "Deployment", f"solar-{who}")
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert container["command"][0] == "solar"
        options = vars(build_parser().parse_args(container["command"][1:]))
        assert flags.items() <= options.items()
    assert options["port"] == ports_of(one)["metrics"]
    api = named(overlay(name), "Deployment", "solar-api")
    given = config.read_settings(settings_of(overlay(name)))
    assert ports_of(api) == {"http": given.port}
    assert given.host == "0.0.0.0"  # noqa: S104  # all of the pod's addresses


@pytest.mark.parametrize("name", WITH_PODS)
def test_probes_use_existing_paths_and_ports(name: str) -> None:
    for who in ("api", "learner"):
        one = named(overlay(name), "Deployment", f"solar-{who}")
        (container,) = one["spec"]["template"]["spec"]["containers"]
        paths = {
            probe: container[probe]["httpGet"]["path"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        assert paths == {
            "startupProbe": "/healthz",
            "livenessProbe": "/healthz",
            "readinessProbe": "/readyz",
        }
        assert set(paths.values()) <= {one.path for one in OPEN}
        ports = {container[probe]["httpGet"]["port"] for probe in paths}
        assert ports == set(ports_of(one))


@pytest.mark.parametrize("name", WITH_PODS)
def test_the_grace_period_covers_the_drain_time_of_the_service(name: str) -> None:
    api = named(overlay(name), "Deployment", "solar-api")["spec"]["template"]["spec"]
    (container,) = api["containers"]
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert before >= 3  # balancers remove the pod meanwhile
    assert api["terminationGracePeriodSeconds"] >= before + children.CHILD_DRAIN_SECONDS + 5
    learner = named(overlay(name), "Deployment", "solar-learner")["spec"]["template"]["spec"]
    assert learner["terminationGracePeriodSeconds"] >= worker.REQUEST_DRAIN_SECONDS + 5


@pytest.mark.parametrize("name", WITH_PODS)
def test_the_upload_volume_holds_two_uploads(name: str) -> None:
    given = config.read_settings(settings_of(overlay(name)))
    api = named(overlay(name), "Deployment", "solar-api")["spec"]["template"]["spec"]
    (container,) = api["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume["emptyDir"] for volume in api["volumes"]}
    assert set(mounts) == {"/tmp", str(given.uploads)}  # noqa: S108
    assert size(volumes[mounts[str(given.uploads)]]["sizeLimit"]) >= 2 * given.upload_bytes


@pytest.mark.parametrize("name", WITH_PODS)
def test_an_api_pod_fits_its_workers_and_all_their_training_jobs(name: str) -> None:
    given = config.read_settings(settings_of(overlay(name)))
    api = named(overlay(name), "Deployment", "solar-api")["spec"]["template"]["spec"]
    (container,) = api["containers"]
    in_memory = sum(
        size(volume["emptyDir"]["sizeLimit"])
        for volume in api["volumes"]
        if volume.get("emptyDir", {}).get("medium") == "Memory"
    )
    requests, limits = (container["resources"][kind] for kind in ("requests", "limits"))
    assert size(limits["memory"]) >= api_memory(given, in_memory)
    assert requests["memory"] == limits["memory"]  # else a node may lack what a job needs
    assert int(requests["cpu"]) >= given.workers  # a core for each worker; jobs run below it


@pytest.mark.parametrize("name", WITH_PODS)
def test_there_are_two_replicas_across_zones_and_one_can_be_disrupted(name: str) -> None:
    (scaling,) = of_kind(overlay(name), "HorizontalPodAutoscaler")
    target = scaling["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", "solar-api")
    assert scaling["apiVersion"] == "autoscaling/v2"
    assert 2 <= scaling["spec"]["minReplicas"] < scaling["spec"]["maxReplicas"]
    assert scaling["spec"]["metrics"][0]["resource"]["name"] == "cpu"
    assert "replicas" not in named(overlay(name), "Deployment", "solar-api")["spec"]
    assert named(overlay(name), "Deployment", "solar-learner")["spec"]["replicas"] == 2
    for who in ("api", "learner"):
        spec = named(overlay(name), "Deployment", f"solar-{who}")["spec"]
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        spread = spec["template"]["spec"]["topologySpreadConstraints"]
        keys = [one["topologyKey"] for one in spread]
        assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_workload_has_a_disruption_budget_that_lets_a_node_drain(name: str) -> None:
    """`minAvailable: 1` of a single Redis would refuse the drain of its node for ever."""
    budgets = of_kind(overlay(name), "PodDisruptionBudget")
    found = {one["metadata"]["name"]: one["spec"] for one in budgets}
    assert set(found) == {one["metadata"]["name"] for one in workloads(overlay(name))}
    for spec in found.values():
        assert spec["maxUnavailable"] == 1
        assert "minAvailable" not in spec
        assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


# ---- network policies ----


@pytest.mark.parametrize("name", WITH_PODS)
def test_all_traffic_is_denied_by_default(name: str) -> None:
    policy = named(overlay(name), "NetworkPolicy", "default-deny")
    assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def _allowed(names: tuple[str, ...]) -> set[tuple[str, str, str, str]]:
    """(pods, direction, peer, ports) of all traffic that some overlays allow."""
    allowed = set()
    for one in (policy for name in names for policy in of_kind(overlay(name), "NetworkPolicy")):
        spec = one["spec"]
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            rules = spec.get(direction, ())
            assert bool(rules) <= (direction.title() in spec["policyTypes"])
            for rule in rules:
                ports = " ".join(f"{port['protocol']}:{port['port']}" for port in rule["ports"])
                assert rule[peers], "expected peers, got a rule for every address"
                allowed |= {
                    (who, direction, _peer(peer), ports)
                    for who in ("api", "learner", "redis")
                    for peer in rule[peers]
                    if selects(spec["podSelector"], {COMPONENT: who})
                }
    return allowed


def _peer(peer: Manifest) -> str:
    if "ipBlock" in peer:
        return str(peer["ipBlock"]["cidr"])
    parts = []
    for kind in ("namespaceSelector", "podSelector"):
        selector = peer.get(kind, {})
        parts += selector.get("matchLabels", {}).values()
        parts += [value for one in selector.get("matchExpressions", ()) for value in one["values"]]
    assert parts, "expected a selector, got one that selects every pod"
    return " ".join(parts)


DNS = ("egress", "kube-system kube-dns", "UDP:53 TCP:53")
CLIENTS = ("api", "ingress", "allowed", "TCP:http")
STORE = ("egress", "redis redis valkey sentinel", "TCP:6379 TCP:26379")


def test_only_needed_traffic_is_allowed() -> None:
    assert _allowed(("single",)) == {
        CLIENTS,
        ("api", *DNS),
        ("learner", *DNS),
        ("api", "egress", "redis", "TCP:redis"),
        ("learner", "egress", "redis", "TCP:redis"),
        ("redis", "ingress", "api learner", "TCP:redis"),
    }
    assert _allowed(("redis-ha",)) == {
        CLIENTS,
        ("api", *DNS),
        ("learner", *DNS),
        ("api", *STORE),
        ("learner", *STORE),
    }
    assert _allowed(("monitoring",)) == {
        (who, "ingress", "monitoring prometheus", "TCP:http TCP:metrics")
        for who in ("api", "learner")
    }


# ---- stores ----


def test_the_redis_of_single_persists_every_acknowledged_write() -> None:
    redis = named(overlay("single"), "StatefulSet", "solar-redis")
    config = named(overlay("single"), "ConfigMap", "solar-redis")["data"]
    settings = dict(
        line.split(" ", 1)
        for line in config["redis.conf"].splitlines()
        if line and not line.startswith("#")
    )
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    assert redis["spec"]["replicas"] == 1
    (claim,) = redis["spec"]["volumeClaimTemplates"]
    disk = size(claim["spec"]["resources"]["requests"]["storage"])
    memory = int(settings["maxmemory"].removesuffix("mb")) << 20
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    assert size(container["resources"]["limits"]["memory"]) >= 2 * memory  # an AOF rewrite forks
    assert disk >= 3 * memory
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == settings["dir"]
    assert settings["aclfile"].startswith(mounts["run"] + "/")
    assert container["command"] == ["sh", mounts["config"] + "/start.sh"]
    assert "user default off ~* &* +@all" in config["start.sh"]  # otherwise Redis 7.0 loses data


@pytest.mark.parametrize("empty", ["SOLAR_PASSWORD", "OPERATOR_PASSWORD"])
def test_the_redis_of_single_does_not_start_with_an_empty_password(empty: str) -> None:
    """Redis would accept every client that sends an empty one."""
    passwords = {"SOLAR_PASSWORD": "one", "OPERATOR_PASSWORD": "two", empty: ""}
    ran = subprocess.run(
        ["/bin/sh", str(K8S / "overlays" / "single" / "start.sh")],
        env={"PATH": os.environ["PATH"], **passwords},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert empty in ran.stderr


def test_redis_ha_has_no_redis_and_lists_the_address_schemes() -> None:
    assert of_kind(overlay("redis-ha"), "StatefulSet") == []
    text = (K8S / "overlays" / "redis-ha" / "kustomization.yaml").read_text()
    for scheme in SCHEMES:
        assert scheme in text
    assert "Sentinel" in text


# ---- monitoring and ingress example ----


def test_service_monitors_cover_every_pod_with_metrics() -> None:
    services = of_kind(overlay("single"), "Service")
    monitors = of_kind(overlay("monitoring"), "ServiceMonitor")
    base = {"app.kubernetes.io/name": "solar"}  # the kustomization adds it to all
    for monitor in monitors:
        selector, (endpoint,) = monitor["spec"]["selector"], monitor["spec"]["endpoints"]
        assert endpoint["path"] in {one.path for one in OPEN}
        (found,) = (
            one for one in services if selects(selector, {**base, **one["metadata"]["labels"]})
        )
        assert endpoint["port"] in [port["name"] for port in found["spec"]["ports"]]
    assert [one["metadata"]["name"] for one in monitors] == ["solar-api", "solar-learner"]


def test_the_alerts_equal_those_of_docker() -> None:
    (rule,) = of_kind(overlay("monitoring"), "PrometheusRule")
    for group in rule["spec"]["groups"]:
        assert group["name"]
        assert all("expr" in one for one in group["rules"])
    if prometheus_rule.SOURCE.exists():
        made = prometheus_rule.rendered(prometheus_rule.SOURCE.read_text())
        assert made == prometheus_rule.TARGET.read_text(), "run python tools/prometheus_rule.py"


def test_a_rules_file_becomes_a_prometheus_rule() -> None:
    groups = [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0", "labels": {"x": "‖w‖"}}]}]
    made = yaml.safe_load(prometheus_rule.rendered(yaml.safe_dump({"groups": groups})))
    assert made["spec"] == {"groups": groups}
    assert made["kind"] == "PrometheusRule"


def test_the_example_ingress_exposes_only_client_paths() -> None:
    ingresses = of_kind(example("ingress"), "Ingress")
    (api,) = (
        one
        for one in of_kind(overlay("single"), "Service")
        if one["metadata"]["name"] == "solar-api"
    )
    names = [port["name"] for port in api["spec"]["ports"]]
    paths = []
    for ingress in ingresses:
        (rule,) = ingress["spec"]["rules"]
        (tls,) = ingress["spec"]["tls"]
        assert tls["hosts"] == [rule["host"]]
        for one in rule["http"]["paths"]:
            paths.append(one["path"])
            service = one["backend"]["service"]
            assert (service["name"], service["port"]["name"]) == ("solar-api", *names)
    assert sorted(paths) == ["/beacon", "/feedback", "/jobs", "/models", "/rank", "/solar.js"]


def test_the_example_ingress_limits_headers_bodies_and_time() -> None:
    given = config.read_settings(settings_of(overlay("single")))
    (controller,) = of_kind(example("ingress"), "ConfigMap")
    count, length = controller["data"]["large-client-header-buffers"].split()
    assert int(count) * bytes_of(length) <= 32_768  # SOLAR answers 431 above 32 kB
    for name in ("client-header-timeout", "client-body-timeout"):
        assert 0 < int(controller["data"][name]) <= 10
    for ingress in of_kind(example("ingress"), "Ingress"):
        uploads = "/models" in str(ingress["spec"]["rules"])
        annotations = ingress["metadata"]["annotations"]
        prefix = "nginx.ingress.kubernetes.io/"
        assert annotations[prefix + "force-ssl-redirect"] == "true"
        largest = given.upload_bytes if uploads else given.body_bytes
        body = bytes_of(annotations[prefix + "proxy-body-size"])
        assert largest <= body <= 1.1 * largest  # the service sends the 413
        waits = int(annotations[prefix + "proxy-read-timeout"])
        assert waits > (given.upload_seconds if uploads else 60)


def test_the_example_for_another_redis_lets_a_node_drain() -> None:
    budgets = of_kind(example("redis-ha"), "PodDisruptionBudget")
    assert len(budgets) == 2  # servers and Sentinels
    for one in budgets:
        assert one["spec"]["maxUnavailable"] == 1
        assert one["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_example_of_a_dask_cluster_is_restricted_and_encrypted() -> None:
    (cluster,) = of_kind(example("dask-cluster"), "DaskCluster")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for role in ("worker", "scheduler"):
        spec = cluster["spec"][role]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        (container,) = spec["containers"]
        assert container["image"] == f"solar:{version}-cluster"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["command"][:2] == ["dask", role]
        assert "tls" in " ".join(container["command"])
        assert "tcp://" not in str(container["command"])
        given = {one["name"]: one["value"] for one in container["env"]}
        assert given["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
    (worker,) = cluster["spec"]["worker"]["spec"]["containers"]
    limit = worker["command"][worker["command"].index("--memory-limit") + 1]
    assert size(worker["resources"]["limits"]["memory"]) >= size(limit.removesuffix("B"))


def test_pods_of_the_dask_cluster_reach_dns_each_other_and_nothing_else() -> None:
    policies = of_kind(example("dask-cluster"), "NetworkPolicy")
    cluster = {"dask.org/cluster-name": "solar-training"}
    scheduler, worker = ({**cluster, "dask.org/component": one} for one in ("scheduler", "worker"))
    api = {COMPONENT: "api"}

    def rules(labels: dict[str, str], direction: str) -> list[tuple[str, str]]:
        peers = {"ingress": "from", "egress": "to"}[direction]
        return sorted(
            (_peer(peer), " ".join(f"{port['protocol']}:{port['port']}" for port in ports))
            for one in policies
            if selects(one["spec"]["podSelector"], labels)
            for rule in one["spec"].get(direction, ())
            for ports in [rule.get("ports", ())]
            for peer in rule[peers]
        )

    own, dns = ("solar-training", ""), DNS[1:]
    operator = ("dask-operator dask-kubernetes-operator", "TCP:8787")
    assert rules(scheduler, "egress") == sorted([own, dns])
    assert rules(worker, "egress") == sorted([own, dns, ("0.0.0.0/0", "TCP:443")])
    assert rules(scheduler, "ingress") == sorted([own, ("api", "TCP:8786"), operator])
    assert rules(worker, "ingress") == [own]
    assert rules(api, "egress") == [("solar-training scheduler", "TCP:8786")]
    assert rules(api, "ingress") == []


def test_workers_of_the_dask_cluster_read_shards_and_cannot_change_them() -> None:
    (found,) = of_kind(example("dask-cluster"), "DaskCluster")
    for role, shards in (("worker", True), ("scheduler", False)):
        spec = found["spec"][role]["spec"]
        (container,) = spec["containers"]
        mounts = {one["name"]: one for one in container["volumeMounts"]}
        volumes = {one["name"]: one for one in spec["volumes"]}
        assert mounts.keys() == volumes.keys()
        assert ("shards" in mounts) == shards
        if shards:
            assert mounts["shards"]["readOnly"] is True
            assert volumes["shards"]["persistentVolumeClaim"]["readOnly"] is True


def example(name: str) -> tuple[Manifest, ...]:
    return tuple(yaml.safe_load_all((K8S / "examples" / f"{name}.yaml").read_text()))


def bytes_of(text: str) -> int:
    """The bytes of a size in the notation of nginx."""
    return int(text[:-1]) << {"k": 10, "m": 20}[text[-1]]
