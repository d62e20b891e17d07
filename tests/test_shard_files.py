"""Files of shards: found and read only below their prefix, errors by the name of the shard."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from app.errors import BadData, InvalidInput, SolarError
from app.training.shards import extra, files, text
from app.training.shards.files import Location, Shard, located
from app.training.shards.urls import below_prefix, prefixes_of
from tests.shards import checked

LINES = "1 qid:1 1:1\n0 qid:1 1:2\n"


def write(path: Path, text: str = LINES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def found(url: Path | str, prefix: str = "") -> list[str]:
    """The names of the files of a URL."""
    return [one.url.rpartition("/")[2] for one in files.expand(Location(str(url), "it", prefix))]


# ---- directories and patterns ----


@pytest.mark.parametrize("url", ["", "/", "/*", "/**"])
def test_marker_files_are_left_out_of_directories_and_patterns(tmp_path: Path, url: str) -> None:
    for name in ("part-0.txt", "_SUCCESS", ".part-0.txt.crc"):
        write(tmp_path / name)
    assert found(f"{tmp_path}{url}") == ["part-0.txt"]


def test_patterns_leave_out_directories(tmp_path: Path) -> None:
    write(tmp_path / "a.txt")
    write(tmp_path / "day=1" / "b.txt")
    assert found(tmp_path / "*") == ["a.txt"]
    assert found(tmp_path / "*" / "*.txt") == ["b.txt"]
    assert found(tmp_path / "**") == ["a.txt", "b.txt"]


def test_a_directory_in_a_directory_is_refused_by_its_name(tmp_path: Path) -> None:
    write(tmp_path / "day=1" / "b.txt")
    with pytest.raises(BadData, match=r"/day=1: expected a file, not a directory; name files"):
        checked([str(tmp_path)])


def test_chained_file_systems_are_refused() -> None:
    for url in ("simplecache::https://host/a.txt", "filecache::/data/a.txt"):
        with pytest.raises(BadData, match=f"^{url}: expected one file system, without ::"):
            located([url])


# ---- links ----


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory outside of the prefix `tmp_path/in`, which has links to it."""
    outside = tmp_path / "out"
    write(outside / "password.txt")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "folder").symlink_to(outside)
    (tmp_path / "in" / "file.txt").symlink_to(outside / "password.txt")
    return outside


@pytest.mark.parametrize(
    "url", ["file.txt", "folder", "folder/", "folder/*", "folder/password.txt", "folder/none", "*"]
)
def test_what_links_lead_to_outside_is_neither_listed_nor_named(secrets: Path, url: str) -> None:
    inside = f"{secrets.parent}/in/"
    with pytest.raises(BadData) as refused:
        files.expand(Location(inside + url, "shards[0]", inside))
    assert str(refused.value) == (
        "shards[0]: expected a file below its prefix, not a link out of it"
    )


def test_patterns_do_not_search_linked_directories(secrets: Path) -> None:
    inside = f"{secrets.parent}/in/"
    with pytest.raises(BadData, match=r"^it: expected at least one file, got none$"):
        found(inside + "fol*/pass*", inside)


def test_links_within_a_prefix_are_read(tmp_path: Path) -> None:
    write(tmp_path / "2026" / "b" / "a.txt")
    (tmp_path / "latest").symlink_to(tmp_path / "2026")
    (shard,) = files.expand(Location(f"{tmp_path}/latest/b", "it", f"{tmp_path}/"))
    with files.opened(shard) as file:
        assert file.read().decode() == LINES


def test_packed_shards_are_read_below_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(LINES.encode()))
    (shard,) = files.expand(Location(f"{tmp_path}/a.txt.gz", "it", f"{tmp_path}/"))
    with files.opened(shard) as file:
        assert file.read().decode() == LINES


@pytest.mark.parametrize("url", ["file.txt", "folder/password.txt"])
def test_a_link_that_is_set_after_the_check_is_not_followed(
    secrets: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    inside = secrets.parent / "in"
    monkeypatch.setattr(Path, "resolve", lambda path: path)  # as if the links were new
    with pytest.raises(OSError, match=f"'{url.partition('/')[0]}'"):
        files.open_below(Shard(f"{inside}/{url}", "it", f"{inside}/"))


# ---- web servers ----


class Web(BaseHTTPRequestHandler):
    """A directory with an index that also names a file outside; no file has a content type."""

    pages: dict[str, bytes] = {}  # noqa: RUF012  # of one test
    asked: list[tuple[str, str]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append((self.command, self.path))
        page = self.pages.get(self.path)
        self.send_response(404 if page is None else 200)
        if self.path.endswith("/"):
            self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(page or b"")

    do_HEAD = do_GET  # noqa: N815  # as the base class has it

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def web(**pages: str) -> Iterator[str]:
    """Serve pages below /judged/, `index` as the page of the directory; yield its URL."""
    Web.asked = []
    Web.pages = {f"/judged/{name}": text.encode() for name, text in pages.items()}
    Web.pages["/judged/"] = Web.pages.pop("/judged/index", b"")
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/judged/"
        finally:
            server.shutdown()
            serving.join()


def test_a_file_of_a_web_server_is_not_read_to_find_it() -> None:
    with web(a=LINES) as base:
        assert found(f"{base}a", base) == ["a"]
    assert {command for command, _ in Web.asked} == {"HEAD"}


def test_a_directory_of_a_web_server_is_read_by_its_index() -> None:
    index = '<a href="?C=N">by name</a> <a href="a">a</a> <a href="_SUCCESS">done</a>'
    with web(index=index, a=LINES) as base:
        for url in (base, base.rstrip("/"), f"{base}*"):
            assert found(url, base) == ["a"]


def test_an_index_that_leads_out_of_the_prefix_causes_no_request_there() -> None:
    index = '<a href="../internal/keys">x</a> <a href="a">a</a> <a href="%2e%2e/keys">y</a>'
    with web(index=index, a=LINES) as base:
        with pytest.raises(BadData, match=r"^it: expected a file below its prefix, not a link"):
            found(base, base)
        assert found(f"{base}*", base) == ["a"]
    assert {path for _, path in Web.asked} == {"/judged/", "/judged/a"}


@pytest.mark.parametrize("url", ["https://host/a/*/b", "https://host/a/**", "https://host/[ab]/*"])
def test_a_job_searches_one_directory_of_a_web_server(url: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"^shards\[0\]: expected patterns without \*\* in the l"
    ):
        below_prefix([url], ["https://host/"])


# ---- prefixes ----


@pytest.mark.parametrize("setting", ["webhdfs://host/a", "hdfs://host/a", "ftp://host", "S3://b"])
def test_prefixes_have_only_file_systems_that_do_not_redirect(setting: str) -> None:
    with pytest.raises(
        SolarError, match=r"SOLAR_SHARDS: expected absolute paths and URLs .*s3, s3a"
    ):
        prefixes_of(setting)


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_job_may_name_the_prefix_itself(tmp_path: Path, slash: str) -> None:
    write(tmp_path / "a.txt")
    (prefix,) = prefixes_of(str(tmp_path))
    assert below_prefix([f"{tmp_path}{slash}"], [prefix]) == (prefix,)
    assert found(f"{tmp_path}{slash}", prefix) == ["a.txt"]


# ---- errors ----


@pytest.mark.parametrize("kind", [MemoryError, TypeError, AssertionError, KeyError])
def test_bugs_and_a_lack_of_memory_are_no_unreadable_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fails(*_: Any) -> Any:
        raise kind

    monkeypatch.setattr(text, "count_features", fails)
    with pytest.raises(kind):
        checked([str(write(tmp_path / "a.txt"))])


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.xz", "a.parquet"])
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    whole = gzip.compress(LINES.encode())
    (tmp_path / name).write_bytes(whole[:-12] + os.urandom(4))
    with pytest.raises(BadData, match=rf"{name}: expected a readable file \(\w+\), got "):
        checked([str(tmp_path / name)])


def test_an_error_of_a_file_system_is_one_of_the_shard(tmp_path: Path) -> None:
    class CredentialsError(Exception):
        pass

    path = write(tmp_path / "a.txt")
    with (
        pytest.raises(
            BadData, match=r"a\.txt: expected a readable file \(CredentialsError\), got no"
        ),
        files.opened(files.expand(located([str(path)])[0])[0]),
    ):
        raise CredentialsError("no key")


def test_only_a_missing_package_of_the_extra_asks_for_the_extra() -> None:
    with pytest.raises(SolarError, match="expected the extra `cluster`"), extra.extra_needed():
        raise ModuleNotFoundError(name="distributed.comm")
    for error in (ModuleNotFoundError(name="yaml"), ImportError("libssl.so.3: wrong version")):
        with pytest.raises(type(error)), extra.extra_needed():
            raise error
