"""`rediss://` on a real server: behind a TLS proxy, and with a server that has TLS if there is one.

The wheel's server is built without TLS (seen: "Failed finding TLS support").
"""

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.errors import Unavailable
from app.storage.embedded.server import server_binary
from app.storage.store import Store
from tests.servers import TIMEOUT, bare_server, with_store
from tests.test_cli import one_line, solar
from tests.test_store import first

GUEST = ("--user", "guest", "on", ">hush", "~*", "&*", "+@all")
FAMILY = socket.AF_INET  # localhost may have an IPv6 address, too


class Certificate(NamedTuple):
    """A self-signed certificate and its key."""

    file: Path
    key: Path


class TlsServer(NamedTuple):
    """A server with TLS and the certificates for its clients."""

    port: int
    certificate: Certificate
    stranger: Certificate

    def url(self, host: str = "localhost", trusting: Path | None = None) -> str:
        """Return its URL; without `trusting`, only the CAs of the system apply."""
        options = f"?ssl_ca_certs={trusting}" if trusting else ""
        return f"rediss://guest:hush@{host}:{self.port}{options}"


def certified(folder: Path, name: str) -> Certificate:
    """Create a self-signed certificate for localhost."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"]
    usage = ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    files = ["-out", str(made.file), "-keyout", str(made.key)]
    command = [openssl, "req", "-x509", "-days", "2", *curve, *names, *usage, *files]
    subprocess.run(command, check=True, capture_output=True)
    return made


@contextlib.contextmanager
def tls_proxy(path: str, certificate: Certificate) -> Iterator[int]:
    """Run a TLS proxy for a server on a unix socket in a thread; yield its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # the tests cause disconnects
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, requests), pump(answers, writer))

    async def finish() -> None:
        listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(TIMEOUT)

    listening = run(asyncio.start_server(accept, "localhost", 0, ssl=context, family=FAMILY))
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        run(finish())
        run(loop.shutdown_default_executor())  # waits for its thread
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def behind_tls_proxy(certificate: Certificate) -> Iterator[int]:
    with (
        bare_server(*GUEST) as url,
        tls_proxy(url.removeprefix("unix://"), certificate) as port,
    ):
        yield port


@contextlib.contextmanager
def with_server_tls(certificate: Certificate) -> Iterator[int]:
    binary = binary_with_tls()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listens = ["--tls-port", str(port), "--bind", "127.0.0.1", "--tls-auth-clients", "no"]
    files = {"cert": certificate.file, "key": certificate.key, "ca-cert": certificate.file}
    named = [word for name, file in files.items() for word in (f"--tls-{name}-file", str(file))]
    with bare_server(*listens, *named, *GUEST, binary=binary):
        yield port


def binary_with_tls() -> str:
    """Return a server with TLS support: it complains about a missing certificate."""
    places = [server_binary(), shutil.which("valkey-server"), shutil.which("redis-server")]
    for binary in filter(None, places):
        asked = [binary, "--port", "0", "--tls-port", "1", "--save", ""]
        said = subprocess.run(asked, capture_output=True, timeout=TIMEOUT, check=False).stdout
        if b"tls-cert-file" in said:
            return binary
    pytest.skip("no server here was built with TLS: `apt-get install redis-server`")


@pytest.fixture(scope="module", params=[behind_tls_proxy, with_server_tls])
def tls_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, stranger = certified(folder, "server"), certified(folder, "stranger")
    with request.param(certificate) as port:
        yield TlsServer(port, certificate, stranger)


def test_a_store_works_with_the_ca_of_its_url(tls_server: TlsServer) -> None:
    async def act(store: Store) -> None:
        await store.servers.refuse_old()
        await store.models.create("books", first())
        assert (await store.states.load("books")).state.seq == 0
        assert await store.models.names() == ["books"]
        await store.models.delete("books")

    with_store(tls_server.url(trusting=tls_server.certificate.file), act)


UNREACHABLE = r"the store at [a-z0-9.]+:\d+ is unreachable: "
NOT_TRUSTED = f"{UNREACHABLE}its certificate is not trusted: "


def error_message(url: str) -> str:
    """Return the error of every call; all are the same."""
    said = set()
    questions: tuple[Callable[[Store], Coroutine[Any, Any, Any]], ...] = (
        lambda store: store.models.names(),
        lambda store: store.servers.complaints(),
        lambda store: store.servers.refuse_old(),
    )
    for ask in questions:
        with pytest.raises(Unavailable) as caught:
            with_store(url, ask)
        said.add(str(caught.value))
    [one] = said
    return one


def test_a_certificate_of_an_unknown_ca_is_refused_with_the_reason(tls_server: TlsServer) -> None:
    for url in (tls_server.url(), tls_server.url(trusting=tls_server.stranger.file)):
        assert re.fullmatch(f"{NOT_TRUSTED}self.signed certificate", error_message(url))


def test_a_certificate_of_another_host_is_refused_with_the_reason(tls_server: TlsServer) -> None:
    said = error_message(tls_server.url("127.0.0.1", tls_server.certificate.file))
    assert re.match(f"{NOT_TRUSTED}IP address mismatch", said)


def test_an_invalid_ca_file_is_refused_with_the_reason(tls_server: TlsServer) -> None:
    missing = error_message(
        tls_server.url(trusting=tls_server.certificate.file.with_name("missing"))
    )
    assert re.fullmatch(f"{UNREACHABLE}No such file or directory", missing)
    key = error_message(tls_server.url(trusting=tls_server.certificate.key))
    assert re.match(f"{UNREACHABLE}TLS failed: NO_CERT", key)


def test_a_command_prints_the_reason_in_one_line_without_the_password(
    tls_server: TlsServer,
) -> None:
    said = one_line(solar(tls_server.url(), "verify"))
    assert "its certificate is not trusted" in said
    assert "hush" not in said
