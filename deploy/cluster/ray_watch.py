"""Notices that Ray has lost a process that it cannot be without, at once and not by Ray's own time-outs."""

import asyncio
import contextlib
from collections.abc import Mapping

import ray

from services.common.serving.addresses import host_port
from services.common.serving.process import Watched, children

OWN = {"raylet": "raylet", "gcs_server": "GCS"}
LOOK_S, AGAIN_S, CONNECT_S, REFUSED = 0.25, 1.0, 2.0, 3


class RayLostError(RuntimeError):
    """A process of Ray has ended; nothing that runs under it can be started or watched any more."""


async def until_lost(joined: bool) -> str:
    """Waits until raylet or GCS has ended; gives its name.

    Processes that this one has started are held by pidfd. Those of a cluster that others started may be elsewhere, so
    they are asked for a connection; three refusals in a row count.
    """
    if joined:
        return await _refusing(_addresses())
    held: dict[str, Watched] = {}
    try:
        for pid, name in children():
            with contextlib.suppress(ProcessLookupError):
                held |= {name: Watched(pid)} if name in OWN else {}
        while True:
            for name, told in OWN.items():
                if name not in held or not held[name].alive:
                    return told
            await asyncio.sleep(LOOK_S)
    finally:
        for process in held.values():
            process.close()


def _addresses() -> dict[str, str]:
    """Where raylet of this node and GCS listen."""
    context = ray.get_runtime_context()
    here = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return {"raylet": host_port(here["NodeManagerAddress"], here["NodeManagerPort"]), "GCS": context.gcs_address}


async def _refusing(addresses: Mapping[str, str]) -> str:
    refused = dict.fromkeys(addresses, 0)
    while True:
        for name, address in addresses.items():
            refused[name] = 0 if await _reachable(address) else refused[name] + 1
            if refused[name] >= REFUSED:
                return name
        await asyncio.sleep(AGAIN_S)


async def _reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
