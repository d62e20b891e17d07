"""Shards as files of any file system that fsspec knows; imports fsspec when it is called."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from app.errors import BadData, ReadFailed, SolarError
from app.training.shards.extra import extra_needed
from app.training.shards.urls import url_problem

#: What changes with the content of a file, by the names of several file systems, in lower case.
STAMPS = (
    "size", "mtime", "etag", "last-modified", "last_modified", "lastmodified", "updated",
    "generation", "md5hash", "content-md5", "crc32c",
)  # fmt: skip
#: Python's own errors that a file system or a file causes; its others are bugs.
FILE_ERRORS = (OSError, EOFError, ValueError, ImportError, NotImplementedError)


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
    for url in urls:
        if "::" in url:  # a cache of fsspec would hide changes, and follow redirects
            raise BadData(f"{url}: expected one file system, without ::")
    absolute = [url if "://" in url else os.path.abspath(url) for url in urls]  # noqa: PTH100
    return [Location(there, url) for url, there in zip(urls, absolute, strict=True)]


# ---- finding ----


def expand(location: Location) -> list[Shard]:
    """Find the files of a URL, sorted: one file, all of a directory, or those of a pattern."""
    check_inside(_without_pattern(location.url), location)
    with _translated(location.name):
        itself = f"{location.url}/" == location.prefix
        fs, path = _file_system(location.prefix if itself else location.url)
        paths = _listed(fs, path, web=_is_web(location.url))
        if paths is None:
            return [Shard(location.url, location.name, location.prefix, _stamp(fs, path, location))]
        if not paths:
            raise BadData(f"{location.name}: expected at least one file, got none")
        return [_child(fs, one, location) for one in paths]


def _without_pattern(url: str) -> str:
    """Return the directory that a pattern is searched in; other URLs as they are."""
    fixed, magic, _ = url.partition("*")
    return fixed.partition("[")[0].rpartition("/")[0] if magic else url


def _listed(fs: Any, path: str, *, web: bool) -> list[str] | None:
    """Return the data files of a directory or a pattern; None for a single file.

    A directory of a web server ends in a slash: fsspec would read a whole file to find out.
    """
    if "*" in path:
        found = fs.glob(path, detail=True)
        return sorted(one for one in found if _is_data(one) and found[one]["type"] != "directory")
    if path.endswith("/") if web else fs.isdir(path):
        return sorted(one for one in fs.ls(path, detail=False) if _is_data(one))
    return None


def _is_data(path: str) -> bool:
    """Whether this is no marker such as `_SUCCESS` or `.crc`, and no link that sorts an index."""
    return not path.rpartition("/")[2].startswith(("_", ".", "?"))


def _child(fs: Any, path: str, location: Location) -> Shard:
    """Return a file of a directory or a pattern, which is looked at only below the prefix."""
    url = fs.unstrip_protocol(path).removeprefix("file://")
    check_inside(url, location)
    name = url
    if location.prefix:  # a message to a client repeats no URL
        name = f"{location.name}, file {path.rpartition('/')[2][:64]}"
    shard = Shard(url, name, location.prefix)
    return replace(shard, stamp=_stamp(fs, path, shard))


def check_inside(url: str, named: Location | Shard) -> None:
    """Raise BadData if a URL is not below the prefix; links of a local path are resolved."""
    if not named.prefix:
        return
    if named.prefix.startswith("/"):
        outside = not Path(url).resolve().is_relative_to(Path(named.prefix).resolve())
    else:
        outside = not f"{url}/".startswith(named.prefix) or bool(url_problem(url))
    if outside:
        raise BadData(f"{named.name}: expected a file below its prefix, not a link out of it")


# ---- reading ----


@contextmanager
def opened(shard: Shard) -> Iterator[IO[bytes]]:
    """Open a shard, unpacked if its name ends in .gz or .xz; BadData if it has changed."""
    check_inside(shard.url, shard)
    with _translated(shard.name):
        fs, path = _file_system(shard.url)
        check_unchanged(shard, _stamp(fs, path, shard))
        below = shard.prefix.startswith("/")
        packed = open_below(shard) if below else fs.open(path, "rb")
        with packed, _unpacked(packed, shard) as file:
            yield file
        check_unchanged(shard, _stamp(fs, path, shard))


def open_below(shard: Shard) -> IO[bytes]:
    """Open a local file below its prefix; a link that is set meanwhile is not followed."""
    root, file = Path(shard.prefix).resolve(), Path(shard.url).resolve()
    *folders, last = file.relative_to(root).parts
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            above = at
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
        return os.fdopen(os.open(last, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at), "rb")
    finally:
        os.close(at)


def _unpacked(file: IO[bytes], shard: Shard) -> Any:
    import fsspec.utils  # noqa: PLC0415  # the extra may be missing
    from fsspec.compression import compr  # noqa: PLC0415

    packed = None if shard.is_parquet else fsspec.utils.infer_compression(shard.url)
    return compr[packed](file, mode="rb")


def check_stamp(shard: Shard) -> None:
    """Raise BadData if a shard has changed since the training began."""
    check_inside(shard.url, shard)
    with _translated(shard.name):
        check_unchanged(shard, _stamp(*_file_system(shard.url), shard))


def check_unchanged(shard: Shard, stamp: str) -> None:
    """Raise BadData if the stamp is another one."""
    if stamp != shard.stamp:
        raise BadData(f"{shard.name}: the shard has changed during the training; start it again")


def _stamp(fs: Any, path: str, named: Location | Shard) -> str:
    fs.invalidate_cache()
    info = fs.info(path)
    if info["type"] != "file":
        raise BadData(
            f"{named.name}: expected a file, not a {info['type']}; name files further below by a "
            "pattern such as DIRECTORY/*/*.parquet"
        )
    found = {key.lower(): value for key, value in info.items() if key.lower() in STAMPS}
    return " ".join(f"{key}={found[key]}" for key in sorted(found))


def _file_system(url: str) -> tuple[Any, str]:
    with extra_needed():
        import fsspec.core  # noqa: PLC0415
    options: dict[str, Any] = {}
    if _is_web(url):
        options = {"allow_redirects": False, "client_kwargs": {"raise_for_status": _no_redirect}}
    fs, path = fsspec.core.url_to_fs(url, **options)
    return fs, path


def _is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


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
    except (SolarError, MemoryError):
        raise
    except Exception as error:  # each file system and format has errors of its own
        cause = error
        if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
            cause = error.__cause__  # fsspec calls every answer of a web server so
        if type(cause).__module__ == "builtins" and not isinstance(cause, FILE_ERRORS):
            raise
        raise ReadFailed(f"{name}: expected a readable file{_described(cause)}") from None


def _described(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return ", but there is none"
    return f" ({type(error).__name__}), got {str(error)[:200]}"  # an answer ends before "got"
