"""Addresses of this machine."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether an address is a loopback address, which only this machine can reach.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("::ffff:127.0.0.1")
    (True, True, True)
    >>> is_loopback("0.0.0.0"), is_loopback("")
    (False, False)
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
