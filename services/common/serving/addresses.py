"""Addresses as texts: whom a connection counts for where nobody has shown a key, and host and port in one."""

import ipaddress


def host_port(host: str, port: int) -> str:
    """host:port, with an address of IPv6 in brackets, because it has colons of its own."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def address_of(peer: object) -> str:
    """Whom a connection counts for: its address, of IPv6 the network that one host can have to itself."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    if ":" not in host:
        return host
    return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(host.partition("%")[0])) >> 64 << 64))
