"""Durability levels: guarantees, and refusal of servers that do not provide them."""

import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from app.config import Settings
from app.errors import NotDurable, NotReplicated, SolarError, Unavailable
from app.runtime.wiring import StoreLocator, is_durable
from app.storage import calls
from app.storage.cluster import slot_of
from app.storage.log import APPENDED, REPEATED, AppendResult
from app.storage.store import Store
from tests import fleets
from tests.fleets import Node
from tests.servers import bare_server, client, until, with_store
from tests.tcp_proxies import HOST
from tests.test_store import append, event, first

EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction")


def warnings_at(url: str, level: str) -> list[str]:
    """Return the warnings of a store at a level."""

    async def act(store: Store) -> list[str]:
        return await store.servers.complaints()

    return with_store(url, act, durability=level)


# ---- checks at start ----


@pytest.mark.parametrize("level", ["fsync", "replicated"])
def test_a_level_that_the_server_does_not_provide_is_refused_with_the_reason(level: str) -> None:
    with bare_server(*EVERYSEC) as url, pytest.raises(NotDurable) as caught:
        warnings_at(url, level)
    assert str(caught.value).startswith(
        f"SOLAR_DURABILITY is {level}, but appendfsync: expected always, got everysec"
    )


def test_local_accepts_everysec_but_not_a_server_without_aof() -> None:
    with bare_server(*EVERYSEC) as url:
        assert warnings_at(url, "local") == []
        with client(url) as connection:
            connection.config_set("appendfsync", "no")
        with pytest.raises(NotDurable, match="expected always or everysec, got no"):
            warnings_at(url, "local")
    with bare_server() as url, pytest.raises(NotDurable, match="appendonly: expected yes, got no"):
        warnings_at(url, "local")


def test_without_a_level_a_weak_server_is_used_with_warnings() -> None:
    with bare_server(*EVERYSEC) as url:
        [complaint] = warnings_at(url, "")
    assert complaint.startswith("appendfsync: expected always, got everysec")


def test_a_server_without_config_get_is_used_at_any_level() -> None:
    with bare_server("--rename-command", "CONFIG", "") as url:
        [complaint] = warnings_at(url, "fsync")
    assert "are not checked" in complaint


def test_a_cluster_with_one_weak_master_is_refused() -> None:
    with fleets.cluster_fleet() as fleet:
        fleet.nodes[2].client.config_set("appendfsync", "everysec")
        with pytest.raises(NotDurable, match="got everysec"):
            warnings_at(fleet.url, "fsync")


def test_the_service_does_not_start_on_a_store_below_the_configured_level() -> None:
    with bare_server(*EVERYSEC) as url:
        for command in (["serve", "--port", "0", "--durability", "fsync"], ["learn"]):
            ran = subprocess.run(
                [sys.executable, "-m", "app", *command, "--redis-url", url],
                env={"SOLAR_DURABILITY": "fsync", "PATH": "/bin:/usr/bin"},
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert ran.returncode == 2
            assert "solar: SOLAR_DURABILITY is fsync, but appendfsync" in ran.stderr


def test_the_durability_of_an_unreachable_store_is_unknown(tmp_path: Path) -> None:
    nowhere = Settings(redis_url=f"unix://{tmp_path}/nothing", durability="fsync")
    assert not is_durable(nowhere, nowhere.redis_url)
    assert is_durable(Settings(redis_url=nowhere.redis_url), nowhere.redis_url)


def test_the_embedded_server_provides_local_and_fsync_but_not_replicated(tmp_path: Path) -> None:
    levels: dict[Literal["local", "fsync", ""], str]
    levels = {"local": "everysec", "fsync": "always", "": "always"}
    for level, fsync in levels.items():
        locator = StoreLocator(Settings(data_dir=tmp_path / f"data{level}", durability=level))
        try:
            with client(locator.url()) as connection:
                assert connection.config_get("appendfsync")["appendfsync"] == fsync
        finally:
            locator.close()
    with pytest.raises(SolarError, match="the embedded server has no replica"):
        StoreLocator(Settings(data_dir=tmp_path, durability="replicated")).url()


# ---- replicated ----


@pytest.fixture(scope="module")
def master_and_replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """A master and its replica."""
    directory = tmp_path_factory.mktemp("master_and_replica")
    nodes = master, replica = Node(directory / "master"), Node(directory / "replica")
    try:
        master.start()
        replica.start(replicaof=f"{HOST} {master.port}")
        yield master, replica
    finally:
        for node in nodes:
            node.kill()
            node.client.close()


@pytest.fixture
def replicated(
    master_and_replica: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> tuple[Node, Node]:
    """Empty both and shorten the wait for replicas."""
    monkeypatch.setattr(calls, "REPLICA_SECONDS", 0.3)
    master, replica = master_and_replica
    if not replica.alive:
        replica.start()
    until(lambda: master.client.flushall() and master.client.wait(1, 1000) == 1)
    return master_and_replica


def test_an_event_is_acknowledged_once_a_replica_has_it(replicated: tuple[Node, Node]) -> None:
    master, replica = replicated

    async def act(store: Store) -> None:
        epoch = await store.models.create("books", first())
        assert await append(store, epoch, event("e")) == [(APPENDED, 1)]
        assert replica.client.xlen("solar:{books}:log") == 1
        assert replica.client.smembers("solar:models") == {b"books"}

    with_store(master.url, act, durability="replicated")


def test_a_repeated_event_is_not_acknowledged_before_a_replica_has_it(
    replicated: tuple[Node, Node],
) -> None:
    """It writes nothing, so WAIT alone on a new connection would succeed."""
    master, replica = replicated

    async def create(store: Store) -> int:
        return await store.models.create("books", first())

    async def post(store: Store) -> list[AppendResult]:
        return await append(store, 1, event("e"))

    assert with_store(master.url, create, durability="replicated") == 1
    replica.pause()
    try:
        for _ in range(3):
            with pytest.raises(NotReplicated, match="not yet on a replica"):
                with_store(master.url, post, durability="replicated")
        assert master.client.get("solar:{books}:seq") == b"1"  # written, but not acknowledged
    finally:
        replica.resume()
    until(lambda: master.client.set("x", 1) and master.client.wait(1, 1000) == 1)
    assert with_store(master.url, post, durability="replicated") == [(REPEATED, 1)]


def test_without_a_replica_no_model_is_created_or_deleted(replicated: tuple[Node, Node]) -> None:
    master, replica = replicated

    async def act(store: Store) -> None:
        await store.models.create("films", first())
        replica.kill()
        for _ in range(2):
            with pytest.raises(Unavailable):
                await store.models.create("books", first())
            with pytest.raises(Unavailable):
                await store.models.delete("films")

    with_store(master.url, act, durability="replicated")


def test_a_model_can_be_deleted_from_a_full_store(replicated: tuple[Node, Node]) -> None:
    """The mark for WAIT is written on a full server, too."""
    master, _ = replicated

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        master.client.set("other", b"x" * (2 << 20))
        master.client.config_set("maxmemory", 1 << 20)
        try:
            assert await store.models.delete("books")
            assert await store.models.names() == []
        finally:
            master.client.config_set("maxmemory", 0)

    with_store(master.url, act, durability="replicated")


def test_below_replicated_no_write_waits_for_a_replica(replicated: tuple[Node, Node]) -> None:
    master, replica = replicated

    async def act(store: Store) -> None:
        replica.kill()
        epoch = await store.models.create("books", first())
        assert await append(store, epoch, event("e")) == [(APPENDED, 1)]

    with_store(master.url, act, durability="fsync")


def test_a_master_without_a_replica_causes_a_warning(replicated: tuple[Node, Node]) -> None:
    master, replica = replicated
    assert warnings_at(master.url, "replicated") == []
    replica.kill()
    until(lambda: master.replicas() == 0)
    [complaint] = warnings_at(master.url, "replicated")
    assert "a master has no replica: " in complaint


def test_replicated_writes_do_not_stop_the_move_of_a_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mark on both nodes would stop the move: the target already has that key."""
    monkeypatch.setattr(calls, "MARK_MILLISECONDS", 60_000)
    monkeypatch.setattr(calls, "REPLICA_SECONDS", 0.01)
    with fleets.cluster_fleet() as fleet:
        source, slot = fleet.owner("books"), slot_of("books")
        target = fleet.other_master(source)

        async def act(store: Store) -> None:
            epoch = await store.models.create("books", first())
            marked = Store(store._client, "replicated")
            await refused(append(marked, epoch, event("a")))
            keys = source.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
            marks = [key for key in keys if ":mark" in key]
            assert marks
            fleet.begin_move(slot, source, target)
            source.migrate(target, *(key for key in keys if key not in marks))
            await refused(append(marked, epoch, event("b")))
            source.migrate(target, *marks)

        with_store(fleet.url, act)


async def refused(call: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(Unavailable):
        await call
