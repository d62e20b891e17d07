"""Shards as files of any file system that fsspec knows; imports fsspec when it is called."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from app.errors import BadData, SolarError
from app.training.shards.urls import url_problem

#: What changes with the content of a file, by the names of several file systems, in lower case.
STAMPS = (
    "size", "mtime", "etag", "last-modified", "last_modified", "lastmodified", "updated",
    "generation", "md5hash", "content-md5", "crc32c",
)  # fmt: skip
NO_EXTRA = "expected the extra `cluster`: pip install 'solar-ranking[cluster]'"


class RedirectRefused(OSError):
    """A server named another place: it may be one that a job must not read."""


@dataclass(frozen=True, slots=True)
class Location:
    """A URL as it was given, its name in messages, and the prefix that it must not leave."""

    url: str
    name: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file and its stamp when the training began."""

    url: str
    name: str
    prefix: str = ""
    stamp: str = ""

    @property
    def is_parquet(self) -> bool:
        """Whether the name of the file says that it is parquet; others are text."""
        return self.url.endswith((".parquet", ".pq"))


def located(urls: Sequence[str]) -> list[Location]:
    """Name shards by their URLs; relative paths become absolute, for processes elsewhere."""
    absolute = [url if "://" in url else os.path.abspath(url) for url in urls]  # noqa: PTH100
    return [Location(there, url) for url, there in zip(urls, absolute, strict=True)]


def expand(location: Location) -> list[Shard]:
    """Find the files of a URL, sorted: one file, all of a directory, or those of a pattern."""
    with _translated(location.name):
        fs, path = _file_system(location.url)
        paths = [path]
        if "*" in path:
            paths = sorted(fs.glob(path))
        elif fs.isdir(path):
            paths = sorted(one for one in fs.ls(path, detail=False) if _is_data(one))
        if not paths:
            raise BadData(f"{location.name}: expected at least one file, got none")
        found = [_shard(fs, location, one, alone=paths == [path]) for one in paths]
    for shard in found:
        check_links(shard)
    return found


def _shard(fs: Any, location: Location, path: str, *, alone: bool) -> Shard:
    url = location.url if alone else fs.unstrip_protocol(path).removeprefix("file://")
    name = url
    if location.prefix:  # a message to a client repeats no URL
        name = location.name if alone else f"{location.name}, file {path.rpartition('/')[2][:64]}"
    return Shard(url, name, location.prefix, _stamp(fs, path))


def _is_data(path: str) -> bool:
    """Whether this is not a marker file such as `_SUCCESS` or `.crc`."""
    return not path.rpartition("/")[2].startswith(("_", "."))


def check_links(shard: Shard) -> None:
    """Raise BadData if the links of a local path lead out of its prefix."""
    if not shard.prefix:
        return
    if not shard.prefix.startswith("/"):
        outside = not shard.url.startswith(shard.prefix) or bool(url_problem(shard.url))
    else:
        root, file = Path(shard.prefix).resolve(), Path(shard.url).resolve()
        outside = not file.is_relative_to(root)
    if outside:
        raise BadData(f"{shard.name}: expected a file below its prefix, not a link out of it")


@contextmanager
def opened(shard: Shard) -> Iterator[IO[bytes]]:
    """Open a shard, unpacked if its name ends in .gz or .xz; BadData if it has changed."""
    import fsspec.utils  # noqa: PLC0415  # the extra may be missing

    check_links(shard)
    with _translated(shard.name):
        fs, path = _file_system(shard.url)
        check_unchanged(shard, _stamp(fs, path))
        packed = None if shard.is_parquet else fsspec.utils.infer_compression(path)
        with fs.open(path, "rb", compression=packed) as file:
            yield file
        check_unchanged(shard, _stamp(fs, path))


def check_stamp(shard: Shard) -> None:
    """Raise BadData if a shard has changed since the training began."""
    check_links(shard)
    with _translated(shard.name):
        check_unchanged(shard, _stamp(*_file_system(shard.url)))


def check_unchanged(shard: Shard, stamp: str) -> None:
    """Raise BadData if the stamp is another one."""
    if stamp != shard.stamp:
        raise BadData(f"{shard.name}: the shard has changed during the training; start it again")


def _stamp(fs: Any, path: str) -> str:
    fs.invalidate_cache()
    info = fs.info(path)
    if info["type"] != "file":
        raise BadData("expected a file")
    found = {key.lower(): value for key, value in info.items() if key.lower() in STAMPS}
    return " ".join(f"{key}={found[key]}" for key in sorted(found))


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec.core  # noqa: PLC0415  # the extra may be missing
    except ImportError:
        raise SolarError(NO_EXTRA) from None
    options: dict[str, Any] = {}
    if url.startswith(("http://", "https://")):
        options = {"allow_redirects": False, "client_kwargs": {"raise_for_status": _no_redirect}}
    fs, path = fsspec.core.url_to_fs(url, **options)
    return fs, path


async def _no_redirect(response: Any) -> None:
    """Raise for every answer that is not the file itself; aiohttp calls it."""
    if response.status == 404:
        raise FileNotFoundError
    if response.status >= 400:
        raise OSError(f"status {response.status}")
    if response.status >= 300:
        raise RedirectRefused(f"status {response.status}")


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """Raise the errors of any file system and format as BadData with the name of the shard."""
    try:
        yield
    except SolarError:
        raise
    except FileNotFoundError:
        raise BadData(f"{name}: expected a readable file, but there is none") from None
    except Exception as error:  # noqa: BLE001  # each file system has errors of its own
        kind = type(error).__name__  # an answer over HTTP ends before "got"
        raise BadData(
            f"{name}: expected a readable file ({kind}), got {str(error)[:200]}"
        ) from None
