"""Addresses as texts: whom a connection counts for where nobody has shown a key, and host and port in one."""

import ipaddress
import re
from collections.abc import Callable

_PORT = re.compile(r":\d*$")


def host_port(host: str, port: int) -> str:
    """host:port, with an address of IPv6 in brackets, because it has colons of its own."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def name_of(host: str) -> str:
    """A name or an address without its port."""
    return _PORT.sub("", host).strip("[]").rstrip(".").lower()


def is_loopback(name: str) -> bool:
    """Whether a name or an address is one of loopback."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def own_names(address: str) -> Callable[[str], bool]:
    """By which names, as the header Host states them, a listener that binds `address` may be asked.

    One on loopback has names of loopback alone, else a web page could reach it by a name of its own that its owner has
    resolve to 127.0.0.1 (DNS rebinding). Others may be asked by any.
    """
    bound = is_loopback(name_of(address))
    return lambda host: not bound or is_loopback(name_of(host))


def address_of(peer: object) -> str:
    """Whom a connection counts for: its address, of IPv6 the network that one host can have to itself."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    if ":" not in host:
        return host
    return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(host.partition("%")[0])) >> 64 << 64))
