"""What listens in a Ray, and what it answers to callers without the token."""

import contextlib
import importlib
import ipaddress
import os
import pkgutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import ray.core.generated


def ray_methods() -> list[str]:
    """Those of the stubs that Ray ships, and two that it has none for."""
    found = ["/ray.rpc.ObjectManagerService/Push", "/ray.rpc.ObjectManagerService/Pull"]
    for module in pkgutil.walk_packages(ray.core.generated.__path__, f"{ray.core.generated.__name__}."):
        if module.name.endswith("_pb2"):
            for service in importlib.import_module(module.name).DESCRIPTOR.services_by_name.values():
                found += [f"/{service.full_name}/{method.name}" for method in service.methods]
    return found


def ray_answers(address: str) -> dict[str, str]:
    """What each method answers to a caller without the token."""
    found = {}
    with grpc.insecure_channel(address) as channel:
        for method in ray_methods():
            ask: Any = channel.unary_unary(method)
            try:
                ask(b"", timeout=60.0)
                found[method] = "OK"
            except grpc.RpcError as error:
                found[method] = error.code().name
            if found[method] == "UNAVAILABLE":  # it does not speak gRPC
                break
    return found


def status_of(url: str) -> int:
    """The status of a page."""
    try:
        with urllib.request.urlopen(url, timeout=60.0) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def listeners(pid: int) -> list[tuple[str, int]]:
    """Addresses and ports of the TCP listeners of a process."""
    folder = Path(f"/proc/{pid}/fd")
    with contextlib.suppress(OSError):  # it has ended
        mine = {os.readlink(each) for each in folder.iterdir()}
        lines = [
            line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()
        ]
        return [_address(line[1]) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in mine]
    return []


def _address(written: str) -> tuple[str, int]:
    """An address as the kernel writes it: words of four bytes, each with its last byte first; and a port."""
    words, _, port = written.partition(":")
    raw = bytes.fromhex(words)
    found = ipaddress.ip_address(b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4)))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found), int(port, 16)
