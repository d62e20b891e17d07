"""The address of a service, the header with the API key, and the proxy on the way. No IO."""

from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

import httpx

from solar_client.errors import InvalidArgument


def base_url(url: str) -> httpx.URL:
    """Return the address of a service, without credentials, query and fragment."""
    try:
        given = httpx.URL(url)
        base = httpx.URL(scheme=given.scheme, host=given.host, port=given.port, path=given.path)
    except (httpx.InvalidURL, TypeError):
        base = httpx.URL()
    if base.scheme not in ("http", "https") or not base.host or (base.port or 0) >= 1 << 16:
        raise InvalidArgument("url: expected http://HOST:PORT or https://HOST:PORT")
    return base


def key_header(key: str) -> dict[str, str]:
    """Return the header with an API key; an error does not repeat the key."""
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        raise InvalidArgument("key: expected printable ASCII characters")
    return {"authorization": f"Bearer {key}"} if key else {}


def find_proxy(base: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy of the environment; None for a loopback address, which a proxy has too."""
    if is_loopback(base.host):
        return None
    proxies = getproxies()
    url = proxies.get(base.scheme) or proxies.get("all")
    if not url or proxy_bypass(base.host):
        return None
    try:
        proxy = httpx.Proxy(url if "://" in url else f"http://{url}")
    except (ValueError, httpx.InvalidURL):
        proxy = None
    if proxy is None or proxy.url.scheme not in ("http", "https"):
        raise InvalidArgument(
            "proxy: expected http://HOST:PORT or https://HOST:PORT in the environment"
        )
    return proxy


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine.

    >>> is_loopback("localhost"), is_loopback("127.1.2.3"), is_loopback("example.com")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
