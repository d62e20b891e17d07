"""Run `docker-compose.yml` without a container engine: `play.py ROOT CONFIG FOLDER`.

Every service is a container (tools/ops/containers.py) with an address in each of its networks. As
with Docker, a name server at 127.0.0.11 knows all services that share a network. SOLAR uses the
built image. The others use this machine's nginx, Redis, Prometheus and Alertmanager with the same
files, commands, users and write restrictions. Grafana is left out.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from tools.ops.containers import Container, Image, Mount, folder, running, until
from tools.ops.trial import DOCUMENTS, Client, LoadClient, report

REPOSITORY = Path(__file__).parents[2]
UNPRIVILEGED = (65534, 65534)
#: The directory of secrets that `make up` writes.
SECRETS = "docker/secrets"
#: Image → this machine's program that replaces it.
PROGRAMS = {
    "nginxinc/nginx-unprivileged": "nginx",
    "redis": "redis-server",
    "prom/prometheus": "prometheus",
    "prom/alertmanager": "prometheus-alertmanager",
}
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def interpolated(value: Any) -> Any:
    """A compose file with its variables replaced by their defaults."""
    if isinstance(value, dict):
        return {key: interpolated(one) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolated(one) for one in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"(?<!\$)\$\{[A-Z_]+:-([^}]*)\}", r"\1", value).replace("$$", "$")


@dataclass
class Network:
    """One bridge for each network, and the addresses of the containers."""

    names: list[str]
    members: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def build(self) -> None:
        """Create the bridges; this process has an address on each of them."""
        Path("/run/netns").mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
        _ip("link set lo up")
        for at, _ in enumerate(self.names):
            _ip(f"link add br{at} type bridge")
            _ip(f"addr add 10.99.{at}.1/24 dev br{at}")
            _ip(f"link set br{at} up")

    def join(self, service: str, netns: str, networks: list[str]) -> dict[str, str]:
        """Create a namespace with an address in each of these networks."""
        _ip(f"netns add {netns}")
        _ip(f"-n {netns} link set lo up")
        number, addresses = len(self.members) + 10, {}
        for name in networks:
            at = self.names.index(name)
            addresses[name] = f"10.99.{at}.{number}"
            _ip(f"link add v{at}-{number} type veth peer name e{at} netns {netns}")
            _ip(f"link set v{at}-{number} master br{at} up")
            _ip(f"-n {netns} addr add {addresses[name]}/24 dev e{at}")
            _ip(f"-n {netns} link set e{at} up")
        self.members.append((service, netns, addresses))
        return addresses

    def hosts(self, networks: Mapping[str, str]) -> str:
        """The hosts file of all services in these networks."""
        return "".join(
            f"{addresses[name]} {service}\n"
            for service, _, addresses in self.members
            for name in networks
            if name in addresses
        )


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


@dataclass
class Deployment:
    """The containers of a compose file."""

    place: Path
    solar: Image
    machine: Image
    services: Mapping[str, Any]
    network: Network
    stack: ExitStack
    running: dict[str, Container] = field(default_factory=dict)
    addresses: dict[str, dict[str, str]] = field(default_factory=dict)

    def assign_addresses(self) -> None:
        """Assign all addresses before a container starts; the name servers need them."""
        for name, service in self.services.items():
            for at in range(service.get("deploy", {}).get("replicas", 1)):
                one = f"{name}-{at + 1}"
                self.addresses[one] = self.network.join(name, one, service["networks"])
        (self.place / "resolv.conf").write_text("nameserver 127.0.0.11\n")
        for one, addresses in self.addresses.items():
            hosts = self.place / f"{one}.hosts"
            hosts.write_text(self.network.hosts(addresses))
            self.stack.enter_context(_names(one, hosts))

    def start(self, one: str) -> Container:
        """Start one container of a service."""
        name = one.rsplit("-", 1)[0]
        service = self.services[name]
        image = self.solar if "build" in service else self.machine
        entrypoint = service.get("entrypoint")
        if image is self.machine and entrypoint is None:
            entrypoint = [PROGRAMS[service["image"].split(":")[0]]]
        container = self.stack.enter_context(
            running(
                image, one, self.place / f"{one}.{time.monotonic_ns()}", service.get("command"),
                mounts=self._mounts(service, image), environ=service.get("environment") or {},
                entrypoint=entrypoint, netns=one,
            )
        )  # fmt: skip
        self.running[one] = container
        return container

    def _mounts(self, service: Mapping[str, Any], image: Image) -> list[Mount]:
        found: list[Mount] = [(self.place / "resolv.conf", "/etc/resolv.conf", "ro")]
        for mount in service.get("volumes", ()):
            source, target, *mode = mount.split(":")
            path = REPOSITORY / source if source.startswith(".") else self.volume(source, image)
            found.append((path, target, mode[0] if mode else "rw"))
        found += [
            (self.place / SECRETS / secret, f"/run/secrets/{secret}", "ro")
            for secret in service.get("secrets", ())
        ]
        if image is self.solar and "/data" not in [target for _, target, _ in found]:
            found.append((self.volume(f"anonymous-{len(self.running)}", image), "/data", "rw"))
        return found

    def volume(self, name: str, image: Image) -> Path:
        """A named volume."""
        path = self.place / "volumes" / name
        return path if path.exists() else folder(path, image.user)

    def healthy(self, one: str) -> bool:
        """The result of the service's health check, or else of the image's."""
        container = self.running[one]
        if container.process.poll() is not None:
            raise SystemExit(f"{one} ended:\n{container.logged()}")
        check = self.services[one.rsplit("-", 1)[0]].get("healthcheck")
        if check is None:
            return container.image is not self.solar or container.healthy()
        if "test" not in check:
            return True
        kind, *words = check["test"]
        words = ["sh", "-c", *words] if kind == "CMD-SHELL" else words
        return container.run(*words).returncode == 0

    def up(self, *names: str) -> None:
        """Start these services and wait until they are healthy."""
        members = [one for one in self.addresses if one.rsplit("-", 1)[0] in names]
        started = time.monotonic()
        for one in members:
            self.start(one)
        for one in members:
            until(lambda one=one: self.healthy(one))  # type: ignore[misc]
        report(f"up and healthy after {time.monotonic() - started:.1f} s: {', '.join(members)}")

    def client(self, one: str, port: int, key: str = "") -> Client:
        """An HTTP client for a container."""
        return Client(key, port, next(iter(self.addresses[one].values())))


@contextmanager
def _names(netns: str, hosts: Path) -> Iterator[None]:
    """Run a name server in a namespace, at the address of Docker's."""
    words = ["dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces",
             "--listen-address=127.0.0.11", "--user=root", "--pid-file", "--conf-file=/dev/null",
             "--log-facility=/dev/null", f"--addn-hosts={hosts}"]  # fmt: skip
    process = subprocess.Popen(["nsenter", f"--net=/run/netns/{netns}", "--", *words])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


# ---- checks ----


def check_api(deployment: Deployment, keys: Mapping[str, str]) -> None:
    """Through the proxy: API keys, models and learning work, and /metrics is hidden."""
    admin = deployment.client("proxy-1", 8080, keys["admin_key"])
    web = deployment.client("proxy-1", 8080, keys["api_key"])
    assert admin.ask("PUT", "/models/books", {"features": 2, "prior": 0})[0] == 201
    body = {"model": "books", "documents": DOCUMENTS}
    status, ranked = web.ask("POST", "/rank", body)
    assert status == 200, ranked
    event = {"event_id": "e", "type": "clicks", "request_id": ranked["request_id"],
             "clicked": ["b"]}  # fmt: skip
    status, received = web.ask("POST", "/feedback", event, prefer="wait=20")
    assert status == 200, received
    ranked = until(lambda: _first(web, body, "b"))
    assert deployment.client("proxy-1", 8080).ask("POST", "/rank", body)[0] == 401
    assert web.ask("GET", "/models/books")[0] == 403
    assert web.ask("GET", "/metrics")[0] == 404
    report("through the proxy: it ranks, learns from a click; 401 without key, 403 without scope")


def _first(client: Client, body: Any, wanted: str) -> Any:
    _, ranked = client.ask("POST", "/rank", body)
    return ranked if ranked["documents"][0]["id"] == wanted else None


def check_warm_start(deployment: Deployment, keys: Mapping[str, str]) -> None:
    """Upload judged text through the proxy."""
    admin = deployment.client("proxy-1", 8080, keys["admin_key"])
    judged = "".join(f"{g} qid:{q} 1:{g / 3} 2:{q % 5 / 5}\n" for q in range(20) for g in range(3))
    path = "/models/books/warm-start?C=0.1"
    status, job = admin.ask("POST", path, judged, content_type="text/plain")
    assert status == 202, job
    done = until(lambda: _ended(admin, f"/jobs/{job['id']}"))
    assert done["state"] == "done", done
    report("a warm start through the proxy: done")


def _ended(client: Client, path: str) -> Any:
    _, job = client.ask("GET", path)
    return job if job["state"] != "running" else None


def check_replicas(deployment: Deployment, keys: Mapping[str, str]) -> int:
    """Both replicas serve; killing one under load fails only its open requests; the last seq."""
    client = deployment.client("proxy-1", 8080, keys["api_key"])
    clients = [LoadClient(client, retry=True) for _ in range(2)]
    for caller in clients:
        caller.start()
    until(lambda: all(_answered(deployment, one) > 20 for one in ("api-1", "api-2")))
    deployment.running["api-2"].kill()
    seen = [sum(one.statuses.values()) for one in clients]
    until(lambda: all(sum(one.statuses.values()) > past + 40
                      for one, past in zip(clients, seen, strict=True)))  # fmt: skip
    for caller in clients:
        caller.end()
    statuses, cut = [one.statuses for one in clients], sum(one.cut for one in clients)
    assert all(set(one) <= {200, 202} for one in statuses), statuses
    assert cut <= len(clients), (cut, deployment.running["proxy-1"].logged())
    report(f"two replicas serve; api-2 killed under load: {cut} requests failed; other answers: "
           f"{statuses}")  # fmt: skip
    deployment.start("api-2")
    until(lambda: deployment.healthy("api-2"))
    return max(one.seq for one in clients)


def _answered(deployment: Deployment, one: str) -> float:
    _, page = deployment.client(one, 8000).ask("GET", "/metrics")
    return sum(map(float, re.findall(r'^solar_request_seconds_count\{.*?route="/rank".*?\} (\S+)$',
                                     page, re.MULTILINE)))  # fmt: skip


def check_secrets(deployment: Deployment, keys: Mapping[str, str]) -> None:
    """No secret is on a command line or in a container's environment; the store denies the rest."""
    for one in deployment.running.values():
        lines = one.run("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/1/environ").stdout
        assert lines, one.name
        for name, secret in keys.items():
            assert secret not in lines, (one.name, name)
    redis = deployment.running["redis-1"]
    for words in (
        ["FLUSHALL"],
        ["KEYS", "*"],
        ["CONFIG", "SET", "save", ""],
        ["SET", "other", "1"],
    ):
        denied = redis.run(*_as("solar", "redis_password"), *words)
        assert "NOPERM" in denied.stdout + denied.stderr, (words, denied)
    unknown = redis.run("redis-cli", "PING")
    assert "NOAUTH" in unknown.stdout + unknown.stderr, unknown
    report(
        "no secret on a command line or in a container's environment; user solar cannot run "
        "FLUSHALL, KEYS, CONFIG SET, SET other"
    )


def _as(user: str, password: str) -> list[str]:
    """redis-cli as a user whose password is a secret, without the command."""
    script = f'REDISCLI_AUTH=$(cat /run/secrets/{password}) exec redis-cli "$@"'
    return ["sh", "-euc", script, "redis-cli", "--user", user, "--no-auth-warning"]


def check_watch(deployment: Deployment) -> None:
    """Prometheus scrapes every container, and the demo's metrics change."""
    prometheus = deployment.client("prometheus-1", 9090)

    def query(expression: str) -> list[Any]:
        path = f"/api/v1/query?query={quote(expression)}"
        found: list[Any] = prometheus.ask("GET", path)[1]["data"]["result"]
        return found

    wanted = {"solar-api": "2", "solar-learner": "1", "alertmanager": "1", "prometheus": "1"}
    until(lambda: {r["metric"]["job"]: r["value"][1] for r in query("sum by (job) (up)")} == wanted)
    report(f"Prometheus scrapes {wanted}")
    change = 'max(delta(solar_queries{model="demo"}[30s]))'
    until(lambda: (found := query(change)) and float(found[0]["value"][1]) > 20.0)
    queries = query('max(solar_queries{model="demo"})')[0]["value"][1]
    online, baseline = (query(f'max({name}{{model="demo",k="10"}})')[0]["value"][1]
                        for name in ("solar_online_ndcg", "solar_baseline_ndcg"))  # fmt: skip
    report(f"the demo learns: {queries} queries, NDCG@10 {float(online):.3f} served, "
           f"{float(baseline):.3f} submitted")  # fmt: skip
    _, status = prometheus.ask("GET", "/api/v1/alertmanagers")
    assert len(status["data"]["activeAlertmanagers"]) == 1, status
    _, rules = prometheus.ask("GET", "/api/v1/rules")
    found = [rule for group in rules["data"]["groups"] for rule in group["rules"]]
    bad = [rule["name"] for rule in found if rule["health"] == "err"]
    assert not bad, bad
    report(f"Prometheus has one Alertmanager and {len(found)} rules")


def check_backup(deployment: Deployment, acknowledged: int) -> None:
    """Copy Redis' data live and stopped; restore and verify each copy."""
    data, redis = deployment.place / "volumes" / "redis", deployment.running["redis-1"]
    operator = _as("operator", "redis_operator_password")
    answer = redis.run(*operator, "CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
    assert answer.stdout.strip() == "OK", answer
    until(lambda: "aof_rewrite_in_progress:0" in redis.run(*operator, "INFO", "persistence").stdout)
    live = _copied(deployment, data, "live")
    redis.run(*operator, "CONFIG", "SET", "auto-aof-rewrite-percentage", "100")
    rewritten = redis.run(*operator, "BGREWRITEAOF")
    assert "started" in rewritten.stdout, rewritten
    for one in ("demo-1", "api-1", "api-2", "learner-1"):
        code, seconds = deployment.running[one].stop()
        assert code == 0, (one, code, deployment.running[one].logged())
        report(f"SIGTERM to {one}: ended with 0 after {seconds:.1f} s")
    code, seconds = redis.stop()
    assert code == 0, redis.logged()
    report(f"SIGTERM to redis-1: ended with 0 after {seconds:.1f} s")
    for name, copy in (("live", live), ("stopped", _copied(deployment, data, "stopped"))):
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        for path in (data, *data.rglob("*")):
            shutil.chown(path, *UNPRIVILEGED)
        deployment.up("redis")
        deployment.up("learner")
        version = until(lambda: _version(deployment, acknowledged))
        report(f"restored from a copy made {name}: version {version} of books, acknowledged up to "
               f"{acknowledged}; {_verified(deployment)}")  # fmt: skip
        for one in ("learner-1", "redis-1"):
            code, _ = deployment.running[one].stop()
            assert code == 0, (one, deployment.running[one].logged())


def _copied(deployment: Deployment, data: Path, name: str) -> Path:
    return Path(shutil.copytree(data, deployment.place / f"copy-{name}"))


def _version(deployment: Deployment, least: int) -> int | None:
    """The version of the model books; None below version `least`."""
    _, page = deployment.client("learner-1", 8000).ask("GET", "/metrics")
    found = re.search(r'^solar_version\{model="books"\} (\S+)$', page, re.MULTILINE)
    return int(float(found[1])) if found and float(found[1]) >= least else None


def _verified(deployment: Deployment) -> str:
    """The output of `solar verify` in the learner's container."""
    found = deployment.running["learner-1"].run("solar", "verify")
    assert found.returncode == 0, found
    return found.stdout.strip().replace("\n", "; ")


def main(root: str, config: str, place_: str) -> None:
    """Start all services and run all checks."""
    place = Path(place_)
    place.mkdir(parents=True)
    place.chmod(0o755)
    keys = secrets(place)
    compose = interpolated(yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text()))
    services = {name: one for name, one in compose["services"].items() if name != "grafana"}
    solar = Image(Path(root), json.loads(Path(config).read_text())["Docker"]["config"])
    with ExitStack() as stack:
        machine = stack.enter_context(_machine(place))
        network = Network(list(compose["networks"]))
        network.build()
        deployment = Deployment(place, solar, machine, services, network, stack)
        deployment.assign_addresses()
        deployment.up("redis")
        deployment.up("api", "learner")
        deployment.up("proxy", "prometheus", "alertmanager")
        check_api(deployment, keys)
        check_warm_start(deployment, keys)
        deployment.up("demo")
        check_secrets(deployment, keys)
        acknowledged = check_replicas(deployment, keys)
        check_watch(deployment)
        check_backup(deployment, acknowledged)


def secrets(place: Path) -> dict[str, str]:
    """The secrets that `make up` generates."""
    (place / "docker").mkdir()
    script = shutil.copy(REPOSITORY / "docker" / "up.sh", place / "docker")
    subprocess.run(["sh", script, "secrets"], check=True)
    return {
        path.name: path.read_text().strip()
        for path in (place / SECRETS).iterdir()
        if path.name != "solar"
    }


@contextmanager
def _machine(place: Path) -> Iterator[Image]:
    """The machine's programs as an image: a temporary overlay over its root."""
    for name in ("upper", "work", "machine"):
        (place / name).mkdir()
    layers = f"lowerdir=/,upperdir={place}/upper,workdir={place}/work"
    subprocess.run(
        ["mount", "-t", "overlay", "-o", layers, "overlay", place / "machine"], check=True
    )
    try:
        user = f"{UNPRIVILEGED[0]}:{UNPRIVILEGED[1]}"
        yield Image(place / "machine", {"User": user, "Env": [f"PATH={PATHS}"], "WorkingDir": "/",
                                        "Cmd": [], "Entrypoint": []})  # fmt: skip
    finally:
        subprocess.run(["umount", "-l", place / "machine"], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
