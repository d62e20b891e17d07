"""Which shards a job may name: only URLs below the prefixes of SOLAR_SHARDS.

The check is textual and refuses every spelling that another reader might resolve differently. Links
of a local directory are resolved when a shard is opened (`files.py`).
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from app.domain.addresses import is_loopback
from app.errors import Forbidden, InvalidInput, SolarError

#: Most URLs in one job, and most characters of a URL.
MOST_URLS, LONGEST_URL = 1000, 1024
#: File systems of a job besides local paths. Redirects of web servers are refused; other file
#: systems such as webhdfs redirect by design.
SHARD_SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "http", "https")
_SCHEME = re.compile(f"({'|'.join(SHARD_SCHEMES)})://")
#: A pattern that makes a web server list further directories, of any address.
_NESTED = re.compile(r"https?://.*([*\[].*/|\*\*)")
#: Ways to leave a prefix, to name another file system, or to hide either.
_HIDDEN = re.compile(r"%2e|%2f|%5c|%25|::|[\\?#\x00-\x20\x7f]", re.IGNORECASE)
_LOCAL = re.compile(r"(file|local|memory):", re.IGNORECASE)
#: A host is a name, an IPv4 address, or an IPv6 address in brackets.
_SCHEDULER = re.compile(
    r"(?P<scheme>tcp|tls)://(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>[1-9][0-9]{0,4})",
    re.ASCII,
)
MOST_PORT = 65535


def prefixes_of(setting: str) -> tuple[str, ...]:
    """Parse SOLAR_SHARDS: absolute paths and URLs of SHARD_SCHEMES, separated by commas.

    >>> prefixes_of("/srv/shards, s3://bucket/judged/")
    ('/srv/shards/', 's3://bucket/judged/')
    """
    found = [one.strip() for one in setting.split(",") if one.strip()]
    for one in found:
        if not (one.startswith("/") or _SCHEME.match(one)) or url_problem(one):
            raise SolarError(
                "SOLAR_SHARDS: expected absolute paths and URLs such as s3://bucket/judged, "
                f"separated by commas, with one of {', '.join(SHARD_SCHEMES)}, got {one[:64]!r}"
            )
    return tuple(one.rstrip("/") + "/" for one in found)


def url_problem(url: str) -> str:
    """Describe what is wrong with a URL in a job; empty if nothing is."""
    if not url or len(url) > LONGEST_URL:
        return f"expected 1 to {LONGEST_URL} characters"
    if _LOCAL.match(url):
        return "expected no file: URL; name a local file by its absolute path"
    if _HIDDEN.search(url):
        return "expected a plain URL without ?, #, ::, \\, spaces and escaped dots, slashes or %"
    if {".", ".."} & set(PurePosixPath(url).parts) or "/./" in url:
        return "expected no . and .. in the path"
    return ""


def below_prefix(urls: Sequence[str], prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return the prefix of each URL; Forbidden if there is none, InvalidInput for a wrong URL.

    >>> below_prefix(["/srv/shards/a.parquet"], ["/srv/shards/"])
    ('/srv/shards/',)
    """
    if not prefixes:
        raise Forbidden("shards: jobs may name no shards; SOLAR_SHARDS lists no prefixes")
    if not 1 <= len(urls) <= MOST_URLS:
        raise InvalidInput(f"shards: expected 1 to {MOST_URLS} URLs")
    return tuple(_prefix(at, url, prefixes) for at, url in enumerate(urls))


def _prefix(at: int, url: str, prefixes: Sequence[str]) -> str:
    if wrong := url_problem(url):
        raise InvalidInput(f"shards[{at}]: {wrong}")
    if _NESTED.match(url):
        raise InvalidInput(f"shards[{at}]: expected patterns without ** in the last part only")
    for prefix in prefixes:
        if f"{url}/".startswith(prefix):
            return prefix
    raise Forbidden(f"shards[{at}]: expected a URL below a prefix of SOLAR_SHARDS")


def check_cluster(address: str, name: str) -> str:
    """Return the address of a cluster unchanged; SolarError if it is not one, or not encrypted.

    A scheduler runs the code that it gets, so beyond loopback it must know its clients: TLS.

    >>> check_cluster("tcp://127.0.0.1:8786", "--cluster"), check_cluster("local:4", "--cluster")
    ('tcp://127.0.0.1:8786', 'local:4')
    """
    if re.fullmatch(r"local(:[1-9][0-9]{0,2})?", address):
        return address
    found = _SCHEDULER.fullmatch(address)
    if found is None or int(found["port"]) > MOST_PORT:
        raise SolarError(
            f"{name}: expected tcp://HOST:PORT, tls://HOST:PORT, local or local:WORKERS, got "
            f"{address[:64]!r}"
        )
    if found["scheme"] == "tcp" and not is_loopback(found["host"].strip("[]")):
        raise SolarError(
            f"{name}: expected tls:// for a scheduler that is not on a loopback address"
        )
    return address
