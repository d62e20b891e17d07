"""Fleets of real servers: a master and a replica under three Sentinels, and a Cluster.

All run the bundled binary. A `Node` can be killed, paused and restarted on its data. A fleet knows
its master and waits on conditions, never for a fixed time.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.storage.cluster import SLOTS, slot_of
from app.storage.embedded.server import server_binary
from tests.tcp_proxies import HOST, TcpProxies
from tests.waits import until

SERVICE = "solar"
DOWN_AFTER = 1000  # milliseconds until a Sentinel or a Cluster reports a node as down


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in opened:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in opened]


class Node:
    """A server on a free port with a data directory; peers may reach it through a proxy."""

    def __init__(self, directory: Path, proxies: TcpProxies | None = None, **settings: str) -> None:
        directory.mkdir(parents=True)
        self.directory, self.kills = directory, 0
        self.port, self.bus = free_ports(2)
        self.proxy = proxies.to(self.port) if proxies else None
        self.known = self.proxy.port if self.proxy else self.port
        self.settings = {
            "port": str(self.port),
            "bind": HOST,
            "dir": str(directory),
            "logfile": str(directory / "log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
            "replica-announce-port": str(self.known),
            **settings,
        }
        if settings.get("cluster-enabled"):
            self.settings["cluster-port"] = self.settings["cluster-announce-bus-port"] = str(
                self.bus
            )
            self.settings["cluster-announce-port"] = str(self.known)
        self.client: Any = redis.Redis(
            HOST, self.port, socket_timeout=5, retry=Retry(NoBackoff(), 0)
        )
        self.paused = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return its address for peers."""
        return HOST, self.known

    @property
    def url(self) -> str:
        """Return the URL of this server."""
        return f"redis://{HOST}:{self.known}"

    def command(self) -> list[str]:
        """Return the command line."""
        words = [word for name, value in self.settings.items() for word in (f"--{name}", value)]
        return [server_binary(), *words]

    def start(self, **settings: str) -> None:
        """Start it with changed settings and wait until it answers."""
        self.settings.update(settings)
        self._process = subprocess.Popen(
            self.command(), start_new_session=True, stdout=subprocess.DEVNULL
        )
        until(self.answers)

    def answers(self) -> bool:
        """Whether it answers a PING: its data are loaded."""
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.ping())
        return False

    def kill(self) -> None:
        """Kill it with SIGKILL, also if it is paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self.paused = None, False
            self.kills += 1

    def pause(self) -> None:
        """Pause it with SIGSTOP; no data to it are lost."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def _signal(self, one: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(one)

    @property
    def alive(self) -> bool:
        """Whether it runs and is not paused."""
        return self._process is not None and not self.paused

    def is_master(self) -> bool:
        """Whether its role is master."""
        with contextlib.suppress(redis.RedisError):
            return self.alive and self.client.role()[0] in (b"master", "master")
        return False

    def value_of(self, key: str) -> Any:
        """Return the value of a key on this node, also on a replica of a Cluster."""
        with self.client.client() as one:
            if "cluster-enabled" in self.settings:
                one.execute_command("READONLY")
            return one.get(key)

    def migrate(self, to: "Node", *keys: str) -> None:
        """Move keys to another node; an error if that node has one of them."""
        self.client.execute_command("MIGRATE", HOST, to.port, "", 0, 5000, "KEYS", *keys)

    def replicas(self) -> int:
        """Return the number of online replicas."""
        return sum(
            value["state"] == "online"
            for name, value in self.client.info("replication").items()
            if name.startswith("slave") and isinstance(value, dict)
        )


class Sentinel(Node):
    """A Sentinel: the same binary with a configuration file that it rewrites."""

    def __init__(self, directory: Path, master: Node, down_after: int) -> None:
        super().__init__(directory)
        self.myid, self._master, self._down_after = os.urandom(20).hex(), master, down_after

    def write(self, all_of_them: list["Sentinel"]) -> None:
        """Write its configuration: the master and all peers, so that no discovery is needed."""
        lines = [
            f"port {self.port}",
            f"bind {HOST}",
            f"dir {self.directory}",
            f"logfile {self.directory / 'log'}",
            f"sentinel myid {self.myid}",
            f"sentinel monitor {SERVICE} {HOST} {self._master.known} 2",
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        lines += [
            f"sentinel known-sentinel {SERVICE} {HOST} {peer.port} {peer.myid}"
            for peer in all_of_them
            if peer is not self
        ]
        (self.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [server_binary(), str(self.directory / "sentinel.conf"), "--sentinel"]

    def master(self) -> tuple[str, int]:
        """Return the master's address from this Sentinel."""
        _, port = self.client.sentinel_get_master_addr_by_name(SERVICE)
        return HOST, int(port)


class SentinelFleet:
    """A master, a replica and three Sentinels."""

    def __init__(
        self,
        directory: Path,
        proxies: TcpProxies | None = None,
        down_after: int = DOWN_AFTER,
        **settings: str,
    ) -> None:
        self.nodes = [Node(directory / f"node{at}", proxies, **settings) for at in range(2)]
        first = self.nodes[0]
        self.sentinels = [
            Sentinel(directory / f"sentinel{at}", first, down_after) for at in range(3)
        ]
        for sentinel in self.sentinels:
            sentinel.write(self.sentinels)

    @property
    def url(self) -> str:
        """Return the store's URL."""
        hosts = ",".join(f"{HOST}:{one.port}" for one in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def start(self) -> None:
        """Start all and wait until the Sentinels know the replica."""
        first, second = self.nodes
        first.start()
        second.start(replicaof=f"{HOST} {first.known}")
        for sentinel in self.sentinels:
            sentinel.start()
        until(self.is_complete)

    def is_complete(self) -> bool:
        """Whether there is a master with a replica and all Sentinels know both."""
        with contextlib.suppress(redis.RedisError, StopIteration):
            master = self.master()
            states = [one.client.sentinel_master(SERVICE) for one in self.sentinels]
            return (
                master.replicas() == 1
                and all(
                    (state["port"], state["num-slaves"], state["num-other-sentinels"])
                    == (master.known, 1, 2)
                    and not state["is_sdown"]
                    for state in states
                )
                and all(
                    not one["is_sdown"] and one["master-link-status"] == "ok"
                    for sentinel in self.sentinels
                    for one in sentinel.client.sentinel_slaves(SERVICE)
                )
            )
        return False

    def master(self) -> Node:
        """Return the master that most Sentinels name; StopIteration if there is none."""
        named = [one.master() for one in self.sentinels]
        return next(
            node
            for node in self.nodes
            if node.is_master() and named.count(node.address) * 2 > len(named)
        )

    def replica(self) -> Node:
        """Return the node that is not the master."""
        return next(node for node in self.nodes if node is not self.master())

    def promoted(self, node: Node) -> bool:
        """Whether a node is the master and the Sentinels name it."""
        with contextlib.suppress(redis.RedisError, StopIteration):
            return self.master() is node
        return False

    def fail_over(self) -> tuple[Node, Node]:
        """Kill the master and wait for the failover; return the old and the new master."""
        old, new = self.master(), self.replica()
        old.kill()
        until(lambda: self.promoted(new))
        return old, new

    def switch(self) -> tuple[Node, Node]:
        """Kill the master and order the failover; return the old and the new master.

        This skips the time until the Sentinels agree that the master is down.
        """
        old, new = self.master(), self.replica()
        old.kill()
        until(self._start_failover)
        until(new.is_master)
        return old, new

    def _start_failover(self) -> bool:
        """Order a failover; False while the Sentinel knows no good replica."""
        with contextlib.suppress(redis.ResponseError):
            return bool(self.sentinels[0].client.execute_command("SENTINEL FAILOVER", SERVICE))
        return False

    def rejoin(self, node: Node) -> None:
        """Start a killed node as a replica of the master and wait for it.

        A Sentinel would do that about ten seconds after the node came back as a master.
        """
        node.start(replicaof=f"{HOST} {self.master().known}")
        until(self.is_complete)

    def stop(self) -> None:
        """Kill all nodes."""
        for one in (*self.sentinels, *self.nodes):
            one.kill()
            one.client.close()


class ClusterFleet:
    """Three masters with a third of the slots each, and replicas for each."""

    def __init__(
        self, directory: Path, replicas: int = 0, proxies: TcpProxies | None = None, **settings: str
    ) -> None:
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(DOWN_AFTER),
            "cluster-replica-validity-factor": "0",
            **settings,
        }
        self._replicas = replicas
        count = 3 * (1 + replicas)
        self.nodes = [Node(directory / f"node{at}", proxies, **settings) for at in range(count)]

    @property
    def url(self) -> str:
        """Return the store's URL."""
        return "redis+cluster://" + ",".join(f"{HOST}:{one.known}" for one in self.nodes[:3])

    def start(self) -> None:
        """Start all and wait until the cluster is complete."""
        for node in self.nodes:
            node.start()
        first, masters = self.nodes[0], self.nodes[:3]
        for at, node in enumerate(masters):
            last = SLOTS if at == 2 else (at + 1) * (SLOTS // 3)
            slots = (at * (SLOTS // 3), last - 1)
            node.client.execute_command("CLUSTER ADDSLOTSRANGE", *slots)
            node.client.execute_command("CLUSTER SET-CONFIG-EPOCH", at + 1)
        for node in self.nodes[1:]:
            first.client.execute_command("CLUSTER MEET", HOST, node.known, node.bus)
        until(lambda: all(self.knows(node) == len(self.nodes) for node in self.nodes))
        for at, node in enumerate(self.nodes[3:]):
            node.client.execute_command("CLUSTER REPLICATE", self.id_of(masters[at % 3]))
        until(self.is_complete)

    def knows(self, node: Node) -> int:
        """Return the number of nodes that a node knows, itself included."""
        return int(self.info(node)["cluster_known_nodes"])

    def info(self, node: Node) -> dict[str, str]:
        """Return CLUSTER INFO of a node."""
        text = node.client.execute_command("CLUSTER INFO")
        if isinstance(text, dict):
            return {str(name): str(value) for name, value in text.items()}
        return dict(line.split(":") for line in text.decode().split("\r\n") if line)

    def id_of(self, node: Node) -> str:
        """Return the cluster id of a node."""
        found = node.client.execute_command("CLUSTER MYID")
        return found.decode() if isinstance(found, bytes) else str(found)

    def is_complete(self) -> bool:
        """Whether every running node sees all slots served and each master has its replicas."""
        with contextlib.suppress(redis.RedisError):
            running = [node for node in self.nodes if node.alive]
            states = [self.info(node)["cluster_state"] for node in running]
            masters = [node for node in running if node.is_master()]
            return set(states) == {"ok"} and all(
                node.replicas() >= self._replicas for node in masters
            )
        return False

    def serves(self) -> bool:
        """Whether every running node sees all slots served."""
        with contextlib.suppress(redis.RedisError):
            return {self.info(node)["cluster_state"] for node in self.nodes if node.alive} == {"ok"}
        return False

    def owner(self, model: str) -> Node:
        """Return the master of a model on which all running nodes agree."""
        slot = slot_of(model)
        found = {self._owner_port(node, slot) for node in self.nodes if node.alive}
        return next(node for node in self.nodes if {node.known} == found)

    def _owner_port(self, node: Node, slot: int) -> int:
        for first, last, (_, port, *_), *_ in self._slots(node):
            if first <= slot <= last:
                return int(port)
        raise StopIteration

    def _slots(self, node: Node) -> Any:
        """Return the raw answer: redis-py would make a dict of it."""
        with node.client.client() as one:
            one.response_callbacks.pop("CLUSTER SLOTS", None)
            return one.execute_command("CLUSTER SLOTS")

    def replica_of(self, master: Node) -> Node:
        """Return one of its replicas."""
        return next(
            node
            for node in self.nodes
            if node.alive
            and (role := node.client.role())[0] in (b"slave", "slave")
            and int(role[2]) == master.known
        )

    def moved(self, model: str, to: Node) -> bool:
        """Whether all nodes agree that a node owns a model."""
        with contextlib.suppress(redis.RedisError, StopIteration, RuntimeError):
            return self.owner(model) is to
        return False

    def fail_over(self, model: str) -> tuple[Node, Node]:
        """Kill the master of a model; return the old and the new master."""
        old = self.owner(model)
        new = self.replica_of(old)
        old.kill()
        until(lambda: self.moved(model, new) and self.serves())
        return old, new

    def rejoin(self, node: Node) -> None:
        """Start a killed node on its data; it becomes a replica."""
        node.start()
        until(self.is_complete)

    def other_master(self, than: Node) -> Node:
        """Return another master."""
        return next(node for node in self.nodes if node.is_master() and node is not than)

    def begin_move(self, slot: int, source: Node, to: Node) -> None:
        """Start to move a slot: its keys may be on either node."""
        to.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", self.id_of(to))

    def reshard(self, model: str, to: Node, keys_at_once: int = 20) -> Iterator[int]:
        """Move a model's slot to another master; yield the number of keys before each step."""
        source, slot = self.owner(model), slot_of(model)
        self.begin_move(slot, source, to)
        some = ("CLUSTER GETKEYSINSLOT", slot, keys_at_once)
        while keys := source.client.execute_command(*some):
            yield len(keys)
            source.migrate(to, *keys)
        for node in (to, source):
            node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", self.id_of(to))
        until(lambda: self.moved(model, to))

    def stop(self) -> None:
        """Kill all nodes."""
        for one in self.nodes:
            one.kill()
            one.client.close()


@contextlib.contextmanager
def server(**settings: str) -> Iterator[Node]:
    """Run one server on a port."""
    with tempfile.TemporaryDirectory(prefix="solar-test-") as directory:
        node = Node(Path(directory) / "node", None, **settings)
        try:
            node.start()
            yield node
        finally:
            node.kill()
            node.client.close()


@contextlib.contextmanager
def sentinel_fleet(
    proxied: bool = False, down_after: int = DOWN_AFTER, **settings: str
) -> Iterator[SentinelFleet]:
    """Run a master, a replica and three Sentinels."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="solar-test-"))
        proxies = stack.enter_context(TcpProxies()) if proxied else None
        fleet = SentinelFleet(Path(directory), proxies, down_after, **settings)
        stack.callback(fleet.stop)
        fleet.start()
        yield fleet


@contextlib.contextmanager
def cluster_fleet(
    replicas: int = 0, proxied: bool = False, **settings: str
) -> Iterator[ClusterFleet]:
    """Run a cluster of three masters."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="solar-test-"))
        proxies = stack.enter_context(TcpProxies()) if proxied else None
        fleet = ClusterFleet(Path(directory), replicas, proxies, **settings)
        stack.callback(fleet.stop)
        fleet.start()
        yield fleet
