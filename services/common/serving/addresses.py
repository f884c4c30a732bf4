"""Whom a connection counts for where nobody has shown a key."""

import ipaddress


def address_of(peer: object) -> str:
    """Whom a connection counts for: its address, of IPv6 the network that one host can have to itself."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    if ":" not in host:
        return host
    return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(host.partition("%")[0])) >> 64 << 64))
