"""What a service needs of the node it lands on, which need not be the controller's; imports no ray."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from services.common.serving.addresses import host_port
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

AUTO = "auto"
PORTS_PER_PAIR = 3
SERVING, LEAVE = "serving", "leave"
POLL_S = 0.1

Settings = TypeVar("Settings", TargetSettings, DrafterSettings)


def localised(settings: Settings, address: str, gpus: Sequence[int]) -> Settings:
    """The settings with host "auto" replaced by the node's address; makes the folder of a Unix socket.

    Fixed ports of "auto" are moved by the number of the GPU, so that pods with any number of GPUs use the same ports.
    """
    gpu = gpus[0] if gpus else 0
    if settings.grpc.startswith("unix:"):
        Path(settings.grpc.removeprefix("unix:")).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return dataclasses.replace(
        settings,
        grpc=_listen(settings.grpc, address, gpu),
        health=_listen(settings.health, address, gpu),
        metrics=_listen(settings.metrics, address, gpu),
    )


def _listen(listen: str, address: str, gpu: int) -> str:
    host, _, port = listen.rpartition(":")
    if host != AUTO:
        return listen
    return host_port(address, int(port) + PORTS_PER_PAIR * gpu if int(port) else 0)


async def drain_when_asked(folder: Path, drain: Callable[[], Awaitable[None]]) -> None:
    """Marks the folder as serving until leave() asks it to stop, then drains and takes the mark away."""
    _mark(folder)
    while not (folder / LEAVE).exists():
        await asyncio.sleep(POLL_S)
    await drain()
    (folder / SERVING).unlink(missing_ok=True)


async def leave(run_dir: Path, timeout_s: float) -> bool:
    """Asks everything that serves below run_dir to drain; True when all have, False when the time is up."""
    end = asyncio.get_running_loop().time() + timeout_s
    while _asked_to_leave(run_dir):
        if asyncio.get_running_loop().time() >= end:
            return False
        await asyncio.sleep(POLL_S)
    return True


def _mark(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / LEAVE).unlink(missing_ok=True)
    (folder / SERVING).touch()


def _asked_to_leave(run_dir: Path) -> int:
    """How many still serve; each has been asked to leave."""
    serving = [*run_dir.glob(SERVING), *run_dir.glob(f"*/{SERVING}")]
    for mark in serving:
        mark.with_name(LEAVE).touch()
    return len(serving)
